//! Which parts of the library a build has: the cargo features `files` and `hugetlb`.
//!
//! The functions that make objects of such a part are public only in builds that have it. Elsewhere these constants say that no object
//! is one, so the compiler removes the code that follows from the opposite.

/// Objects whose pages come from files, from the embedder, or are frames of another owner.
pub(crate) const FILES: bool = cfg!(feature = "files");
/// Pools of huge pages.
pub(crate) const HUGETLB: bool = cfg!(feature = "hugetlb");

/// A field of this type makes a struct one that exists only in builds with files.
#[cfg(feature = "files")]
#[derive(Clone, Copy)]
pub(crate) struct OfFiles;
/// The same, without files: there is no value of it.
#[cfg(not(feature = "files"))]
#[derive(Clone, Copy)]
pub(crate) enum OfFiles {}

#[cfg(feature = "files")]
pub(crate) const OF_FILES: Option<OfFiles> = Some(OfFiles);
#[cfg(not(feature = "files"))]
pub(crate) const OF_FILES: Option<OfFiles> = None;
