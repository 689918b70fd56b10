//! RISC-V: Sv39, Sv48, Sv57. Bits as in the privileged architecture, "Sv39: Page-Based
//! 39-bit Virtual-Memory System".
//!
//! ```text
//! V=1  63 N | 62:61 PBMT | 53:10 frame | 9 kept=0 | 8 lock | 7 D | 6 A | 5 G | 4 U | 3 X | 2 W | 1 R
//! V=0  53:10 frame (kept, or busy) or slot | 9 kept | 8 lock | 7 D | 6 A | 5 swap | 4 poison | 3 it was a leaf | 2 guard | 1 busy
//! ```
//! A valid entry without R, W and X names a table; U, A and D have to be 0 in it. Bits 9
//! and 8 are software's; of an entry that is not valid all are. *Kept* is a mapping that
//! no access may use (`PROT_NONE`).
//!
//! A CPU without Svvptc may remember that an entry was not valid, or had fewer rights:
//! the port's fault handler executes `sfence.vma` for the page after each fault that the
//! core has mended. It has to be prepared for a CPU with Svade, which leaves A and D to
//! the fault; whether it has, the core need not know.

use super::{Entry, Format, Kept, Leaf};
use crate::addr::{Pfn, Rights, SwapSlot};

const V: u64 = 1 << 0;
const R: u64 = 1 << 1;
const W: u64 = 1 << 2;
const X: u64 = 1 << 3;
const U: u64 = 1 << 4;
const A: u64 = 1 << 6;
const D: u64 = 1 << 7;
const LOCK: u64 = 1 << 8;
const KEPT: u64 = 1 << 9;
const FRAME: u64 = ((1 << 44) - 1) << 10;
/// While V is 0.
const BUSY: u64 = 1 << 1;
/// While V is 0.
const GUARD: u64 = 1 << 2;
/// With `BUSY`: it was no table.
const LEAF: u64 = 1 << 3;
/// While V is 0.
const POISON: u64 = 1 << 4;
/// While V is 0.
const SWAP: u64 = 1 << 5;

const fn frame_bits(pfn: Pfn) -> u64 {
    (pfn.0 as u64) << 10
}

const fn pfn_of(word: u64) -> Pfn {
    Pfn(((word & FRAME) >> 10) as u32)
}

#[inline(always)]
fn decode_leaf(word: u64) -> Leaf {
    let mut rights = Rights::empty();
    if word & V != 0 {
        rights |= Rights::READ;
        rights.set(Rights::WRITE, word & W != 0);
        rights.set(Rights::EXEC, word & X != 0);
    }
    Leaf { pfn: pfn_of(word), rights, accessed: word & A != 0, dirty: word & D != 0 }
}

#[inline(always)]
fn encode_leaf(leaf: Leaf) -> u64 {
    let mut word = frame_bits(leaf.pfn);
    if leaf.rights.is_empty() {
        word |= KEPT;
    } else {
        // Reserved: a mapping that can be written but not read.
        word |= V | U | R;
        if leaf.rights.contains(Rights::WRITE) {
            word |= W;
        }
        if leaf.rights.contains(Rights::EXEC) {
            word |= X;
        }
    }
    if leaf.accessed {
        word |= A;
    }
    if leaf.dirty {
        word |= D;
    }
    word
}

#[inline(always)]
fn decode(word: u64, level: u8) -> Entry {
    // Most faults find an empty entry: one comparison tells.
    if word == 0 {
        return Entry::None;
    }
    if level > 0
        && let Some(table) = table(word)
    {
        return Entry::Table(table);
    }
    let locked = word & LOCK != 0;
    if word & (V | KEPT) != 0 {
        let leaf = decode_leaf(word);
        return if locked { Entry::LockedLeaf(leaf) } else { Entry::Leaf(leaf) };
    }
    match word & (BUSY | GUARD | POISON | SWAP) {
        BUSY => Entry::Busy,
        GUARD => Entry::Guard,
        POISON => Entry::Poison,
        SWAP => Entry::Swap(SwapSlot(pfn_of(word).0)),
        _ if locked => Entry::LockedNone,
        _ => Entry::None,
    }
}

#[inline(always)]
fn encode(entry: Entry) -> u64 {
    match entry {
        Entry::None => 0,
        Entry::Table(pfn) => frame_bits(pfn) | V,
        Entry::Leaf(leaf) => encode_leaf(leaf),
        Entry::Busy => BUSY,
        Entry::LockedNone => LOCK,
        Entry::LockedLeaf(leaf) => encode_leaf(leaf) | LOCK,
        Entry::Guard => GUARD,
        Entry::Poison => POISON,
        Entry::Swap(slot) => frame_bits(Pfn(slot.0)) | SWAP,
    }
}

#[inline(always)]
fn table(word: u64) -> Option<Pfn> {
    (word & (V | R | W | X) == V).then(|| pfn_of(word))
}

#[inline(always)]
fn busy_of(word: u64) -> u64 {
    let was_leaf = if table(word).is_none() { LEAF } else { 0 };
    (word & (FRAME | A | D)) | BUSY | was_leaf
}

#[inline(always)]
fn kept(word: u64) -> Option<Kept> {
    if word & (V | KEPT | BUSY) != BUSY || word & FRAME == 0 {
        return None;
    }
    let leaf = Leaf { rights: Rights::empty(), ..decode_leaf(word) };
    Some(if word & LEAF != 0 { Kept::Leaf(leaf) } else { Kept::Table(leaf.pfn) })
}

macro_rules! riscv_format {
    ($(#[$doc:meta])* $name:ident, $levels:expr, $user_bits:expr) => {
        $(#[$doc])*
        pub struct $name;
        // SAFETY: I32 to I38: tested by `conformance::check` against a walk as the
        // privileged architecture has it.
        #[allow(unsafe_code)]
        unsafe impl Format for $name {
            const LEVELS: u8 = $levels;
            const TOP_LEAF: u8 = 2;
            const INDEX_BITS: u32 = 9;
            const USER_PAGES: u64 = 1 << ($user_bits - 12);
            const LOCK: u64 = LOCK;
            const NEXT_FRAME: u64 = frame_bits(Pfn(1));
            #[inline(always)]
            fn decode(word: u64, level: u8) -> Entry {
                decode(word, level)
            }
            #[inline(always)]
            fn encode(entry: Entry, _level: u8) -> u64 {
                encode(entry)
            }
            #[inline(always)]
            fn table(word: u64) -> Option<Pfn> {
                table(word)
            }
            #[inline(always)]
            fn busy_of(word: u64, _level: u8) -> u64 {
                busy_of(word)
            }
            #[inline(always)]
            fn kept(word: u64, _level: u8) -> Option<Kept> {
                kept(word)
            }
            #[inline(always)]
            fn set_accessed(word: u64) -> u64 {
                word | A
            }
            #[inline(always)]
            fn set_dirty(word: u64) -> u64 {
                word | D
            }
            #[inline(always)]
            fn clear_accessed(word: u64) -> u64 {
                word & !A
            }
            #[inline(always)]
            fn clear_dirty(word: u64) -> u64 {
                word & !D
            }
        }
    };
}

riscv_format!(
    /// Three levels: 256 GiB of user addresses.
    Sv39, 3, 38
);
riscv_format!(
    /// Four levels: 128 TiB of user addresses.
    Sv48, 4, 47
);
riscv_format!(
    /// Five levels: 64 PiB of user addresses.
    Sv57, 5, 56
);

#[cfg(test)]
mod tests;
