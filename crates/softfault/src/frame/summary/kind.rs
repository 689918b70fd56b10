//! The kinds of free frames that blocks are searched for.

use crate::addr::Order;

/// A property of blocks by which they are searched for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A free frame.
    Any,
    /// A free frame in a block in which some stay where they are, and from which no CPU
    /// takes small frames.
    Fixed,
    /// A free frame beside one in use, where none stays, and no CPU takes small frames.
    Spare,
    /// Free frames for some refills where none stays, and no CPU takes small frames.
    Room,
    /// All of it is free, though a CPU may be about to take small frames from it.
    Empty,
    /// All of it is free, and no CPU takes small frames from it.
    Whole,
    /// The same, and all of it is zero.
    Ready,
    /// Two free frames or more in a block in which some stay, whose runs no CPU has looked for: no kind
    /// of runs names it. And no CPU takes small frames from it. In the line of `Fixed`: both are
    /// told of at once.
    Unseen,
    /// Free frames beside each other, 2^2 of them and aligned, where none stays and no CPU
    /// takes small frames.
    Run2,
    /// 2^3.
    Run3,
    /// 2^4.
    Run4,
    /// 2^5.
    Run5,
    /// 2^6.
    Run6,
    /// 2^7.
    Run7,
    /// 2^8.
    Run8,
    /// A free frame in a block with pages of objects, from which no CPU takes small frames.
    Shared,
    /// Runs of 2^1 frames in a block in which some stay, if a CPU has looked for them, and
    /// from which no CPU takes small frames.
    Stay1,
    /// 2^2.
    Stay2,
    /// 2^3.
    Stay3,
    /// 2^4.
    Stay4,
    /// 2^5.
    Stay5,
    /// 2^6.
    Stay6,
    /// 2^7.
    Stay7,
    /// 2^8. Not 23: that word of a row counts frames.
    Stay8 = 24,
    /// A free frame in a block with long-term pins, from which no CPU takes small frames.
    Pinned,
    /// 2^1 free frames beside each other, as `Run2`.
    Run1,
    /// A free page of the pool of 2 MiB pages (`frame/pool.rs`).
    Pool2M,
    /// The first block of a free page of the pool of 1 GiB pages.
    Pool1G,
}

impl Kind {
    #[rustfmt::skip]
    const RUNS: [Kind; 8] =
        [Kind::Run1, Kind::Run2, Kind::Run3, Kind::Run4, Kind::Run5, Kind::Run6, Kind::Run7, Kind::Run8];
    #[rustfmt::skip]
    const STAYS: [Kind; 8] =
        [Kind::Stay1, Kind::Stay2, Kind::Stay3, Kind::Stay4, Kind::Stay5, Kind::Stay6, Kind::Stay7, Kind::Stay8];
    pub(crate) const ALL: [Kind; 28] = [
        Kind::Any,
        Kind::Fixed,
        Kind::Spare,
        Kind::Room,
        Kind::Empty,
        Kind::Whole,
        Kind::Ready,
        Kind::Unseen,
        Kind::Run2,
        Kind::Run3,
        Kind::Run4,
        Kind::Run5,
        Kind::Run6,
        Kind::Run7,
        Kind::Run8,
        Kind::Shared,
        Kind::Stay1,
        Kind::Stay2,
        Kind::Stay3,
        Kind::Stay4,
        Kind::Stay5,
        Kind::Stay6,
        Kind::Stay7,
        Kind::Stay8,
        Kind::Pinned,
        Kind::Run1,
        Kind::Pool2M,
        Kind::Pool1G,
    ];
    /// `ALL` has no kind for this bit.
    const NO_KIND: usize = 23;

    /// Whether a set bit says "something": so for kinds that memory does not have before a CPU has used it.
    pub(super) const fn is_rare(self) -> bool {
        let class = matches!(self, Kind::Fixed | Kind::Spare | Kind::Pinned | Kind::Shared | Kind::Unseen);
        let pool = matches!(self, Kind::Pool2M | Kind::Pool1G);
        class || pool || self as u8 >= Kind::Stay1 as u8 && self as u8 <= Kind::Stay8 as u8
    }

    /// Returns the kind of runs of 2^order frames in blocks where none stays.
    pub(crate) fn run(order: Order) -> Option<Kind> {
        Kind::RUNS.get(usize::from(order.0).checked_sub(1)?).copied()
    }

    /// The same where some stay.
    pub(crate) fn stay(order: Order) -> Option<Kind> {
        Kind::STAYS.get(usize::from(order.0).checked_sub(1)?).copied()
    }

    /// The order of the runs that it stands for, and whether some stay there.
    #[cfg(test)]
    pub(crate) fn run_order(self) -> Option<(u32, bool)> {
        let order = |kinds: [Kind; 8]| kinds.iter().position(|kind| *kind == self).map(|i| i as u32 + 1);
        order(Kind::RUNS).map(|order| (order, false)).or(order(Kind::STAYS).map(|order| (order, true)))
    }

    /// Those of runs of 2^order frames and fewer where none stays, a bit each.
    pub(crate) const fn runs_up_to(order: u32) -> u32 {
        let up_to = (1u32 << order << 1) - 1;
        (up_to >> 2) << Kind::Run2 as u32 | (up_to >> 1 & 1) << Kind::Run1 as u32
    }

    /// The same where some stay.
    pub(crate) const fn stays_up_to(order: u32) -> u32 {
        let up_to = ((1u32 << order << 1) - 1) >> 1;
        (up_to & 0x7f) << Kind::Stay1 as u32 | (up_to >> 7 & 1) << Kind::Stay8 as u32
    }

    /// Those that some bits stand for.
    pub(crate) fn of_bits(mut bits: u32) -> impl Iterator<Item = Kind> {
        core::iter::from_fn(move || {
            let bit = bits.trailing_zeros() as usize;
            let kind = Kind::ALL.get(bit - usize::from(bit > Kind::NO_KIND))?;
            bits &= bits - 1;
            Some(*kind)
        })
    }

    /// Its bit among those of all kinds.
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u32
    }
}
