//! Ending the machine, and saying how it ended.

use super::console::{self, Channel};
pub use super::packet::End;
use x86_64::instructions::port::Port;

/// QEMU's exit device; it exits with `(value << 1) | 1`, never 0, which is what
/// a triple fault gives.
const EXIT_PORT: u16 = 0xf4;
const EXIT_VALUE: u32 = 0x10;

/// Says how it ended and turns the machine off.
pub fn off(end: End) -> ! {
    console::send_last_words(Channel::End, &end.to_bytes());
    // SAFETY: K6: QEMU exits.
    unsafe { Port::<u32>::new(EXIT_PORT).write(EXIT_VALUE) };
    loop {
        x86_64::instructions::hlt();
    }
}
