//! Write-back: the state of a folio whose content is on its way to its file.
//!
//! ```text
//! DIRTY                  its bytes are not in the file; an entry may allow stores
//! WRITEBACK              they are being written; no store since
//! WRITEBACK | DIRTY      a store came after the write began: it is written once more
//! WRITEBACK | ASKING     a CPU is in the machine's call for it, or about to make it
//! ASKING                 the machine has ended the write, and has not returned
//! ASKING | AWAITED       it has left its object during the call: a CPU waits for the end of that
//! ```
//! The folio is not locked: it is mapped, read and stored to as ever. Each of the three bits holds its frames as a pin does: if
//! its object loses them meanwhile, the last of them that is cleared frees them, or the last pin.
//!
//! **No call after a removal.** A write is begun long before the machine is asked for it, since a batch has one grace period
//! for all. The CPU that asks sets ASKING, and the CPU that takes the folio out sets ORPHAN, both by a read-modify-write of the
//! same word, so that one of them sees the other: the write is not asked for, or the remover waits for the call. It waits for that
//! call alone, with nothing held, and for no other folio of the batch. The end of a call raises a count, so that who waits for it does
//! not take a later call of the folio for it.
//!
//! Locks on entry: see the functions.

use super::FrameDesc;
use super::desc::{ASKING, AWAITED, DIRTY, FrameKind, FrameState, ORPHAN, WAITERS, WRITEBACK};
use super::folio_lock::{FolioWait, FolioWaits, Io, Unlocked};
use crate::addr::Pfn;
use crate::sync::Ordering;

/// Of a folio of a file: how often the machine has returned from a call that writes it, modulo 2^16.
const CALL_ONE: u64 = 1 << 20;
const CALLS: u64 = ((1 << 16) - 1) * CALL_ONE;

/// The state of a folio that may have to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteBegin {
    /// It was dirty, and the caller writes it.
    Begun,
    /// The file has its content.
    Clean,
    /// It is being written; whether it is dirty again.
    UnderWay { is_dirty: bool },
}

/// How a folio of a file has left its object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TakenOut {
    /// The caller owns the frames alone.
    Ours,
    /// Pins or a write hold the frames. The machine is not asked for the write any more.
    Held,
    /// The machine is in its call for the folio. The frames stay until [`end_await`](FrameDesc::end_await).
    Asked,
}

/// A call of the machine that writes a folio, among those for that folio. 2^16 calls later there is one that is equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call(u64);

/// The rest of the work when WRITEBACK, ASKING or AWAITED is clear.
#[must_use]
pub(crate) struct EndedPart {
    pub(crate) unlocked: Unlocked,
    /// The caller owns the frames alone, since the folio has left its object and nothing else holds them.
    pub(crate) is_ours: bool,
    /// A call is over during which the folio has left its object.
    pub(crate) is_of_late_call: bool,
}

impl FrameState {
    /// Whether a CPU is in the machine's call that writes the folio to its file, or about to make it.
    pub(crate) fn is_being_asked_for(self) -> bool {
        self.kind() == FrameKind::Shared && self.0 & ASKING != 0
    }

    /// That call.
    pub(crate) fn call(self) -> Option<Call> {
        self.is_being_asked_for().then_some(Call(self.0 & CALLS))
    }
}

impl FrameDesc {
    /// Begins to write the folio, if it is dirty and not being written. In the section in which a word of its object
    /// named it without a mark. DIRTY is clear from then on, though entries allow stores until the caller has changed that.
    pub(crate) fn begin_file_write(&self) -> WriteBegin {
        let mut seen = self.state.load(Ordering::Acquire);
        loop {
            let is_dirty = FrameState(seen).is_dirty();
            if FrameState(seen).is_being_written() {
                return WriteBegin::UnderWay { is_dirty };
            }
            if !is_dirty {
                return WriteBegin::Clean;
            }
            let begun = (seen | WRITEBACK) & !DIRTY;
            match self.state.compare_exchange(seen, begun, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return WriteBegin::Begun,
                Err(now) => seen = now,
            }
        }
    }

