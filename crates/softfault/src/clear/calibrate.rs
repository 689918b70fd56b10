//! Calibration: measures in some milliseconds which order and way of clearing is best.
//!
//! A sample is a clear and the program's next accesses: loads from the target and
//! the sub-pages after it, each waiting for the one before. If only the clear were
//! timed, streaming past the caches would always win. `forward` is best for a
//! program that then writes the whole page at once, but that is not known at its
//! first access.

use super::{CHUNK_FRAMES, ClearOrder, Scratch, WARM_RADIUS};
use crate::addr::{Order, PAGE_SIZE, Pfn};
use crate::machine::Machine;
use crate::mem;
use crate::policy::density::WriteDensity;
use crate::policy::zero::{BATCHES, BatchPlan, BatchPlans, NR_CLASSES, ZeroCost, Zeroing};
use crate::sync::Word;

const NR_ORDERS: usize = ClearOrder::ALL.len();
const NR_WAYS: usize = Zeroing::ALL.len();
/// Each way, and two that are mixed for each that passes the caches.
const MOST_PLANS: usize = 2 * NR_WAYS;
/// Sizes that are measured, up to 2 MiB; a larger page would take too long and
/// is all far part in any case.
const NR_SIZES: usize = Order::PMD.0 as usize + 1;
/// Samples of each order and size: enough for a median that one interrupt does
/// not move.
const NR_SAMPLES: usize = 5;
/// An order has to save one part in so many to be preferred to one before it in
/// [`ClearOrder::ALL`]: differences below are noise, and noise should not choose.
const LEAST_SAVED: u64 = 20;
const LINE_BYTES: usize = 64;

/// Nanoseconds for each order and size of page; a value, to be kept or shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClearTable {
    ns: [Option<[u64; NR_ORDERS]>; NR_SIZES],
    batches: [Option<Batch>; NR_CLASSES],
}

/// Measured costs of batches of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Batch {
    /// All frames in each of [`Zeroing::ALL`].
    costs: [Option<ZeroCost>; NR_WAYS],
    best: BatchPlans,
}

impl ClearTable {
    /// Nanoseconds to clear a page of 2^order frames and load from it, for each of
    /// [`ClearOrder::ALL`]; what was not measured has none. Sizes above 2 MiB are
    /// taken to be like 2 MiB.
    pub fn ns(&self, order: Order) -> Option<[u64; NR_ORDERS]> {
        self.ns[usize::from(order.0).min(NR_SIZES - 1)]
    }

    /// Nanoseconds per frame to zero a batch of so many small frames and write to them;
    /// `None` for a way that this CPU has not and for batches that were not measured,
    /// which are of 1, 8 and 64 frames.
    pub fn batch_cost(&self, nr_frames: u64, way: Zeroing) -> Option<ZeroCost> {
        self.batch_of(nr_frames)?.costs[way as usize]
    }

    /// How batches of so many frames are best zeroed; `None` if none was measured.
    pub fn batch(&self, nr_frames: u64) -> Option<BatchPlans> {
        Some(self.batch_of(nr_frames)?.best)
    }

    /// The ways for the near and the far part of a large page that serve best; plain stores, and streaming
    /// ones, if no batch of 64 frames was measured.
    pub fn large(&self) -> (Zeroing, Zeroing) {
        self.batch(CHUNK_FRAMES).unwrap_or(BatchPlans::STORES).of_large()
    }

    fn batch_of(&self, nr_frames: u64) -> Option<Batch> {
        self.batches[BATCHES.iter().position(|nr| *nr == nr_frames)?]
    }

    /// The order that serves pages of this size best; of a size that was not
    /// measured, what serves the largest that was.
    pub fn best(&self, order: Order) -> Option<ClearOrder> {
        let ns = (0..=order.0.min(Order::PMD.0)).rev().find_map(|size| self.ns(Order(size)))?;
        let mut best = 0;
        for i in 1..NR_ORDERS {
            if ns[i] + ns[best] / LEAST_SAVED < ns[best] {
                best = i;
            }
        }
        Some(ClearOrder::ALL[best])
    }
}

