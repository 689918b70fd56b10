//! Where mutants are put in and tests are run: a mirror of the tree, a build
//! folder of its own, and a log for each mutant. `mutants.rs` says which.

use super::Verdict;
use super::sample::Budget;
use crate::shell::{self, Line};
use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where the work is done.
pub struct Place {
    top: PathBuf,
    /// Which of the places that work at once.
    job: u64,
    verbose: bool,
    /// Variables of the tests.
    variables: &'static [(&'static str, &'static str)],
}

impl Place {
    /// Makes `top/tree-JOB` what the tree is. Writes only what differs, so that cargo
    /// builds only what changed.
    pub fn mirror(top: &Path, job: u64, verbose: bool) -> Result<Place, String> {
        let place = Place { top: top.into(), job, verbose, variables: &[] };
        let wanted: HashSet<String> = shell::project_files()?.into_iter().collect();
        let tree = place.tree();
        for folder in [&tree, &top.join("logs")] {
            std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        remove_unwanted(&tree, "", &wanted).map_err(|e| format!("{}: {e}", tree.display()))?;
        for file in wanted {
            let text = std::fs::read(shell::top().join(&file)).map_err(|e| format!("{file}: {e}"))?;
            let to = tree.join(&file);
            if std::fs::read(&to).is_ok_and(|there| there == text) {
                continue;
            }
            let folder = to.parent().expect("a file lies in a folder");
            std::fs::create_dir_all(folder)
                .and_then(|()| std::fs::write(&to, text))
                .map_err(|e| format!("{}: {e}", to.display()))?;
        }
        Ok(place)
    }

    /// The same with variables for the tests.
    pub fn with_variables(mut self, variables: &'static [(&'static str, &'static str)]) -> Place {
        self.variables = variables;
        self
    }

    fn tree(&self) -> PathBuf {
        self.top.join(format!("tree-{}", self.job))
    }

    /// The test, or with `compile_only` just its build.
    fn command(&self, test: &str, compile_only: bool) -> Result<Command, String> {
        let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
        let arguments = arguments(test)?;
        // Cargo refuses `--no-run` for doc tests: their build is the library's.
        match arguments.iter().position(|argument| *argument == "--doc") {
            Some(at) if compile_only => command.arg("build").args(&arguments[..at]),
            _ => command.arg("test").args(compile_only.then_some("--no-run")).args(&arguments),
        };
        // Nobody debugs these builds, and debug information is much of what they cost.
        for profile in ["DEV", "TEST", "RELEASE"] {
            command.env(format!("CARGO_PROFILE_{profile}_DEBUG"), "false");
            // Incremental builds of several units that are optimised across each other may not link (undefined symbols).
            command.env(format!("CARGO_PROFILE_{profile}_LTO"), "off");
        }
        // Each build serves one test: what counts is the time from a changed line to its end. Whoever builds each file
        // once, as the gate does, turns incremental builds off in the environment.
        command.env("CARGO_INCREMENTAL", "1").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        // A group of its own, so that a test that hangs can be ended with its children.
        command
            .current_dir(self.tree())
            .env("CARGO_TARGET_DIR", self.top.join(format!("build-{}", self.job)))
            .envs(self.variables.iter().copied())
            .process_group(0);
        Ok(command)
    }

    fn compiles(&self, test: &str) -> Result<bool, String> {
        let mut command = self.command(test, true)?;
        let errors = if self.verbose { Stdio::inherit() } else { Stdio::null() };
        let status = command.stdout(Stdio::null()).stderr(errors).status();
        Ok(status.map_err(|e| format!("{test}: {e}"))?.success())
    }

    /// Runs the test, its output to a log; `None` if it had to be ended.
    fn test(&self, test: &str, log: &str, limit: Duration) -> Result<Option<bool>, String> {
        let failed = |e: std::io::Error| format!("{log}: {e}");
        let out = File::create(self.log(log)).map_err(failed)?;
        let mut command = self.command(test, false)?;
        command.stdout(out.try_clone().map_err(failed)?).stderr(out);
        let mut child = command.spawn().map_err(failed)?;
        let deadline = Instant::now() + limit;
        let result = loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                break Some(status.success());
            }
            if Instant::now() > deadline {
                shell::run(&Line::new("kill", &format!("-KILL -- -{}", child.id())))?;
                child.wait().map_err(failed)?;
                break None;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        if self.verbose {
            println!("{}", self.logged(log));
        }
        Ok(result)
    }

    /// The name of the log of unchanged tests.
    pub fn own_log(&self) -> String {
        format!("unchanged-{}", self.job)
    }

    fn log(&self, name: &str) -> PathBuf {
        self.top.join("logs").join(format!("{name}.txt"))
    }

    fn logged(&self, name: &str) -> String {
        std::fs::read(self.log(name)).map_or(String::new(), |text| String::from_utf8_lossy(&text).into_owned())
    }

    /// Builds a test.
    pub fn build(&self, test: &str) -> Result<(), String> {
        if self.compiles(test)? { Ok(()) } else { Err(format!("`{test}` does not compile on the unchanged tree")) }
    }

    /// The test on the unchanged tree: how long it takes, or what is wrong with it.
    pub fn unchanged(&self, test: &str, budget: &Budget) -> Result<Duration, String> {
        let wrong = |what: &str| format!("`{test}` {what} on the unchanged tree");
        self.build(test)?;
        let (start, log) = (Instant::now(), self.own_log());
        let passed = self.test(test, &log, Duration::from_secs(3600))?;
        budget.spend(start.elapsed());
        let text = self.logged(&log);
        if passed != Some(true) {
            return Err(format!("{}:\n{text}", wrong("fails")));
        }
        if !text.lines().any(|line| line.starts_with("test ") && line.ends_with("... ok")) {
            return Err(wrong("runs no test"));
        }
        Ok(start.elapsed())
    }

    /// Puts the change in, judges it, takes it out again.
    pub fn with<T>(&self, change: &Change, judge: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let path = self.tree().join(&change.file);
        let before = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        write(&path, &change.applied(&before)?)?;
        let verdict = judge();
        write(&path, &before)?;
        verdict
    }

    /// Runs a test on the tree as it is, up to `nr_tries` times: some draw schedules at random or race real threads.
    pub fn judge(&self, test: &str, log: &str, limit: Duration, nr_tries: u32) -> Result<Verdict, String> {
        if !self.compiles(test)? {
            return Ok(Verdict::DoesNotCompile);
        }
        for _ in 0..nr_tries {
            match self.test(test, log, limit)? {
                None => return Ok(Verdict::Hung),
                Some(false) => return Ok(Verdict::Killed),
                Some(true) => {}
            }
        }
        Ok(Verdict::Survived)
    }
}

/// A replacement of some bytes of a file.
#[derive(Clone, Debug)]
pub struct Change {
    pub file: String,
    pub range: Range<usize>,
    pub was: String,
    pub to: String,
}

impl Change {
    /// The file's text with the replacement.
    pub fn applied(&self, text: &str) -> Result<String, String> {
        if text.get(self.range.clone()) != Some(&self.was) {
            return Err(format!("{}: has changed since it was read", self.file));
        }
        Ok(format!("{}{}{}", &text[..self.range.start], self.to, &text[self.range.end..]))
    }
}

/// The arguments after `cargo test`.
pub fn arguments(test: &str) -> Result<Vec<&str>, String> {
    let words: Vec<&str> = test.split_whitespace().collect();
    match words.strip_prefix(&["cargo", "test"]) {
        Some(arguments) => Ok(arguments.to_vec()),
        None => Err(format!("`{test}`: should begin with `cargo test`")),
    }
}

/// How long a test may take before it counts as hung. Twenty times what it takes on the
/// unchanged tree is a hang, unless that is a moment; three times may be a busy host.
pub fn limit(most: Duration, unchanged: Duration) -> Duration {
    most.min((20 * unchanged).max(Duration::from_secs(30))).max(3 * unchanged)
}

/// Removes every file of the folder that is not wanted, and folders without one:
/// a test or module that is gone from the tree would still be built in its copy.
fn remove_unwanted(folder: &Path, name: &str, wanted: &HashSet<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{name}{}", entry.file_name().to_string_lossy());
        if !entry.file_type()?.is_dir() {
            if !wanted.contains(&name) {
                std::fs::remove_file(entry.path())?;
            }
            continue;
        }
        remove_unwanted(&entry.path(), &format!("{name}/"), wanted)?;
        if std::fs::read_dir(entry.path())?.next().is_none() {
            std::fs::remove_dir(entry.path())?;
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_host_is_no_hang() {
        let seconds = Duration::from_secs;
        let limits = [(120, 0, 30), (20, 0, 20), (120, 4, 80), (120, 30, 120), (60, 50, 150)];
        for (most, unchanged, expected) in limits {
            assert_eq!(limit(seconds(most), seconds(unchanged)), seconds(expected));
        }
    }

    #[test]
    fn what_is_not_wanted_goes() {
        let top = std::env::temp_dir().join(format!("softfault-mutants-{}", std::process::id()));
        for file in ["kept.rs", "gone.rs", "some/kept.rs", "some/gone.rs", "none/at/all/gone.rs"] {
            let path = top.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let wanted = HashSet::from(["kept.rs".to_string(), "some/kept.rs".to_string()]);
        remove_unwanted(&top, "", &wanted).unwrap();
        let there = |file: &str| top.join(file).exists();
        assert!(there("kept.rs") && there("some/kept.rs"));
        assert!(!there("gone.rs") && !there("some/gone.rs") && !there("none"));
        std::fs::remove_dir_all(&top).unwrap();
    }
}
