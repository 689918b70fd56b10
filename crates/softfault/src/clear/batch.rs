//! Zeroing the single frames of one refill.

use crate::addr::Pfn;
use crate::machine::Machine;
use crate::mem::stream;
use crate::mem::ways::{self, Ways};
use crate::policy::zero::BatchPlan;

/// Zeroes frame `base + i` for each bit i of `mask`, as `plan` says; a way that is not
/// among `ways` is replaced by plain stores, and near frames that are not there are
/// none. The frames are the caller's alone (I6), and zero for everybody who learns
/// of them by a release that follows.
pub(crate) fn zero_batch<M: Machine>(machine: &M, ways: Ways, plan: BatchPlan, base: u64, mask: u64) {
    let near = lowest(mask, plan.nr_near);
    for (mask, way) in [(mask & !near, plan.far), (near, plan.near)] {
        for_each_run(mask, |first, nr| ways::zero_frames(machine, ways, way, Pfn((base + first) as u32), nr));
    }
    if plan.passes_caches() {
        stream::done();
    }
}

/// The lowest `nr` set bits, or all of them if there are fewer.
fn lowest(mask: u64, nr: u64) -> u64 {
    let mut rest = mask;
    for _ in 0..nr.min(64) {
        rest &= rest.wrapping_sub(1);
    }
    mask & !rest
}

/// Calls `f(first, length)` for each run of set bits.
fn for_each_run(mut mask: u64, mut f: impl FnMut(u64, u64)) {
    while mask != 0 {
        let first = mask.trailing_zeros();
        let length = (mask >> first).trailing_ones();
        f(u64::from(first), u64::from(length));
        if first + length == 64 {
            return;
        }
        mask &= !0 << (first + length);
    }
}
