//! The document: a section for each experiment, a table for each machine in it.

use super::experiments::{Column, Depends, EXPERIMENTS, Experiment, How, Table};
use super::store::{Measured, Row, Stored};
use serde_json::Value;

const HEAD: &str = "\
# Measurements

`cargo xtask measure` runs the experiments and writes this file from what they print; edit `xtask/src/measure` or
`docs/measurements/earlier.md` instead. The rows are in [measurements/](measurements), a folder for each kind of machine. A run
on a new CPU adds tables; a run on a CPU that is here replaces its own. Figures of two machines never share a table.

`softfault` is `cargo run --release --`. `softfault EXPERIMENT --help` explains each column. Ratios are medians of pairs within
a repetition, since a host's speed drifts by more than the differences of interest. *Spread* is (slowest - fastest) / median
unless a section says otherwise; a ratio is worth no more than the spreads of its two sides. The host's Linux stands beside ours
as it was found. A hosted fault is a call of `handle_fault` and the store that caused it: it has no trap (about
0.13 us), memory control groups or mitigations, so that ratios to Linux's touches are not like for like. `populate` is
MADV_POPULATE_WRITE, which traps once.
";

/// All of it.
pub fn document(stored: &Stored, earlier: &str) -> String {
    let mut text = HEAD.to_string();
    for experiment in EXPERIMENTS {
        let measured = stored.get(experiment.name);
        text += &format!("\n## {}\n\n{}\n", experiment.title, experiment.about);
        text += match experiment.depends {
            Depends::OnTheCpu => "\nThese figures depend on the CPU.\n",
            Depends::OnNothing => "\nCounted, not timed: these figures are the same on every CPU.\n",
        };
        if measured.is_none_or(|machines| machines.is_empty()) {
            text += &format!("\nNot measured yet: `cargo xtask measure --only {}`.\n", experiment.name);
        }
        for machine in measured.into_iter().flat_map(|machines| machines.values()) {
            text += &on_machine(experiment, machine);
        }
    }
    format!("{text}\n{}\n", earlier.trim())
}

fn on_machine(experiment: &Experiment, measured: &Measured) -> String {
    let commands: Vec<&str> = measured.runs.iter().map(|run| run.command.as_str()).collect();
    let mut text = format!("\n**{}**\n\n```text\n{}\n```\n", measured.machine.text(), commands.join("\n"));
    let rows: Vec<&Row> = measured.runs.iter().flat_map(|run| &run.rows).collect();
    for table in experiment.tables {
        let rows: Vec<Row> = rows.iter().filter(|row| table.takes(row)).map(|row| (*row).clone()).collect();
        let rows = table.gather.map_or(rows.clone(), |gather| gather(&rows));
        // Rows of an older form may have nothing for a table.
        if !rows.is_empty() {
            text += &lines(table, &rows);
        }
    }
    text
}

fn lines(table: &Table, rows: &[Row]) -> String {
    // A column that says nothing in any row is left out.
    let says = |column: &&Column| rows.iter().any(|row| row.contains_key(column.key));
    let columns: Vec<&Column> = table.columns.iter().filter(says).collect();
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = format!("\n{}", line(columns.iter().map(|column| column.head.to_string()).collect()));
    let rule = |column: &&Column| if matches!(column.how, How::Text) { "---" } else { "---:" }.to_string();
    text += &line(columns.iter().map(rule).collect());
    for row in rows {
        text += &line(columns.iter().map(|column| cell(column, row)).collect());
    }
    text
}

/// The cell of a column for a row.
pub fn cell(column: &Column, row: &Row) -> String {
    let Some(value) = row.get(column.key) else { return String::new() };
    let text = || value.as_str().map_or_else(|| value.to_string(), |text| text.replace('_', " "));
    match (column.how, value.as_f64()) {
        (How::Text, _) | (_, None) => text(),
        (How::Count, Some(number)) => thousands(number),
        (How::Fixed(digits), Some(number)) => format!("{number:.digits$}"),
        (How::Times, Some(number)) => format!("{number:.*}x", if number < 10.0 { 2 } else { 1 }),
        (How::Percent, Some(number)) => format!("{:.0} %", number * 100.0),
        (How::Millions, Some(number)) => format!("{:.2} M", number / 1e6),
        (How::Milliseconds, Some(number)) => format!("{:.1}", number * 1e3),
    }
}

/// With commas.
fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Rows of machines of several sizes become one for each kind of call: the first machine's steps, the largest, their ratio.
pub fn by_call(rows: &[Row]) -> Vec<Row> {
    let mut calls: Vec<Row> = Vec::new();
    for row in rows {
        let same = |call: &&mut Row| ["what", "state"].iter().all(|key| call.get(*key) == row.get(*key));
        let steps = row.get("steps").and_then(Value::as_f64).unwrap_or(0.0);
        match calls.iter_mut().find(same) {
            Some(call) => {
                let most = call.get("most").and_then(Value::as_f64).unwrap_or(0.0).max(steps);
                let first = call.get("steps").and_then(Value::as_f64).unwrap_or(1.0);
                call.insert("most".into(), most.into());
                call.insert("ratio".into(), (most / first).into());
            }
            None => {
                let mut call = row.clone();
                call.insert("most".into(), steps.into());
                call.insert("ratio".into(), 1.0.into());
                calls.push(call);
            }
        }
    }
    calls
}

