//! Summaries: trees of bitmaps that tell which blocks offer which kind, so that no search walks
//! over memory to find one, or to learn that there is none.
//!
//! ```text
//! level 2   one bit for each word of level 1 ...            until there is one row
//! level 1   one bit for each word of level 0
//! level 0   one bit for each block; a word is a block group: 64 blocks, or fewer, so that
//!           each CPU's share is some block groups, and those are a word of level 1
//! row       the words of all kinds for the same blocks: four lines
//! ```
//! A set bit means that the block, or the whole word below, has *nothing* of the kind. So a row of
//! zeroes stands for free memory, and unused memory needs no row written. (For kinds that such
//! memory does not offer, the meaning is reversed.) A CPU's home blocks are whole block groups, so
//! no line of level 0 is shared by two, except where a node ends.
//!
//! A bit above is never set at rest while something below is there (I40). A CPU that makes
//! something available clears the bits *afterwards*, from the block up, each by a
//! read-modify-write. It continues upwards only if the word had nothing before. A CPU that uses the
//! last of it sets the bit by a read-modify-write, reads the block (or the word below) again, and
//! clears the bit if there is something after all. Both change the same word, so the later one sees
//! what the earlier one did: either the bit is cleared last, or the second read sees why it has to
//! be cleared.
//!
//! Only the CPU that found nothing in the word continues upwards, so the others may return before
//! their blocks can be found. For free frames ([`assure`](Summary::assure)) each CPU checks all
//! levels and clears what is still set, so that no CPU is refused frames that it freed itself.
//!
//! A search goes up to the first row with something after its place, and down again: it reads at
//! most two words for each level. It may miss concurrent changes. If a word has nothing although
//! the bit above is clear, it sets the bit.
//!
//! Source: tree summaries as in LLFree (Wrenger et al., USENIX ATC 2023), which has one
//! level of them; hierarchical bitmaps as in schedulers' priority maps.
//!
//! Locks on entry: none.

#[cfg(any(test, feature = "hooks"))]
use crate::addr::PAGE_SIZE;
use crate::addr::{BlockId, BlockRange, Pfn};
use crate::machine::Machine;
use crate::mem::FrameArray;
use crate::sync::{Ordering, Word};

mod holes;
mod kind;
mod search;
mod shape;

pub(crate) use kind::Kind;
use shape::{MAX_LEVELS, levels_of, widths_of};

/// Kinds that have room in a row.
const NR_KINDS: usize = 32;
const NOTHING: u64 = !0;

/// Where a row of level 0 has the frames in use of its block group, as blocks count them
/// ([`weight`](super::offers::weight)), and, in another line, what that was when somebody
/// last looked.
const USED: usize = NR_KINDS - 2;
const SEEN: usize = NR_KINDS - 9;
const _: () = {
    let mut i = 0;
    while i < Kind::ALL.len() {
        assert!(Kind::ALL[i] as usize != SEEN && (Kind::ALL[i] as usize) < USED);
        i += 1;
    }
};
/// Memory of so few blocks is counted block by block, and has no such words: models of it
/// would have no end.
pub(crate) const FEW_BLOCKS: u64 = 8;

/// The words of all kinds for the same blocks, and two words that count frames.
#[repr(C, align(64))]
pub(crate) struct SummaryRow([Word; NR_KINDS]);

/// All trees.
pub(crate) struct Summary {
    rows: FrameArray<SummaryRow>,
    nr_blocks: u32,
    /// Bits in a word of levels 0 and 1; 64 above.
    widths: [u32; 2],
    /// First row of each level, and after the last one the number of rows.
    starts: [u32; MAX_LEVELS + 1],
    nr_levels: usize,
}

/// A bit of one level.
#[derive(Clone, Copy)]
struct Place {
    level: usize,
    row: u32,
    bit: u32,
}

impl Summary {
    /// Bytes that the trees over so many blocks take.
    pub(crate) fn bytes_for(nr_blocks: u32, nr_cpus: usize) -> usize {
        let (starts, nr_levels) = levels_of(nr_blocks, widths_of(nr_blocks, nr_cpus));
        starts[nr_levels] as usize * size_of::<SummaryRow>()
    }

    /// Frames that they take.
    #[cfg(any(test, feature = "hooks"))]
    pub(crate) fn frames_for(nr_blocks: u32, nr_cpus: usize) -> u64 {
        (Summary::bytes_for(nr_blocks, nr_cpus) as u64).div_ceil(PAGE_SIZE)
    }

    /// The trees in frames of zeroes from `first` on: every block has everything.
    pub(crate) fn over<M: Machine>(machine: &M, first: Pfn, nr_blocks: u32, nr_cpus: usize) -> Summary {
        let widths = widths_of(nr_blocks, nr_cpus);
        let (starts, nr_levels) = levels_of(nr_blocks, widths);
        let rows = FrameArray::over(machine, first, 0, starts[nr_levels] as usize);
        let summary = Summary { rows, nr_blocks, widths, starts, nr_levels };
        summary.end_rows();
        summary
    }

