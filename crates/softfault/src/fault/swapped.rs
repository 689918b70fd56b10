//! A page that was swapped out comes back.
//!
//! ```text
//! attempt   the entry names a slot; a frame was obtained
//! outside   the slot: one reader more ─▶ copy, if its frame is there still; else the machine reads
//! section   VMA, rights and entry again: it names the slot still? ─▶ the page
//! outside   the slot: one reader less, and one entry less if it has changed
//! ```
//! A reader keeps the slot from being reused. If the slot was reused before that, the read returns
//! the other page, and the entry no longer names the slot: only entries of that page do (I48). So
//! one read of the entry decides, and no section spans the I/O.
//!
//! Each entry gets a frame of its own, even if others name the slot, so it may be writable at once.
//!
//! Locks on entry: none, no section. The preallocation has a frame and counts as held during the read:
//! the machine must not wait for a caller that waits for a frame.

use super::context::{Fault, Here, new_leaf};
use super::prealloc::{Need, Prealloc};
use super::{FaultDone, FaultError, Request, Turn};
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{Pfn, SwapSlot};
use crate::frame::{Fill, FrameKind};
use crate::machine::{Machine, ask};
use crate::mem;
use crate::space::AddressSpace;
use crate::swap::{ReadEnd, Source};
use crate::table::format::{Entry, Leaf};
use crate::table::walk::Walk;

/// Result of reading a page that was swapped out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    Copied,
    Fetched,
    Failed,
    /// The memory failed that the page is in until it is written.
    SourceFailed,
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Reads the page of the slot into the preallocated frame, and maps that frame if the entry still names
    /// the slot.
    #[cold]
    pub(crate) fn swap_back(&self, request: Request, slot: SwapSlot, prealloc: &mut Prealloc<'vm, M>) -> Turn<'vm, M> {
        let vm = self.vm;
        let Some(pfn) = prealloc.take_raw() else { return Turn::Need(Need::Frame(Fill::Raw)) };
        let Some(source) = vm.swap.begin_read(slot) else {
            prealloc.put_raw(pfn);
            return Turn::Wait;
        };
        let read = self.read_swapped(slot, source, pfn);
        let turn = self.enter_swapped(request, slot, pfn, read);
        let end = if matches!(turn, Turn::Done(_)) { ReadEnd::Entered } else { ReadEnd::InVain };
        vm.swap_end_read(slot, end);
        if end == ReadEnd::InVain {
            prealloc.put_raw(pfn);
        }
        turn
    }

    fn read_swapped(&self, slot: SwapSlot, source: Source, to: Pfn) -> Read {
        let vm = self.vm;
        match source {
            Source::Memory(from) if mem::copy_frame(&vm.machine, to, from).is_ok() => Read::Copied,
            Source::Memory(_) => {
                vm.count(Event::CopyFailed, 1);
                // The slot may have been written since, for readers that came before.
                if !vm.swap.is_written(slot) || ask::swap_in(&vm.machine, slot, to).is_err() {
                    return Read::SourceFailed;
                }
                vm.count(Event::Pswpin, 1);
                Read::Fetched
            }
            Source::Area if ask::swap_in(&vm.machine, slot, to).is_ok() => {
                vm.count(Event::Pswpin, 1);
                Read::Fetched
            }
            Source::Area => Read::Failed,
        }
    }

    /// Changes the entry, in a section of its own, if it is unchanged.
    fn enter_swapped(&self, request: Request, slot: SwapSlot, pfn: Pfn, read: Read) -> Turn<'vm, M> {
        let section = self.section();
        let (inside, cpu) = (section.inside(), section.cpu());
        let here = Here { cpu, rss: self.rss_line(section.id()) };
        // The next attempt handles whatever has changed.
        let Some(found) = self.find_vma(inside, cpu, request.vpn) else { return Turn::Raced };
        if !found.allows(request) {
            return Turn::Raced;
        }
        let entry = match self.walk_from_root(inside, cpu, request.vpn) {
            Walk::Leaf(entry) => entry,
            // The attempt may find its entry through the hint, and read again, until the owner is
            // done.
            Walk::Owned => return Turn::Wait,
            Walk::Hole(_) | Walk::Huge(_) => return Turn::Raced,
        };
        let seen = entry.observe();
        if seen.entry != Entry::Swap(slot) {
            return Turn::Raced;
        }
        match read {
            Read::Copied | Read::Fetched => {}
            Read::Failed => return Turn::Refused(FaultError::NotRead),
            // The slot may have the page once it is written: the next fault reads it there.
            Read::SourceFailed => return Turn::Refused(FaultError::Poisoned),
        }
        let desc = self.vm.frames.desc(pfn);
        desc.assign(FrameKind::Anon, 1, self.family, found.index_of(request.vpn));
        // Dirty: there is no other copy of the content.
        let leaf = Leaf { dirty: true, ..new_leaf(Fault { here, request, found, inside }, pfn) };
        if entry.of_leaf_table().replace(seen, Entry::Leaf(leaf)).is_err() {
            desc.clear();
            return Turn::Raced;
        }
        here.rss.add(Rss::Anon, 1);
        here.rss.add(Rss::Swap, 1u64.wrapping_neg());
        here.count_swapped_in(read);
        Turn::Done(FaultDone::SwappedIn)
    }
}

impl<M: Machine> AddressSpace<'_, M> {
    /// Counts a finished fault that has read a page of an object as major.
    #[cold]
    pub(crate) fn count_read_shared(&self) -> FaultDone {
        self.vm.count(Event::Pgmajfault, 1);
        self.charge(Rss::MinorFaults, -1);
        self.charge(Rss::MajorFaults, 1);
        FaultDone::SwappedIn
    }
}

impl Here<'_> {
    /// Counts a fault that has swapped a page in.
    fn count_swapped_in(self, read: Read) {
        let (event, faults) = if read == Read::Fetched {
            (Event::Pgmajfault, Rss::MajorFaults)
        } else {
            (Event::SwapCopied, Rss::MinorFaults)
        };
        self.cpu.count(Event::Fault);
        self.cpu.count(event);
        self.rss.add(faults, 1);
    }
}
