//! The model against the reference kernel: generated calls and accesses, made by
//! a static program with real system calls and real loads and stores.
//!
//! The program is `guest` of `crates/model`. It runs on the host's Linux first,
//! which is the oracle: what it finds wrong there is wrong in the program or the
//! model. It judges itself, and says what differs on its output.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::sync::OnceLock;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The static program, built once. It has a target folder of its own: the one
/// around this test is locked, and other flags would build all of it again.
fn guest() -> &'static Path {
    static GUEST: OnceLock<PathBuf> = OnceLock::new();
    GUEST.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        cargo.args(["build", "--locked", "-p", "softfault-model", "--bin", "guest"]);
        cargo.args(["--target", TARGET, "--target-dir"]).arg(&target);
        // Linked to low addresses, so that nothing of it is near the window.
        cargo.env("RUSTFLAGS", "-C target-feature=+crt-static -C relocation-model=static");
        let Output { status, stderr, .. } = cargo.output().unwrap_or_else(|e| panic!("{cargo:?}: {e}"));
        assert!(status.success(), "{cargo:?} (its C library is in the Debian package libc6-dev): {}", text(&stderr));
        target.join(TARGET).join("debug/guest")
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Steps that it did, and percent of them that succeeded, as it says at the end.
fn done(output: &str) -> Option<(u64, u64)> {
    let (steps, rest) = output.lines().next_back()?.split_once(" steps, ")?;
    Some((steps.parse().ok()?, rest.strip_suffix("% succeeded")?.parse().ok()?))
}

/// A run that has ended, with all that it said. A failure shows all of it: under load it may not happen again.
struct Told {
    what: String,
    status: ExitStatus,
    output: String,
    errors: String,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Told { what, status, output, errors } = self;
        write!(f, "{what}: {status}\n--- output:\n{output}\n--- errors and log:\n{errors}\n---")
    }
}

impl Told {
    fn by(what: String, command: &mut Command) -> Told {
        let Output { status, stdout, stderr } = command.output().expect("it was just built");
        Told { what, status, output: text(&stdout), errors: text(&stderr) }
    }
    /// It has to end well, after that many steps.
    fn judge(&self, nr_least: u64) {
        assert_eq!(self.status.code(), Some(0), "{self}");
        let (nr_steps, percent) = done(&self.output).unwrap_or_else(|| panic!("no last line: {self}"));
        assert!(nr_steps >= nr_least, "{nr_steps} steps, not {nr_least}: {self}");
        assert!(percent >= 60, "{percent}% succeeded: {self}");
    }
}

fn on_the_host(args: &str, nr_least: u64) {
    Told::by(format!("the host's Linux, {args}"), Command::new(guest()).args(args.split(' '))).judge(nr_least);
}

fn on_the_kernel(options: &str, args: &str, nr_least: u64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softfault"));
    command.args(["run", "--verbose", "--timeout", "120"]).args(options.split(' ')).arg("--");
    let told = Told::by(format!("{options}, {args}"), command.arg(guest()).args(args.split(' ')));
    told.judge(nr_least);
    assert!(!told.output.contains("lacks"), "{told}");
    assert!(told.errors.contains("starts") && !told.errors.contains("did not come back"), "{told}");
}

#[test]
fn the_hosts_linux_does_what_the_model_says() {
    on_the_host("alone 1 100 300", 25_000);
    on_the_host("threads 4 1 25 300", 25_000);
    on_the_host("turns 2 1 25 300", 6_000);
}

#[test]
fn one_thread() {
    on_the_kernel("--cpus 2", "alone 1 50 300", 12_500);
}

/// Threads that keep to their CPUs: a translation that should be gone is seen.
#[test]
fn two_cpus_in_turn() {
    on_the_kernel("--cpus 2", "turns 2 1 10 300", 2_500);
}

#[test]
fn several_threads() {
    for cpus in ["1", "2", "4"] {
        on_the_kernel(&format!("--cpus {cpus}"), "threads 4 1 8 300", 7_500);
    }
}

#[test]
fn several_threads_under_every_fault_locking() {
    for fault_locking in ["global", "fastpath2004", "split", "lockfree"] {
        on_the_kernel(&format!("--cpus 2 --append fault_locking={fault_locking}"), "threads 4 1000 4 300", 3_500);
    }
}

#[test]
fn a_difference_is_told() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softfault"));
    let told = Told::by("a difference".into(), command.args(["run", "--"]).arg(guest()).args(["wrong", "1", "20"]));
    assert_eq!(told.status.code(), Some(1), "{told}");
    for part in ["seed 1: step", "model EPERM", "  [0] "] {
        assert!(told.output.contains(part), "no {part:?}: {told}");
    }
}
