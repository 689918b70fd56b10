//! x86-64, four and five levels. Bits as in the Intel SDM, volume 3A, 4.5.
//!
//! ```text
//! present      63 NX | 51:12 frame | 9 lock | 7 PS | 6 D | 5 A | 2 U | 1 W | 0 P=1
//! not present  51:12 frame (kept, or busy) or slot | 9 lock | 8 kept | 7 PS | 4:2 tag | 0 P=0
//! ```
//! *Kept* is a mapping that no access may use (`PROT_NONE`): the frame stays,
//! the present bit goes. A supervisor mapping would not do: the kernel's own
//! copies to and from the program would go through it.

use super::{Entry, Format, Kept, Leaf};
use crate::addr::{Pfn, Rights, SwapSlot};

const P: u64 = 1 << 0;
const W: u64 = 1 << 1;
const U: u64 = 1 << 2;
const A: u64 = 1 << 5;
const D: u64 = 1 << 6;
const PS: u64 = 1 << 7;
const KEPT: u64 = 1 << 8;
const LOCK: u64 = 1 << 9;
const NX: u64 = 1 << 63;
const FRAME: u64 = 0x000f_ffff_ffff_f000;
const TAG: u64 = 7 << 2;
const TAG_BUSY: u64 = 1 << 2;
const TAG_GUARD: u64 = 2 << 2;
const TAG_POISON: u64 = 3 << 2;
const TAG_SWAP: u64 = 4 << 2;
/// Rights of a kept mapping are empty; nothing else to store.
const fn frame_bits(pfn: Pfn) -> u64 {
    (pfn.0 as u64) << 12
}

#[inline(always)]
fn decode_leaf(word: u64) -> Leaf {
    let mut rights = Rights::empty();
    if word & P != 0 {
        rights |= Rights::READ;
        rights.set(Rights::WRITE, word & W != 0);
        rights.set(Rights::EXEC, word & NX == 0);
    }
    Leaf { pfn: Pfn(((word & FRAME) >> 12) as u32), rights, accessed: word & A != 0, dirty: word & D != 0 }
}

#[inline(always)]
fn encode_leaf(leaf: Leaf, level: u8) -> u64 {
    let mut word = frame_bits(leaf.pfn);
    if leaf.rights.is_empty() {
        word |= KEPT;
    } else {
        // x86-64 has no mapping that can be written or executed but not read.
        word |= P | U;
        if leaf.rights.contains(Rights::WRITE) {
            word |= W;
        }
        if !leaf.rights.contains(Rights::EXEC) {
            word |= NX;
        }
    }
    // Also where nothing is present: it tells a mapping that is kept, or taken,
    // from a table.
    if level > 0 {
        word |= PS;
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
    let locked = word & LOCK != 0;
    if word & P != 0 {
        if level > 0 && word & PS == 0 {
            return Entry::Table(Pfn(((word & FRAME) >> 12) as u32));
        }
        let leaf = decode_leaf(word);
        return if locked { Entry::LockedLeaf(leaf) } else { Entry::Leaf(leaf) };
    }
    if word & KEPT != 0 {
        let leaf = decode_leaf(word);
        return if locked { Entry::LockedLeaf(leaf) } else { Entry::Leaf(leaf) };
    }
    match word & TAG {
        TAG_BUSY => Entry::Busy,
        TAG_GUARD => Entry::Guard,
        TAG_POISON => Entry::Poison,
        TAG_SWAP => Entry::Swap(SwapSlot(((word & FRAME) >> 12) as u32)),
        _ if locked => Entry::LockedNone,
        _ => Entry::None,
    }
}

#[inline(always)]
fn encode(entry: Entry, level: u8) -> u64 {
    match entry {
        Entry::None => 0,
        Entry::Table(pfn) => frame_bits(pfn) | P | W | U | A,
        Entry::Leaf(leaf) => encode_leaf(leaf, level),
        Entry::Busy => TAG_BUSY,
        Entry::LockedNone => LOCK,
        Entry::LockedLeaf(leaf) => encode_leaf(leaf, level) | LOCK,
        Entry::Guard => TAG_GUARD,
        Entry::Poison => TAG_POISON,
        Entry::Swap(slot) => u64::from(slot.0) << 12 | TAG_SWAP,
    }
}

#[inline(always)]
fn kept(word: u64, level: u8) -> Option<Kept> {
    if word & (P | KEPT | TAG) != TAG_BUSY || word & FRAME == 0 {
        return None;
    }
    let leaf = Leaf { rights: Rights::empty(), ..decode_leaf(word) };
    Some(if level > 0 && word & PS == 0 { Kept::Table(leaf.pfn) } else { Kept::Leaf(leaf) })
}

macro_rules! x86_format {
    ($(#[$doc:meta])* $name:ident, $levels:expr, $user_bits:expr) => {
        $(#[$doc])*
        pub struct $name;
        // SAFETY: I32 to I38: tested by `conformance::check` against a walk as the SDM
        // has it.
        #[allow(unsafe_code)]
        unsafe impl Format for $name {
            const LEVELS: u8 = $levels;
            const TOP_LEAF: u8 = 2;
            const INDEX_BITS: u32 = 9;
            const USER_PAGES: u64 = (1 << ($user_bits - 12)) - 1;
            const LOCK: u64 = LOCK;
            const NEXT_FRAME: u64 = frame_bits(Pfn(1));
            #[inline(always)]
            fn decode(word: u64, level: u8) -> Entry {
                decode(word, level)
            }
            #[inline(always)]
            fn encode(entry: Entry, level: u8) -> u64 {
                encode(entry, level)
            }
            #[inline(always)]
            fn table(word: u64) -> Option<Pfn> {
                (word & (P | PS) == P).then(|| Pfn(((word & FRAME) >> 12) as u32))
            }
            #[inline(always)]
            fn busy_of(word: u64, _level: u8) -> u64 {
                (word & (FRAME | A | D | PS)) | TAG_BUSY
            }
            #[inline(always)]
            fn kept(word: u64, level: u8) -> Option<Kept> {
                kept(word, level)
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

x86_format!(
    /// Four levels: 128 TiB of user addresses, the last page left out as Linux
    /// does (a `syscall` in it would return to a non-canonical address).
    X86_64, 4, 47
);
x86_format!(
    /// Five levels (LA57): 64 PiB of user addresses.
    X86_64La57, 5, 56
);
