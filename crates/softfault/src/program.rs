//! Access to the bytes of programs, through the direct map.
//!
//! One of the few modules with `unsafe`. Programs, and holders of pins, write this memory while the core
//! reads it. So every access here is an atomic one of an aligned word ([`bytes`]). Copies of more than a word
//! may be torn, as between two programs.
//!
//! These cells are the programs' and not the core's. `sync` names core's atomics for
//! them; only under shuttle are they cells of the model, whose stores are buffered.
#![allow(unsafe_code)]

use crate::addr::{PAGE_SIZE, Pfn};
use crate::bytes;
use crate::machine::Machine;
use crate::mem::{self, SourceFailed};
use crate::sync::{self, Cell64, Ordering};

const NR_WORDS: usize = PAGE_SIZE as usize / 8;

fn check(offset: usize, len: usize) {
    assert!(offset <= PAGE_SIZE as usize && len <= PAGE_SIZE as usize - offset, "I6: inside one frame");
}

fn words<M: Machine>(machine: &M, pfn: Pfn) -> &[Cell64; NR_WORDS] {
    // SAFETY: I1 and I6: a whole frame, and every access of the core to a program's memory is an atomic one
    // of such a word.
    unsafe { &*machine.frame_ptr(pfn).cast::<[Cell64; NR_WORDS]>() }
}

/// Copies out of a frame.
pub(crate) fn read<M: Machine>(machine: &M, pfn: Pfn, offset: usize, into: &mut [u8]) {
    check(offset, into.len());
    bytes::load(words(machine, pfn), offset, into);
}

/// Whether every byte of a frame is zero, from one read of each word.
pub(crate) fn is_zero<M: Machine>(machine: &M, pfn: Pfn) -> bool {
    words(machine, pfn).iter().all(|word| word.load(Ordering::Relaxed) == 0)
}

/// Copies into a frame.
pub(crate) fn write<M: Machine>(machine: &M, pfn: Pfn, offset: usize, from: &[u8]) {
    check(offset, from.len());
    bytes::store(words(machine, pfn), offset, from);
}

/// Copies a whole frame. `to` is owned by the caller alone; `from` may be written meanwhile, by
/// atomics as here: each word is copied as it was at one moment.
///
/// # Errors
///
/// [`SourceFailed`]
pub(crate) fn copy_frame<M: Machine>(machine: &M, to: Pfn, from: Pfn) -> Result<(), SourceFailed> {
    if sync::copies_frames_at_once() {
        // A model whose CPUs take turns: nobody stores meanwhile.
        return mem::copy_frame(machine, to, from);
    }
    if mem::copy_by_machine(machine, to, from, 1)? > 0 {
        return Ok(());
    }
    for (to, from) in words(machine, to).iter().zip(words(machine, from)) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    Ok(())
}

/// Zeroes part of a frame.
pub(crate) fn zero<M: Machine>(machine: &M, pfn: Pfn, offset: usize, len: usize) {
    static ZEROES: [u8; PAGE_SIZE as usize] = [0; PAGE_SIZE as usize];
    check(offset, len);
    write(machine, pfn, offset, &ZEROES[..len]);
}

/// Loads an aligned word of 32 bits.
pub(crate) fn load_u32<M: Machine>(machine: &M, pfn: Pfn, offset: usize) -> u32 {
    bytes::load_u32(words(machine, pfn), offset)
}

/// Replaces an aligned word of 32 bits if it is `old`; returns the word as it was.
pub(crate) fn exchange_u32<M: Machine>(machine: &M, pfn: Pfn, offset: usize, old: u32, new: u32) -> u32 {
    bytes::exchange_u32(words(machine, pfn), offset, old, new)
}
