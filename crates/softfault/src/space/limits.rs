//! Limits on an address space: `vm.max_map_count`, `RLIMIT_AS`, `RLIMIT_DATA`,
//! `RLIMIT_MEMLOCK` and `RLIMIT_STACK`.
//!
//! Operations check limits before they publish. The tree keeps the counts, so no limit costs a
//! walk. A fault checks only when a stack grows. Locks on entry: the writer lock, where it is asked
//! for; a limit is set and read without it.

use super::AddressSpace;
use super::lock::Writer;
use super::vma::VmaFlags;
use crate::addr::PAGE_SIZE;
use crate::machine::Machine;
use crate::space::Vm;
use crate::sync::Word;

/// The limit that was exceeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Excess {
    /// `RLIMIT_AS`.
    AddressSpace,
    /// `RLIMIT_DATA`.
    Data,
}

impl<M: Machine> Vm<M> {
    /// Most VMAs in an address space (`vm.max_map_count`).
    pub fn max_map_count(&self) -> u64 {
        self.max_map_count.get()
    }

    /// Sets the limit on VMAs, for operations that begin later. A space that has more
    /// keeps them and gets no further ones.
    pub fn set_max_map_count(&self, nr_vmas: u64) {
        self.max_map_count.set(nr_vmas);
    }
}

impl<M: Machine> AddressSpace<'_, M> {
    /// Sets the limit on all VMAs together, in bytes (`RLIMIT_AS`); `None` lifts it.
    pub fn set_limit_as(&self, limit_bytes: Option<u64>) {
        set_limit(&self.data.limits.limit_as, limit_bytes);
    }

    /// Sets the limit on private writable memory that is no stack, the heap included, in
    /// bytes (`RLIMIT_DATA`); `None` lifts it.
    pub fn set_limit_data(&self, limit_bytes: Option<u64>) {
        set_limit(&self.data.limits.limit_data, limit_bytes);
    }

    /// Sets the limit on locked memory, in bytes (`RLIMIT_MEMLOCK`); `None` lifts it, as for
    /// a program that has `CAP_IPC_LOCK`.
    pub fn set_limit_memlock(&self, limit_bytes: Option<u64>) {
        set_limit(&self.data.limits.limit_memlock, limit_bytes);
    }

    /// Sets the limit on each mapping that grows down, in bytes (`RLIMIT_STACK`); `None` lifts it.
    /// A mapping that is larger keeps its size.
    pub fn set_limit_stack(&self, limit_bytes: Option<u64>) {
        set_limit(&self.data.limits.limit_stack, limit_bytes);
    }

    /// Pages that count towards `RLIMIT_DATA` (`VmData`). Takes no lock: while a mapping is
    /// moved, it may be missing.
    pub fn nr_data_pages(&self) -> u64 {
        self.data.tree.tally().nr_data_pages
    }

    /// Whether so many VMAs are too many: more than allowed, and more than there are now.
    pub(crate) fn exceeds_map_count(&self, writer: &Writer<'_, M>, nr_vmas: u64) -> bool {
        self.assert_writer(writer);
        nr_vmas > self.vm.max_map_count().max(self.tree(writer).nr_in_tree())
    }

    /// The limit that `nr_more` pages of such a VMA in place of `nr_fewer` exceed. As on
    /// Linux, pages that are replaced count whatever they were.
    pub(crate) fn excess(
        &self,
        writer: &Writer<'_, M>,
        flags: VmaFlags,
        nr_more: u64,
        nr_fewer: u64,
    ) -> Option<Excess> {
        if self.exceeds_as(writer, nr_more, nr_fewer) {
            return Some(Excess::AddressSpace);
        }
        let is_over = flags.is_data() && self.exceeds_data(writer, nr_more.saturating_sub(nr_fewer));
        is_over.then_some(Excess::Data)
    }

    /// Whether `nr_more` pages in place of `nr_fewer` exceed `RLIMIT_AS`.
    pub(crate) fn exceeds_as(&self, writer: &Writer<'_, M>, nr_more: u64, nr_fewer: u64) -> bool {
        self.assert_writer(writer);
        let nr_mapped = self.data.limits.nr_mapped_pages.get();
        nr_mapped - nr_fewer + nr_more > limit_pages(&self.data.limits.limit_as)
    }

    /// Whether so many more pages of data exceed `RLIMIT_DATA`.
    pub(crate) fn exceeds_data(&self, writer: &Writer<'_, M>, nr_more: u64) -> bool {
        self.assert_writer(writer);
        self.tree(writer).tally().nr_data_pages + nr_more > limit_pages(&self.data.limits.limit_data)
    }

    /// Whether a heap of so many bytes alone is within `RLIMIT_DATA`.
    pub(crate) fn fits_heap(&self, nr_bytes: u64) -> bool {
        nr_bytes.div_ceil(PAGE_SIZE) <= limit_pages(&self.data.limits.limit_data)
    }

    /// Whether a mapping that grows down may have so many pages.
    pub(crate) fn fits_stack(&self, nr_pages: u64) -> bool {
        nr_pages <= limit_pages(&self.data.limits.limit_stack)
    }

    /// Whether `nr_more` more pages of such a VMA are within `RLIMIT_MEMLOCK`.
    pub(crate) fn may_lock(&self, writer: &Writer<'_, M>, flags: VmaFlags, nr_more: u64) -> bool {
        self.assert_writer(writer);
        let nr_locked = self.tree(writer).tally().nr_locked_pages;
        !flags.contains(VmaFlags::LOCKED) || nr_locked.saturating_add(nr_more) <= self.memlock_pages()
    }

    /// Most pages of locked VMAs; 0 allows no lock at all.
    pub(crate) fn memlock_pages(&self) -> u64 {
        limit_pages(&self.data.limits.limit_memlock)
    }

    /// Flags that a new mapping gets besides its own.
    pub(crate) fn future_locks(&self) -> VmaFlags {
        VmaFlags::from_bits_retain(self.data.limits.lock_future.get())
    }

    /// Whether the program may lock memory at all.
    pub(crate) fn can_lock(&self) -> bool {
        limit_bytes(&self.data.limits.limit_memlock) != Some(0)
    }
}

/// A word of `LimitsData` is one more than the bytes, 0 without a limit.
fn set_limit(word: &Word, limit_bytes: Option<u64>) {
    word.set(limit_bytes.map_or(0, |bytes| bytes.saturating_add(1)));
}

fn limit_bytes(word: &Word) -> Option<u64> {
    word.get().checked_sub(1)
}

fn limit_pages(word: &Word) -> u64 {
    limit_bytes(word).map_or(u64::MAX, |bytes| bytes / PAGE_SIZE)
}
