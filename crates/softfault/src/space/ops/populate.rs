//! Faults pages in ahead of the program: `MAP_POPULATE`, `MADV_POPULATE_*`.

use crate::addr::{Access, ObjectPages, Order, PageRange, Vpn};
use crate::fault::{FaultDone, FaultError, Request, Want};
use crate::machine::Machine;
use crate::pace::{self, Pace};
use crate::source::keep::KeptObject;
use crate::space::AddressSpace;
use crate::space::vma::{ObjectId, VmaFlags};
use crate::table::format::huge_order;
use crate::table::walk::Walk;

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Makes every page of the range present for `access`, up to the first that
    /// cannot be. The caller holds no lock and no frames.
    pub(crate) fn populate(&self, range: PageRange, access: Access) -> Result<(), FaultError> {
        let mut vpn = range.start;
        let mut pace = Pace::new(&self.vm.machine);
        while vpn < range.end {
            pace.page();
            let done = self.fault(Request { vpn, want: Want::Access(access) })?;
            let order = match done {
                FaultDone::Folio(order) => order,
                FaultDone::HugeZero => huge_order::<M::Format>(),
                FaultDone::Huge | FaultDone::Spurious | FaultDone::Marked => self.order_at(vpn),
                _ => Order::BASE,
            };
            if order != Order::BASE {
                // The fault may have visited each frame of the folio: a long pass.
                pace::answer(&self.vm.machine);
            }
            vpn = end_after(vpn, order);
        }
        Ok(())
    }

    /// Maps those pages of an object that are ready, for `MAP_POPULATE | MAP_NONBLOCK`, and waits for none of the others. Pages
    /// that have a source are not read, and memory is not allocated but for tables. Pages that the object does not have cost
    /// nothing, not even tables. Another thread may replace the mapping meanwhile: then pages are mapped that the new object
    /// has, and none of private memory (`FoundVma::allows`).
    pub(crate) fn populate_ready(&self, range: PageRange) {
        let Some((object, first)) = self.object_to_populate(range.start) else { return };
        let is_foreign = self.vm.foreign_frames_of(object.id).is_some();
        let end = (first + range.nr_pages()).min(self.vm.object_nr_pages(object.id));
        let mut rest = ObjectPages { start: first, end };
        let mut pace = Pace::new(&self.vm.machine);
        while rest.start < rest.end {
            pace.page();
            // The pages of foreign frames are all there.
            let next = if is_foreign { Some(rest.start) } else { self.vm.object_next_page(object.id, rest) };
            let Some(index) = next else { return };
            let vpn = Vpn(range.start.0 + (index - first));
            let _ = self.fault(Request { vpn, want: Want::Ready });
            rest.start = index + end_after(vpn, self.order_at(vpn)).0 - vpn.0;
        }
    }

    /// The object that is mapped at a page, if it may be accessed there, and its page.
    fn object_to_populate(&self, vpn: Vpn) -> Option<(KeptObject<'vm, M>, u64)> {
        let section = self.section();
        let vma = self.tree_in(section.inside()).lookup(vpn)?.vma;
        if vma.object == ObjectId::NONE || vma.flags.rights().is_empty() {
            return None;
        }
        Some((self.vm.object_keep_found(section.inside(), vma.object), vma.pgoff_of(vpn)))
    }

    /// Returns the order of the mapping of a page that was already present.
    fn order_at(&self, vpn: Vpn) -> Order {
        let section = self.section();
        match self.walk(section.inside(), vpn) {
            Walk::Huge(pmd) => pmd.order(),
            Walk::Leaf(_) | Walk::Hole(_) | Walk::Owned => Order::BASE,
        }
    }

    /// Populates a range for `MAP_POPULATE`: writable private memory for writing, everything else for
    /// reading. Errors are ignored.
    pub(crate) fn populate_quietly(&self, range: PageRange) {
        let Some(vma) = self.vma_at(range.start) else { return };
        let rights = vma.flags.rights();
        if rights.is_empty() || vma.flags.contains(VmaFlags::ONFAULT) {
            return;
        }
        let private_write = vma.flags.contains(VmaFlags::WRITE) && !vma.flags.contains(VmaFlags::SHARED);
        let access = if private_write { Access::Write } else { Access::Read };
        let _ = self.populate(range, access);
    }
}

/// The first page behind the aligned run of that order in which the page lies.
fn end_after(vpn: Vpn, order: Order) -> Vpn {
    Vpn((vpn.0 + 1).next_multiple_of(order.nr_pages()))
}
