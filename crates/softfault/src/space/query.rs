//! Queries of the VMA tree, with the writer lock or with nothing held.

use super::AddressSpace;
use super::lock::Writer;
use super::tree::{Found, Snapshot};
use super::vma::Vma;
use crate::addr::{PageRange, Vpn};
use crate::frame::PoolId;
use crate::machine::Machine;
use crate::pace::Pace;
use core::ops::ControlFlow;

impl<M: Machine> AddressSpace<'_, M> {
    /// Pages of the range that VMAs have.
    pub(crate) fn nr_mapped_in(&self, writer: &Writer<'_, M>, range: PageRange) -> u64 {
        self.assert_writer(writer);
        let mut nr = 0;
        let _ = self.tree(writer).for_each(range, &mut |vma| {
            nr += vma.range.intersect(&range).nr_pages();
            ControlFlow::Continue(())
        });
        nr
    }

    /// The range up to its first page without a VMA.
    pub(crate) fn mapped_prefix(&self, writer: &Writer<'_, M>, range: PageRange) -> PageRange {
        self.assert_writer(writer);
        let mut end = range.start;
        let mut pace = Pace::new(&self.vm.machine);
        while end < range.end {
            pace.step();
            match self.tree(writer).lookup(end) {
                Some(found) => end = found.vma.range.end,
                None => break,
            }
        }
        PageRange::new(range.start, end.min(range.end))
    }

    /// The hole around a range without VMAs: tables wholly inside it are unused.
    pub(crate) fn hole_around(&self, writer: &Writer<'_, M>, range: PageRange) -> PageRange {
        self.assert_writer(writer);
        let tree = self.tree(writer).snapshot();
        let start = tree.prev_end(range.start).unwrap_or(Vpn(0));
        let end = tree.next_start(range.start).unwrap_or(Self::table_range().end);
        PageRange::new(start, end)
    }

    /// The VMA at a page, by value. Called with nothing held.
    pub(crate) fn vma_at(&self, vpn: Vpn) -> Option<Vma> {
        self.vma_at_rest(vpn, &|tree| tree.lookup(vpn), &|_| ()).map(|(vma, ())| vma)
    }

    /// The first VMA that ends after the page, by value. Called with nothing held.
    pub(crate) fn vma_from(&self, vpn: Vpn) -> Option<Vma> {
        self.vma_at_rest(vpn, &|tree| tree.next(vpn), &|_| ()).map(|(vma, ())| vma)
    }

    /// The same, and the pool that its pages come from. Afterwards its object may be gone, so that nobody can ask.
    pub(crate) fn mapping_from(&self, vpn: Vpn) -> Option<(Vma, Option<PoolId>)> {
        self.vma_at_rest(vpn, &|tree| tree.next(vpn), &|vma| self.vm.pool_of_vma(vma))
    }

    /// The VMA at a page, when no mremap is moving it. Waits for a move, as a fault does (I29). A
    /// hole may exist only for a moment while a mapping is replaced. The replacing operation has
    /// the writer lock, so this waits for it, too, as a fault does. Refused in notices, because a
    /// notice of a move would wait for itself. `ask` runs in the section or under the lock that keeps the object of the VMA.
    fn vma_at_rest<T>(
        &self,
        vpn: Vpn,
        find: &dyn for<'s> Fn(Snapshot<'s, M>) -> Option<Found<'s>>,
        ask: &dyn Fn(&Vma) -> T,
    ) -> Option<(Vma, T)> {
        self.vm.assert_outside();
        loop {
            let seen = {
                let section = self.section();
                find(self.tree_in(section.inside())).map(|found| (found.vma, ask(&found.vma)))
            };
            match seen {
                Some((vma, _)) if vma.is_moving() => self.vm.machine.relax(),
                Some((vma, answer)) if vma.range.contains(vpn) => return Some((vma, answer)),
                _ => {
                    let writer = &self.write_lock();
                    return find(self.tree(writer).snapshot()).map(|found| (found.vma, ask(&found.vma)));
                }
            }
        }
    }
}
