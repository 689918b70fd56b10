//! `cargo xtask check`: the one gate.
//!
//! All steps run even if one fails, so that one round shows everything. The last lines are the time of each part beside
//! its budget (`check/budget.rs`), and the count of tests, and of steps that are not tests, as passed or failed.

mod budget;

use crate::shell;
use crate::suites::Share;
use crate::{lint, miri, mutants, packages, publish, readme, room, suites};
use budget::{Part, Spent};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The tests that boot the reference kernel; cargo's arguments.
pub const KERNEL_TEST: &str = "test -p softfault-lab --test kernel_programs";

/// The options of `cargo xtask check`.
#[derive(clap::Args)]
pub struct Options {
    /// Leave out what takes minutes: model checking, mutants and the README's commands
    #[arg(long)]
    fast: bool,
}

/// A step of the gate.
struct Step {
    name: &'static str,
    part: Part,
    slow: bool,
    run: fn(&mut Tally, &Options) -> Result<(), String>,
}

const fn step(name: &'static str, part: Part, run: fn(&mut Tally, &Options) -> Result<(), String>) -> Step {
    Step { name, part, slow: false, run }
}

/// Left out with `--fast`.
const fn slow(name: &'static str, part: Part, run: fn(&mut Tally, &Options) -> Result<(), String>) -> Step {
    Step { name, part, slow: true, run }
}

const STEPS: [Step; 12] = [
    step("room on the disk", Part::Rest, |_, _| room::ensure()),
    step("packages", Part::Rest, |_, _| packages::ensure()),
    step("format", Part::Rest, |_, _| format()),
    step("lints of our own", Part::Rest, |_, _| lint::run()),
    step("clippy, beside that of the kernel and the probe", Part::Builds, |_, _| clippy()),
    step("the library without hooks, by features", Part::Builds, |_, _| without_hooks()),
    step("package of the library", Part::Builds, |_, _| publish::check()),
    step("builds of tests, beside those of models and the release", Part::Builds, |_, options| builds(options.fast)),
    step("documentation, beside a sample under Miri (not with --fast)", Part::Rest, |tally, options| {
        documentation_and_miri(tally, options.fast)
    }),
    step("tests", Part::Tests, |tally, _| tests(tally)),
    slow("model checking", Part::Models, |tally, _| {
        suites::run(&suites::MODELS, Share::All, |text| tally.see(text)).map(|_| ())
    }),
    slow("the README's commands, beside a sample of the mutants", Part::Mutants, |_, _| readme_and_mutants()),
];

/// For mutants by hand, besides the first builds, which take about as long. Generated ones have their own time (`mutants/hunt.rs`).
const SAMPLE_SECONDS: u64 = 30;

const KERNEL: &str = "crates/kernel";
const PROBE: &str = "crates/lab/probe";
const CLIPPY: &str = "clippy --workspace --lib --bins --examples";
/// Unit tests; `--tests` would add each file that `tests/all` has.
const CLIPPY_UNITS: &str = "clippy --workspace --profile test --lib --bins --keep-going";
const CLIPPY_KERNEL: &str = "clippy -- -D warnings";
/// Tests in documentation. The modelled core only makes sense under loom, in its own step.
const DOC_TESTS: &str = "test --doc --workspace --exclude softfault-modelled* --exclude softfault-shuffled* --exclude softfault-recorded --no-fail-fast";

/// Results so far.
#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    /// Parts that this machine cannot run.
    left_out: Vec<String>,
    /// Of steps with two parts: the time of the one that the step is not named for.
    other: Option<(Part, Duration)>,
}

impl Tally {
    /// Counts the tests in a line of a test binary's output.
    fn see(&mut self, text: &str) {
        if let Some((passed, failed)) = counts(text) {
            self.passed += passed;
            self.failed += failed;
        }
    }
}

