//! The core's [`Machine`] trait for the hosted machine.
#![allow(unsafe_code)]

use crate::cpu::{CpuState, as_callback, bound};
use crate::hosted::Hosted;
use crate::shootdown::pause;
use crate::ticks;
use core::sync::atomic::Ordering::Relaxed;
use softfault::addr::Pfn;
use softfault::machine::{CpuId, CpuSet, Flush, FrameCopy, Machine, SpaceTag, Tick};
use softfault::sync::Word;
use softfault::table::format::Format;
use softfault::{
    AddressSpace, FileFill, FileId, FileWrite, Filling, FrameRange, HoleRefused, Notice, ObjectHole, StorageId,
    StoreRefused, SwapError, SwapSlot, Writing,
};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

// SAFETY: I1: E1, E2; accesses touch a frame only where a table of the core maps
// it, or where the core has named it in an `unsafe` call (I63); `are_zero` is set only while all of the arena is zero. I2: E3; a thread keeps its CPU
// while its guard lives. I3: E7. I4: E4, E5 and E6. I42: the host's kernel shows only
// what all of its CPUs have.
unsafe impl<F: Format> Machine for Hosted<F> {
    type Format = F;

    fn frames(&self) -> &[FrameRange] {
        self.arena.frames()
    }

    fn nr_frames_at_most(&self) -> u64 {
        self.arena.nr_frames()
    }

    /// Whatever lies in the arena, which is all there and this machine's alone. It may have been used.
    unsafe fn add_frames(&self, range: &FrameRange) -> Option<bool> {
        let end = u64::from(range.first.0) + range.nr_frames;
        (end <= self.arena.nr_frames()).then(|| {
            self.files.no_longer_foreign(range);
            false
        })
    }

    unsafe fn foreign_frames(&self, range: &FrameRange) -> bool {
        let is_there = u64::from(range.first.0) + range.nr_frames <= self.arena.nr_frames();
        if is_there {
            self.files.add_foreign(*range);
        }
        is_there
    }

    fn begin(&mut self) -> bool {
        self.cpus.iter().for_each(CpuState::begin);
        core::mem::replace(&mut self.are_zero, false)
    }

    #[inline(always)]
    fn frame_ptr(&self, pfn: Pfn) -> *mut u8 {
        self.arena.frame_ptr(pfn)
    }

    #[inline(always)]
    fn nr_cpus(&self) -> usize {
        self.cpus.len()
    }

    /// # Panics
    ///
    /// If the thread is not bound to a CPU of this machine.
    #[inline(always)]
    fn this_cpu(&self) -> CpuId {
        // The machine's own number cancels; anything else leaves more than the
        // largest CPU number.
        let cpu = bound() ^ self.tag;
        if cpu >= self.cpus.len() as u64 {
            not_bound();
        }
        CpuId(cpu as u16)
    }

    fn top_leaf(&self) -> u8 {
        self.top_leaf
    }

    fn marks_entries(&self) -> bool {
        !self.software_ad_bits
    }

    /// Each thread has its own, as all of the host's programs.
    fn vector_registers(&self) -> bool {
        true
    }

    fn heavy_barrier(&self, cpus: &CpuSet) {
        self.waits();
        if !cpus.is_empty() {
            self.barrier.pass();
        }
    }

    #[inline(always)]
    unsafe fn copy_frame(&self, to: Pfn, from: Pfn) -> FrameCopy {
        self.copies.copy(&self.arena, to, from)
    }

    fn shootdown(&self, space: SpaceTag, cpus: &CpuSet, what: Flush) {
        self.waits();
        self.shoot(self.this_cpu(), space, cpus, what);
    }

    /// Accesses are over when a shootdown returns, but the core's own sections
    /// are not the machine's to see.
    fn shootdown_is_grace(&self) -> bool {
        false
    }

    fn relax(&self) {
        self.waits();
        pause();
    }

    fn park(&self, word: &Word, expected: u64) {
        if !self.waits() {
            self.parking.park(word, expected);
        }
    }

    fn unpark(&self, word: &Word) {
        self.parking.unpark(word);
    }

    #[inline(always)]
    fn tick(&self, tick: Tick) {
        if !cfg!(debug_assertions) {
            return;
        }
        match tick {
            Tick::Taking(kind) => _ = self.locks().inspect(|locks| locks.taking(kind)),
            Tick::Released(kind) => _ = self.locks().inspect(|locks| locks.released(kind)),
            _ => ticks::tick(tick),
        }
    }

