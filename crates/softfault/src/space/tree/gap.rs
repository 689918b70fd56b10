//! Finds holes between VMAs, for mmap(2) without an address.
//!
//! Inner nodes have the largest hole below each child, so the search enters only children with a
//! large enough hole. It checks holes *between* children, and those before the first and after the
//! last VMA, on the way. With an alignment a hole may be large enough and still not fit; then the
//! search continues. It is exact: it finds a place whenever there is one.
//!
//! Locks on entry: the writer lock, because the result is valid only while nobody else maps the
//! hole.

use super::node::{NodeId, NodeRef};
use super::read::Snapshot;
use super::slots::{Slots, Span};
use crate::addr::{PageRange, Vpn};
use crate::machine::Machine;

/// Which of several places is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// The highest.
    TopDown,
    /// The lowest.
    BottomUp,
}

/// A place that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GapRequest {
    /// It has to lie in here.
    pub window: PageRange,
    /// Its size; 0 fits nowhere.
    pub nr_pages: u64,
    /// Its first page is `skip_pages` past a multiple of this; 0 and 1 ask for
    /// nothing.
    pub align_pages: u64,
    /// See `align_pages`.
    pub skip_pages: u64,
    /// The highest or the lowest of the places that do.
    pub direction: Direction,
}

impl GapRequest {
    /// `nr_pages` in `window`, at any alignment.
    pub fn new(window: PageRange, nr_pages: u64, direction: Direction) -> GapRequest {
        GapRequest { window, nr_pages, align_pages: 1, skip_pages: 0, direction }
    }

    /// The wanted place in the hole.
    fn fit(&self, hole: PageRange) -> Option<Vpn> {
        let PageRange { start: Vpn(start), end: Vpn(end) } = hole.intersect(&self.window);
        let align = self.align_pages.max(1);
        let skip = self.skip_pages % align;
        let highest = end.checked_sub(self.nr_pages)?;
        if self.nr_pages == 0 || highest < start {
            return None;
        }
        let vpn = match self.direction {
            Direction::TopDown => highest.checked_sub(distance(skip, highest % align, align))?,
            Direction::BottomUp => start.checked_add(distance(start % align, skip, align))?,
        };
        (start <= vpn && vpn <= highest).then_some(Vpn(vpn))
    }

    /// Whether a hole below `span` could do.
    fn may_fit(&self, span: &Span) -> bool {
        let start = span.first.max(self.window.start.0);
        let end = span.last.min(self.window.end.0);
        span.max_gap >= self.nr_pages && end.saturating_sub(start) >= self.nr_pages
    }
}

/// From `from` up to `to`, round a circle of `align`.
fn distance(from: u64, to: u64, align: u64) -> u64 {
    if to >= from { to - from } else { align - from + to }
}

/// A search in progress.
struct Search<'a, 'r, M> {
    snapshot: Snapshot<'a, M>,
    request: &'r GapRequest,
    /// Nodes that may still be entered. Only corrupt nodes exhaust it.
    nr_nodes_left: &'r mut u64,
}

impl<M: Machine> Snapshot<'_, M> {
    /// Where the request fits between the VMAs.
    pub fn find_gap(&self, request: &GapRequest) -> Option<Vpn> {
        self.find_gap_within(request, &mut self.tree.nr_nodes())
    }

    /// As [`find_gap`](Self::find_gap), entering no more than `nr_nodes_left`,
    /// which is lowered by those entered.
    pub(super) fn find_gap_within(&self, request: &GapRequest, nr_nodes_left: &mut u64) -> Option<Vpn> {
        let (Some(first), Some(last)) = (self.next(Vpn(0)), self.prev(Vpn(u64::MAX))) else {
            return request.fit(PageRange::new(Vpn(0), Vpn(u64::MAX)));
        };
        let below = PageRange::new(Vpn(0), first.vma.range.start);
        let above = PageRange::new(last.vma.range.end, Vpn(u64::MAX));
        let mut search = Search { snapshot: *self, request, nr_nodes_left };
        let level = self.tree.header(self.root).level();
        let mut inside = || search.scan(self.root, level);
        match request.direction {
            Direction::TopDown => request.fit(above).or_else(inside).or_else(|| request.fit(below)),
            Direction::BottomUp => request.fit(below).or_else(&mut inside).or_else(|| request.fit(above)),
        }
    }
}

impl<M: Machine> Search<'_, '_, M> {
    /// Looks at the holes below the node, which is at `level`.
    fn scan(&mut self, id: NodeId, level: u8) -> Option<Vpn> {
        if id.is_none() || *self.nr_nodes_left == 0 || self.snapshot.tree.header(id).level() != level {
            return None;
        }
        *self.nr_nodes_left -= 1;
        match self.snapshot.tree.node_at(id, level) {
            NodeRef::Leaf(leaf) => self.scan_slots(leaf, |_, _| None),
            NodeRef::Inner(inner) => {
                let request = self.request;
                self.scan_slots(inner, |search, i| {
                    let worth = level > 0 && request.may_fit(&inner.span_at(i));
                    worth.then(|| search.scan(inner.child(i), level - 1))?
                })
            }
        }
    }

    /// In the wanted order: the holes below each entry, and those between.
    ///
    /// ```text
    ///   AAA**BB***CC   bottom up: below A, A**B, below B, B***C, below C
    /// ```
    fn scan_slots<S: Slots>(
        &mut self,
        node: &S,
        mut below: impl FnMut(&mut Self, usize) -> Option<Vpn>,
    ) -> Option<Vpn> {
        let len = node.len();
        let request = self.request;
        let between = |i: usize| request.fit(PageRange::new(Vpn(node.span_at(i).last), Vpn(node.span_at(i + 1).first)));
        match request.direction {
            Direction::TopDown => (0..len).rev().find_map(|i| {
                let above = if i + 1 < len { between(i) } else { None };
                above.or_else(|| below(self, i))
            }),
            Direction::BottomUp => (0..len).find_map(|i| {
                let found = below(self, i);
                if found.is_none() && i + 1 < len { between(i) } else { found }
            }),
        }
    }
}
