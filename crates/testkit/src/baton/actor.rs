//! An actor's deeds. Each of them is told to the history. This file has those that
//! change no byte.

mod accesses;
mod changes;
mod of_file;

use super::{
    Deed, FILE, FILE_PAGES, NR_BYTES, NR_KNOWN, NR_PAGES, OBJECT_PAGES, World, file_pages, nr_known_pages,
    object_pages, private_pages,
};
use crate::op::PAGE;
use crate::random::Random;
use softfault::CpuId;
use softfault::policy::compact::CompactBudget;
use softfault::{Advice, MlockFlags, MlockallFlags};
use softfault_host::Running;
use std::ops::Range;
use std::sync::PoisonError;

const BUDGET: CompactBudget = CompactBudget::BACKGROUND;
/// Ranges of private pages: all, halves, over the middle, single ones.
const RANGES: [Range<u64>; 8] = [0..NR_PAGES, 0..512, 512..NR_PAGES, 0..2, 5..6, 256..768, 511..513, 700..1024];

/// Where private memory is, and the private mapping of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) base: u64,
    pub(super) file: u64,
}

/// One actor at a time changes what is mapped.
pub(super) struct Place {
    pub(super) at: At,
    pub(super) is_changing: bool,
}

/// Memory that a deed is about: pages of private memory, or a mapping of the file.
struct Region {
    start: u64,
    nr_pages: u64,
    /// Those that are known.
    known: Vec<usize>,
    area: Area,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Area {
    /// From this page on.
    Anon(u64),
    Shared,
    Private,
}

impl Region {
    fn len_bytes(&self) -> u64 {
        self.nr_pages * PAGE
    }

