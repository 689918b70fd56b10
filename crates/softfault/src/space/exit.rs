//! The end of an address space, whole.

use super::AddressSpace;
use crate::frame::Fill;
use crate::machine::{Flush, Machine};
use core::ops::ControlFlow;

impl<M: Machine> Drop for AddressSpace<'_, M> {
    /// Frees all frames, tables and nodes. Nobody can name the space any more; a
    /// CPU that ran it may still hold translations, so those go first.
    fn drop(&mut self) {
        let vm = self.vm;
        vm.call();
        self.assert_inactive();
        let nr_emptied = vm.nr_blocks_emptied();
        vm.leave_family(self.frame, self.founder());
        self.tell_release();
        self.shootdown_and_wait(Flush::Space);
        let writer = &self.sole_writer();
        self.remove_all(writer);
        let _ = self.tree(writer).for_each(Self::user_range(), &mut |vma| {
            vm.object_put(&vma, vma.range.nr_pages());
            ControlFlow::Continue(())
        });
        self.tree(writer).pool_frames(&mut |pfn| vm.give_back(pfn, Fill::Raw));
        self.data.rss_frames().for_each(|frame| vm.give_back(frame, Fill::Raw));
        vm.give_up_space(self.frame, self.founder());
        vm.tell_of_blocks(nr_emptied);
    }
}
