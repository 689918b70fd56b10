//! Fault-around: chooses the neighbours that a read fault maps together with its page, if they are
//! present.
//!
//! Values and pure functions. The mechanism maps what it finds in the window, and skips the rest,
//! so any window inside the VMA and the leaf table is sound.
//!
//! Source: spec of `fault_around_bytes` in Linux (mm/memory.c, debugfs).

use crate::addr::{PAGE_SIZE, PageRange, Vpn};

/// Largest window: log2 of its pages. One leaf table of 512 entries.
pub const MOST_ORDER: u8 = 9;
/// log2 of the pages of the default window: 64 KiB.
pub const DEFAULT_ORDER: u8 = 4;

/// How many pages a read fault on a file or a shared object may map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultAround {
    /// A window of 2^order pages, 0 to 9; 0 maps the page alone.
    Fixed(AroundOrder),
    /// The window follows the faults of each CPU: it grows while they come in order, and shrinks
    /// while they do not.
    Adaptive,
}

/// Whether the entries of neighbours say that their pages were used, where the hardware sets these bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Neighbours {
    /// Not used: ages and reclaim see which pages a program reads. The hardware writes each entry once more.
    Old,
    /// Used, as Linux has it on x86-64: the hardware writes nothing.
    Young,
}

/// log2 of the pages of a window, 0 to 9.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AroundOrder(u8);

/// Why a size of the window is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultAroundError {
    /// Larger than what one leaf table maps.
    TooLarge,
}

impl core::fmt::Display for FaultAroundError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            FaultAroundError::TooLarge => "fault_around_bytes: should be below 2 MiB + 4 KiB",
        })
    }
}
impl core::error::Error for FaultAroundError {}

impl AroundOrder {
    /// The page alone.
    pub const OFF: AroundOrder = AroundOrder(0);
    /// 64 KiB.
    pub const DEFAULT: AroundOrder = AroundOrder(DEFAULT_ORDER);

    /// `None` above 9.
    pub const fn new(order: u8) -> Option<AroundOrder> {
        if order <= MOST_ORDER { Some(AroundOrder(order)) } else { None }
    }
    /// log2 of the pages.
    pub const fn get(self) -> u8 {
        self.0
    }
    /// Bytes of the window, as `fault_around_bytes` shows them.
    pub const fn bytes(self) -> u64 {
        PAGE_SIZE << self.0
    }
    const fn nr_pages(self) -> u64 {
        1 << self.0
    }
}

impl FaultAround {
    /// The page alone.
    pub const OFF: FaultAround = FaultAround::Fixed(AroundOrder::OFF);
    /// 64 KiB.
    pub const DEFAULT: FaultAround = FaultAround::Fixed(AroundOrder::DEFAULT);

    /// The window of `fault_around_bytes`: rounded down to whole pages, then to a power of two of
    /// them; at least one page.
    ///
    /// # Errors
    ///
    /// [`FaultAroundError::TooLarge`] if more than 2 MiB remain after the first rounding.
    pub const fn from_bytes(bytes: u64) -> Result<FaultAround, FaultAroundError> {
        let nr_pages = bytes / PAGE_SIZE;
        if nr_pages > 1 << MOST_ORDER {
            return Err(FaultAroundError::TooLarge);
        }
        if nr_pages == 0 {
            return Ok(FaultAround::OFF);
        }
        Ok(FaultAround::Fixed(AroundOrder(nr_pages.ilog2() as u8)))
    }

    pub(crate) const fn to_word(self) -> u64 {
        match self {
            FaultAround::Fixed(order) => order.0 as u64,
            FaultAround::Adaptive => ADAPTIVE_WORD,
        }
    }
    pub(crate) const fn from_word(word: u64) -> FaultAround {
        if word == ADAPTIVE_WORD { FaultAround::Adaptive } else { FaultAround::Fixed(AroundOrder(word as u8)) }
    }
}

const ADAPTIVE_WORD: u64 = 255;

/// The pages of the window around `vpn`: from the address rounded down to the size of the window, or
/// the first page of `bounds`, whichever is later; as many pages as the window has, at most to the
/// end of `bounds`. The bounds are the part of the VMA that one leaf table maps, and contain `vpn`.
pub(crate) fn window(vpn: Vpn, order: AroundOrder, bounds: PageRange) -> PageRange {
    let start = (vpn.0 & !(order.nr_pages() - 1)).max(bounds.start.0);
    let end = (start + order.nr_pages()).min(bounds.end.0);
    PageRange::new(Vpn(start), Vpn(end))
}

/// A CPU's record of its last fault-around.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Last {
    /// The first page of the VMA; another VMA begins anew.
    pub(crate) vma_start: u64,
    /// The window.
    pub(crate) pages: PageRange,
    pub(crate) order: AroundOrder,
}

impl Last {
    fn is_beside(&self, vpn: Vpn) -> bool {
        self.pages.end == vpn || self.pages.start.0 == vpn.0 + 1
    }

    /// Whether [`adapt`] lets a page be mapped alone if nothing near it is mapped: the answer for most faults of a
    /// program that touches single pages far apart, without the window that `adapt` would compute.
    pub(crate) fn leaves_alone(&self, vpn: Vpn, vma_start: Vpn) -> bool {
        self.vma_start == vma_start.0 && self.order <= AroundOrder::DEFAULT && !self.is_beside(vpn)
    }
}

