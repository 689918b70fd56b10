//! An address space without its handle, for an operation that owns an entry of it.
//!
//! Locks on entry: none. The space exists as long as the caller owns a `Busy` entry of it, holds
//! the lock of its family (`rmap/take.rs`), or visits it (`members.rs`). After that a borrowed
//! space must not be used.

use super::{AddressSpace, SpaceData};
use crate::addr::Pfn;
use crate::machine::Machine;
use crate::mem;
use crate::space::Vm;
use core::mem::ManuallyDrop;
use core::ops::Deref;

/// A borrowed space. Dropping it does not end the space.
pub(crate) struct BorrowedSpace<'vm, M: Machine>(ManuallyDrop<AddressSpace<'vm, M>>);

impl<'vm, M: Machine> Deref for BorrowedSpace<'vm, M> {
    type Target = AddressSpace<'vm, M>;
    fn deref(&self) -> &AddressSpace<'vm, M> {
        &self.0
    }
}

impl<M: Machine> Vm<M> {
    /// The space whose own frame this is.
    pub(crate) fn borrow_space(&self, frame: Pfn) -> BorrowedSpace<'_, M> {
        let data: &SpaceData = mem::view(&self.machine, frame, 0);
        let rss = AddressSpace::<M>::inline_lines(&self.machine, frame);
        BorrowedSpace(ManuallyDrop::new(AddressSpace {
            vm: self,
            frame,
            root: Pfn(data.root.get() as u32),
            id: data.id.get(),
            data,
            rss,
            family: data.family.founder.get(),
        }))
    }
}
