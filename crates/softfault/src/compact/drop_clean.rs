//! Drops folios of files that are clean: the files have their content.
//!
//! ```text
//! scan    blocks, from where the last call ended, once there has been a file
//! folio   of a file, up to date, clean, without pins? no mapping locks it?      else: the next one
//!         mark, grace, unmap                            as for a move: object.rs
//!         is a pin left? is it dirty, or locked now?    else: as it was
//!         words: nothing ─▶ the frames are free
//! ```
//! `space/reclaim.rs` calls this before an allocation is refused, and when memory is low; the allocator never does. It
//! allocates nothing. A fault on the page reads it again.
//!
//! Each folio waits for a grace period of all CPUs of its own.
//!
//! Locks on entry: none, no section. Takes the locks of the object's shards.

use crate::account::Event;
use crate::addr::{BLOCK_FRAMES, BlockId, ObjectPages, Order, Pfn};
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::pace::Pace;
use crate::source::keep::KeptObject;
use crate::source::slot::PageFrame;
use crate::space::Vm;
use crate::sync::Ordering;

/// Frames that a refusal of one frame frees at most: the next refusal goes on.
const MOST_AT_A_TIME: u64 = 512;

impl<M: Machine> Vm<M> {
    /// Drops clean folios until so many frames are free, or a few hundred, or so many blocks were searched. Returns the number of
    /// frames freed.
    pub(crate) fn drop_clean_until(&self, nr_blocks: u64, nr_frames: u64) -> u64 {
        self.assert_outside();
        if self.has_files.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let blocks = &self.frames.blocks;
        let (nr_frames, mut nr_freed) = (nr_frames.min(MOST_AT_A_TIME), 0);
        let mut pace = Pace::new(&self.machine);
        for _ in 0..nr_blocks.min(blocks.nr()) {
            if nr_freed >= nr_frames {
                break;
            }
            pace.step();
            let b = blocks.around(self.clean_cursor.fetch_add(1, Ordering::Relaxed));
            if blocks.is_there(b) {
                nr_freed += self.drop_clean_in(b);
            }
        }
        nr_freed
    }

    fn drop_clean_in(&self, b: BlockId) -> u64 {
        let mut pace = Pace::new(&self.machine);
        let first = b.first_frame().0;
        let mut nr_freed = 0;
        for pfn in (first..first + BLOCK_FRAMES as u32).map(Pfn) {
            pace.step();
            if self.frames.desc(pfn).state().is_clean_folio() {
                nr_freed += self.drop_clean_folio(pfn).unwrap_or(0);
            }
        }
        nr_freed
    }

    /// Drops the folio with that head, if that can be; its number of frames.
    fn drop_clean_folio(&self, head: Pfn) -> Option<u64> {
        let (object, first) = self.object_of(head)?;
        self.object_file(object.id)?;
        // It may be another one by now; the words decide.
        let frame = PageFrame { pfn: head, order: self.frames.desc(head).state().order() };
        let is_small = frame.order < Order::PMD && self.frames.desc(head).state().is_clean_folio();
        if !is_small || self.is_locked_in(&object, first, frame.order) || !self.object_begin_move(&object, first, frame)
        {
            return None;
        }
        self.grace_everywhere();
        // Exact after the grace period.
        if self.frames.desc(head).state().was_mapped() {
            let pages = ObjectPages { start: first, end: first + frame.order.nr_pages() };
            self.unmap_object_pages(object.id, pages, Why::Discard);
        }
        let is_free =
            self.frames.desc(head).state().is_clean_folio() && !self.is_locked_in(&object, first, frame.order);
        if !is_free || !self.object_end_dropped(&object, first, frame) {
            self.object_end_move(&object, first, frame);
            return None;
        }
        self.give_back_page(head);
        self.count(Event::FileDropped, frame.order.nr_pages());
        Some(frame.order.nr_pages())
    }

    /// Whether a mapping locks one of the pages.
    fn is_locked_in(&self, object: &KeptObject<'_, M>, first: u64, order: Order) -> bool {
        let has_members = self.object(object.id).nr_members.load(Ordering::Acquire) > 0;
        has_members && (first..first + order.nr_pages()).any(|page| self.any_mapping_locks(object.id, page))
    }
}
