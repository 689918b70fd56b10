//! Zeroes the single frames of one refill.
//!
//! If the best way depends on the program, a refill measures the time since the last one and
//! learns from it (`policy/density.rs`). The words for that are per CPU and only hints: a caller
//! that was moved to another CPU spoils one sample.

use crate::addr::Pfn;
use crate::base::Base;
use crate::cpu::{BatchData, CpuData};
use crate::machine::Machine;
use crate::mem::stream;
use crate::mem::ways::{self, Ways};
use crate::policy::density::{Learned, WriteDensity};
use crate::policy::zero::{BatchPlan, BatchPlans, class_of};

/// Zeroes frame `base + i` for each bit i of `mask`, as `plan` says; a way that is not among `ways`
/// is replaced by plain stores, and near frames that are not there are none. The frames are owned
/// by the caller alone (I6), and zero for everybody who learns of them by a release that follows.
pub(crate) fn zero_batch<M: Machine>(machine: &M, ways: Ways, plan: BatchPlan, base: u64, mask: u64) {
    let near = lowest(mask, plan.nr_near);
    for (mask, way) in [(mask & !near, plan.far), (near, plan.near)] {
        for_each_run(mask, |first, nr| ways::zero_frames(machine, ways, way, Pfn((base + first) as u32), nr));
    }
    if plan.passes_caches() {
        stream::done();
    }
}

/// Parts of a nanosecond that times are taken in.
const PARTS: u64 = 8;
/// Frames below which the time of a batch says more about something else.
const LEAST_FRAMES: u32 = 16;

impl<M: Machine> Base<M> {
    /// Zeroes frame `base + i` for each bit i of `dirty`: of `nr_frames` that `cpu`, the
    /// calling one, will hand out to programs.
    pub(crate) fn zero_for_programs(&self, cpu: &CpuData, nr_frames: u32, base: u64, dirty: u64) {
        let nr_dirty = dirty.count_ones();
        let plans = self.batch_plans(nr_dirty);
        if dirty == 0 || !plans.differ() {
            cpu.batches.last.set(0);
            return zero_batch(&self.machine, self.ways, plans.dense, base, dirty);
        }
        let density = self.learn(cpu, if nr_dirty == nr_frames { nr_frames } else { 0 });
        let plan = if density == WriteDensity::Sparse { plans.sparse } else { plans.dense };
        zero_batch(&self.machine, self.ways, plan, base, dirty);
    }

    /// The same of frames for tables, which the core itself fills.
    pub(crate) fn zero_for_tables(&self, base: u64, dirty: u64) {
        let plan = self.batch_plans(dirty.count_ones()).dense;
        zero_batch(&self.machine, self.ways, plan, base, dirty);
    }

    fn batch_plans(&self, nr_dirty: u32) -> BatchPlans {
        match self.tunables.zeroing {
            Some(way) => BatchPlans::same(BatchPlan::all(way)),
            None => BatchPlans::from_word(self.batch_plans[class_of(u64::from(nr_dirty))].get()),
        }
    }

    /// Records the time of the last batch, and returns the write density for the next one, of
    /// `nr_frames`. A batch that is too small to be timed is never a trial.
    fn learn(&self, cpu: &CpuData, nr_frames: u32) -> WriteDensity {
        let BatchData { learned: word, begun, last, .. } = &cpu.batches;
        let now = self.machine.now_ns();
        let mut learned = Learned::from_word(word.get());
        if let Some(took) = (PARTS * now.saturating_sub(begun.get())).checked_div(last.get() / 2) {
            let density = if last.get() & 1 == 0 { WriteDensity::Dense } else { WriteDensity::Sparse };
            learned = learned.after(density, took);
            word.set(learned.to_word());
        }
        let is_timed = nr_frames >= LEAST_FRAMES;
        let density = if is_timed { learned.next() } else { learned.density() };
        begun.set(now);
        last.set(if is_timed { u64::from(nr_frames) << 1 | density as u64 } else { 0 });
        density
    }
}

/// The lowest `nr` set bits, or all of them if there are fewer.
pub(super) fn lowest(mask: u64, nr: u64) -> u64 {
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

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
