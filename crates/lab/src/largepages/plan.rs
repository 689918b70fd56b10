//! The runs: systems, huge page settings, and the five rows.

use super::options::Options;
use std::fmt;

/// The system that manages the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// The hosted machine.
    Softfault,
    /// The host's kernel.
    Linux,
}

/// Which pages the program has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Thp {
    /// 4 KiB pages only.
    Off,
    /// 2 MiB pages wherever one fits.
    On,
    /// The same, and an idle CPU had zeroed free blocks before the program began.
    OnZeroed,
    /// 2 MiB pages of a pool, promised to the program.
    Hugetlb,
}

impl System {
    /// The word in output.
    pub fn name(self) -> &'static str {
        match self {
            System::Softfault => "softfault",
            System::Linux => "linux",
        }
    }
}

impl Thp {
    /// Those that every Linux has, too.
    pub const BOTH: [Thp; 2] = [Thp::Off, Thp::On];
    /// Whether there are huge pages.
    pub fn is_huge(self) -> bool {
        self != Thp::Off
    }
    /// The word in output.
    pub fn name(self) -> &'static str {
        match self {
            Thp::Off => "off",
            Thp::On => "on",
            Thp::OnZeroed => "on_zeroed",
            Thp::Hugetlb => "hugetlb",
        }
    }
}

/// One run of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// Where.
    pub system: System,
    /// With what pages.
    pub thp: Thp,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, huge pages {}", self.system.name(), self.thp.name())
    }
}

/// All that each repetition runs. Linux has a pool, or not.
pub fn jobs(options: &Options, has_pool: bool) -> Vec<Job> {
    let ours = [Thp::Off, Thp::On, Thp::OnZeroed, Thp::Hugetlb].map(|thp| Job { system: System::Softfault, thp });
    let linux = [Thp::Off, Thp::On, Thp::Hugetlb].map(|thp| Job { system: System::Linux, thp });
    let is_asked = |job: &Job| options.with_linux() && (has_pool || job.thp != Thp::Hugetlb);
    ours.into_iter().chain(linux.into_iter().filter(is_asked)).collect()
}

/// The rows of the program, in its order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Row {
    /// Page faults and stores.
    Fresh,
    /// Stores alone.
    Second,
    /// The same again.
    Third,
    /// One byte in each 4,096.
    Stride,
    /// The same again.
    StrideAgain,
}

/// Rows.
pub const NR_ROWS: usize = 5;

impl Row {
    /// All of them.
    pub const ALL: [Row; NR_ROWS] = [Row::Fresh, Row::Second, Row::Third, Row::Stride, Row::StrideAgain];
    /// The word in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Row::Fresh => "memset_fresh",
            Row::Second => "memset_second",
            Row::Third => "memset_third",
            Row::Stride => "stride",
            Row::StrideAgain => "stride_again",
        }
    }
    /// In the table.
    pub fn label(self) -> &'static str {
        match self {
            Row::Fresh => "memset of fresh memory",
            Row::Second => "second memset",
            Row::Third => "third memset",
            Row::Stride => "a byte in each 4,096 (*)",
            Row::StrideAgain => "the same again (*)",
        }
    }
    /// Returns the line that the program of 2011 printed.
    pub fn name_2011(self) -> &'static str {
        match self {
            Row::Fresh => "memset page fault",
            Row::Second => "memset tlb miss",
            Row::Third => "memset second tlb miss",
            Row::Stride => "random access tlb miss",
            Row::StrideAgain => "random access second tlb miss",
        }
    }
}