/// Times become a row for each pass of the program, with a key for each system and kind of pages; those of 2011 beside them.
pub fn by_pass(rows: &[Row]) -> Vec<Row> {
    let mut passes: Vec<Row> = Vec::new();
    for row in rows {
        let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default();
        let at = passes.iter().position(|pass| pass.get("row") == row.get("row")).unwrap_or_else(|| {
            passes.push(Row::from([("row".to_string(), text("row").into())]));
            passes.len() - 1
        });
        for (who, key) in [(text("system"), "seconds"), ("2011", "seconds_2011")] {
            if let Some(seconds) = row.get(key) {
                passes[at].insert(format!("{who} {}", text("thp")), seconds.clone());
            }
        }
    }
    passes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str) -> Row {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn cells() {
        let row = row(r#"{"a":1234567.8,"b":0.123,"c":"memset_fresh","d":16.19}"#);
        let cell = |key, how| cell(&Column { head: "", key, how }, &row);
        assert_eq!(cell("a", How::Count), "1,234,568");
        assert_eq!(cell("a", How::Millions), "1.23 M");
        assert_eq!(cell("b", How::Percent), "12 %");
        assert_eq!(cell("b", How::Milliseconds), "123.0");
        assert_eq!(cell("c", How::Text), "memset fresh");
        assert_eq!([cell("d", How::Times), cell("b", How::Times)], ["16.2x", "0.12x"]);
        assert_eq!(cell("gone", How::Count), "");
    }

    #[test]
    fn calls_are_compared_with_the_first_machine() {
        let rows = [
            row(r#"{"what":"touch","state":"fresh","steps":200}"#),
            row(r#"{"what":"fork","state":"fresh","steps":10}"#),
            row(r#"{"what":"touch","state":"fresh","steps":300}"#),
            row(r#"{"what":"touch","state":"fresh","steps":250}"#),
        ];
        let calls = by_call(&rows);
        assert_eq!(calls.len(), 2);
        assert_eq!((&calls[0]["most"], &calls[0]["ratio"]), (&Value::from(300.0), &Value::from(1.5)));
    }

    #[test]
    fn a_pass_has_all_systems_in_a_row() {
        let rows = [
            row(r#"{"system":"softfault","thp":"off","row":"stride","seconds":0.5,"seconds_2011":0.9}"#),
            row(r#"{"system":"softfault","thp":"off","row":"stride_again","seconds":0.4}"#),
            row(r#"{"system":"linux","thp":"hugetlb","row":"stride","seconds":0.3,"seconds_2011":0.8}"#),
            row(r#"{"system":"linux","thp":"on","row":"stride","why":"no memory"}"#),
        ];
        let passes = by_pass(&rows);
        let names: Vec<_> = passes.iter().map(|pass| pass["row"].as_str().unwrap()).collect();
        assert_eq!(names, ["stride", "stride_again"]);
        let of = |key| passes[0].get(key).and_then(Value::as_f64);
        assert_eq!([of("softfault off"), of("linux hugetlb"), of("linux on")], [Some(0.5), Some(0.3), None]);
        assert_eq!([of("2011 off"), of("2011 hugetlb")], [Some(0.9), Some(0.8)]);
    }

    #[test]
    fn machines_have_tables_of_their_own() {
        let measured = |cpu: &str, ns: f64| -> Measured {
            let machine =
                format!(r#"{{"cpu":"{cpu}","nr_cpus":2,"is_virtual":true,"kernel":"Linux 6.18","date":"2026-11-23"}}"#);
            let rows = format!(r#"[{{"system":"softfault","discipline":"lockfree","threads":1,"ns_per_fault":{ns}}}]"#);
            let text = format!(r#"{{"machine":{machine},"runs":[{{"command":"softfault pft","rows":{rows}}}]}}"#);
            serde_json::from_str(&text).unwrap()
        };
        let machines = [("a".to_string(), measured("A", 81.5)), ("b".to_string(), measured("B", 92.5))];
        let stored = Stored::from([(EXPERIMENTS[0].name.to_string(), machines.into())]);
        let text = document(&stored, "## Earlier\n");
        let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} should be in {text}"));
        assert!(place("**A, 2 CPUs of a virtual machine, Linux 6.18, 2026-11-23**") < place("81.5"));
        assert!(place("81.5") < place("**B, 2 CPUs") && place("**B, 2 CPUs") < place("92.5"));
        assert!(text.contains("Not measured yet") && text.ends_with("## Earlier\n"));
    }
}
