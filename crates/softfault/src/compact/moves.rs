//! Which frames look as if they could be moved, and where to: what all moves begin with.
//!
//! Locks on entry: none.

use super::MigrateRefusal;
use crate::addr::{Order, Pfn, Vpn};
use crate::frame::FrameKind;
use crate::machine::Machine;
use crate::space::Vm;

/// Frames that are moved together: one grace period for all of them. More would
/// keep the programs that want the first of them waiting for the last.
pub(super) const MOVES_MAX: usize = 16;
/// Entries of one of them.
pub(super) const MAPS_MAX: u64 = 16;

/// From one frame to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Move {
    pub(super) from: Pfn,
    /// The caller's alone.
    pub(super) to: Pfn,
}

/// What looks as if it could be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Movable {
    /// A private page that so many entries map.
    Private(u64),
    /// A page of an object: see [`ObjectMoves`].
    OfObject,
}

/// For who takes entries of spaces without subscribers only.
pub(super) fn nobody_is_told(_space: Pfn, _vpn: Vpn) -> bool {
    false
}

impl<M: Machine> Vm<M> {
    /// Whether a frame looks as if it could be moved.
    pub(super) fn check_movable(&self, pfn: Pfn) -> Result<Movable, MigrateRefusal> {
        let state = self.frames.find_desc(pfn).ok_or(MigrateRefusal::Reserved)?.state();
        if self.frames.folio(pfn).state().kind() != FrameKind::Free && self.is_part(pfn) {
            return Err(MigrateRefusal::HugePage);
        }
        match state.kind() {
            FrameKind::Free if self.frames.is_tail(pfn) => Err(MigrateRefusal::HugePage),
            FrameKind::Free => Err(MigrateRefusal::NotInUse),
            FrameKind::Reserved | FrameKind::Zero => Err(MigrateRefusal::Reserved),
            FrameKind::Table => Err(MigrateRefusal::Table),
            FrameKind::Meta | FrameKind::Swap => Err(MigrateRefusal::Meta),
            FrameKind::Anon | FrameKind::Shared if state.pins() > 0 => Err(MigrateRefusal::Pinned),
            FrameKind::Shared if state.order() > Order::BASE => Err(MigrateRefusal::HugePage),
            FrameKind::Shared => Ok(Movable::OfObject),
            FrameKind::Anon if state.nr_maps() == 0 => Err(MigrateRefusal::Raced),
            FrameKind::Anon if state.nr_maps() > MAPS_MAX => Err(MigrateRefusal::TooManyMaps),
            FrameKind::Anon => Ok(Movable::Private(state.nr_maps())),
        }
    }
}
