//! How often a fault or an operation that was refused frames may start again, and where it searches before that.
//!
//! ```text
//! progress         frames were freed, by the caller or another: again, a bounded number of times
//! nothing          the next blocks, until all were searched (where there are files)
//! others write     their folios were passed over: the caller waits, and searches all blocks again, three times at most
//! end              one last attempt: programs may have given frames back, which is no reclaim
//! ```

use crate::frame::OutOfFrames;

/// How often it may start again before it is refused.
pub(super) const NR_RETRIES: u32 = 3;
/// How often it may start again beyond that where there are files, after reclaims that have freed enough frames: others that read or
/// store to files may have taken them first. A guess. Linux has no such bound, but one for the retries without progress
/// (`MAX_RECLAIM_RETRIES`).
const NR_RETRIES_AFTER_PROGRESS: u32 = 16;
/// The same for one frame. Few are freed at a time where many callers drop what one of them has written, and each takes 64.
const NR_RETRIES_FOR_A_FRAME: u32 = 512;
/// How often it waits for callers that write, without progress of theirs.
const NR_WAITS: u32 = 3;
/// Frames that are enough for a request of any size: what a CPU takes at a time.
const PROGRESS: u64 = 64;

/// Remaining retries.
pub(crate) struct Retries {
    pub(super) nr: u32,
    /// Those that were after progress.
    nr_after_progress: u32,
    /// Whether room for a surplus page may still be made.
    has_surplus: bool,
}

impl Default for Retries {
    fn default() -> Retries {
        Retries { nr: NR_RETRIES, nr_after_progress: 0, has_surplus: true }
    }
}

impl Retries {
    /// The last one was after a reclaim that has freed frames.
    pub(super) fn note_progress(&mut self, refused: OutOfFrames) {
        if self.nr_after_progress < most_after_progress(refused) {
            (self.nr, self.nr_after_progress) = (self.nr + 1, self.nr_after_progress + 1);
        }
    }

    /// Whether room for a surplus page of a pool may be made: once.
    pub(super) fn take_surplus(&mut self) -> bool {
        core::mem::take(&mut self.has_surplus)
    }

    /// There is nothing to free. Returns whether there is one last attempt.
    pub(super) fn end(&mut self) -> bool {
        core::mem::take(&mut self.nr) > 0
    }
}

/// The search of all blocks before a refusal, some at a time.
pub(super) struct Sweep {
    /// The block to go on from. None: where the last search of any caller has ended.
    pub(super) from: Option<u64>,
    /// Blocks in which there was nothing.
    nr_empty: u64,
    /// Others were writing then.
    has_skipped: bool,
    /// Remaining waits for them.
    nr_waits: u32,
}

/// The next step of a caller that found nothing.
pub(super) enum Next {
    /// The blocks behind these.
    Search,
    /// Wait for those that write, then search all blocks again.
    Wait,
    End,
}

impl Sweep {
    pub(super) fn new() -> Sweep {
        Sweep { from: None, nr_empty: 0, has_skipped: false, nr_waits: NR_WAITS }
    }

    /// Folios may have been passed over, since others write.
    pub(super) fn note_skipped(&mut self) {
        self.has_skipped = true;
    }

    /// There was nothing in so many blocks from there, of so many.
    pub(super) fn note_nothing(&mut self, from: u64, nr_blocks: u64, nr_all: u64) -> Next {
        let nr_blocks = nr_blocks.max(1);
        self.from = Some(from.wrapping_add(nr_blocks));
        self.nr_empty = self.nr_empty.saturating_add(nr_blocks);
        if self.nr_empty < nr_all {
            return Next::Search;
        }
        self.nr_empty = 0;
        match self.nr_waits.checked_sub(1) {
            Some(nr_left) if core::mem::take(&mut self.has_skipped) => {
                self.nr_waits = nr_left;
                Next::Wait
            }
            _ => Next::End,
        }
    }
}

/// Number of freed frames with which the caller may start again many times.
pub(super) fn nr_of_progress(refused: OutOfFrames) -> u64 {
    match refused {
        OutOfFrames::Frame => 1,
        OutOfFrames::Frames(nr_frames) => u64::from(nr_frames).clamp(1, PROGRESS),
        OutOfFrames::Block(_) => PROGRESS,
    }
}

fn most_after_progress(refused: OutOfFrames) -> u32 {
    match refused {
        OutOfFrames::Frame => NR_RETRIES_FOR_A_FRAME,
        // Each frees some hundreds.
        OutOfFrames::Frames(nr_frames) => NR_RETRIES_AFTER_PROGRESS + nr_frames / PROGRESS as u32,
        OutOfFrames::Block(_) => NR_RETRIES_AFTER_PROGRESS,
    }
}
