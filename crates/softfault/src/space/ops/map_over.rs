//! mmap(2) over other mappings: both versions of the tree are ready before the first is published.
//!
//! ```text
//! prepare   without the old mappings │ with the new one │ nodes, members, claims      may fail: nothing has changed
//! commit    publish the first ─▶ the old pages go ─▶ publish the second               takes no frame
//! ```
//! The pool may be too small for the claims, and large enough with the old pages. Then the claims come last, after the old
//! pages have gone. A private mapping that replaces private ones of its pool has their claims, and those that their pages
//! become: others get none of them, and surplus pages do not go. Otherwise they are anybody's for a moment. The pool may
//! refuse again: the hole stays. No frame is missing at that point, so the writer lock is never dropped between the two
//! versions, and a fault in the range waits for the second one.
//!
//! Locks on entry: the writer lock.

use super::mmap_error::MmapError;
use crate::frame::Claim;
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::space::AddressSpace;
use crate::space::edit::TwoEdits;
use crate::space::lock::Writer;
use crate::space::tree::{Retired, Snapshot};
use crate::space::vma::Vma;
use crate::table::take::{Guards, Removal};
use core::ops::ControlFlow;

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
        let takes_claims = refused.is_some() && self.may_take_claims_over(writer, &vma);
        let (retired, second) = edits.publish_first();
        // Tables stay: the new mapping will need them, unless it has entries above level 0 only.
        let is_of_pool = self.vm.pool_of_vma(&vma).is_some();
        let kept = Removal::keeping_tables(vma.range, Guards::Remove);
        let removal = if is_of_pool { Removal { free_inside: vma.range, ..kept } } else { kept };
        let nr_claims = if takes_claims {
            self.finish_removal_for_claims(writer, &before, retired, &removal)
        } else {
            self.finish_removal(writer, &before, retired, &removal);
            0
        };
        // The object has had the nodes since the first time, and keeps them. It has none if the mapping was larger than what the
        // pool could have at all: then it is refused again, though the pool's limit may be higher by now.
        if let Some(refused) = refused.filter(|_| self.vm.reserve_more_for(&vma, None, nr_claims).is_err()) {
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

    /// As `finish_removal`, but claims of private mappings of one pool, and those that their pages become, are the caller's.
    /// Returns their number.
    fn finish_removal_for_claims(
        &self,
        writer: &Writer<'_, M>,
        before: &Snapshot<'vm, M>,
        retired: Retired<'vm, M>,
        removal: &Removal,
    ) -> u64 {
        let retired = self.with_deferred(writer, retired);
        self.wait_for_readers();
        // Places that have lost their pages say so until they are counted.
        let emptied = Removal::keeping_tables(removal.range, Guards::Keep);
        self.remove_pages_then(writer, &emptied, Why::Unmap, Claim::Reserved);
        let mut nr_claims = 0;
        self.for_each_claims(writer, before, removal.range, &mut |_, _, nr| nr_claims += nr);
        self.remove_pages(writer, removal, Why::Unmap);
        let _ = before.for_each(removal.range, &mut |vma| {
            self.put_object_pages(writer, &vma, vma.range.intersect(&removal.range).nr_pages());
            ControlFlow::Continue(())
        });
        retired.free();
        nr_claims
    }
}
