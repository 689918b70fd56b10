//! Entries of nodes, and how they move within and between them.
//!
//! For an edit, leaves and inner nodes differ only in their entries; [`Slots`] is what they have in
//! common. `layout` has the words, `edit` decides what moves. All writes here are to nodes that the
//! transaction made and nobody else can see.

use super::indices::Indices;
use super::layout::{Header, INNER_MAX, INNER_MIN, Inner, LEAF_MAX, LEAF_MIN, Leaf};
use super::node::{NO_END, NodeId, nr_up_to};
use crate::addr::{PageRange, Vpn};
use crate::space::vma::Vma;
use crate::sync::Word;

/// Extent of one or more adjacent entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) first: u64,
    pub(super) last: u64,
    /// The largest hole inside, pages.
    pub(super) max_gap: u64,
    /// The indices of the displaced ones.
    pub(super) displaced: Indices,
}

/// An entry of an inner node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Branch {
    pub(super) span: Span,
    pub(super) child: NodeId,
}

/// A node as an array of entries.
pub(super) trait Slots: crate::mem::Words {
    /// Most entries.
    const MAX: usize;
    /// Fewest entries, but for the root.
    const MIN: usize;
    /// Type of an entry.
    type Entry: Copy;

    fn header(&self) -> &Header;
    fn entry(&self, i: usize) -> Self::Entry;
    fn put(&self, i: usize, entry: &Self::Entry);
    /// Where the ends of the entries are.
    fn end_word(&self, i: usize) -> &Word;
    fn span_at(&self, i: usize) -> Span;
    /// Number of entries that end at or before `vpn`: the place of the entry
    /// that holds `vpn` or follows it.
    fn nr_ended(&self, vpn: u64) -> usize;

    /// Number of entries, as far as there is room.
    #[inline(always)]
    fn len(&self) -> usize {
        self.header().len().min(Self::MAX)
    }

    /// Empties a node of any content.
    fn clear(&self, level: u8) {
        (0..Self::MAX).for_each(|i| self.end_word(i).set(NO_END));
        self.header().set_empty(level);
    }

    /// Forgets the entries from `len` on.
    fn truncate(&self, len: usize) {
        (len..self.len()).for_each(|i| self.end_word(i).set(NO_END));
        self.header().set_len(len);
    }

    /// Extent of all entries; there has to be one.
    fn span(&self) -> Span {
        let mut all = self.span_at(0);
        for i in 1..self.len() {
            let next = self.span_at(i);
            all.max_gap = all.max_gap.max(next.max_gap).max(next.first.saturating_sub(all.last));
            all.last = next.last;
            all.displaced = all.displaced.union(next.displaced);
        }
        all
    }

    /// Makes room at `at` and puts `entry` there; the node is not full.
    fn insert_at(&self, at: usize, entry: &Self::Entry) {
        let len = self.len();
        (at..len).rev().for_each(|i| self.put(i + 1, &self.entry(i)));
        self.put(at, entry);
        self.header().set_len(len + 1);
    }

    /// Removes `nr` entries from `at` on.
    fn remove_at(&self, at: usize, nr: usize) {
        let len = self.len();
        (at + nr..len).for_each(|i| self.put(i - nr, &self.entry(i)));
        self.truncate(len - nr);
    }

    /// Appends `nr` entries of `from`, from `at` on.
    fn append(&self, from: &Self, at: usize, nr: usize) {
        let len = self.len();
        (0..nr).for_each(|i| self.put(len + i, &from.entry(at + i)));
        self.header().set_len(len + nr);
    }

    /// Halves a full node into the empty `right`, with `entry` at `at` of the
    /// whole.
    fn split_insert(&self, right: &Self, at: usize, entry: &Self::Entry) {
        let half = Self::MAX / 2;
        let keep = if at <= half { half } else { half + 1 };
        right.append(self, keep, Self::MAX - keep);
        self.truncate(keep);
        match at <= half {
            true => self.insert_at(at, entry),
            false => right.insert_at(at - keep, entry),
        }
    }

    /// Merges the entries of this node and of the one to its right if they fit (`true`: `right` is
    /// empty now), else distributes them evenly.
    fn join(&self, right: &Self) -> bool {
        let (a, b) = (self.len(), right.len());
        if a + b <= Self::MAX {
            self.append(right, 0, b);
            right.truncate(0);
            return true;
        }
        let half = (a + b) / 2;
        if a > half {
            (0..b).rev().for_each(|i| right.put(i + a - half, &right.entry(i)));
            (half..a).for_each(|i| right.put(i - half, &self.entry(i)));
            right.header().set_len(a + b - half);
            self.truncate(half);
        } else {
            self.append(right, 0, half - a);
            right.remove_at(0, half - a);
        }
        false
    }
}

impl Slots for Leaf {
    const MAX: usize = LEAF_MAX;
    const MIN: usize = LEAF_MIN;
    type Entry = Vma;

    #[inline(always)]
    fn header(&self) -> &Header {
        &self.header
    }
    #[inline(always)]
    fn entry(&self, i: usize) -> Vma {
        let record = &self.records[i];
        Vma {
            range: PageRange::new(Vpn(record.start.get()), Vpn(self.ends[i].get())),
            flags: record.flags(),
            object: record.object(),
            pgoff: record.pgoff.get(),
            index: record.index.get(),
        }
    }
    fn put(&self, i: usize, vma: &Vma) {
        let record = &self.records[i];
        self.ends[i].set(vma.range.end.0);
        record.start.set(vma.range.start.0);
        record.set_kind(vma.flags, vma.object);
        record.pgoff.set(vma.pgoff);
        record.index.set(vma.index);
        self.refs[i].set(0);
    }
    fn end_word(&self, i: usize) -> &Word {
        &self.ends[i]
    }
    #[inline(always)]
    fn span_at(&self, i: usize) -> Span {
        let vma = self.entry(i);
        Span { first: vma.range.start.0, last: vma.range.end.0, max_gap: 0, displaced: Indices::of(&vma) }
    }
    #[inline(always)]
    fn nr_ended(&self, vpn: u64) -> usize {
        nr_up_to(&self.ends, vpn)
    }
}

impl Slots for Inner {
    const MAX: usize = INNER_MAX;
    const MIN: usize = INNER_MIN;
    type Entry = Branch;

    #[inline(always)]
    fn header(&self) -> &Header {
        &self.header
    }
    fn entry(&self, i: usize) -> Branch {
        Branch { span: self.span_at(i), child: self.child(i) }
    }
    fn put(&self, i: usize, branch: &Branch) {
        self.last_end[i].set(branch.span.last);
        self.first_start[i].set(branch.span.first);
        self.max_gap[i].set(branch.span.max_gap);
        self.displaced[i].set(branch.span.displaced.0);
        self.child[i].set(branch.child.to_child_word());
    }
    fn end_word(&self, i: usize) -> &Word {
        &self.last_end[i]
    }
    #[inline(always)]
    fn span_at(&self, i: usize) -> Span {
        Span {
            first: self.first_start[i].get(),
            last: self.last_end[i].get(),
            max_gap: self.max_gap[i].get(),
            displaced: Indices(self.displaced[i].get()),
        }
    }
    #[inline(always)]
    fn nr_ended(&self, vpn: u64) -> usize {
        nr_up_to(&self.last_end, vpn)
    }
}
