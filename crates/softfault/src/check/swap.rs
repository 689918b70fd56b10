//! I48 at rest: each slot of the swap area counts the entries that name it, and words of pages of objects,
//! and is free without any; frames of pages that are not written are their slots'.

use super::{Broken, Counter};
use crate::addr::{Pfn, SwapSlot};
use crate::frame::FrameKind;
use crate::machine::Machine;
use crate::space::Vm;

impl<M: Machine> Vm<M> {
    /// Notes that an entry, or the word of an object's page, names the slot, behind the counts of frames.
    pub(crate) fn count_slot(&self, slot: SwapSlot, counts: &mut [u32]) -> Result<(), Broken> {
        let is_there = slot.0 < self.swap.nr_slots();
        let count = counts.get_mut(self.nr_frames() as usize + slot.0 as usize).filter(|_| is_there);
        *count.ok_or(Broken::WrongSlot(slot))? += 1;
        Ok(())
    }

    /// I48. After the entries of all spaces were counted.
    pub(super) fn check_swap(&self, counts: &[u32]) -> Result<(), Broken> {
        let mut nr_free = 0;
        for slot in (0..self.swap.nr_slots()).map(SwapSlot) {
            let (nr_entries, frame) = self.swap.at_rest(slot).map_err(Broken::WrongSlot)?;
            let has_frame = frame.is_none_or(|pfn| self.swapped_to(pfn) == Some(slot));
            if nr_entries != u64::from(counts[self.nr_frames() as usize + slot.0 as usize]) || !has_frame {
                return Err(Broken::WrongSlot(slot));
            }
            nr_free += u64::from(nr_entries == 0);
        }
        Counter::SwapFree.check(self.swap.nr_free(), nr_free)
    }

    /// Whether the slot that the frame's descriptor names has it.
    pub(super) fn is_in_its_slot(&self, pfn: Pfn) -> bool {
        let slot = self.swapped_to(pfn).filter(|slot| slot.0 < self.swap.nr_slots());
        slot.is_some_and(|slot| self.swap.at_rest(slot).is_ok_and(|(_, frame)| frame == Some(pfn)))
    }

    fn swapped_to(&self, pfn: Pfn) -> Option<SwapSlot> {
        let desc = self.frames.desc(pfn);
        (desc.state().kind() == FrameKind::Swap).then(|| SwapSlot(desc.owner.get() as u32))
    }
}
