//! Refill, the slow path of one frame: claims a word of the CPU's block, zeroes the frames and puts
//! them into the frame cache. It runs outside sections. `search` finds the word. If it finds none,
//! the frame caches of other CPUs are emptied; if that does not help, the refill is refused.
//! Nothing is reclaimed here. A CPU that begins a block while memory is short (`watch`) sets
//! `Frames::is_low`, and its fault or operation reacts when it is done (`space/reclaim.rs`).
//!
//! Locks on entry: none, no section. Takes the thief lock.

use super::class::Class;
use super::runs::bits;
use super::want::{Fill, Search};
use super::{Memory, OutOfFrames};
use crate::addr::{BlockId, OptBlock, Pfn};
use crate::cpu::{ATTENTION_THIEF, CpuData};
use crate::lock::Spin;
use crate::machine::{CpuId, CpuSet, LockKind, Machine};
use crate::pace::Pace;
use crate::sync::{Ordering, Word};

/// CPUs whose caches a thief empties outside a last-resort turn. A guess.
const NR_ROBBED: usize = 16;

impl<M: Machine> Memory<M> {
    /// Allocates one frame, which only the caller owns. The caller holds nothing, because this may
    /// wait for frames that others hold.
    #[cfg(test)]
    pub(crate) fn obtain(&self, fill: Fill) -> Result<Pfn, OutOfFrames> {
        self.obtain_held(fill).map(|(pfn, _held)| pfn)
    }

    /// Allocates one frame for a caller that counts as a holder until the frame is in use or freed.
    pub(super) fn try_obtain(&self, fill: Fill, search: Search) -> Result<Pfn, OutOfFrames> {
        let mut has_claimed = false;
        loop {
            {
                let section = self.section();
                let cpu = section.cpu();
                if cpu.attention.load(Ordering::Acquire) & ATTENTION_THIEF == 0 {
                    if let Some(pfn) = cpu.frame_cache(fill).pop() {
                        return Ok(pfn);
                    }
                } else {
                    drop(section);
                    self.machine.relax();
                    continue;
                }
            }
            let refilled = self.refill(fill, search);
            if refilled.is_err() && has_claimed {
                // This hold claimed frames and lost them, so it must not end as an unsuccessful hold.
                drop(self.hold());
            }
            refilled?;
            has_claimed = true;
        }
    }

    /// Frees a frame that only the caller owns. `fill` tells what is known of its content.
    pub(crate) fn give_back(&self, pfn: Pfn, fill: Fill) {
        self.frames.desc(pfn).clear();
        if fill.content().is_zero() {
            let section = self.section();
            let cpu = section.cpu();
            let is_open = cpu.attention.load(Ordering::Acquire) == 0 && self.frames.is_marked(section.id());
            if is_open && cpu.frame_cache(fill).put(pfn) {
                return;
            }
        }
        self.release_one(pfn, fill.content());
    }

    pub(super) fn refill(&self, fill: Fill, search: Search) -> Result<(), OutOfFrames> {
        let batch = self.tunables.zero_batch;
        let mut most = match fill {
            Fill::Zeroed | Fill::Raw | Fill::Shared => batch,
            Fill::Fixed => self.this_cpu_data().tables_at_once(batch),
            // After a pin's page has moved nobody may want another.
            Fill::Pinned => 1,
        }
        .clamp(1, 64);
        let mut has_stolen = false;
        let (claim, is_new_block) = loop {
            let cpu = self.this_cpu_data();
            if fill.class() == Class::Movable
                && let Some(claim) = self.frames.claim_own(cpu, most)
            {
                break (claim, false);
            }
            let last = cpu.last_block(fill.class()).map(Word::get);
            if let Some(claim) = self.search(fill, most) {
                let block = OptBlock::some(BlockId::of(Pfn(claim.base as u32)));
                break (claim, last != Some(block.to_word()));
            }
            // Once: another CPU may claim what was stolen first. That CPU has held frames then, so
            // this attempt does not count.
            if search != Search::Everywhere || has_stolen {
                return Err(OutOfFrames::Frame);
            }
            if !self.steal_in_last_resort() {
                return Err(OutOfFrames::Frame);
            }
            has_stolen = true;
            most = 1;
            self.machine.relax();
        };
        self.count_taken(claim.mask.count_ones().into());
        if fill != Fill::Fixed {
            self.frames.note_used(claim.base, claim.mask);
        }
        let dirty = claim.mask & !claim.zero;
        match fill {
            Fill::Raw | Fill::Pinned => {}
            Fill::Zeroed | Fill::Shared => {
                self.zero_for_programs(self.this_cpu_data(), claim.mask.count_ones(), claim.base, dirty);
            }
            Fill::Fixed => self.zero_for_tables(claim.base, dirty),
        }
        // The descriptors are about to be written one by one. Prefetched together, their cache
        // misses overlap.
        let (_, near) = self.frames.desc_near(Pfn(claim.base as u32));
        bits(claim.mask).for_each(|i| near.prefetch((claim.base + i) as usize));
        let (base, left) = self.exchange_cache(fill, claim.base, claim.mask);
        if left != 0 {
            self.release_word(base, left, fill.content());
        }
        if is_new_block {
            self.begun(BlockId::of(Pfn(claim.base as u32)));
        }
        Ok(())
    }

