//! From samples to medians, ratios and the rows of 2013 beside them.

use super::history::{self, OldRow};
use super::load::{Load, Locks, Sample};
use super::options::{Options, Shape};
use super::plan::{Job, System};
use super::way::Ways;
use crate::bench::{Figure, Sampled, median, paired};
use crate::os;

/// One system, one discipline, one number of threads.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which.
    pub job: Job,
    /// Median of the repetitions, seconds.
    pub seconds: Figure,
    /// Statistics of the mutexes: medians.
    pub locks: Option<Locks>,
    /// Speed relative to one thread.
    pub over_1_thread: Option<f64>,
    /// Time relative to clear by as many threads.
    pub over_clear: Option<f64>,
    /// Time of faults relative to a clear in their own way by as many threads: warm-clear for ours, linux-clear for Linux's.
    pub over_own_clear: Option<f64>,
    /// Relative to Linux with as many threads.
    pub beside_linux: BesideLinux,
    /// How pages were cleared; Linux does not tell.
    pub way: Option<String>,
}

/// Speeds relative to Linux's: of the ratios within each repetition.
#[derive(Clone, Copy, Default, Debug)]
pub struct BesideLinux {
    /// Of our faults, relative to Linux's.
    pub faults: Option<Figure>,
    /// Of a clear, relative to linux-clear. For our faults it is the clear in their way, warm-clear.
    pub clears: Option<Figure>,
    /// The first divided by the second.
    pub quotient: Option<Figure>,
}

/// All rows, and what was run.
pub struct Report {
    /// Of the options.
    pub shape: Shape,
    /// Pages of the pool.
    pub nr_pages: u64,
    /// Bytes of one.
    pub page_bytes: u64,
    /// From one byte that is written to the next.
    pub skip_bytes: u64,
    /// Repetitions.
    pub reps: u32,
    /// Our rows, Linux's, clear.
    pub rows: Vec<Row>,
    /// Those of 2013.
    pub old: Vec<OldRow>,
    /// Why Linux was not measured, though it was asked for.
    pub why_no_linux: Option<String>,
    /// The host's kernel.
    pub kernel: String,
}

fn walls(of: &Sampled<Job, Sample>) -> Vec<f64> {
    of.samples.iter().map(|sample| sample.wall.as_secs_f64()).collect()
}

fn median_locks(samples: &[Sample]) -> Option<Locks> {
    let all: Vec<Locks> = samples.iter().filter_map(|sample| sample.locks).collect();
    let of = |f: fn(&Locks) -> f64| median(all.iter().map(f));
    let first = all.first()?;
    Some(Locks {
        mutexes: first.mutexes,
        acquisitions: of(|l| l.acquisitions as f64) as u64,
        contentions: of(|l| l.contentions as f64) as u64,
        wait_us: of(|l| l.wait_us),
    })
}

/// The ratios of a row with the seconds `own`; `find` has those of other systems with as many threads.
fn beside_linux(system: System, own: &[f64], find: impl Fn(System) -> Option<Vec<f64>>) -> BesideLinux {
    let is_ours = matches!(system, System::Softfault(_));
    let ours = match system {
        System::Softfault(_) => find(System::WarmClear),
        System::WarmClear | System::Clear => Some(own.to_vec()),
        System::Linux | System::LinuxClear => None,
    };
    let over = |linux: Option<Vec<f64>>, ours: &[f64]| -> Option<Vec<f64>> {
        Some(linux?.iter().zip(ours).map(|(linux, ours)| linux / ours).collect())
    };
    let clears = ours.and_then(|ours| over(find(System::LinuxClear), &ours));
    let faults = if is_ours { over(find(System::Linux), own) } else { None };
    let quotient = faults.as_ref().zip(clears.as_ref()).map(|(faults, clears)| Figure::of_ratios(faults, clears));
    BesideLinux { faults: faults.map(Figure::of), clears: clears.map(Figure::of), quotient }
}

impl Report {
    /// Of all samples.
    pub fn new(
        options: &Options,
        load: &Load,
        sampled: &[Sampled<Job, Sample>],
        ways: &Ways,
        why_no_linux: Option<String>,
    ) -> Report {
        let find = |system, nr_threads| sampled.iter().find(|of| of.job == Job { system, nr_threads }).map(walls);
        let rows = sampled.iter().map(|of| {
            let Job { system, nr_threads } = of.job;
            let own = walls(of);
            let one = if nr_threads == 1 { None } else { find(system, 1) };
            let clear = if system == System::Clear { None } else { find(System::Clear, nr_threads) };
            let own_clear = system.own_clear().and_then(|clear| find(clear, nr_threads));
            Row {
                job: of.job,
                seconds: Figure::of(own.iter().copied()),
                locks: median_locks(&of.samples),
                over_1_thread: one.map(|one| paired(&one, &own)),
                over_clear: clear.map(|clear| paired(&own, &clear)),
                over_own_clear: own_clear.map(|clear| paired(&own, &clear)),
                beside_linux: beside_linux(system, &own, |system| find(system, nr_threads)),
                way: match system {
                    System::Softfault(_) | System::WarmClear => Some(ways.faults.to_string()),
                    System::Linux => None,
                    System::LinuxClear => Some(ways.linux.to_string()),
                    System::Clear => ways.limit(nr_threads).map(|way| way.to_string()),
                },
            }
        });
        Report {
            shape: load.shape,
            nr_pages: load.nr_pages,
            page_bytes: load.page_bytes,
            skip_bytes: load.skip_bytes,
            reps: options.repeated.settings().reps,
            rows: rows.collect(),
            old: history::rows(load.shape),
            why_no_linux,
            kernel: os::kernel_release(),
        }
    }