/// Measures every order on pages of every size up to 2 MiB that `scratch` has room
/// for. Frames that were used are zero afterwards. There should be several times as
/// many as fit into the caches: otherwise every page is warm before it is cleared, and
/// stores past the caches look worse than they are. The caller holds no lock.
pub fn calibrate<M: Machine>(scratch: &mut Scratch<'_, M>) -> ClearTable {
    let mut table = ClearTable::default();
    let nr_frames = scratch.range().nr_frames;
    let mut walk = Walk { scratch, next: 0 };
    for (batch, nr) in table.batches.iter_mut().zip(BATCHES).filter(|(_, nr)| *nr <= nr_frames) {
        *batch = Some(measured_batch(&mut walk, nr));
    }
    // Large pages are cleared in parts, by the ways that serve such best.
    walk.scratch.set_large(table.large());
    for size in 1..NR_SIZES {
        let order = Order(size as u8);
        if order.nr_pages() <= nr_frames {
            table.ns[size] = Some(measured(&mut walk, order));
        }
    }
    table
}

/// Every way alone; then those that pass the caches, beside near frames that are zeroed
/// as serves best a program that writes them all.
fn measured_batch<M: Machine>(walk: &mut Walk<'_, '_, M>, nr_frames: u64) -> Batch {
    let mut plans = Plans::default();
    let ways = walk.scratch.ways();
    ways.iter().for_each(|way| plans.add(BatchPlan::all(way)));
    plans.measure(walk, nr_frames);
    let mut costs = [None; NR_WAYS];
    plans.measured().iter().for_each(|(plan, cost)| costs[plan.far as usize] = Some(*cost));
    let near = BatchPlans::dense_of(plans.measured()).near;
    let mut mixed = Plans::default();
    // The first one wins where the others save too little. A frame that a fault waits
    // for is about to be touched, so no plan has all of a batch pass the caches.
    let is_candidate = |plan: &BatchPlan| nr_frames == 1 || !plan.passes_caches();
    plans.measured().iter().filter(|(plan, _)| is_candidate(plan)).for_each(|(plan, _)| mixed.add(*plan));
    // `clzero` before streaming stores: where both are as fast, its time varies half as much (Zen 3).
    for far in [Zeroing::Clzero, Zeroing::Streaming].into_iter().filter(|way| ways.has(*way)) {
        BatchPlan::mixed(near, far, nr_frames).for_each(|plan| mixed.add(plan));
    }
    mixed.measure(walk, nr_frames);
    Batch { costs, best: BatchPlans::best_of(mixed.measured()) }
}

/// Plans and what they cost.
struct Plans {
    all: [(BatchPlan, ZeroCost); MOST_PLANS],
    nr: usize,
}

impl Default for Plans {
    fn default() -> Plans {
        Plans { all: [(BatchPlan::all(Zeroing::Stores), ZeroCost::new(0, 0)); MOST_PLANS], nr: 0 }
    }
}

impl Plans {
    fn add(&mut self, plan: BatchPlan) {
        self.all[self.nr].0 = plan;
        self.nr += 1;
    }

    fn measured(&self) -> &[(BatchPlan, ZeroCost)] {
        &self.all[..self.nr]
    }

    fn measure<M: Machine>(&mut self, walk: &mut Walk<'_, '_, M>, nr_frames: u64) {
        let mut samples = [[[0; NR_SAMPLES]; 2]; MOST_PLANS];
        // Interleaved, as above.
        for sample in 0..NR_SAMPLES {
            for ((plan, _), samples) in self.measured().iter().zip(&mut samples) {
                for (density, samples) in [WriteDensity::Sparse, WriteDensity::Dense].into_iter().zip(samples) {
                    samples[sample] = walk.timed_batch(nr_frames, *plan, density);
                }
            }
        }
        for ((_, cost), samples) in self.all.iter_mut().zip(samples) {
            let [line, all] = samples.map(|mut samples| {
                samples.sort_unstable();
                samples[NR_SAMPLES / 2]
            });
            *cost = ZeroCost::new(line, all);
        }
    }
}

