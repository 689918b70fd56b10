//! The slots of the swap area and who uses them: two words per slot.
//!
//! ```text
//! state  entries 0..32 | readers 32..60 | FRAME 60 | WRITTEN 61 | WRITING 62 | USED 63; 0 while free
//! frame  with FRAME: the frame that has the page's bytes; while free: the next free slot + 1
//! ```
//! A slot is not reused while an entry names it, it is being read, or its page is being written
//! (I48). It keeps its frame until the page is written or nobody needs it. Each change is one
//! compare-and-swap, and the last one frees frame and slot. So nobody waits.
//!
//! Entries cannot overflow their count: each is in a space of its own, which takes three frames,
//! and there are less than 2^32 frames.
//!
//! Free slots form a stack. Its word contains a counter that each change raises, against ABA. Slots
//! that were never used lie above `nr_begun`, so the area is not written before it is used.
//!
//! Locks on entry: none; a section or not.

use crate::addr::{Pfn, SwapSlot};
use crate::machine::SwapError;
use crate::mem::FrameArray;
use crate::sync::{Ordering, Word};

const ENTRY: u64 = 1;
const ENTRIES: u64 = (1 << 32) - 1;
const READER: u64 = 1 << 32;
const READERS: u64 = ((1 << 28) - 1) << 32;
const FRAME: u64 = 1 << 60;
const WRITTEN: u64 = 1 << 61;
const WRITING: u64 = 1 << 62;
const USED: u64 = 1 << 63;
/// Of the top of the free slots: what the number of changes counts in.
const CHANGE: u64 = 1 << 32;

/// One slot. See the module.
#[repr(C)]
pub(crate) struct SlotData {
    state: Word,
    frame: Word,
}

/// The state of each slot.
pub(crate) struct SwapArea {
    slots: FrameArray<SlotData>,
    /// The first free slot + 1 in the low half, the number of changes above.
    free: Word,
    /// Slots that have been used.
    nr_begun: Word,
}

/// A frame that its slot does not need any more: owned by the caller alone.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spared(pub(crate) Option<Pfn>);

/// Where a reader finds the page. The slot stays what it is until [`SwapArea::end_read`].
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// In a frame, which nobody writes.
    Memory(Pfn),
    /// In the machine's swap area.
    Area,
}

/// How a read ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadEnd {
    /// An entry that named the slot names the page now.
    Entered,
    /// No entry has changed.
    InVain,
}

/// The state that remains once nobody needs the frame, or the slot.
fn without_unused(state: u64) -> u64 {
    if state & (WRITING | READERS) != 0 {
        state
    } else if state & ENTRIES == 0 {
        0
    } else if state & WRITTEN != 0 {
        state & !FRAME
    } else {
        state
    }
}

impl SwapArea {
    pub(crate) fn new(slots: FrameArray<SlotData>) -> SwapArea {
        SwapArea { slots, free: Word::new(0), nr_begun: Word::new(0) }
    }

    /// How many there are.
    pub(crate) fn nr_slots(&self) -> u32 {
        self.slots.len() as u32
    }

    fn slot(&self, slot: SwapSlot) -> &SlotData {
        self.slots.at(slot.0 as usize)
    }

    /// A slot that the caller owns alone until [`fill`](Self::fill) or [`unclaim`](Self::unclaim).
    pub(crate) fn claim(&self) -> Option<SwapSlot> {
        let slot = self.pop().or_else(|| self.begin())?;
        self.slot(slot).state.store(USED | WRITING, Ordering::Release);
        Some(slot)
    }

    fn pop(&self) -> Option<SwapSlot> {
        let mut top = self.free.load(Ordering::Acquire);
        loop {
            let slot = SwapSlot((top as u32).checked_sub(1)?);
            let next = self.slot(slot).frame.load(Ordering::Acquire) as u32;
            match self.change_top(top, next) {
                Ok(()) => return Some(slot),
                Err(now) => top = now,
            }
        }
    }

    fn begin(&self) -> Option<SwapSlot> {
        let mut nr = self.nr_begun.load(Ordering::Relaxed);
        while nr < u64::from(self.nr_slots()) {
            match self.nr_begun.compare_exchange(nr, nr + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(SwapSlot(nr as u32)),
                Err(now) => nr = now,
            }
        }
        None
    }

    fn change_top(&self, from: u64, to: u32) -> Result<(), u64> {
        let to = (from & !(CHANGE - 1)).wrapping_add(CHANGE) | u64::from(to);
        self.free.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
    }

