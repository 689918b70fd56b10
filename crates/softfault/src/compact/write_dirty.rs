//! Writes dirty folios of files before an allocation is refused, so that they can be dropped.
//!
//! ```text
//! scan    blocks from where drops go on: a dirty folio of a file ─▶ it and the pages behind it are begun
//! wait    for writes that stay under way: a bounded time
//! then    drop_clean.rs
//! ```
//! The caller has the lock `reclaiming`, for which other refused callers wait. So it must not wait for a write that never
//! ends. A machine that writes later, and takes longer, refuses an allocation that it could have served: it should
//! write when memory is low, or block in [`Machine::write_back`].
//!
//! To begin a write, it waits while the page is taken out or moved. CPUs that do so wait for shootdowns, sections and
//! subscribers, never for a frame. So a subscriber must not wait for a caller that may be refused a frame
//! ([`Machine::notify`], rule 4).
//!
//! Locks on entry: `reclaiming`, no section. Takes the locks of the objects' shards.

use crate::addr::{BLOCK_FRAMES, BlockId, ObjectPages, Pfn};
use crate::machine::Machine;
use crate::pace::Pace;
use crate::space::Vm;
use crate::space::vm::Shortage;
use crate::sync::Ordering;

/// The approximate number of frames that are written for one refusal.
const MOST_AT_A_TIME: u64 = 512;
/// The number of pages behind a dirty one that are written with it.
const PAGES_AT_ONCE: u64 = 64;
/// Each beginning counts as so many pages at least: it costs a grace period of all CPUs and a shootdown. Of pages far apart,
/// 64 are written for a refusal, which is enough for another retry.
const LEAST_AT_ONCE: u64 = 8;
/// How often the caller lets others run until a write is over. A guess.
const MOST_WAITS: u32 = 10_000;

impl<M: Machine> Vm<M> {
    /// Frees frames of files: drops clean folios; if there are none, and an allocation is about to be refused, writes dirty
    /// ones first. Returns the number of frames freed.
    pub(crate) fn free_files(&self, nr_blocks: u64, nr_frames: u64, shortage: Shortage) -> u64 {
        let nr_freed = self.drop_clean_until(nr_blocks, nr_frames, shortage);
        if nr_freed > 0 || shortage == Shortage::Low || !self.has_file_objects() {
            return nr_freed;
        }
        match self.write_dirty(nr_blocks, nr_frames.min(MOST_AT_A_TIME)) {
            0 => 0,
            _ => self.drop_clean_until(nr_blocks, nr_frames, shortage),
        }
    }

    /// Writes dirty folios until about so many frames are written, or so many blocks were searched. Returns how many were begun.
    fn write_dirty(&self, nr_blocks: u64, nr_frames: u64) -> u64 {
        let blocks = &self.frames.blocks;
        let mut pace = Pace::new(&self.machine);
        let (from, mut nr_begun, mut last) = (self.clean_cursor.load(Ordering::Relaxed), 0, None);
        for b in (0..nr_blocks.min(blocks.nr())).map(|i| blocks.around(from.wrapping_add(i))) {
            pace.step();
            if nr_begun >= nr_frames {
                break;
            }
            if blocks.is_there(b) {
                self.write_dirty_of(b, nr_frames, &mut nr_begun, &mut last);
            }
        }
        // The machine takes them in order: with the last one the others are over.
        let Some(last) = last else { return 0 };
        for _ in 0..MOST_WAITS {
            if !self.frames.desc(last).state().is_being_written() {
                break;
            }
            self.machine.relax();
        }
        nr_begun
    }

    fn write_dirty_of(&self, b: BlockId, nr_frames: u64, nr_begun: &mut u64, last: &mut Option<Pfn>) {
        let mut pace = Pace::new(&self.machine);
        let first = b.first_frame().0;
        for pfn in (first..first + BLOCK_FRAMES as u32).map(Pfn) {
            pace.step();
            if *nr_begun >= nr_frames {
                return;
            }
            if !self.frames.desc(pfn).state().is_dirty_folio() {
                continue;
            }
            // Another folio may have this head by now; the words decide.
            let Some((object, page)) = self.object_of(pfn) else { continue };
            let Some(file) = self.object_file(object.id) else { continue };
            let pages = ObjectPages { start: page, end: page.saturating_add(PAGES_AT_ONCE) };
            *nr_begun += self.begin_writes(&object, file, pages).max(LEAST_AT_ONCE);
            *last = Some(pfn);
        }
    }
}
