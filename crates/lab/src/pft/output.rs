//! The text, JSON, and the plot: faults per second over threads, both axes logarithmic.

use super::history::{self, OldRow};
use super::options::Pages;
use super::stats::{Report, Row};
use super::{table, ways};
use crate::bench::{self, Better, Chart, Lines, Places, Scale, Series, Whose};
use serde::Serialize;

#[derive(Serialize)]
struct Keys<'a> {
    system: &'a str,
    #[serde(rename = "discipline")]
    fault_locking: &'a str,
    threads: usize,
    frames: &'a str,
    gib: f64,
    reps: u32,
    pages: u64,
    page_bytes: u64,
    write: &'a str,
    zeroing: Option<&'a str>,
    user_s: f64,
    system_s: f64,
    wall_s: f64,
    spread: f64,
    faults_per_wall_s: f64,
    faults_per_cpu_s: Option<f64>,
    ns_per_fault: f64,
    ratio_to_linux_touch: Option<f64>,
    ratio_to_linux_populate: Option<f64>,
    ratio_to_zeroing: Option<f64>,
    ratio_to_batched_zeroing: Option<f64>,
}

impl bench::Report for Report {
    fn text(&self) -> String {
        let has_ways = !self.options.frames.are_zero() && self.options.pages == Pages::Small;
        let ways = if has_ways { format!("{}\n\n", ways::table(&self.zeroing)) } else { String::new() };
        format!("{}\n{ways}{}", self.ours(), table::of_2004(&history::rows()))
    }

    /// All rows but the yardsticks, which are in the ratios.
    fn json(&self, lines: &mut Lines) {
        for row in self.rows.iter().filter(|row| !row.is_yardstick()) {
            lines.add(keys(row), row.faults_per_wall_s(), "faults/s");
        }
    }

    fn chart(&self) -> Chart {
        let options = &self.options;
        let (gib, reps, frames) = (options.gib, options.repeated.reps, options.frames.name());
        Chart {
            title: format!("First-touch page faults, {gib} GiB x {reps}, {frames} frames"),
            x: "threads".into(),
            places: Places::Doubling,
            y: "faults/s of wall time; pages of 4 KiB, in 2004 of 16 KiB".into(),
            scale: Scale::Log,
            better: Better::More,
            series: series(&self.rows, &history::rows()),
        }
    }
}

fn keys(row: &Row) -> Keys<'_> {
    Keys {
        system: row.system(),
        fault_locking: row.work.name(),
        threads: row.nr_threads,
        frames: row.frames,
        gib: row.gib,
        reps: row.reps,
        pages: row.pages,
        page_bytes: row.page_bytes,
        write: row.write,
        zeroing: row.is_ours().then(|| row.zeroing.name()),
        user_s: row.user_s,
        system_s: row.system_s,
        wall_s: row.wall_s,
        spread: row.spread,
        faults_per_wall_s: row.faults_per_wall_s(),
        faults_per_cpu_s: row.faults_per_cpu_s(),
        ns_per_fault: row.ns_per_fault,
        ratio_to_linux_touch: row.ratio_to_linux_touch,
        ratio_to_linux_populate: row.ratio_to_linux_populate,
        ratio_to_zeroing: row.ratio_to_zeroing,
        ratio_to_batched_zeroing: row.ratio_to_batched_zeroing,
    }
}

/// A series for all rows of one name. Both of a machine of 2004 have one colour, fainter before the patch.
fn series(rows: &[Row], then: &[OldRow]) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    let mut add = |series: Series, point: (f64, f64)| match all.iter_mut().find(|other| other.name() == series.name()) {
        Some(other) => other.add(point),
        None => all.push(series.with(point)),
    };
    for row in rows.iter().filter(|row| !row.is_yardstick()) {
        let name = format!("{} {}", if row.is_ours() { "softfault" } else { "Linux" }, row.name());
        add(Series::new(name, Whose::system(row.system()), []), (row.nr_threads as f64, row.faults_per_wall_s()));
    }
    let mut machines: Vec<u32> = then.iter().map(|row| row.machine_cpus).collect();
    machines.dedup();
    for row in then {
        let tone = machines.iter().position(|cpus| *cpus == row.machine_cpus).unwrap_or(0);
        let name = format!("2004, {} CPUs, {}", row.machine_cpus, row.variant);
        let series = Series::new(name, Whose::Historic, []).tone(tone).faint(row.variant == "page_table_lock");
        add(series, (f64::from(row.nr_threads), row.faults_per_wall_s));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::plan::Work;
    use super::*;
    use crate::bench::Chosen;

    #[test]
    fn the_keys_and_nothing_else() {
        let row = Row {
            work: Work::LinuxTouch,
            nr_threads: 2,
            zeroing: Chosen::Auto,
            write: "one",
            gib: 1.0,
            reps: 3,
            frames: "fresh",
            pages: 786_432,
            page_bytes: 4096,
            user_s: 0.0,
            system_s: 0.0,
            wall_s: 0.5,
            walls_s: vec![0.1, 0.2, 0.2],
            spread: 0.1,
            ns_per_fault: 635.0,
            ratio_to_linux_touch: None,
            ratio_to_linux_populate: None,
            ratio_to_zeroing: None,
            ratio_to_batched_zeroing: None,
        };
        let mut lines = Lines::new("pft");
        lines.add(keys(&row), row.faults_per_wall_s(), "faults/s");
        let value = &lines.parsed()[0];
        let mut wanted = vec!["experiment", "value", "unit", "system", "discipline", "threads", "frames", "gib"];
        wanted.extend(["reps", "pages", "page_bytes", "user_s", "system_s", "wall_s", "spread", "ns_per_fault"]);
        wanted.extend(["faults_per_wall_s", "faults_per_cpu_s", "ratio_to_linux_touch", "ratio_to_linux_populate"]);
        wanted.extend(["ratio_to_zeroing", "ratio_to_batched_zeroing", "write", "zeroing"]);
        wanted.sort_unstable();
        assert_eq!(Lines::keys(value), wanted);
        assert_eq!(value["system"], "linux");
        assert_eq!(value["discipline"], "touch");
        assert_eq!(value["write"], "one");
        assert!(value["zeroing"].is_null(), "Linux chooses for itself");
        assert!(value["faults_per_cpu_s"].is_null(), "0 CPU seconds give no rate");
        assert_eq!(value["faults_per_wall_s"], 1_572_864.0);
    }

    #[test]
    fn axes_are_labelled_and_every_series_is_named() {
        let chart = Chart {
            title: "a title".into(),
            x: "threads".into(),
            places: Places::Doubling,
            y: "faults/s".into(),
            scale: Scale::Log,
            better: Better::More,
            series: series(&[], &history::rows()),
        };
        let patched = ["2004, 8 CPUs, fastpath", "2004, 512 CPUs, page_table_lock"];
        chart.assert_shows(&[&["a title", "threads", "faults/s (more is better)"], &patched[..]].concat());
    }
}
