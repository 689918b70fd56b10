//! mmap(2): anonymous memory, files of zeroes, and objects of the embedder.
//!
//! Locks on entry: none. Takes the writer lock.

use super::hugetlb::{has_entries_of, huge_len, new_object, order_of};
use super::mmap_error::MmapError;
use super::object_part::ObjectPart;
use super::{is_aligned, page_align, task_size};
use crate::addr::{Order, PAGE_SIZE, PageRange, Vpn};
use crate::frame::{OutOfFrames, PoolId};
use crate::linux::{MapFlags, MapType, Prot};
use crate::machine::Machine;
use crate::policy::folio::FolioOrders;
use crate::source::object::{MAX_OBJECT_BYTES, NewObject, PagesFrom};
use crate::space::AddressSpace;
use crate::space::edit::{Edit, Nodes, TwoEdits};
use crate::space::lock::Writer;
use crate::space::placement::{Backing, occupied};
use crate::space::vma::{ObjectId, Vma, VmaFlags};

/// An [`ObjectPart`] that was checked, or the part of a file of zeroes.
#[derive(Clone, Copy)]
pub(crate) struct Given {
    object: ObjectId,
    pgoff: u64,
    flags: VmaFlags,
    /// The least size of the object, in bytes, once it is mapped.
    least_bytes: u64,
}

/// The state of the range of a new mapping.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Hole,
    /// Pages of other mappings, which are unmapped.
    Mapped,
}

/// A mapping that is ready to be published.
enum Prepared<'a, 'vm, M: Machine> {
    IntoHole(Edit<'a, 'vm, M>),
    Over(TwoEdits<'a, 'vm, M>),
    /// The same, but the pool has refused the claims so far. The pages that are unmapped may do.
    OverPoolPages(TwoEdits<'a, 'vm, M>, MmapError),
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Maps anonymous memory. Takes the arguments of the system call and returns the address, in
    /// bytes. As on Linux, unknown bits of `prot` and `flags` are ignored.
    ///
    /// # Errors
    ///
    /// [`MmapError`]; nothing is changed then, but for a private mapping of a pool that is replaced, if the pool has too few
    /// pages for the new one (`NoHugePages`, `SubpoolFull`): what was in the range is unmapped then.
    ///
    /// Source: mmap(2).
    pub fn mmap(&self, addr: u64, len: u64, prot: Prot, flags: MapFlags) -> Result<u64, MmapError> {
        if !flags.contains(MapFlags::ANONYMOUS) {
            return Err(MmapError::NotAnonymous);
        }
        if len == 0 {
            return Err(MmapError::ZeroLength);
        }
        let len = if flags.contains(MapFlags::HUGETLB) { huge_len(&self.vm.machine, addr, len, flags)? } else { len };
        self.map_checked(addr, len, prot, flags, None)
    }

    /// Maps a file that reads as zeroes, such as `/dev/zero`, from `offset_bytes` on. The mapping is private, and its
    /// memory is anonymous. The file shows in three places: the mapping has an offset
    /// ([`pgoff_of`](crate::Vma::pgoff_of)), it is merged with a neighbour only if the offset continues there, and
    /// madvise(2) refuses `MADV_WIPEONFORK` and `MADV_REMOVE` as for other private mappings of files. `flags` as in
    /// [`mmap`](Self::mmap), without `MAP_ANONYMOUS`. Linux also keeps two mappings apart that come from different opens of the file;
    /// here the offset decides.
    ///
    /// # Errors
    ///
    /// [`MmapError`]; nothing is changed then.
    ///
    /// Source: mmap(2), madvise(2), zero(4).
    pub fn mmap_zero(
        &self,
        addr: u64,
        len: u64,
        prot: Prot,
        flags: MapFlags,
        offset_bytes: u64,
    ) -> Result<u64, MmapError> {
        if flags.map_type() != MapType::Private || flags.intersects(MapFlags::HUGETLB | MapFlags::GROWSDOWN) {
            return Err(MmapError::BadFlags);
        }
        if !is_aligned(offset_bytes) {
            return Err(MmapError::OffsetUnaligned);
        }
        if len == 0 {
            return Err(MmapError::ZeroLength);
        }
        if len > task_size::<M::Format>() {
            return Err(MmapError::TooLong);
        }
        if offset_bytes.checked_add(page_align(len)).is_none() {
            return Err(MmapError::OffsetOverflow);
        }
        let given =
            Given { object: ObjectId::NONE, pgoff: offset_bytes / PAGE_SIZE, flags: VmaFlags::FILE, least_bytes: 0 };
        self.map_checked(addr, len, prot, flags, Some(given))
    }

