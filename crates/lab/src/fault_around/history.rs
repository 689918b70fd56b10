//! The table of 2014, as posted with the patch: 4 sockets, 120 hardware threads.

use super::pattern::{Pattern, TABLE_PAGES};

const CSV: &str = include_str!("../../data/fault_around_2014.csv");

/// One run of 2014.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OldRow {
    /// In which order the file was read.
    pub pattern: Pattern,
    /// Threads.
    pub nr_threads: usize,
    /// log2 of the pages of the window.
    pub order: u8,
    /// Minor faults, all threads together.
    pub minor_faults: u64,
    /// Wall time, seconds.
    pub seconds: f64,
}

impl OldRow {
    /// Whether its time repeats that of another row: a slip of the source.
    pub fn is_suspect(&self) -> bool {
        (self.pattern, self.nr_threads, self.order) == (Pattern::Sparse, 8, 1)
    }
    /// Nanoseconds a page that a thread touched.
    pub fn ns_per_page(&self) -> f64 {
        self.seconds * 1e9 / pages_touched(self.pattern) as f64
    }
    /// Faults a page that was touched.
    pub fn faults_per_page(&self) -> f64 {
        self.minor_faults as f64 / (pages_touched(self.pattern) * self.nr_threads as u64) as f64
    }
}

fn name_2014(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Seq => "Sequential access 16GiB file",
        Pattern::Random => "Random access 1GiB file",
        Pattern::Sparse => "Touch only one page in page table in 16GiB file",
    }
}

/// GiB of the file.
pub fn gib(pattern: Pattern) -> u64 {
    if pattern == Pattern::Random { 1 } else { 16 }
}

/// Pages that a thread touched.
fn pages_touched(pattern: Pattern) -> u64 {
    let nr_pages = gib(pattern) << 18;
    if pattern == Pattern::Sparse { nr_pages / TABLE_PAGES } else { nr_pages }
}

/// The rows of a pattern, by threads and order.
pub fn rows(pattern: Pattern) -> Vec<OldRow> {
    let faults = cells(pattern, "minor_faults");
    let of = |(nr_threads, order, faults): &(usize, u8, f64)| {
        let mut times = cells(pattern, "seconds");
        let (_, _, seconds) = times.find(|(threads, of, _)| (threads, of) == (nr_threads, order))?;
        Some(OldRow { pattern, nr_threads: *nr_threads, order: *order, minor_faults: *faults as u64, seconds })
    };
    faults.filter_map(|cell| of(&cell)).collect()
}

/// Threads, order and value of all lines of a metric.
fn cells(pattern: Pattern, metric: &str) -> impl Iterator<Item = (usize, u8, f64)> {
    CSV.lines().filter_map(move |line| {
        let cells: Vec<&str> = line.split(',').collect();
        let [workload, threads, order, of, value] = cells[..] else { return None };
        let is_meant = workload == name_2014(pattern) && of == metric;
        is_meant.then(|| Some((threads.parse().ok()?, order.parse().ok()?, value.parse().ok()?))).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_five_rows_of_each_pattern() {
        for pattern in [Pattern::Seq, Pattern::Random, Pattern::Sparse] {
            let rows = rows(pattern);
            assert_eq!(rows.len(), 5 * 7, "{pattern:?}");
            for row in rows {
                // Without fault-around a fault for each page that is touched, and some of the C library.
                let most = if pattern == Pattern::Sparse { 1.0 } else { 0.5f64.powi(i32::from(row.order)) };
                assert!((0.95 * most..2.5 * most).contains(&row.faults_per_page()), "{row:?}");
            }
        }
    }

    #[test]
    fn one_time_is_that_of_another_row() {
        let rows = rows(Pattern::Sparse);
        let suspect: Vec<&OldRow> = rows.iter().filter(|row| row.is_suspect()).collect();
        let same = rows.iter().filter(|row| row.seconds == suspect[0].seconds).count();
        assert_eq!((suspect.len(), same), (1, 2));
    }

    #[test]
    fn what_fault_around_gained_in_2014() {
        let rows = rows(Pattern::Seq);
        let row = |nr_threads, order| {
            rows.iter().find(|row| (row.nr_threads, row.order) == (nr_threads, order)).expect("it is there")
        };
        assert_eq!(row(8, 0).seconds, 16.649_304_881);
        assert!((row(1, 4).minor_faults as f64 / row(1, 0).minor_faults as f64 - 0.0625).abs() < 1e-3);
    }
}
