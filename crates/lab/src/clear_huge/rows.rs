//! From samples to rows: medians, spread, ratios.

use super::options::Options;
use super::work::{Job, Load, Sample, Work};
use crate::bench::{Sampled, median, paired};
use crate::clearing::cache::{self, Residue};
use crate::clearing::quartile_spread;
use crate::os;
use softfault::clear::ClearOrder;

/// First touches at one distance.
#[derive(Clone, Debug, PartialEq)]
pub struct Touch {
    /// Sub-pages from the target.
    pub distance: u64,
    /// Nanoseconds a line, the median.
    pub ns_per_line: f64,
    /// (Third quartile - first) / median.
    pub spread: f64,
}

/// One row of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The work that was timed.
    pub work: Work,
    /// The work of the other CPU.
    pub load: Load,
    /// Median of the time of a clear or copy, nanoseconds.
    pub ns: f64,
    /// (Third quartile - first) / median of these times.
    pub spread: f64,
    /// Bytes that one clear or copy reads and writes.
    pub bytes_touched: u64,
    /// GB/s over those of `converge`.
    pub ratio_to_converge: Option<f64>,
    /// GB/s over those of Linux's touches.
    pub ratio_to_linux: Option<f64>,
    /// Content of a modelled cache after clearing in this order.
    pub residue: Option<Residue>,
    /// By distance.
    pub touches: Vec<Touch>,
}

impl Row {
    /// Bytes that are cleared or copied at one go.
    pub fn nr_bytes(&self) -> u64 {
        self.work.nr_bytes(self.bytes_touched)
    }
    /// 10^9 bytes cleared or copied per second.
    pub fn gb_per_s(&self) -> f64 {
        self.nr_bytes() as f64 / self.ns
    }
}

/// All rows, idle ones first.
pub struct Report {
    /// Whether pages were copied and not cleared.
    pub copy: bool,
    /// The sub-page that the fault is on.
    pub target: u64,
    /// Repetitions.
    pub reps: u32,
    /// Whether Linux was to be run.
    pub with_linux: bool,
    /// Release of the host's kernel.
    pub kernel: String,
    /// By load, then by work.
    pub rows: Vec<Row>,
}

type Of<'a> = &'a Sampled<Job, Sample>;

impl Report {
    /// Computes the rows.
    pub fn new(options: &Options, sampled: &[Sampled<Job, Sample>]) -> Report {
        let rows = [Load::Idle, Load::Streaming].into_iter().flat_map(|load| {
            let of_load: Vec<Of<'_>> = sampled.iter().filter(|of| of.job.load == load).collect();
            let mut works: Vec<Work> = of_load.iter().map(|of| of.job.work).collect();
            works.dedup();
            works.iter().map(|work| row(options, *work, &of_load)).collect::<Vec<Row>>()
        });
        Report {
            copy: options.copy,
            target: options.target,
            reps: options.repeated.reps,
            with_linux: options.with_linux(),
            kernel: os::kernel_release(),
            rows: rows.collect(),
        }
    }
}

/// `all` has the samples beside one load.
fn row(options: &Options, work: Work, all: &[Of<'_>]) -> Row {
    let of = |work: Work| all.iter().filter(move |of| of.job.work == work);
    // In the order of distances, then of repetitions: the same in all works.
    let times = |work: Work| of(work).flat_map(|of| of.samples.iter().map(|s| s.ns)).collect::<Vec<f64>>();
    let own = times(work);
    let beside = |other: Work| {
        let has_ratio = other != work && of(other).count() > 0 && work.order().is_some();
        has_ratio.then(|| paired(&times(other), &own))
    };
    let touches = of(work).filter(|_| work != Work::LinuxCow).map(|of| touch(&of.job, &of.samples)).collect();
    Row {
        work,
        load: all[0].job.load,
        ns: median(own.iter().copied()),
        spread: quartile_spread(&own),
        bytes_touched: of(work).find_map(|of| of.samples.first()).map_or(0, |s| s.bytes_touched),
        ratio_to_converge: beside(options.work(ClearOrder::Converge)),
        ratio_to_linux: beside(Work::Linux),
        residue: modelled(options, work),
        touches,
    }
}

/// Copying reads the source as well, which the model does not have.
fn modelled(options: &Options, work: Work) -> Option<Residue> {
    let order = if let Work::Clear(how) = work { Some(how) } else { None };
    order.map(|how| cache::residue(how, options.target))
}

fn touch(job: &Job, samples: &[Sample]) -> Touch {
    let all: Vec<f64> = samples.iter().map(|s| s.ns_per_line).collect();
    Touch { distance: job.place.distance, ns_per_line: median(all.iter().copied()), spread: quartile_spread(&all) }
}

#[cfg(test)]
pub mod tests {
    use super::super::place::Place;
    use super::*;
    use crate::bench::typed;
    use crate::clearing::HUGE_BYTES;

    const FORWARD: Work = Work::Clear(ClearOrder::Forward);
    const CONVERGE: Work = Work::Clear(ClearOrder::Converge);

    /// The host is ten times slower in the second repetition, and slower still beside a CPU that streams.
    pub fn report() -> Report {
        let samples = |ns: f64| {
            [ns, 10.0 * ns, ns].map(|ns| Sample { ns, ns_per_line: ns / 10.0, bytes_touched: HUGE_BYTES }).to_vec()
        };
        let mut sampled = Vec::new();
        for (load, slower) in [(Load::Idle, 1.0), (Load::Streaming, 3.0)] {
            for (work, ns) in [(FORWARD, 10.0), (CONVERGE, 20.0), (Work::Linux, 40.0)] {
                sampled.extend([0, 8].map(|distance| Sampled {
                    job: Job { load, work, place: Place::new(0, distance) },
                    samples: samples(ns * slower),
                }));
            }
        }
        Report::new(&typed("clear-huge"), &sampled)
    }

    #[test]
    fn medians_and_ratios_of_samples_of_one_repetition() {
        let rows = report().rows;
        assert_eq!(rows.len(), 6);
        assert_eq!((rows[0].ns, rows[0].bytes_touched), (10.0, HUGE_BYTES));
        assert_eq!(rows[0].gb_per_s(), 209_715.2);
        assert_eq!((rows[0].ratio_to_converge, rows[0].ratio_to_linux), (Some(2.0), Some(4.0)));
        assert_eq!((rows[1].ratio_to_converge, rows[1].ratio_to_linux), (None, Some(2.0)));
        assert_eq!((rows[2].ratio_to_converge, rows[2].ratio_to_linux), (None, None));
        assert_eq!(rows[1].residue.map(|r| r.near), Some(1.0));
        assert_eq!(rows[2].residue, None, "what Linux does is its own affair");
        assert_eq!(
            rows[1].touches.iter().map(|t| (t.distance, t.ns_per_line)).collect::<Vec<_>>(),
            [(0, 2.0), (8, 2.0)]
        );
        assert_eq!((rows[3].load, rows[3].ns, rows[3].ratio_to_converge), (Load::Streaming, 30.0, Some(2.0)));
    }
}
