//! Frames for what has to leave a block: from blocks that are partly used, the
//! fuller ones first. A block that is wholly free stays so: using it up to make
//! another would gain nothing. Where none is left nothing is relieved: relief splits
//! huge pages, and compaction is there to make them.
//!
//! Locks on entry: none, no section.

use crate::addr::{BLOCK_FRAMES, BlockId, BlockRange, Pfn};
use crate::frame::{Class, Content, Kind, word_base};
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

const NR_WORDS: usize = 8;
/// Words or blocks that are looked at between two questions whether to go on.
const STEPS_PER_QUESTION: u32 = 256;

/// Frames claimed, at most a word of a bitmap at a time. What is left goes back.
pub(super) struct Targets<'a, M: Machine> {
    vm: &'a Vm<M>,
    source: BlockId,
    /// Free frames of the source when it was chosen.
    source_free: u64,
    /// Frames that will be asked for at most.
    nr_wanted: u64,
    passes: &'static [Pass],
    /// Passes that are over, and where this one goes on: part of memory (behind the source,
    /// before it) and block.
    nr_passes: usize,
    after: Option<(usize, BlockId)>,
    /// Blocks that were looked at in this pass.
    nr_looks: u64,
    /// The block that the last frames came from.
    now: Option<BlockId>,
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
            nr_passes: 0,
            after: None,
            nr_looks: 0,
            now: None,
            base: 0,
            mask: 0,
            zero: 0,
            nr_claimed: 0,
        }
    }

    /// A frame that is the caller's alone; `None` if there is none, or if `go_on`,
    /// which is asked now and then, says so.
    pub(super) fn next(&mut self, go_on: &mut dyn FnMut() -> bool) -> Option<Pfn> {
        if self.mask == 0 && !self.claim_word(go_on) {
            return None;
        }
        let bit = self.mask & self.mask.wrapping_neg();
        self.mask &= !bit;
        self.nr_wanted = self.nr_wanted.saturating_sub(1);
        Some(Pfn(self.base as u32 + bit.trailing_zeros()))
    }

    /// One that was not used.
    pub(super) fn put_back(&mut self, pfn: Pfn) {
        self.nr_wanted += 1;
        if self.base == u64::from(pfn.0) & !63 {
            // Nothing is known of its content any more.
            self.mask |= 1 << (pfn.0 % 64);
            self.zero &= !(1 << (pfn.0 % 64));
        } else {
            self.vm.release_one(pfn, Content::Unknown);
        }
    }

    /// From the blocks after the source, as the summaries name them, so that full ones are
    /// passed over. A name that is out of date is taken back, so that nobody is sent there again.
    fn claim_word(&mut self, go_on: &mut dyn FnMut() -> bool) -> bool {
        let blocks = &self.vm.frames.blocks;
        let mut nr_seen = 0u32;
        while let Some(pass) = self.passes.get(self.nr_passes) {
            let may_look = self.nr_looks < pass.most_looks;
            let next = self.now.take().or_else(|| if may_look { self.next_block(pass.kind) } else { None });
            let Some(b) = next else {
                (self.nr_passes, self.after, self.nr_looks) = (self.nr_passes + 1, None, 0);
                continue;
            };
            nr_seen = nr_seen.wrapping_add(1);
            self.nr_looks += 1;
            self.vm.machine.tick(Tick::Step);
            if nr_seen.is_multiple_of(STEPS_PER_QUESTION) && !go_on() {
                return false;
            }
            let block = blocks.at(b);
            if !block.offers(pass.kind) {
                continue;
            }
            let nr_free = block.nr_free();
            let limit = if pass.fuller { self.source_free } else { BLOCK_FRAMES };
            if nr_free >= limit {
                continue;
            }
            for w in 0..NR_WORDS {
                let (mask, zero) = block.claim_some(w, self.nr_wanted.clamp(1, 64));
                if mask != 0 {
                    self.vm.count_taken(mask.count_ones().into());
                    self.base = word_base(b, w);
                    (self.mask, self.zero) = (mask, zero);
                    self.nr_claimed += u64::from(mask.count_ones());
                    // There may be more of them.
                    self.now = Some(b);
                    return true;
                }
            }
        }
        false
    }

    /// The next block of the kind after the last one, around to the source.
    fn next_block(&mut self, kind: Kind) -> Option<BlockId> {
        let blocks = &self.vm.frames.blocks;
        let all = blocks.names();
        let parts = [BlockRange { start: BlockId(self.source.0 + 1), ..all }, BlockRange { end: self.source, ..all }];
        let (part, after) = self.after.unwrap_or((0, parts[0].start));
        let rest = (part..2).map(|i| (i, if i == part { after } else { parts[i].start }));
        let found = rest.flat_map(|(i, start)| {
            let part = BlockRange { start, ..parts[i] };
            blocks.summary.first_in(kind, &part).map(|b| (i, b))
        });
        let (part, b) = found.into_iter().next()?;
        self.after = Some((part, BlockId(b.0 + 1)));
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
