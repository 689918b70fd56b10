//! Chooses the instructions that zero frames.
//!
//! A CPU has several ways, and the best one depends on the CPU. A way that passes
//! the caches alone costs less, but more for a program that then writes whole
//! pages. This file only computes; the instructions are in `mem/ways.rs`, the
//! mechanism is in [`crate::clear`].

/// A way of filling frames with zeroes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Zeroing {
    /// Ordinary stores, as `memset` makes them: a string instruction (`rep stosb`)
    /// where the compiler's library takes it. Every CPU has them.
    Stores,
    /// Ordinary stores of 32 bytes from a vector register (AVX2).
    Vector,
    /// Non-temporal stores: past the caches, whole lines.
    Streaming,
    /// `clzero`: one instruction for a line, past the caches, without a register.
    Clzero,
}

impl Zeroing {
    /// All of them.
    pub const ALL: [Zeroing; 4] = [Zeroing::Stores, Zeroing::Vector, Zeroing::Streaming, Zeroing::Clzero];

    /// The word in output and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Zeroing::Stores => "stores",
            Zeroing::Vector => "vector",
            Zeroing::Streaming => "streaming",
            Zeroing::Clzero => "clzero",
        }
    }

    /// The way of that name.
    pub fn named(name: &str) -> Option<Zeroing> {
        Zeroing::ALL.into_iter().find(|way| way.name() == name)
    }

    /// Whether it leaves nothing in the caches. Only a fence of their own orders such
    /// stores.
    pub const fn passes_caches(self) -> bool {
        matches!(self, Zeroing::Streaming | Zeroing::Clzero)
    }
}

/// How the frames of one batch are zeroed, which a CPU then hands out lowest first.
/// The far ones are zeroed before the near ones, so that these are still in a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BatchPlan {
    /// How many of the lowest are near: the program is about to touch them.
    pub nr_near: u64,
    /// The way for these.
    pub near: Zeroing,
    /// The way for the rest.
    pub far: Zeroing,
}

impl BatchPlan {
    /// All frames in that way.
    pub const fn all(way: Zeroing) -> BatchPlan {
        BatchPlan { nr_near: 0, near: way, far: way }
    }

    /// Whether some of it passes the caches.
    pub const fn passes_caches(self) -> bool {
        self.near.passes_caches() || self.far.passes_caches()
    }
}

/// Nanoseconds per frame for zeroing a batch and what a program does then, which is
/// what counts: a frame that passed the caches has to come back for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ZeroCost {
    /// It writes one line of each frame.
    pub line: u64,
    /// It writes all of each frame.
    pub all: u64,
}

impl ZeroCost {
    /// These nanoseconds.
    pub const fn new(line: u64, all: u64) -> ZeroCost {
        ZeroCost { line, all }
    }
}

/// The plans for batches of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BatchPlans {
    /// For programs that write all of each page.
    pub dense: BatchPlan,
    /// For programs that write little of each.
    pub sparse: BatchPlan,
}

/// Frames in the batches that are measured: a single one, few, and a whole word of a
/// block's bitmap, which is what refills zero as long as memory is not fragmented.
pub(crate) const BATCHES: [u64; NR_CLASSES] = [1, 8, 64];
pub(crate) const NR_CLASSES: usize = 3;

/// The class of a batch: the place in [`BATCHES`] of the measured one that is like it.
pub(crate) const fn class_of(nr_frames: u64) -> usize {
    match nr_frames {
        0 | 1 => 0,
        2..=15 => 1,
        _ => 2,
    }
}

/// A plan has to save one part in so many to be preferred to one before it:
/// differences below are noise, and noise should not choose.
const LEAST_SAVED: u64 = 20;
/// Near frames that are tried before a far part, beside the one that the fault is on.
const NR_NEAR: u64 = 8;

impl BatchPlans {
    /// Plain stores, whatever the program does: where nobody has measured.
    pub const STORES: BatchPlans = BatchPlans::same(BatchPlan::all(Zeroing::Stores));

