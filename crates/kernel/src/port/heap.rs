//! The kernel's heap: threads, processes, queues, names. Programs' memory and
//! page tables come from the subsystem, never from here.
//!
//! Collections abort when the heap is full. So each object that a program can make
//! more of is charged first, at more than its size: a program is refused long before
//! the heap is full.

use crate::port::arch::phys::{Span, direct_map};
use crate::port::sync::RawSpin;
use core::sync::atomic::{AtomicU64, Ordering};
use softfault::Errno;
use talc::{ErrOnOom, Talc, Talck};

#[global_allocator]
static HEAP: Talck<RawSpin, ErrOnOom> = Talc::new(ErrOnOom).lock();
static BYTES: AtomicU64 = AtomicU64::new(0);
static CHARGED: AtomicU64 = AtomicU64::new(0);

/// Gives the heap its memory; once.
pub fn init(memory: Span) {
    let span = talc::Span::new(direct_map(memory.start), direct_map(memory.end));
    BYTES.store(memory.end - memory.start, Ordering::Relaxed);
    // SAFETY: K1 and K7: memory behind the image that nobody else was given.
    let claimed = unsafe { HEAP.lock().claim(span) };
    claimed.expect("the heap's memory is large enough for its own bookkeeping");
}

/// A right to so many bytes of the heap, until it is dropped.
#[derive(Debug)]
pub struct Charge(u64);

/// Asks for `bytes` more, for something that a program has the kernel keep;
/// ENOMEM once three quarters of the heap are promised. The rest is for what is
/// short-lived.
pub fn charge(bytes: usize) -> Result<Charge, Errno> {
    let bytes = bytes as u64;
    let limit = BYTES.load(Ordering::Relaxed) / 4 * 3;
    let before = CHARGED.fetch_add(bytes, Ordering::Relaxed);
    let charge = Charge(bytes);
    if before.saturating_add(bytes) > limit { Err(Errno::ENOMEM) } else { Ok(charge) }
}

impl Drop for Charge {
    fn drop(&mut self) {
        CHARGED.fetch_sub(self.0, Ordering::Relaxed);
    }
}
