//! `--icount`: instructions per operation, which are the same in each run.
//!
//! Under `-icount shift=0` the time-stamp counter counts instructions, the
//! kernel's and the program's, and each step of a `rep` as one; the probe reads
//! it. Memory is cleared by `rep stosq` on both, in 512 steps a page: these are
//! taken off the write fault, for they are the same work for any kernel.

use super::boot::Bench;
use super::options::Options;
use super::system::System;
use super::{machine, prepare};
use crate::bench::{
    Better, Chart, Columns, Experiment, Lines, Mark, Need, Places, Report, Sampled, Scale, Series, Settings, Whose,
};
use crate::error::LabError;
use serde::{Serialize, Serializer};
use std::array;
use std::collections::HashMap;

/// Steps of `rep stosq` in a page.
const CLEAR_STEPS: u64 = 4096 / 8;
/// Steps where the CPU offers `erms`: Linux clears by `rep stosb` then, ours does not.
const CLEAR_STEPS_BYTES: u64 = 4096;

/// `softfault compare --icount`.
pub struct Icount<'a>(pub &'a Options);

/// A line of the table.
struct Figure {
    key: &'static str,
    name: &'static str,
    /// Instructions that the reference kernel may take.
    goal: Option<u64>,
}

const FIGURES: [Figure; 7] = [
    Figure { key: "write_fault", name: "write fault, without clearing", goal: Some(900) },
    Figure { key: "write_fault_and_clear", name: "write fault, with it", goal: None },
    Figure { key: "read_fault", name: "read fault of the zero page", goal: Some(500) },
    Figure { key: "read_fault_16", name: "read fault that maps 16 pages of a file", goal: None },
    Figure { key: "munmap_page", name: "munmap, per page", goal: Some(300) },
    Figure { key: "getppid", name: "getppid", goal: None },
    Figure { key: "fork_1mib", name: "fork, exit, wait; 1 MiB", goal: Some(190_000) },
];

/// The count of each figure.
type Counts = [u64; FIGURES.len()];

/// The counts of each system, under a title.
pub struct Counted {
    title: String,
    rows: Vec<(System, Counts)>,
}

/// A line of JSON: the figures by their keys.
#[derive(Serialize)]
struct Keys<T: Serialize> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'static str>,
    #[serde(flatten, serialize_with = "as_map")]
    figures: Vec<(String, T)>,
}

fn as_map<T: Serialize, S: Serializer>(figures: &[(String, T)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(figures.iter().map(|(key, value)| (key, value)))
}

/// The figures in their order, from what the probe counted.
fn counts(options: &Options, system: System, mut counted: HashMap<String, u64>) -> Result<Counts, LabError> {
    let by_bytes = system == System::Linux && options.is_artefact();
    let clear_steps = if by_bytes { CLEAR_STEPS_BYTES } else { CLEAR_STEPS };
    if let Some(&both) = counted.get("write_fault_and_clear") {
        counted.insert("write_fault".into(), both.saturating_sub(clear_steps));
    }
    let mut counts = [0; FIGURES.len()];
    for (count, Figure { key, .. }) in counts.iter_mut().zip(&FIGURES) {
        *count =
            *counted.get(*key).ok_or_else(|| LabError::host(system.name(), format!("the probe counted no {key}")))?;
    }
    Ok(counts)
}

impl Experiment for Icount<'_> {
    const NAME: &'static str = "compare --icount";
    type Bench = Bench;
    type Job = System;
    type Sample = Counts;
    type Report = Counted;

    fn check(&self) -> Result<Option<Need>, LabError> {
        Ok(None)
    }

    fn set_up(&self) -> Result<Bench, LabError> {
        prepare(self.0)
    }

    fn jobs(&self, _: &Bench) -> Vec<Vec<System>> {
        vec![self.0.systems()]
    }

    fn sample(&self, bench: &mut Bench, &system: &System) -> Result<Counts, LabError> {
        counts(self.0, system, bench.count(system).map_err(machine)?)
    }

    fn report(&self, bench: Bench, sampled: Vec<Sampled<System, Counts>>) -> Result<Counted, LabError> {
        Ok(Counted { title: bench.title, rows: sampled.iter().map(|of| (of.job, of.samples[0])).collect() })
    }

    /// A count is the same in each run.
    fn settings(&self) -> Settings<'_> {
        Settings { reps: 1, ..self.0.repeated.settings() }
    }
}

