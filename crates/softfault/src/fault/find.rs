//! Finds the VMA and its rights: in the CPU's hint, or else in the tree.

use super::request::{Request, Want};
use super::{FaultError, Turn};
use crate::addr::{PageRange, Pfn, Rights, Vpn};
use crate::cpu::CpuData;
use crate::machine::Machine;
use crate::section::{InSection, KeepsTables};
use crate::space::AddressSpace;
use crate::space::vma::{ObjectId, VmaFlags};
use crate::sync::{Ordering, Word};
use crate::table::entry::Slot;
use crate::table::format::Format;
use crate::table::walk::{self, Walk};
use crate::tunables::FaultLocking;

/// The VMA in the CPU's hint, and its reference count for the fault-locking mode that uses one. The
/// hint is read word by word: a copy would be stored in halves and loaded whole, which stalls store
/// forwarding (5 ns of a fault's 17, measured). It is read through the CPU's data, whose address
/// the fault has in a register anyway.
#[derive(Clone, Copy)]
pub(crate) struct FoundVma<'vm> {
    cpu: &'vm CpuData,
    pub(crate) refs: Option<&'vm Word>,
}

impl FoundVma<'_> {
    #[inline(always)]
    pub(crate) fn flags(&self) -> VmaFlags {
        VmaFlags::from_bits_retain(self.cpu.hint.flags.get())
    }

    #[inline(always)]
    pub(crate) fn object(&self) -> ObjectId {
        ObjectId(self.cpu.hint.object.get())
    }

    /// Index of a private page of the VMA, as `Vma::index_of`.
    #[inline(always)]
    pub(crate) fn index_of(&self, vpn: Vpn) -> u64 {
        self.cpu.hint.index.get().wrapping_add(vpn.0 - self.cpu.hint.start.get())
    }

    /// The page of the object that a page of the VMA shows, as
    /// [`Vma::pgoff_of`](crate::Vma::pgoff_of). Only where there is an object.
    pub(crate) fn pgoff_of(&self, vpn: Vpn) -> u64 {
        debug_assert!(self.object() != ObjectId::NONE);
        self.cpu.hint.pgoff.get().wrapping_add(vpn.0 - self.cpu.hint.start.get())
    }

    /// Its first page.
    pub(crate) fn start(&self) -> Vpn {
        Vpn(self.cpu.hint.start.get())
    }

    /// The pages that lie in the VMA.
    pub(crate) fn part_of(&self, range: PageRange) -> PageRange {
        range.intersect(&PageRange::new(self.start(), Vpn(self.cpu.hint.end.get())))
    }

    /// Whether all of the pages lie in the VMA.
    pub(crate) fn covers(&self, range: PageRange) -> bool {
        self.cpu.hint.start.get() <= range.start.0 && range.end.0 <= self.cpu.hint.end.get()
    }

    /// The generation of the space that it was found in.
    pub(crate) fn generation(&self) -> u64 {
        self.cpu.hint.generation.get()
    }

    /// Whether the VMA grants what the access needs. Any right implies read: no format here can
    /// express less, and Linux does the same.
    #[inline(always)]
    pub(crate) fn allows(&self, request: Request) -> bool {
        let rights = self.flags().rights();
        match request.access() {
            // As FOLL_FORCE in ptrace(2): writes to private memory may be forced, writes to shared
            // memory may not.
            _ if request.want == Want::ForcedWrite => {
                !self.flags().intersects(VmaFlags::SHARED | VmaFlags::MOVING) || rights.contains(Rights::WRITE)
            }
            _ if request.want == Want::ForcedRead => !self.flags().contains(VmaFlags::MOVING) || !rights.is_empty(),
            // A page of a mapping that was replaced meanwhile would be a new one.
            _ if request.want == Want::Ready => !rights.is_empty() && self.object() != ObjectId::NONE,
            access => rights.intersects(access.granted_by()),
        }
    }

    /// The outcome of an attempt that the VMA does not allow. A VMA that is moving allows nothing,
    /// so only a fault that would be refused has to check for that.
    #[cold]
    pub(crate) fn refusal<'vm, M: Machine>(self) -> Turn<'vm, M> {
        if self.flags().contains(VmaFlags::MOVING) { Turn::Wait } else { Turn::Refused(FaultError::NoRights) }
    }

    /// Whether the VMA has private pages.
    #[inline(always)]
    pub(crate) fn is_private(&self) -> bool {
        !self.flags().contains(VmaFlags::SHARED)
    }

    /// Whether the first store to a clean page has to be noted in the page's folio.
    pub(crate) fn is_tracked(&self) -> bool {
        self.flags().contains(VmaFlags::TRACKED)
    }

    /// Whether a read fault, or one on a neighbour, may allow stores: not where the mapping is private, or shows a file.
    fn is_writable_at_once(&self) -> bool {
        self.flags() & (VmaFlags::SHARED | VmaFlags::TRACKED) == VmaFlags::SHARED
    }

    /// Returns the rights of the VMA that a fault withholds if it neither copies the page nor stores to it.
    pub(crate) fn kept_back(&self) -> Rights {
        if self.is_writable_at_once() { Rights::empty() } else { Rights::WRITE }
    }

    /// The most rights that an entry of the object's own page may grant, if no store is noted.
    pub(crate) fn object_rights(&self) -> Rights {
        if self.is_writable_at_once() { self.entry_rights() } else { self.entry_rights() - Rights::WRITE }
    }

    /// The most rights that an entry may grant.
    #[inline(always)]
    pub(crate) fn entry_rights(&self) -> Rights {
        let rights = self.flags().rights();
        if rights.is_empty() { rights } else { rights | Rights::READ }
    }
}

