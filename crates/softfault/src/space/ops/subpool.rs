//! Subpools: the files of one hugetlbfs, which have a share of a pool. See `frame/subpool.rs` for how they count.
//!
//! Locks on entry: none, no section.

use super::hugetlb::{HugetlbError, new_object, pool_of};
use crate::addr::{Order, PAGE_SIZE};
use crate::frame::{Source, SubpoolId, SubpoolLimits};
use crate::machine::Machine;
use crate::source::handle::SharedObject;
use crate::space::Vm;
use crate::sync::Ordering;

/// The embedder's handle of a subpool: a mounted hugetlbfs. The subpool lives as long as this handle, an object or a page
/// of it, whichever ends last.
pub struct HugetlbSubpool<'vm, M: Machine> {
    vm: &'vm Vm<M>,
    id: SubpoolId,
}

#[cfg(feature = "hugetlb")]
impl<M: Machine> Vm<M> {
    /// Makes a subpool of the pool of pages of that order. The least pages of `limits` are reserved at once.
    ///
    /// # Errors
    ///
    /// [`HugetlbError`]; nothing is kept then.
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    pub fn new_hugetlb_subpool(
        &self,
        order: Order,
        limits: SubpoolLimits,
    ) -> Result<HugetlbSubpool<'_, M>, HugetlbError> {
        self.call();
        let pool = pool_of(order)?;
        if limits.most.is_some_and(|most| most < limits.least) {
            return Err(HugetlbError::LeastAboveMost);
        }
        let get = &mut |source: &Source<'_, M>| self.new_subpool(pool, limits, source);
        let made = self.with_reclaim(&mut || self.obtain_all(get).map(|(made, _held)| made))?;
        made.map(|id| HugetlbSubpool { vm: self, id }).map_err(|_| HugetlbError::NoHugePages)
    }
}

impl<'vm, M: Machine> HugetlbSubpool<'vm, M> {
    /// Makes an object whose pages are counted in the subpool. Otherwise as
    /// [`Vm::new_hugetlb_object`](crate::Vm::new_hugetlb_object).
    ///
    /// # Errors
    ///
    /// [`HugetlbError`]; nothing is kept then.
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    #[cfg(feature = "hugetlb")]
    pub fn new_object(&self, size_bytes: u64) -> Result<SharedObject<'vm, M>, HugetlbError> {
        let order = self.order();
        if !size_bytes.is_multiple_of(order.nr_pages() * PAGE_SIZE) {
            return Err(HugetlbError::SizeUnaligned);
        }
        Ok(self.vm.new_handle(new_object(size_bytes, order, Some(self.id)))?)
    }

    /// The size of its pages.
    pub fn order(&self) -> Order {
        self.vm.subpool(self.id).pool().order()
    }

    /// Its limits.
    pub fn limits(&self) -> SubpoolLimits {
        self.vm.subpool(self.id).limits()
    }

    /// Number of pages that its objects have, and of those that are reserved for them.
    pub fn nr_used(&self) -> u64 {
        self.vm.subpool(self.id).used.load(Ordering::Acquire)
    }
}

impl<M: Machine> Drop for HugetlbSubpool<'_, M> {
    fn drop(&mut self) {
        self.vm.call();
        self.vm.subpool(self.id).handles.set(0);
        self.vm.subpool_leave(self.id, 1);
    }
}

impl<M: Machine> core::fmt::Debug for HugetlbSubpool<'_, M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HugetlbSubpool").field("limits", &self.limits()).field("nr_used", &self.nr_used()).finish()
    }
}
