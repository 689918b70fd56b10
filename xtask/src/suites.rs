//! Runs tests and model checks: as many test binaries at a time as there are CPUs, one test at a time in each.
//!
//! `cargo test` runs one binary after the other. Most binaries have one test that takes most of
//! their time, so with `cargo test` one CPU does all the work at the end of each.
//!
//! The files of a folder `tests` that `tests/all/main.rs` names are built as one binary, and run one
//! process a file, as if each were a binary of its own. Cargo has them as such, too: `--test NAME` builds one alone.

mod beside;
mod sample;
mod targets;

pub use beside::{Options, run_with};
pub use sample::Share;
pub use targets::targets;

use crate::shell;
use sample::Long;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The folders in `crates` that have tests.
pub const FOLDERS: [&str; 8] = ["host", "lab", "model", "modelled", "recorded", "shuffled", "softfault", "testkit"];

/// Binaries that are built together.
pub struct Suite {
    /// The packages, and the profile: cargo's arguments.
    packages: &'static str,
    /// The folders in `crates` whose tests these are.
    folders: &'static [&'static str],
    /// The targets with unit tests: cargo's arguments.
    besides: &'static str,
    /// A package whose library has no tests of its own, though `--lib` would make some: built separately.
    alone: Option<&'static str>,
    /// Binaries that take longest, longest first. They start first, so that the last one to end is a short one. A
    /// name that no longer exists does no harm.
    longest: &'static [&'static str],
    /// The folder of a package whose binaries run one after the other, in one worker, which begins with them: they
    /// share files.
    in_turn: Option<&'static str>,
    /// Fewer schedules than the models have.
    fewer: Option<Fewer>,
    /// The tests of which the gate runs a sample.
    long: &'static [Long],
}

/// A bound for the schedules of models.
#[derive(Clone, Copy)]
pub struct Fewer {
    /// The schedules that a loom model looks at, at most, besides those that its preemptions leave.
    most_listed: u32,
    /// Of the random schedules of a shuttle model.
    percent_of_random: u32,
}

/// The model checks of the gate. A few models have many times as many schedules as others.
pub const MODELS: Suite = Suite { fewer: Some(Fewer { most_listed: 400, percent_of_random: 20 }), ..ALL_SCHEDULES };

/// The model checks, whole.
pub const ALL_SCHEDULES: Suite = Suite {
    packages: "--release -p softfault-modelled -p softfault-shuffled",
    folders: &["modelled", "shuffled"],
    besides: "",
    alone: None,
    longest: &[
        "weak_memory",
        "hugetlb_private",
        "folio_moves",
        "object_moves",
        "huge_pages",
        "hugetlb",
        "moves",
        "members",
        "object_swap",
        "large_folios",
        "swap",
        "clusters",
        "fault_and_removal",
    ],
    in_turn: None,
    fewer: None,
    long: &[],
};

/// All other tests but those in documentation. The modelled core only makes sense under loom. Patterns: each of its
/// packages has another one for its tests.
pub const TESTS: Suite = Suite {
    packages: "--workspace --exclude softfault-modelled* --exclude softfault-shuffled* --exclude softfault-recorded",
    folders: &["host", "lab", "model", "softfault", "testkit"],
    besides: "--lib --bin softfault --bin xtask",
    alone: Some("-p softfault-recorded --tests"),
    longest: &[
        "corpus",
        "formats",
        "relax",
        "hugetlb",
        "mremap",
        "several_cpus",
        "softfault",
        "differential",
        "huge_races",
        "softfault_host",
        "fast_path",
    ],
    in_turn: Some("lab"),
    fewer: None,
    long: &[Long { binary: "hugetlb", tests: "moves::h5_moves_under_use", every: 4 }],
};

/// A test binary, or some tests of one.
#[derive(Clone)]
struct Binary {
    name: String,
    executable: PathBuf,
    /// The folder of its package, in which cargo would run it.
    package: PathBuf,
    /// The tests to run.
    tests: Vec<String>,
}

/// The outcome of a binary: its output, its status, and its time.
struct Ended<'a> {
    binary: &'a Binary,
    text: String,
    took: Duration,
    result: Result<ExitStatus, String>,
}