    /// Puts frames into this CPU's frame cache and returns those that were there. Waits while a
    /// thief empties the cache (I10).
    fn exchange_cache(&self, fill: Fill, base: u64, mask: u64) -> (u64, u64) {
        loop {
            {
                let section = self.section();
                let cpu = section.cpu();
                let id = section.id();
                if cpu.attention.load(Ordering::Acquire) & ATTENTION_THIEF != 0 {
                    drop(section);
                    self.machine.relax();
                } else if self.frames.is_marked(id) {
                    if fill == Fill::Fixed {
                        cpu.fixed_batch.set(2 * cpu.tables_at_once(self.tunables.zero_batch));
                    }
                    return cpu.frame_cache(fill).replace(base, mask);
                } else {
                    self.frames.mark(id);
                }
            }
        }
    }

    /// Empties all frame caches that have frames into the blocks, and returns whether any had.
    /// Reservations of these CPUs end, too.
    pub(crate) fn steal_caches(&self) -> bool {
        self.steal(&self.frames.marked(), |_| ())
    }

    /// Like `steal_caches` for a few CPUs, different ones each time: for callers that do not need
    /// the frames.
    pub(crate) fn steal_some_caches(&self) -> bool {
        let first = self.frames.next_robbed.load(Ordering::Relaxed);
        let (some, next) = self.frames.marked().some_from(first, NR_ROBBED);
        self.frames.next_robbed.store(next, Ordering::Relaxed);
        self.steal(&some, |_| ())
    }

    /// Like `steal_caches` for the owner of the last-resort turn: CPUs that have nothing left lose
    /// their mark and are skipped the next time.
    pub(super) fn steal_in_last_resort(&self) -> bool {
        self.steal(&self.frames.marked(), |id| self.unmark(id))
    }

    /// Steals as the only thief. A CPU that needs its frame cache meanwhile waits outside its section.
    /// `emptied` is called for each CPU after its caches were emptied and before it may use them
    /// again.
    fn steal(&self, marked: &CpuSet, emptied: impl Fn(CpuId)) -> bool {
        let _lock = Spin::lock(LockKind::Thief, &self.thief, &self.machine);
        let mut pace = Pace::new(&self.machine);
        for id in marked.iter() {
            pace.step();
            self.cpu(id).attention.fetch_or(ATTENTION_THIEF, Ordering::SeqCst);
        }
        drop(pace);
        self.grace(marked);
        let held = self.hold();
        let mut found = false;
        let mut pace = Pace::new(&self.machine);
        for id in marked.iter() {
            let cpu = self.cpu(id);
            for fill in Fill::ALL {
                pace.step();
                let (base, mask) = cpu.frame_cache(fill).replace(0, 0);
                if mask != 0 {
                    found = true;
                    self.release_word(base, mask, fill.content());
                }
            }
            // Memory is short: what a CPU keeps for tables begins small again.
            cpu.fixed_batch.set(0);
            emptied(id);
            cpu.attention.fetch_and(!ATTENTION_THIEF, Ordering::Release);
        }
        drop(pace);
        self.end_reservations(marked);
        if found {
            drop(held)
        } else {
            held.in_vain()
        }
        found
    }
}

impl CpuData {
    /// Frames that a refill for tables takes. Only one fault in 512 needs a table where each maps a page, so the
    /// first refill takes few; each takes twice as many as the one before it, up to `batch`. So a CPU keeps at most
    /// as many as it has used. Where a fault maps a whole table (`fault/around.rs`), one fault in four needs one, and
    /// CPUs may share the block: each refill costs a transfer.
    pub(super) fn tables_at_once(&self, batch: u64) -> u64 {
        self.fixed_batch.get().clamp(batch / 8, batch)
    }
}
