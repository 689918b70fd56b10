//! The tables: the index of each order, and both programs.

use super::reckon::{Program, Report};
use crate::bench::{Columns, Figure, milliseconds, percent, plain_table};
use crate::stage::PAGE_BYTES;
use std::fmt::Write;

impl Report {
    /// Both of them, and the ratios.
    pub fn tables(&self) -> String {
        let mib = |when: usize| (self.index[when][0].nr_free * PAGE_BYTES) >> 20;
        let mut text = format!(
            "One {} frame kept in {} % of the 2 MiB blocks: {} MiB were free before, {} are now\n\n{}\n\n",
            self.kind,
            self.share,
            mib(0),
            mib(1),
            self.orders()
        );
        let _ = writeln!(
            text,
            "Half of it written, written again and read; defrag={}, {} repetitions\n\n{}\n",
            self.defrag,
            self.reps,
            self.both()
        );
        let _ = writeln!(text, "always / never: {} (goal: at most 1.10)", ratio(self.ratio));
        let _ = writeln!(text, "first memset alone: {}", ratio(self.memset_ratio));
        text
    }

    fn orders(&self) -> impl std::fmt::Display {
        let mut table = plain_table(&["order", "block", "index before", "after"], 1);
        for (order, [before, after]) in self.indices() {
            let bytes = PAGE_BYTES << order;
            table.add_row([order.to_string(), size(bytes), format!("{before:.3}"), format!("{after:.3}")]);
        }
        table
    }

    fn both(&self) -> impl std::fmt::Display {
        Columns::label("enabled", |program: &Program| program.enabled.to_string())
            .number("first memset, ms", |program| milliseconds(program.memset_s))
            .number("all of it, ms", |program| milliseconds(program.whole_s))
            .number("huge", |program| format!("{:.1} %", 100.0 * program.huge_share))
            .number("compacted", |program| format!("{:.0}", program.compact_success))
            .number("fallbacks", |program| format!("{:.0}", program.thp_fault_fallback))
            .table(&self.programs)
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        n if n >= 1 << 30 => format!("{} GiB", n >> 30),
        n if n >= 1 << 20 => format!("{} MiB", n >> 20),
        n => format!("{} KiB", n >> 10),
    }
}

fn ratio(figure: Figure) -> String {
    format!("{:.3}, spread {}", figure.median, percent(figure.spread))
}

#[cfg(test)]
mod tests {
    use super::super::reckon::tests::report;

    #[test]
    fn orders_programs_and_the_ratio() {
        let text = report().tables();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.starts_with("One movable frame kept in 50 % of the 2 MiB blocks: 16 MiB"), "{text}");
        for wanted in
            ["9 2 MiB 0.000 0.750", "always 165.0 (67%) 330.0 (67%) 0.0 % 3 7", "always / never: 1.100, spread 0%"]
        {
            assert!(words.contains(wanted), "{wanted} is not in {text}");
        }
    }
}