    pub(crate) const fn same(plan: BatchPlan) -> BatchPlans {
        BatchPlans { dense: plan, sparse: plan }
    }

    /// Whether it depends on the program how frames are best zeroed.
    pub fn differ(self) -> bool {
        self.dense != self.sparse
    }

    /// The plan that serves a program which writes all of each page best.
    pub(crate) fn dense_of(measured: &[(BatchPlan, ZeroCost)]) -> BatchPlan {
        best(measured, |cost| cost.all).map_or(BatchPlan::all(Zeroing::Stores), |(plan, _)| plan)
    }

    /// The plans that serve best, of what was measured for batches of one size. Those
    /// that come first win where the rest saves too little. One plan serves all
    /// programs where it costs those that write whole pages next to nothing.
    pub fn best_of(measured: &[(BatchPlan, ZeroCost)]) -> BatchPlans {
        let Some((dense, dense_cost)) = best(measured, |cost| cost.all) else { return BatchPlans::STORES };
        let mut sparse = (dense, dense_cost);
        for one in measured {
            if saves(one.1.line, sparse.1.line) {
                sparse = *one;
            }
        }
        if sparse.1.all <= dense_cost.all + dense_cost.all / LEAST_SAVED {
            return BatchPlans::same(sparse.0);
        }
        BatchPlans { dense, sparse: sparse.0 }
    }

    /// The ways for the near and the far part of a large page, of which these are the
    /// plans for parts.
    pub(crate) const fn of_large(self) -> (Zeroing, Zeroing) {
        let far = if self.sparse.far.passes_caches() { self.sparse.far } else { Zeroing::Streaming };
        (self.dense.near, far)
    }

    /// As one word; see [`from_word`](Self::from_word).
    pub(crate) fn to_word(self) -> u64 {
        self.dense.to_bits() | self.sparse.to_bits() << PLAN_BITS | 1 << (2 * PLAN_BITS)
    }

    /// Decodes a word of [`to_word`](Self::to_word); 0 is plain stores.
    pub(crate) fn from_word(word: u64) -> BatchPlans {
        if word >> (2 * PLAN_BITS) & 1 == 0 {
            return BatchPlans::STORES;
        }
        BatchPlans { dense: BatchPlan::from_bits(word), sparse: BatchPlan::from_bits(word >> PLAN_BITS) }
    }
}

fn saves(one: u64, other: u64) -> bool {
    one + other / LEAST_SAVED < other
}

fn best(measured: &[(BatchPlan, ZeroCost)], by: impl Fn(ZeroCost) -> u64) -> Option<(BatchPlan, ZeroCost)> {
    let better = |best: (BatchPlan, ZeroCost), one: &(BatchPlan, ZeroCost)| {
        if saves(by(one.1), by(best.1)) { *one } else { best }
    };
    let (first, rest) = measured.split_first()?;
    Some(rest.iter().fold(*first, better))
}

/// Bits of a plan in a word.
const PLAN_BITS: u32 = 11;

impl BatchPlan {
    /// Plans whose far part passes the caches, for a batch of `nr_frames`: the warmer
    /// ones first. `near` is the way for their first frames.
    pub(crate) fn mixed(near: Zeroing, far: Zeroing, nr_frames: u64) -> impl Iterator<Item = BatchPlan> {
        [NR_NEAR, 1].into_iter().filter(move |nr| *nr < nr_frames).map(move |nr_near| BatchPlan { nr_near, near, far })
    }

    fn to_bits(self) -> u64 {
        self.nr_near.min(64) | (self.near as u64) << 7 | (self.far as u64) << 9
    }

    fn from_bits(bits: u64) -> BatchPlan {
        let way = |at: u32| Zeroing::ALL[(bits >> at & 3) as usize];
        BatchPlan { nr_near: bits & 0x7f, near: way(7), far: way(9) }
    }
}

#[cfg(test)]
mod tests;
