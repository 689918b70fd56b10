//! Target frames for pages that leave a block: from partly used blocks, the fuller ones first.
//! Wholly free blocks are not used: using one up to free another would gain nothing. If there is no
//! target, compaction does not reclaim: reclaim splits huge pages, which compaction is there to
//! make.
//!
//! Locks on entry: none, no section.

use super::moves::Move;
use crate::addr::{BLOCK_FRAMES, BlockId, BlockRange, Order, Pfn};
use crate::frame::{BLOCK_WORDS, Class, Content, Kind, word_base};
use crate::machine::{Machine, Tick};
use crate::space::Vm;

/// Passes over the blocks: of the class of the one to be emptied those that are fuller, then all;
/// the same of the other class whose pages move; those with pins and those with tables, which
/// want their free frames for themselves; and those that CPUs take their small frames from. The
/// trees have no name for fuller ones, and for the last; what else they name is passed over, as
/// far as [`MOST_LOOKS`] goes.
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

/// Blocks that are looked at in a pass that may find nothing in them. A guess.
const MOST_LOOKS: u64 = 256;

/// Which blocks a pass accepts.
struct Pass {
    kind: Kind,
    /// Only those with fewer free frames than the source.
    fuller: bool,
    most_looks: u64,
}

/// Sizes of what is looked for: a block is no target.
const NR_ORDERS: usize = Order::PMD.0 as usize;
/// Words or blocks that are looked at between two questions whether to go on.
const STEPS_PER_QUESTION: u32 = 256;

/// Where a search for frames of one size goes on.
#[derive(Clone, Copy, Default)]
struct Search {
    /// Passes that are over, and where this one goes on: part of memory (behind the source,
    /// before it) and block.
    nr_passes: usize,
    after: Option<(usize, BlockId)>,
    /// Blocks that were looked at in this pass.
    nr_looks: u64,
    /// The block that the last frames came from.
    now: Option<BlockId>,
}

/// Frames claimed: single ones, at most a word of a bitmap at a time, of which what is left goes back,
/// and runs for folios of objects.
pub(super) struct Targets<'a, M: Machine> {
    vm: &'a Vm<M>,
    source: BlockId,
    /// Free frames of the source when it was chosen.
    source_free: u64,
    /// Frames that will be asked for at most.
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

    /// 2^order adjacent frames that the caller owns alone; `None` if there are none, or if `go_on`,
    /// which is asked now and then, says so.
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

    /// Where something was to move that stays.
    pub(super) fn put_back(&mut self, Move { to: pfn, order, .. }: Move) {
        self.nr_wanted += order.nr_pages();
        if order > Order::BASE {
            self.vm.release_run(pfn, order.nr_pages(), Content::Unknown);
        } else if self.base == u64::from(pfn.0) & !63 {
            // Nothing is known of its content any more.
            self.mask |= 1 << (pfn.0 % 64);
            self.zero &= !(1 << (pfn.0 % 64));
        } else {
            self.vm.release_one(pfn, Content::Unknown);
        }
    }

    /// Some frames of a word.
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

    /// From the blocks after the source, as the summaries name them, so that full ones are
    /// passed over. A name that is out of date is taken back, so that nobody is sent there again.
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
            if nr_seen.is_multiple_of(STEPS_PER_QUESTION) && !go_on() {
                break None;
            }
            let block = blocks.at(b);
            let limit = if pass.fuller { self.source_free } else { BLOCK_FRAMES };
            if !block.offers(pass.kind) || block.nr_free() >= limit {
                continue;
            }
            if let Some(found) = claim(b) {
                // There may be more of them.
                search.now = Some(b);
                break Some(found);
            }
        };
        self.searches[usize::from(order.0)] = search;
        found
    }

    /// The next block of the kind after the last one, around to the source.
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
