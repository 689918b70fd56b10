//! Programs that load the reference kernel's memory from eight threads on two
//! CPUs and look at what they get, compiled against musl and glibc.
//!
//! `loops` has short loops over one call each, `fill` fills and reads large
//! mappings together. They run on the host's Linux first: what fails there is
//! wrong in the program.

mod programs;

use programs::{compile, libcs, run, text};
use std::process::Command;

/// It prints `NAME ok` and nothing else.
fn run_both(program: &str) {
    for &libc in libcs() {
        let binary = compile("loads", program, libc);
        let wanted = format!("{program} ok\n");
        let host = Command::new(&binary).output().expect("it was just built");
        assert_eq!(text(&host.stdout), wanted, "the host's Linux: {}", text(&host.stderr));
        let ran = run(&["--cpus", "2", "--verbose"], &binary, &[]);
        assert_eq!((ran.code, &ran.output), (0, &wanted), "the reference kernel: {}", ran.errors);
        assert!(ran.errors.contains("starts") && !ran.errors.contains("did not come back"), "{}", ran.errors);
    }
}

#[test]
fn loops_over_one_call_each() {
    run_both("loops");
}

#[test]
fn memory_filled_together() {
    run_both("fill");
}