/// Runs the gate. Its last line is the count, whatever happens.
pub fn run(options: &Options) -> ExitCode {
    let mut tally = Tally::default();
    let (mut lines, mut spent) = (Vec::new(), Spent::default());
    let mut all_good = true;
    for step in STEPS.iter().filter(|step| !(options.fast && step.slow)) {
        println!("\n== {}", step.name);
        let (start, failed_before) = (Instant::now(), tally.failed);
        let result = (step.run)(&mut tally, options);
        let took = start.elapsed();
        lines.push(summary(step, &result, took));
        let (other, of_other) = tally.other.take().unwrap_or((step.part, Duration::ZERO));
        spent.add(other, of_other);
        spent.add(step.part, took.saturating_sub(of_other));
        match result {
            Ok(()) => tally.passed += 1,
            // A step whose tests failed has been counted by its tests.
            Err(_) => {
                all_good = false;
                tally.failed += u64::from(tally.failed == failed_before);
            }
        }
    }
    println!("\n== summary (below: tests and steps)\n{}", ending(&lines, &spent.table(), &tally));
    if all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The last lines: the steps, the time of each part, what was left out, the count.
fn ending(lines: &[String], table: &str, tally: &Tally) -> String {
    let count = format!("{} passed, {} failed", tally.passed, tally.failed);
    [lines, &[String::new(), table.into()], &tally.left_out, &[count]].concat().join("\n")
}

fn summary(step: &Step, result: &Result<(), String>, took: Duration) -> String {
    let name = step.name;
    match result {
        Ok(()) => format!("ok      {name} ({} s)", took.as_secs()),
        Err(why) => format!("FAILED  {name} ({} s): {why}", took.as_secs()),
    }
}

fn format() -> Result<(), String> {
    shell::run(&shell::cargo("fmt --all --check"))?;
    shell::run(&shell::cargo("fmt --check").within(KERNEL))?;
    shell::run(&shell::cargo("fmt --check").within(PROBE))
}

/// The kernel and the probe have target folders of their own.
fn clippy() -> Result<(), String> {
    let tests = suites::targets(&suites::FOLDERS)?;
    let line = format!("{CLIPPY} {tests} --keep-going -- -D warnings");
    beside("clippy of the kernel and the probe", clippy_of_kernels, || {
        let units = format!("{CLIPPY_UNITS} {COPIES} -- -D warnings");
        shell::run(&shell::cargo(&line)).and(shell::run(&shell::cargo(&units)))
    })
}

fn clippy_of_kernels() -> Captured {
    let mut all = String::new();
    for folder in [KERNEL, PROBE] {
        let (text, result) = shell::captured(&shell::cargo(CLIPPY_KERNEL).within(folder))?;
        all += &text;
        if result.is_err() {
            return Ok((all, result));
        }
    }
    Ok((all, Ok(())))
}

/// Output and outcome of what runs beside something else.
type Captured = Result<(String, Result<(), String>), String>;

/// Runs both at once. Prints what the first one wrote when both have ended.
fn beside(
    name: &str,
    other: impl FnOnce() -> Captured + Send,
    run: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    std::thread::scope(|scope| {
        let other = scope.spawn(other);
        let result = run();
        let other = other.join().unwrap_or_else(|_| Err(format!("the thread of {name} panicked")));
        let other = other.and_then(|(text, result)| {
            println!("\n== {name}\n{text}");
            result
        });
        let failed: Vec<String> = [result, other].into_iter().filter_map(Result::err).collect();
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
    })
}

/// The builds of a port: without `hooks`, which the tests and the kernel turn on for the whole workspace, and with
/// all, one or none of the other features.
const PORTS: [&str; 5] = [
    "-p softfault --lib --examples",
    "-p softfault --lib --no-default-features",
    "-p softfault --lib --no-default-features --features files",
    "-p softfault --lib --no-default-features --features hugetlb",
    "-p softfault-host --lib",
];

fn without_hooks() -> Result<(), String> {
    PORTS.iter().try_for_each(|port| shell::run(&shell::cargo(&format!("clippy {port} -- -D warnings"))))
}

/// Links to private items are allowed in all but the library: the tours name modules
/// that only readers of the source get to see.
const DOC: &str = "doc --workspace --no-deps";
const DOC_ALONE: &str = "doc -p softfault --no-deps";
/// These have the same sources as the core.
const COPIES: &str = "--exclude softfault-recorded --exclude softfault-modelled* --exclude softfault-shuffled*";

fn documentation() -> Result<(), String> {
    let doc = |line: &str, flags| shell::run(&shell::cargo(line).with("RUSTDOCFLAGS", flags));
    doc(&format!("{DOC} {COPIES}"), "-D warnings -A rustdoc::private_intra_doc_links")?;
    // Last, so that the pages that stay are those of the library without hooks.
    doc(DOC_ALONE, "-D warnings")
}

/// Each builds one crate after the other most of the time, in different target folders, and Miri has one thread.
fn documentation_and_miri(tally: &mut Tally, is_fast: bool) -> Result<(), String> {
    if is_fast { documentation() } else { beside("a sample under Miri", || under_miri(tally), documentation) }
}

/// Its absence is no failure: the last lines of the gate say so.
fn under_miri(tally: &mut Tally) -> Captured {
    if let Some(note) = miri::missing() {
        tally.left_out.push(note);
        return Ok((String::new(), Ok(())));
    }
    let (text, result) = miri::sample()?;
    text.lines().for_each(|line| tally.see(line));
    Ok((text, result))
}

/// Both build one crate after the other most of the time, in different target folders: together they keep two
/// CPUs busy.
fn readme_and_mutants() -> Result<(), String> {
    let sample = || shell::captured(&mutants::sample_line(SAMPLE_SECONDS)?);
    beside("a sample of the mutants", sample, readme::run)
}

/// The build for the commands of the README.
const RELEASE: &str = "build --release";

/// Builds all that later steps run. Cargo has one lock for each profile's folder: the tests are built beside what is
/// built for a release.
fn builds(is_fast: bool) -> Result<(), String> {
    let release = || {
        if is_fast {
            return Ok((String::new(), Ok(())));
        }
        let (models, result) = shell::captured(&suites::build_line(&suites::MODELS)?)?;
        let (release, of_release) = shell::captured(&shell::cargo(RELEASE))?;
        Ok((models + &release, result.and(of_release)))
    };
    beside("builds for a release", release, || suites::build(&suites::TESTS))
}

/// Runs the tests. Those of the kernel and of the command have minutes of their own.
fn tests(tally: &mut Tally) -> Result<(), String> {
    let binaries = suites::run(&suites::TESTS, Share::of_commit()?, |text| tally.see(text));
    let documentation = shell::run_watched(&shell::cargo(DOC_TESTS), |text| tally.see(text));
    tally.other = binaries.as_ref().ok().map(|in_turn| (Part::Kernel, *in_turn));
    binaries.map(|_| ()).and(documentation)
}

/// From `test result: ok. 12 passed; 0 failed; ...`.
pub fn counts(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("test result: ")?;
    let number = |word: &str| {
        let before = rest.split(word).next()?.trim_end();
        before.rsplit([' ', '.']).next()?.parse().ok()
    };
    Some((number("passed")?, number("failed")?))
}

#[cfg(test)]
mod tests {
    use super::{Tally, counts, ending};

    #[test]
    fn reads_what_cargo_test_says() {
        let line = "test result: FAILED. 41 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(counts(line), Some((41, 2)));
        assert_eq!(counts("test a::b ... ok"), None);
    }

    #[test]
    fn what_was_left_out_stands_before_the_count() {
        let left_out = vec!["left out: some".to_string()];
        let tally = Tally { passed: 3, failed: 1, left_out, ..Tally::default() };
        assert_eq!(
            ending(&["ok      a step (1 s)".to_string()], "table\n", &tally),
            "ok      a step (1 s)\n\ntable\n\nleft out: some\n3 passed, 1 failed"
        );
        assert!(ending(&[], "", &Tally::default()).ends_with("\n0 passed, 0 failed"));
    }
}
