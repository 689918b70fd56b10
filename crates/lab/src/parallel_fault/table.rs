//! The tables: ours, Linux's and clear, what they come to, and the table of 2013.

use super::options::Shape;
use super::plan::System;
use super::reckon::{BesideLinux, Report, Row};
use crate::bench::{Columns, Figure, percent, plain_table, times};
use softfault::HugetlbLocking;
use std::fmt::Write;

impl Report {
    /// All of them.
    pub fn tables(&self) -> String {
        let kib = self.page_bytes >> 10;
        let mut text = format!("{}: {} pages of {kib} KiB", self.shape.name(), self.nr_pages);
        if self.skip_bytes != self.page_bytes {
            let _ = write!(text, ", a byte every {} KiB", self.skip_bytes >> 10);
        }
        if self.shape.nr_spaces() > 1 {
            let _ = write!(text, ", mapped by {} address spaces", self.shape.nr_spaces());
        }
        let _ = writeln!(text, ", {} repetitions\n\n{}\n", self.reps, columns().table(&self.rows));
        text.push_str(&self.ratios());
        text.push_str(&self.ways());
        text.push_str(&self.remark());
        let _ = write!(text, "\n{}", self.of_2013());
        text
    }

    /// The figures that are aimed at.
    fn ratios(&self) -> String {
        let (mut text, most) = (String::new(), self.most_threads());
        let mut tell = |what: String, ratio: Option<f64>, goal: &str| {
            if let Some(ratio) = ratio {
                let _ = writeln!(text, "{what}: {ratio:.2} ({goal})");
            }
        };
        let row = |locking, nr| self.row(System::Softfault(locking), nr);
        if self.shape == Shape::Linear && most > 1 {
            let gain = |row: Option<&Row>| row.and_then(|row| row.over_1_thread);
            let clear = gain(self.row(System::Clear, most));
            let limit = clear.map_or(String::new(), |limit| format!("; clear: {limit:.2}"));
            for (locking, goal) in [
                (HugetlbLocking::One, "goal: at most 1.05"),
                (HugetlbLocking::Table, "goal with 2: at least 1.7"),
                (HugetlbLocking::Lockfree, "goal: not below table"),
            ] {
                let what = format!("{}: speed of {most} threads over 1", locking.name());
                tell(what, gain(row(locking, most)), &format!("{goal}{limit}"));
            }
        }
        if self.shape == Shape::Linear {
            let alone = row(HugetlbLocking::Lockfree, 1);
            let over_clear = |row: Option<&Row>| row.and_then(|row| row.over_clear);
            let warm = over_clear(self.row(System::WarmClear, 1));
            let warm = warm.map_or(String::new(), |warm| format!("; warm-clear: {warm:.2}"));
            tell("lockfree: time over clear".into(), over_clear(alone), &format!("goal: at most 1.1{warm}"));
            text.push_str(&self.over_linux());
        }
        text
    }

    /// Our faults and our clear beside Linux's, for each number of threads.
    fn over_linux(&self) -> String {
        let mut text = String::new();
        let all = self.rows.iter().filter(|row| row.job.system == System::Softfault(HugetlbLocking::Lockfree));
        for Row { job, beside_linux, .. } in all {
            let BesideLinux { faults: Some(faults), clears: Some(clears), quotient: Some(quotient) } = *beside_linux
            else {
                continue;
            };
            let figure = |Figure { median, spread }: Figure| format!("{median:.2} ({})", percent(spread));
            let goal = if job.nr_threads == 1 { "; with 1 thread faults at least 3 where clears are" } else { "" };
            let _ = writeln!(
                text,
                "this Linux : lockfree, {} thread(s): faults {}, clears {}, quotient {} (goal: at least 0.9{goal})",
                job.nr_threads,
                figure(faults),
                figure(clears),
                figure(quotient)
            );
        }
        if let Some(over) = self.row(System::Linux, 1).and_then(|row| row.over_own_clear) {
            let _ = writeln!(text, "linux: time over linux-clear: {over:.2} (below 1: it clears faster than assumed)");
        }
        text
    }

