//! Deeds that change what is mapped or take pages away, each told to the history.

use super::Actor;
use crate::baton::{HEAP, HEAP_PAGES, NR_BYTES, NR_KNOWN, OBJECT_PAGES, PLACES, World, heap_pages, object_pages};
use crate::op::PAGE;
use softfault::{Access, Advice, FaultError, MremapFlags, Prot};
use std::ops::Range;
use std::sync::PoisonError;

const MREMAP_TO: MremapFlags = MremapFlags::MAYMOVE.union(MremapFlags::FIXED);

impl Actor<'_, '_> {
    pub(super) fn discard(&mut self, range: Range<u64>) {
        let (at, len) = (self.base() + range.start * PAGE, (range.end - range.start) * PAGE);
        self.removing(self.world.known_in(&range), || self.world.space.madvise(at, len, Advice::DontNeed).is_ok());
    }

    /// The pages keep their bytes, but those that are swapped out.
    pub(super) fn free(&mut self, range: Range<u64>) {
        let (at, len) = (self.base() + range.start * PAGE, (range.end - range.start) * PAGE);
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
    pub(super) fn fail(&mut self, base: u64, page: usize) {
        let World { vm, space, object, .. } = self.world;
        let at = |page: usize| self.world.addr_of(page, base) & !(PAGE - 1);
        let Some(there) = space.translate_at_rest(at(page)) else { return };
        let all = 0..heap_pages().end;
        self.world.history().bar(all.clone());
        let ids: Vec<_> = all.clone().map(|page| self.world.history().begin(page, 0)).collect();
        let failed = vm.poison_frame(there.pfn);
        self.world.history().note(format!("page {page} fails: {failed:?}"));
        for (page, id) in all.clone().zip(ids) {
            if failed.is_err() || space.handle_fault(at(page), Access::Read) != Err(FaultError::Poisoned) {
                self.world.history().cancel(id);
                continue;
            }
            if object_pages().contains(&page) {
                let index = (page - object_pages().start) as u64;
                object.discard(index..index + 1);
            } else {
                self.insist("MADV_DONTNEED", || space.madvise(at(page), PAGE, Advice::DontNeedLocked));
            }
            self.world.history().end(id, true);
        }
        self.world.history().admit(all);
    }

    pub(super) fn unmap(&mut self, base: u64, range: Range<u64>) {
        let (at, nr) = (base + range.start * PAGE, range.end - range.start);
        self.world.history().bar(self.world.known_in(&range));
        let mut is_gone = false;
        self.removing(self.world.known_in(&range), || {
            let gone = self.world.space.munmap(at, nr * PAGE);
            self.world.history().note(format!("munmap of {range:?}: {gone:?}"));
            is_gone = gone.is_ok();
            is_gone
        });
        if is_gone {
            self.insist("mmap", || self.world.map(base, range.start, nr));
        }
        self.world.history().admit(self.world.known_in(&range));
    }

    pub(super) fn map_over(&mut self, base: u64, range: Range<u64>) {
        let nr = range.end - range.start;
        self.removing(self.world.known_in(&range), || {
            let mapped = self.world.map(base, range.start, nr);
            self.world.history().note(format!("mmap over {range:?}: {mapped:?}"));
            mapped.is_ok()
        });
    }

    pub(super) fn protect(&mut self, base: u64, range: Range<u64>) {
        let (at, len) = (base + range.start * PAGE, (range.end - range.start) * PAGE);
        self.world.history().bar(self.world.known_in(&range));
        let protected = self.world.space.mprotect(at, len, Prot::READ);
        self.world.history().note(format!("mprotect of {range:?}: {protected:?}"));
        self.insist("mprotect", || self.world.space.mprotect(at, len, Prot::READ | Prot::WRITE));
        self.world.history().admit(self.world.known_in(&range));
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
            self.world.place.lock().unwrap_or_else(PoisonError::into_inner).base = to;
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
