//! The command line of `softfault run`, and the options that all commands which boot
//! a machine share.

use super::RunError;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

const MIB: u64 = 1 << 20;
const DEFAULT_CPUS: u32 = 2;
/// Kernel, heap and tables, with room for a small program.
pub const LEAST_BYTES: u64 = 32 * MIB;
/// Memory that the kernel's direct map reaches.
const MOST_BYTES: u64 = 512 << 30;

const HELP: &str = "\
Exit codes: the program's status; 128+N if signal N killed it; and
  1    the host or QEMU refused something
  2    an argument is wrong, or the program cannot be run
  250  the kernel panicked
  251  --timeout expired
  252  the machine reset itself (a triple fault)
  253  QEMU is not installed (Debian package qemu-system-x86)
A program can exit with these codes too; a line on standard error distinguishes the cases.

Examples:
  softfault run -- ./hello                       a static program on this host
  softfault run --cpus 2 --mem 1G --stats -- ./pft -t 2
  softfault run --file data.txt:/etc/data --file ./hello -- /hello world
  softfault run --append 'fault_locking=split transparent_hugepage=madvise' -- ./hello";

/// The machine and its files, for each command that boots one.
#[derive(Args, Clone, Debug)]
pub struct MachineOptions {
    /// CPUs of the machine, 1 to 64 [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub cpus: Option<u32>,

    /// Memory of the machine: bytes, or a number with K, M or G
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = parse_size)]
    pub mem: u64,

    /// Copy a file of the host into the machine, by default to /NAME; repeatable
    #[arg(long = "file", value_name = "SRC[:DST]")]
    pub files: Vec<String>,

    /// Use a folder of the host as the machine's file system, with permissions, owners and times; `--file` adds to it.
    /// Sockets, devices and unreadable files are left out
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// Parameters of the reference kernel: transparent_hugepage=always|madvise|never|0|2 (0 is never, and final; 2 is
    /// madvise), thp_cow=split|copy (a write to a shared huge page copies 4 KiB or all of it),
    /// fault_locking=global|fastpath2004|split|lockfree, hugetlb_locking=one|table|lockfree, delays=MICROSECONDS (random delays of signals and
    /// wake-ups, to test their order), and selftest=panic|reset|nmi|user-access, which causes that failure
    #[arg(long, value_name = "PARAMS", default_value = "")]
    pub append: String,

    /// Stop after this many seconds
    #[arg(long, value_name = "SECS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,

    /// Print the kernel's log and QEMU's command line on standard error
    #[arg(long, short)]
    pub verbose: bool,
}

/// Run a static Linux program on the reference kernel, in QEMU
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub struct RunOptions {
    #[command(flatten)]
    pub machine: MachineOptions,

    /// Print counters (vmstat) and mappings at the program's exit, on standard error
    #[arg(long)]
    pub stats: bool,

    /// The program (a path in the machine or on this host) and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// Parses a number of bytes such as `512M`.
fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("should be a size such as 512M or 2G, from {}M to 512G", LEAST_BYTES / MIB);
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(wrong)?;
    if (LEAST_BYTES..=MOST_BYTES).contains(&bytes) { Ok(bytes) } else { Err(wrong()) }
}

impl MachineOptions {
    /// Its CPUs.
    pub fn nr_cpus(&self) -> u32 {
        self.cpus.unwrap_or(DEFAULT_CPUS)
    }
    /// Whether the machine has room for the archive and what is loaded from it,
    /// beside a kernel that takes so much.
    pub fn check_memory(&self, kernel_bytes: u64, archive_bytes: u64) -> Result<(), RunError> {
        let needed = kernel_bytes + 2 * archive_bytes;
        if self.mem >= needed {
            return Ok(());
        }
        let mib = |bytes: u64| bytes.div_ceil(MIB);
        Err(RunError::Argument(format!(
            "--mem {}M: too little for these files; should be at least {}M",
            mib(self.mem),
            mib(needed)
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("512M"), Ok(512 * MIB));
        assert_eq!(parse_size("2g"), Ok(2048 * MIB));
        assert_eq!(parse_size("67108864"), Ok(64 * MIB));
        for wrong in ["", "M", "-1G", "12", "1.5G", "99999999999999G", "1T", "513G", "ä"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
