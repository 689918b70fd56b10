//! Ending the machine, and saying how it ended.

use crate::port::console::{self, Channel};
use x86_64::instructions::port::Port;

/// QEMU's exit device; it exits with `(value << 1) | 1`, never 0, which is what
/// a triple fault gives.
const EXIT_PORT: u16 = 0xf4;
const EXIT_VALUE: u32 = 0x10;

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The program exited with a status.
    Exit(u8),
    /// A signal killed the program.
    Signal(u8),
    /// The kernel gave up.
    Panic,
    /// The program could not be started; the log says why.
    Refused,
}

/// Says how it ended and turns the machine off.
pub fn off(end: End) -> ! {
    let (kind, code) = match end {
        End::Exit(status) => (b'e', status),
        End::Signal(number) => (b's', number),
        End::Panic => (b'p', 0),
        End::Refused => (b'r', 0),
    };
    console::send_last_words(Channel::End, &[kind, code]);
    // SAFETY: K6: QEMU exits.
    unsafe { Port::<u32>::new(EXIT_PORT).write(EXIT_VALUE) };
    loop {
        x86_64::instructions::hlt();
    }
}
