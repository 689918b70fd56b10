//! Pins: what their holder sees, what fork and unmapping make of a pinned page,
//! and who frees its frame.
#![deny(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod ends;
mod forks;
mod long;

use common::pins::{ForRelease, Held, read, through, write};
use common::*;
use softfault::hooks::Class;
use softfault::{Access, Event, FaultError, PinError, Rights, Term};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

const ARENA: u64 = 16 << 20;
const OTHER: u64 = BASE + (1 << 30);

fn pin<'vm>(space: &Space<'vm>, addr: u64, access: Access) -> Held<'vm> {
    Held::of(space, addr, access, Term::Short).unwrap()
}

/// Pin and space see each other's writes, both ways where the pin is for writing.
fn assert_same(pin: &Held<'_>, space: &Space<'_>, addr: u64) {
    let n = read(space, addr);
    assert_eq!(through(pin), n);
    write(space, addr, n + 1);
    assert_eq!(through(pin), n + 1, "the holder does not see the program's store");
    if let Held::Write(pin) = pin {
        pin.write(0, &(n + 2).to_ne_bytes());
        assert_eq!(read(space, addr), n + 2, "the program does not see the holder's store");
    }
}

fn in_plain_setup(test: impl Fn(&World<'_>)) {
    in_setup(Setup::PLAIN, 1, ARENA, test);
}
