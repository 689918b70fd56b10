//! The ten figures of the README, taken from the stored rows.

use super::experiments::{Column, Depends, EXPERIMENTS, Experiment, How, Table};
use super::render;
use super::store::{Measured, Row, Stored};
use serde_json::Value;

const BEGIN: &str = "<!-- `cargo xtask measure` writes this table -->\n";
const END: &str = "<!-- end of the table -->\n";

type Only = &'static [(&'static str, &'static str)];

/// A line of the table.
struct Figure {
    what: &'static str,
    goal: &'static str,
    experiment: &'static str,
    /// Which of the experiment's commands shows it.
    run: usize,
    /// Which row has it.
    only: Only,
    key: &'static str,
    how: How,
    /// Another row, for comparison, and whose it is.
    beside: Option<(&'static str, Only)>,
}

const OURS: Only = &[("system", "softfault")];
const LINUX: Option<(&str, Only)> = Some(("Linux 6.1", &[("system", "linux")]));
const ONE_THREAD: Only = &[("system", "softfault"), ("discipline", "lockfree"), ("threads", "1")];
const TWO_THREADS: Only = &[("system", "softfault"), ("discipline", "lockfree"), ("threads", "2")];
/// All but those that are exempt from the goal.
const CALLS: Only = &[("what", "touch_4k|touch_64k|touch_2m|fork|exit|munmap|collapse|mincore|refusal")];

const FIGURES: [Figure; 10] = [
    Figure {
        what: "first touches/s of 4 KiB over the host Linux's, 1 thread",
        goal: "10x",
        ..figure("first-touch", 0, ONE_THREAD, "ratio_to_linux_touch", How::Times)
    },
    Figure {
        what: "the same, 2 threads",
        goal: "8x",
        ..figure("first-touch", 0, TWO_THREADS, "ratio_to_linux_touch", How::Times)
    },
    Figure {
        what: "software of a fault, nothing to zero, 1 thread, ns",
        goal: "16",
        ..figure("software-cost", 0, ONE_THREAD, "ns_per_fault", How::Fixed(1))
    },
    Figure {
        what: "first touches/s of 2 MiB over the host Linux's, 1 thread",
        goal: "3x",
        ..figure("huge-faults", 0, ONE_THREAD, "ratio_to_linux_touch", How::Times)
    },
    Figure {
        what: "line transfers per 1,000 faults, 512 CPUs, own tables",
        goal: "8",
        ..figure(
            "line-transfers",
            0,
            &[("layout", "own-table"), ("pages", "small")],
            "transfers_per_1000_faults",
            How::Fixed(2),
        )
    },
    Figure {
        what: "the same, all on the same 2 MiB of one object",
        goal: "8",
        ..figure("line-transfers", 2, &[("layout", "same-object")], "transfers_per_1000_faults", How::Fixed(2))
    },
    Figure {
        what: "words of the worst call: 1 TiB, 512 CPUs over 1 GiB, one",
        goal: "2x",
        ..figure("growth", 0, CALLS, "ratio", How::Times)
    },
    Figure {
        what: "instructions of a write fault",
        goal: "900",
        beside: LINUX,
        ..figure("instructions", 0, OURS, "write_fault", How::Count)
    },
    Figure {
        what: "instructions of munmap, a page",
        goal: "300",
        beside: LINUX,
        ..figure("instructions", 0, OURS, "munmap_page", How::Count)
    },
    Figure {
        what: "instructions of fork, exit and wait, 1 MiB",
        goal: "190,000",
        beside: LINUX,
        ..figure("instructions", 0, OURS, "fork_1mib", How::Count)
    },
];

const fn figure(experiment: &'static str, run: usize, only: Only, key: &'static str, how: How) -> Figure {
    Figure { what: "", goal: "", experiment, run, only, key, how, beside: None }
}

/// The README with the table that the rows make.
pub fn written_into(readme: &str, stored: &Stored) -> Result<String, String> {
    let parts = readme.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let (head, tail) = parts.ok_or_else(|| format!("README.md: should have a part between {BEGIN} and {END}"))?;
    Ok(format!("{head}{BEGIN}{}{END}{tail}", table(stored)?))
}

fn table(stored: &Stored) -> Result<String, String> {
    let mut text = String::from("| what | goal | measured | CPU, day | command |\n| --- | --- | --- | --- | --- |\n");
    for figure in &FIGURES {
        let wrong = || format!("{}: `cargo xtask measure --only {}` should give it", figure.what, figure.experiment);
        let experiment = EXPERIMENTS.iter().find(|e| e.name == figure.experiment).ok_or_else(wrong)?;
        let measured = newest(stored, experiment).ok_or_else(wrong)?;
        let mut value = value(figure, figure.only, experiment, measured).ok_or_else(wrong)?;
        if let Some((whose, only)) = figure.beside {
            value += &format!(" ({whose}: {})", self::value(figure, only, experiment, measured).ok_or_else(wrong)?);
        }
        let machine = match experiment.depends {
            Depends::OnTheCpu => format!("{}, {}", measured.machine.cpu, measured.machine.date),
            Depends::OnNothing => format!("any, {}", measured.machine.date),
        };
        let command = &measured.runs.get(figure.run).ok_or_else(wrong)?.command;
        text += &format!("| {} | {} | {value} | {machine} | `{command}` |\n", figure.what, figure.goal);
    }
    Ok(text)
}

/// Of the machines, the one that measured last.
fn newest<'a>(stored: &'a Stored, experiment: &Experiment) -> Option<&'a Measured> {
    stored.get(experiment.name)?.values().max_by_key(|measured| &measured.machine.date)
}

