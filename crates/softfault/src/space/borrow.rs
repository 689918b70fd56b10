//! An address space without its handle: for who holds an entry of it.
//!
//! Locks on entry: none. The space stays where it is as long as the caller holds
//! a `Busy` entry in it that is his, or the lock of its family (`rmap/take.rs`), or
//! visits it (`members.rs`); after that a borrowed space must not be used any more.

use super::{AddressSpace, SpaceData};
use crate::addr::Pfn;
use crate::machine::Machine;
use crate::mem;
use crate::space::Vm;
use core::mem::ManuallyDrop;
use core::ops::Deref;

/// The space, to be used and not to be ended.
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