    /// The known pages whose bytes go with the mapping.
    fn losing(&self) -> impl Iterator<Item = usize> + use<> {
        let known = if self.area == Area::Shared { Vec::new() } else { self.known.clone() };
        known.into_iter()
    }
}

pub(super) struct Actor<'w, 'vm> {
    world: &'w World<'vm>,
    me: usize,
    random: Random,
    nr_stores: u64,
    /// Every second deed is about this page, so that actors meet there.
    meeting_page: usize,
}

/// Of all actors of a round: a private one, one of the object, or one of the file.
fn meeting_page(seed: u64) -> usize {
    let pages = match seed % 3 {
        0 => 0..NR_KNOWN,
        1 => object_pages(),
        _ => file_pages().start..private_pages().end,
    };
    pages.start + (seed / 3) as usize % pages.len()
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
                self.world.doing.lock().unwrap_or_else(PoisonError::into_inner)[self.me] = Some(*deed);
                self.act(*deed, &running);
                self.world.doing.lock().unwrap_or_else(PoisonError::into_inner)[self.me] = None;
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
            self.random.below(nr_known_pages() as u64) as usize
        };
        match deed {
            Deed::Store => self.store_twice(page, running),
            Deed::Look => self.look_twice(page, running),
            Deed::StoreByCall => self.store_by_call(page),
            Deed::Pin => self.pin(page, running),
            Deed::Fork => self.fork(),
            Deed::Discard => self.discard(&self.region(page, &range, self.base())),
            Deed::Unmap => self.changing(|actor, at| actor.unmap(&actor.region(page, &range, at))),
            Deed::MapOver => self.changing(|actor, at| actor.map_over(&actor.region(page, &range, at))),
            Deed::Protect => self.changing(|actor, at| actor.protect(&actor.region(page, &range, at))),
            Deed::Guard => self.changing(|actor, at| actor.guard(at.base, range)),
            Deed::Move if private_pages().contains(&page) => self.changing(|actor, at| actor.move_file(at.file)),
            Deed::Move => self.changing(|actor, at| actor.move_to_another(at.base, false)),
            Deed::MoveAndKeep => self.changing(|actor, at| actor.move_to_another(at.base, true)),
            Deed::Break => self.resize_heap(),
            Deed::DiscardObject if page >= file_pages().start => self.punch_file(),
            Deed::DiscardObject => self.discard_object(),
            Deed::ResizeObject if page >= file_pages().start => self.resize_file(),
            Deed::ResizeObject => self.resize_object(),
            Deed::Lookup => self.lookup(page % NR_KNOWN),
            Deed::Free => self.free(range),
            Deed::Fail => self.changing(|actor, at| actor.fail(at, page)),
            _ => self.in_the_background(deed, page, range),
        }
    }

    /// Does a deed that changes no byte.
    fn in_the_background(&mut self, deed: Deed, page: usize, range: Range<u64>) {
        let World { vm, space, .. } = self.world;
        let here = self.base();
        let base = here.base;
        let (at, len) = (base + range.start * PAGE, (range.end - range.start) * PAGE);
        match deed {
            Deed::Collapse => _ = space.madvise(base, NR_BYTES, Advice::Collapse),
            Deed::Scan => _ = space.khugepaged_scan(base, 4096),
            Deed::Lock => {
                let _ = space.mlock(at, len, MlockFlags::empty());
                let _ = space.munlock(at, len);
            }
            Deed::LockAll => {
                // As a write would: private pages are copied.
                let copies: Vec<_> = private_pages().map(|page| self.world.history().begin_copy(page)).collect();
                let _ = space.mlockall(MlockallFlags::CURRENT);
                copies.into_iter().for_each(|id| self.world.history().end_copy(id, false));
                let _ = space.munlockall();
            }
            Deed::Split | Deed::Migrate | Deed::SwapOut | Deed::FailSoon => {
                let there = space.translate_at_rest(self.world.addr_of(page, here));
                match there {
                    Some(there) if deed == Deed::Split => vm.split_folio(there.pfn),
                    Some(there) if deed == Deed::SwapOut => _ = vm.swap_out_frame(there.pfn),
                    Some(there) if deed == Deed::FailSoon => _ = vm.soft_offline_frame(there.pfn),
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
            Deed::Touched => self.mark_and_report(page),
            Deed::Drop => _ = vm.drop_clean(u64::MAX),
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

    /// Marks all pages untouched, then asks which were touched. Others may mark meanwhile, and pages may leave: only the order of
    /// the report is known.
    fn mark_and_report(&self, page: usize) {
        let World { object, file_object, turns, .. } = self.world;
        let (of, nr_pages) =
            if page >= file_pages().start { (file_object, FILE_PAGES) } else { (object, OBJECT_PAGES) };
        of.mark_untouched();
        turns.pass();
        let mut end = 0;
        of.touched(0..nr_pages, &mut |run| {
            if run.is_empty() || run.end > nr_pages || run.start < end || end > 0 && run.start == end {
                self.world.history().problems.push(format!("{run:?} is reported as touched behind {end}"));
            }
            end = run.end;
        });
    }

    fn base(&self) -> At {
        self.place_now().0
    }

    /// Returns the memory for a deed about that page, or about that range of private memory.
    fn region(&self, page: usize, range: &Range<u64>, at: At) -> Region {
        let of_file =
            |start, known: Range<usize>, area| Region { start, nr_pages: FILE_PAGES, known: known.collect(), area };
        if file_pages().contains(&page) {
            return of_file(FILE, file_pages(), Area::Shared);
        }
        if private_pages().contains(&page) {
            return of_file(at.file, private_pages(), Area::Private);
        }
        let (start, nr_pages) = (at.base + range.start * PAGE, range.end - range.start);
        Region { start, nr_pages, known: self.world.known_in(range).collect(), area: Area::Anon(range.start) }
    }

    fn value(&mut self) -> u64 {
        self.nr_stores += 1;
        (self.me as u64 + 1) << 32 | self.nr_stores
    }

    fn place_now(&self) -> (At, bool) {
        let place = self.world.place.lock().unwrap_or_else(PoisonError::into_inner);
        (place.at, place.is_changing)
    }

    /// Removals of all known pages of a range, told to the history.
    fn removing(&self, pages: impl Iterator<Item = usize>, remove: impl FnOnce() -> bool) {
        let ids: Vec<_> = pages.map(|page| self.world.history().begin(page, 0)).collect();
        let is_certain = remove();
        ids.into_iter().for_each(|id| self.world.history().end(id, is_certain));
    }

    /// Runs `change` if nobody else changes what is mapped.
    fn changing(&mut self, change: impl FnOnce(&mut Self, At)) {
        let at = {
            let mut place = self.world.place.lock().unwrap_or_else(PoisonError::into_inner);
            if core::mem::replace(&mut place.is_changing, true) {
                return;
            }
            place.at
        };
        change(self, at);
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
