//! Access to the bytes of programs, through the direct map.
//!
//! One of the few modules with `unsafe`. Programs, and holders of pins, write this memory while the core
//! reads it. So every access here is atomic: relaxed, whole words where they are aligned, bytes at the
//! ends. Copies of more than a word may be torn, as between two programs.
//!
//! These cells are the programs' and not the core's. `sync` names core's atomics for
//! them; only under shuttle are they cells of the model, whose stores are buffered.
#![allow(unsafe_code)]

use crate::addr::{PAGE_SIZE, Pfn};
use crate::machine::Machine;
use crate::mem::{self, SourceFailed};
use crate::sync::{self, Cell8, Cell32, Cell64, Ordering};

fn check(offset: usize, len: usize) {
    assert!(offset <= PAGE_SIZE as usize && len <= PAGE_SIZE as usize - offset, "I6: inside one frame");
}

fn byte<M: Machine>(machine: &M, pfn: Pfn, offset: usize) -> &Cell8 {
    check(offset, 1);
    // SAFETY: I1 and I6: inside the frame, and every access of the core to a
    // program's memory is atomic.
    unsafe { &*machine.frame_ptr(pfn).add(offset).cast::<Cell8>() }
}

fn word<M: Machine>(machine: &M, pfn: Pfn, offset: usize) -> &Cell64 {
    check(offset, 8);
    assert!(offset.is_multiple_of(8));
    // SAFETY: I1 and I6: inside the frame, aligned, atomic.
    unsafe { &*machine.frame_ptr(pfn).add(offset).cast::<Cell64>() }
}

/// Copies out of a frame.
pub(crate) fn read<M: Machine>(machine: &M, pfn: Pfn, offset: usize, into: &mut [u8]) {
    check(offset, into.len());
    let mut at = 0;
    while at < into.len() {
        if (offset + at).is_multiple_of(8) && into.len() - at >= 8 {
            let value = word(machine, pfn, offset + at).load(Ordering::Relaxed);
            into[at..at + 8].copy_from_slice(&value.to_ne_bytes());
            at += 8;
        } else {
            into[at] = byte(machine, pfn, offset + at).load(Ordering::Relaxed);
            at += 1;
        }
    }
}

/// Whether every byte of a frame is zero, from one read of each word.
pub(crate) fn is_zero<M: Machine>(machine: &M, pfn: Pfn) -> bool {
    (0..PAGE_SIZE as usize).step_by(8).all(|offset| word(machine, pfn, offset).load(Ordering::Relaxed) == 0)
}

/// Copies into a frame.
pub(crate) fn write<M: Machine>(machine: &M, pfn: Pfn, offset: usize, from: &[u8]) {
    check(offset, from.len());
    let mut at = 0;
    while at < from.len() {
        if (offset + at).is_multiple_of(8) && from.len() - at >= 8 {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&from[at..at + 8]);
            word(machine, pfn, offset + at).store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
            at += 8;
        } else {
            byte(machine, pfn, offset + at).store(from[at], Ordering::Relaxed);
            at += 1;
        }
    }
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
    for offset in (0..PAGE_SIZE as usize).step_by(8) {
        let value = word(machine, from, offset).load(Ordering::Relaxed);
        word(machine, to, offset).store(value, Ordering::Relaxed);
    }
    Ok(())
}

/// Zeroes part of a frame.
pub(crate) fn zero<M: Machine>(machine: &M, pfn: Pfn, offset: usize, len: usize) {
    static ZEROES: [u8; PAGE_SIZE as usize] = [0; PAGE_SIZE as usize];
    check(offset, len);
    write(machine, pfn, offset, &ZEROES[..len]);
}

fn word_u32<M: Machine>(machine: &M, pfn: Pfn, offset: usize) -> &Cell32 {
    check(offset, 4);
    assert!(offset.is_multiple_of(4));
    // SAFETY: I1 and I6: inside the frame, aligned, atomic.
    unsafe { &*machine.frame_ptr(pfn).add(offset).cast::<Cell32>() }
}

/// Loads an aligned word of 32 bits.
pub(crate) fn load_u32<M: Machine>(machine: &M, pfn: Pfn, offset: usize) -> u32 {
    word_u32(machine, pfn, offset).load(Ordering::SeqCst)
}

/// Replaces an aligned word of 32 bits if it is `old`; returns the word as it was.
pub(crate) fn exchange_u32<M: Machine>(machine: &M, pfn: Pfn, offset: usize, old: u32, new: u32) -> u32 {
    let found = word_u32(machine, pfn, offset).compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
    found.unwrap_or_else(|now| now)
}
