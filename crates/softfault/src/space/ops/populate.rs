//! Faults pages in ahead of the program: `MAP_POPULATE`, `MADV_POPULATE_*`.

use crate::addr::{Access, Order, PageRange, Vpn};
use crate::fault::{FaultDone, FaultError, Request, Want};
use crate::machine::Machine;
use crate::pace::{self, Pace};
use crate::space::AddressSpace;
use crate::space::vma::{ObjectId, Vma, VmaFlags};
use crate::table::format::huge_order;
use crate::table::walk::Walk;

impl<M: Machine> AddressSpace<'_, M> {
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
                FaultDone::Huge | FaultDone::HugeZero => huge_order::<M::Format>(),
                FaultDone::Spurious | FaultDone::Marked => self.order_at(vpn),
                _ => Order::BASE,
            };
            if order != Order::BASE {
                // The fault may have visited each frame of the folio: a long pass.
                pace::answer(&self.vm.machine);
            }
            vpn = Vpn((vpn.0 + 1).next_multiple_of(order.nr_pages()));
        }
        Ok(())
    }

    /// Maps those pages of an object that are ready, for `MAP_POPULATE | MAP_NONBLOCK`, and waits for none of the others. Pages
    /// that have a source are not read, and memory is not allocated but for tables.
    pub(crate) fn populate_ready(&self, range: PageRange) {
        let is_of_object = |vma: &Vma| vma.object != ObjectId::NONE && !vma.flags.rights().is_empty();
        if !self.vma_at(range.start).is_some_and(|vma| is_of_object(&vma)) {
            return;
        }
        let mut pace = Pace::new(&self.vm.machine);
        for vpn in (range.start.0..range.end.0).map(Vpn) {
            pace.page();
            let _ = self.fault(Request { vpn, want: Want::Ready });
        }
    }

    /// Returns the order of the mapping of a page that was already present.
    fn order_at(&self, vpn: Vpn) -> Order {
        let section = self.section();
        match self.walk(section.inside(), vpn) {
            Walk::Huge(_) => huge_order::<M::Format>(),
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