/// The leaf table that the CPU used last.
#[inline(always)]
pub(crate) fn hinted_table(cpu: &CpuData) -> Pfn {
    Pfn(cpu.hint.table.get() as u32)
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Finds the VMA of a page. The hint is valid while the generation is unchanged. A writer
    /// publishes the tree, then the generation, and only then waits for sections. So it waits for
    /// every section that still reads the old generation.
    #[inline(always)]
    pub(crate) fn find_vma<'s>(&'s self, inside: InSection<'s>, cpu: &'s CpuData, vpn: Vpn) -> Option<FoundVma<'s>> {
        inside.assert_of(&self.data.cpus);
        let generation = self.data.generation.load(Ordering::Acquire);
        let hint = &cpu.hint;
        if hint.space.get() == self.id
            && hint.generation.get() == generation
            && hint.start.get() <= vpn.0
            && vpn.0 < hint.end.get()
        {
            return Some(FoundVma { cpu, refs: None });
        }
        let refs = Some(self.find_in_tree(inside, cpu, generation, vpn)?);
        Some(FoundVma { cpu, refs })
    }

    /// Fills the hint; its VMA's reference count. `generation` was read before the
    /// tree is.
    #[inline(never)]
    fn find_in_tree<'s>(&'s self, inside: InSection<'s>, cpu: &CpuData, generation: u64, vpn: Vpn) -> Option<&'s Word> {
        let hint = &cpu.hint;
        let found = self.tree_in(inside).lookup(vpn)?;
        // `split` takes the reference count of each VMA it finds, so it stores no hint.
        let lasts = self.vm.tunables.fault_locking != FaultLocking::Split;
        hint.space.set(if lasts { self.id } else { 0 });
        hint.generation.set(generation);
        hint.start.set(found.vma.range.start.0);
        hint.end.set(found.vma.range.end.0);
        hint.flags.set(found.vma.flags.bits());
        hint.object.set(found.vma.object.0);
        hint.index.set(found.vma.index);
        hint.pgoff.set(found.vma.pgoff);
        hint.stretch.set(0);
        Some(found.refs)
    }

    /// The entry of `vpn`, if it is in the leaf table that the CPU used last. Called after
    /// [`find_vma`](Self::find_vma), in the same section.
    #[inline(always)]
    pub(crate) fn leaf_by_hint(&self, inside: InSection<'_>, cpu: &CpuData, vpn: Vpn) -> Option<Slot<'vm, M::Format>> {
        inside.assert_of(&self.data.cpus);
        let is_same = cpu.hint.stretch.get() == (vpn.0 >> M::Format::INDEX_BITS) + 1;
        is_same.then(|| walk::leaf_slot(&self.vm.machine, hinted_table(cpu), vpn))
    }

    /// Walks to the entry from the root and stores the leaf table in the hint.
    #[inline(never)]
    pub(crate) fn walk_from_root(&self, inside: InSection<'_>, cpu: &CpuData, vpn: Vpn) -> Walk<'vm, M::Format> {
        inside.assert_of(&self.data.cpus);
        let machine = &self.vm.machine;
        match walk::leaf_table(machine, self.root, vpn, inside) {
            Err(ended) => ended,
            Ok(table) => {
                cpu.hint.table.set(u64::from(table.0));
                cpu.hint.stretch.set((vpn.0 >> M::Format::INDEX_BITS) + 1);
                Walk::Leaf(walk::leaf_slot(machine, table, vpn))
            }
        }
    }
}
