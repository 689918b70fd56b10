//! Where folios of objects begin in a block: see `object_folio.rs`.
//!
//! Locks on entry: none.

use super::runs::BLOCK_WORDS;
use crate::sync::{Ordering, Word};

/// Which frames of a block are tails, a bit each.
#[repr(transparent)]
pub(crate) struct Tails([Word; BLOCK_WORDS]);

impl Tails {
    pub(super) const fn none() -> Tails {
        Tails([const { Word::new(0) }; BLOCK_WORDS])
    }

    pub(super) fn is_none(&self) -> bool {
        self.0.iter().all(|word| word.get() == 0)
    }

    /// Offset of the head of the frame at that offset; `None` where the block begins within a folio.
    pub(super) fn head(&self, offset: u64) -> Option<u64> {
        let mut w = (offset / 64) as usize;
        let mut heads = !self.0[w].load(Ordering::Relaxed) & (u64::MAX >> (63 - offset % 64));
        while heads == 0 && w > 0 {
            w -= 1;
            heads = !self.0[w].load(Ordering::Relaxed);
        }
        heads.checked_ilog2().map(|bit| w as u64 * 64 + u64::from(bit))
    }

    /// The tails of the folio of `nr` frames at that offset, word by word.
    fn of_folio(&self, offset: u64, nr: u64) -> impl Iterator<Item = (&Word, u64)> {
        let mask = (!0u64 >> (64 - nr.min(64))) << (offset % 64);
        let words = (offset / 64) as usize..(offset + nr).div_ceil(64) as usize;
        let first = words.start;
        let head = 1 << (offset % 64);
        words.map(move |w| (&self.0[w], if w == first { mask & !head } else { mask }))
    }

    pub(super) fn set(&self, offset: u64, nr: u64) {
        // Relaxed: a reader of the slot or entry that names the folio sees it, because that store
        // releases.
        self.of_folio(offset, nr).for_each(|(word, mask)| _ = word.fetch_or(mask, Ordering::Relaxed));
    }

    pub(super) fn clear(&self, offset: u64, nr: u64) {
        self.of_folio(offset, nr).for_each(|(word, mask)| _ = word.fetch_and(!mask, Ordering::Relaxed));
    }

    /// Makes all frames tails, of a folio that begins in another block. The caller owns the block
    /// alone.
    pub(super) fn set_all(&self) {
        self.0.iter().for_each(|word| word.store(!0, Ordering::Relaxed));
    }

    /// Makes no frame a tail any more.
    pub(super) fn clear_all(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    pub(super) fn is_tail(&self, offset: u64) -> bool {
        self.0[(offset / 64) as usize].load(Ordering::Relaxed) & 1 << (offset % 64) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tails() -> Tails {
        Tails(core::array::from_fn(|_| Word::new(0)))
    }

    #[test]
    fn every_frame_finds_its_head() {
        let tails = tails();
        // Folios of orders 0 to 8 side by side, each aligned.
        let folios: [(u64, u64); 10] =
            [(0, 1), (1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 32), (64, 64), (128, 128), (256, 256)];
        folios.iter().for_each(|(at, nr)| tails.set(*at, *nr));
        for (at, nr) in folios {
            (at..at + nr).for_each(|frame| assert_eq!(tails.head(frame), Some(at), "{frame}"));
            (at..at + nr).for_each(|frame| assert_eq!(tails.is_tail(frame), frame != at));
        }
        for (i, (at, nr)) in folios.into_iter().enumerate() {
            tails.clear(at, nr);
            (at..at + nr).for_each(|frame| assert_eq!(tails.head(frame), Some(frame)));
            folios[i + 1..].iter().for_each(|(at, nr)| assert_eq!(tails.head(at + nr - 1), Some(*at)));
        }
        tails.set(0, 512);
        assert_eq!([0, 1, 63, 64, 300, 511].map(|frame| tails.head(frame)), [Some(0); 6]);
        tails.set_all();
        assert_eq!([0, 1, 63, 64, 300, 511].map(|frame| tails.head(frame)), [None; 6]);
        tails.clear_all();
        assert_eq!([0, 1, 511].map(|frame| tails.head(frame)), [Some(0), Some(1), Some(511)]);
    }
}
