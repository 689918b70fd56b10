//! The rows, and the order in which a repetition runs them.

use super::options::Options;
use crate::bench::Chosen;
use softfault::FaultLocking;
use std::fmt;

/// The work of a row's threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// `handle_fault` on each page.
    Ours(FaultLocking),
    /// The host's Linux, a store to each page.
    LinuxTouch,
    /// The host's Linux, MADV_POPULATE_WRITE.
    LinuxPopulate,
    /// Zeroing page by page: a yardstick, not a row.
    ZeroSingly,
    /// Zeroing as our refills do: a yardstick, not a row.
    ZeroInBatches,
}

/// One row to be: what is done, by how many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// The work.
    pub work: Work,
    /// By how many.
    pub nr_threads: usize,
    /// Who chooses how frames are zeroed; of ours only, else [`Chosen::Auto`].
    pub zeroing: Chosen,
}

impl Job {
    /// Of Linux, or a yardstick.
    pub fn beside(work: Work, nr_threads: usize) -> Job {
        Job { work, nr_threads, zeroing: Chosen::Auto }
    }
}

impl Work {
    /// Whether it is ours under this fault-locking mode.
    pub fn is(self, fault_locking: FaultLocking) -> bool {
        self == Work::Ours(fault_locking)
    }
    /// The word in tables, in JSON and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Work::Ours(fault_locking) => fault_locking.name(),
            Work::LinuxTouch => "touch",
            Work::LinuxPopulate => "populate",
            Work::ZeroSingly => "zeroing one by one",
            Work::ZeroInBatches => "zeroing in batches",
        }
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.work.name(), self.nr_threads)?;
        if self.zeroing == Chosen::Auto { Ok(()) } else { write!(f, " {}", self.zeroing.name()) }
    }
}

/// All that each repetition runs, in the order of the output.
pub fn jobs(options: &Options, thread_counts: &[usize]) -> Vec<Job> {
    let mut works: Vec<(Work, Chosen)> = Vec::new();
    for work in options.fault_locking.iter().map(|&d| Work::Ours(d)) {
        for work in options.zeroing.iter().map(|&zeroing| (work, zeroing)) {
            if !works.contains(&work) {
                works.push(work);
            }
        }
    }
    let linux = [Work::LinuxTouch, Work::LinuxPopulate].into_iter().filter(|_| options.with_linux());
    let beside = linux.chain([Work::ZeroSingly, Work::ZeroInBatches]);
    works.extend(beside.map(|work| (work, Chosen::Auto)));
    let mut jobs = Vec::new();
    for (work, zeroing) in works {
        jobs.extend(thread_counts.iter().map(|&nr_threads| Job { work, nr_threads, zeroing }));
    }
    jobs
}
