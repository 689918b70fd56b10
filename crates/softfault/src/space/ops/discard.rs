//! Discards pages of a live object: when it shrinks, or for a hole.
//!
//! ```text
//! forks    that copy a second time are waited for, when it shrinks         fork/copies.rs
//! size     stored first, when it shrinks; after a grace period nobody puts a page in
//!          beyond it
//! claims   of missing pages of a pool beyond a smaller size end; a hole keeps them   source/reserved.rs
//! nodes    for folios that will be cut; a folio without one stays whole   source/cut_nodes.rs
//! bar      each page is marked as leaving: faults on it wait          source/discard.rs
//! grace    of all CPUs: every fault that had found a page unmarked has ended;
//!          then moves of these pages that had begun before are waited for
//! unmap    every entry of each space that may map one                 rmap/object.rs
//! free     the words are emptied; frames that nothing pins go         source/discard.rs
//! copies   of pages beyond a smaller size; a hole keeps them          rmap/copies.rs
//!          but in an object of a pool, before its pages are free      pool_hole.rs
//! calls    of the machine that write what has gone are waited for, with nothing held     source/late_calls.rs
//! ```
//! A page never has two frames at a time: until every entry is removed, no fault gets a new frame.
//! A fault on the page spins, as for an entry that is `Busy`: the remover waits only for sections,
//! shootdowns and such entries, and never sleeps.
//!
//! Locks on entry: none, no section. Takes the object's `resize`. Under it, frames for nodes are
//! obtained before any page is marked. After that only the locks of its shards and sections are
//! taken.

use super::pool_hole::PoolHole;
use crate::addr::{ObjectPages, Order, PAGE_SIZE};
use crate::lock::{WordLock, lock_word};
use crate::machine::{CpuSet, LockKind, Machine};
use crate::notify::notice::Why;
use crate::pace;
use crate::source::late_calls::{AwaitedCalls, CalledFolio};
use crate::source::object::{MAX_OBJECT_BYTES, ObjectData};
use crate::source::zero::{Zeroed, ZeroedBytes};
use crate::space::Vm;
use crate::space::vma::ObjectId;
use crate::sync::{self, Ordering};
use core::ops::Range;

/// Pages that are discarded in one grace period: 128 MiB. Faults on them wait meanwhile. A guess.
const MOST_AT_ONCE: u64 = 1 << 15;

impl<M: Machine> Vm<M> {
    pub(crate) fn object_set_size(&self, id: ObjectId, size_bytes: u64) {
        self.assert_outside();
        let size_bytes = size_bytes.min(MAX_OBJECT_BYTES);
        let data = self.object(id);
        let resize = self.lock_to_drop_copies(data, &|| size_bytes < data.size_bytes.get());
        let foreign = self.foreign_frames_of(id);
        let size_bytes = size_bytes.min(foreign.map_or(u64::MAX, |frames| frames.nr_frames * PAGE_SIZE));
        let old_bytes = data.size_bytes.get();
        if size_bytes > old_bytes {
            // No removal, so it waits for no call.
            return self.grow_from(id, old_bytes, size_bytes);
        }
        // Of the page of which a part stays, too. The same size waits as well: it may be a second removal.
        let mut awaited = self.begin_to_await(id, ObjectPages { start: size_bytes / PAGE_SIZE, ..ObjectPages::ALL });
        if size_bytes < old_bytes {
            // To the end of all pages: folios may reach beyond the old size, too.
            let beyond = ObjectPages::from(size_bytes.div_ceil(PAGE_SIZE)..ObjectPages::ALL.end);
            data.size_bytes.store(size_bytes, Ordering::Release);
            // After the size, before the walk over mappings: see `fork`.
            data.nr_cuts.fetch_add(1, Ordering::AcqRel);
            sync::fence();
            self.grace_everywhere();
            awaited.add_zeroed(self.zero_to_the_end(id, size_bytes, ZeroedBytes::Content));
            self.unreserve_pages(id, beyond);
            self.remove_from(id, beyond, &mut awaited, None);
            if let Some(frames) = foreign {
                self.unmap_object_pages(id, beyond.below(frames.nr_frames), Why::Discard);
            }
            // A VMA is counted before a fault can make a copy in it.
            if data.nr_private.load(Ordering::Acquire) != 0 {
                self.drop_copies(id, beyond);
            }
        }
        drop(resize);
        self.wait_for_calls(id, awaited);
    }

    /// Makes the object that large, unless it is larger.
    pub(crate) fn object_grow(&self, id: ObjectId, size_bytes: u64) {
        self.assert_outside();
        let data = self.object(id);
        let _resize = lock_word(LockKind::ObjectResize, &data.resize, &self.machine);
        let old_bytes = data.size_bytes.get();
        if size_bytes > old_bytes && self.foreign_frames_of(id).is_none() {
            self.grow_from(id, old_bytes, size_bytes.min(MAX_OBJECT_BYTES));
        }
    }

    /// Makes the object larger. The caller holds `resize`.
    fn grow_from(&self, id: ObjectId, old_bytes: u64, size_bytes: u64) {
        // A mapping may have written past the old end, in its last page. No call has bytes behind the end, save one for which a
        // removal waits: the caller makes the object larger when the removal has returned.
        let _ = self.zero_to_the_end(id, old_bytes, ZeroedBytes::BehindEnd);
        self.zero_beyond(id, old_bytes.div_ceil(PAGE_SIZE));
        self.object(id).size_bytes.store(size_bytes, Ordering::Release);
    }