    /// The row of a system.
    pub fn row(&self, system: System, nr_threads: usize) -> Option<&Row> {
        self.rows.iter().find(|row| row.job == Job { system, nr_threads })
    }

    /// Most threads of a row.
    pub fn most_threads(&self) -> usize {
        self.rows.iter().map(|row| row.job.nr_threads).max().unwrap_or(1)
    }

    /// GiB of the memory.
    pub fn gib(&self) -> f64 {
        (self.nr_pages * self.page_bytes) as f64 / (1u64 << 30) as f64
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::linux_clear::LinuxWay;
    use super::super::way::Way;
    use super::*;
    use crate::bench::typed;
    use softfault::HugetlbLocking;
    use softfault::clear::{ClearOrder, Zeroing};
    use std::time::Duration;

    /// Two threads halve the time of the table and of clear, and not that of one mutex.
    pub fn report(shape: &str) -> Report {
        let options: Options = typed(&format!("parallel-fault 2 --shape {shape} --against linux"));
        let load = Load { shape: options.shape, nr_pages: 8, page_bytes: 2 << 20, skip_bytes: 2 << 20, cpus: vec![0] };
        let sampled: Vec<_> = super::super::plan::jobs(&options, 2, true)
            .into_iter()
            .map(|job| {
                let (ms, has_locks) = match job.system {
                    System::Softfault(HugetlbLocking::One) => (200, true),
                    System::Softfault(HugetlbLocking::Table) => (200 / job.nr_threads as u64, true),
                    System::Softfault(_) => (180 / job.nr_threads as u64, false),
                    System::Linux => (400 / job.nr_threads as u64, false),
                    System::LinuxClear => (340 / job.nr_threads as u64, false),
                    System::WarmClear => (170 / job.nr_threads as u64, false),
                    System::Clear => (160 / job.nr_threads as u64, false),
                };
                let locks = Locks { mutexes: 4, acquisitions: 8, contentions: 2, wait_us: 1500.0 };
                let sample = |rep| Sample { wall: Duration::from_millis(ms * rep), locks: has_locks.then_some(locks) };
                Sampled { job, samples: (1..=3).map(sample).collect() }
            })
            .collect();
        let way = |near| Way { how: ClearOrder::Hybrid, near, far: Zeroing::Streaming };
        let limits = vec![(1, way(Zeroing::Stores)), (2, way(Zeroing::Vector))];
        let linux = LinuxWay::assumed(load.page_bytes);
        Report::new(&options, &load, &sampled, &Ways { faults: way(Zeroing::Streaming), limits, linux }, None)
    }

    #[test]
    fn ratios_pair_what_ran_together() {
        let report = report("linear");
        let row = |locking, nr| report.row(System::Softfault(locking), nr).unwrap();
        assert_eq!(row(HugetlbLocking::Table, 1).over_1_thread, None);
        assert_eq!(row(HugetlbLocking::Table, 2).over_1_thread, Some(2.0));
        assert_eq!(row(HugetlbLocking::One, 2).over_1_thread, Some(1.0));
        assert_eq!(row(HugetlbLocking::One, 2).over_clear, Some(2.5));
        assert_eq!(row(HugetlbLocking::Table, 2).seconds.median, 0.2);
        assert!(row(HugetlbLocking::Lockfree, 2).locks.is_none());
        let clear = report.row(System::Clear, 2).unwrap();
        assert_eq!((clear.over_clear, clear.over_own_clear, clear.over_1_thread), (None, None, Some(2.0)));
    }

    /// The times of a repetition are multiples of those of the first one, so no ratio has a spread.
    #[test]
    fn faults_and_clears_are_compared_with_those_of_linux() {
        let report = report("linear");
        let of = |system, nr| report.row(system, nr).unwrap().beside_linux;
        let exact = |median| Some(Figure { median, spread: 0.0 });
        let (table, warm) = (System::Softfault(HugetlbLocking::Table), System::WarmClear);
        assert_eq!((of(table, 2).faults, of(table, 2).clears), (exact(2.0), exact(2.0)));
        assert_eq!((of(table, 1).quotient, of(warm, 1).clears), (exact(1.0), exact(2.0)));
        // 200 / 90 over 170 / 85
        let lockfree = of(System::Softfault(HugetlbLocking::Lockfree), 2).quotient.unwrap();
        assert!((lockfree.median - 10.0 / 9.0).abs() < 1e-9 && lockfree.spread < 1e-9, "{lockfree:?}");
        assert_eq!(of(System::Clear, 1).clears, exact(340.0 / 160.0));
        assert!(of(warm, 1).faults.is_none() && of(warm, 1).quotient.is_none());
        assert!([System::Linux, System::LinuxClear].iter().all(|system| of(*system, 1).clears.is_none()));
        let over_own = |system| report.row(system, 2).unwrap().over_own_clear;
        assert_eq!([System::Linux, table, warm].map(over_own), [Some(200.0 / 170.0), Some(100.0 / 85.0), None]);
    }
}
