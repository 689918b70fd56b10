//! The tables: ours and Linux's rows, what they come to, and the table of 2014.

use super::history::{self, OldRow};
use super::pattern::Pattern;
use super::plan::System;
use super::reckon::{Report, Row};
use crate::bench::{Columns, percent, plain_table, short_gib, times};
use std::fmt::Write;

impl Report {
    /// All of them.
    pub fn tables(&self) -> String {
        let mut text = format!("{}, a file of {} GiB", self.pattern.name(), short_gib(self.gib));
        if self.folio_kib > 4 {
            let _ = write!(text, " in folios of {} KiB", self.folio_kib);
        }
        if self.nr_rounds > 1 {
            let _ = write!(text, ", mapped {} times", self.nr_rounds);
        }
        let _ = writeln!(text, ", {} repetitions\n\n{}\n", self.reps, columns(self.pattern).table(&self.rows));
        text.push_str(&self.ratios());
        text.push_str(&self.remark());
        let _ = write!(text, "\n{}", of_2014(self.pattern, &self.old));
        text
    }

    /// The figures that are aimed at.
    fn ratios(&self) -> String {
        let mut text = String::new();
        for nr_threads in self.thread_counts() {
            let row = |window| self.ours(window, nr_threads);
            let mut tell = |what: &str, ratio: Option<f64>| {
                if let Some(ratio) = ratio {
                    let _ = writeln!(
                        text,
                        "{nr_threads} thread(s): {what}",
                        what = what.replace("{}", &format!("{ratio:.3}"))
                    );
                }
            };
            let (order_4, adaptive) = (row("4"), row("adaptive"));
            if self.pattern == Pattern::Sparse {
                let time = |row: Option<&Row>| row.and_then(|row| row.time_over_order_0);
                tell("adaptive takes {} of the time of order 0 (goal: at most 1.05)", time(adaptive));
                tell("order 9 takes {} of it (in 2014 11.5 to 13.6)", time(row("9")));
            } else {
                let over_0 = order_4.and_then(|row| row.faults_over_order_0);
                tell("64 KiB takes {} of the faults of 4 KiB (goal: at most 0.07 in sequence)", over_0);
                let over_9 = adaptive.and_then(|row| row.faults_over_order_9);
                tell("adaptive takes {} of the faults of order 9 (goal: at most 1.02 in sequence)", over_9);
            }
            let to_linux = order_4.and_then(|row| row.ratio_to_linux).filter(|_| self.pattern != Pattern::Random);
            tell("faults at 64 KiB: {} times as fast as this Linux's (goal: 5 in sequence)", to_linux);
        }
        text
    }

    fn remark(&self) -> String {
        let mut text = String::from("Ours has no trap, and an emulated TLB; the second pass is subtracted from each.");
        if self.pattern == Pattern::Random {
            text.push_str("\nThat TLB is looked up for each word: its time hides that of our faults, which are to be counted here.");
        }
        if self.with_linux {
            let _ = write!(text, " Linux is {}.", self.kernel);
            let is_set = self.rows.iter().any(|row| row.job.system == System::LinuxSet);
            let text_of_windows =
                "\nIts window is 64 KiB: smaller ones are emulated by cut VMAs, larger ones are not possible.";
            text.push_str(if is_set { "" } else { text_of_windows });
        }
        if let Some(kernel) = &self.kernel_in_qemu {
            let _ = write!(text, "\n`qemu` is {kernel}; QEMU counts its instructions, as nanoseconds.");
        }
        text + "\n"
    }
}

fn columns(pattern: Pattern) -> Columns<'static, Row> {
    let is_sparse = pattern == Pattern::Sparse;
    Columns::label("system", |row: &Row| row.job.system.name().into())
        .and_label("order", |row| row.job.window.name())
        .and_label("window", |row| row.job.system.window().into())
        .number("threads", |row| row.job.nr_threads.to_string())
        .number("faults", |row| match row.major_faults {
            0 => row.minor_faults.to_string(),
            major => format!("{} + {major}", row.minor_faults),
        })
        .number("mapped", |row| format!("{:.2}", row.pages_mapped as f64 / row.pages_touched as f64))
        .number("pass", |row| format!("{:.4} ({})", row.wall_s.median, percent(row.wall_s.spread)))
        .number("resident", |row| format!("{:.4}", row.resident_s))
        .number("ns/page", |row| row.ns_per_page.map_or("-".into(), |ns| format!("{ns:.1}")))
        .number("x linux", |row| times(row.ratio_to_linux))
        .number("faults/order 0", |row| row.faults_over_order_0.map_or("-".into(), |r| format!("{r:.4}")))
        .number_if(is_sparse, "pass/order 0", |row| times(row.time_over_order_0))
        .number("2014: faults/page", |row| row.in_2014.map_or("-".into(), |r| format!("{:.4}", r.faults_per_page())))
        .number("ns/page", |row| row.in_2014.map_or("-".into(), |r| format!("{:.1}{}", r.ns_per_page(), mark(&r))))
}

fn mark(row: &OldRow) -> &'static str {
    if row.is_suspect() { "*" } else { "" }
}

/// Faults and seconds, by threads and order.
fn of_2014(pattern: Pattern, old: &[OldRow]) -> String {
    let mut orders: Vec<u8> = old.iter().map(|row| row.order).collect();
    orders.sort_unstable();
    orders.dedup();
    let mut threads: Vec<usize> = old.iter().map(|row| row.nr_threads).collect();
    threads.dedup();
    let title = format!("2014, {} GiB", history::gib(pattern));
    let mut head = vec![title, "threads".into()];
    head.extend(orders.iter().map(|order| format!("order {order}")));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut table = plain_table(&head, 1);
    let mut add = |what: &str, cell: fn(&OldRow) -> String| {
        for nr_threads in &threads {
            let of = |order: &u8| old.iter().find(|row| (row.nr_threads, row.order) == (*nr_threads, *order));
            let mut line = vec![what.to_string(), nr_threads.to_string()];
            line.extend(orders.iter().map(|order| of(order).map_or("-".into(), cell)));
            table.add_row(line);
        }
    };
    add("faults", |row| row.minor_faults.to_string());
    add("seconds", |row| format!("{:.3}{}", row.seconds, mark(row)));
    let slip =
        if old.iter().any(OldRow::is_suspect) { "\n* the time of another row: a slip of the source" } else { "" };
    format!("{table}{slip}\n")
}

#[cfg(test)]
mod tests {
    use super::super::reckon::tests::report;

    #[test]
    fn every_row_stands_beside_2014() {
        let text = report().tables();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = |start: &str| text.lines().map(words).find(|line| line.starts_with(start)).unwrap_or_default();
        assert!(line("softfault 4 set 8 60 1.00 0.0375 (120%)").contains(" 10.00 0.0600 "), "{text}");
        assert!(line("softfault 1 set 8").ends_with("59643.6*"), "the slip is marked: {text}");
        assert!(line("linux 4 default 8 62").contains(" - "), "{text}");
        assert!(line("seconds 8").contains(" 0.489* "), "{text}");
        assert!(text.contains("order 9 takes 0.") && text.contains("slip of the source"), "{text}");
        assert!(text.contains("mapped 64 times") && text.contains("larger ones are not possible"), "{text}");
    }
}
