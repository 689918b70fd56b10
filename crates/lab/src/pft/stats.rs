//! From samples to rows: sums, medians, spread, ratios.

use super::measure::Sample;
use super::options::Options;
use super::plan::{Job, Work};
use crate::bench::Chosen;
use crate::bench::{Sampled, median, paired, spread};
use softfault::clear::ClearTable;

/// One row of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The work of its threads.
    pub work: Work,
    /// Threads.
    pub nr_threads: usize,
    /// Who chose how frames are zeroed; of ours only.
    pub zeroing: Chosen,
    /// The stores to each page, as on the command line.
    pub write: &'static str,
    /// GiB touched in a repetition.
    pub gib: f64,
    /// Repetitions.
    pub reps: u32,
    /// State of the frames, as on the command line.
    pub frames: &'static str,
    /// Pages installed, all repetitions together.
    pub pages: u64,
    /// Bytes of each.
    pub page_bytes: u64,
    /// CPU time in the program, seconds, all threads and repetitions.
    pub user_s: f64,
    /// CPU time in the host's kernel, likewise.
    pub system_s: f64,
    /// Wall time, seconds, all repetitions.
    pub wall_s: f64,
    /// Wall time of each repetition, seconds.
    pub walls_s: Vec<f64>,
    /// (Slowest - fastest repetition) / median, by wall time.
    pub spread: f64,
    /// Median over repetitions of wall time per page, nanoseconds.
    pub ns_per_fault: f64,
    /// Faults/s over those of Linux's touches.
    pub ratio_to_linux_touch: Option<f64>,
    /// Faults/s over those of MADV_POPULATE_WRITE.
    pub ratio_to_linux_populate: Option<f64>,
    /// Time over the time to zero the pages one by one.
    pub ratio_to_zeroing: Option<f64>,
    /// Time over the time to zero them in batches.
    pub ratio_to_batched_zeroing: Option<f64>,
}

impl Row {
    /// The word for whose it is.
    pub fn system(&self) -> &'static str {
        if self.is_ours() { "softfault" } else { "linux" }
    }
    /// Returns the name of the work, with the way of zeroing if somebody has chosen one.
    pub fn name(&self) -> String {
        match self.zeroing {
            Chosen::Auto => self.work.name().into(),
            Chosen::Forced(way) => format!("{} ({})", self.work.name(), way.name()),
        }
    }
    /// Whether the row is of ours.
    pub fn is_ours(&self) -> bool {
        matches!(self.work, Work::Ours(_))
    }
    /// Whether it is neither ours nor Linux's.
    pub fn is_yardstick(&self) -> bool {
        matches!(self.work, Work::ZeroSingly | Work::ZeroInBatches)
    }
    /// How many times the other row's faults per second this one has: the median
    /// over repetitions.
    pub fn times_as_fast_as(&self, other: &Row) -> f64 {
        paired(&other.walls_s, &self.walls_s)
    }
    /// Pages installed per second of wall time.
    pub fn faults_per_wall_s(&self) -> f64 {
        self.pages as f64 / self.wall_s
    }
    /// Pages installed per second of CPU time; none if the clock has not moved.
    pub fn faults_per_cpu_s(&self) -> Option<f64> {
        let cpu_s = self.user_s + self.system_s;
        (cpu_s > 0.0).then(|| self.pages as f64 / cpu_s)
    }
}

/// Result of a run.
pub struct Report {
    /// The options as typed.
    pub options: Options,
    /// Release of the host's kernel.
    pub kernel: String,
    /// All rows of the experiment, in the order in which they are printed.
    pub rows: Vec<Row>,
    /// The measurements from which the library chose how to zero.
    pub zeroing: ClearTable,
}

/// Computes the rows.
pub fn rows(options: &Options, sampled: &[Sampled<Job, Sample>]) -> Vec<Row> {
    sampled.iter().map(|own| row(options, own, sampled)).collect()
}

fn row(options: &Options, Sampled { job, samples }: &Sampled<Job, Sample>, all: &[Sampled<Job, Sample>]) -> Row {
    let own = wall_seconds(samples);
    // Zeroing means nothing beside frames that were zero, nor beside another kernel.
    let applies = !options.frames.are_zero() && matches!(job.work, Work::Ours(_));
    let walls = |work: Work| {
        let other = all.iter().find(|of| of.job == Job::beside(work, job.nr_threads)).filter(|_| applies)?;
        Some(wall_seconds(&other.samples))
    };
    let times_faster = |work: Work| walls(work).map(|other| paired(&other, &own));
    let times_longer = |work: Work| walls(work).map(|other| paired(&own, &other));
    let pages = options.nr_pages();
    Row {
        work: job.work,
        nr_threads: job.nr_threads,
        zeroing: job.zeroing,
        write: options.written().name(),
        gib: (pages * options.pages.nr_bytes()) as f64 / (1u64 << 30) as f64,
        reps: options.repeated.reps,
        frames: options.frames.name(),
        pages: pages * u64::from(options.repeated.reps),
        page_bytes: options.pages.nr_bytes(),
        user_s: samples.iter().map(|s| s.user.as_secs_f64()).sum(),
        system_s: samples.iter().map(|s| s.system.as_secs_f64()).sum(),
        wall_s: own.iter().sum(),
        spread: spread(&own),
        ns_per_fault: median(own.iter().copied()) * 1e9 / pages as f64,
        ratio_to_linux_touch: times_faster(Work::LinuxTouch),
        ratio_to_linux_populate: times_faster(Work::LinuxPopulate),
        ratio_to_zeroing: times_longer(Work::ZeroSingly),
        ratio_to_batched_zeroing: times_longer(Work::ZeroInBatches),
        walls_s: own,
    }
}

fn wall_seconds(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(|s| s.wall.as_secs_f64()).collect()
}

#[cfg(test)]
#[path = "stats_tests.rs"]
mod tests;
