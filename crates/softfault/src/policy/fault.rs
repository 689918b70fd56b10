//! What to put into an empty entry of private anonymous memory.

use crate::addr::Access;
use crate::space::vma::VmaFlags;

/// What a policy is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultQuestion {
    /// The access.
    pub access: Access,
    /// The VMA's rights and flags.
    pub flags: VmaFlags,
}

/// What it may answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultPlan {
    /// Map the zero frame, not writable. Refused for a write.
    ZeroFrame,
    /// Map a new frame.
    NewFrame,
}

/// As Linux does: reads share the zero frame, writes get a frame.
#[inline(always)]
pub fn linux(question: &FaultQuestion) -> FaultPlan {
    match question.access {
        Access::Write => FaultPlan::NewFrame,
        Access::Read | Access::Exec => FaultPlan::ZeroFrame,
    }
}

/// A frame at the first touch, whatever it is: no second fault for memory that
/// is read before it is written, a frame for each page that is only read.
pub fn always_new(_: &FaultQuestion) -> FaultPlan {
    FaultPlan::NewFrame
}
