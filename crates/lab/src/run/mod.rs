//! `softfault run`: boots the reference kernel in QEMU with some files and runs one
//! program on it. Its output, error output and exit status are the program's.
//!
//! `options` is the command line. `files` and `host_folder` collect the machine's files,
//! `archive` packs them, `qemu` starts and ends the machine, `packets` parses its output,
//! and `verdict` interprets its end. `softfault compare` uses them, too.

pub mod archive;
pub mod content;
pub mod files;
mod host_folder;
pub mod image;
mod options;
#[path = "../../../kernel/src/port/packet.rs"]
mod packet;
pub mod packets;
pub mod qemu;
mod room;
pub mod scratch;
pub mod verdict;

pub use options::{LEAST_BYTES, MachineOptions, RunOptions};

use files::Payload;
use qemu::{Machine, Output};
use scratch::Scratch;
use std::fmt;
use std::process::ExitCode;
use verdict::EXIT_NO_QEMU;

/// QEMU's model of the CPU. The kernel requires SMEP and SMAP. It saves no state that needs XSAVE, so CR4.OSXSAVE
/// and CR4.PKE are off: without the bits of CPUID no program believes in what would raise SIGILL. Nothing but the
/// model can take them away, since QEMU's own code has no CPUID faulting.
const CPU: &str = "max,-xsave,-xsaveopt,-xsavec,-xgetbv1,-xsaves,-avx,-avx2,-f16c,-fma,-vaes,-vpclmulqdq,-pku";

/// Why nothing was run.
#[derive(Debug)]
pub enum RunError {
    /// An argument is wrong.
    Argument(String),
    /// QEMU is not installed.
    NoQemu,
    /// The host refused something.
    Host(String),
    /// The machine, or the program in it, did not come to its end.
    Machine {
        /// The exit code for the caller.
        code: u8,
        /// The reason.
        why: String,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Argument(text) | RunError::Host(text) | RunError::Machine { why: text, .. } => f.write_str(text),
            RunError::NoQemu => f.write_str(
                "qemu-system-x86_64: not found; install the Debian package qemu-system-x86 \
                 (apt-get install qemu-system-x86)",
            ),
        }
    }
}

impl RunError {
    /// Returns the exit code of the command.
    pub fn exit_code(&self) -> u8 {
        match self {
            RunError::Argument(_) => 2,
            RunError::NoQemu => EXIT_NO_QEMU,
            RunError::Host(_) => 1,
            RunError::Machine { code, .. } => *code,
        }
    }
}

/// Runs it; the exit code is the program's, or one of `verdict`.
pub fn main(options: &RunOptions) -> ExitCode {
    let code = run(options).unwrap_or_else(|error| {
        eprintln!("softfault run: {error}");
        error.exit_code()
    });
    ExitCode::from(code)
}

/// The reference kernel with an archive, on the machine that the options ask for;
/// `params` go before theirs.
pub fn reference_machine(
    given: &MachineOptions,
    scratch: &Scratch,
    archive: &[u8],
    params: &str,
) -> Result<Machine, RunError> {
    Ok(Machine {
        nr_cpus: given.nr_cpus(),
        mem_bytes: given.mem,
        cpu: CPU.to_owned(),
        counted: false,
        kernel: scratch.put("kernel", image::KERNEL)?,
        archive: scratch.put("archive", archive)?,
        append: format!("{params}{}", given.append),
        serial: None,
        keys: None,
        timeout_s: given.timeout,
        verbose: given.verbose,
    })
}

fn run(options: &RunOptions) -> Result<u8, RunError> {
    let given = &options.machine;
    let payload = Payload::collect(given, &options.command)?;
    let archive = archive::pack(&payload);
    given.check_memory(LEAST_BYTES, archive.len() as u64)?;
    let scratch = Scratch::new()?;
    let stats = if options.stats { "stats " } else { "" };
    let machine = reference_machine(given, &scratch, &archive, stats)?;
    let outcome = machine.run(Output::PassedOn)?;
    let verdict = verdict::judge(&outcome, given.timeout);
    if let Some(why) = verdict.why {
        if verdict.log_tells {
            if !given.verbose {
                eprint!("{}", String::from_utf8_lossy(&outcome.log));
            }
            eprint!("{}", outcome.qemu_errors);
        }
        eprintln!("softfault run: {why}");
    }
    Ok(verdict.code)
}
