//! The packets in which the machine's output travels, all of it through one port:
//! `0x1e`, a letter for the channel, a 16-bit little-endian length, the bytes.
//!
//! `softfault run` takes them apart again and compiles this same file.

#![allow(dead_code)] // the kernel writes packets, the laboratory reads them

/// The first byte of a packet.
pub const START: u8 = 0x1e;

/// The kind of a packet's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channel {
    /// The program's standard input; nothing is sent through it.
    Input = b'i' as isize,
    /// The program's standard output.
    Output = b'o' as isize,
    /// The program's standard error.
    Error = b'e' as isize,
    /// The kernel's log.
    Log = b'l' as isize,
    /// The figures for `--stats`.
    Stats = b's' as isize,
    /// How the machine ended: an [`End`].
    End = b'x' as isize,
}

/// How the machine ended.
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

/// The header of a packet of `nr_bytes` bytes.
pub const fn head(channel: Channel, nr_bytes: u16) -> [u8; 4] {
    let [low, high] = nr_bytes.to_le_bytes();
    [START, channel as u8, low, high]
}

impl Channel {
    /// The channel of that letter.
    pub fn of(letter: u8) -> Option<Channel> {
        use Channel::{End, Error, Input, Log, Output, Stats};
        [Input, Output, Error, Log, Stats, End].into_iter().find(|channel| *channel as u8 == letter)
    }
}

impl End {
    /// The two bytes of its packet: a letter and a number.
    pub const fn to_bytes(self) -> [u8; 2] {
        match self {
            End::Exit(status) => [b'e', status],
            End::Signal(number) => [b's', number],
            End::Panic => [b'p', 0],
            End::Refused => [b'r', 0],
        }
    }
    /// The end that these bytes say.
    pub const fn of(bytes: &[u8]) -> Option<End> {
        match *bytes {
            [b'e', status] => Some(End::Exit(status)),
            [b's', number] => Some(End::Signal(number)),
            [b'p', _] => Some(End::Panic),
            [b'r', _] => Some(End::Refused),
            _ => None,
        }
    }
}
