//! `softfault compare` from outside: both systems boot, and what is printed of
//! them holds together.
//!
//! Linux is fetched once, by apt-get. Where there is none, tests fail and say so:
//! a comparison that was skipped is not a pass.

mod programs;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PAGES: u64 = 2000;
/// Touches memory, prints two numbers, and has a status of its own.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <sys/mman.h>
#define BYTES (2000L * 4096)
int main(int argc, char **argv) {
    char *p = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < BYTES; i += 4096)
        p[i] = 1;
    printf("rate: 1\nrate: %s\n", argv[1]);
    fputs("to the error output\n", stderr);
    return 7;
}
"#;

/// Compiles it; each test has a copy of its own.
fn program(test: &str) -> PathBuf {
    compiled(test, PROGRAM)
}

fn compiled(test: &str, text_of_program: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, binary) = (folder.join(format!("compare-{test}.c")), folder.join(format!("compare-{test}")));
    std::fs::write(&source, text_of_program).expect("the folder is there");
    let mut gcc = Command::new("gcc");
    let output = gcc.args(["-static", "-O1", "-o"]).args([&binary, &source]).output();
    let output = output.unwrap_or_else(|e| panic!("gcc: {e}; install the Debian packages: gcc libc6-dev"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    binary
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softfault"));
    command.arg("compare").args(arguments);
    command
}

fn compare(arguments: &[&str]) -> Output {
    command(arguments).output().expect("it was just built")
}

fn objects(output: &Output) -> Vec<Value> {
    let lines = text(&output.stdout);
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    lines.lines().map(parse).collect()
}

fn number(object: &Value, key: &str) -> f64 {
    object[key].as_f64().unwrap_or_else(|| panic!("{key} should be a number: {object}"))
}

#[test]
fn both_systems_run_the_program_and_are_told_apart() {
    let program = program("both");
    let program = program.to_str().expect("UTF-8");
    let options = ["--reps", "2", "--inner", "2", "--mem", "256M", "--rate", "rate: ([0-9]+)", "--json", "--"];
    let output = compare(&[&options[..], &[program, "34"]].concat());
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "the program's own: {errors}");
    assert!(errors.contains("rate: 1\nrate: 34\n") && errors.contains("to the error output\n"), "{errors}");
    assert!(!errors.contains("differ"), "both do the same: {errors}");
    let objects = objects(&output);
    let [ours, linux, ratio] = &objects[..] else { panic!("three objects: {objects:?}") };
    for (object, system) in [(ours, "softfault"), (linux, "linux")] {
        assert_eq!(object["system"], system);
        assert_eq!((object["boots"].as_u64(), object["exit_status"].as_u64()), (Some(2), Some(7)));
        assert_eq!((&object["artefact"], &object["thp"]), (&Value::from(false), &Value::from("never")));
        assert_eq!(number(object, "rate"), 34.0);
        assert_eq!(number(object, "major_faults"), 0.0);
        let faults = number(object, "minor_faults");
        assert!((PAGES as f64..1.2 * PAGES as f64).contains(&faults), "{system}: {faults} faults");
        let resident = number(object, "max_rss_kib") / 4.0;
        assert!((PAGES as f64..1.5 * PAGES as f64).contains(&resident), "{system}: {resident} pages");
        let busy_s = number(object, "user_s") + number(object, "system_s");
        assert!(busy_s > 0.0 && busy_s <= 1.1 * number(object, "wall_s"), "one thread: {object}");
    }
    let wall = number(linux, "wall_s") / number(ours, "wall_s");
    assert!((number(ratio, "ratio_wall") / wall - 1.0).abs() < 1e-9, "{ratio} and {wall}");
    assert_eq!(number(ratio, "ratio_rate"), 1.0);
}

/// Standard output has the figures alone, whatever the program writes, and wherever.
#[test]
fn json_has_standard_output_to_itself() {
    const WRITES: &str = r#"
#include <stdio.h>
#include <unistd.h>
int main(void) {
    FILE *console = fopen("/dev/console", "w");
    if (console)
        fputs("to the console\n", console);
    puts("{\"system\":\"a line that looks like one\"}");
    fputs("no end of line", stdout);
    fflush(stdout);
    if (fork() == 0) {
        usleep(100000);
        puts("late");
    }
    return 0;
}
"#;
    let program = compiled("json", WRITES);
    let program = program.to_str().expect("UTF-8");
    for command in [&["--json"][..], &["--json", "--only", "softfault", "--verbose"]] {
        let output = compare(&[command, &["--reps", "1", "--inner", "2", "--mem", "256M", "--", program]].concat());
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{errors}");
        assert!(errors.contains("looks like one") && errors.contains("no end of line"), "{errors}");
        let systems: Vec<Value> = objects(&output).into_iter().map(|object| object["system"].clone()).collect();
        let wanted: &[&str] = if command.contains(&"--only") { &["softfault"] } else { &["softfault", "linux", ""] };
        let wanted: Vec<Value> =
            wanted.iter().map(|name| if name.is_empty() { Value::Null } else { Value::from(*name) }).collect();
        assert_eq!(systems, wanted, "{command:?}: {}", text(&output.stdout));
    }
}

