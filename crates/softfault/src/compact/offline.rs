//! Empties memory that is to go, and removes it.
//!
//! ```text
//! isolate   what is free in the range goes out of use            frame/resize/isolate.rs
//!           what is set aside in the range: freed ─▶ isolated, others are set aside   frame/reserve.rs
//! pass      each frame of the rest: free by now ─▶ isolated
//!                                   in use      ─▶ its page moves elsewhere (single.rs) ─▶ isolated
//!           all isolated ─▶ removed
//!           a page that cannot move, or that did not in the last pass ─▶ refused: what was isolated is free again
//! ```
//! A page that is allocated in the range between a release and the next look moves in the next pass. A huge page is split
//! first, and stays split. A page of a pool moves as a whole, free or in use, and the pool has as many as before.
//!
//! Source: the behaviour of memory hotplug in Linux (Documentation/admin-guide/mm/memory-hotplug.rst).
//!
//! Locks on entry: none, no section. Takes the lock of memory that is emptied, under which everything else is taken.

use super::MigrateRefusal;
use super::refusal::OfflineRefusal;
use crate::account::Event;
use crate::addr::Pfn;
use crate::frame::{Emptied, Fill, RemoveMemoryRefusal};
use crate::machine::{FrameRange, Machine};
use crate::pace;
use crate::space::Vm;

/// Passes over a range: what another operation owned, a CPU had in a cache or a pin held may be free in the next one. A guess.
const NR_PASSES: u32 = 8;

/// How a pass ended.
enum Passed {
    AllIsolated,
    /// This frame may be free, or its page move, in the next one.
    Waits(OfflineRefusal),
}

impl<M: Machine> Vm<M> {
    /// Removes memory: whole sections of 128 MiB, of which every frame is free. Frames in the caches of CPUs are
    /// taken from them, and other frames are set aside for the reaction to pressure in place of those in the range. The machine may
    /// do with it what it likes afterwards ([`Machine::frames_removed`]).
    ///
    /// The metadata of a section may lie in one that was added before, which stays then. No page is moved:
    /// [`offline_memory`](Self::offline_memory) does that.
    ///
    /// # Errors
    ///
    /// [`RemoveMemoryRefusal`]; nothing has changed then.
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    pub fn remove_memory(&self, range: FrameRange) -> Result<(), RemoveMemoryRefusal> {
        self.assert_outside();
        self.call();
        let mut removed = self.try_remove_memory(&range);
        if removed == Err(RemoveMemoryRefusal::InUse) {
            let nr_set_aside = self.free_reserve_in(&range);
            if nr_set_aside > 0 {
                removed = self.try_remove_memory(&range);
                self.refill_reserve(nr_set_aside);
            }
        }
        if removed.is_ok() {
            self.trim_reserve();
        }
        self.count(removed.map_or_else(RemoveMemoryRefusal::event, |()| Event::MemoryRemoved), 1);
        removed
    }

    /// Removes memory, as [`remove_memory`](Self::remove_memory) does, and moves the pages that are in it to other frames
    /// before, while programs run. Allocations do without that memory meanwhile; the call ends when one is about to be refused.
    ///
    /// Page tables, the core's own data, pinned pages and frames whose memory failed do not move. Nothing
    /// keeps them out of a section: memory that is to go again should not be the only one that is free when a machine gets
    /// busy. Huge pages of private memory are split. Takes time for each page.
    ///
    /// # Errors
    ///
    /// [`OfflineRefusal`]; the memory is there, and some pages have moved.
    ///
    /// # Panics
    ///
    /// In a callback ([`Machine`]).
    pub fn offline_memory(&self, range: FrameRange) -> Result<(), OfflineRefusal> {
        self.assert_outside();
        self.call();
        // Memory is reclaimed with nothing isolated.
        let gone = self.with_reclaim(&mut || self.empty(range).map(Emptied::remove));
        // A page that stays was counted when it did not move.
        match gone {
            Ok(()) => {
                self.trim_reserve();
                self.count(Event::MemoryRemoved, 1);
            }
            Err(OfflineRefusal::Memory(refusal)) => self.count(refusal.event(), 1),
            Err(OfflineRefusal::InTheWay(..)) => {}
        }
        gone
    }

    /// Isolates all frames of whole sections. What is dropped is free memory.
    pub(super) fn empty(&self, range: FrameRange) -> Result<Emptied<'_, M>, OfflineRefusal> {
        let emptied = self.begin_to_empty(range).map_err(OfflineRefusal::Memory)?;
        // What was set aside here is set aside elsewhere: this memory is isolated.
        let nr_set_aside = self.free_reserve_in(&range);
        if nr_set_aside > 0 {
            emptied.isolate_free();
            self.refill_reserve(nr_set_aside);
        }
        let mut nr_passes = 0;
        loop {
            nr_passes += 1;
            match self.move_out_of(&emptied)? {
                Passed::AllIsolated => return Ok(emptied),
                Passed::Waits(refusal) if nr_passes == NR_PASSES => return Err(refusal),
                Passed::Waits(_) => emptied.isolate_free(),
            }
        }
    }

    fn move_out_of(&self, emptied: &Emptied<'_, M>) -> Result<Passed, OfflineRefusal> {
        let mut passed = Passed::AllIsolated;
        for pfn in emptied.frames() {
            pace::answer(&self.machine);
            if emptied.isolate(pfn) {
                continue;
            }
            if self.frames.is_last_resort_active() {
                return Err(OfflineRefusal::Memory(RemoveMemoryRefusal::LastResort));
            }
            match self.move_away(pfn) {
                Ok(()) if emptied.isolate(pfn) => {}
                Ok(()) => passed = Passed::Waits(OfflineRefusal::InTheWay(pfn, MigrateRefusal::Raced)),
                Err(refusal) if refusal.may_pass() => passed = Passed::Waits(OfflineRefusal::InTheWay(pfn, refusal)),
                Err(refusal) => return Err(OfflineRefusal::InTheWay(pfn, refusal)),
            }
        }
        Ok(passed)
    }

    /// Moves the page of a frame, whatever it is. Reclaims nothing.
    pub(super) fn move_away(&self, pfn: Pfn) -> Result<(), MigrateRefusal> {
        let migrate = || self.try_migrate_frame(pfn, Fill::Raw, u64::MAX).map(drop);
        let mut moved = migrate();
        if moved == Err(MigrateRefusal::HugePage) {
            self.split_private(pfn);
            moved = migrate();
        }
        moved.inspect_err(|refusal| self.count(refusal.event(), 1))
    }
}
