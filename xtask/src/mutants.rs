//! `cargo xtask mutants`: does the test notice?
//!
//! A mutant is a wrong variant of the real code: one text in one file replaced
//! by another. Its named test must fail on it; one that passes has let the
//! mutant survive, and protects nothing. The lists are `xtask/mutants/*.toml`:
//!
//! ```toml
//! [[mutant]]
//! name = "recheck-left-out"
//! why = "a fault installs into a VMA that is gone"
//! file = "crates/softfault/src/fault/mod.rs"
//! from = "if self.changed() {"
//! to = "if false {"
//! test = "cargo test -p softfault-testkit --test races f4"
//! seconds = 120   # optional; a test that hangs for longer has noticed, too
//! ```
//!
//! Work is done on a copy of the tree in `target/mutants`. Every test must pass
//! on the unchanged copy and every mutant must compile, or a failure would say
//! nothing.

use crate::shell::{self, Line};
use serde::Deserialize;
use std::collections::HashSet;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What may be typed after `cargo xtask mutants`.
#[derive(clap::Args)]
pub struct Options {
    /// Only mutants whose names contain one of these
    names: Vec<String>,
    /// Show what the tests print
    #[arg(long)]
    verbose: bool,
    /// Only check that each replacement matches exactly once
    #[arg(long)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mutant: Vec<Mutant>,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
struct Mutant {
    name: String,
    why: String,
    file: String,
    from: String,
    to: String,
    test: String,
    #[serde(default = "five_minutes")]
    seconds: u64,
}

fn five_minutes() -> u64 {
    300
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Killed,
    Hung,
    Survived,
    DoesNotCompile,
}

/// Runs the chosen ones and prints a table.
pub fn run(options: &Options) -> Result<(), String> {
    let chosen: Vec<Mutant> = read_lists()?.into_iter().filter(|m| options.wants(m)).collect();
    if chosen.is_empty() {
        return Err("mutants: no entry has such a name; the lists are xtask/mutants/*.toml".into());
    }
    for mutant in &chosen {
        mutant.applied(&shell::top())?;
    }
    if options.dry_run {
        println!("{} mutants, each of which matches exactly once", chosen.len());
        return Ok(());
    }
    let tree = shell::top().join("target/mutants/tree");
    copy_tree(&tree)?;
    let mut passed_unchanged = HashSet::new();
    let mut bad = 0;
    println!("{:<40} {:>8} {:<16} why", "mutant", "seconds", "verdict");
    for mutant in &chosen {
        if passed_unchanged.insert(mutant.test.clone()) {
            must_pass_unchanged(mutant, &tree, options.verbose)?;
        }
        let start = Instant::now();
        let verdict = try_one(mutant, &tree, options.verbose)?;
        println!("{:<40} {:>8} {:<16} {}", mutant.name, start.elapsed().as_secs(), verdict.name(), mutant.why);
        bad += usize::from(!verdict.is_good());
    }
    println!("{} of {} mutants killed", chosen.len() - bad, chosen.len());
    if bad == 0 { Ok(()) } else { Err(format!("mutants: {bad} not killed")) }
}

impl Options {
    fn wants(&self, mutant: &Mutant) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| mutant.name.contains(name.as_str()))
    }
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Killed => "killed",
            Verdict::Hung => "killed (hung)",
            Verdict::Survived => "SURVIVED",
            Verdict::DoesNotCompile => "DOES NOT COMPILE",
        }
    }
    fn is_good(self) -> bool {
        matches!(self, Verdict::Killed | Verdict::Hung)
    }
}

