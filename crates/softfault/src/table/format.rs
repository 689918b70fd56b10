//! Page-table formats as data: what a table entry looks like, and nothing of
//! what is done with it.
//!
//! Levels count from 0, the leaf tables whose entries map base pages.

use crate::addr::{Order, Pfn, Rights};

mod toy;
mod x86_64;
pub use toy::Toy;
pub use x86_64::{X86_64, X86_64La57};

/// What an entry says; the same at every level. Exhaustive on purpose: a match
/// over it that forgets a state does not compile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Nothing. Only this is ever filled by compare-and-swap.
    None,
    /// The next lower table.
    Table(Pfn),
    /// A mapping.
    Leaf(Leaf),
    /// Neither none nor present: owned by an operation that will clear it soon.
    /// Only the owner may.
    Busy,
    /// `None` with the lock bit: a decision is being taken.
    LockedNone,
    /// A mapping with the lock bit; the hardware may go on using it.
    LockedLeaf(Leaf),
    /// A guard: touching it is SIGSEGV whatever the VMA says (madvise(2),
    /// `MADV_GUARD_INSTALL`).
    Guard,
}

/// A mapping of one frame (level 0) or of a folio (above).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// The (first) frame.
    pub pfn: Pfn,
    /// What the hardware allows now. Empty is legal: a mapping kept through
    /// `PROT_NONE`.
    pub rights: Rights,
    /// Used since it was last cleared.
    pub accessed: bool,
    /// Written since it was last cleared.
    pub dirty: bool,
}

/// What an entry that a removal has taken keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// A mapping, its rights forgotten.
    Leaf(Leaf),
    /// A table with all that is below it.
    Table(Pfn),
}

/// A page-table format. Sealed: what [`table`](Format::table) says is followed
/// without a further look, so formats live here, beside their tests.
pub trait Format: sealed::Sealed + 'static {
    /// Number of levels.
    const LEVELS: u8;
    /// log2 of the entries of a table; at most 9.
    const INDEX_BITS: u32;
    /// Number of base pages in the user part of the address space.
    const USER_PAGES: u64;

    /// What the word says at `level`.
    fn decode(word: u64, level: u8) -> Entry;
    /// The table that a word above level 0 names: what a walk asks at each
    /// step, without telling the other states apart.
    fn table(word: u64) -> Option<Pfn>;
    /// The word that says it at `level`.
    fn encode(entry: Entry, level: u8) -> u64;
    /// The `Busy` word that keeps the frame number (of a mapping or a table) and
    /// the accessed and dirty bits of `word`, and which of the two it was.
    fn busy_of(word: u64) -> u64;
    /// What a `Busy` word of `level` keeps; `None` where it is not one or keeps
    /// nothing.
    fn kept(word: u64, level: u8) -> Option<Kept>;
    /// The bits that hardware may set at any moment in a present leaf; a
    /// compare-and-swap that only they made fail is tried again.
    const HARDWARE_BITS: u64;
    /// The word of the accessed bit.
    const ACCESSED: u64;
    /// The word of the dirty bit.
    const DIRTY: u64;
    /// The lock bit: legal in a present leaf and in an otherwise empty entry.
    const LOCK: u64;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Toy {}
    impl Sealed for super::X86_64 {}
    impl Sealed for super::X86_64La57 {}
}

/// Index of the page into the table of `level`.
#[inline(always)]
pub fn index_of<F: Format>(vpn: u64, level: u8) -> usize {
    ((vpn >> (F::INDEX_BITS * u32::from(level))) & ((1 << F::INDEX_BITS) - 1)) as usize
}

/// The order of a mapping by an entry of level 1: what a leaf table maps.
pub const fn huge_order<F: Format>() -> Order {
    Order(F::INDEX_BITS as u8)
}

/// Base pages that one entry of `level` covers.
pub const fn span_of<F: Format>(level: u8) -> u64 {
    1 << (F::INDEX_BITS * level as u32)
}