/// The window of the next fault in adaptive mode. A fault beside the last window quadruples it. One
/// elsewhere in the same VMA divides it by 16; it gets the default if the page lies among others that are
/// mapped (`is_dense`). So a program that touches single pages far apart pays for 16 once, and one that
/// touches all pages in no order has two faults for each 16. The first fault in a VMA gets the default.
pub(crate) fn adapt(vpn: Vpn, vma_start: Vpn, last: Option<Last>, is_dense: impl FnOnce() -> bool) -> AroundOrder {
    let Some(last) = last.filter(|last| last.vma_start == vma_start.0) else { return AroundOrder::DEFAULT };
    if last.is_beside(vpn) {
        return AroundOrder((last.order.0 + 2).min(MOST_ORDER));
    }
    let smaller = AroundOrder(last.order.0.saturating_sub(4));
    if smaller < AroundOrder::DEFAULT && is_dense() { AroundOrder::DEFAULT } else { smaller }
}

/// The pages among which a mapped one shows that a program touches many near each other.
pub(crate) fn neighbourhood(vpn: Vpn, bounds: PageRange) -> PageRange {
    window(vpn, AroundOrder::DEFAULT, bounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order_of(bytes: u64) -> Result<u8, FaultAroundError> {
        FaultAround::from_bytes(bytes).map(|around| match around {
            FaultAround::Fixed(order) => order.get(),
            FaultAround::Adaptive => unreachable!(),
        })
    }

    #[test]
    fn bytes_are_rounded_as_linux_rounds_them() {
        for (bytes, order) in
            [(0, 0), (4095, 0), (4096, 0), (8191, 0), (8192, 1), (12_287, 1), (12_288, 1), (65_536, 4)]
        {
            assert_eq!(order_of(bytes), Ok(order), "{bytes}");
        }
        assert_eq!(order_of(2 << 20), Ok(9));
        assert_eq!(order_of((2 << 20) + 4095), Ok(9));
        assert_eq!(order_of((2 << 20) + 4096), Err(FaultAroundError::TooLarge));
        assert_eq!(order_of(u64::MAX), Err(FaultAroundError::TooLarge));
        assert_eq!(AroundOrder::DEFAULT.bytes(), 65_536);
        assert_eq!((AroundOrder::new(9).map(AroundOrder::get), AroundOrder::new(10)), (Some(9), None));
        for around in [FaultAround::OFF, FaultAround::DEFAULT, FaultAround::Adaptive] {
            assert_eq!(FaultAround::from_word(around.to_word()), around);
        }
    }

    fn pages(start: u64, end: u64) -> PageRange {
        PageRange::new(Vpn(start), Vpn(end))
    }

    #[test]
    fn a9_a_vma_from_page_5() {
        assert_eq!(window(Vpn(7), AroundOrder(4), pages(5, 400)), pages(5, 21));
    }

    #[test]
    fn a3_the_window_never_leaves_vma_and_table() {
        for order in (0..=MOST_ORDER).map(AroundOrder) {
            for (start, end) in [(0, 512), (5, 512), (0, 9), (511, 512), (100, 101), (512, 1024), (1000, 1024)] {
                for vpn in start..end {
                    let around = window(Vpn(vpn), order, pages(start, end));
                    assert!(around.start.0 >= start && around.end.0 <= end, "{order:?} {vpn}");
                    assert!(around.contains(Vpn(vpn)), "{order:?} {vpn} in {around:?}");
                    assert!(around.nr_pages() <= 1 << order.get());
                }
            }
        }
        let end = u64::MAX >> 12;
        assert_eq!(window(Vpn(end - 1), AroundOrder(9), pages(end - 1, end)), pages(end - 1, end));
    }

    fn after(vpn: u64, start: u64, last: PageRange, order: u8, is_dense: bool) -> u8 {
        let last = Last { vma_start: start, pages: last, order: AroundOrder(order) };
        adapt(Vpn(vpn), Vpn(100), Some(last), || is_dense).get()
    }

    #[test]
    fn adaptive_windows_follow_the_faults() {
        assert_eq!(adapt(Vpn(100), Vpn(100), None, || true), AroundOrder::DEFAULT);
        let last = pages(112, 128);
        assert_eq!(after(128, 100, last, 4, false), 6);
        assert_eq!(after(111, 100, last, 4, false), 6, "downwards");
        assert_eq!(after(128, 100, last, 8, false), 9);
        assert_eq!(after(129, 100, last, 4, false), 0);
        assert_eq!(after(129, 100, last, 4, true), 4);
        assert_eq!(after(129, 100, last, 9, true), 5);
        assert_eq!(after(129, 100, pages(128, 129), 0, false), 2);
        assert_eq!(after(128, 90, last, 9, false), DEFAULT_ORDER, "another VMA");
    }

    #[test]
    fn a_page_that_is_left_alone_is_one_that_adapt_leaves_alone() {
        for order in (0..=MOST_ORDER).map(AroundOrder) {
            for (vpn, vma_start) in (100..140).flat_map(|vpn| [(vpn, 100), (vpn, 90)]) {
                let last = Last { vma_start, pages: pages(112, 128), order };
                let adapted = adapt(Vpn(vpn), Vpn(100), Some(last), || false);
                assert_eq!(last.leaves_alone(Vpn(vpn), Vpn(100)), adapted == AroundOrder::OFF, "{last:?} {vpn}");
            }
        }
    }
}
