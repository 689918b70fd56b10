//! I57 and I60 at rest: pools of huge pages have the pages that they count, and as many free ones as claims, or more; subpools
//! count what is theirs.

use super::{Broken, Counter};
use crate::addr::{BLOCK_FRAMES, BlockId, OptPfn, Order, Pfn};
use crate::frame::{FrameKind, MetaUse, PoolId, SubpoolId};
use crate::machine::Machine;
use crate::space::vma::ObjectId;
use crate::space::{AddressSpace, Vm};

impl<M: Machine> Vm<M> {
    pub(super) fn check_pools(&self, spaces: &[&AddressSpace<'_, M>]) -> Result<(), Broken> {
        if self.hugetlb_mutexes.iter().any(|mutex| !mutex.is_free()) {
            return Err(Broken::HugetlbMutex);
        }
        let mut nr_private = [0; PoolId::ALL.len()];
        for space in spaces {
            space.for_each_claims_at_rest(&mut |_, pool, nr| nr_private[pool as usize] += nr);
        }
        PoolId::ALL.into_iter().try_for_each(|pool| self.check_pool(pool, nr_private[pool as usize]))?;
        self.subpools().try_for_each(|id| self.check_subpool(id, spaces))
    }

    fn check_pool(&self, pool: PoolId, nr_private: u64) -> Result<(), Broken> {
        let blocks = &self.frames.blocks;
        let (mut nr, mut nr_free) = (0, 0);
        let is_of_pool = |b: BlockId| blocks.at(b).pool_order() == Some(pool.order());
        for b in blocks.there() {
            let first = first_of(b, pool.order());
            let is_page = is_of_pool(b) && first == b;
            let is_free = blocks.summary.holds(pool.kind(), b);
            nr += u64::from(is_page);
            nr_free += u64::from(is_free);
            let is_found = !is_free || is_page && blocks.summary.says(pool.kind(), b);
            if is_of_pool(b) && !is_of_pool(first) || !is_found {
                return Err(Broken::Pool(b.first_frame()));
            }
        }
        let counts = self.hugetlb_counts_of(pool);
        Counter::HugePages.check(counts.nr, nr)?;
        Counter::FreeHugePages.check(self.nr_free_in_pool(pool) as u64, nr_free)?;
        let of_subpools: u64 = self
            .subpools()
            .map(|id| self.subpool(id))
            .filter(|data| data.pool() == pool)
            .map(|data| data.nr_claims())
            .sum();
        let nr_reserved =
            self.objects_of(pool).map(|id| self.nr_reserved_of(id)).sum::<u64>() + of_subpools + nr_private;
        Counter::Unreserved.check(self.pool(pool).nr_unreserved(), nr_free.wrapping_sub(nr_reserved))
    }

    fn subpools(&self) -> impl Iterator<Item = SubpoolId> + '_ {
        let is_one = |pfn: &Pfn| {
            let desc = self.frames.desc(*pfn);
            desc.state().kind() == FrameKind::Meta && desc.index.get() == MetaUse::Subpool as u64
        };
        self.frames.numbers().filter(is_one).map(SubpoolId)
    }

    fn check_subpool(&self, id: SubpoolId, spaces: &[&AddressSpace<'_, M>]) -> Result<(), Broken> {
        let data = self.subpool(id);
        let (blocks, link) = (&self.frames.blocks, OptPfn::some(id.0).to_word());
        let is_of_pool = |b: &BlockId| blocks.at(*b).pool_order() == Some(data.pool().order());
        let is_its_page = |b: &BlockId| self.frames.desc(b.first_frame()).link.get() == link;
        let nr_pages = blocks.there().filter(is_of_pool).filter(is_its_page).count() as u64;
        // I61: of private mappings of its objects.
        let mut nr_private = 0;
        for space in spaces {
            space.for_each_claims_at_rest(&mut |object, _, nr| {
                nr_private += if self.object_subpool(object) == Some(id) { nr } else { 0 };
            });
        }
        let objects = || self.objects_of(data.pool()).filter(|object| self.object_subpool(*object) == Some(id));
        let nr_reserved: u64 = objects().map(|object| self.nr_reserved_of(object)).sum();
        let used = data.used.get();
        Counter::SubpoolUsed.check(used, nr_pages + nr_reserved + nr_private)?;
        Counter::SubpoolHolders.check(data.holders.get(), data.handles.get() + objects().count() as u64 + used)?;
        let is_whole = data.is_at_rest() && data.limits().most.is_none_or(|most| used <= most);
        if is_whole { Ok(()) } else { Err(Broken::Subpool(id.0)) }
    }

    fn objects_of(&self, pool: PoolId) -> impl Iterator<Item = ObjectId> + '_ {
        let headers = self.frames.numbers().filter(|pfn| self.is_object_header(*pfn));
        headers.map(|pfn| ObjectId(u64::from(pfn.0))).filter(move |id| self.object_pool(*id) == Some(pool))
    }

    /// Whether the frame is part of a page that is free in its pool.
    pub(super) fn is_free_in_pool(&self, pfn: Pfn) -> bool {
        let (b, blocks) = (BlockId::of(pfn), &self.frames.blocks);
        blocks.at(b).pool_order().is_some_and(|order| blocks.at(first_of(b, order)).is_free_in_pool())
    }

    pub(super) fn check_free_in_pool(&self, pfn: Pfn) -> Result<(), Broken> {
        let is_free = self.is_free(pfn);
        let state = self.frames.desc(pfn).state();
        if is_free || state.kind() != FrameKind::Free || state.pins() > 0 { Err(Broken::Pool(pfn)) } else { Ok(()) }
    }
}

impl<M: Machine> AddressSpace<'_, M> {
    /// The claims of private mappings, with their objects and pools.
    fn for_each_claims_at_rest(&self, f: &mut dyn FnMut(ObjectId, PoolId, u64)) {
        let writer = &self.sole_writer();
        self.for_each_claims(writer, &self.tree(writer).snapshot(), Self::user_range(), f);
    }
}

/// The first block of the page of a pool that `b` is part of.
fn first_of(b: BlockId, order: Order) -> BlockId {
    let nr = (order.nr_pages() / BLOCK_FRAMES) as u32;
    BlockId(b.0 / nr * nr)
}
