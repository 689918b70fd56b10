//! `cargo xtask suites`: other projects' tests on this host's Linux and on the reference kernel.
//!
//! `list.rs` reads the lists of tests, `root.rs` makes the folder that both sides see as `/`, `script.rs` the script that
//! runs several tests in one boot, `sides.rs` runs it, `verdict.rs` compares, `report.rs` prints.
//!
//! A test that does not pass on Linux is not run on the reference kernel: this host lacks something that it needs. A boot
//! that ends within a test is repeated with the tests behind it.

mod list;
mod report;
mod root;
mod script;
mod sides;
mod verdict;

use list::{Suite, Test};
use report::Report;
use script::{Ran, Reader};
use sides::Side;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Runs tests of LTP and of the Linux kernel on this host's Linux, in a chroot, and those that pass on the reference kernel,
in QEMU, several in one boot. A wrong answer is a test that passes on Linux, does not pass here, and is not listed with a
reason. The lists of tests and of reasons are xtask/suites/*.toml; docs/suites.md has the subjects.

It needs root, for the chroot and for settings that tests change (they are put back), and:
  cargo xtask clients ltp selftests-mm     once; it needs a network, and names missing Debian packages

The last three lines are the tests that pass on Linux, those of them that pass here, and the wrong answers. Before them each
wrong answer has a line with the first line of output that differs. target/suites/logs has the whole outputs.

Exit codes: 0 no wrong answer; 1 wrong answers; 2 the tests could not be run

Examples:
  cargo xtask suites --list                        the suites, their tests and reasons
  cargo xtask suites --only ltp-hugetlb            one suite
  cargo xtask suites --only mmap01 --only cow      two tests
  cargo xtask suites --json > target/suites.json   a line for each test, and the sums";

/// The options of `cargo xtask suites`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Only this suite, or this test; repeatable
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the suites, their tests and the reasons, and run nothing
    #[arg(long)]
    list: bool,
    /// Print JSON: a line for each test, then one with the sums
    #[arg(long)]
    json: bool,
    /// Where `cargo xtask clients` put the programs
    #[arg(long, value_name = "DIR", default_value = "target/clients")]
    clients: PathBuf,
}

/// Runs the suites. The exit code says whether there are wrong answers.
pub fn run(options: &Options) -> ExitCode {
    match run_all(options) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}

/// Returns the number of wrong answers.
fn run_all(options: &Options) -> Result<usize, String> {
    let suites = list::all()?;
    check_names(options, &suites)?;
    let is_wanted = |suite: &Suite, test: &str| {
        options.only.is_empty() || options.only.iter().any(|name| *name == suite.name || name == test)
    };
    if options.list {
        report::list(&suites, is_wanted);
        return Ok(0);
    }
    let clients = std::path::absolute(&options.clients).map_err(|e| format!("{}: {e}", options.clients.display()))?;
    let mut chosen = Vec::new();
    for suite in &suites {
        if suite.names().iter().any(|test| is_wanted(suite, test)) {
            let programs = clients.join("bin").join(&suite.client);
            let tests = suite.tests(&programs, |test| is_wanted(suite, test));
            let hint = format!("run `cargo xtask clients {}` first", suite.client);
            chosen.push((suite, tests.map_err(|error| format!("{error}; {hint}"))?, programs));
        }
    }
    root::busybox()?;
    eprintln!("suites: builds the reference kernel");
    sides::build()?;
    let place = Place::new()?;
    let mut report = Report::new(options.json);
    for (suite, tests, programs) in &chosen {
        for batch in tests.chunks(suite.boot.max(1)) {
            compare(&place, suite, programs, batch, &mut report)?;
        }
    }
    Ok(report.end())
}

fn check_names(options: &Options, suites: &[Suite]) -> Result<(), String> {
    let is_known = |name: &String| suites.iter().any(|s| s.name == *name || s.names().contains(&name.as_str()));
    match options.only.iter().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => {
            let known: Vec<&str> = suites.iter().map(|s| s.name.as_str()).collect();
            Err(format!("`{name}` should be a test (see --list) or one of {}", known.join(", ")))
        }
    }
}

/// Where the roots and logs are.
struct Place {
    top: PathBuf,
}

impl Place {
    fn new() -> Result<Place, String> {
        let top = crate::shell::top().join("target/suites");
        fs::create_dir_all(top.join("logs")).map_err(|e| format!("{}: {e}", top.display()))?;
        Ok(Place { top })
    }
    /// Keeps a test's output.
    fn log(&self, suite: &Suite, side: Side, ran: &Ran) -> Result<(), String> {
        let ending = if side == Side::Linux { "linux" } else { "ours" };
        let file = self.top.join("logs").join(format!("{}.{}.{ending}", suite.name, ran.name));
        let text = format!("{}\nexit {:?}\n", ran.lines.join("\n"), ran.code);
        fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))
    }
}

/// Runs a batch on both sides, and reports it.
fn compare(place: &Place, suite: &Suite, programs: &Path, batch: &[Test], report: &mut Report) -> Result<(), String> {
    let linux = run_on(Side::Linux, place, suite, programs, batch, report)?;
    let passes = |test: &&Test| linux.iter().any(|ran| ran.name == test.name && ran.passes());
    let passing: Vec<Test> = batch.iter().filter(passes).cloned().collect();
    let ours = run_on(Side::Ours, place, suite, programs, &passing, report)?;
    for ran in &linux {
        report.add(suite, ran, ours.iter().find(|o| o.name == ran.name));
    }
    Ok(())
}

/// Runs the tests in as many boots as it takes.
fn run_on(
    side: Side,
    place: &Place,
    suite: &Suite,
    programs: &Path,
    tests: &[Test],
    report: &mut Report,
) -> Result<Vec<Ran>, String> {
    let mut all = Vec::new();
    while all.len() < tests.len() {
        let left = &tests[all.len()..];
        let root = place.top.join("root");
        root::make(&root, programs, left, &script::script(suite, left))?;
        let mut begins = |name: &str| report.progress(suite, side, name);
        let Reader { mut ran, other, is_done, .. } = sides::run(side, suite, &root, left.len(), &mut begins)?;
        let told = other.join("\n");
        match ran.last_mut() {
            None => return Err(format!("{}: no test has begun:\n{told}", side.name())),
            // The reason is the last that the kernel says.
            Some(last) if last.code.is_none() => last.lines.push(format!("the machine ended: {told}")),
            Some(_) if !is_done => return Err(format!("{}: ended between tests:\n{told}", side.name())),
            Some(_) => report.complain(suite, &other),
        }
        for ran in &ran {
            place.log(suite, side, ran)?;
        }
        all.extend(ran);
    }
    Ok(all)
}
