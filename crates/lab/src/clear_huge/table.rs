//! The tables, and what they mean beside 2017 and 2026.

use super::place::DISTANCES;
use super::rows::{Report, Row};
use super::work::Load;
use crate::bench::{Columns, percent, times};
use crate::clearing::history;
use comfy_table::Table;
use softfault::clear::ClearOrder;
use std::fmt::Write;

impl Report {
    /// A table for each load, and the remarks.
    pub fn tables(&self) -> String {
        let mut text = String::new();
        for load in [Load::Idle, Load::Streaming] {
            let of_load: Vec<&Row> = self.rows.iter().filter(|row| row.load == load).collect();
            if !of_load.is_empty() {
                let _ = writeln!(text, "{}\n\n{}\n", self.title(load), self.table(&of_load));
                text.push_str(&what_hybrid_gives(&of_load));
            }
        }
        text.push_str(&self.remark());
        text
    }

    fn title(&self, load: Load) -> String {
        let what = if self.copy { "Copying" } else { "Clearing" };
        let meanwhile = match load {
            Load::Idle => "nothing else running",
            Load::Streaming => "another CPU streaming through memory",
        };
        format!("{what} 2 MiB, fault on sub-page {}, {meanwhile}; {} repetitions", self.target, self.reps)
    }

    fn table(&self, rows: &[&Row]) -> Table {
        let mut columns = Columns::label("system", |row: &Row| format!("{} {}", row.work.system(), row.work.name()))
            .number("GB/s", |row| format!("{:.1}", row.gb_per_s()))
            .number("us", |row| format!("{:.1}", row.ns / 1e3))
            .number("spread", |row| percent(row.spread))
            .number("x converge", |row| times(row.ratio_to_converge))
            .number_if(self.copy, "touched", |row| format!("{} KiB", row.bytes_touched >> 10))
            .number_if(!self.copy, "x linux", |row| times(row.ratio_to_linux));
        for distance in DISTANCES {
            columns = columns.number(format!("+{distance}"), move |row| {
                let touch = row.touches.iter().find(|touch| touch.distance == distance);
                touch.map_or("-".into(), |touch| format!("{:.1}", touch.ns_per_line))
            });
        }
        let share = |share: Option<f64>| share.map_or("-".into(), percent);
        columns
            .number_if(!self.copy, "near", move |row| share(row.residue.map(|residue| residue.near)))
            .number_if(!self.copy, "kept", move |row| share(row.residue.map(|residue| residue.kept)))
            .table(rows.iter().copied())
    }

    fn remark(&self) -> String {
        let loads = "+d: ns a line, loaded in a random order from the sub-page d away from the fault.\n";
        format!("{loads}{}", if self.copy { self.of_copying() } else { self.of_clearing() })
    }

    fn of_copying(&self) -> String {
        let mut text = String::from(
            "touched: bytes read and written. A huge copy-on-write copies all 2 MiB, a small one 4 KiB.\n",
        );
        if self.with_linux {
            let _ = write!(
                text,
                "linux cow: a store to a huge page that a child shares on Linux {}, trap and all, which splits the mapping.",
                self.kernel
            );
        }
        text
    }

    fn of_clearing(&self) -> String {
        let mut text = String::from(
            "near, kept: in a modelled last-level cache of 1.25 MiB, the share of the target and 8 sub-pages on each side\n\
             that is there after the clear, and of what was there before it.\n",
        );
        if self.with_linux {
            let kernel = &self.kernel;
            let _ = writeln!(
                text,
                "linux touch: a store to fresh huge memory on Linux {kernel}, trap and all; ours have no trap."
            );
        }
        text + &history()
    }
}

/// Compares the newest order of ours with that of 2017.
fn what_hybrid_gives(rows: &[&Row]) -> String {
    let of = |how: ClearOrder| rows.iter().find(|row| row.work.order() == Some(how));
    let (Some(hybrid), Some(converge)) = (of(ClearOrder::Hybrid), of(ClearOrder::Converge)) else {
        return String::new();
    };
    let first = |row: &Row| row.touches.first().map_or(f64::NAN, |touch| touch.ns_per_line);
    format!(
        "hybrid over converge: {} times the GB/s; first touches of the target {:.1} against {:.1} ns a line\n\n",
        times(hybrid.ratio_to_converge),
        first(hybrid),
        first(converge)
    )
}

fn history() -> String {
    let (miss, ipc, server) = (history::CACHE_MISS_2017_PERCENT, history::IPC_2017, history::SERVER_2026_GB_PER_S);
    format!(
        "2017, {} processes: converge instead of forward took cache misses from {}% to {}%, instructions per cycle from {} \
         to {}.\n2026, one AMD server: converge {} GB/s, forward {} GB/s; runs saved {} to {}% of kernel time.",
        history::PROCESSES_2017,
        miss.0,
        miss.1,
        ipc.0,
        ipc.1,
        server.0,
        server.1,
        history::RUNS_2026_SAVED_PERCENT.0,
        history::RUNS_2026_SAVED_PERCENT.1
    )
}
