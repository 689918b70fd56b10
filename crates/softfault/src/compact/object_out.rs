//! Swaps out a page of an object.
//!
//! ```text
//! is it a page of a file?             refused
//! does a mapping lock it?             refused
//! is its folio larger?                split: split.rs
//! mark, grace, unmap                  as for a move: object.rs
//! is a pin left? is it locked now?    else: as it was
//! its folio locked ─▶ word: in transit ─▶ the machine writes
//! word: swapped, and the frame is free; not written: the frame
//! ```
//! A fault on the page while it is written sleeps, with nothing held. A discard removes the page
//! without waiting: see `source/transit.rs`.
//!
//! Whether a mapping locks the page is checked twice: first, so that programs do not fault for nothing,
//! and again when there is no entry left. An mlock that found the page present before its entry was
//! removed has published its VMA by then. A later mlock swaps the page in.
//!
//! A page of a larger folio first becomes one of its own. A CPU that moves or discards it between the two is met at
//! its word; the folio stays split.
//!
//! Locks on entry: none, no section. Takes the object's `resize`, and the locks of its shards.

use super::{MigrateRefusal, SwapRefusal};
use crate::account::Event;
use crate::addr::{ObjectPages, Order, SwapSlot, Vpn};
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::pace::Pace;
use crate::source::keep::KeptObject;
use crate::source::members::MembersCursor;
use crate::source::slot::PageFrame;
use crate::source::swapped::Swapped;
use crate::source::transit::Transit;
use crate::space::Vm;
use crate::space::vma::{ObjectId, Vma, VmaFlags};

impl<M: Machine> Vm<M> {
    /// Writes the page to the slot, which the caller owns alone, and frees its frame.
    pub(super) fn write_object_page(&self, frame: PageFrame, slot: SwapSlot) -> Result<(), SwapRefusal> {
        let transit = self.begin_to_swap_out(frame, slot).inspect_err(|_| self.swap.unclaim(slot))?;
        self.swap.begin_object(slot);
        transit.write_out().map_err(|_| SwapRefusal::NotWritten)?;
        self.count(Event::Pswpout, 1);
        Ok(())
    }

    fn begin_to_swap_out(&self, frame: PageFrame, slot: SwapSlot) -> Result<Transit<'_, M>, SwapRefusal> {
        let (pfn, head) = (frame.pfn, frame.head());
        let raced = SwapRefusal::Stays(MigrateRefusal::Raced);
        let (object, first) = self.object_of(head).ok_or(raced)?;
        let page = first + u64::from(pfn.0 - head.0);
        if self.object_file(object.id).is_some() {
            return Err(SwapRefusal::OfFile);
        }
        if self.any_mapping_locks(object.id, page) {
            return Err(SwapRefusal::Locked);
        }
        if frame.order > Order::BASE {
            self.split_off((&object, first), frame, Why::SwapOut).map_err(SwapRefusal::Stays)?;
        }
        let frame = PageFrame { pfn, order: Order::BASE };
        if !self.object_begin_move(&object, page, frame) {
            return Err(raced);
        }
        self.grace_everywhere();
        // Exact after the grace period.
        if self.frames.desc(pfn).state().was_mapped() {
            self.unmap_object_pages(object.id, ObjectPages { start: page, end: page + 1 }, Why::SwapOut);
        }
        let refusal = if self.frames.desc(pfn).state().pins() > 0 {
            SwapRefusal::Stays(MigrateRefusal::Pinned)
        } else if self.any_mapping_locks(object.id, page) {
            SwapRefusal::Locked
        } else {
            match self.begin_to_write(object, page, pfn, Swapped::whole(slot)) {
                Ok(transit) => return Ok(transit),
                Err(object) => return Err(self.stay(&object, page, frame, raced)),
            }
        };
        Err(self.stay(&object, page, frame, refusal))
    }

    /// Ends the attempt: unmarks the page and returns the reason.
    fn stay(&self, object: &KeptObject<'_, M>, page: u64, frame: PageFrame, why: SwapRefusal) -> SwapRefusal {
        self.object_end_move(object, page, frame);
        why
    }

    /// Whether a mapping of the page is locked.
    pub(super) fn any_mapping_locks(&self, id: ObjectId, page: u64) -> bool {
        let mut at = MembersCursor::default();
        let pages = ObjectPages { start: page, end: page + 1 };
        let mut pace = Pace::new(&self.machine);
        while let Some(visit) = self.visit_next(id, pages, &mut at) {
            pace.search();
            let vpn = Vpn(page.wrapping_add(visit.identity.displacement));
            let space = visit.space();
            let section = space.section();
            let found = space.tree_in(section.inside()).lookup(vpn);
            let locks = |vma: &Vma| vma.object == id && vma.flags.contains(VmaFlags::LOCKED);
            if found.is_some_and(|found| locks(&found.vma) && found.vma.pgoff_of(vpn) == page) {
                return true;
            }
        }
        false
    }
}
