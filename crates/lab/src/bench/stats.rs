//! Median, spread and ratios of repeated measurements.
//!
//! A ratio is the median over the ratios of samples of the same repetition: the host's speed drifts by more than the
//! differences of interest.

/// The middle value, or the mean of the two in the middle.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n.is_multiple_of(2) => (sorted[middle - 1] + sorted[middle]) / 2.0,
        _ => sorted[middle],
    }
}

/// (Largest - smallest) / median.
pub fn spread(values: &[f64]) -> f64 {
    let largest = values.iter().copied().fold(f64::MIN, f64::max);
    let smallest = values.iter().copied().fold(f64::MAX, f64::min);
    (largest - smallest) / median(values.iter().copied())
}

/// A median and how far the samples are from each other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    /// The median.
    pub median: f64,
    /// (Largest - smallest) / median.
    pub spread: f64,
}

impl Figure {
    /// Of these samples.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Figure {
        let values: Vec<f64> = values.into_iter().collect();
        Figure { median: median(values.iter().copied()), spread: spread(&values) }
    }

    /// Of the ratios within repetitions: `over[i]` and `under[i]` belong to one.
    pub fn of_ratios(over: &[f64], under: &[f64]) -> Figure {
        Figure::of(over.iter().zip(under).map(|(over, under)| over / under))
    }
}

/// The median of the ratios within repetitions.
pub fn paired(over: &[f64], under: &[f64]) -> f64 {
    Figure::of_ratios(over, under).median
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
    }

    #[test]
    fn ratios_pair_what_ran_together() {
        assert_eq!(paired(&[10.0, 100.0, 30.0], &[5.0, 50.0, 10.0]), 2.0);
        assert_eq!(Figure::of_ratios(&[10.0, 100.0], &[5.0, 50.0]), Figure { median: 2.0, spread: 0.0 });
    }
}
