//! The mutants that are kept by hand, and their run. `mutants.rs` describes the lists.

use super::items::Items;
use super::place::{Change, Place, arguments, limit};
use super::sample::Budget;
use super::{Verdict, spread};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mutant: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    why: String,
    /// The item that has `from`, in that folder of `crates`.
    item: Option<String>,
    #[serde(default = "the_core", rename = "crate")]
    of_crate: String,
    /// Or the file that has it.
    file: Option<String>,
    from: String,
    to: String,
    test: String,
    #[serde(default = "five_minutes")]
    seconds: u64,
}

fn the_core() -> String {
    "softfault".into()
}

fn five_minutes() -> u64 {
    300
}

/// A mutant at its place.
#[derive(Clone)]
pub struct Mutant {
    pub name: String,
    pub why: String,
    pub change: Change,
    pub test: String,
    pub seconds: u64,
}

/// Reads all lists, and finds the place of each entry.
pub fn read(top: &Path) -> Result<Vec<Mutant>, String> {
    let mut crates: HashMap<String, Items> = HashMap::new();
    let mut mutants = Vec::new();
    for file in lists(&top.join("xtask/mutants/kept"))? {
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let list: List = toml::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))?;
        for entry in list.mutant {
            if entry.item.is_some() && !crates.contains_key(&entry.of_crate) {
                crates.insert(entry.of_crate.clone(), Items::of_crate(top, &entry.of_crate)?);
            }
            let name = entry.name.clone();
            let mutant = entry.placed(top, &crates).map_err(|why| format!("{name}: {why}"))?;
            mutants.push(mutant);
        }
    }
    let mut names = HashSet::new();
    match mutants.iter().find(|m| !names.insert(m.name.as_str())) {
        Some(twice) => Err(format!("mutants: the name {} is taken twice", twice.name)),
        None => Ok(mutants),
    }
}

/// The files of lists by hand.
fn lists(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "toml"));
    files.sort();
    Ok(files)
}

impl Entry {
    fn placed(self, top: &Path, crates: &HashMap<String, Items>) -> Result<Mutant, String> {
        arguments(&self.test)?;
        let (file, within) = match (&self.item, &self.file) {
            (Some(item), None) => {
                let item = crates.get(&self.of_crate).ok_or("no such crate")?.one(item)?;
                (item.file.clone(), Some(item.range.clone()))
            }
            (None, Some(file)) => (file.clone(), None),
            _ => return Err("should have either `item` or `file`".into()),
        };
        let text = std::fs::read_to_string(top.join(&file)).map_err(|e| format!("{file}: {e}"))?;
        let within = within.unwrap_or(0..text.len());
        let part = &text[within.clone()];
        let (1, Some(at)) = (part.matches(&self.from).count(), part.find(&self.from)) else {
            let nr = part.matches(&self.from).count();
            let place = self.item.as_deref().unwrap_or(&file);
            return Err(format!("`from` should stand once in {place}, and stands {nr} times"));
        };
        let start = within.start + at;
        let change = Change { file, range: start..start + self.from.len(), was: self.from, to: self.to };
        Ok(Mutant { name: self.name, why: self.why, change, test: self.test, seconds: self.seconds })
    }
}

/// Runs of a test, each of which has to pass before the mutant has survived.
const NR_TRIES: u32 = 3;

/// One run: the places to work in and the remaining time.
pub struct Campaign<'a> {
    places: &'a [Place],
    budget: Budget,
    nr: usize,
    /// The time of each test on the unchanged tree, or its failure.
    unchanged: Mutex<HashMap<String, Result<Duration, String>>>,
}

impl<'a> Campaign<'a> {
    pub fn new(places: &'a [Place], budget: Budget, nr: usize) -> Campaign<'a> {
        Campaign { places, budget, nr, unchanged: Mutex::default() }
    }

    pub fn nr_tried(&self) -> usize {
        self.budget.nr_tried()
    }

    /// Tries each mutant of `chosen` that still fits the budget; gives the names of those that were not
    /// killed.
    pub fn judge(&self, chosen: &[Mutant]) -> Result<Vec<String>, String> {
        if self.budget.is_used_up() {
            return Ok(Vec::new());
        }
        let known = self.unchanged.lock().expect("no worker panics").keys().cloned().collect::<HashSet<_>>();
        let mut tests: Vec<&str> =
            chosen.iter().map(|m| m.test.as_str()).filter(|test| !known.contains(*test)).collect();
        tests.sort_unstable();
        tests.dedup();
        spread(self.places, &tests, |place, test| {
            let result = place.unchanged(test, &self.budget);
            if let Err(wrong) = &result {
                println!("{wrong}");
            }
            self.unchanged.lock().expect("no worker panics").insert(test.to_string(), result);
            Ok(())
        })?;
        let chosen: Vec<&Mutant> = chosen.iter().collect();
        let bad = spread(self.places, &chosen, |place, mutant| {
            let start = Instant::now();
            let verdict = self.try_one(place, mutant)?;
            self.budget.spend(start.elapsed());
            self.say(mutant, start.elapsed(), verdict);
            Ok((!verdict.is_good()).then(|| mutant.name.clone()))
        })?;
        Ok(bad.into_iter().flatten().collect())
    }

    fn try_one(&self, place: &Place, mutant: &Mutant) -> Result<Verdict, String> {
        let took = match self.unchanged.lock().expect("no worker panics").get(&mutant.test) {
            Some(Ok(took)) => *took,
            _ => return Ok(Verdict::BadTest),
        };
        let limit = limit(Duration::from_secs(mutant.seconds), took);
        place.with(&mutant.change, || place.judge(&mutant.test, &mutant.name, limit, NR_TRIES))
    }

    fn say(&self, mutant: &Mutant, took: Duration, verdict: Verdict) {
        let n = self.budget.count();
        let seconds = took.as_secs();
        println!("{n:>3}/{} {:<40} {seconds:>5} s {:<17} {}", self.nr, mutant.name, verdict.name(), mutant.why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;

    #[test]
    fn every_entry_matches_exactly_once() {
        for mutant in read(&shell::top()).unwrap() {
            let text = std::fs::read_to_string(shell::top().join(&mutant.change.file)).unwrap();
            assert!(mutant.change.applied(&text).unwrap() != text, "{}", mutant.name);
        }
    }

    #[test]
    fn a_quote_is_of_one_item() {
        let entry = |item: Option<&str>, from: &str| Entry {
            name: "a".into(),
            why: "b".into(),
            item: item.map(String::from),
            of_crate: the_core(),
            file: item.is_none().then(|| "crates/softfault/src/hash.rs".into()),
            from: from.into(),
            to: "//".into(),
            test: "cargo test -p softfault".into(),
            seconds: 1,
        };
        let top = shell::top();
        let crates = HashMap::from([(the_core(), Items::of_crate(&top, "softfault").unwrap())]);
        let error = |item, from| entry(item, from).placed(&top, &crates).err();
        assert_eq!(
            error(None, "fn "),
            Some("`from` should stand once in crates/softfault/src/hash.rs, and stands 8 times".into())
        );
        assert_eq!(error(Some("Word::get"), "Ordering::Relaxed"), None);
        assert_eq!(error(Some("no::such"), "a"), Some("`no::such` is no item".into()));
    }
}
