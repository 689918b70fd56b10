//! The shuttle facade: the instruction as a CPU with a store buffer executes it,
//! and before it a point where the scheduler may let another thread go on.
//!
//! Words are plain memory, so whole machines with real formats run under it, for
//! as long as one likes. [`enter`], [`leave`] and [`unlock`] are the plain stores
//! that ship; the heavy barrier is the test machine's, which calls [`drain_of`].

mod buffer;

use super::Ordering;
use core::sync::atomic::AtomicU64;

pub use buffer::{CopyStep, at_once, begin, copy_by, drain_of, end, point as maybe_switch, quietly, run_as};

/// A shared 64-bit cell; all zeroes is a valid value.
#[repr(transparent)]
#[derive(Default, Debug)]
pub struct Word(AtomicU64);

/// An aligned word of a program's.
pub type Cell64 = Word;

#[allow(missing_docs)] // as on core's AtomicU64
impl Word {
    pub const fn new(value: u64) -> Word {
        Word(AtomicU64::new(value))
    }
    pub fn load(&self, order: Ordering) -> u64 {
        buffer::point();
        buffer::forwarded(&self.0).unwrap_or_else(|| self.0.load(order))
    }
    pub fn store(&self, value: u64, order: Ordering) {
        buffer::point();
        if order == Ordering::SeqCst {
            buffer::drain();
            return self.0.store(value, order);
        }
        if !buffer::append(&self.0, value) {
            self.0.store(value, order);
        }
    }
    pub fn compare_exchange(&self, current: u64, new: u64, ok: Ordering, err: Ordering) -> Result<u64, u64> {
        buffer::point();
        buffer::drain();
        self.0.compare_exchange(current, new, ok, err)
    }
}

macro_rules! changes {
    ($($name:ident)*) => {
        #[allow(missing_docs)] // as on core's AtomicU64
        impl Word {
            $(pub fn $name(&self, operand: u64, order: Ordering) -> u64 {
                buffer::point();
                buffer::drain();
                self.0.$name(operand, order)
            })*
        }
    };
}

changes! { swap fetch_add fetch_sub fetch_or fetch_and }

/// A full fence.
pub fn fence() {
    buffer::point();
    buffer::drain();
}

/// The plain store that ships: it stays in the CPU's buffer until something
/// drains it.
pub fn enter(slot: &Word, odd: u64) {
    slot.store(odd, Ordering::Release);
}

/// See the core facade.
pub fn leave(slot: &Word, even: u64) {
    slot.store(even, Ordering::Release);
}

/// See the core facade.
pub fn probe(slot: &Word) -> u64 {
    slot.load(Ordering::Acquire)
}

/// See the core facade.
pub fn seems_zero(word: &Word) -> bool {
    word.load(Ordering::Relaxed) == 0
}

/// See the core facade. No point where another thread may go on: the word hardly ever changes,
/// and a fault has many of these.
pub fn read_mostly(place: &Word) -> u64 {
    buffer::forwarded(&place.0).unwrap_or_else(|| place.0.load(Ordering::Acquire))
}

/// See the core facade.
pub fn unlock(word: &Word, value: u64) {
    word.store(value, Ordering::Release);
}

/// See the recording facade.
#[inline(always)]
pub fn streamed() {}

/// See the recording facade.
#[inline(always)]
pub fn stream_done() {}

/// See the core facade.
pub fn zeroed(_: *const u8, _: usize) {}

/// The calling CPU is about to use these bytes as plain memory.
pub fn about_to_touch(first: *const u8, bytes: usize) {
    buffer::about_to_touch(first.addr(), bytes);
}

/// Whether a frame that others may store to is copied in one step, not word by word.
pub fn copies_frames_at_once() -> bool {
    buffer::copy_step() == CopyStep::Frame
}

/// One turn of a spin, inside a section or in the machine's `relax`.
pub fn spin() {
    buffer::spin();
}

/// Whether long passes answer other CPUs. They do.
pub const PASSES_ANSWER: bool = true;
