//! Rows as JSON, one object per line.

use super::stats::Row;
use serde::Serialize;

/// The keys, in their order; renaming a field here is a change of the format.
#[derive(Serialize)]
struct Line<'a> {
    experiment: &'a str,
    system: &'a str,
    discipline: &'a str,
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
    value: f64,
    unit: &'a str,
}

/// One line for a row, without its end.
fn line(row: &Row) -> String {
    let line = Line {
        experiment: "pft",
        system: if row.is_ours() { "softfault" } else { "linux" },
        discipline: row.work.name(),
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
        value: row.faults_per_wall_s(),
        unit: "faults/s",
    };
    serde_json::to_string(&line).expect("a flat struct of numbers and strings")
}

/// All rows but the yardsticks, which are in the ratios.
pub fn print(rows: &[Row]) {
    for row in rows.iter().filter(|row| !row.is_yardstick()) {
        println!("{}", line(row));
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::Chosen;
    use super::super::plan::Work;
    use super::*;

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
        let value: serde_json::Value = serde_json::from_str(&line(&row)).unwrap();
        let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let mut wanted = vec!["experiment", "value", "unit", "system", "discipline", "threads", "frames", "gib"];
        wanted.extend(["reps", "pages", "page_bytes", "user_s", "system_s", "wall_s", "spread", "ns_per_fault"]);
        wanted.extend(["faults_per_wall_s", "faults_per_cpu_s", "ratio_to_linux_touch", "ratio_to_linux_populate"]);
        wanted.extend(["ratio_to_zeroing", "write", "zeroing"]);
        wanted.sort_unstable();
        assert_eq!(keys, wanted);
        assert_eq!(value["system"], "linux");
        assert_eq!(value["discipline"], "touch");
        assert_eq!(value["write"], "one");
        assert!(value["zeroing"].is_null(), "Linux chooses for itself");
        assert!(value["faults_per_cpu_s"].is_null(), "0 CPU seconds give no rate");
        assert_eq!(value["faults_per_wall_s"], 1_572_864.0);
    }
}
