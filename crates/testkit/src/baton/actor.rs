//! What an actor does: deeds, each of them told to the history.

use super::{Deed, HEAP, HEAP_PAGES, KNOWN, NR_BYTES, NR_PAGES, OBJECT_PAGES, PLACES, World, heap_pages, object_pages};
use crate::op::PAGE;
use crate::random::Random;
use softfault::policy::compact::CompactBudget;
use softfault::{Access, CpuId, FaultError, PinError, Term};
use softfault_host::{PageFault, Running};
use std::ops::Range;
use std::sync::PoisonError;

const DONTNEED: u64 = 4;
const FREE: u64 = 8;
const COLLAPSE: u64 = 25;
const GUARD_INSTALL: u64 = 102;
const GUARD_REMOVE: u64 = 103;
const MREMAP_TO: u64 = 3;
const DONTUNMAP: u64 = 4;
const LOCK_CURRENT: u64 = 1;
const BUDGET: CompactBudget = CompactBudget { time_ns: u64::MAX, ..CompactBudget::BACKGROUND };
/// Ranges of private pages: all, halves, over the middle, single ones.
const RANGES: [Range<u64>; 8] = [0..NR_PAGES, 0..512, 512..NR_PAGES, 0..2, 5..6, 256..768, 511..513, 700..1024];

/// Where private memory is. One actor at a time changes what is mapped.
pub(super) struct Place {
    pub(super) base: u64,
    pub(super) is_changing: bool,
}

pub(super) struct Actor<'w, 'vm> {
    world: &'w World<'vm>,
    me: usize,
    random: Random,
    nr_stores: u64,
}

fn known_in(range: &Range<u64>) -> impl Iterator<Item = usize> {
    (0..KNOWN.len()).filter(move |page| range.contains(&KNOWN[*page]))
}

impl<'w, 'vm> Actor<'w, 'vm> {
    pub(super) fn new(world: &'w World<'vm>, me: usize, seed: u64) -> Actor<'w, 'vm> {
        Actor { world, me, random: Random::new(seed ^ (me as u64 + 1) << 56), nr_stores: 0 }
    }

    /// From the first turn to the last deed.
    pub(super) fn play(&mut self, deeds: &[Deed]) {
        let cpu = self.world.vm.machine().bind(CpuId(self.me as u16)).expect("each actor has its CPU");
        let playing = self.world.turns.begin(self.me);
        {
            let running = cpu.enter(&self.world.space).expect("the CPU is in no space");
            for deed in deeds {
                self.act(*deed, &running);
                self.world.turns.progress();
            }
        }
        drop(playing);
    }

    fn act(&mut self, deed: Deed, running: &Running<'_>) {
        let range = RANGES[self.random.below(RANGES.len() as u64) as usize].clone();
        let page = self.random.below(heap_pages().end as u64) as usize;
        match deed {
            Deed::Store => self.store_twice(page, running),
            Deed::Look => self.look(page, running),
            Deed::StoreByCall => self.store_by_call(page),
            Deed::Pin => self.pin(page, running),
            Deed::Fork => self.fork(),
            Deed::Discard => self.discard(range),
            Deed::Unmap => self.changing(|actor, base| actor.unmap(base, range)),
            Deed::MapOver => self.changing(|actor, base| actor.map_over(base, range)),
            Deed::Protect => self.changing(|actor, base| actor.protect(base, range)),
            Deed::Guard => self.changing(|actor, base| actor.guard(base, range)),
            Deed::Move => self.changing(|actor, base| actor.move_to_another(base, false)),
            Deed::MoveAndKeep => self.changing(|actor, base| actor.move_to_another(base, true)),
            Deed::Break => self.resize_heap(),
            Deed::DiscardObject => self.discard_object(),
            Deed::ResizeObject => self.resize_object(),
            Deed::Lookup => self.lookup(page % KNOWN.len()),
            _ => self.in_the_background(deed, page, range),
        }
    }

