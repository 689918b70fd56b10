//! The order in which the sub-pages of a large page are cleared or copied.
//!
//! A program touches the sub-page that it faulted on at once, its neighbours soon, the others
//! perhaps. Sub-pages that were written last are still in a cache, so the order decides which are warm
//! when the program continues. This file only computes with indices of sub-pages; the mechanism is in
//! [`crate::clear`].

use crate::addr::Order;
use core::ops::Range;

/// Sub-pages on each side of the target that [`ClearOrder::Hybrid`] keeps warm:
/// with the target 68 KiB, a small part of any second-level cache.
pub const WARM_RADIUS: u64 = 8;
/// Neighbours on each side that [`ClearOrder::Runs`] leaves for its last run.
const LAST_RUN_RADIUS: u64 = 2;

/// An order in which to clear or copy. The target is the sub-page of the fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum ClearOrder {
    /// From start to end, wherever the target is.
    Forward,
    /// Of 2017: the sub-pages farthest from the target first, then from both
    /// ends inwards, left and right in turn, the target last.
    Converge,
    /// Of January 2026: what is right of the target's neighbourhood, what is
    /// left of it, then the target and two neighbours on each side. Each is one
    /// run forward, which a prefetcher understands.
    Runs,
    /// As `Runs` far from the target, past the caches (non-temporal stores);
    /// then 8 neighbours on each side and the target as `Converge` has them.
    Hybrid,
}

impl ClearOrder {
    /// All of them, oldest first.
    pub const ALL: [ClearOrder; 4] = [ClearOrder::Forward, ClearOrder::Converge, ClearOrder::Runs, ClearOrder::Hybrid];

    /// The word in output and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            ClearOrder::Forward => "forward",
            ClearOrder::Converge => "converge",
            ClearOrder::Runs => "runs",
            ClearOrder::Hybrid => "hybrid",
        }
    }

    /// The order of that name.
    pub fn named(name: &str) -> Option<ClearOrder> {
        ClearOrder::ALL.into_iter().find(|order| order.name() == name)
    }

    /// Returns the runs for a page of `nr_subpages`, in order. `hint` is the target's
    /// index. Without it, or if it is outside the page, the target is the first
    /// sub-page. A page has at most 2^52 sub-pages, as many as 64 bits can address.
    pub fn plan(self, nr_subpages: u64, hint: Option<u64>) -> Plan {
        let nr_subpages = nr_subpages.min(1 << 52);
        let target = hint.filter(|hint| *hint < nr_subpages).unwrap_or(0);
        let around = |radius: u64| target.saturating_sub(radius)..(target + radius + 1).min(nr_subpages);
        match self {
            ClearOrder::Forward => Plan::of(target, [Run::forward(0..nr_subpages), Run::EMPTY, Run::EMPTY]),
            ClearOrder::Converge => Plan::of(target, [Run::EMPTY; 3]).then_converge(0..nr_subpages),
            ClearOrder::Runs => {
                let last = around(LAST_RUN_RADIUS);
                Plan::of(target, [Run::forward(last.end..nr_subpages), Run::forward(0..last.start), Run::forward(last)])
            }
            ClearOrder::Hybrid => {
                let warm = around(WARM_RADIUS);
                let (right, left) = (Run::forward(warm.end..nr_subpages), Run::forward(0..warm.start));
                let far = Plan::of(target, [right.past_caches(), left.past_caches(), Run::EMPTY]);
                Plan { near: warm.clone(), ..far }.then_converge(warm)
            }
        }
    }
}

/// The order for a page of 2^order sub-pages without calibration. Up to 256 KiB
/// nothing is evicted, and one run forward is fastest. Above that, if the CPU has
/// stores that pass the caches, most of the page is better kept out of them.
pub const fn usual(order: Order) -> ClearOrder {
    match (order.nr_pages() > 64, cfg!(all(target_arch = "x86_64", target_feature = "sse2"))) {
        (false, _) => ClearOrder::Forward,
        (true, true) => ClearOrder::Hybrid,
        (true, false) => ClearOrder::Runs,
    }
}