/// Builds and runs them all. Calls `see` with each line of their output. The result is the part of the time that the
/// binaries of the folder `in_turn` took, as if all CPUs had worked for nothing else meanwhile.
pub fn run(suite: &Suite, share: Share, mut see: impl FnMut(&str)) -> Result<Duration, String> {
    let nr_workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut of_in_turn = Duration::ZERO;
    let mut binaries = binaries(suite)?;
    let left_out = share.of(suite.long, &mut binaries)?;
    if !left_out.is_empty() {
        println!("a sample: {} long tests are left to other commits, {}", left_out.len(), left_out.join(", "));
    }
    let chains = chains(suite, binaries);
    let queue = Mutex::new(chains.iter());
    let (sender, ended) = mpsc::channel();
    let mut failed = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..nr_workers {
            let (queue, sender) = (&queue, sender.clone());
            scope.spawn(move || work(queue, suite.fewer, share, &sender));
        }
        drop(sender);
        for Ended { binary, text, took, result } in ended {
            println!("     Running {} of {} ({} s)", binary.name, binary.folder(), took.as_secs());
            if suite.in_turn.is_some_and(|folder| folder == binary.folder()) {
                of_in_turn += took;
            }
            text.lines().for_each(|line| {
                println!("{line}");
                see(line);
            });
            match result {
                Ok(status) if status.success() => {}
                Ok(status) => failed.push(format!("{}: {status}", binary.name)),
                Err(why) => failed.push(format!("{}: {why}", binary.name)),
            }
        }
    });
    let share = of_in_turn / u32::try_from(nr_workers).unwrap_or(1);
    if failed.is_empty() { Ok(share) } else { Err(failed.join(", ")) }
}

/// Runs binaries until all have run.
fn work<'a>(
    queue: &Mutex<std::slice::Iter<'a, Vec<Binary>>>,
    fewer: Option<Fewer>,
    share: Share,
    ended: &Sender<Ended<'a>>,
) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some(chain) = next else { return };
        for binary in chain {
            let begun = Instant::now();
            let (text, result) = match command(binary, fewer, share).output() {
                Ok(output) => {
                    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                    (format!("{out}{err}"), Ok(output.status))
                }
                Err(why) => (String::new(), Err(why.to_string())),
            };
            if ended.send(Ended { binary, text, took: begun.elapsed(), result }).is_err() {
                return;
            }
        }
    }
}

/// As cargo would run it, but with one test at a time.
fn command(binary: &Binary, fewer: Option<Fewer>, share: Share) -> Command {
    let mut command = Command::new(&binary.executable);
    if let Share::Sample(number) = share {
        command.env("SOFTFAULT_SAMPLE", number.to_string());
    }
    if let Some(Fewer { most_listed, percent_of_random }) = fewer {
        command.env("SOFTFAULT_MOST_SCHEDULES", most_listed.to_string());
        command.env("SOFTFAULT_PERCENT_OF_SCHEDULES", percent_of_random.to_string());
    }
    if !binary.tests.is_empty() {
        command.arg("--exact").args(&binary.tests);
    }
    command.arg("--test-threads=1").current_dir(&binary.package).env("CARGO_MANIFEST_DIR", &binary.package);
    command
}

/// The work of a worker between two looks at the queue, the longest first: most often one binary.
fn chains(suite: &Suite, binaries: Vec<Binary>) -> Vec<Vec<Binary>> {
    let (in_turn, mut rest): (Vec<_>, Vec<_>) =
        binaries.into_iter().partition(|binary| suite.in_turn.is_some_and(|folder| folder == binary.folder()));
    rest.sort_by_key(|b| suite.longest.iter().position(|name| *name == b.name).unwrap_or(suite.longest.len()));
    let in_turn = Some(in_turn).filter(|chain| !chain.is_empty());
    in_turn.into_iter().chain(rest.into_iter().map(|binary| vec![binary])).collect()
}

/// Builds the binaries.
pub fn build(suite: &Suite) -> Result<(), String> {
    shell::run(&build_line(suite)?)?;
    suite.alone.map_or(Ok(()), |alone| shell::run(&shell::cargo(&format!("test {alone} --no-run"))))
}

/// Builds the binaries, but for one that is built alone.
pub fn build_line(suite: &Suite) -> Result<shell::Line, String> {
    Ok(shell::cargo(&format!("test {} --no-run", cargo_targets(suite)?)))
}

fn cargo_targets(suite: &Suite) -> Result<String, String> {
    Ok(format!("{} {} {}", suite.packages, suite.besides, targets(suite.folders)?))
}

/// Builds the binaries and lists them.
fn binaries(suite: &Suite) -> Result<Vec<Binary>, String> {
    let mut binaries = built(&cargo_targets(suite)?)?;
    if let Some(alone) = suite.alone {
        binaries.extend(built(alone)?);
    }
    Ok(binaries)
}

