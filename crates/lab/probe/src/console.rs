//! The way out: two channels, output and errors.
//!
//! On the reference kernel they are descriptors 1 and 2, which the kernel sends
//! through QEMU's debug console as packets. On Linux the probe sends such packets
//! itself, through the same port: no driver, no terminal between.

use crate::packet;
use crate::sys;
use core::arch::asm;
use core::ffi::CStr;
use core::fmt::{self, Write};

const PORT: u16 = 0xe9;

/// The receiver of the output: standard output, standard error, or the end of the machine.
pub use packet::Channel;

/// Where the channels lead.
pub struct Console {
    by_port: bool,
}

impl Console {
    /// Descriptors 1 and 2.
    pub fn descriptors() -> Console {
        Console { by_port: false }
    }
    /// The port; iopl(2) came before.
    pub fn port() -> Console {
        Console { by_port: true }
    }
    /// Sends bytes.
    pub fn send(&self, channel: Channel, bytes: &[u8]) {
        if self.by_port {
            return send_packets(channel, bytes);
        }
        match channel {
            Channel::Output => sys::write(1, bytes),
            Channel::Error => sys::write(2, bytes),
            // The kernel reports the end when the probe exits; the probe sends nothing else.
            _ => {}
        }
    }
    /// A line on the error channel.
    pub fn complain(&self, what: fmt::Arguments) {
        let mut line = Line::default();
        let _ = writeln!(line, "probe: {what}");
        self.send(Channel::Error, line.bytes());
    }
    /// A record: on both channels, so that what the program wrote before it can be
    /// told from what comes after on either.
    pub fn record(&self, marker: &CStr, json: fmt::Arguments) {
        let mut line = Line::default();
        let _ = writeln!(line, "{}{json}", marker.to_str().unwrap_or(""));
        self.send(Channel::Output, line.bytes());
        self.send(Channel::Error, line.bytes());
    }
}

fn send_packets(channel: Channel, bytes: &[u8]) {
    for part in bytes.chunks(usize::from(u16::MAX)) {
        put(&packet::head(channel, part.len() as u16));
        put(part);
    }
}

fn put(bytes: &[u8]) {
    // SAFETY: L7: iopl(2) came before; the port takes bytes and does no more.
    unsafe {
        asm!(
            "rep outsb",
            inout("rcx") bytes.len() => _, inout("rsi") bytes.as_ptr() => _, in("dx") PORT,
            options(nostack, readonly),
        );
    }
}

/// A line of text; what is too long for it is cut off.
pub struct Line {
    bytes: [u8; 1024],
    len: usize,
}

impl Default for Line {
    fn default() -> Line {
        Line { bytes: [0; 1024], len: 0 }
    }
}

impl Line {
    /// The bytes that were written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
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
