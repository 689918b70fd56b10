//! Which page indices the displaced VMAs of a subtree have, in one word: see `displaced`.

use crate::space::vma::Vma;

/// An interval of page indices in one word: the lowest exactly, the length
/// rounded up to 13 significant bits.
///
/// ```text
/// lowest index 19..64 | exponent 13..19 | mantissa 0..13
/// ```
/// 0 is the empty interval. An interval that does not fit is [`ALL`](Indices::ALL): an
/// interval that is too large costs time only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Indices(pub(super) u64);

const MANTISSA_BITS: u32 = 13;
const LOW_SHIFT: u32 = 19;
const LOW_LIMIT: u64 = 1 << (64 - LOW_SHIFT);

impl Indices {
    pub(super) const NONE: Indices = Indices(0);
    pub(super) const ALL: Indices = Indices(u64::MAX);

    /// The indices of a VMA that is displaced, none of any other.
    #[inline]
    pub(super) fn of(vma: &Vma) -> Indices {
        if !vma.is_private() || vma.index == vma.range.start.0 {
            return Indices::NONE;
        }
        Indices::new(vma.index, vma.range.nr_pages())
    }

    fn new(low: u64, len: u64) -> Indices {
        if low >= LOW_LIMIT || len >= LOW_LIMIT {
            return Indices::ALL;
        }
        let exponent_of = |len: u64| (u64::BITS - len.leading_zeros()).saturating_sub(MANTISSA_BITS);
        // Rounding up may carry into one more bit.
        let exponent = exponent_of(len.next_multiple_of(1 << exponent_of(len)));
        let mantissa = len.div_ceil(1 << exponent);
        Indices(low << LOW_SHIFT | u64::from(exponent) << MANTISSA_BITS | mantissa)
    }

    fn low_and_len(self) -> (u64, u64) {
        let exponent = (self.0 >> MANTISSA_BITS) & ((1 << (LOW_SHIFT - MANTISSA_BITS)) - 1);
        (self.0 >> LOW_SHIFT, (self.0 & ((1 << MANTISSA_BITS) - 1)) << exponent)
    }

    /// An interval that has both.
    #[inline]
    pub(super) fn union(self, other: Indices) -> Indices {
        match (self, other) {
            (any, Indices::NONE) | (Indices::NONE, any) => any,
            (Indices::ALL, _) | (_, Indices::ALL) => Indices::ALL,
            (one, two) => {
                let ((a, a_len), (b, b_len)) = (one.low_and_len(), two.low_and_len());
                let low = a.min(b);
                Indices::new(low, (a + a_len).max(b + b_len) - low)
            }
        }
    }

    /// Whether the index may lie in it.
    pub(super) fn may_have(self, index: u64) -> bool {
        let (low, len) = self.low_and_len();
        self == Indices::ALL || index.wrapping_sub(low) < len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(indices: Indices) -> (u64, u64) {
        let (low, len) = indices.low_and_len();
        (low, low + len)
    }

    #[test]
    fn an_interval_is_never_too_small_and_hardly_too_large() {
        for low in [0, 1, 4095, 0x10_0000_0000, LOW_LIMIT - 1] {
            for len in (0..45).flat_map(|bit| [1 << bit, (1 << bit) + 1, (1 << bit) * 2 - 1]) {
                let (from, to) = ends(Indices::new(low, len));
                assert_eq!(from, low);
                assert!(to >= low + len && to - low <= len + len / 4096, "{low:x} {len:x}: {to:x}");
            }
        }
        for short in 1..8192 {
            assert_eq!(ends(Indices::new(7, short)), (7, 7 + short), "short ones are exact");
        }
        assert_eq!(Indices::new(LOW_LIMIT, 1), Indices::ALL);
        assert_eq!(Indices::new(1, u64::MAX), Indices::ALL);
        assert!(Indices::ALL.may_have(0) && Indices::ALL.may_have(u64::MAX));
    }

    #[test]
    fn a_union_has_both() {
        let (a, b) = (Indices::new(100, 10), Indices::new(1 << 40, 3));
        assert_eq!(a.union(Indices::NONE), a);
        assert_eq!(Indices::NONE.union(b), b);
        assert_eq!(a.union(Indices::ALL), Indices::ALL);
        assert_eq!(Indices::NONE.union(Indices::ALL), Indices::ALL);
        for both in [a.union(b), b.union(a)] {
            assert!([100, 109, 1 << 40, (1 << 40) + 2].into_iter().all(|index| both.may_have(index)));
            assert!(!both.may_have(99) && !both.may_have(1 << 41));
        }
    }
}