    /// Maps `part` of an object. With `MAP_SHARED` stores go to the object and are visible in all of
    /// its mappings. With `MAP_PRIVATE` a page shows the object until the program writes to it, and
    /// is a private copy from then on; [`may_write`](ObjectPart::may_write) does not matter. Accesses
    /// to pages beyond the object's size fail. A smaller size drops private copies beyond it;
    /// [`discard`](crate::SharedObject::discard) keeps them. The mapping holds a reference to the object;
    /// the handle may be dropped.
    ///
    /// # Errors
    ///
    /// [`MmapError`]; nothing is changed then, but for a private mapping of a pool that is replaced, if the pool has too few
    /// pages for the new one (`NoHugePages`, `SubpoolFull`): what was in the range is unmapped then.
    ///
    /// Source: mmap(2).
    pub fn mmap_object(
        &self,
        addr: u64,
        len: u64,
        prot: Prot,
        flags: MapFlags,
        part: ObjectPart<'_, 'vm, M>,
    ) -> Result<u64, MmapError> {
        if !core::ptr::eq(part.object.vm, self.vm) {
            return Err(MmapError::OtherVm);
        }
        if !is_aligned(part.offset_bytes) {
            return Err(MmapError::OffsetUnaligned);
        }
        if len == 0 {
            return Err(MmapError::ZeroLength);
        }
        let is_private = match flags.map_type() {
            MapType::Shared => false,
            MapType::Private if !flags.contains(MapFlags::GROWSDOWN) => true,
            _ => return Err(MmapError::BadFlags),
        };
        let may_write = part.may_write && self.vm.foreign_frames_of(part.object.id).is_none();
        if prot.contains(Prot::WRITE) && !may_write && !is_private {
            return Err(MmapError::NoWriteRight);
        }
        if len > task_size::<M::Format>() {
            return Err(MmapError::TooLong);
        }
        if part.offset_bytes > MAX_OBJECT_BYTES - len {
            return Err(MmapError::OffsetOverflow);
        }
        let is_of_file = self.vm.object_file(part.object.id).is_some();
        let tracked = if is_of_file { VmaFlags::TRACKED } else { VmaFlags::empty() };
        if let Some(pool) = self.vm.object_pool(part.object.id) {
            let bytes = pool.order().nr_pages() * PAGE_SIZE;
            let addr = if flags.is_fixed() { addr } else { 0 };
            has_entries_of(&self.vm.machine, pool.order())?;
            if ![part.offset_bytes, len, addr].iter().all(|at| at.is_multiple_of(bytes)) {
                return Err(MmapError::NotHugePages);
            }
        }
        let given = Given {
            object: part.object.id,
            pgoff: part.offset_bytes / PAGE_SIZE,
            flags: match () {
                () if is_private => VmaFlags::FILE,
                () if may_write => tracked,
                () => VmaFlags::NEVERWRITE.union(tracked),
            },
            least_bytes: if part.grows { part.offset_bytes + len } else { 0 },
        };
        self.map_checked(addr, len, prot, flags, Some(given))
    }

    fn map_checked(
        &self,
        addr: u64,
        len: u64,
        prot: Prot,
        flags: MapFlags,
        given: Option<Given>,
    ) -> Result<u64, MmapError> {
        self.vm.call();
        let fixed = flags.is_fixed();
        let len = page_align(len);
        let limit = task_size::<M::Format>();
        if len == 0 || len > limit || fixed && addr > limit - len {
            return Err(MmapError::TooLong);
        }
        if fixed && !is_aligned(addr) {
            return Err(MmapError::Unaligned);
        }
        let nr_pages = len / PAGE_SIZE;
        let map = &mut || self.vm.with_reclaim(&mut || self.map_locked(addr, nr_pages, prot, flags, given));
        let pool = self.pages_of_pool(given, flags).and_then(PoolId::of);
        let of = (pool, given.map(|given| (given.object, given.pgoff)));
        let range = self.map_with_room((addr, nr_pages, flags), of, map)?;
        // After the claims: a refused mapping must not end those of others beyond the size, nor show anybody a larger one.
        if let Some(given) = given.filter(|given| given.least_bytes > 0) {
            self.vm.object_grow(given.object, given.least_bytes);
        }
        let is_locked = flags.contains(MapFlags::LOCKED) || !self.future_locks().is_empty();
        // As Linux: the mapping stays even if populating it fails.
        match flags & (MapFlags::POPULATE | MapFlags::NONBLOCK) {
            populate if is_locked || populate == MapFlags::POPULATE => self.populate_quietly(range),
            ready if ready.contains(MapFlags::POPULATE) => self.populate_ready(range),
            _ => {}
        }
        Ok(range.start.addr())
    }

