//! The tables, and what they mean beside 2017 and 2026.

use super::measure::Load;
use super::options::{DISTANCES, Options};
use super::rows::Row;
use crate::bench::plain_table;
use crate::clearing::history;
use softfault::clear::ClearOrder;
use std::fmt::Write;

/// A table for each load, and the remarks.
pub fn text(options: &Options, rows: &[Row], kernel: &str) -> String {
    let mut text = String::new();
    for load in [Load::Idle, Load::Streaming] {
        let of_load: Vec<&Row> = rows.iter().filter(|row| row.load == load).collect();
        if !of_load.is_empty() {
            let _ = writeln!(text, "{}\n\n{}\n", title(options, load), table(options, &of_load));
            text.push_str(&what_hybrid_gives(&of_load));
        }
    }
    text.push_str(&remark(options, kernel));
    text
}

fn title(options: &Options, load: Load) -> String {
    let what = if options.copy { "Copying" } else { "Clearing" };
    let meanwhile = match load {
        Load::Idle => "nothing else running",
        Load::Streaming => "another CPU streaming through memory",
    };
    format!("{what} 2 MiB, fault on sub-page {}, {meanwhile}; {} repetitions", options.target, options.reps)
}

fn table(options: &Options, rows: &[&Row]) -> comfy_table::Table {
    let mut head: Vec<String> = ["system", "GB/s", "us", "spread", "x converge"].map(String::from).to_vec();
    head.push(if options.copy { "touched" } else { "x linux" }.into());
    head.extend(DISTANCES.map(|distance| format!("+{distance}")));
    if !options.copy {
        head.extend(["near", "kept"].map(String::from));
    }
    let mut table = plain_table(&head.iter().map(String::as_str).collect::<Vec<_>>(), 1);
    for row in rows {
        let mut cells = vec![
            format!("{} {}", row.work.system(), row.work.name()),
            format!("{:.1}", row.gb_per_s()),
            format!("{:.1}", row.ns / 1e3),
            format!("{:.0}%", row.spread * 100.0),
            times(row.ratio_to_converge),
        ];
        cells.push(if options.copy { kib(row.bytes_touched) } else { times(row.ratio_to_linux) });
        let touch = |distance: &u64| row.touches.iter().find(|touch| touch.distance == *distance);
        cells.extend(DISTANCES.iter().map(|d| touch(d).map_or("-".into(), |t| format!("{:.1}", t.ns_per_line))));
        if !options.copy {
            let share = |share: Option<f64>| share.map_or("-".into(), |share| format!("{:.0}%", share * 100.0));
            cells.push(share(row.residue.map(|residue| residue.near)));
            cells.push(share(row.residue.map(|residue| residue.kept)));
        }
        table.add_row(cells);
    }
    table
}

/// What the newest order of ours gives over that of 2017.
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

fn remark(options: &Options, kernel: &str) -> String {
    let mut text = String::from("+d: ns a line, loaded in a random order from the sub-page d away from the fault.\n");
    if options.copy {
        text.push_str("touched: bytes read and written. A huge copy-on-write copies all 2 MiB, a small one 4 KiB.\n");
        if options.with_linux() {
            let _ = write!(
                text,
                "linux cow: a store to a huge page that a child shares on Linux {kernel}, trap and all, which splits the mapping."
            );
        }
        return text;
    }
    text.push_str(
        "near, kept: in a modelled last-level cache of 1.25 MiB, the share of the target and 8 sub-pages on each side\n\
                   that is there after the clear, and of what was there before it.\n",
    );
    if options.with_linux() {
        let _ = writeln!(
            text,
            "linux touch: a store to fresh huge memory on Linux {kernel}, trap and all; ours have no trap."
        );
    }
    let (miss, ipc, server) = (history::CACHE_MISS_2017_PERCENT, history::IPC_2017, history::SERVER_2026_GB_PER_S);
    let _ = write!(
        text,
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
    );
    text
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |r| format!("{r:.2}"))
}

fn kib(bytes: u64) -> String {
    format!("{} KiB", bytes >> 10)
}
