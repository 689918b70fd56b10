//! Takes a frame out of use whose memory still works, but will fail: its page moves away before.
//!
//! ```text
//! free       claimed: out of use
//! in use     the page moves, as in single.rs; a huge page is split before ─▶ the frame is free, and is looked at again
//! ```
//! Another CPU may take the frame between the two: then that page moves.
//!
//! Source: the behaviour of `MADV_SOFT_OFFLINE` and `soft_offline_page` in Linux.
//!
//! Locks on entry: none, no section.

use super::MigrateRefusal;
use crate::account::Event;
use crate::addr::{BlockId, Pfn};
use crate::frame::{BLOCK_WORDS, FrameKind};
use crate::machine::Machine;
use crate::pace;
use crate::space::Vm;

/// Looks at the frame; between two of them its page moves, or an obstacle may pass. A guess.
const NR_LOOKS: u32 = 16;

impl<M: Machine> Vm<M> {
    /// Takes a frame out of use before its memory fails. Its page moves to another frame, and programs do not notice; of a page of
    /// a pool of huge pages the other frames are free memory afterwards. The frame is never allocated again.
    ///
    /// For memory that has failed see [`poison_frame`](Vm::poison_frame).
    ///
    /// # Errors
    ///
    /// [`MigrateRefusal`]; the frame stays in use. Its page may have moved and another one come.
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    pub fn soft_offline_frame(&self, pfn: Pfn) -> Result<(), MigrateRefusal> {
        self.assert_outside();
        self.call();
        self.with_reclaim(&mut || self.try_soft_offline(pfn))
    }

    fn try_soft_offline(&self, pfn: Pfn) -> Result<(), MigrateRefusal> {
        let mut refused = MigrateRefusal::Raced;
        for _ in 0..NR_LOOKS {
            pace::answer(&self.machine);
            if self.take_free_frame(pfn)? {
                self.count(Event::FramesPoisoned, 1);
                return Ok(());
            }
            match self.move_away(pfn) {
                Ok(()) => continue,
                Err(refusal) if refusal.may_pass() => refused = refusal,
                Err(refusal) => return Err(refusal),
            }
            // It may lie there.
            self.steal_caches();
        }
        Err(refused)
    }

    /// Takes the frame out of use if it is free.
    fn take_free_frame(&self, pfn: Pfn) -> Result<bool, MigrateRefusal> {
        self.state_of(pfn).ok_or(MigrateRefusal::Reserved)?;
        let (w, bit) = (pfn.0 as usize / 64 % BLOCK_WORDS, 1 << (pfn.0 % 64));
        let is_ours = self.frames.blocks.at(BlockId::of(pfn)).claim_exact(w, bit).is_some();
        if is_ours {
            self.count_taken(1);
            self.frames.desc(pfn).assign(FrameKind::Reserved, 0, 0, 0);
        }
        Ok(is_ours)
    }
}
