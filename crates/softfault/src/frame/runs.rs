//! Runs of free frames in the bitmap of a block: arithmetic of words, no shared memory.

/// Words of a bitmap over a block.
pub(crate) const BLOCK_WORDS: usize = 8;

/// The largest run that is no block.
pub(super) const RUN_ORDER: u32 = 8;

/// Where in the word an aligned run of 2^order set bits begins; `order` below 6.
pub(super) fn run_starts(word: u64, order: u32) -> u64 {
    let runs = (0..order).fold(word, |runs, doubling| runs & runs >> (1 << doubling));
    let aligned = u64::MAX / ((1 << (1 << order)) - 1);
    runs & aligned
}

/// Order of the largest aligned run of free frames, at most [`RUN_ORDER`].
pub(super) fn largest_run(free: [u64; BLOCK_WORDS]) -> u32 {
    let whole = free.map(|word| word == !0);
    if whole.chunks(4).any(|run| run.iter().all(|w| *w)) {
        return 8;
    }
    if whole.chunks(2).any(|run| run.iter().all(|w| *w)) {
        return 7;
    }
    if whole.contains(&true) {
        return 6;
    }
    (1..6).rev().find(|order| free.iter().any(|word| run_starts(*word, *order) != 0)).unwrap_or(0)
}

/// The lowest `most` set bits.
pub(super) fn lowest_bits(bits: u64, most: u64) -> u64 {
    if u64::from(bits.count_ones()) <= most {
        return bits;
    }
    let mut rest = bits;
    (0..most).for_each(|_| rest &= rest - 1);
    bits & !rest
}

/// The numbers of the bits that are set.
#[inline(always)]
pub(super) fn bits(mut rest: u64) -> impl Iterator<Item = u64> {
    core::iter::from_fn(move || {
        let bit = (rest != 0).then(|| u64::from(rest.trailing_zeros()))?;
        rest &= rest - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_run_is_aligned_and_may_be_some_words() {
        let one = |word: u64| largest_run([0, 0, 0, word, 0, 0, 0, 0]);
        assert_eq!([one(0), one(1), one(0b11), one(0b110), one(0b1111), one(0b1_1110)], [0, 0, 1, 0, 2, 1]);
        assert_eq!([one(0xff), one(0xffff), one(0xffff << 8), one(!0 << 32), one(!1), one(!0)], [3, 4, 3, 5, 5, 6]);
        let words = |mask: u32| largest_run(core::array::from_fn(|w| if mask & 1 << w != 0 { !0 } else { 0 }));
        assert_eq!([words(0b11), words(0b110), words(0b1100_0000), words(0b1111), words(0b11_1100)], [7, 6, 7, 8, 7]);
        assert_eq!(words(0xff), 8, "a block is no run of its own");
    }
}
