//! Finds target frames for pages that leave a block: in partly used blocks, the fuller ones first.
//! Wholly free blocks are not used: using one up to free another would gain nothing. If there is no
//! target, compaction does not reclaim: reclaim would split huge pages, and compaction is to make
//! them.
//!
//! Locks on entry: none, no section.

use super::moves::Move;
use crate::addr::{BLOCK_FRAMES, BlockId, BlockRange, Order, Pfn};
use crate::frame::{BLOCK_WORDS, Class, Content, Kind, word_base};
use crate::machine::{Machine, Tick};
use crate::space::Vm;

/// Passes over the blocks, in this order:
///
/// 1. blocks of the source's class that are fuller than the source, then all of that class;
/// 2. the same for the other movable class;
/// 3. blocks with pins, then blocks with tables, which need their free frames for those;
/// 4. blocks that CPUs have reserved for small frames.
///
/// The summaries do not know fuller blocks, nor those of the last pass. These passes skip other blocks
/// that the summaries list, up to [`MOST_LOOKS`] of them.
const fn passes(own: Kind, other: Kind) -> [Pass; 7] {
    [
        Pass { kind: own, fuller: true, most_looks: MOST_LOOKS },
        Pass { kind: own, fuller: false, most_looks: u64::MAX },
        Pass { kind: other, fuller: true, most_looks: MOST_LOOKS },
        Pass { kind: other, fuller: false, most_looks: u64::MAX },
        Pass { kind: Kind::Pinned, fuller: false, most_looks: u64::MAX },
        Pass { kind: Kind::Fixed, fuller: false, most_looks: u64::MAX },
        Pass { kind: Kind::Any, fuller: false, most_looks: MOST_LOOKS },
    ]
}

static FOR_MOVABLE: [Pass; 7] = passes(Kind::Spare, Kind::Shared);
static FOR_SHARED: [Pass; 7] = passes(Kind::Shared, Kind::Spare);

/// Blocks that are visited in a pass that may find nothing. A guess.
const MOST_LOOKS: u64 = 256;

/// The blocks that a pass accepts.
struct Pass {
    kind: Kind,
    /// Only those with fewer free frames than the source.
    fuller: bool,
    most_looks: u64,
}

/// Number of orders that are searched for: smaller than a block.
const NR_ORDERS: usize = Order::PMD.0 as usize;
/// Blocks that are visited between two calls of `go_on`.
const LOOKS_PER_QUESTION: u32 = 256;
/// Steps of a budget that these cost: a block's counts take a quarter of the time that a search in a tree takes.
pub(super) const STEPS_PER_QUESTION: u64 = LOOKS_PER_QUESTION as u64 / 4;

/// The position of a search for frames of one order.
#[derive(Clone, Copy, Default)]
struct Search {
    /// Number of finished passes, and the position in the present one: part of memory (0 after the
    /// source, 1 before it) and block.
    nr_passes: usize,
    after: Option<(usize, BlockId)>,
    /// Blocks that were visited in this pass.
    nr_looks: u64,
    /// The block that the last frames came from.
    now: Option<BlockId>,
}

/// Claims target frames: single frames, at most one word of a bitmap at a time, and runs for folios of
/// objects. Unused single frames are released on drop.
pub(super) struct Targets<'a, M: Machine> {
    vm: &'a Vm<M>,
    source: BlockId,
    /// Free frames of the source when it was chosen.
    source_free: u64,
    /// Most frames that may still be asked for.
    nr_wanted: u64,
    passes: &'static [Pass],
    searches: [Search; NR_ORDERS],
    base: u64,
    mask: u64,
    zero: u64,
    pub(super) nr_claimed: u64,
}

impl<'a, M: Machine> Targets<'a, M> {
    pub(super) fn new(vm: &'a Vm<M>, source: BlockId, source_free: u64) -> Self {
        let is_shared = vm.frames.blocks.at(source).class() == Class::Shared;
        Targets {
            vm,
            source,
            source_free,
            nr_wanted: BLOCK_FRAMES - source_free,
            passes: if is_shared { &FOR_SHARED } else { &FOR_MOVABLE },
            searches: [Search::default(); NR_ORDERS],
            base: 0,
            mask: 0,
            zero: 0,
            nr_claimed: 0,
        }
    }

    /// Returns 2^order adjacent frames that the caller owns alone. `None` if there are none, or if
    /// `go_on`, which is called now and then, returns `false`.
    pub(super) fn next(&mut self, order: Order, go_on: &mut dyn FnMut() -> bool) -> Option<Pfn> {
        if order > Order::BASE {
            return self.claim_run(order, go_on);
        }
        if self.mask == 0 && !self.claim_word(go_on) {
            return None;
        }
        let bit = self.mask & self.mask.wrapping_neg();
        self.mask &= !bit;
        self.nr_wanted = self.nr_wanted.saturating_sub(1);
        Some(Pfn(self.base as u32 + bit.trailing_zeros()))
    }