    /// Notes that no block has anything of the kind. At the very beginning.
    #[cfg(any(test, feature = "hooks"))]
    pub(crate) fn clear(&self, kind: Kind) {
        let nothing = if kind.is_rare() { 0 } else { NOTHING };
        self.rows.iter().for_each(|row| row.0[kind as usize].set(nothing));
    }

    /// Counts so many more frames of block `b` in use, or fewer, wrapping around. Only for changes
    /// of class, so that this line is written a few times in 512 faults.
    #[inline(never)]
    pub(super) fn weigh(&self, b: BlockId, more_used: u64) {
        if u64::from(self.nr_blocks) > FEW_BLOCKS {
            self.rows.at(self.block_group_of(b) as usize).0[USED].fetch_add(more_used, Ordering::Relaxed);
        }
    }

    /// Frames in use in a block group, as counted: any number for a moment while changes are in
    /// progress.
    pub(crate) fn nr_used(&self, block_group: u32) -> u64 {
        self.rows.at(block_group as usize).0[USED].load(Ordering::Relaxed)
    }

    /// Returns by how much that has grown since the last call, wrapping around.
    pub(super) fn recount(&self, block_group: u32) -> u64 {
        let row = self.rows.at(block_group as usize);
        let now = row.0[USED].load(Ordering::Relaxed);
        if now == row.0[SEEN].load(Ordering::Relaxed) {
            return 0;
        }
        now.wrapping_sub(row.0[SEEN].swap(now, Ordering::Relaxed))
    }

    /// Its value at that time. For the checker.
    pub(super) fn nr_seen(&self, block_group: u32) -> u64 {
        self.rows.at(block_group as usize).0[SEEN].load(Ordering::Relaxed)
    }

    pub(crate) fn nr_places(&self) -> u32 {
        self.nr_blocks
    }

    pub(crate) fn nr_block_groups(&self) -> u32 {
        self.nr_rows(0)
    }

    /// Its blocks. Home blocks begin where one begins.
    pub(crate) fn blocks_of(&self, block_group: u32) -> BlockRange {
        let [start, end] = [block_group, block_group + 1]
            .map(|block_group| BlockId((block_group * self.block_group()).min(self.nr_blocks)));
        BlockRange { start, end }
    }

    pub(crate) fn block_group_of(&self, b: BlockId) -> u32 {
        b.0 / self.block_group()
    }

    /// Marks bits past the end of memory as having nothing.
    fn end_rows(&self) {
        for level in 0..self.nr_levels {
            let nr_bits = if level == 0 { self.nr_blocks } else { self.nr_rows(level - 1) };
            let width = self.width(level);
            for row in 0..self.nr_rows(level) {
                let used = (nr_bits - row * width).min(width);
                if used < width {
                    let place = Place { level, row, bit: 0 };
                    let kinds = Kind::ALL.iter().filter(|kind| !kind.is_rare());
                    kinds.for_each(|kind| self.word(*kind, place).set(NOTHING << used));
                }
            }
        }
    }

    /// All rows. For names.
    #[cfg(any(test, feature = "hooks"))]
    pub(crate) fn rows(&self) -> &FrameArray<SummaryRow> {
        &self.rows
    }

    /// The level that a row belongs to.
    #[cfg(any(test, feature = "hooks"))]
    pub(crate) fn level_of(&self, row: usize) -> usize {
        self.starts[1..self.nr_levels].iter().filter(|start| **start as usize <= row).count()
    }

    /// Blocks in a block group.
    fn block_group(&self) -> u32 {
        self.widths[0]
    }

    /// Blocks of such block groups as one CPU's home blocks should have all of, or none. Each such share begins at a
    /// multiple of it.
    pub(crate) fn nr_blocks_in_share(&self) -> u32 {
        self.nr_block_groups_in_share() * self.block_group()
    }

    /// Block groups that one CPU's home blocks should have all of, or none, since they share a row.
    pub(crate) fn nr_block_groups_in_share(&self) -> u32 {
        if self.widths[1] < 64 { self.widths[1] } else { 1 }
    }

    /// Bits in a word of the level.
    fn width(&self, level: usize) -> u32 {
        self.widths.get(level).copied().unwrap_or(64)
    }

    fn nr_rows(&self, level: usize) -> u32 {
        self.starts[level + 1] - self.starts[level]
    }

    #[inline(always)]
    fn word(&self, kind: Kind, at: Place) -> &Word {
        &self.rows.at((self.starts[at.level] + at.row) as usize).0[kind as usize]
    }

    /// Returns a set bit for each child that has something.
    #[inline(always)]
    fn bits(&self, kind: Kind, at: Place) -> u64 {
        let word = self.word(kind, at).load(Ordering::Acquire);
        if kind.is_rare() { word } else { !word & self.full(at.level) }
    }

