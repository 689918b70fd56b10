//! Pools of huge pages, as hugetlb(7) of Linux has them: their size, their counters, objects whose pages come from them.
//!
//! ```text
//! mmap(2)    claims for all pages that are missing: nodes, then the pool; all or nothing     source/reserved.rs
//! fault      the word of the page, with its claim ─▶ a page of the pool ─▶ zeroed ─▶ the word  source/fill_large.rs
//! removal    the page, or its claim, goes back to the pool                                     frame/pool_counts.rs
//! ```
//! Two faults on one page, of which the pool has one, need no special case: the CPU that claims the word takes the
//! page, and the other finds the word claimed, waits, and maps the same page. So no fault is refused a page that
//! another one was about to give back, which is what Linux's table of mutexes prevents.
//!
//! Locks on entry: none, no section. Resizing takes the pool's `resize`, with nothing held; demotion that of 1 GiB first.

use super::mmap_error::MmapError;
use crate::account::Event;
use crate::addr::{ObjectPages, Order, PAGE_SIZE};
use crate::built::HUGETLB;
use crate::errno::op_error;
use crate::frame::{Fill, FrameList, HugetlbCounts, OutOfFrames, PoolId, PoolRefusal, Source, SubpoolId};
use crate::linux::{MapFlags, MapType};
use crate::lock::lock_word;
use crate::machine::Machine;
use crate::pace::Pace;
use crate::policy::folio::FolioOrders;
use crate::source::handle::SharedObject;
use crate::source::object::{MAX_OBJECT_BYTES, NewObject, PagesFrom};
use crate::source::reserved::ReserveRefusal;
use crate::source::write_error::ObjectWriteError;
use crate::space::Vm;
use crate::space::edit::Nodes;
use crate::space::vma::{ObjectId, Vma, VmaFlags};
use crate::table::format;

op_error! {
    /// Why a pool of huge pages did nothing.
    HugetlbError {
        NoPool: EINVAL = "order: should be 9, which is 2 MiB, or 18, which is 1 GiB",
        NotHugetlb: EINVAL = "object: its pages should come from a pool",
        NoHugePages: ENOMEM = "pages: the pool has too few huge pages",
        SubpoolFull: ENOMEM = "pages: the subpool may have no more huge pages",
        LeastAboveMost: EINVAL = "limits: the least should not be above the most",
        SizeUnaligned: EINVAL = "size_bytes: should be a multiple of the size of a page",
        OutOfFrames(OutOfFrames): ENOMEM = "out of frames",
    }
}

impl From<OutOfFrames> for HugetlbError {
    fn from(refused: OutOfFrames) -> HugetlbError {
        HugetlbError::OutOfFrames(refused)
    }
}

impl From<PoolRefusal> for HugetlbError {
    fn from(refused: PoolRefusal) -> HugetlbError {
        match refused {
            PoolRefusal::NoHugePages => HugetlbError::NoHugePages,
            PoolRefusal::SubpoolFull => HugetlbError::SubpoolFull,
        }
    }
}

impl From<PoolRefusal> for MmapError {
    fn from(refused: PoolRefusal) -> MmapError {
        match refused {
            PoolRefusal::NoHugePages => MmapError::NoHugePages,
            PoolRefusal::SubpoolFull => MmapError::SubpoolFull,
        }
    }
}

pub(super) fn pool_of(order: Order) -> Result<PoolId, HugetlbError> {
    PoolId::of(order).ok_or(HugetlbError::NoPool)
}

/// The size that the flags of mmap(2) ask for.
pub(super) fn order_of(flags: MapFlags) -> Option<Order> {
    const SIZE: u64 = 0x3f;
    if !HUGETLB {
        return None;
    }
    match flags.to_linux() >> 26 & SIZE {
        0 => Some(Order::PMD),
        size if size == MapFlags::HUGE_2MB.to_linux() >> 26 => Some(Order::PMD),
        size if size == MapFlags::HUGE_1GB.to_linux() >> 26 => Some(Order::PUD),
        _ => None,
    }
}