impl Counted {
    /// Linux's counts over ours, if both are there.
    fn ratios(&self) -> Option<[f64; FIGURES.len()]> {
        let [(_, ours), (_, linux)] = &self.rows[..] else { return None };
        Some(array::from_fn(|i| linux[i] as f64 / ours[i] as f64))
    }
}

impl Report for Counted {
    fn text(&self) -> String {
        let mut columns = Columns::label("instructions", |&i: &usize| FIGURES[i].name.into());
        for (system, counts) in &self.rows {
            columns = columns.number(system.key(), |&i| counts[i].to_string());
        }
        if let Some(ratios) = self.ratios() {
            columns = columns.number("ratio", move |&i| format!("{:.2}", ratios[i]));
        }
        let columns = columns.number("goal", |&i| FIGURES[i].goal.map_or("-".into(), |goal| goal.to_string()));
        format!("{}\n\n{}", self.title, columns.table(&array::from_fn::<_, { FIGURES.len() }, _>(|i| i)))
    }

    fn json(&self, lines: &mut Lines) {
        for (system, counts) in &self.rows {
            let figures = FIGURES.iter().zip(counts).map(|(figure, count)| (figure.key.into(), *count)).collect();
            lines.add(Keys { system: Some(system.key()), figures }, counts[0], "instructions");
        }
        if let Some(ratios) = self.ratios() {
            let figures = FIGURES.iter().zip(ratios).map(|(of, ratio)| (format!("ratio_{}", of.key), ratio)).collect();
            lines.add(Keys { system: None, figures }, ratios[0], "ratio");
        }
    }

    fn chart(&self) -> Chart {
        let series = |(system, counts): &(System, Counts)| {
            let points = counts.iter().enumerate().map(|(i, count)| (i as f64, *count as f64));
            Series::new(system.key(), Whose::system(system.key()), points).mark(Mark::Dots)
        };
        Chart {
            title: "Instructions on one CPU, counted by QEMU".into(),
            x: "operation".into(),
            places: Places::Named(FIGURES.map(|figure| figure.key.into()).to_vec()),
            y: "instructions".into(),
            scale: Scale::Log,
            better: Better::Less,
            series: self.rows.iter().map(series).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::typed;

    #[test]
    fn a_line_for_each_system_then_the_ratios() {
        let options: Options = typed("compare --icount");
        let row = |(system, n): (System, u64)| {
            let counted = FIGURES[1..].iter().map(|figure| (figure.key.into(), 512 + n)).collect();
            (system, counts(&options, system, counted).unwrap())
        };
        let rows = [(System::Softfault, 100), (System::Linux, 250)].map(row);
        let counted = Counted { title: "QEMU".into(), rows: rows.into() };
        let mut lines = Lines::new(Icount::NAME);
        counted.json(&mut lines);
        let lines = lines.parsed();
        assert!(lines.iter().all(|line| line["experiment"] == "compare --icount"));
        assert_eq!([&lines[0]["write_fault"], &lines[0]["getppid"], &lines[1]["value"]], [100, 612, 250]);
        assert_eq!((&lines[2]["ratio_write_fault"], lines[2]["unit"].as_str()), (&2.5.into(), Some("ratio")));
        counted.chart().assert_shows(&["instructions (less is better)", "softfault", "linux", "getppid"]);
        assert!(counts(&options, System::Linux, HashMap::new()).is_err());
    }
}
