//! The model against the reference kernel: generated calls and accesses, made by
//! a static program with real system calls and real loads and stores.
//!
//! The program is `guest` of the testkit. It runs on the host's Linux first,
//! which is the oracle: what it finds wrong there is wrong in the program or the
//! model. It judges itself, and says what differs on its output.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
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
        cargo.args(["build", "--locked", "-p", "softfault-testkit", "--bin", "guest"]);
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

/// The run has to end well, after that many steps.
fn judge(what: &str, Output { status, stdout, stderr }: Output, nr_least: u64) -> String {
    let (output, errors) = (text(&stdout), text(&stderr));
    assert_eq!(status.code(), Some(0), "{what}:\n{output}{errors}");
    let (nr_steps, percent) = done(&output).unwrap_or_else(|| panic!("{what}: {output}{errors}"));
    assert!(nr_steps >= nr_least && percent >= 60, "{what}: {nr_steps} steps, {percent}% succeeded");
    output
}

fn on_the_host(args: &str, nr_least: u64) {
    let output = Command::new(guest()).args(args.split(' ')).output().expect("it was just built");
    judge(&format!("the host's Linux, {args}"), output, nr_least);
}

fn on_the_kernel(options: &str, args: &str, nr_least: u64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softfault"));
    command.args(["run", "--verbose", "--timeout", "120"]).args(options.split(' ')).arg("--");
    let output = command.arg(guest()).args(args.split(' ')).output().expect("it was just built");
    let errors = text(&output.stderr);
    let told = judge(&format!("{options}, {args}"), output, nr_least);
    assert!(!told.contains("lacks"), "{told}");
    assert!(errors.contains("starts") && !errors.contains("did not come back"), "{errors}");
}

#[test]
fn the_hosts_linux_does_what_the_model_says() {
    on_the_host("alone 1 100 300", 25_000);
    on_the_host("threads 4 1 25 300", 25_000);
    on_the_host("turns 2 1 25 300", 6_000);
}

#[test]
fn one_thread() {
    on_the_kernel("--cpus 2", "alone 1 100 300", 25_000);
}

/// Threads that keep to their CPUs: a translation that should be gone is seen.
#[test]
fn two_cpus_in_turn() {
    on_the_kernel("--cpus 2", "turns 2 1 10 300", 2_500);
}

#[test]
fn several_threads() {
    for cpus in ["1", "2", "4"] {
        on_the_kernel(&format!("--cpus {cpus}"), "threads 4 1 15 300", 15_000);
    }
}

#[test]
fn several_threads_under_every_fault_locking() {
    for fault_locking in ["global", "fastpath2004", "split", "lockfree"] {
        on_the_kernel(&format!("--cpus 2 --append fault_locking={fault_locking}"), "threads 4 1000 8 300", 7_500);
    }
}

#[test]
fn a_difference_is_told() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softfault"));
    let Output { status, stdout, .. } =
        command.args(["run", "--"]).arg(guest()).args(["wrong", "1", "20"]).output().expect("it was just built");
    let output = text(&stdout);
    assert_eq!(status.code(), Some(1), "{output}");
    assert!(output.contains("seed 1: step") && output.contains("model EPERM") && output.contains("  [0] "), "{output}");
}