    /// Claims the machine's call for a folio that the caller has begun to write. `false` if the folio has left its object, so that
    /// the machine must not be asked. The caller ends the claim in both cases ([`end_asking`](Self::end_asking)).
    pub(crate) fn begin_to_ask(&self) -> bool {
        let before = FrameState(self.state.fetch_or(ASKING, Ordering::AcqRel));
        debug_assert!(!before.is_being_asked_for(), "I56: one write at a time");
        !before.is_orphan()
    }

    /// The machine has returned.
    pub(crate) fn end_asking(&self) -> EndedPart {
        self.end_part_of_write(ASKING, 0)
    }

    /// Ends the write.
    pub(crate) fn end_file_write(&self, io: Io) -> EndedPart {
        debug_assert!(self.state.load(Ordering::Relaxed) & WRITEBACK != 0, "I56: a write ends once");
        self.end_part_of_write(WRITEBACK, if io == Io::Failed { DIRTY } else { 0 })
    }

    /// The caller, which has taken the folio out, does not wait for the call any more.
    pub(crate) fn end_await(&self) -> EndedPart {
        self.end_part_of_write(AWAITED, 0)
    }

    fn end_part_of_write(&self, part: u64, failed: u64) -> EndedPart {
        let mut seen = self.state.load(Ordering::Relaxed);
        loop {
            let ended = (seen & !part) | failed;
            // A waiter for the write waits for the call, too. The end of the call wakes all: a remover does not wait for the write,
            // which may never end, and who does looks again.
            let waiters = if ended & ASKING == 0 { seen & WAITERS } else { 0 };
            let ended = ended & !waiters;
            let ended = if part == ASKING { ended & !CALLS | ended.wrapping_add(CALL_ONE) & CALLS } else { ended };
            match self.state.compare_exchange(seen, ended, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    let is_ours = FrameState(ended).is_orphan() && FrameState(ended).is_unused();
                    let is_of_late_call = part == ASKING && seen & AWAITED != 0;
                    return EndedPart { unlocked: Unlocked::new(waiters), is_ours, is_of_late_call };
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Makes a folio of a file an orphan: it has left its object, and no entry names it. A call of the machine for it that is
    /// not claimed by now is not made.
    pub(crate) fn take_out_of_file(&self) -> TakenOut {
        let mut seen = self.state.load(Ordering::Relaxed);
        loop {
            let state = FrameState(seen);
            let awaited = if state.is_being_asked_for() { AWAITED } else { 0 };
            match self.state.compare_exchange(seen, seen | ORPHAN | awaited, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if awaited != 0 => return TakenOut::Asked,
                Ok(_) if state.is_unused() => return TakenOut::Ours,
                Ok(_) => return TakenOut::Held,
                Err(now) => seen = now,
            }
        }
    }

    /// Sets DIRTY outside sections: a write of the folio that has not seen it yet sees earlier stores.
    pub(crate) fn note_written_now(&self) {
        self.state.fetch_or(DIRTY, Ordering::AcqRel);
    }

    /// Whether pins or a write hold the frames, read by a read-modify-write that changes nothing: a pin that this
    /// does not see will see what the caller did before.
    pub(crate) fn is_held_now(&self) -> bool {
        FrameState(self.state.fetch_or(0, Ordering::AcqRel)).is_held()
    }

    /// The call for the folio in which the machine is, read as in [`is_held_now`](Self::is_held_now): one that begins later
    /// has the bytes that the caller has stored before.
    pub(crate) fn call_now(&self) -> Option<Call> {
        FrameState(self.state.fetch_or(0, Ordering::AcqRel)).call()
    }
}

impl FolioWaits {
    /// Prepares a wait until the folio is not being written.
    pub(crate) fn join_write(&self, pfn: Pfn, desc: &FrameDesc) -> FolioWait {
        self.join_if(pfn, &|| desc.add_waiter_if(FrameState::is_being_written))
    }

    /// Prepares a wait until that call of the machine for the folio is over.
    pub(crate) fn join_call(&self, pfn: Pfn, desc: &FrameDesc, call: Call) -> FolioWait {
        self.join_if(pfn, &|| desc.add_waiter_if(|state| state.call() == Some(call)))
    }
}
