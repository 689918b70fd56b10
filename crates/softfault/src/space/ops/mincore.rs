//! mincore(2).

use super::{is_aligned, page_align, pages, task_size};
use crate::addr::Vpn;
use crate::errno::op_error;
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::space::vma::{ObjectId, Vma};
use crate::table::format::Entry;
use crate::table::walk::{self, Walk};

op_error! {
    /// Why mincore(2) did not report all.
    MincoreError {
        Unaligned: EINVAL = "addr: should be a multiple of the page size",
        OutOfRange: ENOMEM = "addr, length: should lie in the address space",
        NotMapped: ENOMEM = "addr, length: a page of the range is not mapped",
    }
}

impl<M: Machine> AddressSpace<'_, M> {
    /// Calls `out` with each page of the range in turn: whether it is resident.
    ///
    /// # Errors
    ///
    /// [`MincoreError`]; `out` may have been called for pages before the first
    /// that is not mapped.
    ///
    /// Source: mincore(2).
    pub fn mincore(&self, addr: u64, len: u64, out: &mut dyn FnMut(bool)) -> Result<(), MincoreError> {
        if !is_aligned(addr) {
            return Err(MincoreError::Unaligned);
        }
        let limit = task_size::<M::Format>();
        if addr > limit || len > limit - addr {
            return Err(MincoreError::OutOfRange);
        }
        let range = pages(addr, page_align(len));
        let _writer = self.write_lock();
        let mut at = range.start;
        while at < range.end {
            let vma = self.tree().lookup(at).map(|f| f.vma).ok_or(MincoreError::NotMapped)?;
            let end = vma.range.end.min(range.end);
            (at.0..end.0).for_each(|vpn| out(self.is_resident(&vma, Vpn(vpn))));
            at = end;
        }
        Ok(())
    }

    fn is_resident(&self, vma: &Vma, vpn: Vpn) -> bool {
        let walk = walk::walk(&self.vm.machine, self.root, vpn);
        if matches!(walk, Walk::Huge(_)) {
            return true;
        }
        if let Walk::Leaf(slot) = walk {
            match slot.read().entry {
                Entry::Leaf(_) | Entry::LockedLeaf(_) | Entry::Busy => return true,
                Entry::Guard if vma.object == ObjectId::NONE => return false,
                // A guard hides a page of an object from the program, not from this.
                Entry::Guard | Entry::None | Entry::LockedNone | Entry::Table(_) => {}
            }
        }
        // Not mapped here, but perhaps there for others who share the object.
        vma.object != ObjectId::NONE
            && vma.index_of(vpn) < self.vm.object_nr_pages(vma.object)
            && self.vm.object_slot(vma.object, vma.index_of(vpn)).frame().is_some()
    }
}
