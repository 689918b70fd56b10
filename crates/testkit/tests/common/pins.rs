//! For tests of pins: a pin for any access, pins that another CPU releases, and the first word of a page through
//! space and pin.

use super::{Hosted, Space, wait_until};
use softfault::{Access, Pin, PinError, PinMut, Term};
use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A pin for what an access asks for.
#[derive(Debug)]
pub enum Held<'vm> {
    Read(Pin<'vm, Hosted>),
    Write(PinMut<'vm, Hosted>),
}

impl<'vm> Held<'vm> {
    pub fn of(space: &Space<'vm>, addr: u64, access: Access, term: Term) -> Result<Held<'vm>, PinError> {
        match access {
            Access::Write => space.pin_page_mut(addr, term).map(Held::Write),
            Access::Read | Access::Exec => space.pin_page(addr, term).map(Held::Read),
        }
    }

    pub fn write(&self, offset: usize, from: &[u8]) {
        match self {
            Held::Write(pin) => pin.write(offset, from),
            Held::Read(_) => panic!("a pin for reading"),
        }
    }
}

impl<'vm> Deref for Held<'vm> {
    type Target = Pin<'vm, Hosted>;
    fn deref(&self) -> &Pin<'vm, Hosted> {
        match self {
            Held::Read(pin) => pin,
            Held::Write(pin) => pin,
        }
    }
}

/// Pins that another CPU releases all at once.
#[derive(Default)]
pub struct ForRelease<'vm> {
    held: Mutex<Vec<Held<'vm>>>,
    go: AtomicBool,
}

impl<'vm> ForRelease<'vm> {
    pub fn push(&self, pin: Held<'vm>) {
        self.held.lock().unwrap().push(pin);
    }

    /// Lets the other CPU begin.
    pub fn begin(&self) {
        self.go.store(true, SeqCst);
    }

    /// Returns when the other CPU has released them all.
    pub fn wait(&self) {
        wait_until(|| !self.go.load(SeqCst) && self.held.lock().unwrap().is_empty());
    }

    /// The other CPU: releases the pins at each [`begin`](Self::begin).
    pub fn release_until(&self, stop: &AtomicBool) {
        while !stop.load(SeqCst) {
            if self.go.swap(false, SeqCst) {
                self.held.lock().unwrap().drain(..).for_each(drop);
            }
            std::thread::yield_now();
        }
    }
}

/// The first word of the page that is pinned.
pub fn through(pin: &Pin<'_, Hosted>) -> u64 {
    let mut bytes = [0; 8];
    pin.read(0, &mut bytes);
    u64::from_ne_bytes(bytes)
}

/// The word at `addr`.
pub fn read(space: &Space<'_>, addr: u64) -> u64 {
    let mut bytes = [0; 8];
    space.read(addr, &mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

/// Stores a word at `addr`.
pub fn write(space: &Space<'_>, addr: u64, value: u64) {
    space.write(addr, &value.to_ne_bytes()).unwrap();
}
