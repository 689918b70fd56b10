//! The page sizes that a space may use: those of the knobs, unless it refuses huge pages.

use crate::machine::Machine;
use crate::policy::huge::{Orders, collapsible};
use crate::space::AddressSpace;
use crate::space::vma::VmaFlags;

impl<M: Machine> AddressSpace<'_, M> {
    /// Refuses huge pages for the whole space, or allows them again. A child inherits the setting;
    /// execve(2) has to copy it to the new space. Existing huge pages stay.
    ///
    /// Source: PR_SET_THP_DISABLE(2const).
    pub fn set_thp_disable(&self, disable: bool) {
        self.data.limits.thp_disable.set(u64::from(disable));
    }

    /// Whether it refuses huge pages.
    pub fn thp_disable(&self) -> bool {
        self.data.limits.thp_disable.get() != 0
    }

    /// The sizes above a base page that a fault may use in a VMA with these flags. The space's
    /// setting is read only if the knobs allow any size: otherwise a fault reads one word that
    /// nobody writes.
    #[inline(always)]
    pub fn huge_orders(&self, flags: VmaFlags) -> Orders {
        let orders = self.vm.huge_orders(flags);
        if orders.is_empty() || self.thp_disable() { Orders::NONE } else { orders }
    }

    /// The sizes that `MADV_COLLAPSE` may make here in a VMA with these flags.
    pub fn collapse_orders(&self, flags: VmaFlags) -> Orders {
        if self.vm.huge_off() || self.thp_disable() { Orders::NONE } else { collapsible(flags) }
    }
}
