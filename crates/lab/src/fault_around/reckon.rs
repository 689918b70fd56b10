//! From samples to medians, ratios and the rows of 2014 beside them.

use super::history::{self, OldRow};
use super::load::{Load, Sample};
use super::options::Options;
use super::pattern::Pattern;
use super::plan::{Job, System};
use crate::bench::{Figure, PAGE_BYTES, Sampled, Window, median, paired};
use crate::os;
use softfault::policy::around::{FaultAround, MOST_ORDER};

/// One system with one window and a number of threads.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which.
    pub job: Job,
    /// Median of the first passes, seconds.
    pub wall_s: Figure,
    /// Median of the second passes, seconds.
    pub resident_s: f64,
    /// Median over the repetitions.
    pub minor_faults: u64,
    /// Likewise.
    pub major_faults: u64,
    /// Likewise.
    pub pages_mapped: u64,
    /// All threads together.
    pub pages_touched: u64,
    /// The time of faults for each page that a thread touched. None where it cannot be told from none: loads hide the faults.
    pub ns_per_page: Option<f64>,
    /// Linux's time for faults over ours, of the same order; over that of adaptive windows, with its default.
    pub ratio_to_linux: Option<f64>,
    /// Over those of the same system and as many threads.
    pub faults_over_order_0: Option<f64>,
    /// Likewise.
    pub faults_over_order_9: Option<f64>,
    /// The first pass, likewise.
    pub time_over_order_0: Option<f64>,
    /// As many threads and the same order.
    pub in_2014: Option<OldRow>,
}

/// All that a run has found.
pub struct Report {
    /// In which order the file was read.
    pub pattern: Pattern,
    /// The file.
    pub gib: f64,
    /// KiB of a folio.
    pub folio_kib: u64,
    /// How many times a thread mapped it.
    pub nr_rounds: u64,
    /// Repetitions.
    pub reps: u32,
    /// Release of the host's kernel.
    pub kernel: String,
    /// The kernel that ran in QEMU, if one did.
    pub kernel_in_qemu: Option<String>,
    /// Whether Linux ran, too.
    pub with_linux: bool,
    /// By threads, ours first.
    pub rows: Vec<Row>,
    /// The whole table of 2014.
    pub old: Vec<OldRow>,
}

type Samples<'a> = &'a [Sampled<Job, Sample>];

impl Report {
    /// Computes the rows.
    pub fn new(options: &Options, load: &Load, sampled: Samples<'_>) -> Report {
        let old = history::rows(load.pattern);
        Report {
            pattern: load.pattern,
            gib: (load.nr_pages * PAGE_BYTES) as f64 / (1u64 << 30) as f64,
            folio_kib: load.folios.kib(),
            nr_rounds: load.nr_rounds(),
            reps: options.repeated.settings().reps,
            kernel: os::kernel_release(),
            kernel_in_qemu: None,
            with_linux: options.with_linux(),
            rows: sampled.iter().map(|of| row(load, of, sampled, &old)).collect(),
            old,
        }
    }

    /// Ours with that window.
    pub fn ours(&self, window: &str, nr_threads: usize) -> Option<&Row> {
        let is_meant = |row: &&Row| row.job.system == System::Softfault && row.job.nr_threads == nr_threads;
        self.rows.iter().filter(is_meant).find(|row| row.job.window.name() == window)
    }

    /// Numbers of threads.
    pub fn thread_counts(&self) -> Vec<usize> {
        let mut counts: Vec<usize> = self.rows.iter().map(|row| row.job.nr_threads).collect();
        counts.dedup();
        counts
    }
}

fn row(load: &Load, of: &Sampled<Job, Sample>, all: Samples<'_>, old: &[OldRow]) -> Row {
    let Sampled { job, samples } = of;
    let job = *job;
    let nr = |count: fn(&Sample) -> u64| median(samples.iter().map(|s| count(s) as f64)) as u64;
    let faults = |samples: &[Sample]| median(samples.iter().map(|s| s.minor_faults as f64));
    let with = |wanted: &dyn Fn(&Job) -> bool| {
        let found = all.iter().find(|other| other.job.nr_threads == job.nr_threads && wanted(&other.job));
        found.map(|other| other.samples.as_slice())
    };
    // The same system: Linux's rows differ in what gives them their windows.
    let of_order = |order: u8| {
        with(&|other| {
            let is_order = other.window.order().is_some_and(|of| of.get() == order);
            is_order && other.system.is_same(job.system) && other.window != job.window
        })
    };
    let is_linux = |other: &Job| other.system != System::Softfault && other.system.is_timed();
    // Adaptive windows are ours alone: beside them stands Linux as it is.
    let is_beside = |other: &Job| match job.window.order() {
        Some(_) => other.window == job.window,
        None => other.system == System::Linux,
    };
    let linux = with(&|other| is_linux(other) && is_beside(other));
    let each = load.nr_touched_each();
    Row {
        job,
        wall_s: Figure::of(walls(samples)),
        resident_s: median(samples.iter().map(|s| s.resident.as_secs_f64())),
        minor_faults: nr(|s| s.minor_faults),
        major_faults: nr(|s| s.major_faults),
        pages_mapped: nr(|s| s.pages_mapped),
        pages_touched: each * job.nr_threads as u64,
        ns_per_page: costs(samples).map(|costs| median(costs.iter().map(|s| s * 1e9 / each as f64))),
        ratio_to_linux: linux
            .filter(|_| job.system == System::Softfault)
            .and_then(|linux| Some(ratio(&costs(linux)?, &costs(samples)?))),
        faults_over_order_0: of_order(0).map(|other| faults(samples) / faults(other)),
        faults_over_order_9: of_order(MOST_ORDER).map(|other| faults(samples) / faults(other)),
        time_over_order_0: of_order(0).map(|other| paired(&walls(samples), &walls(other))),
        in_2014: old.iter().copied().find(|old| is_as_in_2014(&job, old)),
    }
}

