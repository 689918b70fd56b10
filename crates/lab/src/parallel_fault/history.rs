//! The figures of 2013, as posted with the patch: 64 threads on POWER, and the start of a database.

use super::options::Shape;
use softfault::HugetlbLocking;

const CSV: &str = include_str!("../../data/parallel_fault_2013.csv");
/// GiB of the linear run.
pub const GIB_2013: f64 = 128.0;

/// One configuration of 2013.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OldRow {
    /// One mutex, or the table.
    pub discipline: HugetlbLocking,
    /// Threads; of the database nobody said.
    pub nr_threads: Option<usize>,
    /// Wall time; of the database nobody said.
    pub seconds: Option<f64>,
    /// Not free at the first try.
    pub contentions: Option<u64>,
    /// Times that a mutex was taken.
    pub acquisitions: Option<u64>,
    /// Time waited, microseconds.
    pub wait_us: Option<f64>,
}

/// The rows of a shape.
pub fn rows(shape: Shape) -> Vec<OldRow> {
    let one = |discipline, nr_threads, configuration: &str| OldRow {
        discipline,
        nr_threads,
        seconds: value(shape, configuration, "seconds"),
        contentions: value(shape, configuration, "contentions").map(|nr| nr as u64),
        acquisitions: value(shape, configuration, "acquisitions").map(|nr| nr as u64),
        wait_us: value(shape, configuration, "waittime_total_us"),
    };
    match shape {
        Shape::Linear => vec![
            one(HugetlbLocking::One, Some(1), "\"1 thread, one mutex\""),
            one(HugetlbLocking::One, Some(64), "\"64 threads, one mutex\""),
            one(HugetlbLocking::Table, Some(64), "\"64 threads, mutex table\""),
        ],
        Shape::Database => {
            vec![one(HugetlbLocking::One, None, "one mutex"), one(HugetlbLocking::Table, None, "mutex table")]
        }
    }
}

fn value(shape: Shape, configuration: &str, metric: &str) -> Option<f64> {
    let experiment = match shape {
        Shape::Linear => "parallel_fault 128GiB of 16MiB pages",
        Shape::Database => "\"1.5GB database start, lock statistics\"",
    };
    let start = format!("{experiment},{configuration},{metric},");
    CSV.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_table_gained_in_2013() {
        let linear = rows(Shape::Linear);
        let seconds: Vec<f64> = linear.iter().filter_map(|row| row.seconds).collect();
        assert_eq!((seconds.len(), (seconds[0] / seconds[2] * 10.0).round()), (3, 479.0));
        assert!(linear.iter().all(|row| row.acquisitions.is_none()));
        let database = rows(Shape::Database);
        let contentions: Vec<Option<u64>> = database.iter().map(|row| row.contentions).collect();
        assert_eq!(contentions, [Some(10_678), Some(383)]);
        assert_eq!(database[0].acquisitions, Some(99_476));
        assert!(database.iter().all(|row| row.seconds.is_none() && row.wait_us > Some(1000.0)));
    }
}
