//! The ways to clear a page: in which order, and by which instructions.

use super::linux_clear::LinuxWay;
use crate::bench::Chosen;
use softfault::Order;
use softfault::clear::{self, ClearOrder, ClearTable, Scratch, Zeroing};
use softfault_host::Hosted;
use std::fmt;

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The order of the sub-pages.
    pub how: ClearOrder,
    /// The instructions for what is near the fault, or for all.
    pub near: Zeroing,
    /// Those for the rest of `hybrid`.
    pub far: Zeroing,
}

/// Those of a run.
#[derive(Clone, Debug)]
pub struct Ways {
    /// Of our faults.
    pub faults: Way,
    /// The fastest one without faults, for each number of threads.
    pub limits: Vec<(usize, Way)>,
    /// The one that is assumed of the host's faults.
    pub linux: LinuxWay,
}

impl Ways {
    /// The fastest one without faults for so many threads, which is known for those of the rows.
    pub fn limit(&self, nr_threads: usize) -> Option<Way> {
        self.limits.iter().find(|(nr, _)| *nr == nr_threads).map(|(_, way)| *way)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Way { how, near, far } = self;
        match how {
            ClearOrder::Hybrid if near != far => write!(f, "hybrid, {} behind {}", far.name(), near.name()),
            _ => write!(f, "{}, {}", how.name(), near.name()),
        }
    }
}

impl Way {
    fn all(how: ClearOrder, way: Zeroing) -> Way {
        Way { how, near: way, far: way }
    }

    /// The way of our faults.
    pub fn of_faults(measured: &ClearTable, chosen: Chosen) -> Way {
        let how = measured.best(Order::PMD).unwrap_or(ClearOrder::Forward);
        let (near, far) = chosen.tunable().map_or_else(|| measured.large(), |way| (way, way));
        // Only hybrid has a far part.
        if how == ClearOrder::Hybrid { Way { how, near, far } } else { Way::all(how, near) }
    }

    /// Clears the 2 MiB from frame number `at` of a thread's part; their first byte is the one that is written.
    pub fn clear(self, part: &mut Scratch<'_, Hosted>, at: u64) {
        part.set_large((self.near, self.far));
        part.clear(at, Order::PMD, Some(0), self.how);
    }

    /// All that a page could be cleared in without a fault, where nothing follows: as faults do, and from start to end
    /// by each kind of instructions.
    pub fn candidates(measured: &ClearTable, chosen: Chosen, has: clear::Ways) -> Vec<Way> {
        let mut all = vec![Way::of_faults(measured, chosen)];
        for way in has.iter().filter(|way| chosen.tunable().is_none_or(|chosen| chosen == *way)) {
            let forward = Way::all(ClearOrder::Forward, way);
            if !all.contains(&forward) {
                all.push(forward);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_way_is_that_of_faults_and_of_the_limit() {
        let measured = ClearTable::default();
        let of = |chosen| Way::candidates(&measured, chosen, clear::Ways::STORES);
        assert_eq!(of(Chosen::Forced(Zeroing::Stores)), [Way::all(ClearOrder::Forward, Zeroing::Stores)]);
        let auto: Vec<String> = of(Chosen::Auto).iter().map(Way::to_string).collect();
        assert_eq!(auto, ["forward, stores"], "once each");
        let hybrid = Way { how: ClearOrder::Hybrid, near: Zeroing::Vector, far: Zeroing::Clzero };
        assert_eq!(hybrid.to_string(), "hybrid, clzero behind vector");
        assert_eq!(Way::all(ClearOrder::Hybrid, Zeroing::Vector).to_string(), "hybrid, vector");
    }
}