impl<M: Machine> Vm<M> {
    /// Sets how many huge pages of 2^`order` base pages the pool is to have (`nr_hugepages`), and returns how many it
    /// has then, without surplus pages. It may be fewer, where there is no memory for more. If it is to have fewer than are
    /// used or promised, these become surplus, and go when they are freed.
    ///
    /// The descriptors of a page's tails are free memory while it is in the pool: 3 frames of each page of 2 MiB, 2,047
    /// of each of 1 GiB. A page needs them back to leave the pool.
    ///
    /// Takes time for each page that comes or goes. Compacts memory for pages of 2 MiB, and moves all pages out of 1 GiB for
    /// one of 1 GiB, where they move ([`offline_memory`](Vm::offline_memory)): it looks at the descriptors of all memory then, and
    /// other allocations do without the free frames of that GiB meanwhile.
    ///
    /// # Errors
    ///
    /// [`HugetlbError`]: `OutOfFrames` if the pool gets smaller, and there are no frames for the descriptors of a page: it
    /// stays, as do those that would have followed. Otherwise nothing has changed.
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    ///
    /// Source: Documentation/admin-guide/mm/hugetlbpage.rst of Linux.
    #[cfg(feature = "hugetlb")]
    pub fn set_nr_hugepages(&self, order: Order, nr: u64) -> Result<u64, HugetlbError> {
        /// Blocks made in a row that others took first, after which the pool stays as it is: programs could go on for ever.
        const MOST_LOST: u32 = 16;
        self.call();
        let id = pool_of(order)?;
        let _resize = lock_word(id.size_lock(), &self.pool(id).resize, &self.machine);
        let mut pace = Pace::new(&self.machine);
        // Those that stayed because there were no frames for their descriptors. Others may make more meanwhile, and end them.
        let nr_surplus = self.hugetlb_counts_of(id).surplus;
        _ = (0..nr_surplus).inspect(|_| pace.step()).take_while(|_| self.trim_surplus(id)).count();
        while self.with_reclaim(&mut || self.hugetlb_shrink(id, nr))? {
            pace.step();
        }
        let (mut former, mut nr_lost) = (FrameList::EMPTY, 0);
        loop {
            pace.step();
            match self.hugetlb_grow(id, nr, &mut former) {
                Ok(true) => nr_lost = 0,
                Err(_) if former.nr() > 0 => self.free_descs_of_pool(&mut former),
                Err(_) if nr_lost < MOST_LOST && self.make_room_for_page(id) => nr_lost += 1,
                Ok(false) | Err(_) => break,
            }
        }
        self.free_descs_of_pool(&mut former);
        Ok(self.nr_persistent(id))
    }

    /// Makes pages of 2 MiB of up to `nr` free pages of 1 GiB without a reservation (`demote`), and returns how many. Both
    /// pools change their sizes accordingly.
    ///
    /// Takes time for each page.
    ///
    /// # Errors
    ///
    /// [`HugetlbError`]: `OutOfFrames` if there are no frames for the descriptors of the pages: one of each 2 MiB is
    /// needed again. The page stays as it is, as do those that would have followed.
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    ///
    /// Source: Documentation/admin-guide/mm/hugetlbpage.rst of Linux.
    #[cfg(feature = "hugetlb")]
    pub fn demote_hugepages(&self, nr: u64) -> Result<u64, HugetlbError> {
        self.call();
        let _from = lock_word(PoolId::Of1G.size_lock(), &self.pool(PoolId::Of1G).resize, &self.machine);
        let _to = lock_word(PoolId::Of2M.size_lock(), &self.pool(PoolId::Of2M).resize, &self.machine);
        let mut pace = Pace::new(&self.machine);
        for nr_done in 0..nr {
            pace.step();
            if !self.with_reclaim(&mut || self.hugetlb_demote())? {
                return Ok(nr_done);
            }
        }
        Ok(nr)
    }

    /// Moves pages out of the way of one of the pool. Another CPU may take the memory first.
    fn make_room_for_page(&self, id: PoolId) -> bool {
        match id {
            PoolId::Of2M => self.make_huge_for_collapse().is_ok(),
            PoolId::Of1G => (self.reclaim.empty_gib)(self),
        }
    }

