//! From samples to rows: medians, spread, ratios.

use super::measure::{Job, Load, Sample, Work};
use super::options::Options;
use crate::bench::median;
use crate::clearing::cache::{self, Residue};
use crate::clearing::{paired, quartile_spread};
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
    /// What was done.
    pub work: Work,
    /// What the other CPU did.
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
    /// What a modelled cache holds after clearing in this order.
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

/// A row for each of `works`.
pub fn rows(options: &Options, load: Load, works: &[Work], samples: &[(Job, Vec<Sample>)]) -> Vec<Row> {
    let of = |work: Work| samples.iter().filter(move |(job, _)| job.work == work);
    // In the order of distances, then of repetitions: the same in all works.
    let times = |work: Work| of(work).flat_map(|(_, s)| s.iter().map(|s| s.ns)).collect::<Vec<f64>>();
    let converge = options.work(ClearOrder::Converge);
    works
        .iter()
        .map(|&work| {
            let own = times(work);
            let beside = |other: Work| {
                let is_other = other != work && works.contains(&other) && work.order().is_some();
                is_other.then(|| paired(&times(other), &own))
            };
            Row {
                work,
                load,
                ns: median(own.iter().copied()),
                spread: quartile_spread(&own),
                bytes_touched: of(work).find_map(|(_, s)| s.first()).map_or(0, |s| s.bytes_touched),
                ratio_to_converge: beside(converge),
                ratio_to_linux: beside(Work::Linux),
                residue: modelled(options, work),
                touches: of(work)
                    .filter(|_| work != Work::LinuxCow)
                    .map(|(job, samples)| touch(job, samples))
                    .collect(),
            }
        })
        .collect()
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
mod tests {
    use super::super::measure::Place;
    use super::*;
    use crate::clearing::HUGE_BYTES;
    use clap::Parser;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn medians_and_ratios_of_samples_of_one_repetition() {
        let options = Typed::parse_from(["clear-huge"]).options;
        let (forward, converge) = (Work::Clear(ClearOrder::Forward), Work::Clear(ClearOrder::Converge));
        let samples =
            |ns: [f64; 3]| ns.map(|ns| Sample { ns, ns_per_line: ns / 10.0, bytes_touched: HUGE_BYTES }).to_vec();
        let job = |work, distance| Job { work, place: Place::new(0, distance) };
        // The host is ten times slower in the second repetition.
        let all = [
            (job(forward, 0), samples([10.0, 100.0, 10.0])),
            (job(forward, 8), samples([10.0, 100.0, 10.0])),
            (job(converge, 0), samples([20.0, 200.0, 20.0])),
            (job(converge, 8), samples([20.0, 200.0, 20.0])),
            (job(Work::Linux, 0), samples([40.0, 400.0, 40.0])),
            (job(Work::Linux, 8), samples([40.0, 400.0, 40.0])),
        ];
        let rows = rows(&options, Load::Idle, &[forward, converge, Work::Linux], &all);
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
    }
}
