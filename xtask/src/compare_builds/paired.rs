//! Medians of paired runs.
//!
//! The interval of a median is that of the sign test: from the k-th smallest value to the k-th largest. Each value is
//! above the true median with probability 1/2, so the interval misses it only if fewer than k values are on one side.
//! No distribution is assumed.

use serde::Serialize;

/// With fewer pairs even the interval from the smallest to the largest value holds the median in less than 95 %.
pub const FEWEST: u64 = 6;
/// Probability that the median is below the interval; the same above it.
const MISSED: f64 = 0.025;

/// The comparison of paired runs.
#[derive(Serialize)]
pub struct Paired {
    /// Pairs that were counted.
    pub pairs: usize,
    /// Median of the other build's figures.
    pub rev_median: f64,
    /// Median of this tree's figures.
    #[serde(rename = "here_median")]
    pub here: f64,
    /// Median of the ratios within pairs, this tree's over the other's.
    pub ratio: f64,
    /// Lower end of its interval of at least 95 %.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Paired {
    /// Of pairs of this tree's and the other build's figure; at least [`FEWEST`].
    pub fn of(pairs: &[(f64, f64)]) -> Paired {
        let ratios = sorted(pairs.iter().map(|(here, other)| here / other));
        let (low, high) = interval(&ratios);
        Paired {
            pairs: pairs.len(),
            rev_median: median(&sorted(pairs.iter().map(|(_, other)| *other))),
            here: median(&sorted(pairs.iter().map(|(here, _)| *here))),
            ratio: median(&ratios),
            low,
            high,
        }
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> f64 {
    let (lower, upper) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    (lower + upper) / 2.0
}

/// The ends of the median's interval.
fn interval(sorted: &[f64]) -> (f64, f64) {
    let left_out = nr_left_out(sorted.len());
    (sorted[left_out], sorted[sorted.len() - 1 - left_out])
}

/// How many values lie outside the interval at each end: the most with which the median is missed at that end with a
/// probability of at most [`MISSED`].
fn nr_left_out(nr: usize) -> usize {
    // The probability that exactly i of nr fair coins show heads, then that at most i do.
    let mut exactly = 0.5f64.powi(nr as i32);
    let (mut at_most, mut left_out) = (exactly, 0);
    for i in 1..nr {
        exactly *= (nr - i + 1) as f64 / i as f64;
        at_most += exactly;
        if at_most > MISSED {
            break;
        }
        left_out = i;
    }
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ranks that tables of the sign test give for 95 %: with 41 values the 14th from both ends.
    #[test]
    fn ranks_are_those_of_the_tables() {
        for (nr, rank) in [(6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (15, 4), (20, 6), (25, 8), (41, 14), (100, 40)] {
            assert_eq!(nr_left_out(nr) + 1, rank, "{nr} values");
        }
        assert!(nr_left_out(1000) > 460 && nr_left_out(1000) < 480);
    }

    #[test]
    fn fewer_than_six_have_no_interval() {
        let missed = |nr: u64| 0.5f64.powi(nr as i32);
        assert!(missed(FEWEST) <= MISSED && missed(FEWEST - 1) > MISSED);
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }

    /// The host becomes ten times slower half-way: both medians move, the ratio does not.
    #[test]
    fn drift_does_not_change_the_ratio() {
        let pairs: Vec<(f64, f64)> =
            (0..41).map(|i| if i < 20 { 1.0 } else { 10.0 }).map(|slow| (3.0 * slow, 2.0 * slow)).collect();
        let Paired { pairs, ratio, low, high, here, .. } = Paired::of(&pairs);
        assert_eq!((pairs, ratio, low, high, here), (41, 1.5, 1.5, 1.5, 30.0));
    }

    /// A few wild pairs do not move the interval.
    #[test]
    fn wild_values_are_left_out() {
        let ratio = |i: u32| if i < 5 { 100.0 } else { 1.0 + f64::from(i) / 1000.0 };
        let paired = Paired::of(&(0..41).map(|i| (ratio(i), 1.0)).collect::<Vec<_>>());
        assert!(paired.low > 1.0 && paired.high < 1.05 && paired.low < paired.ratio && paired.ratio < paired.high);
    }
}
