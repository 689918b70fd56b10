//! From samples to medians, spreads and the ratio.

use super::options::Options;
use super::program::{Index, Job, NR_ORDERS, Sample};
use crate::bench::{Figure, Sampled, median};
use crate::error::LabError;

/// The program with one setting.
#[derive(Clone, Debug)]
pub struct Program {
    /// The word.
    pub enabled: &'static str,
    /// Seconds of all of it.
    pub whole_s: Figure,
    /// Seconds of the first memset.
    pub memset_s: Figure,
    /// Medians.
    pub huge_share: f64,
    /// Huge pages that faults installed.
    pub thp_fault_alloc: f64,
    /// Huge faults that found none.
    pub thp_fault_fallback: f64,
    /// Blocks that faults made by moving pages.
    pub compact_success: f64,
}

/// All that a run has found.
pub struct Report {
    /// The kind of frames that were kept.
    pub kind: &'static str,
    /// In how many of the blocks, percent.
    pub share: u32,
    /// The word.
    pub defrag: &'static str,
    /// Repetitions.
    pub reps: u32,
    /// Before and after, of the first run; all begin alike.
    pub index: [Index; 2],
    /// As [`Job::BOTH`].
    pub programs: Vec<Program>,
    /// Seconds of the whole with `always` over those with `never`.
    pub ratio: Figure,
    /// The same of the first memset.
    pub memset_ratio: Figure,
}

impl Report {
    /// Computes the programs; `sampled` has those of [`Job::BOTH`].
    ///
    /// # Errors
    ///
    /// If two runs have read different things.
    pub fn new(options: &Options, sampled: &[Sampled<Job, Sample>]) -> Result<Report, LabError> {
        let first = &sampled[0].samples[0];
        if let Some(other) = sampled.iter().flat_map(|of| &of.samples).find(|sample| sample.sum != first.sum) {
            let why = format!("one run has read {:#x}, another one {:#x}", first.sum, other.sum);
            return Err(LabError::subsystem("the program in fragmented memory", why));
        }
        let ratio = |of: fn(&Sample) -> f64| {
            let [always, never] = [0, 1].map(|i| sampled[i].samples.iter().map(of).collect::<Vec<f64>>());
            Figure::of_ratios(&always, &never)
        };
        Ok(Report {
            kind: options.kind(),
            share: options.share,
            defrag: options.defrag.name(),
            reps: options.repeated.reps,
            index: first.index,
            programs: sampled.iter().map(|of| program(of.job.0.name(), &of.samples)).collect(),
            ratio: ratio(|sample| sample.whole.as_secs_f64()),
            memset_ratio: ratio(|sample| sample.memset.as_secs_f64()),
        })
    }

    /// The index of each order from 0 to 1, before and after, as far as memory is
    /// large enough for the order at all.
    pub fn indices(&self) -> impl Iterator<Item = (usize, [f64; 2])> + '_ {
        let nr_free = self.index[0][0].nr_free;
        let share = move |when: usize, order: usize| self.index[when][order].unusable_permille() as f64 / 1000.0;
        (0..NR_ORDERS)
            .filter(move |order| 1 << order <= nr_free)
            .map(move |order| (order, [share(0, order), share(1, order)]))
    }
}

fn program(enabled: &'static str, samples: &[Sample]) -> Program {
    let figure = |value: fn(&Sample) -> f64| Figure::of(samples.iter().map(value));
    let middle = |value: fn(&Sample) -> f64| median(samples.iter().map(value));
    Program {
        enabled,
        whole_s: figure(|sample| sample.whole.as_secs_f64()),
        memset_s: figure(|sample| sample.memset.as_secs_f64()),
        huge_share: middle(|sample| sample.huge_share),
        thp_fault_alloc: middle(|sample| sample.thp_fault_alloc as f64),
        thp_fault_fallback: middle(|sample| sample.thp_fault_fallback as f64),
        compact_success: middle(|sample| sample.compact_success as f64),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::bench::typed;
    use softfault::Fragmentation;
    use std::time::Duration;

    fn sample(ms: u64, sum: u64) -> Sample {
        let index = |nr_usable| {
            let mut one = Fragmentation::default();
            (one.nr_free, one.nr_usable) = (4096, nr_usable);
            [one; NR_ORDERS]
        };
        Sample {
            index: [index(4096), index(1024)],
            memset: Duration::from_millis(ms / 2),
            whole: Duration::from_millis(ms),
            sum,
            huge_share: 0.0,
            thp_fault_alloc: 0,
            thp_fault_fallback: 7,
            compact_success: 3,
        }
    }

    fn report_of(samples: [Vec<Sample>; 2]) -> Result<Report, LabError> {
        let options: Options = typed("fragment --movable --share 50 --reps 2");
        let sampled: Vec<_> =
            Job::BOTH.into_iter().zip(samples).map(|(job, samples)| Sampled { job, samples }).collect();
        Report::new(&options, &sampled)
    }

    /// Twice as slow in the second repetition, and always a tenth slower.
    pub fn report() -> Report {
        report_of([vec![sample(220, 1), sample(440, 1)], vec![sample(200, 1), sample(400, 1)]]).unwrap()
    }

    #[test]
    fn the_ratio_pairs_what_belongs_to_one_repetition() {
        let report = report();
        assert!((report.ratio.median - 1.1).abs() < 1e-9 && report.ratio.spread < 1e-9);
        assert!((report.programs[1].whole_s.median - 0.3).abs() < 1e-9);
        let indices: Vec<_> = report.indices().collect();
        assert_eq!(indices.len(), 13, "4,096 frames are no block of order 13");
        assert_eq!(indices[9], (9, [0.0, 0.75]));
    }

    #[test]
    fn a_program_that_reads_something_else_is_no_result() {
        let error = report_of([vec![sample(1, 1)], vec![sample(1, 2)]]).err().unwrap();
        assert!(error.to_string().contains("has read 0x1, another one 0x2"), "{error}");
    }
}
