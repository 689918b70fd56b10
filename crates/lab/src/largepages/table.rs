//! The tables: times beside those of 2011, and the emulated TLB.

use super::history::{GIB_2011, Then};
use super::plan::{Row, System, Thp};
use super::reckon::{Figure, Report};
use crate::pft::plain_table;
use std::fmt::Write;

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("{} GiB, {} repetitions, milliseconds (spread)\n\n", short(self.gib), self.reps);
        let _ = writeln!(text, "{}\n", self.times());
        let _ = writeln!(text, "{}\n", self.shares());
        let _ = writeln!(
            text,
            "A store to each page through an emulated TLB of {} translations\n\n{}\n",
            self.tlb_entries,
            self.tlb()
        );
        text.push_str(&self.ratios());
        text
    }

    fn times(&self) -> impl std::fmt::Display {
        let head_of = |system: &str| ["off", "on", "hugetlb"].map(|thp| format!("{system} {thp}"));
        let mut head = vec![String::new()];
        head.extend(head_of("softfault"));
        let with_linux = self.column(System::Linux, Thp::Off).is_some();
        if with_linux {
            head.extend(head_of("linux"));
        }
        head.extend(["2011 off", "2011 on", "2011 hugetlbfs"].map(String::from));
        let mut table = plain_table(&head.iter().map(String::as_str).collect::<Vec<_>>(), 1);
        for row in Row::ALL {
            let mut cells = vec![row.label().to_string()];
            for system in [System::Softfault, System::Linux].into_iter().take(if with_linux { 2 } else { 1 }) {
                for thp in Thp::ALL {
                    cells.push(self.column(system, thp).map_or("-".into(), |c| milliseconds(c.rows[row as usize])));
                }
                cells.push("later".into());
            }
            cells.extend(Then::ALL.map(|then| format!("{:.1}", then.seconds()[row as usize] * 1e3)));
            table.add_row(cells);
        }
        table
    }

    fn shares(&self) -> String {
        let mut text = String::from("mapped by huge pages:");
        for (i, column) in self.columns.iter().filter(|c| c.job.thp == Thp::On).enumerate() {
            let (gap, share) = (if i == 0 { " " } else { ", " }, 100.0 * column.huge_share);
            let _ = write!(text, "{gap}{} on {share:.1} %", column.job.system.name());
        }
        for column in self.columns.iter().filter(|c| c.job.thp == Thp::Off && c.huge_share > 0.0) {
            let _ = write!(text, ", {} off {:.1} %", column.job.system.name(), 100.0 * column.huge_share);
        }
        let _ = write!(text, "; our arena by the host {:.1} %", 100.0 * self.host_huge_share);
        let _ = write!(
            text,
            "\nOurs has no trap; Linux is {}; 2011 is {GIB_2011} GiB, from the message of Linux's commit.\n\
             (*) \"random access\" in 2011; in truth a stride.",
            self.kernel
        );
        text
    }

    fn tlb(&self) -> impl std::fmt::Display {
        let head = ["softfault", "pass", "lookups", "misses", "loads", "nested 4K", "nested 2M"];
        let mut table = plain_table(&head, 2);
        for passes in &self.passes {
            for (name, stats) in [("cold", passes.cold), ("second", passes.second)] {
                let mut cells = vec![passes.thp.name().to_string(), name.to_string()];
                let counts = [stats.lookups, stats.misses, stats.loads, stats.loads_nested_small];
                cells.extend(counts.iter().map(u64::to_string));
                cells.push(stats.loads_nested_huge.to_string());
                table.add_row(cells);
            }
        }
        table
    }

    fn ratios(&self) -> String {
        let mut text = String::new();
        for (system, thp, name) in [
            (System::Linux, Thp::On, "this Linux with huge pages (at least 1.5 is the goal)"),
            (System::Softfault, Thp::Off, "ours without"),
        ] {
            if let Some(Figure { median, spread }) = self.times_as_fast_as(system, thp) {
                let _ = writeln!(
                    text,
                    "memset of fresh memory, huge pages: {median:.2} times as fast as {name}, spread {:.0}%",
                    spread * 100.0
                );
            }
        }
        if let Some(times) = self.times_fewer_misses() {
            let _ = writeln!(text, "TLB misses of the cold pass, huge pages: {times:.0} times fewer (goal: 400)");
        }
        text
    }
}

fn milliseconds(figure: Figure) -> String {
    format!("{:.1} ({:.0}%)", figure.median * 1e3, figure.spread * 100.0)
}

fn short(gib: f64) -> String {
    let text = format!("{gib:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::super::reckon::tests::report;

    #[test]
    fn every_row_stands_beside_2011() {
        let text = report().text();
        let line = |start: &str| text.lines().find(|line| line.trim().starts_with(start)).unwrap_or_default();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(line("memset of fresh")).contains("30.0 (67%) later 120.0 (67%) 90.0 (67%) later 2182.6 1566.8"));
        assert!(words(line("a byte in each 4,096 (*)")).ends_with("44.2 41.6 41.6"));
        assert!(text.contains("3.00 times as fast as this Linux with huge pages"), "{text}");
        assert!(text.contains("512 times fewer") && text.contains("in truth a stride"), "{text}");
        assert!(text.contains("linux on 25.0 %"), "{text}");
    }
}
