//! `MADV_PAGEOUT` of pages of files: they are dropped now, and not when the clock comes to them.
//!
//! ```text
//! begin    dirty folios are written; those whose write stays under way are left     space/ops/write_back.rs
//! batch    folios inside the range are marked, unmapped and dropped together        drop_batch.rs
//! end      pinned, locked, dirty, or used by another program since the last look: it stays
//! ```
//! The caller has forgotten its own uses (`space/ops/cold.rs`), so a folio that still shows one is somebody else's. Linux
//! leaves the folios that more than one program maps, used or not. Pages of an object with many mappings are left, as the clock leaves
//! them: the cost of a call does not grow with the programs that map a file.
//!
//! Locks on entry: none, no section. Takes the locks of the object's shards.

use super::drop_batch::DropBatch;
use crate::addr::ObjectPages;
use crate::machine::{FileId, Machine};
use crate::policy::folio::around;
use crate::policy::second_chance::{Chance, Pass, may_be_visited};
use crate::source::slot::{ObjectPage, PageFrame};
use crate::space::Vm;
use crate::space::vma::ObjectId;
use crate::sync::Ordering;
use core::ops::ControlFlow;

impl<M: Machine> Vm<M> {
    /// Drops folios of a file inside these pages. The caller has something that keeps the object.
    pub(crate) fn page_out(&self, id: ObjectId, file: FileId, pages: ObjectPages) {
        self.assert_outside();
        if !self.has_file_objects() || !may_be_visited(self.object(id).nr_members.load(Ordering::Relaxed)) {
            return;
        }
        let _nr_begun = self.begin_writes(&self.keep_object(id), file, pages, &|| ());
        let nr_pages = self.object_nr_pages(id);
        let mut batch = DropBatch::new(self);
        let mut skip_to = pages.start;
        let _ = self.for_each_page(id, pages, &mut |index, slot| {
            let ObjectPage::Frame(frame) = slot.page() else { return ControlFlow::Continue(()) };
            let folio = around(index, frame.order);
            if index < skip_to || folio.start < pages.start || folio.end.min(nr_pages) > pages.end {
                return ControlFlow::Continue(());
            }
            skip_to = folio.end;
            let head = PageFrame { pfn: frame.head(), ..frame };
            let (object, desc) = (self.keep_object(id), self.frames.desc(head.pfn));
            // Those of the caller where the folio was dirty, or where it has a copy.
            desc.forget_use(desc.state());
            if desc.state().is_clean_folio() && self.object_begin_move(&object, folio.start, head) {
                batch.add(object, folio.start, head, Chance::DropUnlessUsed);
            }
            if batch.is_full() {
                batch.run(&mut Pass::advised());
            }
            ControlFlow::Continue(())
        });
        batch.run(&mut Pass::advised());
    }
}
