//! The terminal and its processes: typed bytes go to the console (`file::console`), the
//! signals that some of them mean to the group in the foreground.
//!
//! No lock is held on entry, and none while a signal is sent.

use crate::linux::errno;
use crate::linux::file::console;
use crate::linux::signal::{Info, SI_KERNEL, send};
use crate::port::arch::serial;
use alloc::vec::Vec;

/// A user is at the console, in front of so many rows and columns.
pub fn init(size: [u16; 2]) {
    console::set_terminal(size);
    serial::init(pump);
    pump();
}

/// Takes what was typed from the serial line, as far as there is room: the rest
/// waits there. The interrupt calls this, and so does a reader that has made room.
fn pump() {
    while let Some(signal) = console::type_next() {
        if signal != 0 {
            send::to_group(console::foreground(), Info { signal, code: SI_KERNEL, ..Info::default() });
        }
    }
}

/// Up to `max` typed bytes; none at an end of file, and where there is no terminal; EAGAIN
/// if there are none yet.
pub fn take(max: usize) -> errno::Result<Vec<u8>> {
    if !console::is_terminal() || max == 0 {
        return Ok(Vec::new());
    }
    let taken = console::take(max);
    pump();
    taken
}
