//! The faulting sub-page, and the distance of the loads from it.

use crate::clearing::NR_SUBPAGES;

/// Sub-pages from the target at which the first touches are timed.
pub const DISTANCES: [u64; 8] = [0, 1, 2, 4, 8, 16, 64, 256];

/// Where the fault is, and what is touched after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The sub-page that the fault is on.
    pub target: u64,
    /// Sub-pages from it to the one that is loaded.
    pub distance: u64,
    /// That one.
    pub touched: u64,
}

impl Place {
    /// To the right, or to the left where the page ends before that.
    pub fn new(target: u64, distance: u64) -> Place {
        let right = target + distance;
        let touched = if right < NR_SUBPAGES { right } else { target.saturating_sub(distance) };
        Place { target, distance, touched }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_touched_lies_in_the_page_at_that_distance() {
        for target in 0..NR_SUBPAGES {
            for distance in DISTANCES {
                let place = Place::new(target, distance);
                assert!(place.touched < NR_SUBPAGES);
                assert_eq!(place.touched.abs_diff(target), distance, "{place:?}");
            }
        }
    }
}
