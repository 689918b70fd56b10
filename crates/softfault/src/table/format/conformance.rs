//! Tests a [`Format`] against its contract, I32 to I38: every state at every level,
//! with frames that have each bit of a frame number. For the tests of who implements a
//! format.
//!
//! The other half is the hardware, which only its manual knows: a [`Step`] of its walk,
//! written down apart from the format.

use super::{Entry, Format, Kept, Leaf, is_same_but_used, span_of, used};
use crate::addr::{Access, Pfn, Rights, SwapSlot};

/// The hardware's reaction to one word of a walk, for an access of a program's.
/// Exhaustive: the test of a format makes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The access faults.
    Fault,
    /// The walk goes on.
    Table {
        /// In this table.
        table: Pfn,
        /// The word afterwards.
        word: u64,
    },
    /// The access is made.
    Page {
        /// The (first) frame.
        pfn: Pfn,
        /// The word afterwards.
        word: u64,
    },
}

/// A clause of the contract that a format breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Broken {
    /// The invariant's number.
    pub clause: &'static str,
    /// At this level.
    pub level: u8,
    /// With the word of this entry.
    pub entry: Entry,
    /// The word.
    pub word: u64,
}

impl core::fmt::Display for Broken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Broken { clause, level, entry, word } = self;
        write!(f, "{clause} is broken at level {level} by {entry:?} as {word:#x}")
    }
}
impl core::error::Error for Broken {}

const ACCESSES: [Access; 3] = [Access::Read, Access::Write, Access::Exec];
const RW: Rights = Rights::READ.union(Rights::WRITE);
const RX: Rights = Rights::READ.union(Rights::EXEC);
const RIGHTS: [Rights; 5] = [Rights::empty(), Rights::READ, RW, RX, Rights::all()];

/// Tests the format. `walk(word, level, access)` is one step of the hardware's walk.
///
/// # Errors
///
/// The first clause that is broken.
pub fn check<F: Format>(walk: impl Fn(u64, u8, Access) -> Step) -> Result<(), Broken> {
    let bits = F::INDEX_BITS * u32::from(F::LEVELS);
    let has_leaves = (1..F::LEVELS).contains(&F::TOP_LEAF);
    let is_sized = F::LEVELS >= 2 && (1..=9).contains(&F::INDEX_BITS) && bits <= 52 && has_leaves;
    if !is_sized || F::USER_PAGES == 0 || F::USER_PAGES > 1 << bits {
        return Err(Broken { clause: "I38", level: F::LEVELS, entry: Entry::None, word: 0 });
    }
    for level in 0..F::LEVELS {
        for_each_entry::<F>(level, &mut |entry| {
            let place = Place::<F> { level, entry, word: F::encode(entry, level), format: core::marker::PhantomData };
            place.check_coding()?;
            place.check_lock()?;
            place.check_busy(&walk)?;
            place.check_marks()?;
            ACCESSES.iter().try_for_each(|access| place.check_walk(*access, &walk))
        })?;
    }
    Ok(())
}

/// All states, with as many frames as tell the bits of a frame number apart.
fn for_each_entry<F: Format>(level: u8, f: &mut dyn FnMut(Entry) -> Result<(), Broken>) -> Result<(), Broken> {
    [Entry::None, Entry::Busy, Entry::LockedNone, Entry::Guard, Entry::Poison].into_iter().try_for_each(&mut *f)?;
    f(Entry::Swap(SwapSlot(0)))?;
    for frame in (0..32).map(|bit| 1 << bit).chain([u32::MAX, 0x5555_5555, 0xaaaa_aaaa]) {
        f(Entry::Swap(SwapSlot(frame)))?;
        if level > 0 {
            f(Entry::Table(Pfn(frame)))?;
        }
        if level > F::TOP_LEAF {
            continue;
        }
        let pfn = Pfn((u64::from(frame) & !(span_of::<F>(level) - 1)) as u32);
        if pfn.0 == 0 {
            continue;
        }
        for (rights, bits) in RIGHTS.into_iter().flat_map(|rights| (0..4).map(move |bits| (rights, bits))) {
            let leaf = Leaf { pfn, rights, accessed: bits & 1 != 0, dirty: bits & 2 != 0 };
            f(Entry::Leaf(leaf))?;
            f(Entry::LockedLeaf(leaf))?;
        }
    }
    Ok(())
}

/// An entry of a table.
struct Place<F> {
    level: u8,
    entry: Entry,
    word: u64,
    format: core::marker::PhantomData<F>,
}

impl<F: Format> Place<F> {
    fn demand(&self, clause: &'static str, holds: bool) -> Result<(), Broken> {
        let Place { level, entry, word, .. } = *self;
        if holds { Ok(()) } else { Err(Broken { clause, level, entry, word }) }
    }

    fn leaf(&self) -> Option<Leaf> {
        match self.entry {
            Entry::Leaf(leaf) | Entry::LockedLeaf(leaf) => Some(leaf),
            _ => None,
        }
    }

    /// The same entry with another leaf.
    fn with(&self, leaf: Leaf) -> Entry {
        if matches!(self.entry, Entry::LockedLeaf(_)) { Entry::LockedLeaf(leaf) } else { Entry::Leaf(leaf) }
    }

