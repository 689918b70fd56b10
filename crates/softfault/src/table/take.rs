//! Removal in two passes, with a shootdown and a grace period between them.
//!
//! ```text
//! take     each mapping of the range ─▶ Busy, frame number kept
//!          each table wholly inside `free_inside` ─▶ Busy, table number kept,
//!          one exchange for all that is below it
//! ...      the caller: shootdown, grace
//! harvest  each of these ─▶ None; mappings and tables given to the caller
//! ```
//! Nothing has to be allocated to remember what was taken: the entries keep it. No count is lowered
//! before the shootdown. Otherwise another space could drop the last reference and free the frame
//! under a stale translation of this one.
//!
//! Locks on entry: the writer lock of the space, no section.

use super::entry::{Slot, Unread};
use super::format::{Entry, Format, Kept, Leaf, index_of, span_of};
use super::place::PmdSlot;
use super::walk::{entries, entry};
use crate::addr::{PageRange, Pfn, SwapSlot, Vpn};
use crate::machine::{Machine, Tick};
use crate::pace::{self, Pace};

/// The arguments of a removal.
#[derive(Clone, Copy)]
pub(crate) struct Removal {
    /// The pages.
    pub(crate) range: PageRange,
    /// Tables whose span lies inside are removed as a whole. An empty range keeps all tables.
    pub(crate) free_inside: PageRange,
    pub(crate) guards: Guards,
}

/// A removal's treatment of guards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guards {
    /// They stay (madvise).
    Keep,
    /// They are removed with their VMA (munmap).
    Remove,
}

impl Removal {
    /// Keeps all tables: they are needed again, or contain guards.
    pub(crate) fn keeping_tables(range: PageRange, guards: Guards) -> Removal {
        Removal { range, free_inside: PageRange::new(range.start, range.start), guards }
    }
}

/// The first pass's report to the caller.
pub(crate) enum Met<'a, F: Format> {
    /// A huge mapping that extends beyond the range: to be split.
    Reaching(PmdSlot<'a, F>),
    /// An entry named this slot and is empty now.
    Swapped(SwapSlot),
}

/// Result of the first pass.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// Mappings taken one by one.
    pub(crate) leaves: bool,
    /// Tables taken as a whole.
    pub(crate) tables: bool,
}

/// The receiver of what the second pass removes.
pub(crate) trait Harvest {
    /// Receives a mapping that was removed.
    fn leaf(&mut self, leaf: Leaf);
    /// Receives a huge mapping of the pages from `base` that was removed from `table`. Its
    /// deposit is still there. Returns what is to be in its place, if the table stays.
    fn huge(&mut self, leaf: Leaf, table: Pfn, base: Vpn) -> Entry;
    /// Receives the slot that a removed entry named.
    fn swapped(&mut self, slot: SwapSlot);
    /// Receives a table that was removed; it is empty.
    fn table(&mut self, table: Pfn);
}

/// How a pass continues after an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Goes on.
    GoOn,
    /// Ends.
    Stop,
    /// Visits the same entry again: it has become a table.
    Again,
}

/// One part of a range, as a pass visits it.
pub(crate) enum Part<'a, F: Format> {
    /// A leaf table, and the pages of it that are in the range.
    Table(Pfn, PageRange),
    /// An entry above one that is neither none nor a table.
    Huge(PmdSlot<'a, F>),
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
    fn pmd<'a, F: Format>(&self, slot: Slot<'a, F>, span: PageRange) -> PmdSlot<'a, F> {
        PmdSlot { slot, table: self.table, base: span.start }
    }
}

/// Indices of the entries whose spans overlap the range.
fn indices<F: Format>(at: At, range: PageRange) -> core::ops::Range<usize> {
    let span = span_of::<F>(at.level);
    let all = PageRange::new(at.base, Vpn(at.base.0 + (span << F::INDEX_BITS)));
    let part = all.intersect(&range);
    if part.is_empty() {
        return 0..0;
    }
    ((part.start.0 - at.base.0) / span) as usize..(part.end.0 - at.base.0).div_ceil(span) as usize
}

