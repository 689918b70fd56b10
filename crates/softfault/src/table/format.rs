//! Page-table formats as data: what a table entry looks like, and nothing of
//! what is done with it.
//!
//! Levels count from 0, the leaf tables whose entries map base pages.

use crate::addr::{Access, Order, Pfn, Rights, SwapSlot};

pub mod conformance;
mod riscv;
#[cfg(any(test, feature = "hooks"))]
mod toy;
mod x86_64;
pub use riscv::{Sv39, Sv48, Sv57};
#[cfg(any(test, feature = "hooks"))]
pub use toy::Toy;
pub use x86_64::{X86_64, X86_64La57};

/// The meaning of an entry; the same at every level. Exhaustive on purpose: a match
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
    /// The page was there, and its content is lost: its memory failed. Touching it is SIGBUS.
    /// Only the writer of the space changes it.
    Poison,
    /// The page's bytes are in this slot of the swap area. A fault brings them back, by
    /// compare-and-swap; else only the writer of the space changes it.
    Swap(SwapSlot),
}

/// A mapping of one frame (level 0) or of a folio (above). Exhaustive: a format has to
/// encode each field, so that one more breaks those that do not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// The (first) frame.
    pub pfn: Pfn,
    /// Rights that the hardware grants now. Empty is legal: a mapping kept through
    /// `PROT_NONE`.
    pub rights: Rights,
    /// Used since it was last cleared.
    pub accessed: bool,
    /// Written since it was last cleared.
    pub dirty: bool,
}

/// The content that an entry keeps after a removal has taken it. Exhaustive: a format has to encode
/// each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// A mapping, its rights forgotten.
    Leaf(Leaf),
    /// A table with all that is below it.
    Table(Pfn),
}

/// A page-table format: what the words of tables say. Implement it for an
/// architecture that is not here; [`conformance::check`] tests an implementation.
///
/// The functions are called on hot paths: mark them `#[inline(always)]`.
///
/// # Safety
///
/// The core follows what the functions say without a further check, and the
/// hardware follows the words. So the invariants I32 to I38 have to hold
/// (`docs/invariants.md`, "Page-table formats"):
///
/// - I32: `decode` gives back what `encode` was given, at every level: frames
///   other than 0, aligned to the size of the mapping; rights that are empty or
///   contain [`READ`](Rights::READ). Different entries have different words. A word
///   of zeroes is [`None`](Entry::None), and no other entry's. At level 0 the word of a leaf that has
///   rights grows by [`NEXT_FRAME`](Self::NEXT_FRAME) with its frame number.
/// - I33: A walk of the hardware goes on only where the entry is a
///   [`Table`](Entry::Table), and maps only where it is a leaf that has rights, locked
///   or not: then that frame, for these rights and no more. All other states, leaves
///   without rights included, are not present. `table` names a table exactly where
///   `decode` does above level 0.
/// - I34: With `LOCK` added, the word of a leaf is that of the locked leaf, and the
///   hardware sees no difference. No state that is not locked has the bit.
/// - I35: `busy_of` the word of a table or a leaf, locked or not, is
///   [`Busy`](Entry::Busy), and `kept` gives the rest. `kept` is `None` for all other
///   words, that of `encode(Busy)` included.
/// - I36: `set_accessed`, `set_dirty`, `clear_accessed` and `clear_dirty` change that
///   property of a leaf, locked or not, and nothing else; they give the word that
///   `encode` gives. Neither adds a right.
/// - I37: The hardware changes only words that it goes through, and only as these
///   four do; a table may change between words that are equal once both properties
///   are cleared. An access that the hardware permits leaves its trace: the leaf is
///   accessed, and dirty after a store. Hardware that leaves none faults instead.
/// - I38: `LEVELS` is at least 2; a table has at most 512 entries; the levels translate
///   all of `USER_PAGES`. Leaves are at levels from 0 to `TOP_LEAF`, which is at least 1 and
///   below `LEVELS`. All functions are pure and do not panic.
#[allow(unsafe_code)] // what the implementor promises
pub unsafe trait Format: 'static {
    /// Number of levels.
    const LEVELS: u8;
    /// The highest level whose entries may be leaves. Only pages of a pool of huge pages have entries above
    /// level 1.
    const TOP_LEAF: u8;
    /// log2 of the entries of a table; at most 9.
    const INDEX_BITS: u32;
    /// Number of base pages in the user part of the address space.
    const USER_PAGES: u64;
    /// The lock bit, which the hardware ignores in a present leaf and in an entry that
    /// is not present.
    const LOCK: u64;
    /// The difference between the words of two leaves of level 0 that differ in their frames alone, of which one follows
    /// the other.
    const NEXT_FRAME: u64;

    /// Decodes the word at `level`.
    fn decode(word: u64, level: u8) -> Entry;
    /// The word that says it at `level`.
    fn encode(entry: Entry, level: u8) -> u64;
    /// The table that a word above level 0 names: what a walk asks at each
    /// step, without telling the other states apart.
    fn table(word: u64) -> Option<Pfn>;
    /// The `Busy` word that keeps the frame number (of a mapping or a table) and
    /// the accessed and dirty properties of `word`, and which of the two it was.
    fn busy_of(word: u64, level: u8) -> u64;
    /// Returns the content that a `Busy` word of `level` keeps; `None` where it is not one or keeps
    /// nothing.
    fn kept(word: u64, level: u8) -> Option<Kept>;
    /// The word of the same leaf, accessed.
    fn set_accessed(word: u64) -> u64;
    /// The word of the same leaf, dirty. Not always a bit that is set: on Arm, a
    /// page is dirty when its write protection has been cleared.
    fn set_dirty(word: u64) -> u64;
    /// The word of the same leaf, not accessed.
    fn clear_accessed(word: u64) -> u64;
    /// The word of the same leaf, clean.
    fn clear_dirty(word: u64) -> u64;
}

/// The word of a leaf after an access: what hardware makes of it that keeps the
/// accessed and dirty properties.
#[inline(always)]
pub fn used<F: Format>(word: u64, access: Access) -> u64 {
    let word = F::set_accessed(word);
    if access == Access::Write { F::set_dirty(word) } else { word }
}

/// The word of a leaf, accessed and dirty also where another word of the same leaf is.
/// Clearing changes a word exactly where it has the property (I36), so that neither word
/// is decoded.
#[inline(always)]
pub(crate) fn with_uses_of<F: Format>(leaf: u64, other: u64) -> u64 {
    let word = if F::clear_accessed(other) == other { leaf } else { F::set_accessed(leaf) };
    if F::clear_dirty(other) == other { word } else { F::set_dirty(word) }
}

/// The word of a leaf that is neither accessed nor dirty.
#[inline(always)]
pub fn unused<F: Format>(word: u64) -> u64 {
    F::clear_dirty(F::clear_accessed(word))
}

/// Whether two words differ at most in what an access of the hardware changes: a
/// compare-and-swap that fails for nothing else is tried again.
#[inline(always)]
pub(crate) fn is_same_but_used<F: Format>(a: u64, b: u64) -> bool {
    unused::<F>(a) == unused::<F>(b)
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

/// The order of a mapping by an entry of `level`.
pub const fn order_of<F: Format>(level: u8) -> Order {
    Order(F::INDEX_BITS as u8 * level)
}

/// Base pages that one entry of `level` covers.
pub const fn span_of<F: Format>(level: u8) -> u64 {
    1 << (F::INDEX_BITS * level as u32)
}
