//! `MADV_COLLAPSE` over a range. Holes are skipped by table level.
//!
//! Locks on entry: none, no section.

use crate::addr::{PageRange, Vpn};
use crate::frame::PoolId;
use crate::machine::Machine;
use crate::pace::Pace;
use crate::policy::collapse::CollapseRefusal;
use crate::space::AddressSpace;
use crate::space::Vm;
use crate::space::vma::Vma;
use crate::table::format::span_of;
use crate::table::walk::Walk;

impl<M: Machine> AddressSpace<'_, M> {
    /// Collapses the whole PMD ranges of a range, one after the other. The lock is dropped between
    /// them. Returns the last refusal, if there was one.
    pub(crate) fn collapse_range(
        &self,
        (vma, pool): (&Vma, Option<PoolId>),
        range: PageRange,
    ) -> Result<(), CollapseRefusal> {
        let nr = Vm::<M>::NR_SUB_FRAMES;
        let has_room = vma.range.start.0.next_multiple_of(nr) + nr <= vma.range.end.0;
        // As Linux: of a mapping of a pool's pages no part is collapsed, also if the range has no whole one.
        if !has_room || pool.is_some() || self.collapse_orders(vma.flags).is_empty() {
            return Err(CollapseRefusal::NotAllowed);
        }
        let (start, end) = (range.start.0.next_multiple_of(nr), range.end.0 / nr * nr);
        if start > end {
            return Err(CollapseRefusal::OutsideVma);
        }
        let mut result = Ok(());
        let mut base = Vpn(start);
        let mut pace = Pace::new(&self.vm.machine);
        while base.0 < end {
            pace.step();
            let next = Vpn(base.0 + nr);
            base = match self.collapse(base.addr()) {
                Ok(()) | Err(CollapseRefusal::AlreadyHuge) => next,
                Err(refusal) => {
                    result = Err(refusal);
                    if refusal == CollapseRefusal::Empty { self.end_of_hole(base).max(next) } else { next }
                }
            };
        }
        result
    }

    /// Returns the end of the hole in the tables around the page, or the page itself if there is
    /// none. Advisory: the hole may be filled at any moment.
    pub(crate) fn end_of_hole(&self, vpn: Vpn) -> Vpn {
        let section = self.section();
        match self.walk(section.inside(), vpn) {
            Walk::Hole(hole) => Vpn(hole.base.0 + span_of::<M::Format>(hole.slot.level)),
            Walk::Leaf(_) | Walk::Huge(_) | Walk::Owned => vpn,
        }
    }
}