/// Calls `f(entry, its span)` for each entry of the table whose span overlaps the range. Answers
/// other CPUs; no caller is in a section.
pub(super) fn for_each_slot<'a, M: Machine>(
    machine: &'a M,
    at: At,
    range: PageRange,
    mut f: impl FnMut(Slot<'a, M::Format>, PageRange),
) {
    let span = span_of::<M::Format>(at.level);
    let mut pace = Pace::new(machine);
    for i in indices::<M::Format>(at, range) {
        pace.step();
        let start = Vpn(at.base.0 + i as u64 * span);
        f(Slot::new(entry(machine, at.table, i), at.level), PageRange::new(start, Vpn(start.0 + span)));
    }
}

/// Calls `f(entry, its loaded word, its span)` for those that are not empty. Most entries of most
/// tables are empty; each costs a load and a test. An empty entry of an upper level skips its whole
/// span. Answers other CPUs; no caller is in a section.
#[inline]
fn for_each_used<'a, M: Machine>(
    machine: &'a M,
    at: At,
    range: PageRange,
    mut f: impl FnMut(Slot<'a, M::Format>, Unread, PageRange),
) {
    let span = span_of::<M::Format>(at.level);
    let words = entries(machine, at.table);
    if at.level > 0 {
        // Here and after each entry in use, not every so many entries: the end of a space reads all
        // of its upper tables, which are mostly empty.
        pace::answer(machine);
    }
    for i in indices::<M::Format>(at, range) {
        machine.tick(Tick::Step);
        let slot = Slot::new(&words[i], at.level);
        let loaded = slot.load();
        if slot.is_none(loaded) {
            continue;
        }
        let start = Vpn(at.base.0 + i as u64 * span);
        f(slot, loaded, PageRange::new(start, Vpn(start.0 + span)));
        if at.level > 0 {
            // A leaf table takes 512 steps, and more where pages are copied or freed.
            pace::answer(machine);
        }
    }
}

fn inside(inner: &PageRange, outer: &PageRange) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Makes the first pass.
pub(crate) fn take<M: Machine>(
    machine: &M,
    root: Pfn,
    removal: &Removal,
    met: &mut dyn FnMut(Met<'_, M::Format>),
) -> Taken {
    let mut taken = Taken::default();
    take_in(machine, At::root::<M::Format>(root), removal, &mut taken, met);
    taken
}

fn take_in<M: Machine>(
    machine: &M,
    at: At,
    removal: &Removal,
    taken: &mut Taken,
    met: &mut dyn FnMut(Met<'_, M::Format>),
) {
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
                Entry::Table(table) => return take_in(machine, at.below(table, span), removal, taken, met),
                Entry::Leaf(_) if at.level > 0 && !inside(&span, &removal.range) => {
                    met(Met::Reaching(at.pmd(slot, span)));
                }
                Entry::Leaf(_) => {
                    if slot.take_for_removal(seen).is_ok() {
                        taken.leaves = true;
                        return;
                    }
                }
                Entry::Guard if removal.guards == Guards::Keep => return,
                // A place that lost its page of a pool, and has no claim to another (`space/pools.rs`).
                Entry::Poison if at.level > 0 && removal.guards == Guards::Keep => return,
                // A smaller size removes copies without the lock of this space.
                Entry::Guard | Entry::Poison => {
                    if slot.replace(seen, Entry::None).is_ok() {
                        return;
                    }
                }
                // A fault may be swapping the page in.
                Entry::Swap(of) => {
                    if slot.replace(seen, Entry::None).is_ok() {
                        return met(Met::Swapped(of));
                    }
                }
                // Owned for a moment: by a copy, or under the lock bit.
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => machine.relax(),
            }
            loaded = slot.load();
        }
    });
}

/// Makes the second pass.
pub(crate) fn harvest<M: Machine>(machine: &M, root: Pfn, removal: &Removal, into: &mut impl Harvest) {
    harvest_in(machine, At::root::<M::Format>(root), removal, into);
}

