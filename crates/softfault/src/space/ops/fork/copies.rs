//! Fork of a private mapping of an object.
//!
//! ```text
//! fork       cuts, size; copies below the end; fence; cuts again: they have changed? all over again,
//!            from then on counted in `nr_copying`
//! set_size   `resize`; fence; forks copying? `resize` is released, and it waits      ops/discard.rs
//!            size, cuts; fence, grace; a walk that drops copies beyond the end       rmap/copies.rs
//! ```
//! The child's VMAs have joined the object before. Copies below the end that was read are copied.
//! If a size became smaller before the first look, its end was read, or its walk was over when the
//! object grew again. If one becomes smaller after the last look, its walk comes after the copies and
//! drops those of the child. One between the two may have walked over the child before its entries
//! came and over the parent after they were copied: then the child's go, and are copied again.
//!
//! **Three copies are enough.** After the first one fork is counted, and fences. A smaller size that has looked before that
//! fence may still raise the cuts; those that look later wait. They look under `resize`. So of two that have looked before, the
//! first was over when the second looked, and fork's second copy finds its cut. One cut is left: it spoils the second copy or none.
//!
//! **A hole in an object of a pool** drops copies, too (`space/ops/pool_hole.rs`), and moves no end that fork could read. So it counts as a
//! smaller size, and a fork that has read that count waits, itself counted, until the hole has dropped all copies. A copy that begins
//! after the wait is of what the hole has left; one that began before the count is dropped by the walk, or finds the count changed.
//!
//! Locks on entry: the parent's writer lock, no section. Fork holds frames, so it cannot wait for
//! `resize`, whose holder may wait for frames. It may wait for a hole in an object of a pool, which takes no frame and no writer lock
//! while it drops copies. A smaller size, or such a hole, waits for fork with nothing held, before it begins.

use super::Wanted;
use super::child::Child;
use crate::addr::{PageRange, Vpn};
use crate::frame::{FrameKind, OutOfFrames};
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::source::object::ObjectData;
use crate::space::AddressSpace;
use crate::space::lock::Writer;
use crate::space::vma::Vma;
use crate::sync::{self, Ordering};
use crate::table::format::Leaf;
use crate::table::take::{Guards, Removal};

/// No smaller size of an object begins until this is dropped.
struct CountedFork<'a, M: Machine> {
    object: &'a ObjectData,
    machine: &'a M,
}

impl<'a, M: Machine> CountedFork<'a, M> {
    fn begin(object: &'a ObjectData, machine: &'a M) -> CountedFork<'a, M> {
        object.nr_copying.fetch_add(1, Ordering::AcqRel);
        sync::fence();
        CountedFork { object, machine }
    }
}

impl<M: Machine> Drop for CountedFork<'_, M> {
    fn drop(&mut self) {
        self.object.nr_copying.fetch_sub(1, Ordering::AcqRel);
        self.machine.unpark(&self.object.nr_copying);
    }
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Shares the private copies of the mapping, as they were at one moment between two sizes.
    pub(super) fn copy_private(
        &self,
        writer: &Writer<'_, M>,
        child: &mut Child<'_, 'vm, M>,
        vma: &Vma,
        write_protected: &mut bool,
    ) -> Result<(), OutOfFrames> {
        let object = self.vm.object(vma.object);
        let mut copying = None;
        loop {
            let before = object.nr_cuts.load(Ordering::Acquire);
            if object.is_dropping.load(Ordering::Acquire) != 0 {
                // Counted before it sleeps: else one hole might begin after the other.
                copying.get_or_insert_with(|| CountedFork::begin(object, &self.vm.machine));
                self.wait_for_hole(object);
            }
            let nr_below = self.vm.object_nr_pages(vma.object).saturating_sub(vma.pgoff);
            // A page of a pool that lies below the end in part is kept whole.
            let nr_below = nr_below.next_multiple_of(self.vm.nr_pages_per_page(vma)).min(vma.range.nr_pages());
            let below = PageRange::new(vma.range.start, Vpn(vma.range.start.0 + nr_below));
            if let Some(pool) = self.vm.private_pool_of_vma(vma) {
                self.share_pool(writer, child, (vma, pool, below), write_protected)?;
            } else {
                self.copy_range(writer, child, below, Wanted::Copies, write_protected)?;
                let beyond = PageRange::new(below.end, vma.range.end);
                self.copy_range(writer, child, beyond, Wanted::Guards, write_protected)?;
            }
            sync::fence();
            if object.nr_cuts.load(Ordering::Relaxed) == before {
                return Ok(());
            }
            copying.get_or_insert_with(|| CountedFork::begin(object, &self.vm.machine));
            let removal = Removal::keeping_tables(vma.range, Guards::Remove);
            child.space.remove_pages(&child.writer, &removal, Why::Discard);
        }
    }

    /// Sleeps until no hole drops copies. One that begins later is counted after `nr_cuts` was read.
    fn wait_for_hole(&self, object: &ObjectData) {
        while object.is_dropping.load(Ordering::Acquire) != 0 {
            self.vm.machine.park(&object.is_dropping, 1);
        }
    }

    /// Whether an entry that the caller owns names a page of an object.
    pub(super) fn is_of_object(&self, leaf: Leaf) -> bool {
        self.vm.frames.head_desc(leaf.pfn).state().kind() == FrameKind::Shared
    }
}
