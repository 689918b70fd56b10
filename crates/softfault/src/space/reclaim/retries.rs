//! How often a fault or an operation that was refused frames may start again.
//!
//! ```text
//! progress         frames were freed, by the caller or another: again, a bounded number of times
//! nothing          again without a search of the same blocks, until all were searched (where there are files)
//! others write     their folios were passed over: the caller waits, and searches all blocks once more
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
    /// Blocks searched since then, in which there was nothing.
    nr_empty_blocks: u64,
    /// Others were writing then.
    has_skipped: bool,
    /// Remaining waits for them.
    nr_waits: u32,
}

impl Default for Retries {
    fn default() -> Retries {
        Retries { nr: NR_RETRIES, nr_after_progress: 0, nr_empty_blocks: 0, has_skipped: false, nr_waits: NR_WAITS }
    }
}

/// The next step of a caller that found nothing.
pub(super) enum Next {
    /// The blocks behind these.
    Search,
    /// Wait for those that write, then search all blocks again.
    Wait,
    End,
}

impl Retries {
    /// The last one was after a reclaim that has freed enough frames.
    pub(super) fn note_progress(&mut self, refused: OutOfFrames) {
        if self.nr_after_progress < most_after_progress(refused) {
            (self.nr, self.nr_after_progress) = (self.nr + 1, self.nr_after_progress + 1);
        }
        self.nr_empty_blocks = 0;
    }

    /// Folios may have been passed over, since others write.
    pub(super) fn note_skipped(&mut self) {
        self.has_skipped = true;
    }

    /// There was nothing in so many blocks of so many.
    pub(super) fn note_nothing(&mut self, nr_blocks: u64, nr_all: u64) -> Next {
        self.nr_empty_blocks += nr_blocks;
        if self.nr_empty_blocks < nr_all {
            // Not used up.
            self.nr += 1;
            return Next::Search;
        }
        self.nr_empty_blocks = 0;
        if core::mem::take(&mut self.has_skipped) { Next::Wait } else { Next::End }
    }

    /// Others have ended their writes and freed nothing. Returns whether to search all blocks again.
    pub(super) fn note_wait(&mut self) -> bool {
        let Some(nr_left) = self.nr_waits.checked_sub(1) else { return self.end() };
        (self.nr, self.nr_waits) = (self.nr + 1, nr_left);
        true
    }

    /// Returns whether there is one last attempt.
    pub(super) fn end(&mut self) -> bool {
        core::mem::take(&mut self.nr) > 0
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
