//! Fills of pages from the files of the hosted machine, and writes to them.

use crate::cpu::as_no_cpu;
use crate::file::{HostFile, HostFill};
use crate::hosted::Hosted;
use softfault::table::format::Format;
use softfault::{
    FileFill, FileId, FileWrite, FillError, Filling, FrameRange, HoleRefused, ObjectHole, PAGE_SIZE, Pfn, StorageId,
    StoreRefused, WriteError, Writing,
};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

impl<F: Format> Hosted<F> {
    /// Adds a file, for as long as the machine lives.
    pub fn add_file(&self, file: Arc<dyn HostFile>) -> FileId {
        self.files.add(file)
    }

    /// Writes bytes into frames of [foreign memory](softfault::Memory::add_foreign_memory), as their owner may.
    ///
    /// # Panics
    ///
    /// If some of them are not foreign.
    pub fn write_foreign(&self, first: Pfn, bytes: &[u8]) {
        let range = FrameRange { first, nr_frames: (bytes.len() as u64).div_ceil(PAGE_SIZE) };
        assert!(self.files.is_foreign(&range), "{range:?}: should be foreign memory");
        self.arena.store_over(first, 0, bytes);
    }

    /// A file that is not there fails.
    pub(crate) fn write_to_file(&self, write: FileWrite) -> Writing {
        let Some(file) = self.files.get(write.file()) else { return Writing::Ended(write, Err(WriteError)) };
        let bytes = self.arena.load_over(write.first_frame(), write.len_bytes());
        let mut written = Writing::UnderWay;
        let ended = catch_unwind(AssertUnwindSafe(|| as_no_cpu(|| written = file.write_back(write, &bytes))));
        ended.unwrap_or_else(core::mem::forget);
        written
    }

    /// A file that is not there, or whose answer is a panic, has a storage of its own.
    pub(crate) fn storage_of(&self, id: FileId) -> StorageId {
        let mut storage = None;
        if let Some(file) = self.files.get(id) {
            let asked = catch_unwind(AssertUnwindSafe(|| as_no_cpu(|| storage = file.storage())));
            asked.unwrap_or_else(core::mem::forget);
        }
        // Counted from above: embedders count theirs from 0.
        storage.unwrap_or(StorageId(!id.0))
    }

    /// A file that is not there has no room, nor has one whose answer is a panic.
    pub(crate) fn ask_file(&self, id: FileId, pages: Range<u64>) -> Result<(), StoreRefused> {
        let file = self.files.get(id).ok_or(StoreRefused)?;
        let mut allowed = Err(StoreRefused);
        let asked = catch_unwind(AssertUnwindSafe(|| as_no_cpu(|| allowed = file.may_store(pages))));
        asked.unwrap_or_else(core::mem::forget);
        allowed
    }

    /// Memory gets its hole. A file that is not there refuses, and so does one whose answer is a panic.
    pub(crate) fn punch_in_file(&self, hole: ObjectHole<'_>) -> Result<(), HoleRefused> {
        let Some(id) = hole.file() else {
            hole.discard();
            return Ok(());
        };
        let file = self.files.get(id).ok_or(HoleRefused::Unsupported)?;
        let bytes = hole.offset_bytes()..hole.offset_bytes() + hole.len_bytes();
        let mut begun = Err(HoleRefused::NotWritten);
        let asked = catch_unwind(AssertUnwindSafe(|| as_no_cpu(|| begun = file.begin_hole(bytes.clone()))));
        asked.unwrap_or_else(core::mem::forget);
        begun?;
        let gone = hole.discard();
        let ended = catch_unwind(AssertUnwindSafe(|| as_no_cpu(|| file.end_hole(bytes, gone))));
        ended.unwrap_or_else(core::mem::forget);
        Ok(())
    }

    /// A file that is not there fails.
    pub(crate) fn fill_from_file(&self, fill: FileFill) -> Filling {
        let Some(file) = self.files.get(fill.file()) else { return Filling::Ended(fill, Err(FillError)) };
        let fill = HostFill { fill, arena: &self.arena };
        // No panic goes through the core.
        let mut filled = Filling::UnderWay;
        let ended = catch_unwind(AssertUnwindSafe(|| as_no_cpu(|| filled = file.fill(fill))));
        ended.unwrap_or_else(core::mem::forget);
        filled
    }
}
