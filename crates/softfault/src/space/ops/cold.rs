//! `MADV_COLD` and `MADV_PAGEOUT`: pages of files that the program does not need for now.
//!
//! ```text
//! COLD       writer lock: accessed bits and the folios' use are forgotten ─▶ the clock drops them next
//! PAGEOUT    the same; then, with nothing held: dirty folios are written, clean ones dropped      compact/page_out.rs
//! ```
//! Private copies and memory without a file stay as they are.
//!
//! Locks on entry: the writer lock to forget uses; none to page out.

use crate::addr::PageRange;
use crate::frame::FrameKind;
use crate::machine::{Flush, Machine};
use crate::space::AddressSpace;
use crate::space::lock::Writer;
use crate::space::vma::{ObjectId, Vma};
use crate::table::format::Entry;
use crate::table::take::Next;

impl<M: Machine> AddressSpace<'_, M> {
    /// Forgets that the program has used the pages of files in a part of a VMA.
    pub(super) fn forget_uses(&self, writer: &Writer<'_, M>, vma: &Vma, part: PageRange) {
        if vma.object == ObjectId::NONE || self.vm.object_file(vma.object).is_none() {
            return;
        }
        let frames = &self.vm.frames;
        let mut found = false;
        let _ = self.for_each_entry(writer, part, &mut |_, slot| {
            let seen = slot.observe();
            let leaf = match seen.entry {
                Entry::Leaf(leaf) => leaf,
                Entry::Table(_) => return Next::Again,
                _ => return Next::GoOn,
            };
            let desc = frames.desc(frames.head(leaf.pfn));
            if desc.state().kind() == FrameKind::Shared {
                // One that has changed is in use.
                found |= leaf.accessed && self.forget_accessed(self.section().inside(), slot, seen).is_ok();
                desc.forget_use(desc.state());
            }
            Next::GoOn
        });
        if found {
            self.shootdown(Flush::Pages(part));
        }
    }

    /// Drops the pages of files in the range.
    pub(super) fn page_out_files(&self, range: PageRange) {
        self.for_each_file(range, &mut |object, file, pages| {
            (self.vm.reclaim.page_out)(self.vm, object.id, file, pages)
        });
    }
}
