//! Random numbers, from the CPU's generator where it has one.

use crate::port::arch::time;
use core::sync::atomic::{AtomicU64, Ordering};

static STATE: AtomicU64 = AtomicU64::new(0);

/// The CPU's own number; `None` where it has no generator or none ready.
fn from_cpu() -> Option<u64> {
    let leaf = core::arch::x86_64::__cpuid(1);
    if leaf.ecx & 1 << 30 == 0 {
        return None;
    }
    let (value, ok): (u64, u8);
    // SAFETY: K6: `rdrand` is there, as cpuid says; it writes one register.
    unsafe { core::arch::asm!("rdrand {}; setc {}", out(reg) value, out(reg_byte) ok, options(nomem, nostack)) };
    (ok != 0).then_some(value)
}

/// Seeds the sequence; once, at boot.
pub fn init() {
    STATE.store(from_cpu().unwrap_or(0) ^ time::ticks(), Ordering::Relaxed);
}

/// The next number (splitmix64, seeded by the CPU and the time).
pub fn next() -> u64 {
    let mut z = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
