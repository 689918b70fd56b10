//! The figures of 2011 for 3 GiB: the program's output in the message of the commit that added
//! transparent huge pages to Linux, two runs of each row.

use super::plan::{NR_ROWS, Row, Thp};

const CSV: &str = include_str!("../../data/largepages_2011.csv");

/// Bytes of memory in 2011.
pub const GIB_2011: f64 = 3.0;

/// One configuration of 2011.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// Without transparent huge pages.
    Off,
    /// With them.
    On,
    /// hugetlbfs, by a library that replaces malloc.
    Hugetlbfs,
}

impl Then {
    /// All of them.
    pub const ALL: [Then; 3] = [Then::Off, Then::On, Then::Hugetlbfs];

    /// With the same setting.
    pub fn with(thp: Thp) -> Then {
        match thp {
            Thp::Off => Then::Off,
            Thp::On | Thp::OnZeroed => Then::On,
            Thp::Hugetlb => Then::Hugetlbfs,
        }
    }

    /// In a plot.
    pub fn name(self) -> &'static str {
        match self {
            Then::Off => "off",
            Then::On => "on",
            Then::Hugetlbfs => "hugetlbfs",
        }
    }

    fn name_2011(self) -> &'static str {
        match self {
            Then::Off => "THP off",
            Then::On => "THP on",
            Then::Hugetlbfs => "libhugetlbfs",
        }
    }

    /// Seconds of each row, the mean of both runs.
    pub fn seconds(self) -> [f64; NR_ROWS] {
        Row::ALL.map(|row| mean(row.name_2011(), self.name_2011()))
    }
}

fn mean(row: &str, configuration: &str) -> f64 {
    let microseconds = CSV.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        let [of_row, of_configuration, value] = cells[..] else { return None };
        (of_row == row && of_configuration == configuration).then(|| value.parse::<f64>().ok()).flatten()
    });
    let (nr, sum) = microseconds.fold((0.0, 0.0), |(nr, sum), value| (nr + 1.0, sum + value));
    sum / nr / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifteen_figures_of_two_runs_each() {
        assert_eq!(CSV.lines().count(), 1 + 2 * 15);
        for then in Then::ALL {
            assert!(then.seconds().iter().all(|s| *s > 0.04 && *s < 2.2), "{then:?}: {:?}", then.seconds());
        }
        let [off, on, _] = Then::ALL.map(|then| then.seconds()[0]);
        assert_eq!(format!("{off:.4} {on:.4}"), "2.1826 1.5668");
    }
}
