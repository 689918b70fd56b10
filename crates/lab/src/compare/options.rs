//! The command line of `softfault compare`.

use super::system::System;
use crate::bench::{Repeated, defaults};
use crate::run::{MachineOptions, RunError};
use clap::{Args, ValueEnum};
use regex_lite::Regex;
use std::ffi::OsString;
use std::path::PathBuf;

/// Without the features that make Linux clear and copy pages a byte at a time,
/// which QEMU emulates a byte at a time: clearing is the same work on both then.
pub const CPU: &str = "max,-erms,-fsrm";
/// With them; what is measured is an artefact of the emulation.
pub const CPU_DEFAULT: &str = "max";
/// Debian's kernel, as it can be booted at all.
const LINUX_BYTES: u64 = 128 << 20;

const HELP: &str = "\
Both systems boot in the same QEMU, with the same CPUs, memory and files: once each in every repetition, in a random
order. First a child touches most of the memory twice, so that the host has provided it. Then PROGRAM runs, timed from
fork to wait4. Its output goes to files in the machine's memory and is printed once, with its exit status, as by
`softfault run`; with --json, to standard error.

Figures are medians over the boots. spread is (slowest - fastest) / median of the wall time. ratio is Linux over the
reference kernel for times, and the reference kernel over Linux for --rate: above 1, the reference kernel is faster.

Linux is Debian's linux-image-cloud-amd64. apt-get downloads it; it is unpacked into $XDG_CACHE_HOME or ~/.cache and
not installed. It boots with init_on_alloc=0 and, by default, mitigations=off. Both systems boot with
transparent_hugepage=never, or as --thp says. --append applies to the reference kernel only.

--icount runs no program. It counts the instructions that each system takes for a fault, a munmap and a fork. The
counts are the same in each run and on any host. A write fault excludes the 512 steps of `rep stosq` that clear the page.

--json: an object per system with `system`, `wall_s`, `user_s`, `system_s`, `minor_faults`, `major_faults`,
`max_rss_kib`, `spread`, `rate` (with --rate), then one with `ratio_wall` and `ratio_rate`; null if the program's exit
statuses differ. With --icount, a key for each count. `value` is the rate, else the wall time; with --icount it is the
write fault. Each object has `experiment` and `unit`, too.

--timeout applies to each boot. Exit codes: the program's, or those of softfault run: 2 for a wrong argument, 250 to 253
for a failure of the machine.

Examples:
  softfault compare -- ./fork_loop 100                      wall, user and system time, faults, peak memory
  softfault compare --cpus 1 --reps 9 --json -- ./pft -t 1
  softfault compare --rate 'average:([0-9]+)' -- ./page_fault1 -t 2 -s 1
  softfault compare --thp always --cpu-default --root ./tree -- /bin/sh /script.sh
  softfault compare --icount";

/// When either system uses huge pages.
#[derive(Clone, Copy, ValueEnum, Debug)]
pub enum HugePages {
    Never,
    Always,
    Madvise,
}

/// Linux's mitigations of the CPU's leaks.
#[derive(Clone, Copy, ValueEnum, Debug)]
pub enum Mitigations {
    Off,
    Auto,
}

/// Time a program on the reference kernel and on Debian's Linux, in the same QEMU
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP, mut_args(defaults("5", "1", "every boot, or every count")))]
pub struct Options {
    #[command(flatten)]
    pub machine: MachineOptions,

    /// Runs of the program in each boot; the median counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub inner: u32,

    /// Debian package of another Linux kernel
    #[arg(long, value_name = "FILE.deb")]
    pub linux: Option<PathBuf>,

    /// Transparent huge pages of both systems
    #[arg(long, value_name = "WHEN", default_value = "never")]
    pub thp: HugePages,

    /// Linux's mitigations of CPU vulnerabilities
    #[arg(long, value_name = "HOW", default_value = "off")]
    pub mitigations: Mitigations,

    /// QEMU's CPU model for both systems
    #[arg(long, value_name = "MODEL", default_value = CPU)]
    pub cpu: String,

    /// Use CPU model `max`: QEMU then emulates Linux's page clearing a byte at a time, an artefact that the output names
    #[arg(long, conflicts_with = "cpu")]
    pub cpu_default: bool,

    /// Boot only this system
    #[arg(long, value_name = "SYSTEM")]
    pub only: Option<System>,

    /// Regular expression for a rate in the program's output: the first group of the last match
    #[arg(long, value_name = "REGEX", value_parser = parse_rate)]
    pub rate: Option<Regex>,

    /// Count instructions of faults, munmap and fork instead of timing a program
    #[arg(long, conflicts_with_all = ["command", "rate", "inner", "reps", "files", "root"])]
    pub icount: bool,

    #[command(flatten)]
    pub repeated: Repeated,

    /// The program (a path in the machine or on this host) and its arguments
    #[arg(last = true, required_unless_present = "icount", value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

fn parse_rate(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|e| format!("should be a regular expression such as 'average:([0-9]+)': {e}"))
}

impl Options {
    /// The CPU model for both.
    pub fn cpu(&self) -> &str {
        if self.cpu_default { CPU_DEFAULT } else { &self.cpu }
    }
    /// Whether a fault on Linux costs what it costs on this emulation alone.
    pub fn is_artefact(&self) -> bool {
        !self.cpu().split(',').any(|feature| feature == "-erms")
    }
    /// CPUs of either machine: counting needs one.
    pub fn nr_cpus(&self) -> Result<u32, RunError> {
        match (self.icount, self.machine.cpus) {
            (true, None | Some(1)) => Ok(1),
            (true, Some(n)) => Err(RunError::Argument(format!("--cpus {n}: should be 1 with --icount"))),
            (false, _) => Ok(self.machine.nr_cpus()),
        }
    }
    /// The systems to boot.
    pub fn systems(&self) -> Vec<System> {
        match self.only {
            Some(system) => vec![system],
            None => vec![System::Softfault, System::Linux],
        }
    }
    /// Whether there is room for what is in the archive, under either system.
    pub fn check_memory(&self, archive_bytes: u64) -> Result<(), RunError> {
        let kernel = if self.only == Some(System::Softfault) { crate::run::LEAST_BYTES } else { LINUX_BYTES };
        self.machine.check_memory(kernel, archive_bytes)
    }
    /// The word for `--thp`, the same on both.
    pub fn huge_pages(&self) -> &'static str {
        match self.thp {
            HugePages::Never => "never",
            HugePages::Always => "always",
            HugePages::Madvise => "madvise",
        }
    }
    /// The reference kernel's command line; what was asked for comes last, and so
    /// prevails.
    pub fn softfault_append(&self) -> String {
        let thp = format!("transparent_hugepage={}", self.huge_pages());
        if self.machine.append.is_empty() { thp } else { format!("{thp} {}", self.machine.append) }
    }
    /// Linux's command line.
    pub fn linux_append(&self) -> String {
        let thp = self.huge_pages();
        let mitigations = match self.mitigations {
            Mitigations::Off => "off",
            Mitigations::Auto => "auto",
        };
        let quiet = if self.machine.verbose { "" } else { " quiet" };
        // On a busy host the emulated timer may come late; Linux would refuse to boot.
        let always = "console=ttyS0 panic=-1 no_timer_check init_on_alloc=0";
        format!("{always} mitigations={mitigations} transparent_hugepage={thp}{quiet}")
    }
}