    /// What changes no byte.
    fn in_the_background(&mut self, deed: Deed, page: usize, range: Range<u64>) {
        let World { vm, space, .. } = self.world;
        let base = self.base();
        let (at, len) = (base + range.start * PAGE, (range.end - range.start) * PAGE);
        match deed {
            Deed::Free => _ = space.madvise(at, len, FREE),
            Deed::Collapse => _ = space.madvise(base, NR_BYTES, COLLAPSE),
            Deed::Scan => _ = space.khugepaged_scan(base, 4096),
            Deed::Lock => {
                let _ = space.mlock(at, len, 0, None);
                let _ = space.munlock(at, len);
            }
            Deed::LockAll => {
                let _ = space.mlockall(LOCK_CURRENT, None);
                let _ = space.munlockall();
            }
            Deed::Split | Deed::Migrate => {
                let there = space.translate_at_rest(self.world.addr_of(page, base));
                match there {
                    Some(there) if deed == Deed::Split => vm.split_folio(there.pfn),
                    Some(there) => _ = vm.migrate_frame(there.pfn),
                    None => {}
                }
            }
            Deed::Young => _ = space.test_young(at, len) + space.test_and_clear_young(base, NR_BYTES),
            Deed::Report => self.report(base),
            Deed::Compact => _ = vm.compact_step(&BUDGET),
            Deed::Shrink => _ = vm.shrink_underused(u64::MAX),
            _ => _ = vm.zero_ahead(2),
        }
    }

    fn report(&self, base: u64) {
        let space = &self.world.space;
        // Refused where something is unmapped now.
        let _ = space.mincore(base, NR_BYTES, &mut |_, _| {});
        space.maps(&mut |_| {});
        space.smaps(&mut |_| {});
    }

    fn base(&self) -> u64 {
        self.world.place.lock().unwrap_or_else(PoisonError::into_inner).base
    }

    fn value(&mut self) -> u64 {
        self.nr_stores += 1;
        (self.me as u64 + 1) << 32 | self.nr_stores
    }

    fn store(&mut self, page: usize, running: &Running<'_>) {
        let value = self.value();
        let begin = self.world.history().tick();
        let id = self.world.history().begin(page, value);
        let addr = self.world.addr_of(page, self.base());
        let stored = self.access(addr, Access::Write, || running.try_store(addr, &value.to_ne_bytes()));
        let mut history = self.world.history();
        match stored {
            Ok(()) => history.end(id, true),
            Err(cause) => {
                history.cancel(id);
                history.refused(page, begin, cause == FaultError::OutOfFrames, "a store");
            }
        }
    }

    /// The second time by the translation of the first, if it still holds.
    fn store_twice(&mut self, page: usize, running: &Running<'_>) {
        self.store(page, running);
        self.world.turns.pass();
        self.store(page, running);
    }

    /// As a system call or a debugger stores.
    fn store_by_call(&mut self, page: usize) {
        let value = self.value();
        let begin = self.world.history().tick();
        let id = self.world.history().begin(page, value);
        let (space, addr) = (&self.world.space, self.world.addr_of(page, self.base()));
        let bytes = value.to_ne_bytes();
        let stored = if self.random.chance(50) { space.write(addr, &bytes) } else { space.write_forced(addr, &bytes) };
        let mut history = self.world.history();
        match stored {
            Ok(()) => history.end(id, true),
            Err(e) => {
                history.cancel(id);
                history.refused(page, begin, e.fault == FaultError::OutOfFrames, "a store by a call");
            }
        }
    }

    fn look(&mut self, page: usize, running: &Running<'_>) {
        let begin = self.world.history().tick();
        let (addr, mut bytes) = (self.world.addr_of(page, self.base()), [0; 8]);
        let seen = self.access(addr, Access::Read, || running.try_load(addr, &mut bytes));
        let mut history = self.world.history();
        match seen {
            Ok(()) => {
                let end = history.tick();
                history.saw(page, u64::from_ne_bytes(bytes), begin, end, "a look");
            }
            Err(cause) => history.refused(page, begin, cause == FaultError::OutOfFrames, "a look"),
        }
    }

    /// Repeats an access until no fault comes of it. A fault ends outside the core,
    /// where anybody may run: what the core calls spurious may be so only when
    /// another CPU has gone on.
    fn access(
        &self,
        addr: u64,
        access: Access,
        mut once: impl FnMut() -> Result<(), PageFault>,
    ) -> Result<(), FaultError> {
        while once().is_err() {
            self.world.space.handle_fault(addr, access)?;
            self.world.turns.pass();
        }
        Ok(())
    }

