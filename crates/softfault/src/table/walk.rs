//! From an address to its entry.

use super::entry::{Seen, Slot};
use super::format::{Entry, Format, Leaf, index_of, span_of};
use super::place::PmdSlot;
use crate::addr::{Pfn, Vpn};
use crate::machine::Machine;
use crate::mem;
use crate::section::KeepsTables;
use crate::sync::Word;

/// Where a walk ended.
pub(crate) enum Walk<'a, F: Format> {
    /// The entry of the base page.
    Leaf(Slot<'a, F>),
    /// An empty entry above it: a table is missing.
    Hole(PmdSlot<'a, F>),
    /// The entry above it maps a huge page, or says that its page is lost.
    Huge(PmdSlot<'a, F>),
    /// An entry on the way is owned by an operation.
    Owned,
}

/// Entry `i` of a table.
#[inline(always)]
pub(crate) fn entry<M: Machine>(machine: &M, table: Pfn, i: usize) -> &Word {
    mem::view(machine, table, i * 8)
}

/// All words of a table's frame: for passes, which would otherwise compute its address for each
/// entry.
#[inline(always)]
pub(crate) fn entries<M: Machine>(machine: &M, table: Pfn) -> &[Word; 512] {
    mem::view(machine, table, 0)
}

/// Walks to the entry of `vpn`. `kept` is a token of the space that has this root.
#[inline(always)]
pub(crate) fn walk<M: Machine>(machine: &M, root: Pfn, vpn: Vpn, kept: impl KeepsTables) -> Walk<'_, M::Format> {
    match leaf_table(machine, root, vpn, kept) {
        Ok(table) => Walk::Leaf(leaf_slot(machine, table, vpn)),
        Err(ended) => ended,
    }
}

/// Walks to the table that contains the entry of `vpn`, or returns where the walk ended above it.
/// The table is valid as long as the section in which it was found, or the space's generation.
#[inline(always)]
pub(crate) fn leaf_table<M: Machine>(
    machine: &M,
    root: Pfn,
    vpn: Vpn,
    _kept: impl KeepsTables,
) -> Result<Pfn, Walk<'_, M::Format>> {
    let mut table = root;
    for level in (1..M::Format::LEVELS).rev() {
        let slot = Slot::<M::Format>::new(entry(machine, table, index_of::<M::Format>(vpn.0, level)), level);
        table = match slot.table() {
            Some(next) => next,
            None => return Err(ended_above(slot, table, vpn)),
        };
    }
    Ok(table)
}

#[cold]
fn ended_above<F: Format>(slot: Slot<'_, F>, table: Pfn, vpn: Vpn) -> Walk<'_, F> {
    let place = PmdSlot { slot, table, base: Vpn(vpn.0 & !(span_of::<F>(slot.level) - 1)) };
    match slot.observe().entry {
        Entry::None => Walk::Hole(place),
        Entry::Leaf(_) | Entry::LockedLeaf(_) | Entry::Poison => Walk::Huge(place),
        // A table, if it was installed just now: the next turn reads it again.
        Entry::Table(_) | Entry::Busy | Entry::LockedNone | Entry::Guard | Entry::Swap(_) => Walk::Owned,
    }
}

/// One page as mapped by an entry of any level.
#[derive(Clone, Copy)]
pub(crate) struct Mapped<'a, F: Format> {
    /// The entry.
    pub(crate) slot: Slot<'a, F>,
    pub(crate) seen: Seen,
    /// The mapping of this one page, with the page's own frame.
    pub(crate) leaf: Leaf,
    pub(crate) is_locked: bool,
}

/// The mapping of `vpn`, at any level; `None` for anything else.
pub(crate) fn mapped<M: Machine>(
    machine: &M,
    root: Pfn,
    vpn: Vpn,
    kept: impl KeepsTables,
) -> Option<Mapped<'_, M::Format>> {
    let (slot, part) = match walk(machine, root, vpn, kept) {
        Walk::Leaf(slot) => (slot, 0),
        Walk::Huge(pmd) => (pmd.slot, vpn.0 - pmd.base.0),
        Walk::Hole(_) | Walk::Owned => return None,
    };
    mapped_at(slot, part)
}

/// Like `page`, for an entry that was found: `part` is the page's index in its span.
pub(crate) fn mapped_at<F: Format>(slot: Slot<'_, F>, part: u64) -> Option<Mapped<'_, F>> {
    let seen = slot.observe();
    let (leaf, is_locked) = match seen.entry {
        Entry::Leaf(leaf) => (leaf, false),
        Entry::LockedLeaf(leaf) => (leaf, true),
        _ => return None,
    };
    Some(Mapped { slot, seen, leaf: Leaf { pfn: Pfn(leaf.pfn.0 + part as u32), ..leaf }, is_locked })
}

/// The table of level 1 that covers `vpn`, if all above it are there.
pub(crate) fn pmd_table<M: Machine>(machine: &M, root: Pfn, vpn: Vpn, _kept: impl KeepsTables) -> Option<Pfn> {
    let mut table = root;
    for level in (2..M::Format::LEVELS).rev() {
        let slot = Slot::<M::Format>::new(entry(machine, table, index_of::<M::Format>(vpn.0, level)), level);
        table = slot.table()?;
    }
    Some(table)
}

/// The entry of `vpn` in its leaf table.
#[inline(always)]
pub(crate) fn leaf_slot<M: Machine>(machine: &M, table: Pfn, vpn: Vpn) -> Slot<'_, M::Format> {
    Slot::new(entry(machine, table, index_of::<M::Format>(vpn.0, 0)), 0)
}
