//! Memory failure: the frame is taken out of use, and accesses to the page get an error.
//!
//! Locks on entry: none, no section.

use super::PoisonRefusal;
use super::moves::Movable;
use crate::account::Event;
use crate::addr::Pfn;
use crate::frame::FrameKind;
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::space::Vm;
use crate::table::format::Entry;

impl<M: Machine> Vm<M> {
    /// Takes a frame out of use whose memory has failed, and gives the number of entries that
    /// mapped it. These are poisoned: a touch is [`Poisoned`](crate::FaultError::Poisoned),
    /// until the program unmaps or discards the page. fork(2) copies them, and mremap(2)
    /// carries them. The frame is never given out again.
    ///
    /// A page of an object that fails is poisoned in the object: faults of all who map it, and
    /// reads and writes by the handle, are refused until it is discarded. The number is 0 then:
    /// the entries are removed and not counted.
    ///
    /// A page of a larger folio of an object takes with it the pages that make up the least size of
    /// the object's folios, as Linux has it of hugetlb(7): all of these are poisoned, in the object,
    /// and healed together. The other pages of the folio become folios of their own, where they are.
    ///
    /// Private pages of 4 KiB, and pages of objects, without pins.
    ///
    /// # Errors
    ///
    /// [`PoisonRefusal`]: why the frame stays in use. Nothing has changed then.
    pub fn poison_frame(&self, pfn: Pfn) -> Result<u64, PoisonRefusal> {
        self.assert_outside();
        self.call();
        match self.try_poison_frame(pfn) {
            Ok(nr_maps) => {
                self.count(Event::FramesPoisoned, 1);
                Ok(nr_maps)
            }
            Err(refusal) => {
                self.count(refusal.event(), 1);
                Err(refusal)
            }
        }
    }

    fn try_poison_frame(&self, pfn: Pfn) -> Result<u64, PoisonRefusal> {
        if let Ok(Movable::OfObject { head, order }) = self.check_movable(pfn) {
            return self.poison_object_page(pfn, head, order).map(|()| 0).map_err(PoisonRefusal::Stays);
        }
        let taken = self.withdraw_entries(pfn, Why::Poison)?;
        let desc = self.frames.desc(pfn);
        let nr_maps = desc.state().nr_maps();
        desc.assign(FrameKind::Reserved, 0, 0, 0);
        taken.replace_with(Entry::Poison, None);
        Ok(nr_maps)
    }
}