    /// Writes through a pin that it has held for a while.
    fn pin(&mut self, page: usize, running: &Running<'_>) {
        let begin = self.world.history().tick();
        let addr = self.world.addr_of(page, self.base());
        let pin = match self.world.space.pin_page_mut(addr, Term::Short) {
            Ok(pin) => pin,
            Err(error) => {
                let by_frames = error == PinError::Fault(FaultError::OutOfFrames);
                return self.world.history().refused(page, begin, by_frames, "a pin");
            }
        };
        let other = self.random.below(KNOWN.len() as u64) as usize;
        self.look(other, running);
        self.world.turns.pass();
        if self.random.chance(50) {
            // Nothing may leave the pin behind with another frame.
            self.store(page, running);
        }
        let value = self.value();
        let id = self.world.history().begin_through_pin(page, value, begin);
        pin.write((addr % PAGE) as usize, &value.to_ne_bytes());
        self.world.history().end(id, true);
        self.look(page, running);
        drop(pin);
    }

    /// The child shows what was there during the fork; what it writes stays its own.
    fn fork(&mut self) {
        let begin = self.world.history().tick();
        let (base, changing) = self.place_now();
        let Ok(child) = self.world.space.fork() else {
            let mut history = self.world.history();
            if !history.is_starved {
                history.problems.push("fork was refused".into());
            }
            return;
        };
        let end = self.world.history().tick();
        if changing || self.place_now() != (base, false) {
            return;
        }
        // A store from now on is not in the child.
        self.world.turns.pass();
        for page in 0..KNOWN.len() {
            let (addr, mut bytes) = (self.world.addr_of(page, base), [0; 8]);
            let read = child.read(addr, &mut bytes);
            let mut history = self.world.history();
            match read {
                Ok(()) => history.saw(page, u64::from_ne_bytes(bytes), begin, end, "a child"),
                Err(e) => history.refused(page, begin, e.fault == FaultError::OutOfFrames, "a child"),
            }
            drop(history);
            // The parent goes on while the child lives.
            self.world.turns.pass();
            let _ = child.write(addr, &(u64::MAX - page as u64).to_ne_bytes());
        }
    }

    fn place_now(&self) -> (u64, bool) {
        let place = self.world.place.lock().unwrap_or_else(PoisonError::into_inner);
        (place.base, place.is_changing)
    }

    /// Removals of all known pages of a range, told to the history.
    fn removing(&self, pages: impl Iterator<Item = usize>, remove: impl FnOnce() -> bool) {
        let ids: Vec<_> = pages.map(|page| self.world.history().begin(page, 0)).collect();
        let is_certain = remove();
        ids.into_iter().for_each(|id| self.world.history().end(id, is_certain));
    }

    fn discard(&mut self, range: Range<u64>) {
        let (at, len) = (self.base() + range.start * PAGE, (range.end - range.start) * PAGE);
        self.removing(known_in(&range), || self.world.space.madvise(at, len, DONTNEED).is_ok());
    }

    /// Runs `change` if nobody else changes what is mapped.
    fn changing(&mut self, change: impl FnOnce(&mut Self, u64)) {
        let base = {
            let mut place = self.world.place.lock().unwrap_or_else(PoisonError::into_inner);
            if core::mem::replace(&mut place.is_changing, true) {
                return;
            }
            place.base
        };
        change(self, base);
        self.world.place.lock().unwrap_or_else(PoisonError::into_inner).is_changing = false;
    }

    /// Does what may not fail: without frames, the machine is given them back first.
    fn insist<E: core::fmt::Display>(&self, what: &str, mut once: impl FnMut() -> Result<(), E>) {
        let mut done = once();
        if done.is_err() && self.world.history().is_starved {
            self.world.vm.fail_allocation(None);
            self.world.history().note(format!("{what} needs frames"));
            done = once();
        }
        if let Err(error) = done {
            let mut maps = Vec::new();
            self.world.space.maps(&mut |vma| maps.push(format!("{:x?} {:?}", vma.range, vma.flags)));
            self.world.history().problems.push(format!("{what}: {error}; mapped is {maps:?}"));
        }
    }

    fn unmap(&mut self, base: u64, range: Range<u64>) {
        let (at, nr) = (base + range.start * PAGE, range.end - range.start);
        self.world.history().bar(known_in(&range));
        let mut is_gone = false;
        self.removing(known_in(&range), || {
            let gone = self.world.space.munmap(at, nr * PAGE);
            self.world.history().note(format!("munmap of {range:?}: {gone:?}"));
            is_gone = gone.is_ok();
            is_gone
        });
        if is_gone {
            self.insist("mmap", || self.world.map(base, range.start, nr));
        }
        self.world.history().admit(known_in(&range));
    }

