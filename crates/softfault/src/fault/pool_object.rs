//! Faults on a private mapping of a pool's object: a mapping shows the object's page until the program stores to it.
//!
//! ```text
//! read     the object has the page: section: word ─▶ the entry, without the write right; the claim stays the place's
//!          it does not: as for memory without an object (`pool.rs`). The object gets no page
//! store    section: word ─▶ MAPPED ─▶ entry, empty or with the page ─▶ Busy │ a page of the pool, copied ─▶ the entry
//! ```
//! The copy is made outside the section. The object's page stays until then: a CPU that takes it out marks its word,
//! waits for sections, and then for every entry of it that is `Busy` (I44). An entry that was empty is found there, too, since
//! MAPPED was set in the section in which the word named the page.
//!
//! Others store to the page meanwhile, as they may to a file that is read.
//!
//! Locks on entry: a section, whose token each [`Fault`] has.

use super::context::Fault;
use super::pool_fill::{Origin, Shown};
use super::prealloc::{Need, Prealloc};
use super::{Turn, Want};
use crate::addr::{Access, Rights};
use crate::machine::Machine;
use crate::source::slot::ObjectPage;
use crate::space::AddressSpace;
use crate::space::vma::ObjectId;
use crate::table::entry::Seen;
use crate::table::format::Leaf;
use crate::table::place::PmdSlot;

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// The entry is empty: maps the object's page, or begins to copy it. `None` if the object has none.
    pub(super) fn show_object_of_pool(
        &self,
        fault: &Fault<'_>,
        (id, index): (ObjectId, u64),
        hole: PmdSlot<'vm, M::Format>,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Option<Turn<'vm, M>> {
        Some(match self.vm.object_slot(fault.inside, id, index).page() {
            ObjectPage::Frame(frame) if fault.request.wants_own() => {
                // Before the entry is `Busy`: a CPU that takes the page out looks for entries only if there may be some.
                self.vm.frames.desc(frame.head()).note_mapped(Access::Read);
                let from = Leaf { pfn: frame.head(), rights: Rights::READ, accessed: true, dirty: false };
                self.claim_hole_of_pool(fault, hole, Origin::Object(from, Shown::No), prealloc)
            }
            ObjectPage::Frame(frame) => self.map_shared(fault, hole.slot, frame),
            // Pages of a pool are never elsewhere.
            ObjectPage::Filling | ObjectPage::Leaving(_) if fault.request.want != Want::Ready => Turn::Wait,
            _ => return None,
        })
    }

    /// The entry shows the object's page, and the program needs one of its own.
    pub(super) fn copy_shown_of_pool(
        &self,
        fault: &Fault<'_>,
        pmd: PmdSlot<'vm, M::Format>,
        seen: Seen,
        prealloc: &mut Prealloc<'vm, M>,
    ) -> Turn<'vm, M> {
        if !prealloc.may_claim() {
            return Turn::Need(Need::Place);
        }
        // As for a small page.
        if !prealloc.has_told(pmd.span().nr_pages()) && self.has_subscribers() {
            return Turn::Tell(pmd.span());
        }
        let Ok(old) = pmd.slot.take(seen) else { return Turn::Raced };
        self.vm.frames.note_removed(&old);
        Turn::FillPool(self.new_pool_page(fault, pmd, Origin::Object(old, Shown::Yes), fault.claim_of_place()))
    }
}
