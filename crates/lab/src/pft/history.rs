//! The rows of 2004, as posted with the patch.
//!
//! `data/pft_2004.csv` keeps the wall column as it was printed, with a slip: the
//! hundredths of a second were padded to three digits, so that 4.059 is 4.59 s.

const CSV: &str = include_str!("../../data/pft_2004.csv");

/// Bytes in a page of those machines (ia64).
#[cfg(test)]
const PAGE_BYTES_2004: u64 = 16 << 10;

/// One row of 2004.
#[derive(Clone, Debug, PartialEq)]
pub struct OldRow {
    /// CPUs of the machine.
    pub machine_cpus: u32,
    /// `page_table_lock` (before) or `fastpath` (the patch).
    pub variant: String,
    /// GiB touched in a repetition.
    pub gib: u32,
    /// Repetitions.
    pub reps: u32,
    /// Threads.
    pub nr_threads: u32,
    /// CPU time, seconds.
    pub user_s: f64,
    /// CPU time, seconds.
    pub system_s: f64,
    /// Wall time, seconds, with the slip mended.
    pub wall_s: f64,
    /// As printed.
    pub faults_per_cpu_s: f64,
    /// As printed.
    pub faults_per_wall_s: f64,
}

/// All forty.
pub fn rows() -> Vec<OldRow> {
    CSV.lines().skip(1).map(|line| parse(line).expect("the file is part of the program, and a test reads it")).collect()
}

fn parse(line: &str) -> Option<OldRow> {
    let mut cells = line.split(',');
    Some(OldRow {
        machine_cpus: cells.next()?.parse().ok()?,
        variant: cells.next()?.to_string(),
        gib: cells.next()?.parse().ok()?,
        reps: cells.next()?.parse().ok()?,
        nr_threads: cells.next()?.parse().ok()?,
        user_s: cells.next()?.parse().ok()?,
        system_s: cells.next()?.parse().ok()?,
        wall_s: mended(cells.next()?)?,
        faults_per_cpu_s: cells.next()?.parse().ok()?,
        faults_per_wall_s: cells.next()?.parse().ok()?,
    })
}

/// `4.059` is 4 s and 59 hundredths.
fn mended(printed: &str) -> Option<f64> {
    let (seconds, hundredths) = printed.split_once('.')?;
    Some(seconds.parse::<f64>().ok()? + hundredths.parse::<f64>().ok()? / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forty_rows_that_agree_with_themselves() {
        let rows = rows();
        assert_eq!(rows.len(), 40);
        for row in rows {
            let pages = (u64::from(row.gib * row.reps) << 30) as f64 / PAGE_BYTES_2004 as f64;
            let (by_wall, by_cpu) = (pages / row.wall_s, pages / (row.user_s + row.system_s));
            assert!((by_wall / row.faults_per_wall_s - 1.0).abs() < 0.01, "{row:?}: {by_wall}");
            assert!((by_cpu / row.faults_per_cpu_s - 1.0).abs() < 0.01, "{row:?}: {by_cpu}");
        }
    }

    #[test]
    fn the_slip_in_the_wall_column() {
        assert_eq!(mended("4.059"), Some(4.59));
        assert_eq!(mended("61.9"), Some(61.09));
        assert_eq!(mended("61"), None);
    }
}
