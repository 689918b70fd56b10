//! The core facade: machine instructions.

use super::Ordering;
use core::sync::atomic::{AtomicU64, compiler_fence};

/// The bytes of programs; core's atomics.
pub use core::sync::atomic::AtomicU64 as Cell64;

/// A shared 64-bit cell; all zeroes is a valid value.
#[repr(transparent)]
#[derive(Default, Debug)]
pub struct Word(AtomicU64);

#[allow(missing_docs)] // as on core's AtomicU64
impl Word {
    pub const fn new(value: u64) -> Word {
        Word(AtomicU64::new(value))
    }
    #[inline(always)]
    pub fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    #[inline(always)]
    pub fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    #[inline(always)]
    pub fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }
    #[inline(always)]
    pub fn compare_exchange(&self, current: u64, new: u64, ok: Ordering, err: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, ok, err)
    }
    #[inline(always)]
    pub fn fetch_add(&self, n: u64, order: Ordering) -> u64 {
        self.0.fetch_add(n, order)
    }
    #[inline(always)]
    pub fn fetch_sub(&self, n: u64, order: Ordering) -> u64 {
        self.0.fetch_sub(n, order)
    }
    #[inline(always)]
    pub fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.0.fetch_or(bits, order)
    }
    #[inline(always)]
    pub fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        self.0.fetch_and(bits, order)
    }
}

/// A full fence.
#[inline(always)]
pub fn fence() {
    core::sync::atomic::fence(Ordering::SeqCst);
}

/// Marks the owner of `slot` as inside: a plain store. Later accesses may be
/// executed before the store is visible; the machine's heavy barrier closes
/// that gap from the other side.
///
/// Release: a remover may read this value instead of the one that [`leave`] stored
/// before it. A relaxed store here would end the release sequence of that `leave`,
/// and the remover would not synchronize with the section that has ended. On x86
/// the instruction is the same.
#[inline(always)]
pub fn enter(slot: &Word, odd: u64) {
    slot.0.store(odd, Ordering::Release);
    light_barrier();
}

/// The light half: the compiler moves nothing across it. The heavy half interrupts CPUs, which an
/// interpreter has none of (Miri): there this half is a full fence.
#[inline(always)]
fn light_barrier() {
    if cfg!(miri) { fence() } else { compiler_fence(Ordering::SeqCst) }
}

/// Marks the owner of `slot` as outside: everything before is done.
#[inline(always)]
pub fn leave(slot: &Word, even: u64) {
    slot.0.store(even, Ordering::Release);
}

/// Reads another CPU's slot, after the heavy barrier.
#[inline(always)]
pub fn probe(slot: &Word) -> u64 {
    slot.0.load(Ordering::Acquire)
}

/// Whether the word seems to be 0: for spins, which ask before they try again.
#[inline(always)]
pub fn seems_zero(word: &Word) -> bool {
    word.load(Ordering::Relaxed) == 0
}

/// Reads a word that says where something lies, and changes only when memory comes or goes.
#[inline(always)]
pub fn read_mostly(place: &Word) -> u64 {
    place.load(Ordering::Acquire)
}

/// Stores into a word that others spin on with read-modify-writes.
#[inline(always)]
pub fn unlock(word: &Word, value: u64) {
    word.store(value, Ordering::Release);
}

/// See the recording facade.
#[inline(always)]
pub fn streamed() {}

/// See the recording facade.
#[inline(always)]
pub fn stream_done() {}

/// See the shuttle facade.
#[inline(always)]
pub fn about_to_touch(_: *const u8, _: usize) {}

/// Words of this memory were zeroed as plain memory.
#[inline(always)]
pub fn zeroed(_: *const u8, _: usize) {}

/// One turn of a spin inside a section, where nothing of the machine's may be
/// called.
pub fn spin() {
    core::hint::spin_loop();
}

/// See the shuttle facade.
#[inline(always)]
pub fn copies_frames_at_once() -> bool {
    false
}

/// Whether long passes answer other CPUs. They do.
pub const PASSES_ANSWER: bool = true;
