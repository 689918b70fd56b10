//! Adjacent entries of a leaf table for adjacent frames. The first word is encoded; each of the others is that before it plus
//! [`Format::NEXT_FRAME`], so that a window costs a few instructions a page, whatever the format.
//!
//! Locks on entry: a section, in which the frames are the caller's to map.

use super::format::{Entry, Format, Leaf};
use crate::sync::{Ordering, Word};

/// Maps the frames from that of `first` on, each in its entry if that is none; how many. As `Slot::fill`.
#[inline(always)]
pub(crate) fn fill<F: Format>(entries: &[Word], first: Leaf) -> u64 {
    let none = F::encode(Entry::None, 0);
    let fill = |(entry, word): (&Word, u64)| {
        entry.load(Ordering::Relaxed) == none
            && entry.compare_exchange(none, word, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    entries.iter().zip(words::<F>(first)).map(|each| u64::from(fill(each))).sum()
}

/// The same by plain stores, in a table that nobody else sees. As `Slot::set_private`.
#[inline(always)]
pub(crate) fn set_private<F: Format>(entries: &[Word], first: Leaf) -> u64 {
    entries.iter().zip(words::<F>(first)).for_each(|(entry, word)| entry.store(word, Ordering::Release));
    entries.len() as u64
}

/// The words of the leaf, and of those with the next frames.
#[inline(always)]
fn words<F: Format>(first: Leaf) -> impl Iterator<Item = u64> {
    let word = F::encode(Entry::Leaf(first), 0);
    (0u64..).map(move |i| word.wrapping_add(i.wrapping_mul(F::NEXT_FRAME)))
}

#[cfg(test)]
mod tests {
    use super::super::entry::Slot;
    use super::super::format::{Sv39, X86_64};
    use super::*;
    use crate::addr::{Pfn, Rights};

    fn leaf(pfn: u32) -> Leaf {
        Leaf { pfn: Pfn(pfn), rights: Rights::READ | Rights::EXEC, accessed: false, dirty: false }
    }

    fn entries_have_the_words_of<F: Format>() {
        let none = || -> [Word; 16] { core::array::from_fn(|_| Word::new(0)) };
        let (by_swaps, by_stores) = (none(), none());
        // The frame number carries into its higher bits.
        let first = 0xfff8;
        assert_eq!([fill::<F>(&by_swaps, leaf(first)), set_private::<F>(&by_stores, leaf(first))], [16; 2]);
        for (i, words) in by_swaps.iter().zip(&by_stores).enumerate() {
            let leaf = Entry::Leaf(leaf(first + i as u32));
            let of = |word| Slot::<F>::new(word, 0).observe().entry;
            assert_eq!([of(words.0), of(words.1)], [leaf; 2], "entry {i}");
        }
    }

    #[test]
    fn entries_have_the_words_that_the_format_says() {
        entries_have_the_words_of::<X86_64>();
        entries_have_the_words_of::<Sv39>();
    }

    #[test]
    fn an_entry_that_is_not_none_stays_and_is_not_counted() {
        let entries: [Word; 4] = core::array::from_fn(|_| Word::new(0));
        let other = X86_64::encode(Entry::Guard, 0);
        entries[2].store(other, Ordering::Relaxed);
        assert_eq!(fill::<X86_64>(&entries, leaf(5)), 3);
        let words = entries.each_ref().map(|entry| entry.load(Ordering::Relaxed));
        let of = |pfn| X86_64::encode(Entry::Leaf(leaf(pfn)), 0);
        assert_eq!(words, [of(5), of(6), other, of(8)]);
    }
}
