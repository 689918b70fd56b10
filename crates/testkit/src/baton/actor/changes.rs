//! Deeds that change what is mapped or take pages away, each told to the history.

use super::{Actor, Area, At, Region};
use crate::baton::{
    HEAP, HEAP_PAGES, NR_BYTES, NR_KNOWN, OBJECT_PAGES, PLACES, World, file_pages, heap_pages, nr_known_pages,
    object_pages,
};
use crate::op::PAGE;
use softfault::{Access, Advice, FaultError, MapFlags, MmapError, MremapFlags, Prot, SharedObject};
use softfault_host::Hosted;
use std::ops::Range;
use std::sync::PoisonError;

pub(super) const MREMAP_TO: MremapFlags = MremapFlags::MAYMOVE.union(MremapFlags::FIXED);

impl Actor<'_, '_> {
    pub(super) fn discard(&mut self, region: &Region) {
        let space = &self.world.space;
        self.removing(region.losing(), || space.madvise(region.start, region.len_bytes(), Advice::DontNeed).is_ok());
    }

    /// The pages keep their bytes, but those that are swapped out.
    pub(super) fn free(&mut self, range: Range<u64>) {
        let (at, len) = (self.base().base + range.start * PAGE, (range.end - range.start) * PAGE);
        let advise = || self.world.space.madvise(at, len, Advice::Free);
        if self.world.has_pager {
            self.removing(self.world.known_in(&range), || {
                _ = advise();
                false
            });
        } else {
            _ = advise();
        }
    }

