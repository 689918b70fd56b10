//! Programs that load the reference kernel's memory from eight threads on two
//! CPUs and look at what they get, compiled against musl and glibc.
//!
//! `loops` has short loops over one call each, `fill` fills and reads large
//! mappings together. They run on the host's Linux first: what fails there is
//! wrong in the program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Compilers, by the C library that they link with, and the package that has it.
const COMPILERS: [(&str, &str); 2] = [("musl-gcc", "musl-tools"), ("gcc", "gcc libc6-dev")];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn compile(program: &str, compiler: &str, package: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel/programs").join(format!("{program}.c"));
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("loads-{program}-{compiler}"));
    let mut command = Command::new(compiler);
    command.args(["-static", "-O1", "-pthread", "-o"]).args([&binary, &source]);
    let output = command.output().unwrap_or_else(|e| panic!("{compiler}: {e}; install the Debian packages: {package}"));
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    binary
}

/// It prints `NAME ok` and nothing else.
fn judge(program: &str, what: &str, output: &Output) {
    let told = (output.status.code(), text(&output.stdout));
    assert_eq!(told, (Some(0), format!("{program} ok\n")), "{what}: {}", text(&output.stderr));
}

fn run(program: &str) {
    for (compiler, package) in COMPILERS {
        let binary = compile(program, compiler, package);
        let host = Command::new(&binary).output().expect("it was just built");
        judge(program, &format!("{compiler}, the host's Linux"), &host);
        let mut command = Command::new(env!("CARGO_BIN_EXE_softfault"));
        command.args(["run", "--cpus", "2", "--timeout", "120", "--verbose", "--"]).arg(&binary);
        let output = command.output().expect("it was just built");
        judge(program, &format!("{compiler}, the reference kernel"), &output);
        let errors = text(&output.stderr);
        assert!(errors.contains("starts") && !errors.contains("did not come back"), "{compiler}: {errors}");
    }
}

#[test]
fn loops_over_one_call_each() {
    run("loops");
}

#[test]
fn memory_filled_together() {
    run("fill");
}
