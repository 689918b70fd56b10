//! The hardware page walk: reads the tables in the arena, follows only present entries,
//! and sets the accessed and dirty bits of the leaf entry, or faults if the machine leaves
//! those to software.
//!
//! It runs inside an access (E4). A table may be detached while the walk reads it, but is
//! not freed before the end of the access.

use crate::cpu::CpuState;
use crate::hosted::Hosted;
use crate::tlb::Translation;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use softfault::addr::{Access, Pfn, Rights, Vpn};
use softfault::machine::SpaceTag;
use softfault::table::format::{self, Entry, Format, Leaf, index_of};

/// Translates `page`; `None` if the tables do not allow the access.
pub(crate) fn walk<F: Format>(
    machine: &Hosted<F>,
    cpu: &CpuState,
    space: SpaceTag,
    page: Vpn,
    access: Access,
) -> Option<Translation> {
    if page.0 >= F::USER_PAGES {
        return None;
    }
    let before = cpu.tables.invalidations();
    let (mut table, mut level) = match cpu.tables.lookup(space.id, page) {
        Some(cached) => (cached.pfn, 0),
        None => (space.root, F::LEVELS - 1),
    };
    loop {
        match step(machine, table, level, page, access)? {
            Step::Mapped(leaf) => {
                assert!(level <= machine.top_leaf, "machine check: {leaf:?} at level {level} for {page:?}");
                cpu.own.counters.found_at(level);
                return Some(translation_of::<F>(leaf, level, page));
            }
            Step::Table(next) => {
                (table, level) = (next, level - 1);
                if level == 0 {
                    cpu.tables.fill(space.id, table_translation::<F>(next, page), before);
                }
            }
        }
    }
}

enum Step {
    Table(Pfn),
    Mapped(Leaf),
}

/// Reads one entry. A compare-and-swap of the whole word sets accessed and dirty, so it
/// fails if the entry has changed.
fn step<F: Format>(machine: &Hosted<F>, table: Pfn, level: u8, page: Vpn, access: Access) -> Option<Step> {
    let word = machine.arena.word(table, index_of::<F>(page.0, level) * 8);
    let mut seen = word.load(Acquire);
    loop {
        let leaf = match F::decode(seen, level) {
            Entry::Table(next) if level > 0 => return Some(Step::Table(next)),
            Entry::Leaf(leaf) | Entry::LockedLeaf(leaf) => leaf,
            Entry::Table(_)
            | Entry::None
            | Entry::Busy
            | Entry::LockedNone
            | Entry::Guard
            | Entry::Poison
            | Entry::Swap(_) => {
                return None;
            }
        };
        if !leaf.rights.contains(access.needs()) {
            return None;
        }
        let used = format::used::<F>(seen, access);
        if used == seen {
            return Some(Step::Mapped(leaf));
        }
        if machine.software_ad_bits {
            return None;
        }
        match word.compare_exchange(seen, used, AcqRel, Acquire) {
            Ok(_) => {
                let dirty = leaf.dirty || access == Access::Write;
                return Some(Step::Mapped(Leaf { accessed: true, dirty, ..leaf }));
            }
            Err(now) => seen = now,
        }
    }
}

/// # Panics
///
/// If a leaf above level 0 names a frame that is not aligned to its size: bits
/// that have to be 0 are set, for which hardware raises a fault that no kernel
/// can mend.
fn translation_of<F: Format>(leaf: Leaf, level: u8, page: Vpn) -> Translation {
    let order = F::INDEX_BITS as u8 * level;
    let aligned = u64::from(leaf.pfn.0).is_multiple_of(1 << order);
    assert!(aligned, "machine check: {leaf:?} at level {level} for {page:?}, frame not aligned to 2^{order}");
    Translation { page: Vpn(page.0 >> order << order), order, pfn: leaf.pfn, rights: leaf.rights, dirty: leaf.dirty }
}

fn table_translation<F: Format>(table: Pfn, page: Vpn) -> Translation {
    let order = F::INDEX_BITS as u8;
    Translation { page: Vpn(page.0 >> order << order), order, pfn: table, rights: Rights::empty(), dirty: false }
}

#[cfg(test)]
mod tests;
