//! Memory failure: the frame is taken out of use, and accesses to the page get an error.
//!
//! Locks on entry: none, no section.

use super::PoisonRefusal;
use super::moves::Movable;
use super::withdraw::Tell;
use crate::account::Event;
use crate::addr::Pfn;
use crate::frame::FrameKind;
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::source::slot::PageFrame;
use crate::space::Vm;
use crate::table::format::Entry;

impl<M: Machine> Vm<M> {
    /// Takes a frame whose memory failed out of use, and returns the number of entries that
    /// mapped it. These are poisoned: an access fails with
    /// [`Poisoned`](crate::FaultError::Poisoned), until the program unmaps or discards the page.
    /// fork(2) copies poisoned entries, and mremap(2) moves them. The frame is never allocated again.
    ///
    /// A page of an object is poisoned in the object: faults in all of its mappings, and reads and
    /// writes by the handle, are refused until it is discarded. Entries are removed and not counted:
    /// the returned number is 0.
    ///
    /// A page of a file that is clean is missing instead, and read again when it is accessed. If it was dirty, stores are lost: the
    /// next call that waits for the file is told, once ([`write_back`](crate::SharedObject::write_back), `msync`).
    ///
    /// If an object's folios have a least size above one page, all pages of the aligned part of that
    /// size are poisoned and healed together, as in hugetlb(7) of Linux. The other pages of the folio
    /// become folios of their own, in place. A folio of 2 MiB or 1 GiB needs one or two frames for that,
    /// and those for the descriptors of its tails if these were given back.
    ///
    /// Works on private pages of 4 KiB and pages of objects, without pins.
    ///
    /// # Errors
    ///
    /// [`PoisonRefusal`]; the frame stays in use and nothing has changed.
    pub fn poison_frame(&self, pfn: Pfn) -> Result<u64, PoisonRefusal> {
        self.assert_outside();
        self.call();
        match self.try_poison_frame(pfn, Tell::Subscribers) {
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

    /// Takes a frame out of use that a fault could not copy: see [`Reclaim`](crate::space::vm::Reclaim). A space with
    /// subscribers that shares the page keeps it: a fault does not wait for them. The machine knows that its memory failed, and
    /// the embedder calls [`poison_frame`](Self::poison_frame) where it may wait.
    #[cold]
    pub(crate) fn poison_found(&self, pfn: Pfn) {
        self.assert_outside();
        match self.try_poison_frame(pfn, Tell::Nobody) {
            Ok(_) => self.count(Event::FramesPoisoned, 1),
            Err(refusal) => self.count(refusal.event(), 1),
        }
    }

    fn try_poison_frame(&self, pfn: Pfn, tell: Tell) -> Result<u64, PoisonRefusal> {
        if let Ok(Movable::OfObject { head, order }) = self.check_movable(pfn) {
            return self
                .poison_object_page(pfn, PageFrame { pfn: head, order })
                .map(|()| 0)
                .map_err(PoisonRefusal::Stays);
        }
        let taken = self.withdraw_entries(pfn, Why::Poison, tell)?;
        let desc = self.frames.desc(pfn);
        let nr_maps = desc.state().nr_maps();
        desc.assign(FrameKind::Reserved, 0, 0, 0);
        taken.replace_with(Entry::Poison, None);
        Ok(nr_maps)
    }
}
