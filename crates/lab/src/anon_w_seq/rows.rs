//! From samples to rows: medians, spread, ratios.

use super::options::Options;
use super::work::Work;
use crate::bench::{Figure, Sampled, paired};
use crate::clearing::cache;
use crate::os;
use softfault::clear::ClearOrder;

/// One row of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The work of its processes.
    pub work: Work,
    /// Over repetitions, all processes.
    pub bytes_per_s: Figure,
    /// Throughput over that of `forward`.
    pub ratio_to_forward: Option<f64>,
    /// Throughput over that of Linux.
    pub ratio_to_linux: Option<f64>,
}

/// All rows, Linux's last.
pub struct Report {
    /// Processes.
    pub nr_processes: usize,
    /// MiB that each of them writes.
    pub mib: u64,
    /// Repetitions.
    pub reps: u32,
    /// Release of the host's kernel.
    pub kernel: String,
    /// By what was done.
    pub rows: Vec<Row>,
}

impl Report {
    /// Computes the rows.
    pub fn new(options: &Options, nr_processes: usize, sampled: &[Sampled<Work, f64>]) -> Report {
        let (mib, reps, kernel) = (options.mib, options.repeated.reps, os::kernel_release());
        Report { nr_processes, mib, reps, kernel, rows: sampled.iter().map(|of| row(of, sampled)).collect() }
    }
}

impl Row {
    /// 10^9 bytes written per second.
    pub fn gb_per_s(&self) -> f64 {
        self.bytes_per_s.median / 1e9
    }
    /// Share of the lines written that a modelled cache holds after the clear; unknown for Linux.
    pub fn modelled_hits(&self) -> Option<f64> {
        let order = if let Work::Ours(how) = self.work { Some(how) } else { None };
        order.map(|how| cache::residue(how, 0).in_sequence)
    }
}

fn row(own: &Sampled<Work, f64>, all: &[Sampled<Work, f64>]) -> Row {
    let beside = |other: Work| {
        let other = all.iter().find(|of| of.job == other).filter(|_| other != own.job)?;
        Some(paired(&own.samples, &other.samples))
    };
    Row {
        work: own.job,
        bytes_per_s: Figure::of(own.samples.iter().copied()),
        ratio_to_forward: beside(Work::Ours(ClearOrder::Forward)),
        ratio_to_linux: beside(Work::Linux),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The host is ten times slower in the second repetition.
    pub fn report() -> Report {
        let sampled = [
            (Work::Ours(ClearOrder::Forward), [10e9, 1e9, 12e9]),
            (Work::Ours(ClearOrder::Converge), [20e9, 2e9, 24e9]),
            (Work::Linux, [5e9, 0.5e9, 6e9]),
        ]
        .map(|(job, samples)| Sampled { job, samples: samples.to_vec() });
        let rows = sampled.iter().map(|of| row(of, &sampled)).collect();
        Report { nr_processes: 3, mib: 8, reps: 3, kernel: "6.0".into(), rows }
    }

    #[test]
    fn ratios_pair_samples_of_one_repetition() {
        let all = report().rows;
        assert_eq!((all[0].gb_per_s(), all[0].bytes_per_s.spread), (10.0, 1.1));
        assert_eq!((all[0].ratio_to_forward, all[0].ratio_to_linux), (None, Some(2.0)));
        assert_eq!((all[1].ratio_to_forward, all[1].ratio_to_linux), (Some(2.0), Some(4.0)));
        assert_eq!((all[2].ratio_to_forward, all[2].ratio_to_linux), (Some(0.5), None));
    }
}
