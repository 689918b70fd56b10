//! Writes dirty folios of files before an allocation is refused, and drops them.
//!
//! ```text
//! scan    blocks in which nothing clean was found: a dirty folio of a file ─▶ its storage is claimed    space/reclaim/writers.rs
//!         ─▶ it and the pages behind it are written ─▶ those that are clean now are dropped
//! wait    for writes that stay under way: a bounded time
//! then    drop_clean.rs, in the same blocks: what was under way there
//! ```
//! The pages behind a dirty one may lie in any block, so they are found by their object.
//!
//! The machine may block in [`Machine::write_back`], and never return: then this caller stays there, with the claim of that
//! storage and nothing else. Others that are refused skip the files of that storage.
//!
//! A machine that writes later, and takes longer, refuses an allocation that it could have served: it should
//! write when memory is low, or block.
//!
//! To begin a write, the caller waits while the page is taken out or moved. CPUs that do so wait for shootdowns, sections and
//! subscribers, never for a frame. So a subscriber must not wait for a caller that may be refused a frame
//! ([`Machine::notify`], rule 4).
//!
//! Locks on entry: none, no section. Takes the locks of the objects' shards.

use crate::addr::{BLOCK_FRAMES, BlockId, ObjectPages, Pfn};
use crate::machine::{Machine, StorageId};
use crate::pace::Pace;
use crate::policy::second_chance::{Chance, Pass};
use crate::space::Vm;
use crate::space::reclaim::writers::{Search, StorageClaim, Written};
use crate::space::vma::ObjectId;
use crate::sync::Ordering;

/// The approximate number of frames that are written for one refusal.
const MOST_AT_A_TIME: u64 = 512;
/// The number of pages behind a dirty one that are written with it.
const PAGES_AT_ONCE: u64 = 64;
/// Each beginning counts as so many pages at least: it costs a grace period of all CPUs and a shootdown. Of pages far apart,
/// 64 are written for a refusal, which is enough for another retry.
const LEAST_AT_ONCE: u64 = 8;
/// Beginnings in a row without a clean folio after which the round asks the storage no more: it fails, or programs store to the same
/// pages all the time. A guess.
const MOST_IN_VAIN: u32 = 8;
/// The same for all storages of a round.
const MOST_IN_VAIN_IN_ALL: u32 = 512;
/// Storages whose beginnings in vain are counted. Others are asked for each page.
const NR_COUNTED: usize = 32;
/// How often the caller lets others run until a write is over. A guess.
const MOST_WAITS: u32 = 10_000;

/// Beginnings of which nothing has become clean.
struct InVain {
    storages: [Option<(StorageId, u32)>; NR_COUNTED],
    nr: u32,
}

impl InVain {
    fn has_many_of(&self, storage: StorageId) -> bool {
        self.storages.iter().flatten().any(|(of, nr)| *of == storage && *nr >= MOST_IN_VAIN)
    }

    /// Something came of the last beginning.
    fn forget(&mut self, storage: StorageId) {
        self.storages.iter_mut().flatten().filter(|(of, _)| *of == storage).for_each(|(_, nr)| *nr = 0);
    }

    fn note(&mut self, storage: StorageId) {
        self.nr += 1;
        let is_its = |counted: &&mut Option<(StorageId, u32)>| counted.is_none_or(|(of, _)| of == storage);
        if let Some(counted) = self.storages.iter_mut().find(is_its) {
            *counted = Some((storage, counted.map_or(1, |(_, nr)| nr + 1)));
        }
    }
}

/// The writes of a caller so far.
struct Round<'a> {
    /// Enough to free.
    nr_frames: u64,
    /// Without any, the first block is searched whole: the next round begins behind it.
    may_end: bool,
    /// Pages that were written or dropped.
    nr_done: u64,
    nr_freed: u64,
    /// The head of the last folio whose write stays under way.
    last: Option<Pfn>,
    in_vain: InVain,
    /// The pages that were begun last. Those that are still dirty are not begun again.
    begun: Option<(ObjectId, ObjectPages)>,
    pass: Pass,
    /// Another caller has the storage of a dirty folio.
    has_skipped: bool,
    /// One at a time: a storage whose pages are written already does not wait for the next one.
    claim: Option<StorageClaim<'a>>,
}

