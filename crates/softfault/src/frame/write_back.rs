//! Write-back: the state of a folio whose content is on its way to its file.
//!
//! ```text
//! DIRTY                  its bytes are not in the file; an entry may allow stores
//! WRITEBACK              they are being written; no store since
//! WRITEBACK | DIRTY      a store came after the write began: it is written once more
//! ```
//! The folio is not locked: it is mapped, read and stored to as ever. WRITEBACK holds its frames as a pin does: if
//! its object loses them meanwhile, the end of the write frees them, or the last pin.
//!
//! Locks on entry: see the functions.

use super::FrameDesc;
use super::desc::{DIRTY, FrameState, WAITERS, WRITEBACK};
use super::folio_lock::{FolioWait, FolioWaits, Io, Unlocked};
use crate::addr::Pfn;
use crate::sync::Ordering;

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

    /// Ends the write. Returns whether the caller now owns the frames alone, since the folio has left its object.
    pub(crate) fn end_file_write(&self, io: Io) -> (Unlocked, bool) {
        let failed = if io == Io::Failed { DIRTY } else { 0 };
        let mut seen = self.state.load(Ordering::Relaxed);
        loop {
            debug_assert!(FrameState(seen).is_being_written(), "I56: a write ends once");
            let ended = (seen & !(WRITEBACK | WAITERS)) | failed;
            match self.state.compare_exchange(seen, ended, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    let is_ours = FrameState(ended).is_orphan() && FrameState(ended).is_unused();
                    return (Unlocked::new(seen), is_ours);
                }
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
}

impl FolioWaits {
    /// Prepares a wait until the folio is not being written.
    pub(crate) fn join_write(&self, pfn: Pfn, desc: &FrameDesc) -> FolioWait {
        self.join_if(pfn, &|| desc.add_waiter_if(FrameState::is_being_written))
    }
}
