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
//! Work is done on a mirror of the tree in `target/mutants/tree`. Every test must
//! pass on the unchanged mirror and every mutant must compile, or a failure would
//! say nothing. The unchanged tests come first, all together: in between they
//! would cost a build each. `target/mutants/logs` keeps what each test printed, so
//! that one can see whether a mutant was killed for the right reason.

mod place;

use crate::shell;
use place::Place;
use serde::Deserialize;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

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
    /// The test fails without the mutant.
    BadTest,
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
    let begun = Instant::now();
    let place = Place::mirror(&shell::top().join("target/mutants"), options.verbose)?;
    let unchanged = place.all_unchanged(&chosen);
    unchanged.values().flat_map(|result| result.as_ref().err()).for_each(|wrong| println!("{wrong}"));
    println!("{} tests on the unchanged tree, {} s", unchanged.len(), begun.elapsed().as_secs());
    println!("{:<40} {:>8} {:<17} why", "mutant", "seconds", "verdict");
    let mut bad = Vec::new();
    for mutant in &chosen {
        let start = Instant::now();
        let verdict = match unchanged[&mutant.test] {
            Ok(took) => place.try_one(mutant, took)?,
            Err(_) => Verdict::BadTest,
        };
        println!("{:<40} {:>8} {:<17} {}", mutant.name, start.elapsed().as_secs(), verdict.name(), mutant.why);
        if !verdict.is_good() {
            bad.push(mutant.name.as_str());
        }
    }
    println!("{} of {} mutants killed, {} s", chosen.len() - bad.len(), chosen.len(), begun.elapsed().as_secs());
    if bad.is_empty() { Ok(()) } else { Err(format!("mutants: not killed: {}", bad.join(", "))) }
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
            Verdict::BadTest => "TEST FAILS ANYWAY",
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
    /// What follows `cargo test`.
    fn arguments(&self) -> Result<Vec<&str>, String> {
        let words: Vec<&str> = self.test.split_whitespace().collect();
        match words.strip_prefix(&["cargo", "test"]) {
            Some(arguments) => Ok(arguments.to_vec()),
            None => Err(format!("{}: `test` should begin with `cargo test`", self.name)),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_matches_exactly_once() {
        for mutant in read_lists().unwrap() {
            assert!(mutant.arguments().is_ok(), "{}", mutant.name);
            let text = mutant.applied(&shell::top()).unwrap();
            assert!(text.contains(&mutant.to), "{}", mutant.name);
        }
    }
}