    fn says(&self, word: u64, entry: Entry) -> bool {
        F::decode(word, self.level) == entry
    }

    fn check_coding(&self) -> Result<(), Broken> {
        self.demand("I32", self.says(self.word, self.entry))?;
        self.demand("I32", (self.word == 0) == (self.entry == Entry::None) && self.says(0, Entry::None))?;
        let table = if let Entry::Table(table) = self.entry { Some(table) } else { None };
        self.demand("I33", self.level == 0 || F::table(self.word) == table)?;
        self.check_next_frame()
    }

    /// Each frame beside the next one, in runs of 512, and each bit of a frame number.
    fn check_next_frame(&self) -> Result<(), Broken> {
        let Some(leaf) = self.leaf().filter(|leaf| self.level == 0 && !leaf.rights.is_empty()) else { return Ok(()) };
        let word_of = |pfn| F::encode(self.with(Leaf { pfn: Pfn(pfn), ..leaf }), self.level);
        let is_grown = |from: u32, to: u32| {
            let grown = u64::from(to - from).wrapping_mul(F::NEXT_FRAME);
            word_of(to) == word_of(from).wrapping_add(grown)
        };
        let run = leaf.pfn.0 & !511;
        self.demand("I32", is_grown(1, leaf.pfn.0) && (run.max(1)..run | 511).all(|pfn| is_grown(pfn, pfn + 1)))
    }

    fn check_lock(&self) -> Result<(), Broken> {
        match self.entry {
            Entry::Leaf(leaf) => {
                self.demand("I34", self.word & F::LOCK == 0)?;
                self.demand("I34", self.word | F::LOCK == F::encode(Entry::LockedLeaf(leaf), self.level))
            }
            Entry::LockedLeaf(_) | Entry::LockedNone => self.demand("I34", self.word & F::LOCK == F::LOCK),
            Entry::None | Entry::Table(_) | Entry::Busy | Entry::Guard | Entry::Poison | Entry::Swap(_) => {
                self.demand("I34", self.word & F::LOCK == 0 && F::LOCK != 0)
            }
        }
    }

    fn check_busy(&self, walk: impl Fn(u64, u8, Access) -> Step) -> Result<(), Broken> {
        self.demand("I35", F::kept(self.word, self.level).is_none())?;
        let kept = match (self.entry, self.leaf()) {
            (Entry::Table(table), _) => Kept::Table(table),
            (_, Some(leaf)) => Kept::Leaf(Leaf { rights: Rights::empty(), ..leaf }),
            (_, None) => return Ok(()),
        };
        let busy = F::busy_of(self.word, self.level);
        self.demand("I35", self.says(busy, Entry::Busy) && F::kept(busy, self.level) == Some(kept))?;
        let faults = ACCESSES.iter().all(|access| walk(busy, self.level, *access) == Step::Fault);
        self.demand("I33", faults && (self.level == 0 || F::table(busy).is_none()))
    }

    fn check_marks(&self) -> Result<(), Broken> {
        let Some(leaf) = self.leaf() else { return Ok(()) };
        let becomes = |word, leaf| self.says(word, self.with(leaf)) && word == F::encode(self.with(leaf), self.level);
        self.demand("I36", becomes(F::set_accessed(self.word), Leaf { accessed: true, ..leaf }))?;
        self.demand("I36", becomes(F::set_dirty(self.word), Leaf { dirty: true, ..leaf }))?;
        self.demand("I36", becomes(F::clear_accessed(self.word), Leaf { accessed: false, ..leaf }))?;
        self.demand("I36", becomes(F::clear_dirty(self.word), Leaf { dirty: false, ..leaf }))
    }

    fn check_walk(&self, access: Access, walk: impl Fn(u64, u8, Access) -> Step) -> Result<(), Broken> {
        let step = walk(self.word, self.level, access);
        match (self.entry, self.leaf(), step) {
            (Entry::Table(below), _, Step::Table { table, word }) => {
                self.demand("I33", table == below)?;
                let goes_on = self.says(word, self.entry) && F::table(word) == Some(below);
                self.demand("I37", goes_on && is_same_but_used::<F>(word, self.word))?;
                let kept = F::kept(F::busy_of(word, self.level), self.level);
                self.demand("I35", kept == Some(Kept::Table(below)))
            }
            (_, Some(leaf), Step::Page { pfn, word }) => {
                self.demand("I33", leaf.rights.contains(access.needs()) && pfn == leaf.pfn)?;
                self.demand("I37", word == used::<F>(self.word, access))
            }
            (_, Some(leaf), Step::Fault) => {
                let is_used = leaf.accessed && (leaf.dirty || access != Access::Write);
                self.demand("I33", !leaf.rights.contains(access.needs()) || !is_used)
            }
            (_, None, Step::Fault) => self.demand("I33", !matches!(self.entry, Entry::Table(_))),
            (_, _, Step::Table { .. } | Step::Page { .. }) => self.demand("I33", false),
        }
    }
}

#[cfg(test)]
mod tests;
