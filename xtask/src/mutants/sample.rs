//! A sample of the mutants that changes with each commit, and the time it may take.

use super::Mutant;
use crate::shell::{self, Line};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::time::Duration;

/// Puts the mutants into an order that is the same for everybody who has the commit.
pub fn shuffle(mutants: &mut [Mutant]) -> Result<(), String> {
    let commit = shell::output_of(&Line::new("git", "rev-parse HEAD"))?;
    println!("sample of commit {}", commit.trim());
    mutants.sort_by_key(|mutant| place(&commit, &mutant.name));
    Ok(())
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
    fn the_first_mutant_always_runs() {
        let budget = Budget::new(Some(1));
        budget.spend(Duration::from_secs(5));
        assert!(!budget.is_used_up());
        assert_eq!(budget.count(), 1);
        assert!(budget.is_used_up());
        assert!(!Budget::new(None).is_used_up());
    }
}