    /// Maps under the writer lock and returns the pages of the mapping. Without a fixed place, `addr`
    /// is a hint.
    fn map_locked(
        &self,
        addr: u64,
        nr_pages: u64,
        prot: Prot,
        flags: MapFlags,
        given: Option<Given>,
    ) -> Result<PageRange, MmapError> {
        let fixed = flags.is_fixed();
        let writer = &self.write_lock();
        if self.tree(writer).nr_in_tree() > self.vm.max_map_count() {
            return Err(MmapError::TooManyVmas);
        }
        let start = if fixed {
            Vpn::of(addr)
        } else {
            let tree = self.tree(writer).snapshot();
            let backing = match given {
                Some(given) if given.object != ObjectId::NONE => Backing::Object,
                _ => Backing::Private,
            };
            let found = match self.pages_of_pool(given, flags) {
                of_pool if flags.contains(MapFlags::BITS_32) => {
                    self.find_hole_below_2g(&tree, addr, nr_pages, of_pool.unwrap_or(Order::BASE))
                }
                Some(order) => self.find_hole_of_huge_pages(&tree, addr, nr_pages, order),
                None => self.find_hole_for(&tree, addr, nr_pages, backing),
            };
            found.ok_or(MmapError::NoHole)?
        };
        let range = PageRange::new(start, Vpn(start.0 + nr_pages));
        if flags.contains(MapFlags::FIXED_NOREPLACE) && occupied(&self.tree(writer).snapshot(), range) {
            return Err(MmapError::Occupied);
        }
        if flags.contains(MapFlags::LOCKED) && !self.can_lock() {
            return Err(MmapError::LockNotAllowed);
        }
        if !self.may_lock(writer, vma_locks(flags) | self.future_locks(), nr_pages) {
            return Err(MmapError::TooMuchLocked);
        }
        let kind = if flags.contains(MapFlags::HUGETLB) { order_of(flags) } else { None };
        self.insert_mapping(writer, range, vma_flags(prot, flags)?, (given, kind))?;
        Ok(range)
    }

    /// The size of the pages that come from a pool.
    fn pages_of_pool(&self, given: Option<Given>, flags: MapFlags) -> Option<Order> {
        match given {
            Some(given) if given.object != ObjectId::NONE => self.vm.object_pool(given.object).map(PoolId::order),
            None if flags.contains(MapFlags::HUGETLB) => order_of(flags),
            _ => None,
        }
    }

    /// Maps new memory or the given object, and unmaps whatever is in the range.
    pub(crate) fn insert_mapping(
        &self,
        writer: &Writer<'_, M>,
        range: PageRange,
        flags: VmaFlags,
        what: (Option<Given>, Option<Order>),
    ) -> Result<(), MmapError> {
        let is_of_pool = match what {
            (Some(given), _) => given.object != ObjectId::NONE && self.vm.object_pool(given.object).is_some(),
            (None, huge) => huge.is_some(),
        };
        // As Linux: pages of a pool do not leave memory, and are not counted as locked.
        let locks =
            if is_of_pool { VmaFlags::empty() } else { (flags & vma_locks(MapFlags::LOCKED)) | self.future_locks() };
        let flags = (flags - VmaFlags::LOCKED) | locks;
        let nr_replaced = self.nr_mapped_in(writer, range);
        if let Some(excess) = self.excess(writer, flags, range.nr_pages(), nr_replaced) {
            return Err(excess.into());
        }
        if nr_replaced > 0 && self.cuts_page_of_pool(writer, range) {
            return Err(MmapError::NotHugePages);
        }
        let place = if nr_replaced > 0 { Place::Mapped } else { Place::Hole };
        let (vma, prepared) = self.prepare(writer, &mut |nodes| {
            let vma = self.new_vma(range, flags, what, nodes)?;
            let prepared = self.prepare_vma(writer, vma, place, nodes);
            prepared.map(|p| (vma, p)).inspect_err(|_| self.vm.object_put(&vma, range.nr_pages()))
        })?;
        self.note_pool(writer, &vma);
        self.join_members(writer, &vma);
        let done = match prepared {
            Prepared::IntoHole(edit) => {
                let retired = edit.publish();
                self.free_retired(writer, retired);
                Ok(())
            }
            Prepared::Over(edits) => self.put_over(writer, vma, edits, None),
            Prepared::OverPoolPages(edits, refused) => self.put_over(writer, vma, edits, Some(refused)),
        };
        let nr_new = if done.is_ok() { range.nr_pages() } else { 0 };
        self.data.limits.nr_mapped_pages.add_owned(nr_new.wrapping_sub(nr_replaced));
        done
    }

