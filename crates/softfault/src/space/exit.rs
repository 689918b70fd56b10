//! The end of an address space, whole.

use super::AddressSpace;
use super::lock::Writer;
use crate::frame::Fill;
use crate::lock::lock_word;
use crate::machine::{Flush, LockKind, Machine};
use crate::notify::notice::Why;
use crate::table::take::{Guards, Removal};
use core::ops::ControlFlow;

impl<M: Machine> Drop for AddressSpace<'_, M> {
    /// Frees all frames, tables and nodes. Nobody can name the space any more. A CPU that ran it
    /// may still hold translations, so those are invalidated first.
    fn drop(&mut self) {
        let vm = self.vm;
        vm.call();
        self.assert_inactive();
        let nr_emptied = vm.nr_blocks_emptied();
        // Still in the family: who takes a page of a pool from others would wait for an entry that it does not find, and
        // the holder of `resize`, for which this waits, may wait for that CPU.
        self.leave_pools(&self.sole_writer());
        vm.leave_family(self.frame, self.founder());
        self.leave_objects();
        self.tell_release();
        self.shootdown_and_wait(Flush::Space);
        let writer = &self.sole_writer();
        self.remove_all(writer);
        let _ = self.tree(writer).for_each(Self::user_range(), &mut |vma| {
            vm.object_put(&vma, vma.range.nr_pages());
            ControlFlow::Continue(())
        });
        self.free_members(writer);
        self.tree(writer).pool_frames(&mut |pfn| vm.give_back(pfn, Fill::Raw));
        self.data.rss_frames().for_each(|frame| vm.give_back(frame, Fill::Raw));
        vm.give_up_space(self.frame, self.founder());
        vm.tell_of_blocks(nr_emptied);
    }
}

impl<M: Machine> AddressSpace<'_, M> {
    /// Ends visits. While objects are mapped, others may be walking the tables for their pages. So
    /// everything is removed as by munmap(2), which waits for them. After that no new visitor can
    /// come, but a visitor of a member that left earlier may still be here.
    fn leave_objects(&self) {
        let writer = &self.sole_writer();
        if self.nr_members(writer) > 0 {
            let all = Removal { range: Self::user_range(), free_inside: Self::table_range(), guards: Guards::Remove };
            self.remove_pages(writer, &all, Why::Unmap);
            self.leave_all_members(writer);
        }
        self.wait_for_visitors();
    }

    /// Empties the private mappings of pools, and ends their claims: of a space that ends. A smaller size of an object may
    /// find them still, so it waits meanwhile.
    fn leave_pools(&self, writer: &Writer<'_, M>) {
        if !self.maps_pools() {
            return;
        }
        let tree = self.tree(writer).snapshot();
        let _ = tree.for_each(Self::user_range(), &mut |vma| {
            if self.is_private_of_pool(&vma) {
                let _resize = lock_word(LockKind::ObjectResize, &self.vm.object(vma.object).resize, &self.vm.machine);
                self.end_claims_in(writer, &tree, vma.range);
                self.remove_pages(writer, &Removal::keeping_tables(vma.range, Guards::Remove), Why::Unmap);
            }
            ControlFlow::Continue(())
        });
    }
}