    /// How pages were cleared.
    fn ways(&self) -> String {
        let tell = |who: String, row: &Row| row.way.as_ref().map(|way| format!("{who}: {way}"));
        let of = |system| self.rows.iter().filter(move |row| row.job.system == system);
        let mut ways: Vec<String> =
            of(System::WarmClear).take(1).filter_map(|row| tell("faults and warm-clear".into(), row)).collect();
        let limits = of(System::Clear);
        ways.extend(limits.filter_map(|row| tell(format!("clear with {} thread(s)", row.job.nr_threads), row)));
        let assumed = format!("linux-clear, as Linux {} is assumed to clear on this CPU", self.kernel);
        ways.extend(of(System::LinuxClear).take(1).filter_map(|row| tell(assumed.clone(), row)));
        format!("Ways of clearing. {}\n", ways.join("; "))
    }

    fn remark(&self) -> String {
        let mut text = String::from("Ours has no trap, and an emulated TLB.");
        if self.row(System::Linux, 1).is_some() {
            let _ = write!(text, " Linux is {}.", self.kernel);
        }
        if let Some(why) = &self.why_no_linux {
            let _ = write!(text, " Linux was left out: {why}.");
        }
        text + "\n"
    }

    fn of_2013(&self) -> String {
        let head = ["2013", "discipline", "threads", "seconds", "acquired", "contended", "waited ms"];
        let mut table = plain_table(&head, 2);
        let nr = |nr: Option<u64>| nr.map_or("-".into(), |nr| nr.to_string());
        for old in &self.old {
            table.add_row([
                "linux".to_string(),
                old.discipline.name().into(),
                old.nr_threads.map_or("-".into(), |nr| nr.to_string()),
                times(old.seconds),
                nr(old.acquisitions),
                nr(old.contentions),
                old.wait_us.map_or("-".into(), |us| format!("{:.1}", us / 1e3)),
            ]);
        }
        let what = match self.shape {
            Shape::Linear => "128 GiB in pages of 16 MiB",
            Shape::Database => "a database starts with 1.5 GiB in huge pages",
        };
        format!("{what}:\n{table}\n")
    }
}

fn columns() -> Columns<'static, Row> {
    let median = |figure: Option<Figure>| times(figure.map(|figure| figure.median));
    let lock = |f: fn(&super::load::Locks) -> String| move |row: &Row| row.locks.as_ref().map_or("-".into(), f);
    Columns::label("system", |row: &Row| row.job.system.name().into())
        .and_label("discipline", |row| row.job.system.discipline().into())
        .number("threads", |row| row.job.nr_threads.to_string())
        .number("seconds", |row| format!("{:.4} ({})", row.seconds.median, percent(row.seconds.spread)))
        .number("x 1", |row| times(row.over_1_thread))
        .number("/ clear", |row| times(row.over_clear))
        .number("/ own clear", |row| times(row.over_own_clear))
        .number("mutexes", lock(|locks| locks.mutexes.to_string()))
        .number("acquired", lock(|locks| locks.acquisitions.to_string()))
        .number("contended", lock(|locks| locks.contentions.to_string()))
        .number("waited ms", lock(|locks| format!("{:.1}", locks.wait_us / 1e3)))
        .number("x linux", move |row| median(row.beside_linux.faults))
        .number("x linux-clear", move |row| median(row.beside_linux.clears))
}

#[cfg(test)]
mod tests {
    use super::super::reckon::tests::report;

    #[test]
    fn the_goals_are_printed_beside_the_limit() {
        let text = report("linear").tables();
        assert!(
            text.contains("table: speed of 2 threads over 1: 2.00 (goal with 2: at least 1.7; clear: 2.00)"),
            "{text}"
        );
        assert!(text.contains("one: speed of 2 threads over 1: 1.00 (goal: at most 1.05"), "{text}");
        assert!(text.contains("lockfree: time over clear: 1.12 (goal: at most 1.1; warm-clear: 1.06)"), "{text}");
        let ways = "faults and warm-clear: hybrid, streaming; clear with 1 thread(s): hybrid, streaming behind stores; clear with 2";
        assert!(text.contains(ways), "{text}");
        let beside = "this Linux : lockfree, 1 thread(s): faults 2.22 (0%), clears 2.00 (0%), quotient 1.11 (0%) (goal: at least 0.9; with 1";
        assert!(text.contains(beside) && text.contains("linux: time over linux-clear: 1.18 ("), "{text}");
        assert!(text.contains("; linux-clear, as Linux "), "{text}");
        assert!(text.contains("40.68") && !text.contains("76888"), "{text}");
        let text = report("database").tables();
        assert!(text.contains("mapped by 130 address spaces") && text.contains("76888.9"), "{text}");
    }
}
