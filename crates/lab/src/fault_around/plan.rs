//! The runs: systems, windows, numbers of threads.

use super::options::Options;
use crate::bench::Window;
use softfault::policy::around::AroundOrder;
use std::fmt;

/// The system whose page faults are timed, and the setting of its window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// The hosted machine.
    Softfault,
    /// The host's kernel as it is: its window is 64 KiB.
    Linux,
    /// The host's kernel in a VMA that is cut into pieces of the window's size.
    LinuxCut,
    /// The host's kernel with `fault_around_bytes` set.
    LinuxSet,
    /// Debian's kernel in QEMU, with `fault_around_bytes` set. Its time is instructions.
    LinuxInQemu,
}

impl System {
    /// The word in output.
    pub fn name(self) -> &'static str {
        if self == System::Softfault { "softfault" } else { "linux" }
    }
    /// The setting that determines the window.
    pub fn window(self) -> &'static str {
        match self {
            System::Softfault | System::LinuxSet => "set",
            System::Linux => "default",
            System::LinuxCut => "emulated",
            System::LinuxInQemu => "qemu",
        }
    }
    /// Whether its time is a clock's.
    pub fn is_timed(self) -> bool {
        self != System::LinuxInQemu
    }
    /// Whether rows of both may be divided by each other as windows of one system.
    pub fn is_same(self, other: System) -> bool {
        self.name() == other.name() && (self == System::LinuxInQemu) == (other == System::LinuxInQemu)
    }
}

/// One row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// Whose.
    pub system: System,
    /// Of which size.
    pub window: Window,
    /// Threads.
    pub nr_threads: usize,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, order {}, {} thread(s)", self.system.name(), self.window.name(), self.nr_threads)
    }
}

/// All rows, a group for each number of threads. `is_set`: whether the host's window can be set.
pub fn jobs(options: &Options, nr_cpus: usize, is_set: bool) -> Vec<Vec<Job>> {
    let of = |nr_threads| {
        let windows = options.windows();
        let ours = windows.iter().map(|window| (System::Softfault, *window));
        let linux = windows.iter().filter(|_| options.with_linux());
        let linux = linux.filter_map(|window| Some((linux_with(window.order()?, is_set)?, *window)));
        let in_qemu = windows.iter().filter(|window| options.qemu && nr_threads == 1 && window.order().is_some());
        let in_qemu = in_qemu.map(|window| (System::LinuxInQemu, *window));
        ours.chain(linux).chain(in_qemu).map(|(system, window)| Job { system, window, nr_threads }).collect()
    };
    options.thread_counts(nr_cpus).into_iter().map(of).collect()
}

fn linux_with(order: AroundOrder, is_set: bool) -> Option<System> {
    if is_set {
        return Some(System::LinuxSet);
    }
    match order.cmp(&AroundOrder::DEFAULT) {
        std::cmp::Ordering::Less => Some(System::LinuxCut),
        std::cmp::Ordering::Equal => Some(System::Linux),
        std::cmp::Ordering::Greater => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::typed;

    #[test]
    fn linux_has_the_windows_that_it_can_have() {
        let options: Options = typed("fault-around --orders 0,4,5,adaptive --threads 2,1,2");
        let rows = |is_set| {
            let jobs = jobs(&options, 8, is_set);
            assert_eq!(jobs.iter().map(|group| group[0].nr_threads).collect::<Vec<_>>(), [1, 2]);
            let linux = jobs[0].iter().filter(|job| job.system != System::Softfault);
            linux.map(|job| format!("{} {}", job.window.name(), job.system.window())).collect::<Vec<_>>()
        };
        assert_eq!(rows(false), ["0 emulated", "4 default"]);
        assert_eq!(rows(true), ["0 set", "4 set", "5 set"]);
        let options: Options = typed("fault-around --orders 0,9,adaptive --threads 1,2 --against none --qemu");
        let jobs = jobs(&options, 8, false);
        let nr = |group: usize| jobs[group].iter().filter(|job| job.system == System::LinuxInQemu).count();
        assert_eq!([nr(0), nr(1)], [2, 0]);
    }
}
