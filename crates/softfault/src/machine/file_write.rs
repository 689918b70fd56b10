//! Writes of files: what the core asks a machine for, and how the machine answers.
//!
//! A [`FileWrite`] is a folio of a file's pages whose bytes are on their way to the file. Like a
//! [`FileFill`](super::FileFill) it is made by the core, given to [`Machine::write_back`](super::Machine::write_back), and
//! comes back once: in the answer, or later through [`Vm::written`](crate::Vm::written), from any CPU. One that never comes
//! back keeps its frames and its object for ever; only a call that waits for the file to be written waits for it. The call of
//! [`Machine::write_back`](super::Machine::write_back) itself is also waited for by CPUs that remove the folio.

use super::FileId;
use crate::addr::{Order, PAGE_SIZE, Pfn};
use crate::space::vma::ObjectId;

/// Pages of a file that have to be written from adjacent frames. See the module.
///
/// # Removals
///
/// A smaller or equal size, [`discard`](crate::SharedObject::discard), [`zero`](crate::SharedObject::zero) and
/// [`ObjectHole::discard`](super::ObjectHole::discard) wait for a call of [`Machine::write_back`](super::Machine::write_back) that writes a folio which
/// they have removed. So the machine takes no lock in `write_back` that is held around one of them, and waits there for nobody
/// who makes one. When one of them has returned, no call for the folios that it removed is in progress, and none begins. Only
/// writes that are [under way](Writing::UnderWay) may still come, and the machine has those. A folio that was zeroed in place
/// stays dirty, and is written once more.
#[must_use]
#[derive(PartialEq, Eq, Debug)]
pub struct FileWrite {
    /// The number of the `Vm`.
    pub(crate) vm: u64,
    pub(crate) object: ObjectId,
    pub(crate) file: FileId,
    pub(crate) first_page: u64,
    pub(crate) first_frame: Pfn,
    pub(crate) order: Order,
    pub(crate) len_bytes: u64,
}

impl FileWrite {
    /// The file.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// Where the bytes begin in the file; a multiple of the page size.
    pub fn offset_bytes(&self) -> u64 {
        self.first_page * PAGE_SIZE
    }

    /// Number of bytes to write: up to the end of the folio, or up to the size of the object if that comes first.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The first of the frames. They are adjacent and stay as they are until the write has come back; programs may store
    /// to them meanwhile, so that they are read as memory of programs is.
    pub fn first_frame(&self) -> Pfn {
        self.first_frame
    }

    /// Number of frames, a power of two.
    pub fn nr_frames(&self) -> u64 {
        self.order.nr_pages()
    }
}

/// The machine could not write the pages, or not all bytes of them. They are dirty still, and a call that waits for the file
/// next is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteError;

impl core::fmt::Display for WriteError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("file: the pages could not be written")
    }
}
impl core::error::Error for WriteError {}

/// The machine has no room for a page of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreRefused;

impl core::fmt::Display for StoreRefused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("file: there is no room for the page")
    }
}
impl core::error::Error for StoreRefused {}

/// A write that belongs to another `Vm`, or to an earlier one of the same machine. Nothing was changed: it is here, for the `Vm`
/// that made it.
#[must_use]
#[derive(PartialEq, Eq, Debug)]
pub struct ForeignWrite(pub FileWrite);

impl core::fmt::Display for ForeignWrite {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("write: it was made by another Vm")
    }
}
impl core::error::Error for ForeignWrite {}

/// How a machine answers a write.
#[must_use]
#[derive(PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Writing {
    /// It is over.
    Ended(FileWrite, Result<(), WriteError>),
    /// The machine has kept it, and gives it to [`Vm::written`](crate::Vm::written) later, perhaps before this answer.
    UnderWay,
}
