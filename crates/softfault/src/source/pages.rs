//! The pages that an object has, in order.
//!
//! Locks on entry: none, no section.

use super::object::{INDEX_BITS, Top};
use super::slot::PageSlot;
use crate::addr::{ObjectPages, OptPfn, Pfn};
use crate::links::Links;
use crate::machine::Machine;
use crate::mem;
use crate::pace::Pace;
use crate::space::vma::ObjectId;
use crate::sync::{Ordering, Word};
use core::ops::ControlFlow;

impl<M: Machine> Links<M> {
    /// Calls `f` with the number and the slot of each page that is there, or is being put in, in order,
    /// until it breaks off. What comes and goes meanwhile may be left out. An empty
    /// word of an upper node skips its whole span. Answers other CPUs: not in a
    /// section.
    pub(crate) fn for_each_page(
        &self,
        id: ObjectId,
        pages: ObjectPages,
        f: &mut dyn FnMut(u64, PageSlot<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let top = Top::of(self.object(id));
        match top.node() {
            Some(node) => self.walk_node((node, top.height() - 1, 0), pages, &mut Pace::new(&self.machine), f),
            None => ControlFlow::Continue(()),
        }
    }

    /// The node, its level, of which 0 has pages, and the number of the first page
    /// below it.
    fn walk_node(
        &self,
        (node, level, base): (Pfn, u32, u64),
        pages: ObjectPages,
        pace: &mut Pace<'_, M>,
        f: &mut dyn FnMut(u64, PageSlot<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let shift = INDEX_BITS * level;
        let first = (pages.start.saturating_sub(base) >> shift).min(512);
        let end = pages.end.saturating_sub(base).div_ceil(1 << shift).min(512);
        let words: &[Word; 512] = mem::view(&self.machine, node, 0);
        for i in first..end {
            pace.step();
            let word = words[i as usize].load(Ordering::Acquire);
            match OptPfn::from_word(word).get() {
                None => {}
                Some(_) if level == 0 => f(base + i, PageSlot { node: words, i: i as usize })?,
                Some(below) => self.walk_node((below, level - 1, base + (i << shift)), pages, pace, f)?,
            }
        }
        ControlFlow::Continue(())
    }
}