    /// The memory of a page fails, or of what has its frame by then: the program gets a new page.
    pub(super) fn fail(&mut self, here: At, page: usize) {
        let World { vm, space, object, file, file_object, .. } = self.world;
        let at = |page: usize| self.world.addr_of(page, here) & !(PAGE - 1);
        let Some(there) = space.translate_at_rest(at(page)) else { return };
        let all = 0..nr_known_pages();
        self.world.history().bar(all.clone());
        // A page of the file is read again.
        let left =
            |page: usize| if file_pages().contains(&page) { file.word((page - file_pages().start) as u64) } else { 0 };
        let ids: Vec<_> = all.clone().map(|page| self.world.history().begin_removal(page, left(page))).collect();
        let failed = vm.poison_frame(there.pfn);
        self.world.history().note(format!("page {page} fails: {failed:?}"));
        // A fault may be refused for another reason: the objects know better.
        let has_failed = |page: usize| {
            let bad_in = |of: &SharedObject<'_, Hosted>, pages: Range<usize>| {
                let index = (page - pages.start) as u64;
                of.next_poisoned(index..index + 1).is_some()
            };
            match page {
                page if object_pages().contains(&page) => bad_in(object, object_pages()),
                page if file_pages().contains(&page) => bad_in(file_object, file_pages()),
                page => space.handle_fault(at(page), Access::Read) == Err(FaultError::Poisoned),
            }
        };
        for (page, id) in all.clone().zip(ids) {
            if failed.is_err() || !has_failed(page) {
                self.world.history().cancel(id);
                continue;
            }
            if object_pages().contains(&page) {
                let index = (page - object_pages().start) as u64;
                object.discard(index..index + 1);
            } else if file_pages().contains(&page) {
                let index = (page - file_pages().start) as u64;
                file_object.discard(index..index + 1);
            } else {
                self.insist("MADV_DONTNEED", || space.madvise(at(page), PAGE, Advice::DontNeedLocked));
            }
            self.world.history().end(id, true);
        }
        self.world.history().admit(all);
    }

    fn map_again(&self, region: &Region) -> Result<(), MmapError> {
        match region.area {
            Area::Anon(first) => self.world.map(region.start - first * PAGE, first, region.nr_pages),
            Area::Shared => self.world.map_file(region.start, MapFlags::SHARED),
            Area::Private => self.world.map_file(region.start, MapFlags::PRIVATE),
        }
    }

    pub(super) fn unmap(&mut self, region: &Region) {
        self.world.history().bar(region.known.iter().copied());
        let mut is_gone = false;
        self.removing(region.losing(), || {
            let gone = self.world.space.munmap(region.start, region.len_bytes());
            self.world.history().note(format!("munmap of {} at {:x}: {gone:?}", region.nr_pages, region.start));
            is_gone = gone.is_ok();
            is_gone
        });
        if is_gone {
            self.insist("mmap", || self.map_again(region));
        }
        self.world.history().admit(region.known.iter().copied());
    }

    pub(super) fn map_over(&mut self, region: &Region) {
        self.removing(region.losing(), || {
            let mapped = self.map_again(region);
            self.world.history().note(format!("mmap over {} at {:x}: {mapped:?}", region.nr_pages, region.start));
            mapped.is_ok()
        });
    }

    pub(super) fn protect(&mut self, region: &Region) {
        let (at, len) = (region.start, region.len_bytes());
        self.world.history().bar(region.known.iter().copied());
        let protected = self.world.space.mprotect(at, len, Prot::READ);
        self.world.history().note(format!("mprotect of {} at {at:x}: {protected:?}", region.nr_pages));
        self.insist("mprotect", || self.world.space.mprotect(at, len, Prot::READ | Prot::WRITE));
        self.world.history().admit(region.known.iter().copied());
    }

    pub(super) fn guard(&mut self, base: u64, range: Range<u64>) {
        let (at, len) = (base + range.start * PAGE, (range.end - range.start) * PAGE);
        self.world.history().bar(self.world.known_in(&range));
        self.removing(self.world.known_in(&range), || self.world.space.madvise(at, len, Advice::GuardInstall).is_ok());
        self.insist("MADV_GUARD_REMOVE", || self.world.space.madvise(at, len, Advice::GuardRemove));
        self.world.history().admit(self.world.known_in(&range));
    }

    /// Moves all private memory. With `keep`, what stays mapped at the old place is
    /// unmapped afterwards.
    pub(super) fn move_to_another(&mut self, base: u64, keep: bool) {
        let others: Vec<u64> = PLACES.into_iter().filter(|place| *place != base).collect();
        let to = self.random.pick(&others);
        let space = &self.world.space;
        self.world.history().bar(0..NR_KNOWN);
        if keep {
            self.world.history().begin_doubt();
        }
        let flags = if keep { MREMAP_TO | MremapFlags::DONTUNMAP } else { MREMAP_TO };
        let moved = space.mremap(base, NR_BYTES, NR_BYTES, flags, to);
        self.world.history().note(format!("mremap from {base:#x} to {to:#x}, {flags:?}: {moved:x?}"));
        if moved.is_ok() || self.finish_move(base, to, flags) {
            self.world.place.lock().unwrap_or_else(PoisonError::into_inner).at.base = to;
            if keep {
                self.insist("munmap", || space.munmap(base, NR_BYTES));
            }
        } else if !self.world.history().is_starved && !keep {
            self.world.history().problems.push(format!("mremap: {moved:?}"));
        }
        if keep {
            self.world.history().end_doubt();
        }
        self.world.history().admit(0..NR_KNOWN);
    }

    /// A refused move of several mappings has moved those before the one that was
    /// refused, as on Linux: moves the others. `false` if none has moved.
    fn finish_move(&self, base: u64, to: u64, flags: MremapFlags) -> bool {
        let space = &self.world.space;
        let nr_moved = |from: u64| space.vma(to + from).map_or(from, |vma| vma.range.end.addr() - to);
        let mut moved = nr_moved(0);
        if moved == 0 {
            return false;
        }
        while moved < NR_BYTES {
            let further = nr_moved(moved);
            if further == moved {
                let len = space.vma(base + moved).map_or(PAGE, |vma| vma.range.end.addr() - base - moved);
                self.insist("mremap", || space.mremap(base + moved, len, len, flags, to + moved).map(drop));
                if nr_moved(moved) == moved {
                    return true; // a problem, and told of
                }
            }
            moved = nr_moved(moved);
        }
        true
    }

    /// The heap goes and comes back, empty.
    pub(super) fn resize_heap(&mut self) {
        let (space, end) = (&self.world.space, HEAP + HEAP_PAGES * PAGE);
        self.world.history().bar(heap_pages());
        self.removing(heap_pages(), || space.brk(HEAP) == HEAP);
        self.insist("brk", || if space.brk(end) == end { Ok(()) } else { Err("the heap did not grow") });
        self.world.history().admit(heap_pages());
    }

    pub(super) fn discard_object(&mut self) {
        let World { object, .. } = self.world;
        self.removing(object_pages(), || {
            object.discard(0..OBJECT_PAGES);
            true
        });
    }

    pub(super) fn resize_object(&mut self) {
        let World { object, .. } = self.world;
        self.world.history().bar(object_pages());
        self.removing(object_pages(), || {
            object.set_size_bytes(0);
            if object.nr_resident_pages() != 0 {
                self.world.history().problems.push("pages beyond the object's size".into());
            }
            true
        });
        object.set_size_bytes(OBJECT_PAGES * PAGE);
        self.world.history().admit(object_pages());
    }
}
