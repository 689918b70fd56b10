//! The runs: systems, disciplines, numbers of threads.

use super::options::Options;
use softfault::HugetlbLocking;
use std::fmt;

/// The system that clears the pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// The hosted machine's faults.
    Softfault(HugetlbLocking),
    /// The host's kernel's: a table of mutexes, eight for each CPU.
    Linux,
    /// Nobody faults: as many bytes of our memory are cleared as the host's kernel is assumed to clear its pages.
    LinuxClear,
    /// Nobody faults: as many bytes are cleared as our faults clear them, what is near them last.
    WarmClear,
    /// As many bytes are cleared in the way that is fastest, where nothing follows.
    Clear,
}

impl System {
    /// The word in output.
    pub fn name(self) -> &'static str {
        match self {
            System::Softfault(_) => "softfault",
            System::Linux => "linux",
            System::LinuxClear => "linux-clear",
            System::WarmClear => "warm-clear",
            System::Clear => "clear",
        }
    }
    /// For faults: the row that clears as they do, and does nothing else.
    pub fn own_clear(self) -> Option<System> {
        match self {
            System::Softfault(_) => Some(System::WarmClear),
            System::Linux => Some(System::LinuxClear),
            System::LinuxClear | System::WarmClear | System::Clear => None,
        }
    }
    /// How faults exclude each other.
    pub fn discipline(self) -> &'static str {
        match self {
            System::Softfault(locking) => locking.name(),
            System::Linux => HugetlbLocking::Table.name(),
            System::LinuxClear | System::WarmClear | System::Clear => "none",
        }
    }
}

/// One row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// Whose.
    pub system: System,
    /// Threads.
    pub nr_threads: usize,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {} thread(s)", self.system.name(), self.system.discipline(), self.nr_threads)
    }
}

/// Numbers of threads of the rows.
pub fn thread_counts(max_threads: usize) -> Vec<usize> {
    if max_threads == 1 { vec![1] } else { vec![1, max_threads] }
}

/// All rows, in one group: those of all numbers of threads are divided by each other. To clear as Linux does takes no pool.
pub fn jobs(options: &Options, max_threads: usize, has_linux: bool) -> Vec<Job> {
    let mut systems = Vec::new();
    for locking in &options.locks {
        if !systems.contains(&System::Softfault(*locking)) {
            systems.push(System::Softfault(*locking));
        }
    }
    systems.extend(has_linux.then_some(System::Linux));
    systems.extend(options.with_linux().then_some(System::LinuxClear));
    systems.extend([System::WarmClear, System::Clear]);
    let counts = thread_counts(max_threads);
    systems.into_iter().flat_map(|system| counts.iter().map(move |&nr_threads| Job { system, nr_threads })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::typed;

    #[test]
    fn one_thread_beside_all() {
        let names = |text: &str, max_threads, has_linux| -> Vec<String> {
            jobs(&typed(&format!("parallel-fault {text}")), max_threads, has_linux).iter().map(Job::to_string).collect()
        };
        assert_eq!(names("--locks table,one,table", 1, false).len(), 4);
        let all = names("--against linux", 4, true);
        assert_eq!(all.len(), 2 * 7);
        assert_eq!(names("--against linux", 4, false).len(), 2 * 6, "its way of clearing takes no pool");
        assert_eq!(all[..2], ["softfault, one, 1 thread(s)", "softfault, one, 4 thread(s)"]);
    }
}
