//! State of an object's page.

use crate::addr::{Order, Pfn};
use crate::frame::FrameKind;
use crate::machine::Machine;
use crate::policy::second_chance::{Hand, Pass};
use crate::source::handle::SharedObject;
use crate::source::slot::ObjectPage;
use crate::space::Vm;
use crate::space::vma::ObjectId;

/// State of a page of an object that is in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ObjectPageState {
    /// An entry has named it.
    pub mapped: bool,
    /// An entry that is gone was accessed, or one was made by a fault.
    pub referenced: bool,
    /// It was written: through the handle, by a fault, or by an entry that is gone.
    pub dirty: bool,
    /// The size of its folio.
    pub order: Order,
}

impl<M: Machine> Vm<M> {
    /// Drops the folio of a file with that head, used or not, as before a refusal. Returns the number of frames freed.
    pub fn drop_clean_folio(&self, head: Pfn) -> u64 {
        self.call();
        self.meet_folio(Hand::Back, head, &mut Pass::last())
    }

    /// The same, if it was not used since the last look at it.
    pub fn drop_clean_folio_unless_used(&self, head: Pfn) -> u64 {
        self.call();
        self.meet_folio(Hand::Back, head, &mut Pass::first(1))
    }

    /// The look after which it counts as unused.
    pub fn look_at_clean_folio(&self, head: Pfn) {
        self.call();
        let nr_freed = self.meet_folio(Hand::Front, head, &mut Pass::first(1));
        debug_assert_eq!(nr_freed, 0);
    }

    /// Whether the frame is that of a page of a file whose bytes the file has. Call it at rest.
    pub fn is_clean_page_of_file(&self, pfn: Pfn) -> bool {
        let desc = self.frames.desc(self.frames.head(pfn));
        let is_of_object = desc.state().kind() == FrameKind::Shared;
        is_of_object && !desc.state().is_dirty() && self.object_file(ObjectId(desc.owner.get())).is_some()
    }

    /// As [`free_tail_descs`](SharedObject::free_tail_descs), of the folio with that head, which nobody maps
    /// or changes meanwhile. The frames are written at once where the descriptor of `tail` was.
    pub fn free_and_overwrite_tail_descs(&self, head: Pfn, tail: Pfn) {
        self.call();
        let place = self.frames.place_of_tail(tail);
        let former = self.drop_tail_descs(head, Order::PMD).expect("the descriptors lie in frames that have some");
        self.free_when_unseen(former);
        if let Some(place) = place {
            self.frames.overwrite_former(place);
        }
    }
}

impl<M: Machine> SharedObject<'_, M> {
    /// The head of the folio in which the page is in transit, if it is.
    pub fn object_page_in_transit(&self, page: u64) -> Option<Pfn> {
        let section = self.vm.section();
        match self.vm.object_slot(section.inside(), self.id, page).page() {
            ObjectPage::InTransit(head) => Some(head),
            _ => None,
        }
    }

    /// Calls of the machine that last, or may be about to begin, for folios that have left the object: nobody asks for another write meanwhile.
    pub fn nr_late_calls(&self) -> u64 {
        self.vm.object(self.id).late_calls.nr()
    }

    /// Of the page of that number; `None` if the object has none. Call it at rest.
    pub fn object_page_state(&self, page: u64) -> Option<ObjectPageState> {
        let section = self.vm.section();
        let ObjectPage::Frame(frame) = self.vm.object_slot(section.inside(), self.id, page).page() else { return None };
        let state = self.vm.frames.desc(frame.head()).state();
        Some(ObjectPageState {
            mapped: state.was_mapped(),
            referenced: state.was_referenced(),
            dirty: state.is_dirty(),
            order: frame.order,
        })
    }
}
