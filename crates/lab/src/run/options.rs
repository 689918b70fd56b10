//! What may be typed after `softfault run`, and of it what other commands that boot
//! a machine take, too.

use super::RunError;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

const MIB: u64 = 1 << 20;
const DEFAULT_CPUS: u32 = 2;
/// Kernel, heap and tables, with room for a small program.
pub const LEAST_BYTES: u64 = 32 * MIB;
/// What the kernel's direct map reaches.
const MOST_BYTES: u64 = 512 << 30;

const HELP: &str = "\
Exit codes: the program's own status; 128+N if signal N killed it; and
  1    the host or QEMU refused something
  2    an argument is wrong, or the program cannot be run
  250  the kernel panicked
  251  --timeout was over
  252  the machine reset itself (a triple fault)
  253  QEMU is not installed (Debian package qemu-system-x86)
A program may exit with these too; a line on standard error tells them apart.

Examples:
  softfault run -- ./hello                       a static program of this host's
  softfault run --cpus 2 --mem 1G --stats -- ./pft -t 2
  softfault run --file data.txt:/etc/data --file ./hello -- /hello world
  softfault run --append 'fault_locking=split transparent_hugepage=madvise' -- ./hello";

/// The machine and what is in it: for every command that boots one.
#[derive(Args, Clone, Debug)]
pub struct MachineOptions {
    /// CPUs of the machine, 1 to 64 [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub cpus: Option<u32>,

    /// Memory of the machine: a number of bytes, or with K, M or G behind it
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = parse_size)]
    pub mem: u64,

    /// A file of the host's to put into the machine, by default at /NAME; may be repeated
    #[arg(long = "file", value_name = "SRC[:DST]")]
    pub files: Vec<String>,

    /// A folder of the host's whose content becomes the machine's file system; `--file` adds to it. Sockets, devices
    /// and what cannot be read are left out
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// Parameters of the reference kernel: transparent_hugepage=always|madvise|never|0|2 (0 is never, for good; 2 is
    /// madvise), thp_cow=split|copy (what a write to a shared huge page copies: 4 KiB or all),
    /// fault_locking=global|fastpath2004|split|lockfree, delays=MICROSECONDS (signals and wake-ups take longer by chance: a
    /// test of their order), and, to see how a failure looks, selftest=panic|reset|user-access
    #[arg(long, value_name = "PARAMS", default_value = "")]
    pub append: String,

    /// Give up after so many seconds
    #[arg(long, value_name = "SECS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,

    /// Print the kernel's log and QEMU's command line as they come, on standard error
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

    /// The program, as it is called inside the machine or on this host, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// Bytes from `512M` and the like.
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