/// The largest of the rows that are meant: mostly there is one.
fn value(figure: &Figure, only: Only, experiment: &Experiment, measured: &Measured) -> Option<String> {
    let rows: Vec<Row> = measured.runs.get(figure.run)?.rows.clone();
    let gather = experiment.tables.iter().find_map(|table| table.gather);
    let rows = gather.map_or(rows.clone(), |gather| gather(&rows));
    let meant = Table { only, columns: &[], gather: None };
    let number = |row: &&Row| row.get(figure.key).and_then(Value::as_f64);
    let rows = rows.iter().filter(|row| meant.takes(row) && number(row).is_some());
    let row = rows.max_by(|a, b| number(a).partial_cmp(&number(b)).unwrap_or(std::cmp::Ordering::Equal))?;
    Some(render::cell(&Column { head: "", key: figure.key, how: figure.how }, row))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of one experiment, measured on a day.
    fn measured(date: &str, command: &str, rows: &str) -> Measured {
        let machine = format!(r#"{{"cpu":"A","nr_cpus":2,"is_virtual":true,"kernel":"Linux 6.18","date":"{date}"}}"#);
        let text = format!(r#"{{"machine":{machine},"runs":[{{"command":"{command}","rows":{rows}}}]}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn of_several_rows_the_worst_and_of_several_machines_the_last() {
        let growth = FIGURES.iter().find(|figure| figure.experiment == "growth").unwrap();
        let experiment = EXPERIMENTS.iter().find(|e| e.name == "growth").unwrap();
        let rows = r#"[{"what":"fork","state":"full","steps":10},{"what":"fork","state":"full","steps":17},
            {"what":"exit","state":"full","steps":10},{"what":"exit","state":"full","steps":11},
            {"what":"boot","state":"full","steps":1},{"what":"boot","state":"full","steps":90}]"#;
        let old = measured("2026-01-01", "growth", rows);
        assert_eq!(value(growth, growth.only, experiment, &old).as_deref(), Some("1.70x"), "boot is exempt");
        let machines = [("a".into(), old), ("b".into(), measured("2026-02-01", "growth", "[]"))];
        let stored = Stored::from([("growth".to_string(), machines.into())]);
        assert_eq!(newest(&stored, experiment).unwrap().machine.date, "2026-02-01");
    }

    #[test]
    fn a_figure_that_is_not_there_is_an_error_and_a_readme_without_a_place_too() {
        assert!(table(&Stored::new()).unwrap_err().contains("measure --only first-touch"));
        assert!(written_into("no table", &Stored::new()).unwrap_err().contains("should have a part"));
    }
}
