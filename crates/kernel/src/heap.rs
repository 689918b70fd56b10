//! The kernel's heap: threads, processes, queues. Programs' memory and page
//! tables come from the subsystem, never from here.

use crate::boot::info::Span;
use crate::boot::paging::direct_map;
use crate::sync::RawSpin;
use core::sync::atomic::{AtomicU64, Ordering};
use talc::{ErrOnOom, Talc, Talck};

#[global_allocator]
static HEAP: Talck<RawSpin, ErrOnOom> = Talc::new(ErrOnOom).lock();
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Gives the heap its memory; once.
pub fn init(memory: Span) {
    let span = talc::Span::new(direct_map(memory.start), direct_map(memory.end));
    BYTES.store(memory.end - memory.start, Ordering::Relaxed);
    // SAFETY: K1 and K7: memory behind the image that nobody else was given.
    let claimed = unsafe { HEAP.lock().claim(span) };
    claimed.expect("the heap's memory is large enough for its own bookkeeping");
}

/// How large it is.
pub fn bytes() -> u64 {
    BYTES.load(Ordering::Relaxed)
}
