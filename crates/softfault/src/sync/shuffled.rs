//! The shuttle facade: the instruction, and before it a point where the
//! scheduler may let another thread go on.
//!
//! Sequentially consistent, so weaker than loom in what it can find; but words
//! are plain memory, so whole machines with real formats run under it, for as
//! long as one likes.

extern crate std;

use super::Ordering;
use core::sync::atomic::AtomicU64;
use std::cell::Cell;

std::thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Whether operations are scheduling points from now on: only inside a shuttle
/// test, whose threads are coroutines of one system thread. Gives what was.
pub fn shuffle(on: bool) -> bool {
    RUNNING.with(|r| r.replace(on))
}

fn point() {
    if RUNNING.with(Cell::get) {
        shuttle::thread::yield_now();
    }
}

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
        point();
        self.0.load(order)
    }
    pub fn store(&self, value: u64, order: Ordering) {
        point();
        self.0.store(value, order);
    }
    pub fn swap(&self, value: u64, order: Ordering) -> u64 {
        point();
        self.0.swap(value, order)
    }
    pub fn compare_exchange(&self, current: u64, new: u64, ok: Ordering, err: Ordering) -> Result<u64, u64> {
        point();
        self.0.compare_exchange(current, new, ok, err)
    }
    pub fn fetch_add(&self, n: u64, order: Ordering) -> u64 {
        point();
        self.0.fetch_add(n, order)
    }
    pub fn fetch_sub(&self, n: u64, order: Ordering) -> u64 {
        point();
        self.0.fetch_sub(n, order)
    }
    pub fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        point();
        self.0.fetch_or(bits, order)
    }
    pub fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        point();
        self.0.fetch_and(bits, order)
    }
}

/// A full fence.
pub fn fence() {}

/// See the core facade.
pub fn enter(slot: &Word, odd: u64) {
    slot.store(odd, Ordering::SeqCst);
}

/// See the core facade.
pub fn leave(slot: &Word, even: u64) {
    slot.store(even, Ordering::SeqCst);
}

/// See the core facade.
pub fn probe(slot: &Word) -> u64 {
    slot.load(Ordering::SeqCst)
}

/// See the core facade.
pub fn seems_zero(word: &Word) -> bool {
    word.load(Ordering::Relaxed) == 0
}

/// See the core facade.
pub fn unlock(word: &Word, value: u64) {
    word.store(value, Ordering::Release);
}

/// See the core facade.
pub fn zeroed(_: *const u8, _: usize) {}

/// One turn of a spin inside a section.
pub fn spin() {
    point();
}
