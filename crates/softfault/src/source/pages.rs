//! Iterates over the pages of an object, in order.
//!
//! Locks on entry: none, no section.

use super::node::{Below, Node};
use super::object_slot::Top;
use super::slot::{INDEX_BITS, PageSlot};
use super::spread::Spread;
use crate::addr::ObjectPages;
use crate::links::Links;
use crate::machine::Machine;
use crate::mem;
use crate::pace::Pace;
use crate::space::vma::ObjectId;
use crate::sync::{Ordering, Word};
use core::ops::ControlFlow;

impl<M: Machine> Links<M> {
    /// Calls `f` with the number and the slot of each page that is present, swapped out or being filled in,
    /// in order, until it breaks off. For a folio that is one word, `f` is called for the first page in
    /// the range only ([`PageSlot::nr_pages`]). Pages that are added or removed meanwhile may be missed.
    /// An empty word of an upper node skips its whole span. A node whose pages are being reserved is one slot, of the word that
    /// names it. Answers other CPUs, so it must not be called
    /// in a section.
    pub(crate) fn for_each_page(
        &self,
        id: ObjectId,
        pages: ObjectPages,
        f: &mut dyn FnMut(u64, PageSlot<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let top = Top::of(&self.object(id).top);
        let (Some(node), pace) = (top.node(), &mut Pace::new(&self.machine)) else {
            return ControlFlow::Continue(());
        };
        let all = (Node::plain(node), top.height() - 1, 0);
        match top.spread() {
            None => self.walk_node(all, pages, None, pace, f),
            Some(spread) => {
                let pages = spread.range_to_tree(pages);
                self.walk_node(all, pages, Some(spread), pace, &mut |page, slot| f(spread.page_of(page), slot))
            }
        }
    }

    /// The node, its level (0 has words of pages), and the number of the first page below it. All pages by their numbers in
    /// the tree.
    fn walk_node(
        &self,
        (node, level, base): (Node, u32, u64),
        pages: ObjectPages,
        spread: Option<Spread>,
        pace: &mut Pace<'_, M>,
        f: &mut dyn FnMut(u64, PageSlot<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let shift = INDEX_BITS * level;
        let first = (pages.start.saturating_sub(base) >> shift).min(512);
        let end = pages.end.saturating_sub(base).div_ceil(1 << shift).min(512);
        let words: &[Word; 512] = mem::view(&self.machine, node.pfn, 0);
        // Where words have a line each, the first one is at a multiple.
        for i in (first..end).step_by(spread.map_or(1, |spread| spread.step(level))) {
            pace.step();
            let (word, at) = (words[i as usize].load(Ordering::Acquire), base + (i << shift));
            let page = at.max(pages.start);
            match Below::of(word) {
                // The range may be empty, and begin and end within a folio.
                _ if node.zero.translate(word) == 0 || page >= pages.end => {}
                Below::Node(below) if level > 0 => self.walk_node((below, level - 1, at), pages, spread, pace, f)?,
                _ => f(page, PageSlot::new(words, level, page).with(node.zero))?,
            }
        }
        ControlFlow::Continue(())
    }
}
