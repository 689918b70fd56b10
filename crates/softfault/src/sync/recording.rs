//! The recording facade: the instruction, and a note of it to the recorder of
//! this thread.

extern crate std;

use super::Ordering;
use core::sync::atomic::{AtomicU64, compiler_fence};
use std::boxed::Box;
use std::cell::{Cell, RefCell};

/// The kind of access to a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// The cell was read.
    Read,
    /// The cell was written, or read and written; a failed compare-exchange
    /// counts, since it takes the line exclusively all the same.
    Write,
}

type Recorder = Box<dyn FnMut(usize, Touch)>;

std::thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
    static STREAMED: Cell<bool> = const { Cell::new(false) };
}

/// From now on this thread tells `recorder` the address and kind of each
/// touch; `None` stops it. Gives back the recorder that was there.
pub fn record(recorder: Option<Recorder>) -> Option<Recorder> {
    RECORDER.with(|r| core::mem::replace(&mut *r.borrow_mut(), recorder))
}

fn note(word: &Word, touch: Touch) {
    RECORDER.with(|r| {
        if let Some(recorder) = r.borrow_mut().as_mut() {
            recorder(core::ptr::from_ref(word).addr(), touch);
        }
    });
}

/// A release would tell others of frames whose content has not arrived (I6).
fn check_release(order: Ordering) {
    let is_release = matches!(order, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst);
    // Said once: destructors release, too.
    let is_early = is_release && STREAMED.replace(false);
    assert!(!is_early, "I6: a release after streaming that no fence has ended");
}

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
    pub fn load(&self, order: Ordering) -> u64 {
        note(self, Touch::Read);
        self.0.load(order)
    }
    pub fn store(&self, value: u64, order: Ordering) {
        check_release(order);
        note(self, Touch::Write);
        self.0.store(value, order);
    }
    pub fn swap(&self, value: u64, order: Ordering) -> u64 {
        check_release(order);
        note(self, Touch::Write);
        self.0.swap(value, order)
    }
    pub fn compare_exchange(&self, current: u64, new: u64, ok: Ordering, err: Ordering) -> Result<u64, u64> {
        check_release(ok);
        note(self, Touch::Write);
        self.0.compare_exchange(current, new, ok, err)
    }
    pub fn fetch_add(&self, n: u64, order: Ordering) -> u64 {
        check_release(order);
        note(self, Touch::Write);
        self.0.fetch_add(n, order)
    }
    pub fn fetch_sub(&self, n: u64, order: Ordering) -> u64 {
        check_release(order);
        note(self, Touch::Write);
        self.0.fetch_sub(n, order)
    }
    pub fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        check_release(order);
        note(self, Touch::Write);
        self.0.fetch_or(bits, order)
    }
    pub fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        check_release(order);
        note(self, Touch::Write);
        self.0.fetch_and(bits, order)
    }
}

/// A full fence.
pub fn fence() {
    core::sync::atomic::fence(Ordering::SeqCst);
}

/// See the core facade.
pub fn enter(slot: &Word, odd: u64) {
    slot.store(odd, Ordering::Release);
    compiler_fence(Ordering::SeqCst);
}

/// See the core facade.
pub fn leave(slot: &Word, even: u64) {
    slot.store(even, Ordering::Release);
}

/// See the core facade.
pub fn probe(slot: &Word) -> u64 {
    slot.load(Ordering::Acquire)
}

/// Whether the word seems to be 0: for spins, which ask before they try again.
#[inline(always)]
pub fn seems_zero(word: &Word) -> bool {
    word.load(Ordering::Relaxed) == 0
}

/// See the core facade.
#[inline(always)]
pub fn read_mostly(place: &Word) -> u64 {
    place.load(Ordering::Acquire)
}

/// Stores into a word that others spin on with read-modify-writes.
#[inline(always)]
pub fn unlock(word: &Word, value: u64) {
    word.store(value, Ordering::Release);
}

/// Stores past the caches were made, and are ordered by nothing yet.
pub fn streamed() {
    STREAMED.set(true);
}

/// Orders streamed stores before all that follows.
pub fn stream_done() {
    STREAMED.set(false);
}

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
