//! Reads of files: what the core asks a machine for, and how the machine answers.
//!
//! A [`FileFill`] is a folio of a file's pages that is on its way from the file. It is made by the core,
//! given to [`Machine::fill`](super::Machine::fill), and comes back once: in the answer, or later through
//! [`Vm::filled`](crate::Vm::filled), from any CPU. It cannot be copied, so no folio is answered twice. A fill that never comes
//! back keeps its frames and its object for ever, and harms nothing else.

use crate::addr::{Order, Pfn};
use crate::space::vma::ObjectId;

/// A file, by a number that the embedder chooses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileId(pub u64);

/// The device or server that answers the writes of files, by a number that the embedder chooses. See
/// [`Machine::storage`](super::Machine::storage).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StorageId(pub u64);

/// Pages of a file that have to be read into adjacent frames. See the module.
#[must_use]
#[derive(PartialEq, Eq, Debug)]
pub struct FileFill {
    /// The number of the `Vm`.
    pub(crate) vm: u64,
    pub(crate) object: ObjectId,
    pub(crate) file: FileId,
    pub(crate) first_page: u64,
    pub(crate) first_frame: Pfn,
    pub(crate) order: Order,
    pub(crate) len_bytes: u64,
    pub(crate) way: FillWay,
}

/// Purpose of a fill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FillWay {
    /// The machine reads the pages.
    Read,
    /// The embedder installs the pages of an explicit object.
    Install,
    /// The embedder takes them out. Whether somebody has stored to them.
    Evict { is_dirty: bool },
}

impl FileFill {
    /// The object that the pages belong to.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// Whether somebody has stored to the pages since they were installed. Only pages that are
    /// [taken out](crate::SharedObject::begin_evict) can be dirty.
    pub fn is_dirty(&self) -> bool {
        self.way == FillWay::Evict { is_dirty: true }
    }

    /// The file; of an explicit object its own number.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// Where the bytes begin in the file; a multiple of the page size.
    pub fn offset_bytes(&self) -> u64 {
        self.first_page * crate::addr::PAGE_SIZE
    }

    /// Number of bytes to read, at least 1: up to the end of the folio, or up to the size of the object if that comes
    /// first. The frames are zero behind them.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The first of the frames. They are adjacent, and nobody else's until the fill has come back.
    pub fn first_frame(&self) -> Pfn {
        self.first_frame
    }

    /// Number of frames, a power of two.
    pub fn nr_frames(&self) -> u64 {
        self.order.nr_pages()
    }
}

/// The machine could not read the pages, or not all bytes of them. They are missing still, and the next access
/// tries again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FillError;

impl core::fmt::Display for FillError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("file: the pages could not be read")
    }
}
impl core::error::Error for FillError {}

/// A fill that belongs to another `Vm`, or to an earlier one of the same machine. Nothing was changed: it is here, for the `Vm`
/// that made it.
#[must_use]
#[derive(PartialEq, Eq, Debug)]
pub struct ForeignFill(pub FileFill);

impl core::fmt::Display for ForeignFill {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("fill: it was made by another Vm")
    }
}
impl core::error::Error for ForeignFill {}

/// How a machine answers a fill.
#[must_use]
#[derive(PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Filling {
    /// It is over.
    Ended(FileFill, Result<(), FillError>),
    /// The machine has kept it, and gives it to [`Vm::filled`](crate::Vm::filled) later, perhaps before this answer. A CPU that wants one
    /// of the pages sleeps in [`Machine::park`](super::Machine::park).
    UnderWay,
}
