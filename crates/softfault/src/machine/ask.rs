//! Calls of the machine's methods that name memory, which are `unsafe`, and of those that ask for, or tell of, its bytes: all of
//! them are here, and are called by their path, `ask::fill`. So a lint of the repository finds each late call.
//!
//! Each function passes the call on. The core's own types, and its invariants about who owns a frame, are the proof; a caller
//! outside the core has neither, and needs `unsafe`:
//!
//! ```compile_fail,E0133
//! use softfault::{Machine, Pfn, SwapSlot, Vm};
//! fn store_anywhere<M: Machine>(vm: &Vm<M>) {
//!     let _ = vm.machine().swap_in(SwapSlot(0), Pfn(1));
//! }
//! ```
//!
//! Locks on entry: as the method of [`Machine`] says.
#![allow(unsafe_code)]

use super::{
    FileFill, FileId, FileWrite, Filling, FrameCopy, FrameRange, HoleRefused, Machine, ObjectHole, SpaceTag,
    StoreRefused, SwapError, Writing,
};
use crate::addr::{Pfn, SwapSlot};
use crate::notify::notice::Notice;
use core::ops::Range;

/// [`Machine::add_frames`]. Under the lock of resizes; no section of the range is there.
pub(crate) fn add_frames<M: Machine>(machine: &M, range: &FrameRange) -> Option<bool> {
    // SAFETY: I50, I63: the caller has checked the range, and that none of its sections is there.
    unsafe { machine.add_frames(range) }
}

/// [`Machine::frames_removed`]. Under the lock of resizes, by the caller that has claimed all frames of the range.
pub(crate) fn frames_removed<M: Machine>(machine: &M, range: &FrameRange) {
    // SAFETY: I50, I63: each frame was free and is claimed, so that nobody uses it.
    unsafe { machine.frames_removed(range) }
}

/// [`Machine::foreign_frames`]. As [`add_frames`].
pub(crate) fn foreign_frames<M: Machine>(machine: &M, range: &FrameRange) -> bool {
    // SAFETY: I50, I63: as in `add_frames`.
    unsafe { machine.foreign_frames(range) }
}

/// [`Machine::copy_frame`]. `to` is the caller's alone, `from` is kept in use.
#[inline(always)]
pub(crate) fn copy_frame<M: Machine>(machine: &M, to: Pfn, from: Pfn) -> FrameCopy {
    // SAFETY: I6, I63: the caller's promise.
    unsafe { machine.copy_frame(to, from) }
}

/// [`Machine::swap_out`]. The caller has claimed the slot, and nobody writes the frame of a slot.
pub(crate) fn swap_out<M: Machine>(machine: &M, slot: SwapSlot, from: Pfn) -> Result<(), SwapError> {
    // SAFETY: I48, I63: the caller's promise.
    unsafe { machine.swap_out(slot, from) }
}

/// [`Machine::swap_in`]. The frame is the caller's alone.
pub(crate) fn swap_in<M: Machine>(machine: &M, slot: SwapSlot, to: Pfn) -> Result<(), SwapError> {
    // SAFETY: I48, I52, I63: the caller's promise.
    unsafe { machine.swap_in(slot, to) }
}

/// [`Machine::fill`], by the `Vm` that has made the fill.
pub(crate) fn fill<M: Machine>(machine: &M, fill: FileFill) -> Filling {
    // SAFETY: I52, I63: the folio is in transit, and this read owns it.
    unsafe { machine.fill(fill) }
}

/// [`Machine::write_back`], by the `Vm` that has made the write.
pub(crate) fn write_back<M: Machine>(machine: &M, write: FileWrite) -> Writing {
    // SAFETY: I56, I63: the folio has WRITEBACK, which holds its frames.
    unsafe { machine.write_back(write) }
}

/// [`Machine::may_store`].
pub(crate) fn may_store<M: Machine>(machine: &M, file: FileId, pages: Range<u64>) -> Result<(), StoreRefused> {
    machine.may_store(file, pages)
}

/// [`Machine::punch_hole`].
pub(crate) fn punch_hole<M: Machine>(machine: &M, hole: ObjectHole<'_>) -> Result<(), HoleRefused> {
    machine.punch_hole(hole)
}

/// [`Machine::notify`].
pub(crate) fn notify<M: Machine>(machine: &M, space: SpaceTag, notice: &Notice) -> bool {
    machine.notify(space, notice)
}