    /// Takes `resize`. A smaller size, or a hole in an object of a pool, waits for forks that another one has made copy again: then they
    /// end. `drops` is asked under the lock whether private copies may go.
    fn lock_to_drop_copies<'a>(&'a self, data: &'a ObjectData, drops: &dyn Fn() -> bool) -> WordLock<'a, M> {
        loop {
            let resize = lock_word(LockKind::ObjectResize, &data.resize, &self.machine);
            if !drops() {
                return resize;
            }
            // A fork that is not seen here sees each cut that was made before.
            sync::fence();
            let nr_copying = data.nr_copying.load(Ordering::Acquire);
            if nr_copying == 0 {
                return resize;
            }
            // Nothing is held: the fork may wait for frames.
            drop(resize);
            self.machine.park(&data.nr_copying, nr_copying);
        }
    }

    /// Zeroes the rest of the page from `first_byte` on. A page that is swapped out need not be read
    /// for that.
    fn zero_to_the_end(&self, id: ObjectId, first_byte: u64, are: ZeroedBytes) -> Option<CalledFolio> {
        let zeroed = self.object_zero(id, first_byte..first_byte.next_multiple_of(PAGE_SIZE), are);
        debug_assert!(zeroed.is_ok(), "the end of a page need not be read");
        match zeroed {
            Ok(Zeroed::There(called)) => called,
            _ => None,
        }
    }

    /// Zeroes the pages beyond the end of folios that reach beyond it: folios of the least size, and
    /// folios that were pinned when the object shrank. The holder of the pin may have written there
    /// since.
    fn zero_beyond(&self, id: ObjectId, first: u64) {
        let mut rest = ObjectPages { start: first, ..ObjectPages::ALL };
        while let Some(page) = self.object_next_page(id, rest) {
            pace::answer(&self.machine);
            let bytes = page * PAGE_SIZE..(page + 1) * PAGE_SIZE;
            let zeroed = self.object_zero(id, bytes, ZeroedBytes::BehindEnd);
            debug_assert!(zeroed.is_ok(), "whole pages need not be read");
            rest.start = page + 1;
        }
    }

    /// Returns the pages that have left, or were missing.
    pub(crate) fn object_discard(&self, id: ObjectId, pages: ObjectPages) -> Range<u64> {
        self.assert_outside();
        let resize = self.lock_to_drop_copies(self.object(id), &|| self.object_pool(id).is_some());
        self.fence_reads(id);
        let mut awaited = self.begin_to_await(id, pages);
        let mut hole = self.begin_pool_hole(id, pages);
        self.remove_from(id, pages, &mut awaited, hole.as_mut());
        drop(hole);
        drop(resize);
        self.wait_for_calls(id, awaited)
    }

    /// Removes the pages, part by part, with the private copies of a `hole`. The caller holds `resize`: one remover at a time. It waits
    /// for the calls when it holds nothing.
    fn remove_from(
        &self,
        id: ObjectId,
        mut rest: ObjectPages,
        awaited: &mut AwaitedCalls,
        mut hole: Option<&mut PoolHole<'_, M>>,
    ) {
        let mut drop_copies_to = |end| hole.iter_mut().for_each(|hole| hole.drop_copies_to(end));
        while let Some(first) = self.object_next_page(id, rest) {
            let part = ObjectPages { start: first, end: self.end_of_part(id, first).min(rest.end) };
            // Those before the part wait for no bar, and no fault waits for them.
            drop_copies_to(first);
            let mut nodes = self.object_cut_nodes(id, part);
            let barred = self.object_bar(id, part);
            self.grace_everywhere();
            self.wait_for_moves(id, barred);
            if self.object_was_mapped(id, barred) {
                self.unmap_object_pages(id, barred, Why::Discard);
            }
            // While faults on these pages wait: a store after the hole is not dropped, and a copy of what goes does not stay.
            drop_copies_to(part.end);
            self.object_free(id, part, barred, &mut nodes, awaited);
            rest.start = part.end;
        }
        drop_copies_to(rest.end);
    }

    /// Returns the end of the part that begins with page `first`, so that no folio is in two parts.
    /// A folio of 1 GiB is discarded as a whole, and faults on it wait for all of it.
    fn end_of_part(&self, id: ObjectId, first: u64) -> u64 {
        let end = up_to(first.saturating_add(MOST_AT_ONCE), Order::PMD);
        self.end_of_folios(id, end)
    }

    /// The end of a part that ends there, or behind it if a folio of 1 GiB does.
    pub(crate) fn end_of_folios(&self, id: ObjectId, end: u64) -> u64 {
        if self.may_lie_in_large_folio(id, end) { up_to(end, Order::PUD) } else { end }
    }

    /// Waits for a grace period of all CPUs: any of them may be reading an object, whichever space
    /// it runs.
    pub(crate) fn grace_everywhere(&self) {
        self.grace(&CpuSet::first(self.machine.nr_cpus()));
    }
}

/// The next multiple of the order from there on.
fn up_to(end: u64, order: Order) -> u64 {
    end.saturating_add(order.nr_pages() - 1) & !(order.nr_pages() - 1)
}
