//! mmap(2) of pages of a pool, again where the pool was refused surplus pages for it, and there is room for them now.
//!
//! Locks on entry: none. Takes the writer lock, and drops it before room is made.

use super::mmap_error::MmapError;
use crate::addr::{PageRange, Vpn};
use crate::frame::PoolId;
use crate::linux::{MapFlags, MapType};
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::space::vma::ObjectId;

impl<M: Machine> AddressSpace<'_, M> {
    /// Calls `map`, which makes that mapping, of pages of the pool if there is one: of the object, from that page on, or of new ones.
    pub(super) fn map_with_room(
        &self,
        (addr, nr_pages, flags): (u64, u64, MapFlags),
        (pool, object): (Option<PoolId>, Option<(ObjectId, u64)>),
        map: &mut dyn FnMut() -> Result<PageRange, MmapError>,
    ) -> Result<PageRange, MmapError> {
        let is_shared = flags.map_type() == MapType::Shared;
        let object = object.filter(|(id, _)| is_shared && *id != ObjectId::NONE);
        let nr_claims = &|pool: PoolId| match object {
            Some((id, first)) => self.vm.nr_unclaimed((id, pool), (first..first + nr_pages).into()),
            None => nr_pages.div_ceil(pool.order().nr_pages()),
        };
        let pool = pool.filter(|_| self.may_ask_again(addr, nr_pages, flags));
        self.vm.with_room_for_surplus(pool, nr_claims, MmapError::NoHugePages, map)
    }

    /// Whether the mapping may be tried again after the pool has refused it: not if private pages of a pool are there, which
    /// are unmapped before that. Others would see the hole, or map something there.
    fn may_ask_again(&self, addr: u64, nr_pages: u64, flags: MapFlags) -> bool {
        let start = Vpn::of(addr);
        !flags.is_fixed()
            || !self.has_private_of_pool(&self.write_lock(), PageRange::new(start, Vpn(start.0 + nr_pages)))
    }
}
