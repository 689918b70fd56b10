//! Clean folios of files that are dropped together.
//!
//! ```text
//! add     the folio's pages are marked as moving                    source/keep.rs
//! grace   of all CPUs, once for all: a CPU that had found a page unmarked has ended
//! unmap   adjacent folios in one walk over the mappings of their object
//!           locked there? the folio stays ─▶ entries are removed ─▶ locked now?
//! end     pinned, dirty, locked or used now: as it was, and looked at
//!         else the words are emptied, and the frames are free
//! ```
//! Each mapping is asked twice whether it locks a folio: first, so that programs do not fault for nothing, and again when it
//! has no entry any more. An mlock(2) that found the page present has published its VMA by then; a later one reads the page again.
//!
//! Dirty bits of entries are noted when they are removed (`rmap/object.rs`), accessed bits as well. So both are final in
//! the last look, as are pins.
//!
//! Locks on entry: none, no section. Takes the locks of the objects' shards.

use crate::account::Event;
use crate::addr::{ObjectPages, PageRange, Vpn};
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::pace::{self, Pace};
use crate::policy::second_chance::{Chance, Pass};
use crate::source::keep::KeptObject;
use crate::source::members::MembersCursor;
use crate::source::slot::PageFrame;
use crate::space::vma::VmaFlags;
use crate::space::{Visit, Vm};

/// The largest number of folios of a batch: readers of their pages wait for the last of them.
const FOLIOS_MAX: usize = 32;

/// A folio that is marked as moving. The batch must end the move.
struct Dropping<'vm, M: Machine> {
    object: KeptObject<'vm, M>,
    first: u64,
    frame: PageFrame,
    chance: Chance,
    /// It still has entries: a mapping locks it, or was not visited.
    stays: bool,
}

impl<M: Machine> Dropping<'_, M> {
    fn pages(&self) -> ObjectPages {
        ObjectPages { start: self.first, end: self.first + self.frame.order.nr_pages() }
    }
}

/// See the module.
pub(super) struct DropBatch<'vm, M: Machine> {
    vm: &'vm Vm<M>,
    folios: [Option<Dropping<'vm, M>>; FOLIOS_MAX],
    nr: usize,
    nr_pages: u64,
}

type Run<'a, 'vm, M> = &'a mut [Option<Dropping<'vm, M>>];

impl<'vm, M: Machine> DropBatch<'vm, M> {
    pub(super) fn new(vm: &'vm Vm<M>) -> Self {
        DropBatch { vm, folios: [const { None }; FOLIOS_MAX], nr: 0, nr_pages: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.nr == FOLIOS_MAX
    }

    /// Pages that may be dropped.
    pub(super) fn nr_pages(&self) -> u64 {
        self.nr_pages
    }

    /// Adds a folio that the caller has marked as moving. The batch must not be full.
    pub(super) fn add(&mut self, object: KeptObject<'vm, M>, first: u64, frame: PageFrame, chance: Chance) {
        self.nr_pages += if chance == Chance::Look { 0 } else { frame.order.nr_pages() };
        self.folios[self.nr] = Some(Dropping { object, first, frame, chance, stays: false });
        self.nr += 1;
    }

    /// Drops the folios that can be dropped, and ends all moves. Returns the number of frames freed.
    pub(super) fn run(&mut self, pass: &mut Pass) -> u64 {
        if self.nr == 0 {
            return 0;
        }
        self.vm.grace_everywhere();
        let folios = &mut self.folios[..self.nr];
        folios.sort_unstable_by_key(|folio| folio.as_ref().map(|folio| (folio.object.id.0, folio.first)));
        let mut nr_freed = 0;
        for run in folios.chunk_by_mut(are_adjacent) {
            self.vm.unmap_run(run, pass);
            nr_freed += run.iter().flatten().map(|folio| self.vm.end_dropping(folio)).sum::<u64>();
            pace::answer(&self.vm.machine);
        }
        // The last reference frees an object: no page may be marked then.
        folios.fill_with(|| None);
        (self.nr, self.nr_pages) = (0, 0);
        nr_freed
    }
}

fn are_adjacent<M: Machine>(a: &Option<Dropping<'_, M>>, b: &Option<Dropping<'_, M>>) -> bool {
    a.as_ref().zip(b.as_ref()).is_some_and(|(a, b)| a.object.id == b.object.id && a.pages().end == b.first)
}

impl<M: Machine> Vm<M> {
    /// Removes the entries of adjacent folios, but for those that a mapping locks.
    fn unmap_run(&self, run: Run<'_, '_, M>, pass: &mut Pass) {
        // Exact after the grace period.
        let was_mapped = run.iter().flatten().any(|folio| self.frames.desc(folio.frame.pfn).state().was_mapped());
        let (Some(Some(first)), Some(Some(last)), true) = (run.first(), run.last(), was_mapped) else { return };
        let (id, pages) = (first.object.id, ObjectPages { start: first.first, end: last.pages().end });
        if pass.nr_visits == 0 {
            return run.iter_mut().flatten().for_each(|folio| folio.stays = true);
        }
        let mut at = MembersCursor::default();
        let mut pace = Pace::new(&self.machine);
        while let Some(visit) = self.visit_next(id, pages, &mut at) {
            pass.nr_visits = pass.nr_visits.saturating_sub(1);
            pace.search();
            self.note_locks(&visit, pages, run);
            for part in run.chunk_by(|a, b| stays(a) == stays(b)).filter(|part| !part.iter().any(stays)) {
                let (Some(Some(first)), Some(Some(last))) = (part.first(), part.last()) else { continue };
                let part = ObjectPages { start: first.first, end: last.pages().end };
                self.unmap_from_member(&visit, part, Why::Discard);
            }
            self.note_locks(&visit, pages, run);
        }
    }