    /// Notes that the child of the bit has something now. Returns whether the whole word had nothing.
    fn set(&self, kind: Kind, at: Place) -> bool {
        let (word, bit) = (self.word(kind, at), 1 << at.bit);
        if kind.is_rare() {
            word.fetch_or(bit, Ordering::AcqRel) == 0
        } else {
            !word.fetch_and(!bit, Ordering::AcqRel) & self.full(at.level) == 0
        }
    }

    /// Notes that the child of the bit has nothing now. Returns whether the whole word has nothing now.
    fn unset(&self, kind: Kind, at: Place) -> bool {
        let (word, bit) = (self.word(kind, at), 1 << at.bit);
        if kind.is_rare() {
            word.fetch_and(!bit, Ordering::AcqRel) & !bit == 0
        } else {
            !(word.fetch_or(bit, Ordering::AcqRel) | bit) & self.full(at.level) == 0
        }
    }

    /// All bits of a word of the level.
    fn full(&self, level: usize) -> u64 {
        NOTHING >> (64 - self.width(level))
    }

    fn place_of(&self, b: BlockId) -> Place {
        Place { level: 0, row: b.0 / self.block_group(), bit: b.0 % self.block_group() }
    }

    /// Offers block `b`, which has something of the kind by now.
    pub(crate) fn offer(&self, kind: Kind, b: BlockId) {
        self.offer_at(kind, self.place_of(b));
    }

    fn offer_at(&self, kind: Kind, mut at: Place) {
        while at.level < self.nr_levels && self.set(kind, at) {
            at = self.above(at);
        }
    }

    /// Offers block `b`, which has something of the kind by now, so that a search finds it when
    /// this returns, however far other CPUs have come that change the same word. `changed` are
    /// the kinds that the caller's change gave: if it is among them, no other CPU may be about to offer.
    pub(crate) fn assure(&self, kind: Kind, b: BlockId, changed: u32) {
        let (mut at, mut is_first) = (self.place_of(b), changed & kind.bit() != 0);
        while at.level < self.nr_levels {
            // The first CPU changes the word: see above.
            is_first = (is_first || self.bits(kind, at) & 1 << at.bit == 0) && self.set(kind, at);
            at = self.above(at);
        }
    }

    /// Takes what the bit of block `b` stands for, of a kind whose bits are all that says so (`block/pool.rs`). Returns whether
    /// it was there: one CPU of several gets it.
    pub(crate) fn take(&self, kind: Kind, b: BlockId) -> bool {
        debug_assert!(kind.is_rare(), "a set bit says that there is something");
        let at = self.place_of(b);
        let bit = 1 << at.bit;
        if self.bits(kind, at) & bit == 0 {
            return false;
        }
        let before = self.word(kind, at).fetch_and(!bit, Ordering::AcqRel);
        if before == bit && self.nr_levels > 1 {
            self.withdraw_row(kind, at);
        }
        before & bit != 0
    }

    /// Makes searches pass over the block, which has something.
    #[cfg(test)]
    pub(crate) fn hide(&self, kind: Kind, b: BlockId) {
        self.withdraw_at(kind, self.above(self.place_of(b)));
    }

    /// Whether the bit of block `b` says that it has something.
    pub(crate) fn holds(&self, kind: Kind, b: BlockId) -> bool {
        let at = self.place_of(b);
        self.bits(kind, at) & 1 << at.bit != 0
    }

    /// Withdraws block `b`, which has nothing of the kind any more. `has` looks again.
    pub(crate) fn withdraw(&self, kind: Kind, b: BlockId, has: impl Fn() -> bool) {
        let at = self.place_of(b);
        self.withdraw_at(kind, at);
        if has() {
            self.offer_at(kind, at);
        }
    }

    fn withdraw_at(&self, kind: Kind, at: Place) {
        if !self.unset(kind, at) || at.level + 1 == self.nr_levels {
            return;
        }
        self.withdraw_row(kind, at);
    }

    /// The whole word has nothing left.
    fn withdraw_row(&self, kind: Kind, at: Place) {
        self.withdraw_at(kind, self.above(at));
        if self.bits(kind, at) != 0 {
            self.offer_at(kind, self.above(at));
        }
    }

    /// Whether a search that comes by finds the block. For the checker.
    pub(crate) fn says(&self, kind: Kind, b: BlockId) -> bool {
        let mut at = self.place_of(b);
        while at.level < self.nr_levels {
            if self.bits(kind, at) & 1 << at.bit == 0 {
                return false;
            }
            at = self.above(at);
        }
        true
    }

    /// The bit that stands for the row of a place.
    fn above(&self, at: Place) -> Place {
        let width = self.width(at.level + 1);
        Place { level: at.level + 1, row: at.row / width, bit: at.row % width }
    }

    /// Where the level above speaks of a row of this level, if there is such a row.
    fn above_row(&self, at: Place, row: u32) -> Option<Place> {
        (row < self.nr_rows(at.level)).then(|| self.above(Place { row, ..at }))
    }
}

#[cfg(test)]
mod tests;