    /// Frees the frames that had descriptors of the tails of a pool's pages, with one grace period for all of them.
    fn free_descs_of_pool(&self, former: &mut FrameList) {
        let former = core::mem::replace(former, FrameList::EMPTY);
        if former.nr() > 0 {
            let nr_frames = self.free_when_unseen(former);
            self.count(Event::TailDescsFreed, nr_frames);
        }
    }

    /// Sets how many surplus pages there may be (`nr_overcommit_hugepages`): pages that come from free memory when
    /// the pool has too few. Existing surplus pages stay.
    ///
    /// # Errors
    ///
    /// [`HugetlbError`]; nothing has changed.
    #[cfg(feature = "hugetlb")]
    pub fn set_nr_overcommit_hugepages(&self, order: Order, nr: u64) -> Result<(), HugetlbError> {
        self.call();
        self.hugetlb_set_overcommit(pool_of(order)?, nr);
        Ok(())
    }

    /// The counters of a pool. Reads the CPUs' counters. Exact at rest; otherwise each within what happened
    /// while it was read.
    ///
    /// # Errors
    ///
    /// [`HugetlbError`].
    #[cfg(feature = "hugetlb")]
    pub fn hugetlb_counts(&self, order: Order) -> Result<HugetlbCounts, HugetlbError> {
        self.call();
        Ok(self.hugetlb_counts_of(pool_of(order)?))
    }

    /// Makes an object whose pages, of 2^`order` base pages each, come from a pool: a file of hugetlbfs. A mapping of it
    /// reserves all pages that are missing in its range, unless it has `MAP_NORESERVE`; so its faults are not refused.
    /// [`discard`](SharedObject::discard) removes the pages that are there; missing ones keep their reservation, as on Linux. Only
    /// whole pages are removed; of others the part is zeroed. Behind a smaller size pages and reservations end.
    ///
    /// Pages of a pool are not swapped out. They move as a whole ([`migrate_frame`](Vm::migrate_frame)). A private mapping
    /// reserves a page for each of its own; where the object has no page, it gets a private one at the first touch, and the object does not.
    ///
    /// # Errors
    ///
    /// [`HugetlbError`]; nothing is kept then.
    #[cfg(feature = "hugetlb")]
    pub fn new_hugetlb_object(&self, size_bytes: u64, order: Order) -> Result<SharedObject<'_, M>, HugetlbError> {
        let id = pool_of(order)?;
        if !size_bytes.is_multiple_of(id.order().nr_pages() * PAGE_SIZE) {
            return Err(HugetlbError::SizeUnaligned);
        }
        Ok(self.new_handle(new_object(size_bytes, id.order(), None))?)
    }

    /// Reserves the pages of a mapping that is about to be published: the last step of its preparation.
    pub(super) fn reserve_for(&self, vma: &Vma, nodes: Nodes<'_, M>) -> Result<(), MmapError> {
        let pool = if vma.object == ObjectId::NONE { None } else { self.object_pool(vma.object) };
        let Some(pool) = pool.filter(|_| !vma.flags.contains(VmaFlags::NORESERVE)) else { return Ok(()) };
        if vma.is_private() {
            // Of the mapping, whatever the object has (I61).
            let nr = vma.range.nr_pages() / pool.order().nr_pages();
            return Ok(self.reserve_in(self.object_subpool(vma.object), pool, nr)?);
        }
        let pages = vma.pgoff..vma.pgoff + vma.range.nr_pages();
        let mut frame = || nodes.ok_or(OutOfFrames::Frame)?.frame(Fill::Fixed);
        let reserved = self.reserve_pages((vma.object, pool), pages.into(), &mut frame);
        reserved.map_err(|refusal| match refusal {
            ReserveRefusal::Pool(refused) => refused.into(),
            ReserveRefusal::OutOfFrames(refused) => MmapError::OutOfFrames(refused),
        })
    }
}

