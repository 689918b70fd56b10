//! Which sizes of page a space may use: the knobs', unless it refuses them all.

use crate::machine::Machine;
use crate::policy::huge::{Orders, collapsible};
use crate::space::AddressSpace;
use crate::space::vma::VmaFlags;

impl<M: Machine> AddressSpace<'_, M> {
    /// Refuses huge pages for the whole space, or takes that back. A child
    /// inherits it; who replaces a space by another (execve(2)) hands it on. What
    /// is there already stays.
    ///
    /// Source: PR_SET_THP_DISABLE(2const).
    pub fn set_thp_disable(&self, disable: bool) {
        self.data.limits.thp_disable.set(u64::from(disable));
    }

    /// Whether it refuses huge pages.
    pub fn thp_disable(&self) -> bool {
        self.data.limits.thp_disable.get() != 0
    }

    /// The sizes above a base page that a fault here may use in a VMA with these
    /// flags. The space is asked only where the knobs allow any: while they do
    /// not, a fault reads one word that nobody writes.
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
