//! A sample of the mutants that changes with each commit, and the time it may take.

use super::kept::Mutant;
use crate::shell::{self, Line};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::time::Duration;

/// Puts the mutants into an order that is the same for everybody at the same commit.
pub fn shuffle(mutants: &mut [Mutant]) -> Result<(), String> {
    let commit = commit()?;
    println!("sample of commit {commit}");
    order(&commit, mutants);
    Ok(())
}

/// A seed that is the same for everybody at the same commit.
pub fn seed() -> Result<u64, String> {
    Ok(place(&commit()?, "seed") % 1_000_000)
}

fn commit() -> Result<String, String> {
    Ok(shell::output_of(&Line::new("git", "rev-parse HEAD"))?.trim().into())
}

/// By chance, but mutants that share the first one's build come first: each further package or profile would cost
/// a minute of builds before its first test. The first one is any mutant, so each build comes as often as it has mutants.
fn order(commit: &str, mutants: &mut [Mutant]) {
    mutants.sort_by_key(|mutant| place(commit, &mutant.name));
    if let Some(first) = mutants.first().map(|mutant| build(&mutant.test)) {
        mutants.sort_by_key(|mutant| build(&mutant.test) != first);
    }
}

/// The profile and the package that a test is built for.
pub fn build(test: &str) -> (bool, String) {
    let package = test.split_whitespace().skip_while(|word| *word != "-p").nth(1).unwrap_or_default();
    (test.contains("--release"), package.to_string())
}

fn place(commit: &str, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (commit.trim(), name).hash(&mut hasher);
    hasher.finish()
}

/// The time that tests and mutants may take, and what they took.
pub struct Budget {
    limit: Option<Duration>,
    used: Mutex<(Duration, usize)>,
}

impl Budget {
    /// Without a limit everything is tried.
    pub fn new(seconds: Option<u64>) -> Budget {
        Budget { limit: seconds.map(Duration::from_secs), used: Mutex::default() }
    }
    /// Adds to the time used.
    pub fn spend(&self, took: Duration) {
        self.used.lock().expect("nobody panics").0 += took;
    }
    /// Whether nothing more should be started. The first mutant always runs.
    pub fn is_used_up(&self) -> bool {
        let (used, nr) = *self.used.lock().expect("nobody panics");
        nr > 0 && self.limit.is_some_and(|limit| used >= limit)
    }
    /// Counts one mutant that was tried; its number.
    pub fn count(&self) -> usize {
        let mut used = self.used.lock().expect("nobody panics");
        used.1 += 1;
        used.1
    }
    /// How many were tried.
    pub fn nr_tried(&self) -> usize {
        self.used.lock().expect("nobody panics").1
    }
}

#[cfg(test)]
mod tests {
    use super::super::place::Change;
    use super::*;

    #[test]
    fn the_order_depends_on_the_commit() {
        let order = |commit: &str| {
            let mut names: Vec<String> = (0..20).map(|i| format!("mutant-{i}")).collect();
            names.sort_by_key(|name| place(commit, name));
            names
        };
        assert_eq!(order("abc"), order("abc\n"));
        assert_ne!(order("abc"), order("abd"));
    }

    #[test]
    fn one_build_comes_first() {
        let mutant = |number: usize| Mutant {
            name: format!("mutant-{number}"),
            why: String::new(),
            change: Change { file: String::new(), range: 0..0, was: String::new(), to: String::new() },
            test: ["cargo test -p a --test x", "cargo test --release -p a", "cargo test -p b"][number % 3].into(),
            seconds: 1,
        };
        let mut firsts = std::collections::HashSet::new();
        for commit in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
            let mut mutants: Vec<Mutant> = (0..30).map(mutant).collect();
            order(commit, &mut mutants);
            let first = build(&mutants[0].test);
            assert!(mutants[..10].iter().all(|m| build(&m.test) == first));
            assert!(mutants[10..].iter().all(|m| build(&m.test) != first));
            firsts.insert(first);
        }
        assert!(firsts.len() > 1, "each build has its turn");
    }

    #[test]
    fn the_first_mutant_always_runs() {
        let budget = Budget::new(Some(1));
        budget.spend(Duration::from_secs(5));
        assert!(!budget.is_used_up());
        assert_eq!(budget.count(), 1);
        assert!(budget.is_used_up());
        assert!(!Budget::new(None).is_used_up());
    }
}
