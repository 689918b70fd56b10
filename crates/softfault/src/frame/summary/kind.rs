//! What blocks are looked up for.

use crate::addr::Order;

/// What blocks are looked up for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A free frame.
    Any,
    /// A free frame in a block in which some stay where they are, and from which nobody
    /// takes small frames.
    Fixed,
    /// A free frame beside one in use, where none stays, and nobody takes small frames.
    Spare,
    /// Free frames for some refills where none stays, and nobody takes small frames.
    Room,
    /// All of it is free, though a CPU may be about to take small frames from it.
    Empty,
    /// All of it is free, and nobody takes small frames from it.
    Whole,
    /// The same, and all of it is zero.
    Ready,
    /// Free frames beside each other, 2^2 of them and aligned, where none stays and nobody
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
    /// A free frame in a block with long-term pins, from which nobody takes small frames.
    Pinned,
    /// The same with pages of objects.
    Shared,
}

impl Kind {
    const RUNS: [Kind; 7] = [Kind::Run2, Kind::Run3, Kind::Run4, Kind::Run5, Kind::Run6, Kind::Run7, Kind::Run8];
    pub(crate) const ALL: [Kind; 16] = [
        Kind::Any,
        Kind::Fixed,
        Kind::Spare,
        Kind::Room,
        Kind::Empty,
        Kind::Whole,
        Kind::Ready,
        Kind::Run2,
        Kind::Run3,
        Kind::Run4,
        Kind::Run5,
        Kind::Run6,
        Kind::Run7,
        Kind::Run8,
        Kind::Pinned,
        Kind::Shared,
    ];

    /// Of kinds that memory which nobody has used has not, a bit that is set says "something".
    pub(super) const fn is_rare(self) -> bool {
        matches!(self, Kind::Fixed | Kind::Spare | Kind::Pinned | Kind::Shared)
    }

    /// That of runs of 2^order frames.
    pub(crate) fn run(order: Order) -> Option<Kind> {
        Kind::RUNS.get(usize::from(order.0).checked_sub(2)?).copied()
    }

    /// The order of the runs that it stands for.
    #[cfg(test)]
    pub(crate) fn run_order(self) -> Option<u32> {
        (self as u32).checked_sub(Kind::Run2 as u32).map(|i| i + 2).filter(|order| *order <= 8)
    }

    /// Those of runs of 2^order frames and fewer, a bit each.
    pub(crate) const fn runs_up_to(order: u32) -> u32 {
        let below = (1u32 << order << 1) - 1;
        (below >> 2) << Kind::Run2 as u32
    }

    /// Those that some bits stand for.
    pub(crate) fn of_bits(mut bits: u32) -> impl Iterator<Item = Kind> {
        core::iter::from_fn(move || {
            let kind = Kind::ALL.get(bits.trailing_zeros() as usize)?;
            bits &= bits - 1;
            Some(*kind)
        })
    }

    /// Its bit among those of all kinds.
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u32
    }
}
