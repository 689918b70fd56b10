//! Per-CPU frame cache: up to 64 adjacent frames, as a base and a mask.
//!
//! The words are private to the CPU inside its section, or to a thief that has raised the CPU's
//! `attention` and waited for its section to end (I10). So taking a frame is a plain load and a
//! plain store.

use crate::addr::Pfn;
use crate::sync::Word;

/// Two words of per-CPU data.
#[repr(C)]
pub struct FrameCache {
    /// First frame of the 64; a multiple of 64.
    pub(crate) base: Word,
    /// Bit i: frame base + i is in the cache.
    pub(crate) mask: Word,
}

impl FrameCache {
    /// Takes the lowest frame.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<Pfn> {
        let mask = self.mask.get();
        if mask == 0 {
            return None;
        }
        self.mask.set(mask & (mask - 1));
        Some(Pfn(self.base.get() as u32 + mask.trailing_zeros()))
    }
    /// The frame that [`pop`](Self::pop) would give next, if any, so that its descriptor can be
    /// prefetched.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<Pfn> {
        let mask = self.mask.get();
        (mask != 0).then(|| Pfn(self.base.get() as u32 + mask.trailing_zeros()))
    }
    /// Puts a frame back; `false` if it is not one of the cache's 64.
    #[inline]
    pub(crate) fn put(&self, pfn: Pfn) -> bool {
        if u64::from(pfn.0) & !63 != self.base.get() {
            return false;
        }
        self.mask.set(self.mask.get() | 1 << (pfn.0 & 63));
        true
    }
    pub(crate) fn replace(&self, base: u64, mask: u64) -> (u64, u64) {
        let old = (self.base.get(), self.mask.get());
        self.base.set(base);
        self.mask.set(mask);
        old
    }
}
