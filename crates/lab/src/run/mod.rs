//! `softfault run`: boots the reference kernel in QEMU with some files, runs one
//! program on it, and is to its caller as the program itself would be: output,
//! error output, exit status.
//!
//! `options` says what may be typed, `files` collects what goes into the
//! machine, `archive` packs it, `qemu` starts and ends the machine, `packets`
//! takes its output apart.

mod archive;
mod files;
mod image;
mod options;
mod packets;
mod qemu;
mod scratch;

pub use options::RunOptions;

use files::Payload;
use packets::End;
use qemu::Outcome;
use std::fmt;
use std::process::ExitCode;

/// The kernel gave up.
pub const EXIT_PANIC: u8 = 250;
/// `--timeout` was over.
pub const EXIT_TIMEOUT: u8 = 251;
/// The machine reset itself: a triple fault.
pub const EXIT_TRIPLE_FAULT: u8 = 252;
/// There is no QEMU.
pub const EXIT_NO_QEMU: u8 = 253;

/// Why nothing was run.
#[derive(Debug)]
pub enum RunError {
    /// An argument is wrong.
    Argument(String),
    /// QEMU is not installed.
    NoQemu,
    /// The host refused something.
    Host(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Argument(text) | RunError::Host(text) => f.write_str(text),
            RunError::NoQemu => f.write_str(
                "qemu-system-x86_64: not found; install the Debian package qemu-system-x86 \
                 (apt-get install qemu-system-x86)",
            ),
        }
    }
}

impl RunError {
    fn exit_code(&self) -> u8 {
        match self {
            RunError::Argument(_) => 2,
            RunError::NoQemu => EXIT_NO_QEMU,
            RunError::Host(_) => 1,
        }
    }
}

/// Runs it; the exit code is the program's, or one of those above.
pub fn main(options: &RunOptions) -> ExitCode {
    let code = run(options).unwrap_or_else(|error| {
        eprintln!("softfault run: {error}");
        error.exit_code()
    });
    ExitCode::from(code)
}

fn run(options: &RunOptions) -> Result<u8, RunError> {
    let payload = Payload::collect(options)?;
    let archive = archive::pack(&payload);
    options.check_memory(archive.len() as u64)?;
    let outcome = qemu::run(options, &archive)?;
    Ok(judge(options, &outcome))
}

fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.trim_end().lines().next_back().unwrap_or("no reason given").to_owned()
}

/// One line says it all.
fn refused(why: &str, code: u8) -> u8 {
    eprintln!("softfault run: {why}");
    code
}

/// The exit code, with the log where something went wrong.
fn judge(options: &RunOptions, outcome: &Outcome) -> u8 {
    let (code, why) = match (outcome.end, outcome.timed_out, outcome.qemu_status) {
        (Some(End::Exit(status)), ..) => (status, None),
        (Some(End::Signal(number)), ..) => (128 + number, Some(format!("the program was killed by signal {number}"))),
        (Some(End::Panic), ..) => (EXIT_PANIC, Some("the kernel panicked".to_owned())),
        (Some(End::Refused), ..) => return refused(&last_line(&outcome.log), 2),
        (None, true, _) => (EXIT_TIMEOUT, Some(format!("not done after {} s", options.timeout))),
        (None, false, Some(0)) => (EXIT_TRIPLE_FAULT, Some("the machine reset itself: a triple fault".to_owned())),
        (None, false, Some(_)) if outcome.log.is_empty() => {
            return refused(&last_line(outcome.qemu_errors.as_bytes()), 1);
        }
        (None, false, status) => {
            let status = status.map_or("a signal".to_owned(), |s| format!("status {s}"));
            (1, Some(format!("QEMU ended with {status} before the program did")))
        }
    };
    if let Some(why) = why {
        if !options.verbose {
            eprint!("{}", String::from_utf8_lossy(&outcome.log));
        }
        eprint!("{}", outcome.qemu_errors);
        eprintln!("softfault run: {why}");
    }
    code
}
