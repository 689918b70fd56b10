//! Entries of level 1 that map a huge page, and their deposits.
//!
//! A huge mapping can be split at any moment without an allocation, because the leaf table for the
//! split is deposited when the mapping is made. The deposits of a table of level 1 are in its
//! *twin*, a frame with one word per entry, which the table's descriptor names: word i is the
//! deposit of entry i. So there is no list, and the owner of an entry (of its lock bit, or `Busy`)
//! owns the word.
//!
//! Locks on entry: a section or the writer lock. A deposit's word also needs its entry.

use super::format::Format;
use super::walk;
use crate::addr::{OptPfn, Pfn, Vpn};
use crate::frame::{FrameKind, Frames};
use crate::machine::Machine;
use crate::sync::{Ordering, Word};

/// The frame that a word of a twin, or a descriptor's link, names.
fn named(word: &Word) -> Option<Pfn> {
    OptPfn::from_word(word.load(Ordering::Acquire)).get()
}

impl Frames {
    /// The twin of a table of level 1, if it has one already.
    pub(crate) fn twin(&self, table: Pfn) -> Option<Pfn> {
        named(&self.desc(table).link)
    }

    /// Gives the table a twin: a zeroed frame that the caller owns alone. Returns `false` if
    /// another CPU was first; the caller keeps the frame.
    pub(crate) fn put_twin(&self, table: Pfn, twin: Pfn) -> bool {
        let owner = self.desc(table).owner.get();
        self.desc(twin).assign(FrameKind::Table, 0, owner, TWIN_LEVEL);
        let named = OptPfn::some(twin).to_word();
        self.desc(table).link.compare_exchange(0, named, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether an unreachable table may have a twin. Other frame kinds use `link` differently.
    pub(crate) fn is_level_1(&self, table: Pfn) -> bool {
        self.desc(table).index.get() == 1
    }

    /// Withdraws the twin of a table that nobody can reach any more.
    pub(crate) fn withdraw_twin(&self, table: Pfn) -> Option<Pfn> {
        let twin = self.twin(table);
        self.desc(table).link.set(0);
        twin
    }
}

/// Marks the descriptor of a twin, in the place of a table's level.
pub(crate) const TWIN_LEVEL: u64 = 15;

/// The deposit's word of entry `index` of a table that has a twin.
fn word<'a, M: Machine>(machine: &'a M, frames: &Frames, table: Pfn, index: usize) -> Option<&'a Word> {
    frames.twin(table).map(|twin| walk::entry(machine, twin, index))
}

/// Index of the entry that covers the page.
fn index<F: Format>(base: Vpn) -> usize {
    super::format::index_of::<F>(base.0, 1)
}

/// Deposits a leaf table that the caller owns alone. The caller owns the entry and has seen the
/// twin.
pub(crate) fn deposit<M: Machine>(machine: &M, frames: &Frames, table: Pfn, base: Vpn, leaf_table: Pfn) {
    let word = word(machine, frames, table, index::<M::Format>(base));
    debug_assert!(word.is_some_and(|w| w.get() == 0), "I25: one deposit for each huge mapping");
    if let Some(word) = word {
        word.set(OptPfn::some(leaf_table).to_word());
    }
}

/// Withdraws the entry's deposit. The caller owns the entry.
pub(crate) fn withdraw<M: Machine>(machine: &M, frames: &Frames, table: Pfn, base: Vpn) -> Option<Pfn> {
    let word = word(machine, frames, table, index::<M::Format>(base))?;
    let leaf_table = named(word);
    word.set(0);
    leaf_table
}

/// Reads the deposit, at rest.
pub(crate) fn deposited<M: Machine>(machine: &M, frames: &Frames, table: Pfn, base: Vpn) -> Option<Pfn> {
    named(word(machine, frames, table, index::<M::Format>(base))?)
}
