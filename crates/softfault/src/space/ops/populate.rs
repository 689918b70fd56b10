//! Faults ahead of the program: `MAP_POPULATE`, `MADV_POPULATE_*`.

use crate::addr::{Access, PageRange, Vpn};
use crate::fault::{FaultError, Request, Want};
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::space::vma::VmaFlags;

impl<M: Machine> AddressSpace<'_, M> {
    /// Makes every page of the range present for `access`, up to the first that
    /// cannot be. Called with nothing held.
    pub(crate) fn populate(&self, range: PageRange, access: Access) -> Result<(), FaultError> {
        for vpn in range.start.0..range.end.0 {
            self.fault(Request { vpn: Vpn(vpn), want: Want::Access(access) })?;
        }
        Ok(())
    }

    /// For `MAP_POPULATE`: writable private memory is populated for writing,
    /// everything else for reading; what cannot be is left.
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

    /// The VMA at a page, by value.
    pub(crate) fn vma_at(&self, vpn: Vpn) -> Option<crate::space::vma::Vma> {
        let _section = self.section();
        self.tree().lookup(vpn).map(|f| f.vma)
    }
}
