//! Frees a page of any size: a private one, a page of a table or object, a folio, or a page of a pool.
//!
//! Locks on entry: none. The caller owns the page alone; a folio of whole blocks outside sections, since it answers
//! other CPUs.

use super::blocks::word_base;
use super::{BLOCK_WORDS, Claim, Content, Fill, FrameKind, Memory};
use crate::addr::{BLOCK_FRAMES, BlockId, Order, Pfn};
use crate::machine::Machine;

impl<M: Machine> Memory<M> {
    /// Frees a page of any size that the caller owns alone: nothing names it, and all sections that
    /// saw it have ended.
    pub(crate) fn give_back_page(&self, head: Pfn) {
        let state = self.frames.desc(head).state();
        if state.kind() == FrameKind::Anon && self.frames.is_of_pool(head) {
            return self.free_pool_page(head, Claim::Nothing);
        }
        if state.kind() != FrameKind::Shared || state.order() == Order::BASE {
            return self.give_back(head, Fill::Raw);
        }
        let order = state.order();
        if order < Order::PMD {
            self.end_folio(head, order);
            return self.release_run(head, order.nr_pages(), Content::Unknown);
        }
        self.frames.desc(head).clear();
        if let Some(pool) = self.pool_of(head) {
            self.for_each_block(head, order, &mut |b| self.frames.blocks.at(b).tails.clear_all());
            return self.put_in(pool, head);
        }
        self.for_each_block(head, order, &mut |b| self.give_back_block(b));
    }

    /// Gives back a block of a folio, whose head has been cleared.
    fn give_back_block(&self, b: BlockId) {
        let nr_kept = if self.frames.lacks_tail_descs(b) { self.make_whole_at_end(b) } else { 0 };
        self.frames.blocks.at(b).tails.clear_all();
        match nr_kept {
            0 => self.release_run(b.first_frame(), BLOCK_FRAMES, Content::Unknown),
            _ => self.release_but_last(b, nr_kept),
        }
    }

    /// Frees a block but for its last frames, which stay in use.
    fn release_but_last(&self, b: BlockId, nr_kept: u64) {
        for w in 0..BLOCK_WORDS {
            let mask = if w + 1 == BLOCK_WORDS { u64::MAX >> nr_kept } else { u64::MAX };
            self.release_word(word_base(b, w), mask, Content::Unknown);
        }
    }
}