impl Round<'_> {
    fn is_over(&self) -> bool {
        let has_done_enough = self.nr_done >= MOST_AT_A_TIME;
        let is_too_much = has_done_enough || self.in_vain.nr >= MOST_IN_VAIN_IN_ALL || self.pass.nr_visits == 0;
        self.nr_freed >= self.nr_frames || is_too_much && self.may_end
    }
}

impl<M: Machine> Vm<M> {
    /// Writes and drops dirty folios until about so many frames are written, or so many blocks were searched.
    pub(crate) fn write_dirty(&self, search: &Search) -> Written<'_> {
        self.assert_outside();
        let blocks = &self.frames.blocks;
        let mut pace = Pace::new(&self.machine);
        let mut round = Round {
            nr_frames: search.nr_frames.min(MOST_AT_A_TIME),
            may_end: false,
            nr_done: 0,
            nr_freed: 0,
            last: None,
            in_vain: InVain { storages: [None; NR_COUNTED], nr: 0 },
            begun: None,
            pass: Pass::last(),
            has_skipped: false,
            claim: None,
        };
        let mut nr_blocks = 0;
        while nr_blocks < search.nr_blocks.min(blocks.nr()) && !round.is_over() {
            pace.step();
            let b = blocks.around(search.from.wrapping_add(nr_blocks));
            if blocks.may_have_files(b) {
                self.write_dirty_of(b, &mut round);
            }
            round.may_end = true;
            // The next search begins with one that was searched in part.
            nr_blocks += u64::from(!round.is_over() || nr_blocks == 0);
        }
        if let Some(last) = round.last {
            self.wait_for_write(last);
        }
        let Round { nr_freed, last, has_skipped, claim, .. } = round;
        Written { nr_freed, was_under_way: last.is_some(), nr_blocks, has_skipped, claim }
    }

    fn write_dirty_of<'vm>(&'vm self, b: BlockId, round: &mut Round<'vm>) {
        let mut pace = Pace::new(&self.machine);
        let first = b.first_frame().0;
        for pfn in (first..first + BLOCK_FRAMES as u32).map(Pfn) {
            pace.step();
            if round.is_over() {
                return;
            }
            if !self.frames.desc(pfn).state().is_dirty_folio() {
                continue;
            }
            // Another folio may have this head by now; the words decide.
            let Some((object, page, file)) = self.file_object_of(pfn) else { continue };
            let was_begun =
                round.begun.is_some_and(|(id, pages)| id == object.id && (pages.start..pages.end).contains(&page));
            let storage = self.machine.storage(file);
            if was_begun || round.in_vain.has_many_of(storage) {
                continue;
            }
            if !self.claim_storage(storage, round) {
                round.has_skipped = true;
                continue;
            }
            let pages = ObjectPages { start: page, end: page.saturating_add(PAGES_AT_ONCE) };
            round.begun = Some((object.id, pages));
            let begun = self.begin_writes(&object, file, pages);
            let nr_freed = self.drop_clean_pages(object.id, pages, Chance::Drop, &mut round.pass);
            if nr_freed > 0 {
                // Release: a CPU that reads the count finds the frames.
                self.nr_reclaimed.fetch_add(1, Ordering::Release);
            }
            round.nr_freed += nr_freed;
            round.last = begun.under_way.or(round.last);
            // What was written and stays may be locked: that is not the storage's fault. What is under way is not begun again.
            if nr_freed > 0 || begun.has_written || begun.under_way.is_some() {
                round.nr_done += begun.nr_pages.max(nr_freed).max(LEAST_AT_ONCE);
                round.in_vain.forget(storage);
            } else if begun.nr_pages > 0 {
                round.in_vain.note(storage);
            }
        }
    }

    /// Returns whether the caller has the claim of the storage.
    fn claim_storage<'vm>(&'vm self, storage: StorageId, round: &mut Round<'vm>) -> bool {
        // Not given up in between: those who wait see a writer.
        if let Some(claim) = &round.claim {
            return claim.change_to(storage, &self.machine);
        }
        round.claim = self.writers.claim(storage, &self.machine);
        round.claim.is_some()
    }

    /// Waits a bounded time. The machine takes writes in order: with the last one the others are over.
    fn wait_for_write(&self, last: Pfn) {
        for _ in 0..MOST_WAITS {
            if !self.frames.desc(last).state().is_being_written() {
                return;
            }
            self.machine.relax();
        }
    }
}
