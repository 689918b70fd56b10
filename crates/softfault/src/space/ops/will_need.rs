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

use crate::addr::{ObjectPages, PageRange};
use crate::machine::{FileId, Machine};
use crate::pace::Pace;
use crate::source::file::Ahead;
use crate::source::keep::KeptObject;
use crate::space::AddressSpace;
use crate::space::vma::ObjectId;

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Begins to read the missing pages of the files that are mapped in the range.
    pub(super) fn will_need(&self, range: PageRange) {
        self.for_each_file(range, &mut |object, _, pages| {
            let end = pages.end.min(self.vm.object_nr_pages(object.id));
            self.vm.read_ahead(Some(Ahead::of(object, pages.start..end)));
        });
        // A machine that blocks has used frames.
        self.vm.reclaim_if_low();
    }

    /// Calls `f`, with nothing held, for each VMA of a file in the range: the object, its file and the pages.
    pub(super) fn for_each_file(&self, range: PageRange, f: &mut dyn FnMut(KeptObject<'vm, M>, FileId, ObjectPages)) {
        let mut at = range.start;
        let mut pace = Pace::new(&self.vm.machine);
        while at < range.end {
            pace.search();
            let (found, end) = {
                let section = self.section();
                let found = self.tree_in(section.inside()).next(at).map(|found| found.vma);
                let Some(vma) = found.filter(|vma| vma.range.start < range.end) else { return };
                let part = vma.range.intersect(&PageRange::new(at, range.end));
                let id = Some(vma.object).filter(|id| *id != ObjectId::NONE);
                let found = id.and_then(|id| self.vm.object_file(id)).map(|file| {
                    let start = vma.pgoff_of(part.start);
                    let object = self.vm.object_keep_found(section.inside(), vma.object);
                    (object, file, ObjectPages { start, end: start + part.nr_pages() })
                });
                (found, part.end)
            };
            if let Some((object, file, pages)) = found {
                f(object, file, pages);
            }
            at = end;
        }
    }
}
