//! `cargo xtask mutants`: checks that tests notice wrong code.
//!
//! A mutant replaces one text in one file by another. Its named test must fail; if the test
//! passes three times, the mutant has survived. The lists are `xtask/mutants/*.toml`:
//!
//! ```toml
//! [[mutant]]
//! name = "recheck-left-out"
//! why = "a fault installs into a VMA that is gone"
//! file = "crates/softfault/src/fault/mod.rs"
//! from = "if self.changed() {"
//! to = "if false {"
//! test = "cargo test -p softfault-testkit --test races f4"
//! seconds = 120   # optional; a test that takes longer, or 20 times what it usually takes, has noticed, too
//! ```
//!
//! Mutants run on mirrors of the tree in `target/mutants/tree-N`. Every test must pass on
//! the unchanged mirror and every mutant must compile, or a failure would mean nothing. The
//! unchanged tests run first, since each would cost a build between mutants.
//! `target/mutants/logs` keeps the output of each test, which shows why a mutant died.
//!
//! The gate runs `--sample SECONDS`: the order depends on the commit, and no mutant starts
//! after that time. A mutant that does not match, does not compile or survives fails the
//! run in either form.

mod place;
mod sample;

use crate::shell::{self, Line};
use place::Place;
use sample::Budget;
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The options of `cargo xtask mutants`.
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
    /// Run mutants in an order that changes with each commit, until this time is used up; builds of the
    /// unchanged tree do not count
    #[arg(long, value_name = "SECONDS")]
    sample: Option<u64>,
    /// How many mutants to try at once, each in a mirror and a build folder of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    jobs: u64,
}

/// The command that the gate runs.
pub fn sample_line(seconds: u64) -> Result<Line, String> {
    let own = std::env::current_exe().map_err(|e| format!("xtask's own binary: {e}"))?;
    Ok(Line::new(&own.to_string_lossy(), &format!("mutants --sample {seconds}")))
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
    let all = read_lists()?;
    for mutant in &all {
        mutant.applied(&shell::top())?;
    }
    let mut chosen: Vec<Mutant> = all.into_iter().filter(|m| options.wants(m)).collect();
    if chosen.is_empty() {
        return Err("mutants: no entry has such a name; the lists are xtask/mutants/*.toml".into());
    }
    if options.dry_run {
        println!("{} mutants, each of which matches exactly once", chosen.len());
        return Ok(());
    }
    let begun = Instant::now();
    let top = shell::top().join("target/mutants");
    let places: Result<Vec<Place>, String> =
        (0..options.jobs).map(|job| Place::mirror(&top, job, options.verbose)).collect();
    let campaign = Campaign { places: places?, budget: Budget::new(options.sample), nr: chosen.len() };
    let bad = match options.sample {
        // Each mutant right after its unchanged test: the time may end anywhere.
        Some(_) => {
            sample::shuffle(&mut chosen)?;
            chosen.chunks(1).map(|one| campaign.judge(one)).collect::<Result<Vec<_>, _>>()?.concat()
        }
        None => campaign.judge(&chosen)?,
    };
    let nr_tried = campaign.budget.nr_tried();
    println!("{} of {} mutants killed, {} s", nr_tried - bad.len(), nr_tried, begun.elapsed().as_secs());
    if bad.is_empty() { Ok(()) } else { Err(format!("mutants: not killed: {}", bad.join(", "))) }
}

/// One run: the places to work in and the remaining time.
struct Campaign {
    places: Vec<Place>,
    budget: Budget,
    nr: usize,
}

impl Campaign {
    /// Tries each mutant of `chosen` that still fits the budget; gives the names of those that were not
    /// killed.
    fn judge(&self, chosen: &[Mutant]) -> Result<Vec<String>, String> {
        if self.budget.is_used_up() {
            return Ok(Vec::new());
        }
        let mut tests: Vec<&Mutant> = Vec::new();
        for mutant in chosen {
            if !tests.iter().any(|m| m.test == mutant.test) {
                tests.push(mutant);
            }
        }
        let unchanged: HashMap<&str, Result<Duration, String>> = self
            .spread(&tests, |place, mutant| {
                let result = place.unchanged(mutant, &self.budget);
                if let Err(wrong) = &result {
                    println!("{wrong}");
                }
                Ok((mutant.test.as_str(), result))
            })?
            .into_iter()
            .collect();
        let chosen: Vec<&Mutant> = chosen.iter().collect();
        let bad = self.spread(&chosen, |place, mutant| {
            let start = Instant::now();
            let verdict = match unchanged[mutant.test.as_str()] {
                Ok(took) => place.try_one(mutant, took)?,
                Err(_) => Verdict::BadTest,
            };
            self.budget.spend(start.elapsed());
            self.say(mutant, start.elapsed(), verdict);
            Ok((!verdict.is_good()).then(|| mutant.name.clone()))
        })?;
        Ok(bad.into_iter().flatten().collect())
    }

    fn say(&self, mutant: &Mutant, took: Duration, verdict: Verdict) {
        let n = self.budget.count();
        let seconds = took.as_secs();
        println!("{n:>3}/{} {:<40} {seconds:>5} s {:<17} {}", self.nr, mutant.name, verdict.name(), mutant.why);
    }

    /// Calls `work` with each item, in as many threads as there are places.
    fn spread<'m, T: Send>(
        &self,
        items: &[&'m Mutant],
        work: impl Fn(&Place, &'m Mutant) -> Result<T, String> + Sync,
    ) -> Result<Vec<T>, String> {
        let queue = Mutex::new(items.iter());
        let results = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for place in &self.places {
                scope.spawn(|| {
                    loop {
                        let Some(item) = queue.lock().expect("no worker panics").next() else { break };
                        let result = work(place, item);
                        results.lock().expect("no worker panics").push(result);
                    }
                });
            }
        });
        results.into_inner().expect("no worker panics").into_iter().collect()
    }
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
    /// The arguments after `cargo test`.
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
