//! The order in which a repetition runs its rows.

/// A source of random orders; the same seed gives the same ones.
pub struct RandomOrder {
    state: u64,
}

impl RandomOrder {
    /// Begins at `seed`.
    pub fn new(seed: u64) -> RandomOrder {
        RandomOrder { state: seed }
    }
    /// splitmix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// `0..n` in a random order (Fisher and Yates).
    pub fn shuffled(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, (self.next() % (i as u64 + 1)) as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::RandomOrder;

    #[test]
    fn each_once_and_not_always_in_the_same_order() {
        let mut order = RandomOrder::new(1);
        let (a, b) = (order.shuffled(20), order.shuffled(20));
        assert_ne!(a, b);
        for mut jobs in [a, b] {
            jobs.sort_unstable();
            assert_eq!(jobs, (0..20).collect::<Vec<_>>());
        }
    }
}