fn measured<M: Machine>(walk: &mut Walk<'_, '_, M>, order: Order) -> [u64; NR_ORDERS] {
    let mut samples = [[0; NR_SAMPLES]; NR_ORDERS];
    // The orders are interleaved, so that disturbances affect all of them alike.
    for sample in 0..NR_SAMPLES {
        for (how, samples) in ClearOrder::ALL.into_iter().zip(&mut samples) {
            let (at_start, in_middle) = (0, order.nr_pages() / 2);
            samples[sample] = walk.timed(order, at_start, how) + walk.timed(order, in_middle, how);
        }
    }
    samples.map(|mut samples| {
        samples.sort_unstable();
        samples[NR_SAMPLES / 2]
    })
}

/// Cycles through the scratch frames, so that all other pages were touched since a
/// page was last used.
struct Walk<'s, 'm, M: Machine> {
    scratch: &'s mut Scratch<'m, M>,
    next: u64,
}

impl<M: Machine> Walk<'_, '_, M> {
    /// Index of the next so many frames; there are as many.
    fn step_by(&mut self, nr_frames: u64) -> u64 {
        if self.next + nr_frames > self.scratch.range().nr_frames {
            self.next = 0;
        }
        let at = self.next;
        self.next += nr_frames;
        at
    }

    /// Nanoseconds per frame of a batch, or of as many small ones as take as long as
    /// one of 64, and of a program that writes to each frame afterwards.
    fn timed_batch(&mut self, nr_frames: u64, plan: BatchPlan, density: WriteDensity) -> u64 {
        let machine = self.scratch.machine();
        let nr_batches = (64 / nr_frames).min(self.scratch.range().nr_frames / nr_frames);
        let begun = machine.now_ns();
        for _ in 0..nr_batches {
            let at = self.step_by(nr_frames);
            self.scratch.zero(at, nr_frames, plan);
            let first = u64::from(self.scratch.range().first.0) + at;
            for pfn in (first..first + nr_frames).map(|pfn| Pfn(pfn as u32)) {
                match density {
                    WriteDensity::Sparse => mem::view::<_, Word>(machine, pfn, 0).set(0),
                    // As a program's memset would.
                    WriteDensity::Dense => mem::zero_frames(machine, pfn, 1),
                }
            }
        }
        machine.now_ns().saturating_sub(begun) / (nr_batches * nr_frames)
    }

    fn timed(&mut self, order: Order, target: u64, how: ClearOrder) -> u64 {
        let (at, machine) = (self.step_by(order.nr_pages()), self.scratch.machine());
        let begun = machine.now_ns();
        self.scratch.clear(at, order, Some(target), how);
        let first = u64::from(self.scratch.range().first.0) + at;
        let mut carried = 0;
        for index in target..(target + WARM_RADIUS + 1).min(order.nr_pages()) {
            for line in (0..PAGE_SIZE as usize).step_by(LINE_BYTES) {
                // The loaded value is zero, and the CPU has to wait for it.
                let word: &Word = mem::view(machine, Pfn((first + index) as u32), line + carried);
                carried = word.get() as usize & (LINE_BYTES - 1);
            }
        }
        machine.now_ns().saturating_sub(begun)
    }
}

#[cfg(test)]
impl ClearTable {
    /// With these plans for batches of every size.
    pub(super) fn with_batches(mut self, best: BatchPlans) -> ClearTable {
        self.batches = [Some(Batch { costs: [None; NR_WAYS], best }); NR_CLASSES];
        self
    }
    /// With these nanoseconds for one size.
    pub(super) fn with(mut self, order: Order, ns: [u64; NR_ORDERS]) -> ClearTable {
        self.ns[usize::from(order.0)] = Some(ns);
        self
    }
}