/// Adjacent sub-pages, cleared or copied one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Run {
    /// Index of the lowest.
    pub start: u64,
    /// How many.
    pub count: u64,
    /// From the highest down to the lowest.
    pub is_backward: bool,
    /// Past the caches: the program is not expected to touch these soon.
    pub is_streaming: bool,
}

impl Run {
    const EMPTY: Run = Run { start: 0, count: 0, is_backward: false, is_streaming: false };

    fn forward(range: Range<u64>) -> Run {
        Run { start: range.start, count: range.end - range.start, ..Run::EMPTY }
    }
    fn backward(range: Range<u64>) -> Run {
        Run { is_backward: true, ..Run::forward(range) }
    }
    fn past_caches(self) -> Run {
        Run { is_streaming: true, ..self }
    }

    /// The indices, in the order of the work.
    pub fn indices(self) -> impl Iterator<Item = u64> {
        let at = move |i| if self.is_backward { self.start + self.count - 1 - i } else { self.start + i };
        (0..self.count).map(at)
    }
}

/// Iterates over the runs of an order. None is empty, and each sub-page is in exactly
/// one of them.
#[derive(Clone, Debug)]
pub struct Plan {
    target: u64,
    near: Range<u64>,
    runs: [Run; 3],
    next_run: usize,
    /// `nr_pairs` pairs inwards from both ends of this window follow the runs.
    window_start: u64,
    nr_pairs: u64,
    /// Steps of the pairs: 2 each, left before right.
    next_step: u64,
}

impl Plan {
    fn of(target: u64, runs: [Run; 3]) -> Plan {
        Plan { target, near: 0..0, runs, next_run: 0, window_start: 0, nr_pairs: 0, next_step: 0 }
    }

    /// Index of the sub-page that is needed first.
    pub fn target(&self) -> u64 {
        self.target
    }
    /// How many sub-pages pass the caches.
    pub fn nr_streaming(&self) -> u64 {
        self.runs.iter().filter(|run| run.is_streaming).map(|run| run.count).sum()
    }
    /// The sub-pages after those that pass the caches, which are adjacent; none without such.
    pub fn near(&self) -> Range<u64> {
        self.near.clone()
    }

    /// The order of 2017 for the sub-pages `range`, which comes last; uses the
    /// last of the runs.
    ///
    /// Why 2n. From both ends inwards, left before right, a window of 2n
    /// sub-pages ends with its index n, the right one of the last pair. So if
    /// the target is the n-th of N and 2n <= N, the window that ends with it is
    /// [0, 2n), and the rest, right of the window, is all farther from the
    /// target than the window's ends: it comes first, the farthest of it before
    /// the nearer. In the other half the same holds from the other end: the
    /// N - n sub-pages from the target on are the right halves of pairs, so the
    /// window is the last 2(N - n), [2n - N, N), and the rest is left of it. The
    /// windows are the largest that the page has room for, so nothing is cleared
    /// twice and nothing needs a third case.
    fn then_converge(mut self, range: Range<u64>) -> Plan {
        let (nr, n) = (range.end - range.start, self.target - range.start);
        let rest;
        if 2 * n <= nr {
            rest = Run::backward(range.start + 2 * n..range.end);
            (self.window_start, self.nr_pairs) = (range.start, n);
        } else {
            rest = Run::forward(range.start..range.start + 2 * n - nr);
            (self.window_start, self.nr_pairs) = (range.start + 2 * n - nr, nr - n);
        }
        self.runs[2] = rest;
        self
    }

    fn step(&mut self) -> Option<Run> {
        if self.next_step >= 2 * self.nr_pairs {
            return None;
        }
        let (pair, is_right) = (self.next_step / 2, self.next_step % 2 == 1);
        let offset = if is_right { 2 * self.nr_pairs - 1 - pair } else { pair };
        self.next_step += 1;
        let start = self.window_start + offset;
        Some(Run::forward(start..start + 1))
    }
}

impl Iterator for Plan {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        while let Some(run) = self.runs.get(self.next_run) {
            self.next_run += 1;
            if run.count > 0 {
                return Some(*run);
            }
        }
        self.step()
    }
}

#[cfg(test)]
mod tests;
