//! From samples to rows: medians, spread, ratios.

use crate::bench::{median, spread};
use crate::clearing::{cache, paired};
use softfault::clear::ClearOrder;

/// What the processes do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Our clear in this order, then writing.
    Ours(ClearOrder),
    /// Writing fresh huge memory of the host's.
    Linux,
}

impl Work {
    /// The word in tables, in JSON and between the processes.
    pub fn name(self) -> &'static str {
        match self {
            Work::Ours(how) => how.name(),
            Work::Linux => "linux",
        }
    }
    /// What has that name.
    pub fn named(name: &str) -> Option<Work> {
        if name == Work::Linux.name() { Some(Work::Linux) } else { ClearOrder::named(name).map(Work::Ours) }
    }
}

/// One row of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What was done.
    pub work: Work,
    /// Median over repetitions, all processes.
    pub bytes_per_s: f64,
    /// (Largest - smallest) / median.
    pub spread: f64,
    /// Throughput over that of `forward`.
    pub ratio_to_forward: Option<f64>,
    /// Throughput over that of Linux.
    pub ratio_to_linux: Option<f64>,
}

impl Row {
    /// Share of the lines written that a modelled cache holds after the clear; what
    /// Linux does is its own affair.
    pub fn modelled_hits(&self) -> Option<f64> {
        let order = if let Work::Ours(how) = self.work { Some(how) } else { None };
        order.map(|how| cache::residue(how, 0).in_sequence)
    }
}

/// `samples[i][rep]` belongs to `works[i]`.
pub fn rows(works: &[Work], samples: &[Vec<f64>]) -> Vec<Row> {
    let row = |(&work, own): (&Work, &Vec<f64>)| {
        let beside = |other: Work| {
            let i = works.iter().position(|w| *w == other).filter(|_| other != work)?;
            Some(paired(own, &samples[i]))
        };
        Row {
            work,
            bytes_per_s: median(own.iter().copied()),
            spread: spread(own),
            ratio_to_forward: beside(Work::Ours(ClearOrder::Forward)),
            ratio_to_linux: beside(Work::Linux),
        }
    };
    works.iter().zip(samples).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_pair_samples_of_one_repetition() {
        let works = [Work::Ours(ClearOrder::Forward), Work::Ours(ClearOrder::Converge), Work::Linux];
        // The host is ten times slower in the second repetition.
        let all = rows(&works, &[vec![10.0, 1.0, 12.0], vec![20.0, 2.0, 24.0], vec![5.0, 0.5, 6.0]]);
        assert_eq!((all[0].bytes_per_s, all[0].spread), (10.0, 1.1));
        assert_eq!((all[0].ratio_to_forward, all[0].ratio_to_linux), (None, Some(2.0)));
        assert_eq!((all[1].ratio_to_forward, all[1].ratio_to_linux), (Some(2.0), Some(4.0)));
        assert_eq!((all[2].ratio_to_forward, all[2].ratio_to_linux), (Some(0.5), None));
    }

    #[test]
    fn names_lead_back() {
        for work in ClearOrder::ALL.map(Work::Ours).into_iter().chain([Work::Linux]) {
            assert_eq!(Work::named(work.name()), Some(work));
        }
        assert_eq!(Work::named("backward"), None);
    }
}
