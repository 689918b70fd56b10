//! Writes dirty folios of files before an allocation is refused, so that they can be dropped.
//!
//! ```text
//! scan    blocks from where drops go on: a dirty folio of a file ─▶ its storage is claimed    space/reclaim/writers.rs
//!         ─▶ it and the pages behind it are begun
//! wait    for writes that stay under way, or for others who write: a bounded time
//! then    drop_clean.rs
//! ```
//! The machine may block in [`Machine::write_back`], and never return: then this caller stays there, with the claim of that
//! storage and nothing else. Others that are refused skip the files of that storage. A caller that finds nothing but these waits, since
//! the answer would make folios clean; but a bounded time, since there may be none.
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
use crate::machine::Machine;
use crate::pace::Pace;
use crate::space::Vm;
use crate::space::reclaim::writers::StorageClaim;
use crate::sync::{self, Ordering};

/// The approximate number of frames that are written for one refusal.
const MOST_AT_A_TIME: u64 = 512;
/// The number of pages behind a dirty one that are written with it.
const PAGES_AT_ONCE: u64 = 64;
/// Each beginning counts as so many pages at least: it costs a grace period of all CPUs and a shootdown. Of pages far apart,
/// 64 are written for a refusal, which is enough for another retry.
const LEAST_AT_ONCE: u64 = 8;
/// How often the caller lets others run until a write is over. A guess.
const MOST_WAITS: u32 = 10_000;
/// How often until the storage answers another caller: longer, since one that blocks has the pages already. A guess.
const MOST_WAITS_FOR_OTHERS: u32 = 1_000_000;

/// The pages that a caller writes.
struct Round<'a> {
    nr_frames: u64,
    /// The block at which the search has begun.
    from: u64,
    nr_begun: u64,
    /// The head of the last folio that was begun.
    last: Option<Pfn>,
    /// One at a time: a storage whose pages are written already does not wait for the next one.
    claim: Option<StorageClaim<'a>>,
}

impl<M: Machine> Vm<M> {
    /// Writes dirty folios until about so many frames are written, or so many blocks were searched. If there are none, waits
    /// for others who write. Returns the block to search from if there may be clean folios now. `nr_answers` were there when there
    /// were none.
    pub(crate) fn write_dirty(&self, nr_blocks: u64, nr_frames: u64, nr_answers: u64) -> Option<u64> {
        self.assert_outside();
        if !self.has_file_objects() {
            return None;
        }
        let blocks = &self.frames.blocks;
        let mut pace = Pace::new(&self.machine);
        let from = self.clean_cursor.load(Ordering::Relaxed);
        let nr_frames = nr_frames.min(MOST_AT_A_TIME);
        let mut round = Round { nr_frames, from, nr_begun: 0, last: None, claim: None };
        for b in (0..nr_blocks.min(blocks.nr())).map(|i| blocks.around(from.wrapping_add(i))) {
            pace.step();
            if round.nr_begun >= round.nr_frames {
                break;
            }
            if blocks.is_there(b) {
                self.write_dirty_of(b, &mut round);
            }
        }
        // The machine takes them in order: with the last one the others are over.
        let Some(last) = round.last else {
            drop(round);
            return self.wait_for_other_writers(nr_answers).then(|| self.writers.searched_from());
        };
        for _ in 0..MOST_WAITS {
            if !self.frames.desc(last).state().is_being_written() {
                break;
            }
            self.machine.relax();
        }
        if self.is_clean_now(last) {
            self.writers.note_answer();
        }
        Some(from)
    }

    fn write_dirty_of<'vm>(&'vm self, b: BlockId, round: &mut Round<'vm>) {
        let mut pace = Pace::new(&self.machine);
        let first = b.first_frame().0;
        for pfn in (first..first + BLOCK_FRAMES as u32).map(Pfn) {
            pace.step();
            if round.nr_begun >= round.nr_frames {
                return;
            }
            if !self.frames.desc(pfn).state().is_dirty_folio() {
                continue;
            }
            // Another folio may have this head by now; the words decide.
            let Some((object, page)) = self.object_of(pfn) else { continue };
            let Some(file) = self.object_file(object.id) else { continue };
            let storage = self.machine.storage(file);
            // Not given up in between: those who wait see a writer.
            let is_claimed = if let Some(claim) = &round.claim {
                claim.change_to(storage, &self.machine)
            } else {
                round.claim = self.writers.claim(storage, &self.machine);
                round.claim.is_some()
            };
            if !is_claimed {
                continue;
            }
            self.writers.note_search(round.from);
            let pages = ObjectPages { start: page, end: page.saturating_add(PAGES_AT_ONCE) };
            let answered = || self.writers.note_answer();
            round.nr_begun += self.begin_writes(&object, file, pages, &answered).max(LEAST_AT_ONCE);
            round.last = Some(pfn);
        }
    }

    /// Waits while others write and have noted no answer, a bounded time. Returns whether there may be clean folios.
    fn wait_for_other_writers(&self, nr_answers: u64) -> bool {
        // A caller claims the storage, and then its folios are not dirty: that was seen before.
        sync::fence();
        for _ in 0..MOST_WAITS_FOR_OTHERS {
            let is_written = self.writers.has_any();
            if self.writers.nr_answers() != nr_answers {
                return true;
            }
            if !is_written {
                return false;
            }
            self.machine.relax();
        }
        // Folios have perhaps become clean without them.
        true
    }
}
