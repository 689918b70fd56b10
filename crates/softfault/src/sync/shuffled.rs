//! The shuttle facade: the instruction as a CPU with a store buffer executes it,
//! and before it a point where the scheduler may let another thread go on.
//!
//! Words are plain memory, so whole machines with real formats run under it, for
//! as long as one likes. [`enter`], [`leave`] and [`unlock`] are the plain stores
//! that ship; the heavy barrier is the test machine's, which calls [`drain_of`].

mod buffer;

use super::Ordering;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

pub use buffer::{CopyStep, at_once, begin, copy_by, drain_of, end, point as maybe_switch, quietly, run_as};

macro_rules! cells {
    ($($(#[$about:meta])* $name:ident: $atomic:ident = $int:ty;)*) => {$(
        $(#[$about])*
        #[repr(transparent)]
        #[derive(Default, Debug)]
        pub struct $name($atomic);

        #[allow(missing_docs)] // as on core's atomics
        impl $name {
            fn addr(&self) -> usize {
                core::ptr::from_ref(self).addr()
            }
            pub fn load(&self, order: Ordering) -> $int {
                buffer::point();
                buffer::forwarded(self.addr(), size_of::<$int>()).map_or_else(|| self.0.load(order), |v| v as $int)
            }
            pub fn store(&self, value: $int, order: Ordering) {
                buffer::point();
                if order == Ordering::SeqCst {
                    buffer::drain();
                    return self.0.store(value, order);
                }
                if !buffer::append(self.addr(), size_of::<$int>(), value.into()) {
                    self.0.store(value, order);
                }
            }
            pub fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                ok: Ordering,
                err: Ordering,
            ) -> Result<$int, $int> {
                buffer::point();
                buffer::drain();
                self.0.compare_exchange(current, new, ok, err)
            }
        }
    )*};
}

cells! {
    /// A shared 64-bit cell; all zeroes is a valid value.
    Word: AtomicU64 = u64;
    /// A byte of a program's.
    Cell8: AtomicU8 = u8;
    /// An aligned half word of a program's.
    Cell32: AtomicU32 = u32;
}

/// An aligned word of a program's.
pub type Cell64 = Word;

macro_rules! changes {
    ($($name:ident)*) => {
        #[allow(missing_docs)] // as on core's AtomicU64
        impl Word {
            pub const fn new(value: u64) -> Word {
                Word(AtomicU64::new(value))
            }
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
    buffer::forwarded(place.addr(), size_of::<u64>()).unwrap_or_else(|| place.0.load(Ordering::Acquire))
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
