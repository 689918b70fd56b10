//! Parts of words against an array of bytes, refusals, and stores of neighbours.

use super::{exchange_u32, load, load_u32, store};
use crate::sync::{Cell64, Ordering};
use std::vec;
use std::vec::Vec;

/// Few under Miri, which is slow: a test looks at each range.
const NR_WORDS: usize = if cfg!(miri) { 2 } else { 4 };
const LEN: usize = NR_WORDS * 8;

fn words() -> [Cell64; NR_WORDS] {
    core::array::from_fn(|i| Cell64::new(u64::from_ne_bytes(core::array::from_fn(|b| (i * 8 + b) as u8))))
}

fn bytes(words: &[Cell64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
}

#[test]
fn parts_of_words_are_those_of_an_array_of_bytes() {
    // Under Miri every third first byte: all places in a word are among them.
    for from in (0..=LEN).step_by(if cfg!(miri) { 3 } else { 1 }) {
        for to in from..=LEN {
            let words = words();
            let mut got = vec![0xff; to - from];
            load(&words, from, &mut got);
            let mut wanted = bytes(&words);
            assert_eq!(got, wanted[from..to], "{from}..{to}");
            let new: Vec<u8> = (0..to - from).map(|i| 0x80 | i as u8).collect();
            wanted[from..to].copy_from_slice(&new);
            store(&words, from, &new);
            assert_eq!(bytes(&words), wanted, "{from}..{to}");
        }
    }
}

#[test]
fn halves_are_exchanged_if_they_are_as_expected() {
    for offset in (0..LEN).step_by(4) {
        let words = words();
        let mut wanted = bytes(&words);
        let old = u32::from_ne_bytes(wanted[offset..offset + 4].try_into().unwrap());
        assert_eq!(load_u32(&words, offset), old);
        assert_eq!(exchange_u32(&words, offset, old ^ 1, 7), old, "no exchange");
        assert_eq!(bytes(&words), wanted);
        assert_eq!(exchange_u32(&words, offset, old, 0xa0b0_c0d0), old);
        wanted[offset..offset + 4].copy_from_slice(&0xa0b0_c0d0_u32.to_ne_bytes());
        assert_eq!(bytes(&words), wanted);
    }
}

#[test]
fn a_range_beyond_the_words_is_refused() {
    let tried =
        |f: &dyn Fn(&[Cell64])| std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| f(&words()))).is_err();
    assert!(tried(&|words| load(words, LEN - 3, &mut [0; 4])));
    assert!(tried(&|words| store(words, LEN, &[1])));
    assert!(tried(&|words| load(words, usize::MAX, &mut [0; 4])));
    assert!(tried(&|words| _ = load_u32(words, 2)));
    assert!(tried(&|words| _ = load_u32(words, LEN)));
}

/// Neither thread loses a byte of its own: a store of a part does not store old bytes of its neighbour.
#[test]
fn stores_of_neighbours_are_not_lost() {
    const ROUNDS: u8 = if cfg!(miri) { 20 } else { 250 };
    let words = [Cell64::new(0)];
    std::thread::scope(|scope| {
        let words = &words;
        for part in [0..3, 3..4, 4..8] {
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    let own = [round; 4];
                    let own = &own[..part.len()];
                    if part.start == 4 {
                        let old = u32::from_ne_bytes([round - 1; 4]);
                        assert_eq!(exchange_u32(words, 4, old, u32::from_ne_bytes([round; 4])), old);
                    } else {
                        store(words, part.start, own);
                    }
                    let mut all = [0; 8];
                    load(words, 0, &mut all);
                    assert_eq!(&all[part.clone()], own);
                }
            });
        }
    });
}
