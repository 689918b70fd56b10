//! mmap(2) over other mappings: both versions of the tree are ready before the first is published.
//!
//! ```text
//! prepare   without the old mappings │ with the new one │ nodes, members, claims      may fail: nothing has changed
//! commit    publish the first ─▶ the old pages go ─▶ publish the second               takes no frame
//! ```
//! The pool may be too small for the claims, and large enough with the old pages. Then the claims come last, after the old
//! pages have gone. The pool may refuse them again: the hole stays. No frame is missing at that point, so the writer lock is
//! never dropped between the two versions, and a fault in the range waits for the second one.
//!
//! Locks on entry: the writer lock.

use super::mmap_error::MmapError;
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::space::AddressSpace;
use crate::space::edit::TwoEdits;
use crate::space::lock::Writer;
use crate::space::vma::Vma;
use crate::table::take::{Guards, Removal};

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Replaces other mappings, in two versions of the tree: the new VMA is visible only after the
    /// old pages were removed. If the pool has `refused` the claims before, they are asked for between the two.
    ///
    /// # Errors
    ///
    /// `refused`, if the pool refuses again: the old mappings are gone.
    pub(super) fn put_over(
        &self,
        writer: &Writer<'_, M>,
        vma: Vma,
        edits: TwoEdits<'_, 'vm, M>,
        refused: Option<MmapError>,
    ) -> Result<(), MmapError> {
        let before = self.tree(writer).snapshot();
        let (retired, second) = edits.publish_first();
        // Tables stay: the new mapping will need them, unless it has entries above level 0 only.
        let is_of_pool = self.vm.pool_of_vma(&vma).is_some();
        let kept = Removal::keeping_tables(vma.range, Guards::Remove);
        let removal = if is_of_pool { Removal { free_inside: vma.range, ..kept } } else { kept };
        self.finish_removal(writer, &before, retired, &removal);
        // The object has had the nodes since the first time, and keeps them. It has none if the mapping was larger than what the
        // pool could have at all: then it is refused again, though the pool's limit may be higher by now.
        if let Some(refused) = refused.filter(|_| self.vm.reserve_for(&vma, None).is_err()) {
            drop(second);
            // Tables that nobody needs now.
            let hole = Removal { free_inside: self.hole_around(writer, vma.range), ..kept };
            self.remove_pages(writer, &hole, Why::Unmap);
            self.put_object_pages(writer, &vma, vma.range.nr_pages());
            return Err(refused);
        }
        let retired = second.publish();
        self.free_retired(writer, retired);
        Ok(())
    }
}
