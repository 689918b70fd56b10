//! The programs in `crates/kernel/programs`, compiled against musl and glibc,
//! run on the reference kernel by `softfault run`.
//!
//! A tool that is missing fails the test and names its Debian package: a kernel
//! test that was skipped is not a pass.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A C library, by the compiler that links with it.
#[derive(Clone, Copy)]
enum Libc {
    Musl,
    Glibc,
}

const BOTH: [Libc; 2] = [Libc::Musl, Libc::Glibc];

impl Libc {
    fn compiler(self) -> (&'static str, &'static str) {
        match self {
            Libc::Musl => ("musl-gcc", "musl-tools"),
            Libc::Glibc => ("gcc", "gcc libc6-dev"),
        }
    }
}

/// Compiles a program; each test has a copy of its own.
fn compile(test: &str, program: &str, libc: Libc) -> PathBuf {
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

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a run printed and returned.
struct Ran {
    code: i32,
    output: String,
    errors: String,
}

fn softfault(args: &[&str]) -> Ran {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_softfault")).arg("run").args(args).output().expect("it was just built");
    let code = status.code().expect("no signal kills it");
    let ran = Ran { code, output: text(&stdout), errors: text(&stderr) };
    assert_ne!(ran.code, 253, "{}", ran.errors);
    ran
}

/// Runs a program with these options and arguments.
fn run(options: &[&str], binary: &Path, args: &[&str]) -> Ran {
    let binary = binary.to_str().expect("paths here are UTF-8");
    softfault(&[&["--timeout", "120"], options, &["--", binary], args].concat())
}

/// Runs a program that prints `NAME ok` and nothing else, with both libraries.
fn run_ok(program: &str, options: &[&str]) {
    for libc in BOTH {
        let ran = run(options, &compile(program, program, libc), &[]);
        let wanted = format!("{program} ok\n");
        assert_eq!((ran.code, &ran.output), (0, &wanted), "{} {options:?}: {}", libc.compiler().0, ran.errors);
        assert_eq!(ran.errors, "", "{} {options:?}", libc.compiler().0);
    }
}

/// A program that prints `ok WHAT` for each of its parts and `done` at the end:
/// the same on this host's Linux and on the reference kernel.
fn run_parts(program: &str, options: &[&str]) {
    for libc in BOTH {
        let binary = compile("parts", program, libc);
        let host = Command::new(&binary).output().expect("it was just compiled");
        let host = text(&host.stdout);
        assert!(host.ends_with("done\n") && !host.contains("FAILED"), "on the host: {host}");
        let ran = run(options, &binary, &[]);
        assert_eq!((ran.code, &ran.output), (0, &host), "{} {options:?}: {}", libc.compiler().0, ran.errors);
    }
}

#[test]
fn processes_fork_run_programs_and_end() {
    run_parts("processes", &["--cpus", "2"]);
    run_parts("processes", &["--cpus", "1"]);
}

#[test]
fn hello_gets_its_arguments_and_gives_its_status() {
    for libc in BOTH {
        let binary = compile("hello", "hello", libc);
        let ran = run(&[], &binary, &["one", "two words", ""]);
        assert_eq!((ran.code, ran.output.as_str()), (44, "hello [one] [two words] []\n"), "{}", ran.errors);
        assert_eq!(ran.errors, "to the error output\n");
        let file = format!("{}:/bin/greet", binary.display());
        let ran = softfault(&["--file", &file, "--", "/bin/greet"]);
        assert_eq!((ran.code, ran.output.as_str()), (0, "hello\n"), "{}", ran.errors);
    }
}

#[test]
fn eight_threads_on_two_cpus() {
    run_ok("threads", &["--cpus", "2"]);
}

#[test]
fn eight_threads_on_one_and_on_four_cpus() {
    for cpus in ["1", "4"] {
        let ran = run(&["--cpus", cpus], &compile("threads-more", "threads", Libc::Musl), &[]);
        assert_eq!((ran.code, ran.output.as_str()), (0, "threads ok\n"), "{cpus} CPUs: {}", ran.errors);
    }
}

#[test]
fn every_discipline_runs_threads() {
    let binary = compile("disciplines", "threads", Libc::Musl);
    for discipline in ["global", "fastpath2004", "split", "lockfree"] {
        let ran = run(&["--append", &format!("discipline={discipline}")], &binary, &[]);
        assert_eq!((ran.code, ran.output.as_str()), (0, "threads ok\n"), "{discipline}: {}", ran.errors);
    }
}

#[test]
fn rights_are_enforced_and_reported() {
    run_ok("protect", &[]);
}

#[test]
fn signals_are_delivered() {
    run_ok("signals", &[]);
}

#[test]
fn wild_pointers_are_errors() {
    run_ok("wild", &[]);
}

#[test]
fn futexes_wake() {
    run_ok("pingpong", &[]);
}

#[test]
fn floating_point_is_each_threads_own() {
    run_ok("numbers", &[]);
}

#[test]
fn pipes_events_and_files_work() {
    run_ok("pipes", &[]);
}

#[test]
fn memory_calls_do_what_they_are_for() {
    run_ok("memory", &[]);
}

/// The number behind `name` in what `--stats` prints.
fn counter(stats: &str, name: &str) -> u64 {
    let line = stats.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no {name} in:\n{stats}"))
}

#[test]
fn a_gibibyte_with_ten_pages_touched_takes_few_faults() {
    for libc in BOTH {
        let ran = run(&["--stats", "--mem", "256M"], &compile("sparse", "sparse", libc), &[]);
        assert_eq!((ran.code, ran.output.as_str()), (0, "sparse ok\n"), "{}", ran.errors);
        let faults = counter(&ran.errors, "faults");
        assert!((10..200).contains(&faults), "{faults} faults");
        assert!(ran.errors.contains(" rw-p"), "mappings are printed: {}", ran.errors);
    }
}

#[test]
fn a_stack_that_overflows_is_seen_and_kills() {
    for libc in BOTH {
        let ran = run(&[], &compile("overflow", "overflow", libc), &[]);
        assert_eq!((ran.code, ran.output.as_str()), (128 + 11, "overflow seen\n"), "{}", ran.errors);
        for part in ["killed by signal 11", "write", "address 0x7ff", "code 1", "in no mapping", "rip "] {
            assert!(ran.errors.contains(part), "{part}: {}", ran.errors);
        }
    }
}

#[test]
fn every_frame_comes_back() {
    for (program, code) in [("threads", 0), ("memory", 0), ("overflow", 128 + 11), ("oom", 128 + 9)] {
        let ran = run(&["--mem", "96M", "--verbose"], &compile("frames", program, Libc::Musl), &[]);
        assert_eq!(ran.code, code, "{program}: {}", ran.errors);
        assert!(ran.errors.contains("starts") && !ran.errors.contains("did not come back"), "{}", ran.errors);
    }
}

#[test]
fn out_of_memory_kills() {
    let ran = run(&["--mem", "96M"], &compile("oom", "oom", Libc::Musl), &[]);
    assert_eq!((ran.code, ran.output.as_str()), (128 + 9, "before\n"), "{}", ran.errors);
    assert!(ran.errors.contains("no memory left"), "{}", ran.errors);
}

#[test]
fn failures_of_the_machine_have_codes_of_their_own() {
    let binary = compile("failures", "hello", Libc::Musl);
    let cases = [
        ("panic", 250, "kernel panic"),
        ("reset", 252, "triple fault"),
        ("user-access", 250, "page fault in the kernel"),
    ];
    for (name, code, says) in cases {
        let ran = run(&["--append", &format!("selftest={name}")], &binary, &[]);
        assert_eq!((ran.code, ran.output.as_str()), (code, ""), "{name}: {}", ran.errors);
        assert!(ran.errors.contains(says), "{name}: {}", ran.errors);
    }
    let spin = compile("failures", "spin", Libc::Musl);
    let ran = softfault(&["--timeout", "1", "--", spin.to_str().expect("UTF-8")]);
    assert_eq!((ran.code, ran.output.as_str()), (251, "spinning\n"), "{}", ran.errors);
}

#[test]
fn bad_arguments_are_named() {
    let hello = compile("arguments", "hello", Libc::Musl);
    let hello = hello.to_str().expect("UTF-8");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let twice = format!("{hello}:/x");
    let cases: [(&[&str], &str); 11] = [
        (&["--", "/no/such/program"], "/no/such/program"),
        (&["--", source], "Cargo.toml"),
        (&["--file", "/no/such/file", "--", hello], "--file /no/such/file"),
        (&["--file", "x:relative", "--", hello], "--file x:relative"),
        (&["--file", &twice, "--file", &twice, "--", hello], "/x"),
        (&["--mem", "12", "--", hello], "--mem"),
        (&["--mem", "32M", "--", hello], "--mem"),
        (&["--cpus", "0", "--", hello], "--cpus"),
        (&["--timeout", "soon", "--", hello], "--timeout"),
        (&["--append", "discipline=best", "--", hello], "discipline=best"),
        (&["--append", "nonsense", "--", hello], "nonsense"),
    ];
    let mut wrong = String::new();
    for (args, named) in cases {
        let ran = softfault(args);
        if ran.code != 2 || !ran.errors.contains(named) || !ran.output.is_empty() {
            let _ = writeln!(wrong, "{args:?}: {} {:?} {:?}", ran.code, ran.output, ran.errors);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
