//! Runs generated mutants in an order by a seed: some of the whole core, or in the gate some of those in the lines of the
//! last commits.
//!
//! Nobody has named the tests of such a mutant: those of its file run, then those for any change. The first that fails has
//! killed it, if it passes on the unchanged tree.

use super::changed::Changed;
use super::generate::Generated;
use super::place::{Change, Place};
use super::sample::Budget;
use super::tables::{self, Tests};
use super::{Verdict, spread};
use crate::shell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The time of the gate for those of the last commits, besides its first builds and the last test that it starts.
pub const SECONDS: u64 = 90;
pub const MOST: usize = 20;
/// A test that takes longer has noticed. Those of the table take a third of it at most.
const LIMIT: Duration = Duration::from_secs(180);

/// Of a model, so many schedules.
const FEWER: [(&str, &str); 2] = [("SOFTFAULT_MOST_SCHEDULES", "500"), ("SOFTFAULT_PERCENT_OF_SCHEDULES", "10")];

/// A run over mutants in the order that they have.
pub struct Hunt {
    places: Vec<Place>,
    tests: Tests,
    most: usize,
    budget: Budget,
    nr_begun: AtomicUsize,
    /// Whether each test that has failed passes on the unchanged tree.
    trusted: Mutex<HashMap<String, bool>>,
}

/// All that begin within the time, of those that the names choose.
pub fn run(places: Vec<Place>, names: &[String], most: usize, seed: u64) -> Result<(), String> {
    let mut all = tables::wanted(&shell::top())?;
    let nr_all = all.len();
    all.retain(|m| names.is_empty() || names.iter().any(|n| m.id() == *n || m.file.contains(n) || m.item.contains(n)));
    println!("seed {seed}: {most} of {} generated mutants of the core ({nr_all} in all)", all.len());
    hunt(places, all, most, seed, None)
}

/// The gate's part. It is an error that none was tried, unless nothing has changed of which there is one.
pub fn run_changed(places: Vec<Place>, seed: u64) -> Result<(), String> {
    let Some(changed) = Changed::read()? else {
        println!("left out: generated mutants, since a history of one commit does not say which lines have changed");
        return Ok(());
    };
    let mut all = tables::wanted(&shell::top())?;
    all.retain(|mutant| changed.has(mutant));
    println!("seed {seed}: {MOST} of {} generated mutants in the lines of the last commits", all.len());
    if all.is_empty() { Ok(()) } else { hunt(places, all, MOST, seed, Some(SECONDS)) }
}

fn hunt(
    places: Vec<Place>,
    mut mutants: Vec<Generated>,
    most: usize,
    seed: u64,
    seconds: Option<u64>,
) -> Result<(), String> {
    let begun = Instant::now();
    let places: Vec<Place> = places.into_iter().map(|place| place.with_variables(&FEWER)).collect();
    let tests = Tests::read(&shell::top())?;
    order(seed, &mut mutants, &tests, seconds.is_some());
    let (budget, nr_begun) = (Budget::new(seconds), AtomicUsize::new(0));
    let hunt = Hunt { places, tests, most, budget, nr_begun, trusted: Mutex::default() };
    let mutants: Vec<&Generated> = mutants.iter().collect();
    if seconds.is_some() {
        hunt.build_first(mutants.first().copied())?;
    }
    let bad: Vec<String> =
        spread(&hunt.places, &mutants, |place, m| hunt.try_one(place, m))?.into_iter().flatten().collect();
    let nr_tried = hunt.budget.nr_tried();
    println!("{} of {nr_tried} generated mutants killed, {} s", nr_tried - bad.len(), begun.elapsed().as_secs());
    if nr_tried == 0 {
        return Err("mutants: no mutant tried".into());
    }
    if bad.is_empty() { Ok(()) } else { Err(format!("mutants: not killed:\n{}", bad.join("\n"))) }
}

/// By chance. In the gate those that share the first one's build come first.
fn order(seed: u64, mutants: &mut [Generated], tests: &Tests, is_gate: bool) {
    mutants.sort_by_cached_key(|mutant| {
        let mut hasher = DefaultHasher::new();
        (seed, mutant.id()).hash(&mut hasher);
        hasher.finish()
    });
    let build = |mutant: &Generated| tests.of(mutant).first().map(|test| super::sample::build(test));
    if is_gate && let Some(first) = mutants.first().map(build) {
        mutants.sort_by_cached_key(|mutant| build(mutant) != first);
    }
}