    /// Makes the VMA, and takes its references to the object.
    fn new_vma(
        &self,
        range: PageRange,
        flags: VmaFlags,
        (given, huge): (Option<Given>, Option<Order>),
        nodes: Nodes<'_, M>,
    ) -> Result<Vma, MmapError> {
        let (nr_pages, index) = (range.nr_pages(), range.start.0);
        if let Some(given) = given.filter(|given| given.object == ObjectId::NONE) {
            let flags = flags | given.flags;
            return Ok(Vma { range, flags, object: ObjectId::NONE, pgoff: given.pgoff, index });
        }
        if let Some(given) = given {
            let flags = flags | given.flags;
            let vma = Vma { range, flags, object: given.object, pgoff: given.pgoff, index };
            self.vm.object_get(&vma, nr_pages);
            return Ok(vma);
        }
        if flags.contains(VmaFlags::SHARED) || huge.is_some() {
            // A private mapping of a pool has an object, too, which says so and gets no pages.
            let kind = if flags.contains(VmaFlags::SHARED) { VmaFlags::empty() } else { VmaFlags::FILE };
            let flags = flags | kind;
            let source = nodes.ok_or(OutOfFrames::Frame)?;
            let size_bytes = nr_pages * PAGE_SIZE;
            let base = NewObject { size_bytes, orders: FolioOrders::BASE, from: PagesFrom::Zero };
            let new = huge.map_or(base, |order| new_object(size_bytes, order, None));
            let object = self.vm.new_object(new, 0, source)?;
            let vma = Vma { range, flags, object, pgoff: 0, index };
            self.vm.object_get(&vma, nr_pages);
            return Ok(vma);
        }
        Ok(Vma { range, flags, object: ObjectId::NONE, pgoff: 0, index })
    }

    /// Obtains all frames that the mapping needs, and its claims to pages of a pool.
    fn prepare_vma<'a>(
        &'a self,
        writer: &'a Writer<'_, M>,
        vma: Vma,
        place: Place,
        nodes: Nodes<'_, M>,
    ) -> Result<Prepared<'a, 'vm, M>, MmapError> {
        self.reserve_member_for(writer, &vma, nodes)?;
        let mut edit = self.edit(writer);
        if place == Place::Hole {
            edit.with(nodes).place(vma)?;
            self.vm.reserve_for(&vma, nodes)?;
            return Ok(Prepared::IntoHole(edit));
        }
        edit.with(nodes).carve(vma.range)?;
        if self.exceeds_map_count(writer, edit.nr_vmas_then()) {
            return Err(MmapError::TooManyVmas);
        }
        let mut edits = edit.seal();
        edits.second(nodes).place(vma)?;
        match self.vm.reserve_for(&vma, nodes) {
            Ok(()) => Ok(Prepared::Over(edits)),
            // As Linux: what is there goes first, and the new mapping may have its pages.
            Err(refused @ (MmapError::NoHugePages | MmapError::SubpoolFull))
                if self.has_private_of_pool(writer, vma.range) =>
            {
                Ok(Prepared::OverPoolPages(edits, refused))
            }
            Err(error) => Err(error),
        }
    }
}

fn vma_locks(flags: MapFlags) -> VmaFlags {
    if flags.contains(MapFlags::LOCKED) { VmaFlags::LOCKED } else { VmaFlags::empty() }
}

fn vma_flags(prot: Prot, flags: MapFlags) -> Result<VmaFlags, MmapError> {
    let mut vma = VmaFlags::empty().with_rights(prot.rights());
    match flags.map_type() {
        MapType::Shared if flags.contains(MapFlags::GROWSDOWN) => return Err(MmapError::BadFlags),
        MapType::Shared => vma |= VmaFlags::SHARED,
        MapType::Private => {}
        MapType::SharedValidate | MapType::Unknown => return Err(MmapError::BadFlags),
    }
    vma.set(VmaFlags::GROWSDOWN, flags.contains(MapFlags::GROWSDOWN));
    vma.set(VmaFlags::NORESERVE, flags.contains(MapFlags::NORESERVE));
    vma |= vma_locks(flags);
    vma.set(VmaFlags::STACK, flags.contains(MapFlags::STACK | MapFlags::GROWSDOWN));
    Ok(vma)
}
