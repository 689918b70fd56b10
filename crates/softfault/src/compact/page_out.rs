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
        self.begin_writes(&self.keep_object(id), file, pages);
        self.drop_clean_pages(id, pages, Chance::DropUnlessUsed, &mut Pass::advised());
    }

    /// Drops clean folios that begin in these pages; unless they are used, those that lie in them whole, and the caller's
    /// own uses are forgotten. Returns the number of frames freed.
    pub(super) fn drop_clean_pages(&self, id: ObjectId, pages: ObjectPages, chance: Chance, pass: &mut Pass) -> u64 {
        let nr_pages = self.object_nr_pages(id);
        let is_advised = chance == Chance::DropUnlessUsed;
        let mut batch = DropBatch::new(self);
        let (mut skip_to, mut nr_freed) = (pages.start, 0);
        let _ = self.for_each_page(id, pages, &mut |index, slot| {
            let ObjectPage::Frame(frame) = slot.page() else { return ControlFlow::Continue(()) };
            let folio = around(index, frame.order);
            let is_outside = folio.start < pages.start || is_advised && folio.end.min(nr_pages) > pages.end;
            if index < skip_to || is_outside {
                return ControlFlow::Continue(());
            }
            skip_to = folio.end;
            let head = PageFrame { pfn: frame.head(), ..frame };
            let (object, desc) = (self.keep_object(id), self.frames.desc(head.pfn));
            if is_advised {
                // Those of the caller where the folio was dirty, or where it has a copy.
                desc.forget_use(desc.state());
            }
            if desc.state().is_clean_folio() && self.object_begin_move(&object, folio.start, head) {
                batch.add(object, folio.start, head, chance);
            }
            if batch.is_full() {
                nr_freed += batch.run(pass);
            }
            ControlFlow::Continue(())
        });
        nr_freed + batch.run(pass)
    }
}