fn harvest_in<M: Machine>(machine: &M, at: At, removal: &Removal, into: &mut impl Harvest) {
    for_each_used(machine, at, removal.range, |slot, loaded, span| {
        match slot.was_removed(loaded) {
            Some(Kept::Leaf(leaf)) if at.level == 0 => into.leaf(leaf),
            Some(Kept::Leaf(leaf)) => return slot.resolve(into.huge(leaf, at.table, span.start)),
            Some(Kept::Table(table)) => empty_tree(machine, at.below(table, span), into),
            None => {
                if let Entry::Table(table) = slot.seen(loaded).entry {
                    harvest_in(machine, at.below(table, span), removal, into);
                }
                return;
            }
        }
        slot.resolve(Entry::None);
    });
}

/// Removes everything in and below a table that no walk can reach any more.
fn empty_tree<M: Machine>(machine: &M, at: At, into: &mut impl Harvest) {
    // Above the user part the embedder keeps entries of its own in the root.
    let user = PageRange::new(Vpn(0), Vpn(M::Format::USER_PAGES));
    for_each_used(machine, at, user, |slot, mut loaded, span| {
        // Most entries are of leaf tables: told from others without a look at the level.
        if at.level == 0
            && let Entry::Leaf(leaf) = slot.of_leaf_table().seen(loaded).entry
        {
            return into.leaf(leaf);
        }
        loop {
            match slot.seen(loaded).entry {
                Entry::None | Entry::Guard | Entry::Poison => return,
                Entry::Swap(of) => return into.swapped(of),
                Entry::Leaf(leaf) if at.level == 0 => return into.leaf(leaf),
                Entry::Leaf(leaf) => {
                    into.huge(leaf, at.table, span.start);
                    return;
                }
                Entry::Table(table) => return empty_tree(machine, at.below(table, span), into),
                // A copy that began before the removal. The table stays until the copy has ended.
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => machine.relax(),
            }
            loaded = slot.load();
        }
    });
    into.table(at.table);
}

/// Removes everything below the root, and the root: for a space that nobody runs.
pub(crate) fn empty_all<M: Machine>(machine: &M, root: Pfn, into: &mut impl Harvest) {
    empty_tree(machine, At { table: root, level: M::Format::LEVELS - 1, base: Vpn(0) }, into);
}

/// Calls `f` with each leaf table and each huge entry that overlaps the range, until it returns
/// `Stop`. Under the writer lock.
pub(crate) fn for_each_part<M: Machine>(
    machine: &M,
    root: Pfn,
    range: PageRange,
    f: &mut dyn FnMut(Part<'_, M::Format>) -> Next,
) -> Next {
    visit_in(machine, At::root::<M::Format>(root), range, f)
}

fn visit_in<M: Machine>(machine: &M, at: At, range: PageRange, f: &mut dyn FnMut(Part<'_, M::Format>) -> Next) -> Next {
    let mut next = Next::GoOn;
    for_each_used(machine, at, range, |slot, mut loaded, span| {
        while next != Next::Stop {
            next = match slot.seen(loaded).entry {
                Entry::None => Next::GoOn,
                Entry::Table(table) if at.level == 1 => f(Part::Table(table, span.intersect(&range))),
                Entry::Table(table) => visit_in(machine, at.below(table, span), range, f),
                _ => f(Part::Huge(at.pmd(slot, span))),
            };
            if next != Next::Again {
                return;
            }
            loaded = slot.load();
        }
    });
    next
}

/// Calls `f(page, entry)` for each entry in part of a leaf table that is not empty.
pub(crate) fn for_each_in_table<M: Machine>(
    machine: &M,
    table: Pfn,
    part: PageRange,
    f: &mut dyn FnMut(Vpn, Slot<'_, M::Format>) -> Next,
) -> Next {
    let words = entries(machine, table);
    for vpn in part.start.0..part.end.0 {
        machine.tick(Tick::Step);
        let slot = Slot::new(&words[index_of::<M::Format>(vpn, 0)], 0);
        if !slot.is_none(slot.load()) && f(Vpn(vpn), slot) == Next::Stop {
            return Next::Stop;
        }
    }
    Next::GoOn
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
