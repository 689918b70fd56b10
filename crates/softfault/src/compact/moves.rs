//! The start of all moves: which frames look movable, and their targets.
//!
//! Locks on entry: none.

use super::MigrateRefusal;
use crate::addr::{BlockId, Order, Pfn, Vpn};
use crate::frame::FrameKind;
use crate::machine::Machine;
use crate::source::slot::PageFrame;
use crate::space::Vm;

/// Frames that are moved together, with one grace period for all of them. With more, programs that
/// fault on the first would wait too long for the last.
pub(super) const MOVES_MAX: usize = 16;
/// Most entries of one frame that moves.
pub(super) const MAPS_MAX: u64 = 16;

/// Pages of the folios that are moved together; the last one may exceed it.
const PAGES_MAX: u64 = 64;

/// A move from one frame to another, or from one aligned run of frames to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Move {
    /// The page's frame, or the head of a folio of an object.
    pub(super) from: Pfn,
    /// As many frames, which the caller owns alone.
    pub(super) to: Pfn,
    /// More than one frame for a page of an object, or of a pool.
    pub(super) order: Order,
}

impl Move {
    pub(super) const NOTHING: Move = Move { from: Pfn(0), to: Pfn(0), order: Order::BASE };

    /// The page before the move.
    pub(super) fn page(self) -> PageFrame {
        PageFrame { pfn: self.from, order: self.order }
    }

    /// The frames that become free if it succeeds.
    pub(super) fn old_frames(self) -> impl Iterator<Item = Pfn> {
        (self.from.0..).take(self.order.nr_pages() as usize).map(Pfn)
    }
}

/// Pages that will move together. Nothing has been done to them yet.
pub(super) struct Moves {
    moves: [Move; MOVES_MAX],
    nr: usize,
    nr_pages: u64,
}

impl Moves {
    pub(super) fn new() -> Moves {
        Moves { moves: [Move::NOTHING; MOVES_MAX], nr: 0, nr_pages: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.nr == MOVES_MAX || self.nr_pages >= PAGES_MAX
    }

    /// Adds a move. The list must not be full.
    pub(super) fn add(&mut self, this: Move) {
        self.moves[self.nr] = this;
        self.nr += 1;
        self.nr_pages += this.order.nr_pages();
    }

    /// Removes and returns all moves.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Move> + use<> {
        let taken = core::mem::replace(self, Moves::new());
        taken.moves.into_iter().take(taken.nr)
    }
}

/// A page that looks movable. The check is advisory; the move itself decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Movable {
    /// A private page, and the number of entries that map it.
    Private(u64),
    /// A page of an object, which moves with its folio of 2^order frames from `head` on: see
    /// [`ObjectMoves`].
    OfObject { head: Pfn, order: Order },
}

/// The `is_told` of callers that only take entries of spaces without subscribers.
pub(super) fn nobody_is_told(_space: Pfn, _vpn: Vpn) -> bool {
    false
}

impl<M: Machine> Vm<M> {
    /// Whether a frame looks as if it could be moved.
    pub(super) fn check_movable(&self, pfn: Pfn) -> Result<Movable, MigrateRefusal> {
        let state = self.state_of(pfn).ok_or(MigrateRefusal::Reserved)?;
        if self.frames.folio(pfn).state().kind() != FrameKind::Free && self.is_part(pfn) {
            return Err(MigrateRefusal::HugePage);
        }
        if self.frames.blocks.at(BlockId::of(pfn)).is_in_pool() {
            return Err(MigrateRefusal::Hugetlb);
        }
        match state.kind() {
            FrameKind::Free if self.frames.is_tail(pfn) => self.check_tail_movable(pfn),
            FrameKind::Free => Err(MigrateRefusal::NotInUse),
            // It may be free memory again soon.
            FrameKind::Reserved if self.is_isolated(pfn) => Err(MigrateRefusal::NotInUse),
            FrameKind::Reserved | FrameKind::Zero => Err(MigrateRefusal::Reserved),
            FrameKind::Shared if self.frames.desc(pfn).is_foreign() => Err(MigrateRefusal::Reserved),
            FrameKind::Table => Err(MigrateRefusal::Table),
            FrameKind::Meta | FrameKind::Swap => Err(MigrateRefusal::Meta),
            FrameKind::Anon | FrameKind::Shared if state.pins() > 0 => Err(MigrateRefusal::Pinned),
            FrameKind::Shared if state.is_being_written() => Err(MigrateRefusal::UnderWrite),
            FrameKind::Shared => Ok(Movable::OfObject { head: pfn, order: state.order() }),
            FrameKind::Anon if state.nr_maps() == 0 => Err(MigrateRefusal::Raced),
            FrameKind::Anon if state.nr_maps() > MAPS_MAX => Err(MigrateRefusal::TooManyMaps),
            FrameKind::Anon => Ok(Movable::Private(state.nr_maps())),
        }
    }

    /// As [`check_movable`](Self::check_movable), for a tail: its head decides. The descriptors may be
    /// out of date; the move checks the words of the object.
    fn check_tail_movable(&self, pfn: Pfn) -> Result<Movable, MigrateRefusal> {
        let head = self.frames.head(pfn);
        if self.frames.is_tail(head) {
            return Err(MigrateRefusal::Raced);
        }
        match self.check_movable(head)? {
            Movable::OfObject { head, order } if u64::from(pfn.0 - head.0) < order.nr_pages() => {
                Ok(Movable::OfObject { head, order })
            }
            _ => Err(MigrateRefusal::Raced),
        }
    }
}
