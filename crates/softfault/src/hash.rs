//! Hashes of numbers.

/// Spreads a number over all bits (the finalizer of SplitMix64).
pub(crate) const fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// The hash `hashword` of Bob Jenkins' lookup3.c (2006, public domain), which Linux calls jhash2.
pub(crate) fn jhash2<const NR: usize>(words: &[u32; NR], seed: u32) -> u32 {
    let first = 0xdead_beef_u32.wrapping_add((NR as u32) << 2).wrapping_add(seed);
    let mut state = [first; 3];
    let mut rest = &words[..];
    while let [a, b, c, more @ ..] = rest {
        add(&mut state, &[*a, *b, *c]);
        rest = more;
        // The last three words are mixed by the end instead.
        if rest.is_empty() {
            return end(state);
        }
        mix_3(&mut state);
    }
    if rest.is_empty() {
        return state[2];
    }
    add(&mut state, rest);
    end(state)
}

fn add(state: &mut [u32; 3], words: &[u32]) {
    state.iter_mut().zip(words).for_each(|(state, word)| *state = state.wrapping_add(*word));
}

/// `mix` of lookup3.c: reversible, each bit of the input changes each of the output half of the times.
fn mix_3([a, b, c]: &mut [u32; 3]) {
    let step = |x: &mut u32, y: &mut u32, z: &mut u32, bits: u32| {
        *x = x.wrapping_sub(*z) ^ z.rotate_left(bits);
        *z = z.wrapping_add(*y);
    };
    step(a, b, c, 4);
    step(b, c, a, 6);
    step(c, a, b, 8);
    step(a, b, c, 16);
    step(b, c, a, 19);
    step(c, a, b, 4);
}

/// `final` of lookup3.c.
fn end([mut a, mut b, mut c]: [u32; 3]) -> u32 {
    let step = |x: &mut u32, y: u32, bits: u32| *x = (*x ^ y).wrapping_sub(y.rotate_left(bits));
    step(&mut c, b, 14);
    step(&mut a, c, 11);
    step(&mut b, a, 25);
    step(&mut c, b, 16);
    step(&mut a, c, 4);
    step(&mut b, a, 14);
    step(&mut c, b, 24);
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    /// lookup3.c prints these for bytes. Zeroes after the text, to the end of a word, change nothing but the length, which
    /// is added to the seed.
    #[test]
    fn known_answers_of_lookup3() {
        assert_eq!(jhash2(&[], 0), 0xdead_beef);
        assert_eq!(jhash2(&[], 0xdead_beef), 0xbd5b_7dde);
        let text = b"Four score and seven years ago\0\0";
        let words: [u32; 8] = core::array::from_fn(|i| u32::from_le_bytes(text.as_chunks::<4>().0[i]));
        let nr_more = 2;
        assert_eq!(jhash2(&words, 0u32.wrapping_sub(nr_more)), 0x1777_0551);
        assert_eq!(jhash2(&words, 1u32.wrapping_sub(nr_more)), 0xcd62_8161);
    }

    fn each_word_counts_of<const NR: usize>() {
        let words: [u32; NR] = core::array::from_fn(|i| i as u32 + 1);
        for i in 0..NR {
            let mut other = words;
            other[i] ^= 1 << 31;
            assert_ne!(jhash2(&other, 0), jhash2(&words, 0), "word {i} of {NR}");
        }
    }

    #[test]
    fn each_word_counts() {
        each_word_counts_of::<1>();
        each_word_counts_of::<3>();
        each_word_counts_of::<4>();
        each_word_counts_of::<6>();
        each_word_counts_of::<7>();
    }
}
