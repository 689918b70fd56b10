//! Splits a huge page of private memory, for all who map it, whichever spaces these are.
//!
//! Locks on entry: none, no section. Takes the family's for the walk.

use crate::addr::Pfn;
use crate::frame::FrameKind;
use crate::machine::Machine;
use crate::rmap::TakenHuge;
use crate::space::Vm;

/// Huge entries of a folio that are taken at a time.
const SPLITS_MAX: usize = 16;

impl<M: Machine> Vm<M> {
    /// Splits the huge page that the frame is part of: then it is 512 small pages. Nothing can go wrong;
    /// nothing happens where it is part of none. It waits for entries that others own, so this is not for those
    /// who hold anything.
    pub(crate) fn split_private(&self, pfn: Pfn) {
        if self.frames.find_desc_at_rest(pfn).is_none() {
            return;
        }
        let folio = self.frames.folio(pfn);
        let is_there = || folio.state().kind() == FrameKind::Anon && self.is_part(pfn);
        let name = || (folio.first(), folio.owner.get(), folio.index.get());
        let this = name();
        while is_there() && name() == this {
            if !self.split_found(this.0) {
                self.machine.relax();
            }
        }
    }

    /// Splits what one walk finds. The last entry of each batch is resolved after
    /// the next has been taken: it keeps its space in place, and the walk goes on
    /// there, so that many members cost one walk and not one each.
    fn split_found(&self, first: Pfn) -> bool {
        let (mut last, mut found_any) = (None::<TakenHuge<'_, M>>, false);
        loop {
            let mut taken = [None; SPLITS_MAX];
            let after = last.map(|huge| huge.space);
            let nr_taken = self.rmap_take_huge(first, after, &mut |_, _| true, &mut taken);
            let next = if nr_taken == SPLITS_MAX { taken[SPLITS_MAX - 1].take() } else { None };
            for huge in last.into_iter().chain(taken.into_iter().flatten()) {
                self.borrow_space(huge.space).finish_split(huge.pmd, huge.old);
                found_any = true;
            }
            if next.is_none() {
                return found_any;
            }
            last = next;
        }
    }
}
