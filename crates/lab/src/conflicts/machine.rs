//! The simulated machine: any number of CPUs, one thread that is each in turn.
//!
//! One of the lab's files with `unsafe`; its invariants:
//! - **L5** the arena is one mapping that lives as long as the machine; frame `n`
//!   is its bytes from `4096 n`, and nothing else has its address (I1);
//! - **L6** the whole simulation is one thread, so that I2 to I4 hold at once: it
//!   is one CPU at a time, its operations are in order, and there are no
//!   translations, since nothing but `handle_fault` is called.

use crate::error::LabError;
use crate::os::{HostPages, Mapping};
use softfault_recorded::FrameRange;
use softfault_recorded::addr::Pfn;
use softfault_recorded::machine::{CpuId, CpuSet, Flush, Machine, SpaceTag};
use softfault_recorded::sync::Word;
use softfault_recorded::table::format::X86_64;
use std::cell::Cell;

const PAGE_BYTES: usize = 4096;

std::thread_local! {
    static CPU: Cell<u16> = const { Cell::new(0) };
}

/// From now on this thread is `cpu`.
pub fn become_cpu(cpu: u16) {
    CPU.set(cpu);
}

std::thread_local! {
    static IS_PAUSED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `look` without a record of what it touches.
pub fn unrecorded<T>(look: impl FnOnce() -> T) -> T {
    IS_PAUSED.set(true);
    let done = look();
    IS_PAUSED.set(false);
    done
}

/// Whether this thread's touches are not recorded at the moment.
pub fn is_paused() -> bool {
    IS_PAUSED.get()
}

/// The CPU that this thread is.
pub fn this_cpu() -> u16 {
    CPU.get()
}

/// CPUs that exist in turn, over an arena whose frames are zero.
pub struct Simulated {
    arena: Mapping,
    frames: [FrameRange; 1],
    nr_cpus: usize,
    /// The answer of `begin`.
    is_zero: bool,
}

impl Simulated {
    /// `nr_frames` frames; nothing is taken from the host until they are touched.
    pub fn new(nr_cpus: usize, nr_frames: u64) -> Result<Simulated, LabError> {
        let arena = Mapping::aligned(nr_frames as usize * PAGE_BYTES, HostPages::Small)?;
        Ok(Simulated { arena, frames: [FrameRange { first: Pfn(0), nr_frames }], nr_cpus, is_zero: true })
    }

    /// The same of which the core does not know that it is zero, as after firmware has used it.
    pub fn with_unknown_content(self) -> Simulated {
        Simulated { is_zero: false, ..self }
    }

    /// Says that each fault writes all of these frames, a huge page: to write 2 MiB costs the host 512 faults otherwise.
    pub fn expect_huge(&self, frames: std::ops::Range<u64>) {
        self.arena.allow_huge(frames.start as usize * PAGE_BYTES..frames.end as usize * PAGE_BYTES);
    }

    /// Gives the host back what frames of programs take: they hold zeroes, since no
    /// program runs that would write them, and hold zeroes afterwards.
    pub fn forget(&self, frames: std::ops::Range<u64>) {
        self.arena.forget(frames.start as usize * PAGE_BYTES..frames.end as usize * PAGE_BYTES);
    }
}

// SAFETY: L5, L6.
unsafe impl Machine for Simulated {
    type Format = X86_64;

    fn frames(&self) -> &[FrameRange] {
        &self.frames
    }
    fn begin(&mut self) -> bool {
        self.is_zero
    }
    fn frame_ptr(&self, pfn: Pfn) -> *mut u8 {
        self.arena.base().wrapping_add(pfn.0 as usize * PAGE_BYTES)
    }
    fn nr_cpus(&self) -> usize {
        self.nr_cpus
    }
    fn this_cpu(&self) -> CpuId {
        CpuId(this_cpu())
    }
    fn heavy_barrier(&self, _cpus: &CpuSet) {}
    fn shootdown(&self, _space: SpaceTag, _cpus: &CpuSet, _what: Flush) {}
    fn shootdown_is_grace(&self) -> bool {
        true
    }
    fn relax(&self) {}
    fn park(&self, _word: &Word, _expected: u64) {}
    fn unpark(&self, _word: &Word) {}
    fn now_ns(&self) -> u64 {
        0
    }
    fn random(&self) -> u64 {
        4
    }
}
