//! Arm, VMSAv8-64 stage 1, 4 KiB granule, 48 bits: a format from outside the library, and
//! one in which dirty is a bit that is cleared. Bits as in the Arm ARM, D8.3.
//!
//! ```text
//! V=1  58 lock | 55 dirty | 54 UXN | 53 PXN | 51 DBM | 47:12 frame | 11 nG | 10 AF | 9:8 SH | 7:6 AP | 1 table or page
//! V=0  58 lock | 57 kept | 55 dirty | 47:12 frame or slot | 10 AF | 6 swap | 5 poison | 4 it was a leaf | 3 guard | 2 busy
//! ```
//! DBM is the right to write. While AP\[2\] is set the page is clean, and a store clears it
//! (FEAT_HAFDBS) or faults. Of a page that may not be written bit 55 says that it is dirty.
#![allow(unsafe_code)]

use softfault::table::format::{Entry, Format, Kept, Leaf};
use softfault::{Pfn, Rights, SwapSlot};

const V: u64 = 1 << 0;
/// Of level 0, else a table.
const PAGE: u64 = 1 << 1;
const AP_USER: u64 = 1 << 6;
const AP_READ_ONLY: u64 = 1 << 7;
const SH_INNER: u64 = 3 << 8;
const AF: u64 = 1 << 10;
const NG: u64 = 1 << 11;
const DBM: u64 = 1 << 51;
const PXN: u64 = 1 << 53;
const UXN: u64 = 1 << 54;
const DIRTY: u64 = 1 << 55;
const KEPT: u64 = 1 << 57;
const LOCK: u64 = 1 << 58;
const FRAME: u64 = 0x0000_ffff_ffff_f000;
// While V is 0.
const BUSY: u64 = 1 << 2;
const GUARD: u64 = 1 << 3;
const LEAF: u64 = 1 << 4;
const POISON: u64 = 1 << 5;
const SWAP: u64 = 1 << 6;

fn pfn_of(word: u64) -> Pfn {
    Pfn(((word & FRAME) >> 12) as u32)
}

/// Whether AP\[2\] says that the page is clean.
fn is_writable(word: u64) -> bool {
    word & (V | DBM) == V | DBM
}

fn is_dirty(word: u64) -> bool {
    if is_writable(word) { word & AP_READ_ONLY == 0 } else { word & DIRTY != 0 }
}

fn decode_leaf(word: u64) -> Leaf {
    let mut rights = Rights::empty();
    if word & V != 0 {
        rights |= Rights::READ;
        rights.set(Rights::WRITE, word & DBM != 0);
        rights.set(Rights::EXEC, word & UXN == 0);
    }
    Leaf { pfn: pfn_of(word), rights, accessed: word & AF != 0, dirty: is_dirty(word) }
}

fn encode_leaf(leaf: Leaf, level: u8) -> u64 {
    let if_ = |condition, bits| if condition { bits } else { 0 };
    let mut word = u64::from(leaf.pfn.0) << 12 | if_(leaf.accessed, AF);
    if leaf.rights.is_empty() {
        return word | KEPT | if_(leaf.dirty, DIRTY);
    }
    word |= V | AP_USER | SH_INNER | NG | PXN | if_(level == 0, PAGE);
    word |= if_(!leaf.rights.contains(Rights::EXEC), UXN);
    if leaf.rights.contains(Rights::WRITE) {
        word | DBM | if_(!leaf.dirty, AP_READ_ONLY)
    } else {
        word | AP_READ_ONLY | if_(leaf.dirty, DIRTY)
    }
}

/// Four levels, all of what TTBR0 translates.
pub struct Vmsa48;

// SAFETY: I32 to I38: tested by `conformance::check` against a walk as the Arm ARM has it.
unsafe impl Format for Vmsa48 {
    const LEVELS: u8 = 4;
    const TOP_LEAF: u8 = 2;
    const INDEX_BITS: u32 = 9;
    const USER_PAGES: u64 = 1 << (48 - 12);
    const LOCK: u64 = LOCK;
    const NEXT_FRAME: u64 = 1 << 12;

    fn decode(word: u64, level: u8) -> Entry {
        if level > 0
            && let Some(table) = Self::table(word)
        {
            return Entry::Table(table);
        }
        let locked = word & LOCK != 0;
        match word & (V | KEPT | BUSY | GUARD | POISON | SWAP) {
            bits if bits & (V | KEPT) != 0 && locked => Entry::LockedLeaf(decode_leaf(word)),
            bits if bits & (V | KEPT) != 0 => Entry::Leaf(decode_leaf(word)),
            BUSY => Entry::Busy,
            GUARD => Entry::Guard,
            POISON => Entry::Poison,
            SWAP => Entry::Swap(SwapSlot(pfn_of(word).0)),
            _ if locked => Entry::LockedNone,
            _ => Entry::None,
        }
    }
    fn encode(entry: Entry, level: u8) -> u64 {
        match entry {
            Entry::None => 0,
            Entry::Table(pfn) => u64::from(pfn.0) << 12 | V | PAGE,
            Entry::Leaf(leaf) => encode_leaf(leaf, level),
            Entry::Busy => BUSY,
            Entry::LockedNone => LOCK,
            Entry::LockedLeaf(leaf) => encode_leaf(leaf, level) | LOCK,
            Entry::Guard => GUARD,
            Entry::Poison => POISON,
            Entry::Swap(slot) => u64::from(slot.0) << 12 | SWAP,
        }
    }
    fn table(word: u64) -> Option<Pfn> {
        (word & (V | PAGE) == V | PAGE).then(|| pfn_of(word))
    }
    fn busy_of(word: u64, level: u8) -> u64 {
        let was_table = level > 0 && Self::table(word).is_some();
        let dirty = if !was_table && is_dirty(word) { DIRTY } else { 0 };
        word & (FRAME | AF) | dirty | BUSY | if was_table { 0 } else { LEAF }
    }
    fn kept(word: u64, _level: u8) -> Option<Kept> {
        if word & (V | KEPT | BUSY) != BUSY || word & FRAME == 0 {
            return None;
        }
        Some(if word & LEAF != 0 { Kept::Leaf(decode_leaf(word)) } else { Kept::Table(pfn_of(word)) })
    }
    fn set_accessed(word: u64) -> u64 {
        word | AF
    }
    fn set_dirty(word: u64) -> u64 {
        if is_writable(word) { word & !AP_READ_ONLY } else { word | DIRTY }
    }
    fn clear_accessed(word: u64) -> u64 {
        word & !AF
    }
    fn clear_dirty(word: u64) -> u64 {
        if is_writable(word) { word | AP_READ_ONLY } else { word & !DIRTY }
    }
}

#[cfg(test)]
mod tests;
