//! Counts the frames that a child needs before its parent's pages are shared.
//!
//! The sum of the parent's table counts is exact if every table is copied. Where large VMAs are left out, or
//! where there are many CPUs with a count each, tables are counted from the levels above the leaf tables. Only
//! if these frames cannot be set aside, or a fork ran out of frames before, every entry is read, which costs
//! about as much as the fork. Then empty leaf tables are left out, and pages that have to be copied are
//! counted.
//!
//! Faults and pins continue, so each count may be too low when it is used.
//!
//! Locks on entry: the parent's writer lock, no section.

use super::{Wanted, wanted};
use crate::addr::Vpn;
use crate::frame::{Memory, OutOfFrames};
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::space::lock::Writer;
use crate::table::format::{Entry, Format, span_of};
use crate::table::place::PmdSlot;
use crate::table::reserve::TableReserve;
use crate::table::take::{self, Next, Part};
use core::ops::ControlFlow;

/// Largest number of pages in VMAs that are not copied for which the sum is used all the same: tables
/// for them are set aside without use.
const FEW_PAGES: u64 = 1 << 12;
/// Largest number of CPUs for which the parent's counts are summed: each CPU has one, and the cost of
/// a call must not grow with the number of CPUs.
const FEW_CPUS: usize = 32;

/// How a fork counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Count {
    /// Tables that the parent has, whatever is in them.
    Tables,
    /// The frames that are needed if nothing changes.
    Exactly,
}

/// Counts the frames that the child needs. Pages are added in ascending order.
struct Needed {
    /// For each level, the span of the last table that was counted.
    last: [u64; 8],
    last_twin: u64,
    nr: u64,
}

impl Needed {
    /// Adds the tables of a page from `level` up, without the root.
    fn tables<F: Format>(&mut self, vpn: Vpn, level: u8) {
        for level in level..F::LEVELS - 1 {
            let index = vpn.0 / span_of::<F>(level + 1);
            if core::mem::replace(&mut self.last[usize::from(level)], index) == index {
                return;
            }
            self.nr += 1;
        }
    }

    /// Adds a huge mapping: the twin of its table, and its deposit, which becomes the leaf table if
    /// the mapping is split.
    fn huge<F: Format>(&mut self, vpn: Vpn) {
        self.tables::<F>(vpn, 1);
        let index = vpn.0 / span_of::<F>(2);
        let has_twin = core::mem::replace(&mut self.last_twin, index) == index;
        self.nr += 1 + u64::from(!has_twin);
    }
}

/// Whether the sum of the parent's counts is used.
fn is_summed(nr_left_out: u64, nr_cpus: usize) -> bool {
    nr_left_out <= FEW_PAGES && nr_cpus <= FEW_CPUS
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Sets aside the frames that the child needs, before any page is shared.
    pub(super) fn reserve_for_child(
        &self,
        writer: &Writer<'_, M>,
        how: Count,
        nr_left_out: u64,
        reserve: &mut TableReserve<'vm, M>,
    ) -> Result<(), OutOfFrames> {
        if how == Count::Tables {
            let nr_tables = if is_summed(nr_left_out, self.vm.machine.nr_cpus()) {
                self.rss_pages().tables
            } else {
                self.count_for_child(writer, Count::Tables)
            };
            if reserve.add_if_free(nr_tables) {
                return Ok(());
            }
        }
        reserve.add(self.count_for_child(writer, Count::Exactly))
    }

    fn count_for_child(&self, writer: &Writer<'_, M>, how: Count) -> u64 {
        self.assert_writer(writer);
        let mut needed = Needed { last: [u64::MAX; 8], last_twin: u64::MAX, nr: 0 };
        let _ = self.tree(writer).for_each(Self::user_range(), &mut |vma| {
            if let Some(what) = wanted(&vma) {
                take::for_each_part(&self.vm.machine, self.root, vma.range, &mut |part| {
                    match part {
                        Part::Table(_, pages) if how == Count::Tables => needed.tables::<M::Format>(pages.start, 0),
                        Part::Table(table, pages) => {
                            take::for_each_in_table(&self.vm.machine, table, pages, &mut |vpn, slot| {
                                let entry = slot.observe().entry;
                                if what != Wanted::Guards || entry == Entry::Guard {
                                    needed.tables::<M::Format>(vpn, 0);
                                    needed.nr += u64::from(self.is_copied(entry));
                                }
                                Next::GoOn
                            });
                        }
                        Part::Huge(_) if what == Wanted::Guards => {}
                        Part::Huge(pmd) => self.count_huge(&pmd, &mut needed),
                    }
                    Next::GoOn
                });
            }
            ControlFlow::Continue(())
        });
        needed.nr
    }

    /// Counts a huge mapping, and a copy for each of its pinned pages.
    fn count_huge(&self, pmd: &PmdSlot<'_, M::Format>, needed: &mut Needed) {
        let is_of_pool = match pmd.slot.observe().entry {
            Entry::Leaf(leaf) | Entry::LockedLeaf(leaf) => self.vm.frames.is_of_pool(leaf.pfn),
            entry => entry == Entry::Poison,
        };
        if is_of_pool {
            // Without a deposit, and with pages of the pool for copies.
            return needed.tables::<M::Format>(pmd.base, pmd.slot.level);
        }
        needed.huge::<M::Format>(pmd.base);
        if let Entry::Leaf(leaf) = pmd.slot.observe().entry
            && !self.vm.is_huge_zero(leaf.pfn)
        {
            needed.nr += self.vm.folio_pins(leaf.pfn).iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        }
    }

    /// Whether the page cannot be shared.
    fn is_copied(&self, entry: Entry) -> bool {
        let Entry::Leaf(leaf) = entry else { return false };
        let state = self.vm.frames.desc(leaf.pfn).state();
        leaf.pfn != self.vm.frames.zero && (state.pins() > 0 || state.nr_maps() >= Memory::<M>::MAX_MAPPINGS)
    }
}

#[cfg(test)]
#[path = "count_tests.rs"]
mod tests;