impl Mutant {
    /// The file's text with the replacement made.
    fn applied(&self, tree: &Path) -> Result<String, String> {
        let text =
            std::fs::read_to_string(tree.join(&self.file)).map_err(|e| format!("{}: {}: {e}", self.name, self.file))?;
        match text.matches(&self.from).count() {
            1 => Ok(text.replacen(&self.from, &self.to, 1)),
            n => Err(format!("{}: `from` should stand once in {}, and stands {n} times", self.name, self.file)),
        }
    }
    /// The test, or with `compile_only` just its build.
    fn command(&self, tree: &Path, compile_only: bool) -> Result<Command, String> {
        let mut words = self.test.split_whitespace();
        if words.next() != Some("cargo") || words.next() != Some("test") {
            return Err(format!("{}: `test` should begin with `cargo test`", self.name));
        }
        let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
        command.arg("test").args(compile_only.then_some("--no-run")).args(words).current_dir(tree);
        // A group of its own, so that a test that hangs can be ended with its children.
        command.env("CARGO_TARGET_DIR", shell::top().join("target/mutants/build")).process_group(0);
        Ok(command)
    }
}

fn must_pass_unchanged(mutant: &Mutant, tree: &Path, verbose: bool) -> Result<(), String> {
    let mut command = mutant.command(tree, false)?;
    let output = command.stderr(stderr(verbose)).output().map_err(|e| format!("{}: {e}", mutant.test))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("{}: `{}` fails on the unchanged tree:\n{text}", mutant.name, mutant.test));
    }
    if !text.lines().any(|line| line.starts_with("test ") && line.ends_with("... ok")) {
        return Err(format!("{}: `{}` runs no test", mutant.name, mutant.test));
    }
    Ok(())
}

/// Puts the mutant in, runs its test, takes it out again.
fn try_one(mutant: &Mutant, tree: &Path, verbose: bool) -> Result<Verdict, String> {
    let path = tree.join(&mutant.file);
    let before = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    write(&path, &mutant.applied(tree)?)?;
    let verdict = judge(mutant, tree, verbose);
    write(&path, &before)?;
    verdict
}

fn judge(mutant: &Mutant, tree: &Path, verbose: bool) -> Result<Verdict, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", mutant.name);
    let mut compile = mutant.command(tree, true)?;
    let compiles = compile.stdout(Stdio::null()).stderr(stderr(verbose)).status().map_err(failed)?;
    if !compiles.success() {
        return Ok(Verdict::DoesNotCompile);
    }
    let mut test = mutant.command(tree, false)?;
    let out = if verbose { Stdio::inherit() } else { Stdio::null() };
    let mut child = test.stdout(out).stderr(stderr(verbose)).spawn().map_err(failed)?;
    let deadline = Instant::now() + Duration::from_secs(mutant.seconds);
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(if status.success() { Verdict::Survived } else { Verdict::Killed });
        }
        if Instant::now() > deadline {
            shell::run(&Line::new("kill", &format!("-KILL -- -{}", child.id())))?;
            child.wait().map_err(failed)?;
            return Ok(Verdict::Hung);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn stderr(verbose: bool) -> Stdio {
    if verbose { Stdio::inherit() } else { Stdio::null() }
}

fn read_lists() -> Result<Vec<Mutant>, String> {
    let folder = shell::top().join("xtask/mutants");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "toml"));
    files.sort();
    let mut mutants: Vec<Mutant> = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let list: List = toml::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))?;
        mutants.extend(list.mutant);
    }
    let mut names = HashSet::new();
    match mutants.iter().find(|m| !names.insert(m.name.as_str())) {
        Some(twice) => Err(format!("mutants: the name {} is taken twice", twice.name)),
        None => Ok(mutants),
    }
}

/// Writes only what differs, so that cargo builds only what changed.
fn copy_tree(tree: &Path) -> Result<(), String> {
    for file in shell::project_files()? {
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
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_matches_exactly_once() {
        for mutant in read_lists().unwrap() {
            assert!(mutant.command(Path::new("."), true).is_ok(), "{}", mutant.name);
            let text = mutant.applied(&shell::top()).unwrap();
            assert!(text.contains(&mutant.to), "{}", mutant.name);
        }
    }
}
