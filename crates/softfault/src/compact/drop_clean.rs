//! Drops folios of files that are clean: the files have their content.
//!
//! ```text
//! pass    blocks, from where the last call ended, once there has been a file; and those that the front hand meets
//! folio   of a file, up to date, clean, without pins? used?       policy/second_chance.rs
//! batch   some of them are marked, unmapped and dropped together   drop_batch.rs
//! ```
//! `space/reclaim.rs` calls this before an allocation is refused, and when memory is low; the allocator never does. It
//! allocates nothing. A fault on the page reads it again. Before a refusal a second pass takes used folios, if the first
//! has found few.
//!
//! Locks on entry: none, no section. Takes the locks of the object's shards.

use super::drop_batch::DropBatch;
use crate::account::Event;
use crate::addr::{BLOCK_FRAMES, BlockId, Order, Pfn};
use crate::machine::Machine;
use crate::pace::Pace;
use crate::policy::second_chance::{Chance, CleanFolio, Hand, Pass};
use crate::source::slot::PageFrame;
use crate::space::Vm;
use crate::space::vm::Shortage;
use crate::sync::Ordering;

/// The largest number of frames that one refusal frees: the next refusal goes on.
const MOST_AT_A_TIME: u64 = 512;
/// With fewer frames, others may have taken them before the refused caller: a CPU takes 64 at a time.
const ENOUGH: u64 = 256;
/// Blocks after which a batch is dropped that is not full: programs that want one of its pages wait.
const BLOCKS_PER_BATCH: u64 = 8;

impl<M: Machine> Vm<M> {
    /// Drops clean folios until so many frames are free, or a few hundred, or so many blocks were searched. Returns the number of
    /// frames freed.
    pub(crate) fn drop_clean_until(&self, nr_blocks: u64, nr_frames: u64, shortage: Shortage) -> u64 {
        self.assert_outside();
        if !self.has_file_objects() {
            return 0;
        }
        let nr_frames = nr_frames.min(MOST_AT_A_TIME);
        let from = self.clean_cursor.load(Ordering::Relaxed);
        let nr_freed = self.drop_clean_in_pass(nr_blocks, nr_frames, &mut Pass::first(nr_frames));
        let nr_missing = nr_frames.min(ENOUGH).saturating_sub(nr_freed);
        if shortage == Shortage::Low || nr_missing == 0 {
            return nr_freed;
        }
        // The same blocks: the folios that were just written are there.
        self.clean_cursor.store(from, Ordering::Relaxed);
        nr_freed + self.drop_clean_in_pass(nr_blocks, nr_missing, &mut Pass::last())
    }

    fn drop_clean_in_pass(&self, nr_blocks: u64, nr_frames: u64, pass: &mut Pass) -> u64 {
        let blocks = &self.frames.blocks;
        let mut batch = DropBatch::new(self);
        let mut nr_freed = 0;
        let mut pace = Pace::new(&self.machine);
        for i in 0..nr_blocks.min(blocks.nr()) {
            if nr_freed + batch.nr_pages() >= nr_frames || i % BLOCKS_PER_BATCH == 0 {
                nr_freed += batch.run(pass);
            }
            if nr_freed >= nr_frames || pass.nr_visits == 0 {
                break;
            }
            pace.step();
            let at = self.clean_cursor.fetch_add(1, Ordering::Relaxed);
            // The back hand first: in a small memory they meet the same block.
            for (hand, b) in [(Hand::Back, at), (Hand::Front, at.wrapping_add(blocks.nr() / 2))] {
                nr_freed += self.meet_clean_in(hand, blocks.around(b), pass, &mut batch);
            }
        }
        nr_freed + batch.run(pass)
    }

    /// Moves a hand over one block. Folios that stay in the batch are dropped later.
    fn meet_clean_in<'vm>(&'vm self, hand: Hand, b: BlockId, pass: &mut Pass, batch: &mut DropBatch<'vm, M>) -> u64 {
        if !self.frames.blocks.may_have_files(b) {
            return 0;
        }
        let mut pace = Pace::new(&self.machine);
        let first = b.first_frame().0;
        let mut nr_freed = 0;
        for pfn in (first..first + BLOCK_FRAMES as u32).map(Pfn) {
            pace.step();
            if self.frames.desc(pfn).state().is_clean_folio() {
                self.add_clean_folio(hand, pfn, pass, batch);
            }
            if batch.is_full() {
                nr_freed += batch.run(pass);
            }
        }
        nr_freed
    }

    /// Moves a hand over one folio.
    #[cfg(any(test, feature = "hooks"))]
    pub(crate) fn meet_folio(&self, hand: Hand, head: Pfn, pass: &mut Pass) -> u64 {
        let mut batch = DropBatch::new(self);
        self.add_clean_folio(hand, head, pass, &mut batch);
        batch.run(pass)
    }

    /// Adds the folio with that head, unless it stays.
    fn add_clean_folio<'vm>(&'vm self, hand: Hand, head: Pfn, pass: &mut Pass, batch: &mut DropBatch<'vm, M>) {
        let Some((object, first, _)) = self.file_object_of(head) else { return };
        let (desc, state) = (self.frames.desc(head), self.frames.desc(head).state());
        // Another folio may have this head by now; the words decide.
        if !state.is_clean_folio() || state.order() >= Order::PMD {
            return;
        }
        let frame = PageFrame { pfn: head, order: state.order() };
        let folio = CleanFolio {
            nr_pages: frame.order.nr_pages(),
            is_mapped: state.was_mapped(),
            is_used: state.was_referenced(),
            age: self.frames.ages.now().age_of(self.frames.generation_of(head)),
            nr_mappings: self.object(object.id).nr_members.load(Ordering::Relaxed),
        };
        match pass.chance(hand, &folio) {
            Chance::Leave => {}
            Chance::Look if !folio.is_mapped => {
                desc.forget_use(state);
                self.count(Event::FileRotated, folio.nr_pages);
            }
            chance => {
                if self.object_begin_move(&object, first, frame) {
                    // Later uses, and entries that were accessed, set it again.
                    desc.forget_use(desc.state());
                    batch.add(object, first, frame, chance);
                }
            }
        }
    }
}
