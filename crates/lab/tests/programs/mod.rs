//! Programs in `crates/kernel/programs`, compiled against musl and glibc, run on
//! this host and by `softfault run` on the reference kernel.
//!
//! A tool that is missing fails the test and names its Debian package: a kernel
//! test that was skipped is not a pass.
#![allow(dead_code)] // each test file uses a part

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A C library, by the compiler that links with it.
#[derive(Clone, Copy)]
pub enum Libc {
    Musl,
    Glibc,
}

pub const BOTH: [Libc; 2] = [Libc::Musl, Libc::Glibc];

/// Both libraries. The gate asks for a sample, a number that changes with the commit: then it is one of them, another one for the next
/// line that asks.
#[track_caller]
pub fn libcs() -> &'static [Libc] {
    let Some(sample) = std::env::var("SOFTFAULT_SAMPLE").ok().and_then(|number| number.parse::<usize>().ok()) else {
        return &BOTH;
    };
    let line = std::panic::Location::caller().line() as usize;
    std::slice::from_ref(&BOTH[sample.wrapping_add(line) % BOTH.len()])
}

impl Libc {
    pub fn compiler(self) -> (&'static str, &'static str) {
        match self {
            Libc::Musl => ("musl-gcc", "musl-tools"),
            Libc::Glibc => ("gcc", "gcc libc6-dev"),
        }
    }
}

/// Compiles a program; each test has a copy of its own.
pub fn compile(test: &str, program: &str, libc: Libc) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel/programs").join(format!("{program}.c"));
    let (compiler, package) = libc.compiler();
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{program}-{compiler}"));
    let output = Command::new(compiler)
        .args(["-static", "-O1", "-pthread", "-o"])
        .args([&binary, &source])
        .output()
        .unwrap_or_else(|e| panic!("{compiler}: {e}; install the Debian packages: {package}"));
    assert!(output.status.success(), "{compiler} {}: {}", source.display(), text(&output.stderr));
    binary
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Output and exit code of a run.
pub struct Ran {
    pub code: i32,
    pub output: String,
    pub errors: String,
}

pub fn softfault(args: &[&str]) -> Ran {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_softfault")).arg("run").args(args).output().expect("it was just built");
    let code = status.code().expect("no signal kills it");
    let ran = Ran { code, output: text(&stdout), errors: text(&stderr) };
    assert_ne!(ran.code, 253, "{}", ran.errors);
    ran
}

/// Runs a program with these options and arguments.
pub fn run(options: &[&str], binary: &Path, args: &[&str]) -> Ran {
    let binary = binary.to_str().expect("paths here are UTF-8");
    softfault(&[&["--timeout", "120"], options, &["--", binary], args].concat())
}

/// Runs a program that prints `NAME ok` and nothing else, with both libraries, or as the sample has it.
#[track_caller]
pub fn run_ok(program: &str, options: &[&str]) {
    for &libc in libcs() {
        let ran = run(options, &compile(program, program, libc), &[]);
        let wanted = format!("{program} ok\n");
        assert_eq!((ran.code, &ran.output), (0, &wanted), "{} {options:?}: {}", libc.compiler().0, ran.errors);
        assert_eq!(ran.errors, "", "{} {options:?}", libc.compiler().0);
    }
}

/// A program that prints `ok WHAT` for each of its parts and `done` at the end:
/// the same on this host's Linux and on the reference kernel.
pub fn same_as_host(binary: &Path, options: &[&str]) {
    let host = Command::new(binary).output().expect("it was just compiled");
    let host = text(&host.stdout);
    assert!(host.ends_with("done\n") && !host.contains("FAILED"), "on the host: {host}");
    let ran = run(options, binary, &[]);
    assert_eq!((ran.code, &ran.output), (0, &host), "{} {options:?}: {}", binary.display(), ran.errors);
}

/// Version of the host's kernel.
pub fn host_version() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux has it");
    let mut numbers = release.split(['.', '-']).map_while(|part| part.trim().parse().ok());
    (numbers.next().expect("a version"), numbers.next().unwrap_or(0))
}

/// The same for what Linux does since `version`. An older host is not asked.
pub fn same_as_host_since(version: (u32, u32), binary: &Path, options: &[&str]) {
    if host_version() >= version {
        return same_as_host(binary, options);
    }
    let ran = run(options, binary, &[]);
    assert!(ran.code == 0 && ran.output.ends_with("done\n"), "{}: {} {}", binary.display(), ran.output, ran.errors);
}
