//! Holes that programs make in what they have mapped: `MADV_REMOVE`.
//!
//! An [`ObjectHole`] is made by the core and given to [`Machine::punch_hole`](super::Machine::punch_hole). The machine changes the storage first
//! and then calls [`discard`](ObjectHole::discard), so that no read brings the old bytes back. From the one to the other it holds
//! whatever keeps others from interfering, such as a lock of the file that [`write_back`](super::Machine::write_back) does not take.

use super::FileId;
use crate::addr::{ObjectPages, PAGE_SIZE};
use crate::space::vma::ObjectId;
use core::ops::Range;

/// Pages of an object that are to be zero from now on. See the module.
#[must_use]
pub struct ObjectHole<'a> {
    pub(crate) object: ObjectId,
    pub(crate) file: Option<FileId>,
    pub(crate) pages: ObjectPages,
    pub(crate) discard: &'a mut dyn FnMut() -> Range<u64>,
}

impl ObjectHole<'_> {
    /// The object that the pages belong to.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// The file that the object's pages come from, if they do.
    pub fn file(&self) -> Option<FileId> {
        self.file
    }

    /// Where the hole begins; a multiple of the page size.
    pub fn offset_bytes(&self) -> u64 {
        self.pages.start * PAGE_SIZE
    }

    /// Number of bytes, in whole pages. The hole may reach beyond the size of the object, which stays as it is.
    pub fn len_bytes(&self) -> u64 {
        (self.pages.end - self.pages.start) * PAGE_SIZE
    }

    /// Takes the pages out of the object and of all mappings, as [`SharedObject::discard`](crate::SharedObject::discard)
    /// does, about which see there. Waits for no read of the file, and for no write that is under way.
    ///
    /// Returns the bytes of the pages that have left the object, or that it did not have: the storage is changed once more for these, or
    /// drops what was asked for before of these. The others are zero in folios that stay. The storage leaves them alone, since they
    /// may have been stored to and written meanwhile.
    pub fn discard(self) -> Range<u64> {
        let gone = (self.discard)();
        gone.start * PAGE_SIZE..gone.end * PAGE_SIZE
    }
}

impl core::fmt::Debug for ObjectHole<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let ObjectHole { object, file, pages, .. } = self;
        write!(f, "ObjectHole {{ {object:?}, {file:?}, {pages:?} }}")
    }
}

/// Why a machine makes no hole. The pages are as they were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HoleRefused {
    /// The file has no holes.
    Unsupported,
    /// The content of the file may not be changed: it is sealed.
    Sealed,
    /// The storage could not be changed.
    NotWritten,
}

impl core::fmt::Display for HoleRefused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            HoleRefused::Unsupported => "file: it has no holes",
            HoleRefused::Sealed => "file: it is sealed",
            HoleRefused::NotWritten => "file: the storage could not be changed",
        })
    }
}
impl core::error::Error for HoleRefused {}
