//! Bytes of programs, in words that others access meanwhile.
//!
//! Each access is an atomic access to one aligned word of 64 bits: accesses of several sizes to the same bytes
//! at one time are a data race for the language, though each be atomic. A store of a part of a word is a
//! compare-and-swap, which stores the other bytes of the word as they were. So a store of a whole word costs
//! what a plain one does, and one of a part costs a locked instruction.
//!
//! The core accesses programs' memory in this way, and so does a machine whose CPUs are threads of the same
//! program: the hosted one. `Cell64` is core's `AtomicU64`. The instructions of a program that runs on real hardware are not part of the
//! language's memory model. They may have any size.

use crate::sync::{Cell64, Ordering};
use core::ops::Range;

/// Bytes of a word.
const WORD: usize = 8;

/// The words in which `len` bytes from `offset` on lie: none for no bytes.
fn words_of(offset: usize, len: usize) -> Range<usize> {
    let first = offset / WORD;
    if len == 0 { first..first } else { first..(offset + len).div_ceil(WORD) }
}

/// Bytes from `offset` to the next word, `len` at most.
fn len_of_head(offset: usize, len: usize) -> usize {
    (offset.next_multiple_of(WORD) - offset).min(len)
}

/// Copies out of words, of which `offset` counts bytes. Loads each word once; the copy is no snapshot of
/// several.
///
/// # Panics
///
/// If there are not so many words.
#[inline]
pub fn load(words: &[Cell64], offset: usize, into: &mut [u8]) {
    let mut words = words[words_of(offset, into.len())].iter().map(|word| word.load(Ordering::Relaxed));
    let (head, rest) = into.split_at_mut(len_of_head(offset, into.len()));
    let (body, tail) = rest.as_chunks_mut();
    if !head.is_empty() {
        words.by_ref().take(1).for_each(|word| take_part(word, offset % WORD, head));
    }
    // The body first: `zip` takes no word that it has no place for.
    body.iter_mut().zip(words.by_ref()).for_each(|(to, word)| *to = word.to_ne_bytes());
    words.for_each(|word| take_part(word, 0, tail));
}

/// Copies into words, of which `offset` counts bytes. Stores each whole word once, and changes of another one
/// the bytes that are meant. Orders nothing.
///
/// # Panics
///
/// If there are not so many words.
#[inline]
pub fn store(words: &[Cell64], offset: usize, from: &[u8]) {
    let mut words = words[words_of(offset, from.len())].iter();
    let (head, rest) = from.split_at(len_of_head(offset, from.len()));
    let (body, tail) = rest.as_chunks();
    if !head.is_empty() {
        words.by_ref().take(1).for_each(|word| store_part(word, offset % WORD, head));
    }
    body.iter().zip(words.by_ref()).for_each(|(from, word)| word.store(u64::from_ne_bytes(*from), Ordering::Relaxed));
    words.for_each(|word| store_part(word, 0, tail));
}

/// Byte `skip` of a word and those after it, in the order of memory.
fn take_part(word: u64, skip: usize, into: &mut [u8]) {
    let mut rest = word.to_le() >> (8 * skip);
    for to in into {
        *to = rest as u8;
        rest >>= 8;
    }
}

/// Stores 1 to 7 bytes from byte `skip` of a word on.
fn store_part(word: &Cell64, skip: usize, from: &[u8]) {
    let value = from.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
    let mask = u64::MAX >> (64 - 8 * from.len());
    let (mask, value) = (u64::from_le(mask << (8 * skip)), u64::from_le(value << (8 * skip)));
    let mut now = word.load(Ordering::Relaxed);
    while let Err(other) = word.compare_exchange(now, now & !mask | value, Ordering::Relaxed, Ordering::Relaxed) {
        now = other;
    }
}

/// Loads the half of a word that lies at `offset`, a multiple of 4 bytes, in one total order with other such
/// loads and exchanges.
///
/// # Panics
///
/// If there is no such half.
pub fn load_u32(words: &[Cell64], offset: usize) -> u32 {
    half_of(words[offset / WORD].load(Ordering::SeqCst), offset)
}

/// Replaces that half if it is `old`; returns it as it was.
///
/// # Panics
///
/// As [`load_u32`].
pub fn exchange_u32(words: &[Cell64], offset: usize, old: u32, new: u32) -> u32 {
    let word = &words[offset / WORD];
    let mut now = word.load(Ordering::SeqCst);
    while half_of(now, offset) == old {
        let changed = now ^ u64::from(old ^ new) << shift_of(offset);
        match word.compare_exchange(now, changed, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return old,
            // The other half may have changed, or this one.
            Err(other) => now = other,
        }
    }
    half_of(now, offset)
}

fn half_of(word: u64, offset: usize) -> u32 {
    (word >> shift_of(offset)) as u32
}

/// By how many bits to shift a word right for the half at `offset`.
fn shift_of(offset: usize) -> usize {
    assert!(offset.is_multiple_of(4), "no half of a word begins at byte {offset}");
    8 * if cfg!(target_endian = "little") { offset % WORD } else { WORD - 4 - offset % WORD }
}

#[cfg(test)]
mod tests;
