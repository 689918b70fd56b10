//! Which VMA, which rights: the tree, or the CPU's memory of its last answer.

use super::Request;
use crate::addr::{Access, PageRange, Pfn, Rights, Vpn};
use crate::cpu::CpuData;
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::space::vma::{ObjectId, Vma, VmaFlags};
use crate::sync::{Ordering, Word};
use crate::table::format::Format;
use crate::table::walk::{self, Walk};
use crate::tunables::Discipline;

/// The VMA, by value, and its reference count for the discipline that has one.
pub(crate) struct FoundVma<'vm> {
    pub(crate) vma: Vma,
    pub(crate) refs: Option<&'vm Word>,
    /// Whether the CPU's hint is about this VMA, at this generation.
    pub(crate) hinted: bool,
}

impl FoundVma<'_> {
    /// Whether the VMA gives what the access needs. Any right at all lets a page
    /// be read: no format here can express less, and Linux says the same.
    #[inline(always)]
    pub(crate) fn allows(&self, request: &Request) -> bool {
        let rights = self.vma.flags.rights();
        match request.access {
            // As FOLL_FORCE in ptrace(2): private copies may be forced, what
            // others share may not.
            _ if request.forced => !self.vma.flags.contains(VmaFlags::SHARED) || rights.contains(Rights::WRITE),
            Access::Read => !rights.is_empty(),
            Access::Write => rights.contains(Rights::WRITE),
            Access::Exec => rights.contains(Rights::EXEC),
        }
    }

    /// Rights that an entry may show at most.
    #[inline(always)]
    pub(crate) fn entry_rights(&self) -> Rights {
        let rights = self.vma.flags.rights();
        if rights.is_empty() { rights } else { rights | Rights::READ }
    }
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// In a section. The hint is valid while the generation is the one it was
    /// taken at: a writer publishes the tree, then the generation, and only then
    /// waits for sections, so a section that still reads the old generation is
    /// one that the writer waits for.
    #[inline(always)]
    pub(crate) fn find(&self, cpu: &CpuData, vpn: Vpn) -> Option<FoundVma<'vm>> {
        if self.vm.tunables.discipline == Discipline::Split {
            return self.find_in_tree(vpn);
        }
        let generation = self.data.generation.load(Ordering::Acquire);
        let hint = &cpu.hint;
        if hint.space.get() == self.id
            && hint.generation.get() == generation
            && hint.start.get() <= vpn.0
            && vpn.0 < hint.end.get()
        {
            let vma = Vma {
                range: PageRange { start: Vpn(hint.start.get()), end: Vpn(hint.end.get()) },
                flags: VmaFlags::from_bits_retain(hint.flags.get()),
                object: ObjectId(hint.object.get()),
                pgoff: hint.pgoff.get(),
            };
            return Some(FoundVma { vma, refs: None, hinted: true });
        }
        let mut found = self.find_in_tree(vpn)?;
        found.hinted = true;
        hint.space.set(self.id);
        hint.generation.set(generation);
        hint.start.set(found.vma.range.start.0);
        hint.end.set(found.vma.range.end.0);
        hint.flags.set(found.vma.flags.bits());
        hint.object.set(found.vma.object.0);
        hint.pgoff.set(found.vma.pgoff);
        hint.stretch.set(0);
        Some(found)
    }

    /// In the same section as [`find`](Self::find): the entry of `vpn`, by way of
    /// the leaf table that the CPU used last if it is the same.
    #[inline(always)]
    pub(crate) fn walk(&self, cpu: &CpuData, found: &FoundVma<'vm>, vpn: Vpn) -> Walk<'vm, M::Format> {
        let machine = &self.vm.machine;
        let stretch = (vpn.0 >> M::Format::INDEX_BITS) + 1;
        if found.hinted && cpu.hint.stretch.get() == stretch {
            return Walk::Leaf(walk::leaf_slot(machine, Pfn(cpu.hint.table.get() as u32), vpn));
        }
        match walk::leaf_table(machine, self.root, vpn) {
            None => walk::walk(machine, self.root, vpn),
            Some(table) => {
                if found.hinted {
                    cpu.hint.table.set(u64::from(table.0));
                    cpu.hint.stretch.set(stretch);
                }
                Walk::Leaf(walk::leaf_slot(machine, table, vpn))
            }
        }
    }

    fn find_in_tree(&self, vpn: Vpn) -> Option<FoundVma<'vm>> {
        self.tree().lookup(vpn).map(|found| FoundVma { vma: found.vma, refs: Some(found.refs), hinted: false })
    }
}
