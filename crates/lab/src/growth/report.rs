//! The growth of each row, and whether it meets the goal.

use super::options::{Config, State};
use super::rows::Row;
use super::what::What;
use crate::bench::plain_table;
use std::fmt::Write;

/// The goal: steps in any machine, over those in the first.
pub const MOST_GROWTH: f64 = 2.0;
/// The goal: steps in memory that is aged really, and in that which is only set so.
const MOST_DEVIATION: f64 = 0.2;

/// All rows of all machines.
pub struct Report {
    /// The machines, the smallest first.
    pub configs: Vec<Config>,
    /// Machine by machine, state by state.
    pub rows: Vec<Row>,
}

/// One row in all machines.
pub struct Line<'a> {
    /// The call.
    pub what: What,
    /// In which memory.
    pub state: State,
    /// A row for each machine, the smallest first.
    pub rows: Vec<&'a Row>,
}

impl Line<'_> {
    /// The row with the most steps.
    pub fn worst(&self) -> &Row {
        self.rows.iter().max_by_key(|row| row.steps).expect("a line has rows")
    }

    /// Steps there over those in the first machine.
    pub fn growth(&self) -> f64 {
        self.worst().steps as f64 / self.rows[0].steps.max(1) as f64
    }

    fn verdict(&self) -> &'static str {
        match self.growth() <= MOST_GROWTH {
            _ if self.what.is_exempt() => "exempt",
            true => "holds",
            false => "GROWS",
        }
    }
}

impl Report {
    /// All lines, what by what.
    pub fn lines(&self) -> Vec<Line<'_>> {
        let mut lines: Vec<Line<'_>> = Vec::new();
        for row in &self.rows {
            match lines.iter_mut().find(|line| (line.what, line.state) == (row.what, row.state)) {
                Some(line) => line.rows.push(row),
                None => lines.push(Line { what: row.what, state: row.state, rows: vec![row] }),
            }
        }
        lines.sort_by_key(|line| What::ALL.iter().position(|what| *what == line.what));
        lines
    }

    /// Steps, nanoseconds, what grows, and both kinds of age.
    pub fn tables(&self) -> String {
        let lines = self.lines();
        let steps = self.table(&lines, &["growth", ""], |row| row.steps.to_string());
        let ns = self.table(&lines, &[], |row| format!("{:.0}", row.ns));
        let nr_growing = lines.iter().filter(|line| line.verdict() == "GROWS").count();
        let nr_exempt = lines.iter().filter(|line| line.what.is_exempt()).count();
        let mut text = format!("Steps: words that the worst call touches, by memory and CPUs\n\n{steps}\n\n");
        let _ = writeln!(text, "Nanoseconds, the median, not recorded\n\n{ns}\n");
        let nr_judged = lines.len() - nr_exempt;
        let _ = writeln!(
            text,
            "At most {MOST_GROWTH} times the first machine's steps: {} of {nr_judged} rows",
            nr_judged - nr_growing
        );
        for line in lines.iter().filter(|line| line.verdict() == "GROWS") {
            let (first, worst) = (line.rows[0], line.worst());
            let _ = writeln!(text, "{}, {}: {}", line.what.name(), line.state.name(), worst.config);
            for (row, when) in [(first, "first"), (worst, "worst")] {
                let places: Vec<String> = row.places.iter().map(|p| format!("{} {}", p.steps, p.name)).collect();
                let _ = writeln!(text, "  {when}: {}", places.join(", "));
            }
        }
        self.compare_ages(&lines, &mut text);
        text
    }

    fn table(&self, lines: &[Line<'_>], more: &[&str], cell: impl Fn(&Row) -> String) -> impl std::fmt::Display {
        let names: Vec<String> = self.configs.iter().map(Config::to_string).collect();
        let machines = names.iter().map(String::as_str);
        let head: Vec<&str> = ["call", "memory"].into_iter().chain(machines).chain(more.iter().copied()).collect();
        let mut table = plain_table(&head, 2);
        for line in lines {
            let mut cells = vec![line.what.name().to_string(), line.state.name().into()];
            cells.extend(line.rows.iter().map(|row| cell(row)));
            if !more.is_empty() {
                cells.extend([format!("{:.2}", line.growth()), line.verdict().into()]);
            }
            table.add_row(cells);
        }
        table
    }

    /// Memory that programs have aged beside memory that was set so.
    fn compare_ages(&self, lines: &[Line<'_>], text: &mut String) {
        let of = |what, state| lines.iter().find(move |line| line.what == what && line.state == state);
        let pairs =
            What::ALL.into_iter().filter_map(|what| Some((of(what, State::Aged)?, of(what, State::AgedReally)?)));
        let mut table = plain_table(&["call", "machine", "set so", "by use", "differs by", ""], 2);
        let mut nr = 0;
        for (set, used) in pairs {
            for (set, used) in set.rows.iter().zip(&used.rows) {
                let by = set.steps as f64 / used.steps.max(1) as f64 - 1.0;
                let verdict = if by.abs() <= MOST_DEVIATION { "agrees" } else { "DIFFERS" };
                nr += 1;
                table.add_row([
                    set.what.name().to_string(),
                    set.config.to_string(),
                    set.steps.to_string(),
                    used.steps.to_string(),
                    format!("{:+.1} %", by * 100.0),
                    verdict.into(),
                ]);
            }
        }
        if nr > 0 {
            let _ = writeln!(text, "\nSteps in aged memory: set in bitmaps, and by use (goal: within 20 %)\n\n{table}");
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::count::Place;
    use super::*;

    const CONFIGS: [Config; 2] = [Config { bytes: 1 << 30, cpus: 1 }, Config { bytes: 1 << 40, cpus: 512 }];

    /// A row that holds, one that grows, one that may.
    pub fn report() -> Report {
        let mut rows = vec![];
        for (i, config) in CONFIGS.into_iter().enumerate() {
            let mut add = |what, state, steps: [u64; 2]| {
                let places = vec![Place { name: "BlockData.state".into(), steps: steps[i] - 10 }];
                rows.push(Row { what, state, config, steps: steps[i], ns: 50.5, places });
            };
            add(What::Touch4K, State::Aged, [200, 400]);
            add(What::Vmstat, State::Aged, [100, 51_200]);
            add(What::Refusal, State::Full, [100, 201]);
            add(What::Touch4K, State::AgedReally, [200, 300]);
        }
        Report { configs: CONFIGS.to_vec(), rows }
    }

    #[test]
    fn each_row_has_its_verdict_and_what_grows_says_where() {
        let text = report().tables();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for wanted in [
            "call memory 1G/1 1T/512 growth",
            "touch 4 KiB aged 200 400 2.00 holds",
            "vmstat aged 100 51200 512.00 exempt",
            "refusal full 100 201 2.01 GROWS",
            "2 of 3 rows",
            "refusal, full: 1T/512 first: 90 BlockData.state worst: 191 BlockData.state",
            "touch 4 KiB 1G/1 200 200 +0.0 % agrees",
            "touch 4 KiB 1T/512 400 300 +33.3 % DIFFERS",
        ] {
            assert!(words.contains(wanted), "{wanted} is not in {text}");
        }
    }
}
