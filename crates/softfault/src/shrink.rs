//! Module `shrink`: splits huge pages that are mostly zeroes when memory is short, and frees their
//! zero sub-pages.
//!
//! There is no queue and no lock: a cursor passes over the blocks, which say whether they
//! have a folio. The folio's only entry is found through rmap, so the caller names no space.
//!
//! Daemons call it, and `space/reclaim.rs` after a refusal or below the low watermark; the
//! allocator never does. It allocates nothing.
//!
//! Locks on entry: none, no section. Takes the family's lock for the walk.

use crate::account::Event;
use crate::addr::{BlockId, Pfn, Vpn};
use crate::frame::FrameKind;
use crate::machine::{Flush, Machine};
use crate::pace::Pace;
use crate::program;
use crate::space::Vm;
use crate::space::split::ZeroPages;
use crate::space::vma::{Vma, VmaFlags};
use crate::space::{AddressSpace, SpaceData};
use crate::sync::{self, Ordering};
use crate::table::format::Entry;

impl<M: Machine> Vm<M> {
    /// Searches up to `nr_blocks` blocks, from where the last call ended, for huge pages with more
    /// zero sub-pages than `khugepaged/max_ptes_none`, splits these, and frees the zero sub-pages.
    /// Returns the number of frames freed.
    ///
    /// Called outside sections, with no lock held. Skips entries that other operations own.
    ///
    /// Source: Linux, Documentation/admin-guide/mm/transhuge.rst, `shrink_underused`.
    pub fn shrink_underused(&self, nr_blocks: u64) -> u64 {
        self.shrink_until(nr_blocks, u64::MAX)
    }

    /// Like `shrink_underused`, until so many frames were freed or all blocks were searched.
    pub(crate) fn shrink_until(&self, nr_blocks: u64, nr_frames: u64) -> u64 {
        self.assert_outside();
        let Some(most_zero) = self.underused_above() else { return 0 };
        let blocks = &self.frames.blocks;
        let mut nr_freed = 0;
        let mut pace = Pace::new(&self.machine);
        for _ in 0..nr_blocks.min(blocks.nr()) {
            if nr_freed >= nr_frames {
                break;
            }
            pace.step();
            let mut b = blocks.around(self.underused_cursor.fetch_add(1, Ordering::Relaxed));
            let nr_in_hole = blocks.distance(b);
            if nr_in_hole > 0 {
                // If several CPUs are here, one continues after it; the others search nothing once.
                b = blocks.around(self.underused_cursor.fetch_add(nr_in_hole, Ordering::Relaxed) - 1 + nr_in_hole);
            }
            nr_freed += self.shrink_in(b, most_zero);
        }
        nr_freed
    }

    /// The folio of one block, if it has one and nobody else maps any of it.
    fn shrink_in(&self, b: BlockId, most_zero: u64) -> u64 {
        let folio = &self.frames.blocks.at(b).folio;
        let state = folio.state();
        if state.kind() != FrameKind::Anon || state.is_derived() || state.nr_maps() != 1 {
            return 0;
        }
        let first = folio.first();
        // A subscriber would have to be told before the entry is taken.
        let mut taken = [None];
        let mut fits = |space: &SpaceData, vma: &Vma| !is_locked(vma) && !space.notify.has_any();
        self.rmap_take_huge(first, None, &mut fits, &mut taken);
        let [Some(taken)] = taken else { return 0 };
        // A look while programs may still write, to find out whether a shootdown is worth it. The
        // entry is ours first: a folio that nothing keeps may be reused by now, and be zeroed or
        // copied to by plain stores (I6).
        if self.zero_pages(first, most_zero).is_none() {
            taken.pmd.slot.resolve(Entry::Leaf(taken.old));
            return 0;
        }
        let space = self.borrow_space(taken.space);
        space.shootdown_and_wait(Flush::Pages(taken.pmd.span()));
        // The only entry is ours, and no section saw it: no program writes any more,
        // and no pin comes. A pin that was there may write until it goes, so the pins
        // are sampled before the content: what has gone by then has written.
        let pinned = self.folio_pins(first);
        let state = self.frames.folio(first).state();
        let zero = self.zero_pages(first, most_zero).filter(|_| !state.is_derived() && state.nr_maps() == 1);
        let zero = zero.filter(|_| !is_locked_now(&space, taken.pmd.base));
        let zero = zero.map(|zero| core::array::from_fn(|w| zero[w] & !pinned[w]));
        match zero {
            Some(zero) => {
                let nr_freed = space.finish_split_without(taken.pmd, taken.old, &zero);
                self.count(Event::ThpUnderusedSplitPage, 1);
                nr_freed
            }
            None => {
                taken.pmd.slot.resolve(Entry::Leaf(taken.old));
                0
            }
        }
    }

    /// Which sub-pages are zero, if more than `most` are. Ends as soon as too few
    /// can be.
    fn zero_pages(&self, first: Pfn, most: u64) -> Option<ZeroPages> {
        let mut zero: ZeroPages = [0; 8];
        let mut nr_used_left = Self::NR_SUB_FRAMES.checked_sub(most + 1)?;
        let mut pace = Pace::new(&self.machine);
        for i in 0..Self::NR_SUB_FRAMES as usize {
            pace.page();
            // Its programs may be writing it.
            if program::is_zero(&self.machine, Pfn(first.0 + i as u32)) {
                zero[i / 64] |= 1 << (i % 64);
            } else {
                nr_used_left = nr_used_left.checked_sub(1)?;
            }
        }
        Some(zero)
    }
}

/// Whether its pages may not fault again.
fn is_locked(vma: &Vma) -> bool {
    vma.flags.contains(VmaFlags::LOCKED)
}

/// The caller owns the page's entry. mlock(2) publishes and then looks at the
/// entry; it sees `Busy`, or is seen here. Does not wait, since a move that has begun
/// waits for the entry.
fn is_locked_now<M: Machine>(space: &AddressSpace<'_, M>, vpn: Vpn) -> bool {
    sync::fence();
    let section = space.section();
    space.tree_in(section.inside()).lookup(vpn).is_none_or(|found| is_locked(&found.vma))
}

#[cfg(test)]
mod tests;
