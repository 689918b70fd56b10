//! Touching the machine's memory before anything is timed: a page of it that
//! QEMU's host has never seen costs more than the fault itself.

use crate::sys::{self, PAGE};

/// Rounds: the first makes the host provide the memory, the second leaves the
/// kernel's own lists as they are in a machine that has been in use.
const NR_ROUNDS: usize = 2;
/// Less than that is not worth it.
const LEAST_BYTES: usize = 8 << 20;

/// A child touches most of what is free, and exits.
pub fn warm() -> Result<(), isize> {
    let free = sys::free_bytes();
    let len = free.saturating_sub((free / 16).max(24 << 20)) & !(PAGE - 1);
    if len < LEAST_BYTES {
        return Ok(());
    }
    match sys::fork() {
        0 => touch_and_exit(len),
        pid if pid > 0 => {
            sys::wait(pid);
            Ok(())
        }
        error => Err(error),
    }
}

fn touch_and_exit(len: usize) -> ! {
    for _ in 0..NR_ROUNDS {
        if let Some(base) = sys::map(len) {
            write_pages(base, len / PAGE);
            // SAFETY: L2: nobody else knows of it.
            unsafe { sys::unmap(base, len) };
        }
    }
    sys::exit(0)
}

/// Writes a byte to each page.
#[inline(never)]
pub fn write_pages(base: *mut u8, nr_pages: usize) {
    for i in 0..nr_pages {
        // SAFETY: L2: inside the mapping, which one thread has.
        unsafe { base.add(i * PAGE).write_volatile(1) };
    }
}

/// Reads a byte of each page.
#[inline(never)]
pub fn read_pages(base: *mut u8, nr_pages: usize) {
    for i in 0..nr_pages {
        // SAFETY: L2: inside the mapping.
        unsafe { base.add(i * PAGE).read_volatile() };
    }
}
