//! Decides what a fault maps at an empty entry of private anonymous memory.

use crate::addr::{Access, Order};
use crate::policy::huge::Orders;
use crate::space::vma::VmaFlags;

/// The question to a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FaultQuestion {
    /// The access.
    pub access: Access,
    /// The VMA's rights and flags.
    pub flags: VmaFlags,
    /// Sizes above a base page that are allowed, lie in the VMA and are empty.
    pub orders: Orders,
    /// Whether reads may share the huge zero frame (`use_zero_page`).
    pub use_zero_page: bool,
}

impl FaultQuestion {
    /// For a page that can be a base page only.
    #[inline(always)]
    pub const fn base(access: Access, flags: VmaFlags) -> FaultQuestion {
        FaultQuestion { access, flags, orders: Orders::NONE, use_zero_page: false }
    }
}

/// The answer of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultPlan {
    /// Map the zero frame, not writable. Refused for a write.
    ZeroFrame,
    /// Map a new frame.
    NewFrame,
    /// Map the huge zero frame, not writable. Refused for a write, and where 2 MiB
    /// are not among the sizes.
    HugeZero,
    /// Map so many new frames at once. Refused where the size is not among those
    /// that were named.
    NewFolio(Order),
}

/// As Linux does: reads share the zero frame, writes get a frame.
#[inline(always)]
pub fn linux(question: &FaultQuestion) -> FaultPlan {
    let largest = question.orders.highest();
    match (question.access, largest) {
        (Access::Write, Some(order)) => FaultPlan::NewFolio(order),
        (Access::Write, None) => FaultPlan::NewFrame,
        // Where a huge page is to be had: the huge zero frame, or a page at once.
        (_, Some(Order::PMD)) if question.use_zero_page => FaultPlan::HugeZero,
        (_, Some(Order::PMD)) => FaultPlan::NewFolio(Order::PMD),
        (_, _) => FaultPlan::ZeroFrame,
    }
}

/// Maps a frame at the first access, also for a read. This saves the second fault of memory that is read
/// before it is written, and costs a frame for each page that is only read.
pub fn always_new(_: &FaultQuestion) -> FaultPlan {
    FaultPlan::NewFrame
}
