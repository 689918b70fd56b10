//! The minutes that the gate may take, by part, and the table of what it took.
//!
//! A part that needs more than its minutes has to become a sample, with a command of its own for its whole run. The
//! table says so and nothing fails: machines differ, and no answer of the gate depends on the clock.

use std::fmt::Write as _;
use std::time::Duration;

/// A part of the gate that has minutes of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Compilers, clippy among them, before anything runs.
    Builds,
    Tests,
    /// Schedules under loom and shuttle.
    Models,
    /// Wrong variants, and the README's commands beside them.
    Mutants,
    /// Programs on the reference kernel.
    Kernel,
    /// Miri, documentation, format and lints.
    Rest,
}

/// The parts in the order of the table, with their names, their minutes on two idle CPUs, and the command of a whole run
/// where the gate has a sample.
const BUDGET: [(Part, &str, u64, &str); 6] = [
    (Part::Builds, "builds", 5, ""),
    (Part::Tests, "tests", 3, "cargo xtask test"),
    (Part::Models, "models", 2, "cargo xtask models"),
    (Part::Mutants, "mutants, README", 2, "cargo xtask mutants"),
    (Part::Kernel, "kernel", 2, "cargo xtask test"),
    (Part::Rest, "Miri and the rest", 1, "cargo xtask miri"),
];

/// The time that parts took.
#[derive(Default)]
pub struct Spent(Vec<(Part, Duration)>);

impl Spent {
    /// Adds to a part's time.
    pub fn add(&mut self, part: Part, took: Duration) {
        self.0.push((part, took));
    }

    fn of(&self, part: Part) -> Duration {
        self.0.iter().filter(|(of, _)| *of == part).map(|(_, took)| *took).sum()
    }

    /// One line for each part and one for all.
    pub fn table(&self) -> String {
        let mut table = format!("{:18} {:>8} {:>8}  {:4}  {}\n", "part", "budget s", "took s", "", "whole run");
        let mut line = |name: &str, budget: u64, took: u64, whole: &str| {
            let over = if took > budget { "over" } else { "" };
            let text = format!("{name:18} {budget:8} {took:8}  {over:4}  {whole}");
            _ = writeln!(table, "{}", text.trim_end());
        };
        let mut sums = (0, 0);
        for (part, name, minutes, whole) in BUDGET {
            let took = self.of(part).as_secs();
            line(name, minutes * 60, took, whole);
            sums = (sums.0 + minutes * 60, sums.1 + took);
        }
        line("all", sums.0, sums.1, "");
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_over_its_budget_is_named() {
        let mut spent = Spent::default();
        for seconds in [100, 201] {
            spent.add(Part::Builds, Duration::from_secs(seconds));
        }
        spent.add(Part::Models, Duration::from_secs(120));
        let table = spent.table();
        let over: Vec<&str> = table.lines().filter(|line| line.contains(" over")).collect();
        assert_eq!(over, ["builds                  300      301  over"]);
        assert!(table.contains("models                  120      120        cargo xtask models\n"), "{table}");
        assert!(table.ends_with("all                     900      421\n"), "{table}");
    }

    #[test]
    fn the_gate_has_fifteen_minutes() {
        assert_eq!(BUDGET.iter().map(|(_, _, minutes, _)| minutes).sum::<u64>(), 15);
    }
}