impl Hunt {
    /// The first build takes a minute, which is not the mutants' time.
    fn build_first(&self, first: Option<&Generated>) -> Result<(), String> {
        let test = first.and_then(|mutant| self.tests.of(mutant).into_iter().next());
        test.map_or(Ok(()), |test| self.places.iter().try_for_each(|place| place.build(&test)))
    }

    /// Whether it survived: then its description. None if the run is over, too.
    fn try_one(&self, place: &Place, mutant: &Generated) -> Result<Option<String>, String> {
        if self.budget.is_used_up() || self.nr_begun.fetch_add(1, Ordering::Relaxed) >= self.most {
            return Ok(None);
        }
        let begun = Instant::now();
        let (verdict, by) = self.judge(place, mutant)?;
        self.budget.spend(begun.elapsed());
        if verdict == Verdict::DoesNotCompile {
            self.nr_begun.fetch_sub(1, Ordering::Relaxed);
            return Ok(None);
        }
        let line = format!("{}:{} {} `{}`", mutant.file, mutant.line, mutant.item, mutant.what);
        let (n, seconds, id, name) = (self.budget.count(), begun.elapsed().as_secs(), mutant.id(), verdict.name());
        println!("{n:>3} {id} {seconds:>4} s {name:<17} {line}\n      {by}");
        Ok((!verdict.is_good()).then(|| format!("{id} {line}")))
    }

    /// The verdict, and the test that gave it.
    fn judge(&self, place: &Place, mutant: &Generated) -> Result<(Verdict, String), String> {
        let file = shell::top().join(&mutant.file);
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let (range, was) = (mutant.range.clone(), text[mutant.range.clone()].to_string());
        let change = Change { file: mutant.file.clone(), range, was, to: mutant.to.clone() };
        let tests = self.tests.of(mutant);
        let (verdict, by) = place.with(&change, || {
            for test in &tests {
                let verdict = place.judge(test, &mutant.id(), LIMIT, 1)?;
                if verdict != Verdict::Survived {
                    return Ok((verdict, test.clone()));
                }
            }
            Ok((Verdict::Survived, tests.join("; ")))
        })?;
        let is_good = !verdict.is_good() || self.is_trusted(place, &by)?;
        Ok((if is_good { verdict } else { Verdict::BadTest }, by))
    }

    /// Whether a test that failed passes without a mutant, in a sixth of the limit or so.
    fn is_trusted(&self, place: &Place, test: &str) -> Result<bool, String> {
        if let Some(known) = self.trusted.lock().expect("no worker panics").get(test) {
            return Ok(*known);
        }
        let passes = place.judge(test, &place.own_log(), LIMIT, 1)? == Verdict::Survived;
        self.trusted.lock().expect("no worker panics").insert(test.into(), passes);
        Ok(passes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_the_seeds() {
        let mutant = |number: usize| Generated {
            file: format!("crates/softfault/src/{}/a.rs", ["fault", "swap", "table"][number % 3]),
            item: format!("item{number}"),
            what: "without: a();".into(),
            line: 1,
            range: 0..0,
            to: String::new(),
            is_ordering: false,
        };
        let text = "at_last = [\"lib\"]\n[by_file]\n\"fault/\" = [\"modelled swap\"]\n\"swap/\" = [\"testkit swap\"]\n";
        let tests: Tests = toml::from_str(text).unwrap();
        let ordered = |seed: u64, is_gate: bool| {
            let mut all: Vec<Generated> = (0..30).map(mutant).collect();
            order(seed, &mut all, &tests, is_gate);
            all
        };
        assert_eq!(ordered(1, false), ordered(1, false));
        assert_ne!(ordered(1, false), ordered(2, false));
        let folder = |m: &Generated| m.file.split('/').nth(3).map(String::from);
        let gate: Vec<_> = ordered(7, true).iter().map(folder).collect();
        assert!(gate[..10].iter().all(|f| *f == gate[0]) && gate[10..].iter().all(|f| *f != gate[0]));
    }
}