    /// Notes which folios stay because a VMA of the member locks them.
    fn note_locks(&self, visit: &Visit<'_, M>, pages: ObjectPages, run: Run<'_, '_, M>) {
        let places = visit.places_of(pages);
        let mut pace = Pace::new(&self.machine);
        let mut at = places.start;
        while at < places.end {
            pace.search();
            let Some((vma_pages, end)) = locked_from(visit, PageRange::new(at, places.end)) else { return };
            let is_in = |folio: &Dropping<'_, M>| {
                let pages = folio.pages();
                vma_pages.is_some_and(|locked| locked.start < pages.end && pages.start < locked.end)
            };
            run.iter_mut().flatten().filter(|folio| is_in(folio)).for_each(|folio| folio.stays = true);
            at = end;
        }
    }

    /// Ends the move of a folio. Returns the number of frames freed.
    fn end_dropping(&self, folio: &Dropping<'_, M>) -> u64 {
        let Dropping { object, first, frame, chance, stays } = folio;
        let (desc, nr_pages) = (self.frames.desc(frame.pfn), frame.order.nr_pages());
        let state = desc.state();
        let is_unwanted = *chance == Chance::Drop || *chance == Chance::DropUnlessUsed && !state.was_referenced();
        let goes = !stays && is_unwanted && state.is_clean_folio();
        if goes && self.object_end_dropped(object, *first, *frame) {
            self.give_back_page(frame.pfn);
            self.count(Event::FileDropped, nr_pages);
            return nr_pages;
        }
        if !stays {
            desc.forget_mapped();
            self.count(Event::FileRotated, nr_pages);
        }
        self.object_end_move(object, *first, *frame);
        0
    }
}

fn stays<M: Machine>(folio: &Option<Dropping<'_, M>>) -> bool {
    folio.as_ref().is_none_or(|folio| folio.stays)
}

/// Looks up the first VMA in some pages of a space. Returns the object's pages that it locks, if it does, and the page
/// after it. `None` if there is no VMA.
fn locked_from<M: Machine>(visit: &Visit<'_, M>, places: PageRange) -> Option<(Option<ObjectPages>, Vpn)> {
    let space = visit.space();
    let section = space.section();
    let vma = space.tree_in(section.inside()).next(places.start).map(|found| found.vma)?;
    let is_its = vma.object == visit.identity.object && vma.flags.contains(VmaFlags::LOCKED);
    let start = vma.pgoff;
    let pages = ObjectPages { start, end: start.saturating_add(vma.range.nr_pages()) };
    let is_there = Vpn(start.wrapping_add(visit.identity.displacement)) == vma.range.start;
    Some(((is_its && is_there).then_some(pages), vma.range.end))
}