#[cfg(feature = "hugetlb")]
impl<M: Machine> SharedObject<'_, M> {
    /// Reserves the missing ones of these huge pages, up to the size, as a mapping of them does: their faults are not
    /// refused. The reservations end with a smaller size, or the object; a hole keeps those of missing pages.
    ///
    /// # Errors
    ///
    /// [`HugetlbError`]; no further page is reserved.
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    pub fn reserve(&self, pages: impl Into<ObjectPages>) -> Result<(), HugetlbError> {
        self.vm.call();
        let pages: ObjectPages = pages.into();
        self.reserve_all(pages.below(self.vm.object_nr_pages(self.id)))
    }

    /// Provides the missing ones of these huge pages, all or none, and makes the object as large as they reach: fallocate(2). Claims
    /// come first, so that a refusal shows nobody a larger object, and ends no reservation beyond its end.
    ///
    /// # Errors
    ///
    /// [`HugetlbError`]; nothing has changed, unless others punch holes there, or make the object smaller, meanwhile.
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    ///
    /// Source: fallocate(2).
    pub fn extend(&self, pages: impl Into<ObjectPages>) -> Result<(), HugetlbError> {
        self.vm.call();
        let pages = pages.into().below(MAX_OBJECT_BYTES / PAGE_SIZE);
        self.reserve_all(pages)?;
        if pages.is_empty() {
            return Ok(());
        }
        // Only whole pages are an object's.
        let end = pages.end.next_multiple_of(self.vm.object_orders(self.id).least().nr_pages());
        self.vm.object_grow(self.id, end * PAGE_SIZE);
        self.allocate(pages).map_err(|refused| match refused {
            ObjectWriteError::OutOfFrames(refused) => HugetlbError::OutOfFrames(refused),
            // Each page has its claim.
            _ => HugetlbError::NoHugePages,
        })
    }

    fn reserve_all(&self, pages: ObjectPages) -> Result<(), HugetlbError> {
        let pool = self.vm.object_pool(self.id).ok_or(HugetlbError::NotHugetlb)?;
        if pages.is_empty() {
            return Ok(());
        }
        let get = &mut |source: &Source<'_, M>| match self
            .vm
            .reserve_pages((self.id, pool), pages, &mut || source.frame(Fill::Fixed))
        {
            Err(ReserveRefusal::OutOfFrames(refused)) => Err(refused),
            Err(ReserveRefusal::Pool(refused)) => Ok(Err(refused.into())),
            Ok(()) => Ok(Ok(())),
        };
        let reserve =
            &mut || self.vm.with_reclaim(&mut || self.vm.obtain_all(get).map(|(reserved, _held)| reserved))?;
        let nr_claims = &|pool| self.vm.nr_unclaimed((self.id, pool), pages);
        self.vm.with_room_for_surplus(Some(pool), nr_claims, HugetlbError::NoHugePages, reserve)
    }
}

/// Makes an object of huge pages of that order.
pub(super) fn new_object(size_bytes: u64, order: Order, subpool: Option<SubpoolId>) -> NewObject {
    NewObject { size_bytes, orders: FolioOrders::only(order), from: PagesFrom::Pool(subpool) }
}

/// Whether pages of that order can be mapped: one entry has to show a page.
pub(super) fn has_entries_of<M: Machine>(machine: &M, order: Order) -> Result<(), MmapError> {
    let is_one = |level| format::order_of::<M::Format>(level) == order;
    if (1..=machine.top_leaf()).any(is_one) { Ok(()) } else { Err(MmapError::NoEntriesOfSize) }
}

/// Returns the length of an anonymous mapping of huge pages, in bytes.
pub(super) fn huge_len<M: Machine>(machine: &M, addr: u64, len: u64, flags: MapFlags) -> Result<u64, MmapError> {
    let order = order_of(flags).ok_or(MmapError::NoPool)?;
    let bytes = order.nr_pages() * PAGE_SIZE;
    if flags.map_type() == MapType::Private && flags.contains(MapFlags::GROWSDOWN) {
        return Err(MmapError::BadFlags);
    }
    has_entries_of(machine, order)?;
    if flags.is_fixed() && !addr.is_multiple_of(bytes) {
        return Err(MmapError::NotHugePages);
    }
    // As on Linux, where such a length becomes 0.
    len.checked_next_multiple_of(bytes).ok_or(MmapError::ZeroLength)
}
