//! What an actor does: deeds, each of them told to the history. Here are those that
//! change no byte.

mod accesses;
mod changes;

use super::{Deed, NR_BYTES, NR_KNOWN, NR_PAGES, World, heap_pages, object_pages};
use crate::op::PAGE;
use crate::random::Random;
use softfault::CpuId;
use softfault::policy::compact::CompactBudget;
use softfault::{Advice, MlockFlags, MlockallFlags};
use softfault_host::Running;
use std::ops::Range;
use std::sync::PoisonError;

const BUDGET: CompactBudget = CompactBudget::BACKGROUND.with_time_ns(u64::MAX);
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
    /// Every second deed is about this page, so that actors meet there.
    meeting_page: usize,
}

/// Of all actors of a round: a private one, or one of the object.
fn meeting_page(seed: u64) -> usize {
    let pages = if seed.is_multiple_of(2) { 0..NR_KNOWN } else { object_pages() };
    pages.start + (seed / 2) as usize % pages.len()
}

impl<'w, 'vm> Actor<'w, 'vm> {
    pub(super) fn new(world: &'w World<'vm>, me: usize, seed: u64) -> Actor<'w, 'vm> {
        let random = Random::new(seed ^ (me as u64 + 1) << 56);
        Actor { world, me, random, nr_stores: 0, meeting_page: meeting_page(seed) }
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
        let page = if self.random.chance(50) {
            self.meeting_page
        } else {
            self.random.below(heap_pages().end as u64) as usize
        };
        match deed {
            Deed::Store => self.store_twice(page, running),
            Deed::Look => self.look_twice(page, running),
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
            Deed::Lookup => self.lookup(page % NR_KNOWN),
            Deed::Free => self.free(range),
            Deed::Fail => self.changing(|actor, base| actor.fail(base, page)),
            _ => self.in_the_background(deed, page, range),
        }
    }

    /// What changes no byte.
    fn in_the_background(&mut self, deed: Deed, page: usize, range: Range<u64>) {
        let World { vm, space, .. } = self.world;
        let base = self.base();
        let (at, len) = (base + range.start * PAGE, (range.end - range.start) * PAGE);
        match deed {
            Deed::Collapse => _ = space.madvise(base, NR_BYTES, Advice::Collapse),
            Deed::Scan => _ = space.khugepaged_scan(base, 4096),
            Deed::Lock => {
                let _ = space.mlock(at, len, MlockFlags::empty());
                let _ = space.munlock(at, len);
            }
            Deed::LockAll => {
                let _ = space.mlockall(MlockallFlags::CURRENT);
                let _ = space.munlockall();
            }
            Deed::Split | Deed::Migrate | Deed::SwapOut => {
                let there = space.translate_at_rest(self.world.addr_of(page, base));
                match there {
                    Some(there) if deed == Deed::Split => vm.split_folio(there.pfn),
                    Some(there) if deed == Deed::SwapOut => _ = vm.swap_out_frame(there.pfn),
                    Some(there) => _ = vm.migrate_frame(there.pfn),
                    None => {}
                }
            }
            Deed::Young => {
                _ = space.test_young(at, len) + space.age_pages(at, 64).nr_young;
                _ = vm.advance_generation(3);
                _ = space.test_and_clear_young(base, NR_BYTES);
            }
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
}