    /// Takes back the target of a page that has not moved.
    pub(super) fn put_back(&mut self, Move { to: pfn, order, .. }: Move) {
        self.nr_wanted += order.nr_pages();
        if order > Order::BASE {
            self.vm.release_run(pfn, order.nr_pages(), Content::Unknown);
        } else if self.base == u64::from(pfn.0) & !63 {
            // Its content is no longer known.
            self.mask |= 1 << (pfn.0 % 64);
            self.zero &= !(1 << (pfn.0 % 64));
        } else {
            self.vm.release_one(pfn, Content::Unknown);
        }
    }

    /// Claims some frames of one word.
    fn claim_word(&mut self, go_on: &mut dyn FnMut() -> bool) -> bool {
        let (vm, most) = (self.vm, self.nr_wanted.clamp(1, 64));
        let claimed = self.search(Order::BASE, go_on, &mut |b| {
            let some = (0..BLOCK_WORDS).map(|w| (w, vm.frames.blocks.at(b).claim_some(w, most)));
            { some }.find(|(_, (mask, _))| *mask != 0).map(|(w, (mask, zero))| (word_base(b, w), mask, zero))
        });
        let Some((base, mask, zero)) = claimed else { return false };
        (self.base, self.mask, self.zero) = (base, mask, zero);
        self.vm.count_taken(mask.count_ones().into());
        self.nr_claimed += u64::from(mask.count_ones());
        true
    }

    fn claim_run(&mut self, order: Order, go_on: &mut dyn FnMut() -> bool) -> Option<Pfn> {
        let vm = self.vm;
        let first = self.search(order, go_on, &mut |b| vm.claim_run_in(b, order))?;
        self.nr_claimed += order.nr_pages();
        self.nr_wanted = self.nr_wanted.saturating_sub(order.nr_pages());
        Some(first)
    }

    /// Calls `claim` with the blocks that the summaries list, beginning after the source, until it
    /// succeeds. Full blocks are not listed.
    fn search<T>(
        &mut self,
        order: Order,
        go_on: &mut dyn FnMut() -> bool,
        claim: &mut dyn FnMut(BlockId) -> Option<T>,
    ) -> Option<T> {
        let blocks = &self.vm.frames.blocks;
        let mut search = self.searches[usize::from(order.0)];
        let mut nr_seen = 0u32;
        let found = loop {
            let Some(pass) = self.passes.get(search.nr_passes) else { break None };
            // A block with free frames may have no run.
            let most_looks = if order > Order::BASE { MOST_LOOKS } else { pass.most_looks };
            let may_look = search.nr_looks < most_looks;
            let next =
                search.now.take().or_else(|| if may_look { self.next_block(&mut search, pass.kind) } else { None });
            let Some(b) = next else {
                search = Search { nr_passes: search.nr_passes + 1, ..Search::default() };
                continue;
            };
            nr_seen = nr_seen.wrapping_add(1);
            search.nr_looks += 1;
            self.vm.machine.tick(Tick::Step);
            if nr_seen.is_multiple_of(LOOKS_PER_QUESTION) && !go_on() {
                break None;
            }
            let block = blocks.at(b);
            let limit = if pass.fuller { self.source_free } else { BLOCK_FRAMES };
            if !block.offers(pass.kind) || block.nr_free() >= limit {
                continue;
            }
            if let Some(found) = claim(b) {
                // The next search continues in this block.
                search.now = Some(b);
                break Some(found);
            }
        };
        self.searches[usize::from(order.0)] = search;
        found
    }

    /// Returns the next block of the kind after the last one, up to the source.
    fn next_block(&self, search: &mut Search, kind: Kind) -> Option<BlockId> {
        let blocks = &self.vm.frames.blocks;
        let all = blocks.names();
        let parts = [BlockRange { start: BlockId(self.source.0 + 1), ..all }, BlockRange { end: self.source, ..all }];
        let (part, after) = search.after.unwrap_or((0, parts[0].start));
        let rest = (part..2).map(|i| (i, if i == part { after } else { parts[i].start }));
        let found = rest.flat_map(|(i, start)| {
            let part = BlockRange { start, ..parts[i] };
            blocks.summary.first_in(kind, &part).map(|b| (i, b))
        });
        let (part, b) = found.into_iter().next()?;
        search.after = Some((part, BlockId(b.0 + 1)));
        Some(b)
    }
}

impl<M: Machine> Drop for Targets<'_, M> {
    fn drop(&mut self) {
        for (mask, content) in [(self.mask & self.zero, Content::Zero), (self.mask & !self.zero, Content::Unknown)] {
            if mask != 0 {
                self.vm.release_word(self.base, mask, content);
            }
        }
    }
}
