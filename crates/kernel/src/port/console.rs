//! Output, all through one port of QEMU's debug console, as packets (packet.rs).

use super::packet;
pub use super::packet::Channel;
use crate::port::sync::SpinLock;
use core::fmt::{self, Write};
use x86_64::instructions::port::Port;

const PORT: u16 = 0xe9;

static LOCK: SpinLock<()> = SpinLock::new(());

fn put(bytes: &[u8]) {
    let mut port = Port::<u8>::new(PORT);
    for byte in bytes {
        // SAFETY: K6: the debug console takes a byte and does no more.
        unsafe { port.write(*byte) };
    }
}

fn put_packet(channel: Channel, bytes: &[u8]) {
    for part in bytes.chunks(usize::from(u16::MAX)) {
        put(&packet::head(channel, part.len() as u16));
        put(part);
    }
}

/// Sends bytes; packets of several CPUs do not mix.
pub fn send(channel: Channel, bytes: &[u8]) {
    let _guard = LOCK.lock();
    put_packet(channel, bytes);
}

/// Sends bytes without the lock: the last words of a kernel that fails.
pub fn send_last_words(channel: Channel, bytes: &[u8]) {
    let _guard = (0..1_000_000).find_map(|_| LOCK.try_lock());
    put_packet(channel, bytes);
}

/// Collects a line and sends it as one packet when it is dropped.
pub struct Line {
    channel: Channel,
    forced: bool,
    bytes: [u8; 1024],
    len: usize,
}

impl Line {
    /// An empty line; `forced` as [`send_last_words`].
    pub fn new(channel: Channel, forced: bool) -> Line {
        Line { channel, forced, bytes: [0; 1024], len: 0 }
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let part = &text.as_bytes()[..text.len().min(self.bytes.len() - self.len)];
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let line = &self.bytes[..self.len];
        if self.forced { send_last_words(self.channel, line) } else { send(self.channel, line) }
    }
}

/// Writes a line to the kernel's log.
macro_rules! log {
    ($($arg:tt)*) => {{
        let mut line = $crate::port::console::Line::new($crate::port::console::Channel::Log, false);
        let _ = core::fmt::Write::write_fmt(&mut line, format_args!("{}\n", format_args!($($arg)*)));
    }};
}

pub(crate) use log;
