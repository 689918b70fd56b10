//! Shared by `softfault clear-huge` and `softfault anon-w-seq`: large pages of
//! ours and of the host's, made cold, cleared, touched; the figures of then.

pub mod cache;
pub mod folios;
pub mod history;
pub mod linux;
pub mod process;
pub mod span;

use crate::bench::median;
use softfault::clear::ClearOrder;

/// Bytes in a large page of both systems.
pub const HUGE_BYTES: u64 = 2 << 20;
/// Bytes in a sub-page.
pub const SUBPAGE_BYTES: u64 = 4096;
/// Sub-pages in a large page.
pub const NR_SUBPAGES: u64 = HUGE_BYTES / SUBPAGE_BYTES;

/// One order by its name.
pub fn parse_order(text: &str) -> Result<ClearOrder, String> {
    ClearOrder::named(text).ok_or_else(|| {
        let names = ClearOrder::ALL.map(ClearOrder::name);
        format!("should be one of {}", names.join(", "))
    })
}

/// Each once, in the order of [`ClearOrder::ALL`].
pub fn each_once(orders: &[ClearOrder]) -> Vec<ClearOrder> {
    ClearOrder::ALL.into_iter().filter(|order| orders.contains(order)).collect()
}

/// (Third quartile - first) / median: short samples have far outliers, which an
/// interrupt makes and no order of clearing.
pub fn quartile_spread(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |quarter: usize| sorted.get((sorted.len().saturating_sub(1)) * quarter / 4).copied().unwrap_or(f64::NAN);
    (at(3) - at(1)) / median(sorted.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_ignores_the_outermost() {
        assert_eq!(quartile_spread(&[100.0, 1.0, 10.0, 12.0, 8.0]), 0.4);
        assert_eq!(quartile_spread(&[5.0]), 0.0);
        assert!(quartile_spread(&[]).is_nan());
    }

    #[test]
    fn orders_are_run_once() {
        use ClearOrder::{Forward, Hybrid};
        assert_eq!(each_once(&[Hybrid, Forward, Hybrid]), [Forward, Hybrid]);
    }
}
