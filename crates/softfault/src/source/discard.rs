//! How pages leave an object that lives on: shrinking, punching holes.
//!
//! ```text
//! size     stored first, when it shrinks; after a grace period nobody puts a
//!          page in beyond it
//! remove   the words are emptied; the frames hang together by their links
//! grace    of all CPUs: a section that had read a word has ended, and what it
//!          did with the frame is done: it is mapped, or it is not
//! orphan   a frame that no entry maps is freed; one that is mapped still is
//!          freed by whoever drops its last entry. One word, the frame's state,
//!          decides between them
//! ```
//! Mappings are not looked for here: an object does not know its VMAs. Until the
//! embedder has called `zap_object` for each space, those who had a page mapped
//! keep seeing it, and nobody else does.
//!
//! Locks on entry: none, no section. Takes the object's `resize`, under which
//! nothing is taken but sections.

use super::object::MAX_OBJECT_BYTES;
use crate::addr::{ObjectPages, OptPfn, PAGE_SIZE, Pfn};
use crate::frame::FreeBatch;
use crate::links::Links;
use crate::lock::lock_word;
use crate::machine::{CpuSet, Machine};
use crate::pace::Pace;
use crate::program;
use crate::space::vma::ObjectId;
use crate::sync::Ordering;
use core::ops::{ControlFlow, Range};

/// Frames that were taken out of an object, from link to link.
struct Chain<'a, M: Machine> {
    links: &'a Links<M>,
    first: OptPfn,
}

impl<M: Machine> Chain<'_, M> {
    fn push(&mut self, pfn: Pfn) {
        self.links.frames.desc(pfn).link.set(self.first.to_word());
        self.first = OptPfn::some(pfn);
    }

    /// After the grace period: frees what is mapped nowhere.
    fn release(self) {
        let mut batch = FreeBatch::new(self.links);
        let mut at = self.first;
        let mut pace = Pace::new(&self.links.machine);
        while let Some(pfn) = at.get() {
            pace.step();
            let desc = self.links.frames.desc(pfn);
            at = OptPfn::from_word(desc.link.get());
            // Before the frame is given up: whoever has it next wants a zero there.
            desc.link.set(0);
            if desc.orphan() {
                batch.add(pfn);
            }
        }
    }
}

impl<M: Machine> Links<M> {
    pub(crate) fn object_set_size(&self, id: ObjectId, size_bytes: u64) {
        self.assert_outside();
        let size_bytes = size_bytes.min(MAX_OBJECT_BYTES);
        let data = self.object(id);
        let _resize = lock_word(&data.resize, &self.machine);
        let old_bytes = data.size_bytes.get();
        if size_bytes > old_bytes {
            // What a mapping wrote past the old end, in its last page.
            self.object_zero(id, old_bytes..old_bytes.next_multiple_of(PAGE_SIZE));
            data.size_bytes.store(size_bytes, Ordering::Release);
        } else if size_bytes < old_bytes {
            data.size_bytes.store(size_bytes, Ordering::Release);
            self.grace_everywhere();
            self.object_zero(id, size_bytes..size_bytes.next_multiple_of(PAGE_SIZE));
            self.remove_from(id, (size_bytes.div_ceil(PAGE_SIZE)..old_bytes.div_ceil(PAGE_SIZE)).into());
        }
    }

    pub(crate) fn object_discard(&self, id: ObjectId, pages: ObjectPages) {
        self.assert_outside();
        let _resize = lock_word(&self.object(id).resize, &self.machine);
        self.remove_from(id, pages.below(self.object_nr_pages(id)));
    }

    /// Zeroes bytes of one page, if it is there.
    pub(crate) fn object_zero(&self, id: ObjectId, bytes: Range<u64>) {
        if bytes.is_empty() {
            return;
        }
        let section = self.section();
        if let Some(pfn) = self.object_slot(section.inside(), id, bytes.start / PAGE_SIZE).frame() {
            program::zero(&self.machine, pfn, (bytes.start % PAGE_SIZE) as usize, (bytes.end - bytes.start) as usize);
        }
    }

    /// Under `resize`: one remover at a time, so that a frame is in one chain.
    fn remove_from(&self, id: ObjectId, pages: ObjectPages) {
        let mut chain = Chain { links: self, first: OptPfn::NONE };
        let _ = self.for_each_page(id, pages, &mut |_, word| {
            if let Some(pfn) = OptPfn::from_word(word.swap(0, Ordering::AcqRel)).get() {
                chain.push(pfn);
            }
            ControlFlow::Continue(())
        });
        if chain.first != OptPfn::NONE {
            self.grace_everywhere();
            chain.release();
        }
    }

    /// Any CPU may be looking at an object, whichever space it runs.
    fn grace_everywhere(&self) {
        self.grace(&CpuSet::first(self.machine.nr_cpus()));
    }
}