    fn push(&self, slot: SwapSlot) {
        let mut top = self.free.load(Ordering::Relaxed);
        loop {
            self.slot(slot).frame.set(u64::from(top as u32));
            match self.change_top(top, slot.0 + 1) {
                Ok(()) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Gives back a slot that was claimed and not filled.
    pub(crate) fn unclaim(&self, slot: SwapSlot) {
        let spared = self.change(slot, &|state| Some(state & !WRITING));
        debug_assert!(spared.is_some(), "I48: it is the caller's");
    }

    /// The page of the frame is the slot's, for so many entries, which are the caller's still.
    /// [`end_slot_write`](Self::end_slot_write) has to follow.
    pub(crate) fn fill(&self, slot: SwapSlot, pfn: Pfn, nr_entries: u64) {
        self.slot(slot).frame.set(u64::from(pfn.0));
        self.slot(slot).state.store(USED | WRITING | FRAME | nr_entries, Ordering::Release);
    }

    /// Prepares the slot for a page of an object, whose frame is not the slot's. Its one entry is
    /// the caller's. [`end_slot_write`](Self::end_slot_write) has to follow.
    pub(crate) fn begin_object(&self, slot: SwapSlot) {
        self.slot(slot).state.store(USED | WRITING | ENTRY, Ordering::Release);
    }

    /// Ends the write of the page. If it failed, the frame stays as long as the slot
    /// does.
    pub(crate) fn end_slot_write(&self, slot: SwapSlot, written: Result<(), SwapError>) -> Spared {
        let bits = if written.is_ok() { WRITTEN } else { 0 };
        self.always(slot, &|state| state & !WRITING | bits)
    }

    /// Counts another entry that is to name the slot. Returns whether it may. The caller then looks
    /// again at an entry that named it: if it still does, the slot was that page's all along.
    pub(crate) fn add_entry(&self, slot: SwapSlot) -> bool {
        self.change(slot, &|state| (state & ENTRIES != 0).then_some(state + ENTRY)).is_some()
    }

    /// Drops an entry that named it, or was to name it.
    pub(crate) fn drop_entry(&self, slot: SwapSlot) -> Spared {
        self.always(slot, &|state| state - ENTRY)
    }

    /// Begins to read the page. `None` where no entry names the slot, too many read it, or it has an object's page
    /// that is not written: no entry of a table names that, and the machine reads no slot that it is writing.
    /// It may find another page than the caller saw an entry of: it has to look at that
    /// again before it uses what was read. If the entry names the slot then, this is its page.
    pub(crate) fn begin_read(&self, slot: SwapSlot) -> Option<Source> {
        let is_somewhere = |state: u64| state & (FRAME | WRITTEN) != 0;
        let may_read = |state: u64| state & ENTRIES != 0 && state & READERS != READERS && is_somewhere(state);
        let _spares_nothing = self.change(slot, &|state| may_read(state).then_some(state + READER))?;
        let data = self.slot(slot);
        // While the slot is read its frame stays, or there is none.
        let has_frame = data.state.load(Ordering::Acquire) & FRAME != 0;
        Some(if has_frame { Source::Memory(Pfn(data.frame.get() as u32)) } else { Source::Area })
    }

    /// Whether the area has the content of a slot that the caller reads.
    pub(crate) fn is_written(&self, slot: SwapSlot) -> bool {
        self.slot(slot).state.load(Ordering::Acquire) & WRITTEN != 0
    }

    /// Ends that.
    pub(crate) fn end_read(&self, slot: SwapSlot, end: ReadEnd) -> Spared {
        let nr_entries = if end == ReadEnd::Entered { ENTRY } else { 0 };
        self.always(slot, &|state| state - READER - nr_entries)
    }

    /// A change that the caller may make, by what it has in the slot.
    fn always(&self, slot: SwapSlot, to: &dyn Fn(u64) -> u64) -> Spared {
        let spared = self.change(slot, &|state| Some(to(state)));
        spared.unwrap_or(Spared(None))
    }

    fn change(&self, slot: SwapSlot, to: &dyn Fn(u64) -> Option<u64>) -> Option<Spared> {
        let data = self.slot(slot);
        let mut seen = data.state.load(Ordering::Acquire);
        loop {
            let after = without_unused(to(seen)?);
            // The CPU that takes FRAME away had an entry, a reader or the write until then, which
            // have kept the word.
            let spared = (seen & FRAME != 0 && after & FRAME == 0).then(|| Pfn(data.frame.get() as u32));
            match data.state.compare_exchange(seen, after, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    if after == 0 {
                        self.push(slot);
                    }
                    return Some(Spared(spared));
                }
                Err(now) => seen = now,
            }
        }
    }

    /// At rest: entries that name the slot, and the frame that has its page.
    pub(crate) fn at_rest(&self, slot: SwapSlot) -> Result<(u64, Option<Pfn>), SwapSlot> {
        let data = self.slot(slot);
        let state = data.state.get();
        let is_free = state == 0;
        let is_at_rest =
            is_free || state & USED != 0 && without_unused(state) == state && state & (WRITING | READERS) == 0;
        let frame = (state & FRAME != 0).then(|| Pfn(data.frame.get() as u32));
        if is_at_rest { Ok((state & ENTRIES, frame)) } else { Err(slot) }
    }

    /// At rest: how many slots a claim would find.
    pub(crate) fn nr_free(&self) -> u64 {
        let mut next = self.free.get() as u32;
        let nr_slots = u64::from(self.nr_slots());
        let mut nr = nr_slots - self.nr_begun.get();
        while next != 0 && nr <= nr_slots {
            nr += 1;
            next = self.slot(SwapSlot(next - 1)).frame.get() as u32;
        }
        nr
    }
}

#[cfg(test)]
#[path = "area_tests.rs"]
mod tests;
