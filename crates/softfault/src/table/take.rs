//! Removal in two passes, with a shootdown and a grace period between them.
//!
//! ```text
//! take     each mapping of the range ─▶ Busy, frame number kept
//!          each table wholly inside `free_inside` ─▶ Busy, table number kept,
//!          one exchange for all that is below it
//! ...      the caller: shootdown, grace
//! harvest  each of these ─▶ None; mappings and tables given to the caller
//! ```
//! Nothing has to be allocated to remember what was taken: it stays where it
//! stood. No frame is counted down before the shootdown: another space that
//! drops the last reference would free it under a stale translation of this one.
//!
//! Locks on entry: the writer lock of the space, no section.

use super::entry::{Slot, Unread};
use super::format::{Entry, Format, Leaf, index_of, span_of};
use super::walk::{entries, entry};
use crate::addr::{PageRange, Pfn, Vpn};
use crate::machine::Machine;

/// What a removal is about.
#[derive(Clone, Copy)]
pub(crate) struct Removal {
    /// The pages.
    pub(crate) range: PageRange,
    /// Tables whose span lies inside go as a whole. Empty keeps all tables.
    pub(crate) free_inside: PageRange,
    /// Guards stay (madvise), or go with their VMA (munmap).
    pub(crate) keep_guards: bool,
}

/// What the first pass found.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// Mappings taken one by one.
    pub(crate) leaves: bool,
    /// Tables taken as a whole.
    pub(crate) tables: bool,
}

/// Where the second pass puts what it removes.
pub(crate) trait Harvest {
    /// A mapping that is gone.
    fn leaf(&mut self, leaf: Leaf);
    /// A table that is gone, empty.
    fn table(&mut self, table: Pfn);
}

/// A table, and where its span begins.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) table: Pfn,
    pub(super) level: u8,
    pub(super) base: Vpn,
}

impl At {
    pub(super) fn root<F: Format>(root: Pfn) -> At {
        At { table: root, level: F::LEVELS - 1, base: Vpn(0) }
    }
    pub(super) fn below(&self, table: Pfn, span: PageRange) -> At {
        At { table, level: self.level - 1, base: span.start }
    }
}

/// Which entries of the table have spans that meet the range.
fn indices<F: Format>(at: At, range: PageRange) -> core::ops::Range<usize> {
    let span = span_of::<F>(at.level);
    let all = PageRange::new(at.base, Vpn(at.base.0 + (span << F::INDEX_BITS)));
    let part = all.intersect(&range);
    if part.is_empty() {
        return 0..0;
    }
    ((part.start.0 - at.base.0) / span) as usize..(part.end.0 - at.base.0).div_ceil(span) as usize
}

/// Calls `f(entry, its span)` for each entry of the table whose span meets the range.
pub(super) fn for_each_slot<'a, M: Machine>(
    machine: &'a M,
    at: At,
    range: PageRange,
    mut f: impl FnMut(Slot<'a, M::Format>, PageRange),
) {
    let span = span_of::<M::Format>(at.level);
    for i in indices::<M::Format>(at, range) {
        let start = Vpn(at.base.0 + i as u64 * span);
        f(Slot::new(entry(machine, at.table, i), at.level), PageRange::new(start, Vpn(start.0 + span)));
    }
}

/// Calls `f(entry, what it was loaded as, its span)` for those of them that are
/// not none: most of most tables is, so that a hole costs a load and a test.
#[inline]
fn for_each_used<'a, M: Machine>(
    machine: &'a M,
    at: At,
    range: PageRange,
    mut f: impl FnMut(Slot<'a, M::Format>, Unread, PageRange),
) {
    let span = span_of::<M::Format>(at.level);
    let words = entries(machine, at.table);
    for i in indices::<M::Format>(at, range) {
        let slot = Slot::new(&words[i], at.level);
        let loaded = slot.load();
        if slot.is_none(loaded) {
            continue;
        }
        let start = Vpn(at.base.0 + i as u64 * span);
        f(slot, loaded, PageRange::new(start, Vpn(start.0 + span)));
        if at.level == 1 {
            // Long passes answer other CPUs between tables; no caller is in a
            // section.
            machine.relax();
        }
    }
}

fn inside(inner: &PageRange, outer: &PageRange) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// First pass.
pub(crate) fn take<M: Machine>(machine: &M, root: Pfn, removal: &Removal) -> Taken {
    let mut taken = Taken::default();
    take_in(machine, At::root::<M::Format>(root), removal, &mut taken);
    taken
}

