//! The table, the sentence above it and the ratio below it.

use super::linux::Kernel;
use super::options::Options;
use super::reckon::{Ratio, Row};
use super::system::System;
use crate::bench::plain_table;
use crate::run::RunError;
use std::fmt::Write;

/// The title: the program and the machines.
pub fn title(options: &Options, linux: Option<&Kernel>) -> Result<String, RunError> {
    let (cpu, nr_cpus, mem_mib) = (options.cpu(), options.nr_cpus()?, options.machine.mem >> 20);
    let mut text = format!("QEMU -cpu {cpu}, {nr_cpus} CPU(s), {mem_mib} MiB");
    if options.only != Some(System::Linux) {
        let _ = write!(text, "\nsoftfault: the reference kernel, {}", options.softfault_append());
    }
    if let Some(kernel) = linux {
        let _ = write!(text, "\nlinux: {}, {}", kernel.name, options.linux_append());
    }
    if options.is_artefact() {
        text.push_str(
            "\nARTEFACT: with this CPU model Linux clears and copies pages a byte at a time, which QEMU emulates so; \
             no machine is like this. Leave --cpu and --cpu-default out for figures that mean something.",
        );
    }
    Ok(text)
}

/// The rows, and the ratio if there is one.
pub fn rows(rows: &[Row], ratio: Option<&Ratio>) -> String {
    let has_rate = rows.iter().any(|row| row.middle.rate.is_some());
    let mut head = vec!["system", "wall s", "user s", "system s", "minor faults", "major", "max RSS KiB"];
    if has_rate {
        head.push("rate");
    }
    head.extend(["spread", "boots"]);
    let mut table = plain_table(&head, 1);
    for row in rows {
        let middle = &row.middle;
        let mut cells = vec![row.system.key().to_owned()];
        cells.extend([middle.wall_s, middle.user_s, middle.system_s].map(|s| format!("{s:.4}")));
        cells.extend([middle.minor_faults, middle.major_faults, middle.max_rss_kib].map(|n| format!("{n:.0}")));
        if has_rate {
            cells.push(middle.rate.map_or("-".into(), |rate| format!("{rate:.1}")));
        }
        cells.extend([format!("{:.0}%", row.spread * 100.0), row.boots.len().to_string()]);
        table.add_row(cells);
    }
    let mut text = format!("{table}\n");
    if let Some(ratio) = ratio {
        let (least, most) = ratio.pairs;
        let _ = match ratio.rate {
            Some(rate) => writeln!(
                text,
                "\nratio by rate: {rate:.2} (boots in turn: {least:.2} to {most:.2}); by wall time: {:.2}",
                ratio.wall
            ),
            None => writeln!(text, "\nratio by wall time: {:.2} (boots in turn: {least:.2} to {most:.2})", ratio.wall),
        };
    } else if rows.len() > 1 {
        text.push_str("\nno ratio: the program did not end with the same status on both\n");
    }
    text
}
