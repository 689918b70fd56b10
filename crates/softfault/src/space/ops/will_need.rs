//! `MADV_WILLNEED`: begins to read the pages of files that are missing.
//!
//! ```text
//! VMA of a file   section: the object is kept
//! outside         each missing folio: frames, if there are any ─▶ in transit ─▶ the machine    source/readahead.rs
//! ```
//! As read-ahead: errors are not reported, no memory is reclaimed for it, and it waits for no read that stays under way.
//! A machine that blocks in `fill` makes the caller wait for all of it.
//!
//! Locks on entry: none, no section.

use crate::addr::PageRange;
use crate::machine::Machine;
use crate::pace::Pace;
use crate::source::file::Ahead;
use crate::space::AddressSpace;
use crate::space::vma::ObjectId;

impl<M: Machine> AddressSpace<'_, M> {
    /// Begins to read the missing pages of the files that are mapped in the range.
    pub(super) fn will_need(&self, range: PageRange) {
        let mut at = range.start;
        let mut pace = Pace::new(&self.vm.machine);
        while at < range.end {
            pace.search();
            let (ahead, end) = {
                let section = self.section();
                let found = self.tree_in(section.inside()).next(at).map(|found| found.vma);
                let Some(vma) = found.filter(|vma| vma.range.start < range.end) else { return };
                let part = vma.range.intersect(&PageRange::new(at, range.end));
                let is_file = vma.object != ObjectId::NONE && self.vm.object_file(vma.object).is_some();
                let ahead = is_file.then(|| {
                    let first = vma.pgoff_of(part.start);
                    let end = (first + part.nr_pages()).min(self.vm.object_nr_pages(vma.object));
                    Ahead::of(self.vm.object_keep_found(section.inside(), vma.object), first..end)
                });
                (ahead, part.end)
            };
            self.vm.read_ahead(ahead);
            at = end;
        }
        // A machine that blocks has used frames.
        self.vm.reclaim_if_low();
    }
}
