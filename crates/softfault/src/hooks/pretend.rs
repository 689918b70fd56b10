//! Counts of mappings that no entry stands behind.
//!
//! For tests of what happens at the limit: no memory has room for so many entries.
#![allow(unsafe_code)] // the promise is the caller's; nothing here dereferences anything

use crate::addr::Pfn;
use crate::frame::{FrameKind, MAP_ONE};
use crate::machine::Machine;
use crate::space::Vm;
use crate::sync::Ordering;

impl<M: Machine> Vm<M> {
    /// Adds to the count of mappings of a page, or of the huge page that the frame is
    /// part of, as if there were so many more entries; a negative number takes them
    /// back. Call it at rest.
    ///
    /// ```compile_fail,E0133
    /// # use softfault::{Machine, Pfn, Vm};
    /// fn free_a_mapped_frame<M: Machine>(vm: &Vm<M>, pfn: Pfn) {
    ///     vm.pretend_mappings(pfn, -1);
    /// }
    /// ```
    ///
    /// # Safety
    ///
    /// I13, I14: the frame is a private page. Its count never
    /// falls below the number of entries that map it, and never exceeds
    /// [`MAX_MAPPINGS`](Self::MAX_MAPPINGS). The caller takes back what it added
    /// before the last of these entries goes.
    pub unsafe fn pretend_mappings(&self, pfn: Pfn, nr: i64) {
        let folio = self.frames.folio(pfn);
        let is_huge = folio.state().kind() == FrameKind::Anon && self.is_part(pfn);
        let word = if is_huge { &folio.state } else { &self.frames.desc(pfn).state };
        word.fetch_add((nr as u64).wrapping_mul(MAP_ONE), Ordering::AcqRel);
    }
}
