//! The pages of the file that a thread reads, and their order.
//!
//! Word 0 of page n of the file is n + 1, all others are 0: the sum of what was read tells whether each
//! word was read once.

use crate::bench::PAGE_BYTES;
use crate::error::LabError;
use clap::ValueEnum;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words in a page.
pub const PAGE_WORDS: u64 = PAGE_BYTES / 8;
/// Pages that one leaf table maps.
pub const TABLE_PAGES: u64 = 512;

/// In which order a thread reads the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Pattern {
    /// Every word, in order
    Seq,
    /// Every word once, at random
    Random,
    /// One word in each 2 MiB, in order
    Sparse,
}

/// A part of the file, mapped.
pub trait Mapped {
    /// The sum of all words of a page of the file.
    fn sum_page(&self, page: u64) -> Result<u64, LabError>;
    /// A word of the file.
    fn word(&self, index: u64) -> Result<u64, LabError>;
}

/// Returns word 0 of a page of the file.
pub fn mark_of(page: u64) -> u64 {
    page + 1
}

/// The sum of a page's words, loaded one by one. The same code for both systems.
#[inline]
pub fn sum(words: &[AtomicU64; PAGE_WORDS as usize]) -> u64 {
    words.iter().fold(0, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)))
}

impl Pattern {
    /// The word in output.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Seq => "seq",
            Pattern::Random => "random",
            Pattern::Sparse => "sparse",
        }
    }

    /// Returns the pattern of the reads before anything is timed, in mappings of their own: so the first timed reads find code, tables and
    /// the processor's caches as the second ones do. All pages in order, where a random order takes long.
    pub fn of_warm_up(self) -> Pattern {
        if self == Pattern::Random { Pattern::Seq } else { self }
    }

    /// Which of these pages it touches.
    fn touched(self, pages: Range<u64>) -> impl Iterator<Item = u64> {
        let step = if self == Pattern::Sparse { TABLE_PAGES } else { 1 };
        (pages.start.next_multiple_of(step)..pages.end).step_by(step as usize)
    }

    /// How many of these pages it touches.
    pub fn nr_touched(self, pages: Range<u64>) -> u64 {
        self.touched(pages).count() as u64
    }

    /// Reads these pages of the file. `seed` is of the random order.
    ///
    /// # Errors
    ///
    /// If the sum of what was read is wrong.
    pub fn read(self, file: &impl Mapped, pages: Range<u64>, seed: u64) -> Result<(), LabError> {
        let mut found = 0u64;
        match self {
            Pattern::Seq => {
                for page in pages.clone() {
                    found = found.wrapping_add(file.sum_page(page)?);
                }
            }
            Pattern::Random => {
                let first = pages.start * PAGE_WORDS;
                for index in Shuffled::new((pages.end - pages.start) * PAGE_WORDS, seed) {
                    found = found.wrapping_add(file.word(first + index)?);
                }
            }
            Pattern::Sparse => {
                for page in self.touched(pages.clone()) {
                    found = found.wrapping_add(file.word(page * PAGE_WORDS)?);
                }
            }
        }
        let wanted = self.touched(pages.clone()).map(mark_of).fold(0, u64::wrapping_add);
        if found == wanted {
            return Ok(());
        }
        let why = format!("the words add up to {found}, should be {wanted}");
        Err(LabError::subsystem(format!("reading pages {pages:?} of the file"), why))
    }
}

/// `0..nr` in an order that looks random, reckoned without memory: a bijection of a power of two, applied
/// again until it leads below `nr`.
struct Shuffled {
    nr: u64,
    mask: u64,
    shift: u32,
    add: u64,
    next: u64,
}

impl Shuffled {
    fn new(nr: u64, seed: u64) -> Shuffled {
        let nr_bits = nr.max(2).next_power_of_two().ilog2();
        let add = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        Shuffled { nr, mask: (1 << nr_bits) - 1, shift: nr_bits.div_ceil(2), add, next: 0 }
    }
    /// Each step can be undone.
    fn mixed(&self, from: u64) -> u64 {
        let mut x = from.wrapping_add(self.add) & self.mask;
        x ^= x >> self.shift;
        x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9) & self.mask;
        x ^= x >> self.shift;
        x = x.wrapping_mul(0x94d0_49bb_1331_11eb) & self.mask;
        x ^ x >> self.shift
    }
}

impl Iterator for Shuffled {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        if self.next == self.nr {
            return None;
        }
        let mut x = self.mixed(self.next);
        while x >= self.nr {
            x = self.mixed(x);
        }
        self.next += 1;
        Some(x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// A file of some pages that notes what is read, and forgets one page.
    struct File {
        read: RefCell<Vec<u64>>,
        forgets: Option<u64>,
    }

    impl Mapped for File {
        fn sum_page(&self, page: u64) -> Result<u64, LabError> {
            (0..PAGE_WORDS).map(|i| self.word(page * PAGE_WORDS + i)).sum()
        }
        fn word(&self, index: u64) -> Result<u64, LabError> {
            self.read.borrow_mut().push(index);
            let (page, word) = (index / PAGE_WORDS, index % PAGE_WORDS);
            Ok(if word > 0 || self.forgets == Some(page) { 0 } else { mark_of(page) })
        }
    }

    fn read(pattern: Pattern, pages: Range<u64>) -> Vec<u64> {
        let file = File { read: RefCell::default(), forgets: None };
        pattern.read(&file, pages, 3).unwrap();
        file.read.into_inner()
    }

    #[test]
    fn every_word_once_in_order_or_at_random() {
        let all: Vec<u64> = (7 * PAGE_WORDS..12 * PAGE_WORDS).collect();
        assert_eq!(read(Pattern::Seq, 7..12), all);
        let mut random = read(Pattern::Random, 7..12);
        let beside = random.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
        assert!(beside < 20, "{beside} words right after the one before them");
        random.sort_unstable();
        assert_eq!(random, all);
    }

    #[test]
    fn one_word_in_each_table() {
        assert_eq!(read(Pattern::Sparse, 0..1025), [0, 512 * PAGE_WORDS, 1024 * PAGE_WORDS]);
        assert_eq!((Pattern::Sparse.nr_touched(1..1024), Pattern::Seq.nr_touched(1..1024)), (1, 1023));
    }

    #[test]
    fn threads_have_orders_of_their_own() {
        let first = |seed| Shuffled::new(1000, seed).take(8).collect::<Vec<_>>();
        assert_ne!(first(0), first(1));
        assert_eq!(Shuffled::new(1, 5).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn a_page_that_is_not_the_files_is_an_error() {
        for pattern in [Pattern::Seq, Pattern::Random, Pattern::Sparse] {
            let file = File { read: RefCell::default(), forgets: Some(512) };
            assert!(pattern.read(&file, 510..514, 1).unwrap_err().to_string().contains("should be"));
        }
    }
}
