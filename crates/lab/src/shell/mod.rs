//! `softfault shell`: busybox on the reference kernel, with this terminal as its
//! console.
//!
//! The keyboard's bytes go to QEMU's serial line unchanged (`keys`); the kernel makes
//! lines and signals of them. The rest is `softfault run`.

mod keys;

use crate::run::content::{About, Content, Entry};
use crate::run::files::Payload;
use crate::run::qemu::{Machine, Output};
use crate::run::scratch::Scratch;
use crate::run::{LEAST_BYTES, MachineOptions, RunError, archive, reference_machine, verdict};
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The path of the shell in the machine.
const BUSYBOX: &str = "/bin/busybox";
/// The path of busybox in Debian.
const ON_HOST: [&str; 2] = ["/bin/busybox", "/usr/bin/busybox"];
/// A day: an interactive shell should not time out.
const TIMEOUT_S: u64 = 86_400;

/// Ended from the keyboard, as by Ctrl-C.
const EXIT_QUIT: u8 = 130;

const HELP: &str = "\
The shell is this host's static busybox (Debian package busybox-static). `exit` or Ctrl-D ends it; Ctrl-] stops
the machine at once. The exit code is the shell's; `softfault run --help` lists the others.

Examples:
  softfault shell
  softfault shell --cpus 1 --mem 128M --file ./pft
  echo 'cat /proc/meminfo' | softfault shell";

/// An interactive shell on the reference kernel, in QEMU
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    pub machine: MachineOptions,

    /// Use this statically linked busybox
    #[arg(long, value_name = "FILE")]
    pub busybox: Option<PathBuf>,
}

/// Runs the shell; the exit code is the shell's, or one of `verdict`.
pub fn main(options: &Options) -> ExitCode {
    let code = run(options).unwrap_or_else(|error| {
        eprintln!("softfault shell: {error}");
        error.exit_code()
    });
    ExitCode::from(code)
}

/// The busybox to use.
fn busybox(options: &Options) -> Result<PathBuf, RunError> {
    if let Some(path) = &options.busybox {
        return Ok(path.clone());
    }
    let found = ON_HOST.into_iter().map(PathBuf::from).find(|path| path.is_file());
    found.ok_or_else(|| {
        RunError::Argument(
            "busybox: not found; install the Debian package busybox-static (apt-get install busybox-static), or name one \
             with --busybox"
                .to_owned(),
        )
    })
}

/// The names of its commands.
fn applets(busybox: &Path) -> Result<Vec<String>, RunError> {
    let wrong = |what: String| RunError::Argument(format!("{}: should be a busybox: {what}", busybox.display()));
    let listed = Command::new(busybox).arg("--list").output().map_err(|e| wrong(e.to_string()))?;
    let names: Vec<String> = String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect();
    if names.iter().any(|name| name == "sh") { Ok(names) } else { Err(wrong("it has no sh".to_owned())) }
}

fn payload(options: &Options) -> Result<Payload, RunError> {
    let busybox = busybox(options)?;
    let mut machine = options.machine.clone();
    machine.files.push(format!("{}:{BUSYBOX}", busybox.display()));
    let command: Vec<OsString> = [BUSYBOX, "sh"].map(OsString::from).into();
    let mut payload = Payload::collect(&machine, &command)?;
    let modified_s = payload.files.iter().find(|entry| entry.path == BUSYBOX).map_or(0, |entry| entry.about.modified_s);
    for name in applets(&busybox)? {
        let path = format!("/bin/{name}");
        if payload.files.iter().all(|entry| entry.path != path) {
            let content = Content::Link(b"busybox".to_vec());
            payload.files.push(Entry { path, about: About::made(0o777, modified_s), content });
        }
    }
    Ok(payload)
}

fn run(options: &Options) -> Result<u8, RunError> {
    let given = &options.machine;
    let archive = archive::pack(&payload(options)?);
    given.check_memory(LEAST_BYTES, archive.len() as u64)?;
    let scratch = Scratch::new()?;
    let [rows, columns] = keys::window_size();
    let params = format!("tty={rows}x{columns} ");
    let machine = Machine {
        keys: Some(keys::pass_on),
        timeout_s: TIMEOUT_S,
        ..reference_machine(given, &scratch, &archive, &params)?
    };
    let raw = keys::Raw::enter();
    let outcome = machine.run(Output::PassedOn);
    drop(raw);
    let outcome = outcome?;
    if keys::was_quit() {
        eprintln!("softfault shell: ended from the keyboard");
        return Ok(EXIT_QUIT);
    }
    let verdict = verdict::judge(&outcome, TIMEOUT_S);
    if let Some(why) = verdict.why {
        eprintln!("softfault shell: {why}");
    }
    Ok(verdict.code)
}