    #[inline(always)]
    fn entered(&self, slot: &Word) {
        if cfg!(debug_assertions) {
            ticks::entered(self.arena.place_of(slot));
        }
    }

    fn nr_swap_slots(&self) -> u32 {
        self.swap.nr_slots()
    }

    unsafe fn swap_out(&self, slot: SwapSlot, pfn: Pfn) -> Result<(), SwapError> {
        self.waits();
        self.swap.write(slot, &self.arena, pfn)
    }

    unsafe fn swap_in(&self, slot: SwapSlot, pfn: Pfn) -> Result<(), SwapError> {
        self.waits();
        self.swap.read(slot, &self.arena, pfn)
    }

    unsafe fn fill(&self, fill: FileFill) -> Filling {
        self.waits();
        self.fill_from_file(fill)
    }

    unsafe fn write_back(&self, write: FileWrite) -> Writing {
        self.waits();
        self.write_to_file(write)
    }

    fn storage(&self, file: FileId) -> StorageId {
        self.storage_of(file)
    }

    fn may_store(&self, file: FileId, pages: Range<u64>) -> Result<(), StoreRefused> {
        self.waits();
        self.ask_file(file, pages)
    }

    fn punch_hole(&self, hole: ObjectHole<'_>) -> Result<(), HoleRefused> {
        self.waits();
        self.punch_in_file(hole)
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn notify(&self, space: SpaceTag, notice: &Notice) -> bool {
        let Some(subscriber) = self.subscriber.get() else { return false };
        // The core is in the middle of an operation, so no panic goes through it.
        let told = catch_unwind(AssertUnwindSafe(|| as_callback(|| subscriber(space, notice))));
        told.unwrap_or_else(|panic| {
            // The end of what it panicked with could panic, too.
            core::mem::forget(panic);
            self.notices_lost.fetch_add(1, Relaxed);
            false
        })
    }

    /// splitmix64, a sequence for each CPU.
    fn random(&self) -> u64 {
        let state = &self.cpus[self.this_cpu().0 as usize].own.random;
        let next = state.load(Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.store(next, Relaxed);
        let mixed = (next ^ next >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

impl<F: Format> Hosted<F> {
    /// Loads a word of a frame as a device does: by frame number, without page tables.
    ///
    /// ```compile_fail,E0133
    /// # use softfault::Pfn;
    /// # use softfault_host::{Hosted, HostedConfig};
    /// let hosted = Hosted::new(HostedConfig::default()).unwrap();
    /// hosted.device_load(Pfn(1), 0);
    /// ```
    ///
    /// # Safety
    ///
    /// I6, I24: the caller has pinned the frame, or has looked it up and received no notice
    /// of a change since. A pin reads and writes without `unsafe`.
    ///
    /// # Panics
    ///
    /// If the frame has no such word.
    pub unsafe fn device_load(&self, pfn: Pfn, offset: usize) -> u64 {
        self.arena.word(pfn, offset).load(Relaxed)
    }

    /// Stores a word, as [`device_load`](Self::device_load) loads one.
    ///
    /// ```compile_fail,E0133
    /// # use softfault::Pfn;
    /// # use softfault_host::{Hosted, HostedConfig};
    /// let hosted = Hosted::new(HostedConfig::default()).unwrap();
    /// hosted.device_store(Pfn(1), 0, 7);
    /// ```
    ///
    /// # Safety
    ///
    /// As `device_load`, for a page that may be written.
    pub unsafe fn device_store(&self, pfn: Pfn, offset: usize, value: u64) {
        self.arena.word(pfn, offset).store(value, Relaxed);
    }
}

/// Makes the calling CPU, which is in no space, run this one.
pub(crate) fn load_root<F: Format>(space: &AddressSpace<'_, Hosted<F>>) {
    // SAFETY: I11: a CPU is in one space at a time (`Place`), so that the core
    // knows of it until `leave_root`, and refuses to drop the space before.
    unsafe { space.activate_raw() }
}

/// Makes the calling CPU, `cpu`, leave the space.
pub(crate) fn leave_root<F: Format>(cpu: &CpuState, space: &AddressSpace<'_, Hosted<F>>) {
    // No shootdown reaches this CPU from now on, so nothing may stay.
    cpu.flush(space.tag().id, Flush::Space);
    // SAFETY: I4, I11: the translations are gone, and no access is under way (E4).
    unsafe { space.deactivate_raw() }
}

#[cold]
#[inline(never)]
fn not_bound() -> ! {
    panic!("the calling thread is not a CPU of this machine: keep the guard of `Hosted::bind` alive around the call")
}