fn take_in<M: Machine>(machine: &M, at: At, removal: &Removal, taken: &mut Taken) {
    for_each_used(machine, at, removal.range, |slot, mut loaded, span| {
        loop {
            let seen = slot.seen(loaded);
            match seen.entry {
                Entry::None => return,
                Entry::Table(_) if inside(&span, &removal.free_inside) => {
                    slot.take_table();
                    taken.tables = true;
                    return;
                }
                Entry::Table(table) => return take_in(machine, at.below(table, span), removal, taken),
                Entry::Leaf(_) => {
                    if slot.take_for_removal(seen).is_ok() {
                        taken.leaves = true;
                        return;
                    }
                }
                Entry::Guard if removal.keep_guards => return,
                Entry::Guard => return slot.set_private(Entry::None),
                // Somebody's for a moment: a copy under way, a decision.
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => machine.relax(),
            }
            loaded = slot.load();
        }
    });
}

/// Second pass.
pub(crate) fn harvest<M: Machine>(machine: &M, root: Pfn, removal: &Removal, into: &mut impl Harvest) {
    harvest_in(machine, At::root::<M::Format>(root), removal, into);
}

fn harvest_in<M: Machine>(machine: &M, at: At, removal: &Removal, into: &mut impl Harvest) {
    for_each_used(machine, at, removal.range, |slot, loaded, span| {
        if let Some(leaf) = slot.was_removed(loaded) {
            if at.level == 0 {
                into.leaf(leaf);
            } else {
                empty_tree(machine, at.below(leaf.pfn, span), into);
            }
            slot.resolve(Entry::None);
        } else if let Entry::Table(table) = slot.seen(loaded).entry {
            harvest_in(machine, at.below(table, span), removal, into);
        }
    });
}

/// Everything in and below a table that no walk can reach any more.
fn empty_tree<M: Machine>(machine: &M, at: At, into: &mut impl Harvest) {
    // Above the user part the embedder keeps entries of its own in the root.
    let user = PageRange::new(Vpn(0), Vpn(M::Format::USER_PAGES));
    for_each_used(machine, at, user, |slot, mut loaded, span| {
        loop {
            match slot.seen(loaded).entry {
                Entry::None | Entry::Guard => return,
                Entry::Leaf(leaf) => return into.leaf(leaf),
                Entry::Table(table) => return empty_tree(machine, at.below(table, span), into),
                // A copy that began before the removal: it ends by itself, and
                // the table stays until it has.
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => machine.relax(),
            }
            loaded = slot.load();
        }
    });
    into.table(at.table);
}

/// Everything below the root, and the root: for a space that nobody runs.
pub(crate) fn empty_all<M: Machine>(machine: &M, root: Pfn, into: &mut impl Harvest) {
    empty_tree(machine, At { table: root, level: M::Format::LEVELS - 1, base: Vpn(0) }, into);
}

/// Calls `f(page, entry)` for each entry of the range at level 0 that is not
/// none, until it returns `false`. Under the writer lock.
pub(crate) fn for_each_entry<M: Machine>(
    machine: &M,
    root: Pfn,
    range: PageRange,
    f: &mut dyn FnMut(Vpn, Slot<'_, M::Format>) -> bool,
) -> bool {
    for_each_leaf_table(machine, root, range, &mut |table, part| {
        let words = entries(machine, table);
        (part.start.0..part.end.0).all(|vpn| {
            let slot = Slot::new(&words[index_of::<M::Format>(vpn, 0)], 0);
            slot.is_none(slot.load()) || f(Vpn(vpn), slot)
        })
    })
}

/// Calls `f(table, pages of it)` for each leaf table that the range meets, until
/// it returns `false`. Under the writer lock.
pub(crate) fn for_each_leaf_table<M: Machine>(
    machine: &M,
    root: Pfn,
    range: PageRange,
    f: &mut dyn FnMut(Pfn, PageRange) -> bool,
) -> bool {
    visit_in(machine, At::root::<M::Format>(root), range, f)
}

fn visit_in<M: Machine>(machine: &M, at: At, range: PageRange, f: &mut dyn FnMut(Pfn, PageRange) -> bool) -> bool {
    let mut go_on = true;
    for_each_used(machine, at, range, |slot, loaded, span| {
        if let Entry::Table(table) = slot.seen(loaded).entry
            && go_on
        {
            go_on = match at.level {
                1 => f(table, span.intersect(&range)),
                _ => visit_in(machine, at.below(table, span), range, f),
            };
        }
    });
    go_on
}

/// Calls `f(table, its span)` for each table that this one names, until it
/// returns `false`. At rest.
pub(crate) fn for_each_table<M: Machine>(
    machine: &M,
    table: Pfn,
    level: u8,
    base: Vpn,
    f: &mut dyn FnMut(Pfn, PageRange) -> bool,
) {
    let mut go_on = true;
    let user = PageRange::new(Vpn(0), Vpn(M::Format::USER_PAGES));
    for_each_used(machine, At { table, level, base }, user, |slot, loaded, span| {
        if let Entry::Table(child) = slot.seen(loaded).entry
            && go_on
        {
            go_on = f(child, span);
        }
    });
}
