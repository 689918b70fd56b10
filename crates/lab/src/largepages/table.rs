//! The tables: times compared with 2011, and the emulated TLB.

use super::history::{GIB_2011, Then};
use super::plan::{Row, System, Thp};
use super::reckon::{COMPARISONS, Column, Report};
use crate::bench::{Figure, milliseconds, percent, plain_table, short_gib};
use std::fmt::Write;

impl Report {
    /// All of them, and what they come to.
    pub fn tables(&self) -> String {
        let mut text =
            format!("{} GiB, {} repetitions, milliseconds of CPU time (spread)\n\n", short_gib(self.gib), self.reps);
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
        // None is a column that could not be measured.
        let of = |system| self.columns.iter().filter(move |c| c.job.system == system).map(|c| (Some(c), heading(c)));
        let mut columns: Vec<(Option<&Column>, &str)> = of(System::Softfault).chain(of(System::Linux)).collect();
        if self.why_no_pool.is_some() {
            columns.push((None, "linux hugetlb"));
        }
        let mut head = vec![""];
        head.extend(columns.iter().map(|(_, heading)| heading));
        head.extend(["2011 off", "2011 on", "2011 hugetlbfs"]);
        let mut table = plain_table(&head, 1);
        for row in Row::ALL {
            let mut cells = vec![row.label().to_string()];
            let time = |column: &Option<&Column>| column.map_or("-".into(), |c| milliseconds(c.rows[row as usize]));
            cells.extend(columns.iter().map(|(column, _)| time(column)));
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
        let _ = write!(text, "; huge pages are cleared in the order {}", self.clear_order);
        let _ = write!(
            text,
            "\nOurs has no trap; Linux is {}; 2011 is {GIB_2011} GiB, from the message of Linux's commit.\n\
             (*) \"random access\" in 2011; in truth a stride.",
            self.kernel
        );
        if let Some(why) = &self.why_no_pool {
            let _ = write!(text, "\nLinux's pool was left out: {why}.");
        }
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
        for comparison in &COMPARISONS {
            if let Some(Figure { median, spread }) = self.times_as_fast_as(comparison) {
                let told = comparison.text.replace("{}", &format!("{median:.2}"));
                let _ = writeln!(text, "memset of fresh memory, {told}, spread {}", percent(spread));
            }
        }
        if let Some(times) = self.times_fewer_misses() {
            let _ = writeln!(text, "TLB misses of the cold pass, huge pages: {times:.0} times fewer (goal: 400)");
        }
        text
    }
}

fn heading(column: &Column) -> &'static str {
    match (column.job.system, column.job.thp) {
        (System::Softfault, Thp::Off) => "softfault off",
        (System::Softfault, Thp::On) => "on",
        (_, Thp::OnZeroed) => "on, zeroed",
        (System::Softfault, Thp::Hugetlb) => "hugetlb",
        (System::Linux, Thp::Hugetlb) => "linux hugetlb",
        (System::Linux, Thp::Off) => "linux off",
        (System::Linux, Thp::On) => "linux on",
    }
}

#[cfg(test)]
mod tests {
    use super::super::reckon::tests::report;

    #[test]
    fn every_row_stands_beside_2011() {
        let text = report().tables();
        let line = |start: &str| text.lines().find(|line| line.trim().starts_with(start)).unwrap_or_default();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words(line("memset of fresh"))
                .contains("60.0 (67%) 30.0 (67%) 22.5 (67%) 27.0 (67%) 120.0 (67%) 90.0 (67%) - 2182.6 1566.8")
        );
        assert!(words(line("a byte in each 4,096 (*)")).ends_with("44.2 41.6 41.6"));
        assert!(text.contains("3.00 times as fast as this Linux with huge pages"), "{text}");
        assert!(text.contains("512 times fewer") && text.contains("in truth a stride"), "{text}");
        assert!(text.contains("linux on 25.0 %"), "{text}");
    }
}
