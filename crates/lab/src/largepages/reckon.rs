//! From samples to medians, spreads and ratios.

use super::history::Then;
use super::options::Options;
use super::ours::Arenas;
use super::passes::Passes;
use super::plan::{Job, NR_ROWS, Row, System, Thp};
use super::program::Sample;
use crate::bench::{Figure, Sampled};
use crate::os;
use crate::stage::PAGE_BYTES;

/// One system with one setting.
#[derive(Clone, Debug)]
pub struct Column {
    /// Which.
    pub job: Job,
    /// Of each row, over the repetitions: median seconds, (slowest - fastest) / median.
    pub rows: [Figure; NR_ROWS],
    /// Which part of the memory was mapped by huge pages, at least.
    pub huge_share: f64,
    /// Seconds of the first row, by repetition.
    firsts_s: Vec<f64>,
}

/// All that a run has found.
pub struct Report {
    /// GiB.
    pub gib: f64,
    /// Repetitions.
    pub reps: u32,
    /// Entries of the emulated TLB.
    pub tlb_entries: u32,
    /// Release of the host's kernel.
    pub kernel: String,
    /// Ours, then Linux's.
    pub columns: Vec<Column>,
    /// Through the emulated TLB.
    pub passes: Vec<Passes>,
    /// Which part of the arena for huge pages the host maps by such.
    pub host_huge_share: f64,
    /// In which order our huge pages are cleared.
    pub clear_order: &'static str,
    /// Why the host's pool was left out.
    pub why_no_pool: Option<String>,
}

/// Two of our columns that are looked at side by side.
pub struct Comparison {
    /// The word in JSON.
    pub key: &'static str,
    /// Ours.
    pub own: Thp,
    /// The column beside it.
    pub other: Job,
    /// In words.
    pub text: &'static str,
}

/// The ratios that are told.
pub const COMPARISONS: [Comparison; 4] = [
    Comparison {
        key: "ratio_to_linux_on",
        own: Thp::On,
        other: Job { system: System::Linux, thp: Thp::On },
        text: "huge pages: {} times as fast as this Linux with huge pages (goal: 1.5)",
    },
    Comparison {
        key: "ratio_to_off",
        own: Thp::On,
        other: Job { system: System::Softfault, thp: Thp::Off },
        text: "huge pages: {} times as fast as ours without",
    },
    Comparison {
        key: "ratio_zeroed_to_linux_on",
        own: Thp::OnZeroed,
        other: Job { system: System::Linux, thp: Thp::On },
        text: "huge pages that an idle CPU had zeroed before: {} times as fast as this Linux with huge pages",
    },
    Comparison {
        key: "ratio_hugetlb_to_linux",
        own: Thp::Hugetlb,
        other: Job { system: System::Linux, thp: Thp::Hugetlb },
        text: "pages of a pool: {} times as fast as this Linux with pages of its pool",
    },
];

impl Report {
    /// Computes the columns.
    pub fn new(
        options: &Options,
        nr_pages: u64,
        sampled: &[Sampled<Job, Sample>],
        (passes, why_no_pool): (Vec<Passes>, Option<String>),
        arenas: &Arenas,
    ) -> Report {
        Report {
            gib: (nr_pages * PAGE_BYTES) as f64 / (1u64 << 30) as f64,
            reps: options.repeated.reps,
            tlb_entries: options.tlb_entries,
            kernel: os::kernel_release(),
            columns: sampled.iter().map(|of| column(of.job, &of.samples)).collect(),
            passes,
            host_huge_share: arenas.host_huge_share(),
            clear_order: arenas.clear_order().name(),
            why_no_pool,
        }
    }

    /// One system with one setting, if it was run.
    pub fn column(&self, system: System, thp: Thp) -> Option<&Column> {
        self.columns.iter().find(|column| column.job == Job { system, thp })
    }

    /// How many times as fast as the other our memset of fresh memory is.
    pub fn times_as_fast_as(&self, comparison: &Comparison) -> Option<Figure> {
        let Comparison { own, other, .. } = *comparison;
        let (own, other) = (self.column(System::Softfault, own)?, self.column(other.system, other.thp)?);
        Some(Figure::of_ratios(&other.firsts_s, &own.firsts_s))
    }

    /// How many times fewer misses the first pass has with huge pages.
    pub fn times_fewer_misses(&self) -> Option<f64> {
        let of = |thp| self.passes.iter().find(|p| p.thp == thp).map(|p| p.cold.misses as f64);
        Some(of(Thp::Off)? / of(Thp::On)?)
    }

    /// Seconds in 2011 with the same setting, for [`GIB_2011`](super::history::GIB_2011).
    pub fn seconds_2011(row: Row, thp: Thp) -> f64 {
        Then::with(thp).seconds()[row as usize]
    }
}

fn column(job: Job, samples: &[Sample]) -> Column {
    let seconds = |row: usize| -> Vec<f64> { samples.iter().map(|s| s.times[row].as_secs_f64()).collect() };
    Column {
        job,
        rows: std::array::from_fn(|row| Figure::of(seconds(row))),
        huge_share: samples.iter().map(|s| s.huge_share).fold(1.0, f64::min),
        firsts_s: seconds(Row::Fresh as usize),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use softfault_host::TlbStats;
    use std::time::Duration;

    /// Two repetitions, the second one twice as slow.
    pub fn report() -> Report {
        let jobs: Vec<Job> = [System::Softfault, System::Linux]
            .into_iter()
            .flat_map(|system| Thp::BOTH.map(|thp| Job { system, thp }))
            .chain([Thp::OnZeroed, Thp::Hugetlb].map(|thp| Job { system: System::Softfault, thp }))
            .collect();
        let sample = |first_ms: u64, huge_share: f64| Sample {
            times: std::array::from_fn(|row| Duration::from_millis(if row == 0 { first_ms } else { 10 })),
            huge_share,
        };
        let samples: Vec<Vec<Sample>> = [(40, 0.0), (20, 1.0), (80, 0.0), (60, 0.5), (15, 1.0), (18, 1.0)]
            .map(|(ms, share)| vec![sample(ms, share), sample(2 * ms, share / 2.0)])
            .into();
        let stats = |misses| {
            let mut stats = TlbStats::default();
            (stats.lookups, stats.misses, stats.loads) = (1024, misses, 4 * misses);
            stats
        };
        let passes = vec![
            Passes { thp: Thp::Off, cold: stats(1024), second: stats(1000) },
            Passes { thp: Thp::On, cold: stats(2), second: stats(0) },
        ];
        Report {
            gib: 0.5,
            reps: 2,
            tlb_entries: 1536,
            kernel: "6.0".into(),
            columns: jobs.iter().zip(&samples).map(|(job, samples)| column(*job, samples)).collect(),
            passes,
            host_huge_share: 1.0,
            clear_order: "forward",
            why_no_pool: Some("no root".into()),
        }
    }

    #[test]
    fn ratios_pair_what_belongs_to_one_repetition() {
        let report = report();
        let ratio = report.times_as_fast_as(&COMPARISONS[0]).unwrap();
        assert_eq!((ratio.median, ratio.spread), (3.0, 0.0), "although the times differ by a factor of 2");
        assert_eq!(report.times_as_fast_as(&COMPARISONS[1]).unwrap().median, 2.0);
        assert_eq!(report.times_fewer_misses(), Some(512.0));
        let column = report.column(System::Linux, Thp::On).unwrap();
        assert_eq!((column.rows[0].median, column.huge_share), (0.09, 0.25), "the least share is told");
        assert!(column.rows[0].spread > 0.6 && column.rows[1].spread == 0.0);
    }
}
