//! From an address to its entry.

use super::entry::Slot;
use super::format::{Entry, Format, index_of};
use crate::addr::{Pfn, Vpn};
use crate::machine::Machine;
use crate::mem;
use crate::sync::Word;

/// Where a walk ended.
pub(crate) enum Walk<'a, F: Format> {
    /// The entry of the base page.
    Leaf(Slot<'a, F>),
    /// An empty entry above it: a table is missing.
    Hole(Slot<'a, F>),
    /// An entry on the way is owned by an operation.
    Owned,
}

/// Entry `i` of a table.
#[inline(always)]
pub(crate) fn entry<M: Machine>(machine: &M, table: Pfn, i: usize) -> &Word {
    mem::view(machine, table, i * 8)
}

/// Walks to the entry of `vpn`. Runs in a section, or under the writer lock
/// where no table can go.
#[inline(always)]
pub(crate) fn walk<M: Machine>(machine: &M, root: Pfn, vpn: Vpn) -> Walk<'_, M::Format> {
    let mut table = root;
    let mut level = M::Format::LEVELS - 1;
    loop {
        let slot = Slot::<M::Format>::new(entry(machine, table, index_of::<M::Format>(vpn.0, level)), level);
        if level == 0 {
            return Walk::Leaf(slot);
        }
        match slot.read().entry {
            Entry::Table(next) => table = next,
            Entry::None => return Walk::Hole(slot),
            Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) | Entry::Leaf(_) | Entry::Guard => {
                return Walk::Owned;
            }
        }
        level -= 1;
    }
}

/// The frame of the leaf table that holds `slot`'s entry, for the lock that the
/// discipline `split` keeps in its descriptor.
pub(crate) fn leaf_table<M: Machine>(machine: &M, root: Pfn, vpn: Vpn) -> Option<Pfn> {
    let mut table = root;
    for level in (1..M::Format::LEVELS).rev() {
        let slot = Slot::<M::Format>::new(entry(machine, table, index_of::<M::Format>(vpn.0, level)), level);
        let Entry::Table(next) = slot.read().entry else { return None };
        table = next;
    }
    Some(table)
}