    fn map_over(&mut self, base: u64, range: Range<u64>) {
        let nr = range.end - range.start;
        self.removing(known_in(&range), || {
            let mapped = self.world.map(base, range.start, nr);
            self.world.history().note(format!("mmap over {range:?}: {mapped:?}"));
            mapped.is_ok()
        });
    }

    fn protect(&mut self, base: u64, range: Range<u64>) {
        let (at, len) = (base + range.start * PAGE, (range.end - range.start) * PAGE);
        self.world.history().bar(known_in(&range));
        let protected = self.world.space.mprotect(at, len, 1);
        self.world.history().note(format!("mprotect of {range:?}: {protected:?}"));
        self.insist("mprotect", || self.world.space.mprotect(at, len, 3));
        self.world.history().admit(known_in(&range));
    }

    fn guard(&mut self, base: u64, range: Range<u64>) {
        let (at, len) = (base + range.start * PAGE, (range.end - range.start) * PAGE);
        self.world.history().bar(known_in(&range));
        self.removing(known_in(&range), || self.world.space.madvise(at, len, GUARD_INSTALL).is_ok());
        self.insist("MADV_GUARD_REMOVE", || self.world.space.madvise(at, len, GUARD_REMOVE));
        self.world.history().admit(known_in(&range));
    }

    /// Moves all private memory. With `keep`, what stays mapped at the old place is
    /// unmapped afterwards.
    fn move_to_another(&mut self, base: u64, keep: bool) {
        let others: Vec<u64> = PLACES.into_iter().filter(|place| *place != base).collect();
        let to = self.random.pick(&others);
        let space = &self.world.space;
        self.world.history().bar(0..KNOWN.len());
        if keep {
            self.world.history().begin_doubt();
        }
        let flags = if keep { MREMAP_TO | DONTUNMAP } else { MREMAP_TO };
        let moved = space.mremap(base, NR_BYTES, NR_BYTES, flags, to);
        self.world.history().note(format!("mremap from {base:#x} to {to:#x}, {flags}: {moved:x?}"));
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
        self.world.history().admit(0..KNOWN.len());
    }

    /// A refused move of several mappings has moved those before the one that was
    /// refused, as on Linux: moves the others. `false` if none has moved.
    fn finish_move(&self, base: u64, to: u64, flags: u64) -> bool {
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
    fn resize_heap(&mut self) {
        let (space, end) = (&self.world.space, HEAP + HEAP_PAGES * PAGE);
        self.world.history().bar(heap_pages());
        self.removing(heap_pages(), || space.brk(HEAP) == HEAP);
        self.insist("brk", || if space.brk(end) == end { Ok(()) } else { Err("the heap did not grow") });
        self.world.history().admit(heap_pages());
    }

    fn discard_object(&mut self) {
        let World { space, object, .. } = self.world;
        self.removing(object_pages(), || {
            object.discard(0..OBJECT_PAGES);
            space.zap_object(object.id(), 0..OBJECT_PAGES);
            true
        });
    }

    fn resize_object(&mut self) {
        let World { space, object, .. } = self.world;
        self.world.history().bar(object_pages());
        self.removing(object_pages(), || {
            object.set_size_bytes(0);
            space.zap_object(object.id(), 0..OBJECT_PAGES);
            true
        });
        object.set_size_bytes(OBJECT_PAGES * PAGE);
        self.world.history().admit(object_pages());
    }

    /// What a device with tables of its own relies on: while a look-up is current, the
    /// page is in that frame.
    fn lookup(&mut self, page: usize) {
        let space = &self.world.space;
        let subscription = space.subscribe();
        let addr = self.world.addr_of(page, self.base());
        let _ = space.handle_fault(addr, Access::Read);
        if let Ok(found) = subscription.lookup(space, addr) {
            self.world.turns.pass();
            let now = space.translate_at_rest(addr).map(|there| there.pfn);
            // None while a huge mapping is split, of which nobody is told.
            let moved = now.is_some_and(|pfn| pfn != found.translation.pfn);
            if subscription.is_current(space, &found) && moved {
                let problem = format!("page {page} was looked up in {:?}, is in {now:?}", found.translation.pfn);
                self.world.history().problems.push(problem);
            }
        }
        let _ = space.unsubscribe(subscription);
    }
}
