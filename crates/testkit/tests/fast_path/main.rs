//! F1 to F13 of the fast path on the hosted machine: several CPUs at once, every
//! fault-locking mode, both ways of invalidation.
//!
//! Where a case is about the order in which stores become visible (F2), the
//! models of `softfault-modelled` are the proof and this is a sanity check: a
//! host with strong ordering hides most mistakes. No test here can see that fork
//! writes a child's tables with plain stores (F12); the result is compared.
#![deny(unsafe_code)]

mod bits;
#[path = "../common/mod.rs"]
mod common;
mod forks;
mod full;
mod installs;
mod removals;
mod walkers;

use common::*;
use softfault::hooks::Mapping;
use softfault::table::format::Format as _;
use softfault::{Access, CpuId, Event, FaultDone, FaultError, Rights, Vpn};
use softfault_host::Trap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::yield_now;

const ARENA: u64 = 16 << 20;
const MAPERR: FaultError = FaultError::NotMapped;
const ACCERR: FaultError = FaultError::NoRights;

/// A word that says which page it was written to.
fn mark(page: u64, n: u64) -> u64 {
    (0xa0 + page) << 48 | n
}

/// The count in a word of the page, 0 in an untouched one. Any other page's word
/// is a frame that was reused under a stale translation.
fn count_in(page: u64, word: u64) -> u64 {
    assert!(word == 0 || word >> 48 == 0xa0 + page, "page {page} has a foreign word {word:#x}");
    word & 0xffff_ffff_ffff
}

/// Takes frames and gives them back with words in them that are nobody's mark.
fn churn(running: &Running<'_>, stop: &AtomicBool) {
    let space = running.space();
    while !stop.load(SeqCst) {
        let at = space.mmap(0, 12 * PAGE, RW, PRIVATE).unwrap();
        for page in 0..12 {
            (0..4).for_each(|i| running.write_u64(at + page * PAGE + 8 * i, 0xdead_0000_0000).unwrap());
        }
        space.munmap(at, 12 * PAGE).unwrap();
    }
}

const PAGES: u64 = 6;
