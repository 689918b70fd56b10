//! Files of the hosted machine: where pages of a [`new_file_object`](softfault::Vm::new_file_object) come from.

use crate::arena::Arena;
use softfault::{
    FileFill, FileId, FileWrite, FillError, Filling, FrameRange, HoleRefused, StorageId, StoreRefused, WriteError,
    Writing,
};
use std::fs::File;
use std::ops::{Deref, Range};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// A fill that a file is asked for. Its bytes are borrowed from it: after an answer, or if the fill is kept, they cannot be used.
pub struct HostFill<'a> {
    pub(crate) fill: FileFill,
    pub(crate) arena: &'a Arena,
}

impl HostFill<'_> {
    /// The bytes to write: zero at first.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.arena.bytes_to_fill(&mut self.fill)
    }

    /// The answer: all bytes are written, or the read has failed.
    pub fn end(self, result: Result<(), FillError>) -> Filling {
        Filling::Ended(self.fill, result)
    }

    /// Keeps it for later. The answer is [`Filling::UnderWay`], even if the fill has come back by then.
    pub fn keep(self) -> FileFill {
        self.fill
    }
}

impl Deref for HostFill<'_> {
    type Target = FileFill;
    fn deref(&self) -> &FileFill {
        &self.fill
    }
}

/// A file. Its methods are called by the threads that want a page, which hold nothing, and are no CPUs meanwhile.
pub trait HostFile: Send + Sync {
    /// Reads the bytes, or [keeps](HostFill::keep) the fill for later: see [`Filling`]. Then
    /// [`Vm::write_fill`](softfault::Vm::write_fill) fills the frames. A panic counts as a fill that never comes back.
    fn fill(&self, fill: HostFill<'_>) -> Filling;

    /// Writes the bytes, which are a copy, or keeps the write for later: see [`Writing`]. By default it fails. Bytes behind
    /// the end of the storage are not written, and no error. A panic counts as a write that never comes back. A hole and a smaller size
    /// wait for this call, if it writes one of their pages: it does not wait for [`end_hole`](Self::end_hole).
    fn write_back(&self, write: FileWrite, bytes: &[u8]) -> Writing {
        let _ = bytes;
        Writing::Ended(write, Err(WriteError))
    }

    /// Which storage has it; see [`Machine::storage`](softfault::Machine::storage). By default each file has its own. The
    /// highest numbers are those of such files.
    fn storage(&self) -> Option<StorageId> {
        None
    }

    /// Asks for room for the pages of a folio that is about to be stored to. By default there is.
    fn may_store(&self, pages: Range<u64>) -> Result<(), StoreRefused> {
        let _ = pages;
        Ok(())
    }

    /// Makes a hole of these bytes in the storage; see [`Machine::punch_hole`](softfault::Machine::punch_hole). Until
    /// [`end_hole`](Self::end_hole), fills of them wait or are kept. By default files have no holes.
    fn begin_hole(&self, bytes: Range<u64>) -> Result<(), HoleRefused> {
        let _ = bytes;
        Err(HoleRefused::Unsupported)
    }

    /// The bytes are zero in the object, and the pages of `gone`, a part of them, have left it: writes that were asked for before do
    /// not change these any more. The others may have been stored to and written since.
    fn end_hole(&self, bytes: Range<u64>, gone: Range<u64>) {
        let _ = (bytes, gone);
    }
}

/// A file of the host, read as the pages are wanted. An error of the host, or an early end, fails the fill.
impl HostFile for File {
    fn fill(&self, mut fill: HostFill<'_>) -> Filling {
        let offset = fill.offset_bytes();
        let read = self.read_exact_at(fill.bytes(), offset);
        fill.end(read.map_err(|_| FillError))
    }

    /// Up to the end that the file has. Nobody makes it shorter meanwhile.
    fn write_back(&self, write: FileWrite, bytes: &[u8]) -> Writing {
        let there = self.metadata().map(|data| data.len().saturating_sub(write.offset_bytes()));
        let written = there.and_then(|there| {
            let len = usize::try_from(there).unwrap_or(usize::MAX).min(bytes.len());
            self.write_all_at(&bytes[..len], write.offset_bytes())
        });
        Writing::Ended(write, written.map_err(|_| WriteError))
    }
}

/// A file in memory. It ends where the bytes do: a fill that goes on behind them fails.
impl HostFile for Vec<u8> {
    fn fill(&self, mut fill: HostFill<'_>) -> Filling {
        let start = usize::try_from(fill.offset_bytes()).unwrap_or(usize::MAX);
        let bytes = fill.bytes();
        let there = self.get(start..).and_then(|rest| rest.get(..bytes.len()));
        let result = there.map(|there| bytes.copy_from_slice(there)).ok_or(FillError);
        fill.end(result)
    }
}

/// The same, and it is written to.
impl HostFile for Mutex<Vec<u8>> {
    fn fill(&self, fill: HostFill<'_>) -> Filling {
        self.lock().unwrap_or_else(PoisonError::into_inner).fill(fill)
    }

    fn write_back(&self, write: FileWrite, bytes: &[u8]) -> Writing {
        let mut storage = self.lock().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(write.offset_bytes()).unwrap_or(usize::MAX);
        if let Some(there) = storage.get_mut(start..) {
            there.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        }
        Writing::Ended(write, Ok(()))
    }
}

fn end_of(range: &FrameRange) -> u64 {
    u64::from(range.first.0) + range.nr_frames
}

/// The files of a machine, by number, and the frames that are somebody else's.
#[derive(Default)]
pub(crate) struct Files(RwLock<Vec<Arc<dyn HostFile>>>, Mutex<Vec<FrameRange>>);

impl Files {
    pub(crate) fn add(&self, file: Arc<dyn HostFile>) -> FileId {
        let mut files = self.0.write().unwrap_or_else(PoisonError::into_inner);
        files.push(file);
        FileId(files.len() as u64 - 1)
    }

    pub(crate) fn get(&self, id: FileId) -> Option<Arc<dyn HostFile>> {
        let files = self.0.read().unwrap_or_else(PoisonError::into_inner);
        files.get(usize::try_from(id.0).ok()?).cloned()
    }

    fn foreign(&self) -> MutexGuard<'_, Vec<FrameRange>> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_foreign(&self, range: FrameRange) {
        self.foreign().push(range);
    }

    pub(crate) fn no_longer_foreign(&self, range: &FrameRange) {
        self.foreign().retain(|r| end_of(r) <= range.first.0.into() || end_of(range) <= r.first.0.into());
    }

    pub(crate) fn is_foreign(&self, range: &FrameRange) -> bool {
        self.foreign().iter().any(|r| r.first <= range.first && end_of(range) <= end_of(r))
    }
}
