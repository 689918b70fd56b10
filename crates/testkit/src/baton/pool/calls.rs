//! Calls that take pages of the pool beside those of the round: without a mapping, by a private mapping of the file, and by a
//! subpool.

use super::{HUGE, OTHER, OWN_FLAGS, RW, World};
use softfault::{FaultError, HugetlbError, MapFlags, MmapError, ObjectPart, ObjectWriteError, Order, SubpoolLimits};
use softfault_host::{Running, Trap};

/// Where an actor maps the file privately.
pub(super) fn private_of_file(me: u64) -> u64 {
    OTHER + (8 + me) * HUGE
}

/// Where an actor maps a file of its subpool.
fn of_subpool(me: u64) -> u64 {
    OTHER + (16 + me) * HUGE
}

impl World<'_> {
    /// fallocate(2) of the file's page.
    pub(super) fn allocate(&self) {
        let may_be = |e: &ObjectWriteError| self.may_lack && matches!(e, ObjectWriteError::NoHugePages);
        self.insist("fallocate", may_be, || self.file.allocate(0..512));
    }

    /// A private mapping of the file, and its own page. The mapping has a claim, so that only a size may refuse a store.
    pub(super) fn map_file(&self, me: u64, nr: u64, running: &Running<'_>) {
        let at = private_of_file(me);
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        let is_full = |e: &MmapError| matches!(e, MmapError::NoHugePages);
        let map = || self.space.mmap_object(at, HUGE, RW, flags, ObjectPart::new(&self.file));
        if self.insist("mmap of the file", is_full, map).is_some() {
            let is_beyond = |trap: &Trap| self.shortens && matches!(trap.cause, FaultError::BeyondObject);
            self.store(at, me, nr, running, &is_beyond);
            self.insist("munmap", |_| false, || self.space.munmap(at, HUGE));
        }
    }

    /// A subpool that is promised a page, and a file that uses it.
    pub(super) fn with_subpool(&self, me: u64, nr: u64, running: &Running<'_>) {
        let limits = SubpoolLimits::default().with_least(1).with_most(Some(1));
        let is_full = |e: &HugetlbError| matches!(e, HugetlbError::NoHugePages);
        let make = || self.vm.new_hugetlb_subpool(Order::PMD, limits);
        let Some(subpool) = self.insist("a subpool", is_full, make) else { return };
        let Some(file) = self.insist("its file", |_| false, || subpool.new_object(2 * HUGE)) else { return };
        let (at, flags) = (of_subpool(me), MapFlags::SHARED | MapFlags::FIXED);
        let map = || self.space.mmap_object(at, HUGE, RW, flags, ObjectPart::new(&file));
        if self.insist("mmap of its file", |_| false, map).is_some() {
            self.store(at, me, nr, running, &|_| false);
            let is_refused = |e: &ObjectWriteError| matches!(e, ObjectWriteError::SubpoolFull);
            if self.insist("a page beyond the limit", is_refused, || file.allocate(512..1024)).is_some() {
                self.problem("a subpool of one page has two".into());
            }
            self.insist("munmap", |_| false, || self.space.munmap(at, HUGE));
        }
    }

    /// Pages beyond the pool's are permitted, and are not.
    pub(super) fn overcommit(&self) {
        let before = self.counts().overcommit;
        for limit in [1 - before.min(1), before] {
            if let Err(error) = self.vm.set_nr_overcommit_hugepages(Order::PMD, limit) {
                self.problem(format!("an overcommit of {limit}: {error}"));
            }
        }
    }

    /// A mapping of new memory, with its page.
    pub(super) fn map_and_unmap(&self, me: u64, nr: u64, running: &Running<'_>) {
        let is_full = |e: &MmapError| matches!(e, MmapError::NoHugePages);
        let at = OTHER + me * HUGE;
        if self.insist("mmap", is_full, || self.space.mmap(at, HUGE, RW, OWN_FLAGS)).is_some() {
            self.store(at, me, nr, running, &|_| false);
            self.insist("munmap", |_| false, || self.space.munmap(at, HUGE));
        }
    }
}