fn is_as_in_2014(job: &Job, old: &OldRow) -> bool {
    let Window(FaultAround::Fixed(order)) = job.window else { return false };
    (old.nr_threads, old.order) == (job.nr_threads, order.get())
}

fn walls(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(|s| s.wall.as_secs_f64()).collect()
}

/// The times of faults in all repetitions, sorted, in seconds, if their median is above zero with 95 % certainty: by the rank of the
/// lower end of its interval, whatever the distribution. Of few repetitions all must show it.
fn costs(samples: &[Sample]) -> Option<Vec<f64>> {
    let mut costs: Vec<f64> = samples.iter().map(Sample::faults_s).collect();
    costs.sort_by(f64::total_cmp);
    let nr = costs.len() as f64;
    let low = (nr / 2.0 - nr.sqrt()).max(0.0) as usize;
    costs.get(low).is_some_and(|cost| *cost > 0.0).then_some(costs)
}

/// The ratio of the medians: a pair of passes shows less than what one of them varies by.
fn ratio(over: &[f64], under: &[f64]) -> f64 {
    median(over.iter().copied()) / median(under.iter().copied())
}

#[cfg(test)]
pub mod tests {
    use super::super::options::{Age, Folios};
    use super::*;
    use crate::bench::typed;
    use std::time::Duration;

    fn sample(wall_ms: u64, minor_faults: u64) -> Sample {
        Sample {
            wall: Duration::from_millis(wall_ms),
            resident: Duration::from_millis(10),
            minor_faults,
            major_faults: 0,
            pages_mapped: 1024,
        }
    }

    /// A file of 2 tables, two repetitions; the host is ten times slower in the second.
    pub fn report() -> Report {
        let options: Options = typed("fault-around --size 0.004 --threads 8 --orders 0,1,4,9,adaptive --reps 2");
        let load = Load {
            pattern: Pattern::Sparse,
            nr_pages: 1024,
            folios: Folios::Small,
            neighbours: Age::Young,
            cpus: vec![0],
        };
        let jobs = super::super::plan::jobs(&options, 1, false).remove(0);
        let sampled: Vec<_> = jobs
            .into_iter()
            .map(|job| {
                let (ms, faults) = match (job.system, job.window.name().as_str()) {
                    (System::Softfault, "0") => (20, 1000),
                    (System::Softfault, "4") => (15, 60),
                    (System::Softfault, "9") => (12, 10),
                    (System::Softfault, _) => (13, 11),
                    (_, "4") => (60, 62),
                    _ => (110, 1001),
                };
                Sampled { job, samples: vec![sample(ms, faults), sample(10 + (ms - 10) * 10, faults)] }
            })
            .collect();
        Report::new(&options, &load, &sampled)
    }

    #[test]
    fn ratios_are_of_medians() {
        let report = report();
        let row = |window| report.ours(window, 8).unwrap();
        let is_about = |ratio: Option<f64>, wanted: f64| ratio.is_some_and(|ratio| (ratio / wanted - 1.0).abs() < 1e-9);
        assert!(is_about(row("4").ratio_to_linux, 10.0), "50 ms over 5");
        assert!(is_about(row("adaptive").ratio_to_linux, 50.0 / 3.0), "over 3, beside Linux's default");
        assert_eq!(row("9").ratio_to_linux, None, "Linux has no such window");
        assert_eq!((row("4").faults_over_order_0, row("adaptive").faults_over_order_9), (Some(0.06), Some(1.1)));
        assert_eq!((row("0").faults_over_order_0, row("9").faults_over_order_9), (None, None));
        assert_eq!(row("4").pages_touched, 8 * 2 * 64);
        assert_eq!(row("0").ns_per_page, Some(55e6 / 128.0));
        assert_eq!(costs(&[sample(11, 1), sample(10, 1)]), None, "the loads hide it");
        let mut samples = vec![sample(11, 1); 9];
        samples.push(sample(9, 1));
        assert_eq!(costs(&samples).map(|costs| costs.len()), Some(10), "one of ten");
        samples.extend(vec![sample(9, 1); 2]);
        assert_eq!(costs(&samples), None, "three of twelve");
        samples.extend(vec![sample(12, 1); 90]);
        samples.extend(vec![sample(8, 1); 30]);
        assert!(costs(&samples).is_some(), "many repetitions tell, though passes vary by more than the faults cost");
        assert_eq!(ratio(&[4.0, -1.0, 9.0], &[2.0, 1.0, 3.0]), 2.0);
        assert_eq!(row("4").in_2014.map(|old| old.minor_faults), Some(65_620));
        assert_eq!(report.thread_counts(), [8]);
    }
}