fn built(targets: &str) -> Result<Vec<Binary>, String> {
    let line = shell::cargo(&format!("test {targets} --no-run --message-format=json-render-diagnostics"));
    let mut binaries = Vec::new();
    for binary in shell::output_of(&line)?.lines().filter_map(binary_of) {
        let listed = files(&binary)?;
        if binary.name == targets::ALL { binaries.extend(listed) } else { binaries.push(whole(binary, listed)) }
    }
    if binaries.is_empty() { Err(format!("{}: names no test binary", line.text())) } else { Ok(binaries) }
}

/// The tests of each file that a binary has as a module.
fn files(all: &Binary) -> Result<Vec<Binary>, String> {
    let mut line = shell::Line::new(&all.executable.to_string_lossy(), "");
    line.args(&["--list", "--format", "terse"].map(String::from));
    let listed = shell::output_of(&line)?;
    let mut files: Vec<Binary> = Vec::new();
    for test in listed.lines().filter_map(|line| line.strip_suffix(": test")) {
        let name = test.split("::").next().unwrap_or(test);
        match files.iter_mut().find(|file| file.name == name) {
            Some(file) => file.tests.push(test.into()),
            None => files.push(Binary { name: name.into(), tests: vec![test.into()], ..all.clone() }),
        }
    }
    Ok(files)
}

/// The binary with the names of its tests.
fn whole(binary: Binary, files: Vec<Binary>) -> Binary {
    Binary { tests: files.into_iter().flat_map(|file| file.tests).collect(), ..binary }
}

impl Binary {
    /// The last part of its package's folder.
    fn folder(&self) -> String {
        self.package.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// A message of cargo's, as far as it is needed here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    executable: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// Reads the binary from a line of cargo's output, if the line names one.
fn binary_of(line: &str) -> Option<Binary> {
    let message: Message = serde_json::from_str(line).ok().filter(|m: &Message| m.reason == "compiler-artifact")?;
    // Examples and the programs that tests run have no tests themselves.
    if !message.profile.as_ref().is_some_and(|profile| profile.test) {
        return None;
    }
    let package = message.manifest_path.parent().map(Path::to_path_buf)?;
    Some(Binary { name: message.target?.name, executable: message.executable?, package, tests: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_messages_of_cargo() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/a/b/Cargo.toml","target":{"kind":["test"],"name":"swap"},"profile":{"test":true},"executable":"/t/swap-1"}"#;
        let found = binary_of(line).unwrap();
        assert_eq!((found.name.as_str(), found.executable, found.package), ("swap", "/t/swap-1".into(), "/a/b".into()));
        assert!(binary_of(&line.replace("\"/t/swap-1\"", "null")).is_none(), "a library");
        assert!(binary_of(&line.replace("true", "false")).is_none(), "an example");
        assert!(binary_of(&line.replace("compiler-artifact", "build-script-executed")).is_none());
        assert!(binary_of("no message").is_none());
    }

    #[test]
    fn a_binary_that_fails_is_seen() {
        let binary = |name: &str, executable: &str| Binary {
            name: name.into(),
            executable: executable.into(),
            package: "/".into(),
            tests: Vec::new(),
        };
        let all = [vec![binary("good", "true"), binary("bad", "false")], vec![binary("missing", "/nowhere/at/all")]];
        let (sender, ended) = mpsc::channel();
        work(&Mutex::new(all.iter()), None, Share::All, &sender);
        drop(sender);
        let good = |e: Ended<'_>| (e.binary.name.clone(), e.result.is_ok_and(|status| status.success()));
        let results: Vec<(String, bool)> = ended.iter().map(good).collect();
        assert_eq!(results, [("good".into(), true), ("bad".into(), false), ("missing".into(), false)]);
    }

    #[test]
    fn binaries_that_share_files_are_one_chain() {
        let binary = |name: &str, package: &str| Binary {
            name: name.into(),
            executable: name.into(),
            package: Path::new("/a").join(package),
            tests: Vec::new(),
        };
        let all = ["short", "corpus", "formats"].map(|name| binary(name, "testkit"));
        let all = all.into_iter().chain(["shell", "compare"].map(|name| binary(name, "lab"))).collect();
        let chains = chains(&TESTS, all);
        let names: Vec<Vec<&str>> = chains.iter().map(|c| c.iter().map(|b| b.name.as_str()).collect()).collect();
        assert_eq!(names, [vec!["shell", "compare"], vec!["corpus"], vec!["formats"], vec!["short"]]);
    }
}
