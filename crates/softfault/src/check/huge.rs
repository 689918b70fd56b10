//! Checks huge mappings and their folios at rest: I25, I26.

use super::Broken;
use crate::account::rss::Rss;
use crate::addr::{Pfn, Rights, Vpn};
use crate::frame::{FrameKind, PoolId};
use crate::machine::Machine;
use crate::mem;
use crate::space::AddressSpace;
use crate::space::Vm;
use crate::space::vma::Vma;
use crate::sync::Word;
use crate::table::entry::Slot;
use crate::table::format::{Entry, Leaf, huge_order, order_of, span_of};
use crate::table::pmd;
use crate::table::walk;

/// In the counts of the first frame of a folio: one huge entry. Small entries are
/// counted below.
pub(super) const HUGE_ONE: u32 = 1 << 20;

/// Small entries that name a frame.
pub(super) fn nr_small(count: u32) -> u64 {
    u64::from(count % HUGE_ONE)
}

impl<M: Machine> AddressSpace<'_, M> {
    /// I25: a huge entry lies in one VMA, at an aligned folio, with its deposit;
    /// counts it. Gives what its pages count as, if they do. Of a page of a pool there is no deposit.
    pub(super) fn check_huge(
        &self,
        (vpn, level): (Vpn, u8),
        leaf: Leaf,
        vma: Option<Vma>,
        counts: &mut [u32],
    ) -> Result<Option<Rss>, Broken> {
        let span_end = Vpn(vpn.0 + span_of::<M::Format>(level));
        let Some(vma) = vma.filter(|vma| span_end <= vma.range.end) else { return Err(Broken::OutsideVma(vpn.addr())) };
        let allowed = vma.flags.rights();
        let readable = if allowed.is_empty() { allowed } else { allowed | Rights::READ };
        if !(leaf.rights - readable).is_empty() {
            return Err(Broken::TooManyRights(vpn.addr()));
        }
        // I58: a page of a pool has one entry, and other pages have none above level 1.
        let pool = self.vm.pool_of(leaf.pfn);
        if pool.map_or(huge_order::<M::Format>(), PoolId::order) != order_of::<M::Format>(level) {
            return Err(Broken::BadFrame(leaf.pfn));
        }
        if self.vm.is_huge_zero(leaf.pfn) {
            let writable = leaf.rights.contains(Rights::WRITE);
            return if writable { Err(Broken::SharedWritable(vpn.addr())) } else { Ok(None) };
        }
        if self.vm.frames.is_of_pool(leaf.pfn) && self.vm.frames.desc(leaf.pfn).state().kind() == FrameKind::Anon {
            // The head counts its entries, as a small page does.
            counts[leaf.pfn.0 as usize] += 1;
            let is_writable = leaf.rights.contains(Rights::WRITE);
            return match () {
                () if !self.is_private_of_pool(&vma) => Err(Broken::NotInObject(vpn.addr())),
                // I54.
                () if self.is_past_object(&vma, vpn) => Err(Broken::NotInObject(vpn.addr())),
                () if is_writable && !self.vm.frames.desc(leaf.pfn).is_sole_of_pool() => {
                    Err(Broken::SharedWritable(vpn.addr()))
                }
                () => Ok(Some(Rss::Anon)),
            };
        }
        if self.vm.frames.is_of_pool(leaf.pfn) {
            if vma.is_private() && leaf.rights.contains(Rights::WRITE) {
                return Err(Broken::SharedWritable(vpn.addr()));
            }
            return self.check_object_leaf(vpn, vma, leaf.pfn).map(|()| Some(Rss::Shmem));
        }
        counts[leaf.pfn.0 as usize] += HUGE_ONE;
        let folio = self.vm.frames.folio(leaf.pfn);
        if folio.state().kind() != FrameKind::Anon || folio.first() != leaf.pfn {
            return Err(Broken::BadFrame(leaf.pfn));
        }
        if leaf.rights.contains(Rights::WRITE) && !self.vm.folio_is_exclusive(leaf.pfn) {
            return Err(Broken::SharedWritable(vpn.addr()));
        }
        Ok(Some(Rss::Huge))
    }

    /// I25 for the twin of a table of level 1: a deposit for each huge entry, and
    /// none else. Gives the number of tables that it adds.
    pub(super) fn check_twin(&self, table: Pfn, base: Vpn, counts: &mut [u32]) -> Result<u64, Broken> {
        let (machine, frames) = (&self.vm.machine, &self.vm.frames);
        let mut nr = 0;
        if let Some(twin) = frames.twin(table) {
            counts[twin.0 as usize] += 1;
            nr += 1;
        }
        for i in 0..Vm::<M>::NR_SUB_FRAMES {
            let at = Vpn(base.0 + i * Vm::<M>::NR_SUB_FRAMES);
            let slot = Slot::<M::Format>::new(walk::entry(machine, table, i as usize), 1);
            let is_huge = match slot.observe().entry {
                Entry::Leaf(leaf) => !frames.is_of_pool(leaf.pfn),
                _ => false,
            };
            let deposit = pmd::deposited::<M>(machine, frames, table, at);
            if deposit.is_some() != is_huge {
                return Err(Broken::Deposit(at.addr()));
            }
            if let Some(deposit) = deposit {
                counts[deposit.0 as usize] += 1;
                nr += 1;
            }
        }
        Ok(nr)
    }
}

impl<M: Machine> Vm<M> {
    /// I26: a whole folio's descriptors say nothing but pins, a derived one's count
    /// one for the folio; its own count is the number of its huge entries. `None`
    /// for a frame that is in no folio.
    pub(super) fn check_in_folio(&self, pfn: Pfn, counts: &[u32]) -> Option<Result<(), Broken>> {
        let folio = self.frames.folio(pfn);
        let state = folio.state();
        let kind = state.kind();
        if kind == FrameKind::Free || !self.is_part(pfn) {
            return None;
        }
        let desc = self.frames.desc(pfn).state();
        if desc.pins() > 0 && (!state.was_pinned() || state.nr_maps() + nr_small(counts[pfn.0 as usize]) > 1) {
            return Some(Err(Broken::SharedPinned(pfn)));
        }
        let count = counts[pfn.0 as usize];
        let is_first = folio.first() == pfn;
        let good = match kind {
            FrameKind::Zero => desc.kind() == FrameKind::Free && count == 0,
            FrameKind::Anon if state.is_derived() => {
                desc.kind() == FrameKind::Anon && desc.nr_maps() == nr_small(count) + 1
            }
            FrameKind::Anon => desc.kind() == FrameKind::Free && desc.nr_maps() == 0 && nr_small(count) == 0,
            _ => false,
        };
        let counted = !is_first || kind == FrameKind::Zero || state.nr_maps() == u64::from(count / HUGE_ONE);
        let free = self.is_free(pfn);
        Some(if free || is_first && kind == FrameKind::Anon && state.nr_maps() == 0 {
            Err(Broken::Lost(pfn))
        } else if !good || !counted || state.is_locked() {
            Err(Broken::WrongCount(pfn))
        } else {
            Ok(())
        })
    }

    /// I20 for the huge zero frame.
    pub(super) fn check_huge_zero(&self) -> Result<(), Broken> {
        let Some(first) = self.frames.huge_zero().get() else { return Ok(()) };
        for i in 0..Vm::<M>::NR_SUB_FRAMES {
            let pfn = Pfn(first.0 + i as u32);
            let words: &[Word; 512] = mem::view(&self.machine, pfn, 0);
            if words.iter().any(|w| w.get() != 0) {
                return Err(Broken::NotZero(pfn));
            }
        }
        Ok(())
    }
}