/// The processes that get huge pages, and the files' figures of them: the program finds the same
/// on both.
#[test]
fn huge_pages_are_where_they_are_on_linux() {
    let program = programs::compile("compare", "hugeuse", programs::Libc::Musl);
    let program = program.to_str().expect("UTF-8");
    let output = compare(&["--thp", "always", "--reps", "1", "--mem", "512M", "--json", "--", program]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(errors.contains("hugeuse ok\n") && !errors.contains("differ"), "{errors}");
}

#[test]
fn a_table_a_plot_and_a_label() {
    let program = program("table");
    let program = program.to_str().expect("UTF-8");
    let plot = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compare.svg");
    let plot_path = plot.to_str().expect("UTF-8");
    let options = ["--reps", "1", "--mem", "160M", "--cpu-default", "--thp", "always", "--plot", plot_path, "--"];
    let output = compare(&[&options[..], &[program, "5"]].concat());
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(7), "{errors}");
    assert!(table.starts_with("rate: 1\nrate: 5\n"), "the program's output comes first: {table}");
    for wanted in ["ARTEFACT", "-cpu max,", "transparent_hugepage=always", "minor faults", "ratio by wall time: "] {
        assert!(table.contains(wanted), "{wanted} is not in: {table}");
    }
    assert_eq!(table.matches("transparent_hugepage=always").count(), 2, "both systems: {table}");
    let row = |system: &str| table.lines().any(|line| line.trim_start().starts_with(&format!("{system} ")));
    assert!(row("softfault") && row("linux"), "{table}");
    let plot = std::fs::read_to_string(&plot).expect("it was written");
    assert!(plot.starts_with("<svg") && plot.contains("linux: median"));
}

/// Instructions are counted, not timed: the same on any host, in each run. The
/// bounds guard what issue and README promise.
#[test]
fn instructions_stay_within_their_bounds() {
    let count = || {
        let output = compare(&["--icount", "--only", "softfault", "--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        objects(&output).swap_remove(0)
    };
    let (once, again) = (count(), count());
    assert_eq!(once, again, "a count repeats");
    let bounds = [
        ("write_fault", 900.0),
        ("read_fault", 500.0),
        ("read_fault_16", 2800.0),
        ("munmap_page", 300.0),
        ("fork_1mib", 190e3),
    ];
    for (key, bound) in bounds {
        let count = number(&once, key);
        assert!(count > 20.0 && count <= bound, "{key}: {count}, should be at most {bound}");
    }
    assert!(number(&once, "write_fault_and_clear") - number(&once, "write_fault") >= 512.0, "{once}");
}

#[test]
fn wrong_arguments_are_named() {
    let program = program("wrong");
    let program = program.to_str().expect("UTF-8");
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let cases: [(&[&str], &str); 12] = [
        (&[], "PROGRAM"),
        (&["--", "/no/such/program"], "/no/such/program"),
        (&["--only", "softfault", "--", manifest], "Cargo.toml"),
        (&["--only", "softfault", "--root", "/no/such/folder", "--", program], "--root"),
        (&["--only", "softfault", "--mem", "32M", "--", program], "--mem"),
        (&["--linux", "/no/such/file", "--", program], "--linux /no/such/file"),
        (&["--linux", manifest, "--", program], "should be a Debian package"),
        (&["--reps", "0", "--", program], "--reps"),
        (&["--rate", "(", "--", program], "--rate"),
        (&["--plot", "x.png", "--", program], ".svg"),
        (&["--icount", "--cpus", "2"], "--cpus 2: should be 1"),
        (&["--icount", "--", program], "--icount"),
    ];
    for (arguments, named) in cases {
        let output = compare(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(named) && output.stdout.is_empty(), "{arguments:?}: {errors}");
    }
}

/// One line for each, which says what would help.
#[test]
fn what_the_host_lacks_is_named() {
    let program = program("lacks");
    let program = program.to_str().expect("UTF-8");
    let empty = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compare-empty");
    std::fs::create_dir_all(&empty).expect("the folder is there");
    let cases: [(&[&str], i32, &str); 3] = [
        (&["--only", "softfault", "--", program], 253, "qemu-system-x86"),
        (&["--", program], 1, "--linux FILE.deb"),
        (&["--linux", program, "--", program], 1, "Debian package dpkg"),
    ];
    for (arguments, code, named) in cases {
        let output = command(arguments).env("PATH", &empty).env("XDG_CACHE_HOME", &empty).output();
        let output = output.expect("it was just built");
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(named) && errors.lines().count() == 1, "{arguments:?}: {errors}");
    }
}

#[test]
fn a_program_that_does_not_do_as_asked_is_told_of() {
    let program = program("asked");
    let program = program.to_str().expect("UTF-8");
    let output = compare(&["--only", "softfault", "--reps", "1", "--rate", "speed ([0-9]+)", "--", program, "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--rate speed ([0-9]+): should match"), "{}", text(&output.stderr));
    let output = compare(&["--only", "softfault", "--append", "nonsense", "--", program, "1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("nonsense"), "{}", text(&output.stderr));
}
