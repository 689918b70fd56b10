//! Bytes to arguments. Each argument is one byte, so that a byte that a fuzzer changes mostly changes one step. Bytes that
//! are missing are zeroes.

use crate::op::PAGE;

/// Where steps map memory: at a multiple of 1 GiB.
pub(super) const BASE: u64 = 0x10_0000_0000;
/// Bytes of a huge page.
pub(super) const HUGE: u64 = 512 * PAGE;
/// Huge pages that places are in.
pub(super) const NR_HUGE: u64 = 4;

/// The bytes that are not read yet.
pub(super) struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let [first, rest @ ..] = self.0 else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        u64::from(self.byte()) % end
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }

    /// The start of a page: near either end of one of the huge pages, so that ranges meet and cross borders.
    pub(super) fn place(&mut self) -> u64 {
        let byte = u64::from(self.byte());
        let near = byte % 64;
        let page = if near < 40 { near } else { near + 512 - 64 };
        BASE + byte / 64 * HUGE + page * PAGE
    }

    /// The start of a huge page.
    pub(super) fn huge_place(&mut self) -> u64 {
        BASE + self.below(NR_HUGE) * HUGE
    }

    /// A place, a byte of a page, or an address that no call takes.
    pub(super) fn any_place(&mut self) -> u64 {
        match self.byte() {
            0..224 => self.place(),
            224..248 => self.place() + self.below(256) * 16 + 7,
            odd => [0, PAGE, u64::MAX, 1 << 63, (1 << 47) - PAGE, 1 << 47, BASE + NR_HUGE * HUGE, BASE - PAGE]
                [usize::from(odd - 248)],
        }
    }

    /// Bytes: mostly a few pages, some huge ones, or a length that few calls take.
    pub(super) fn length(&mut self) -> u64 {
        match u64::from(self.byte()) {
            pages @ 0..160 => (1 + pages % 40) * PAGE,
            huge @ 160..224 => (1 + huge % 3) * HUGE,
            part @ 224..240 => HUGE - (part - 223) * PAGE,
            240..248 => NR_HUGE * HUGE,
            odd => [0, 1, PAGE - 1, PAGE + 1, u64::MAX, 1 << 46, 1 << 47, 3 * HUGE + 1][(odd - 248) as usize],
        }
    }

    /// The first page of a part of an object.
    pub(super) fn page(&mut self) -> u64 {
        let byte = u64::from(self.byte());
        if byte < 128 { byte % 32 } else { byte / 2 * 16 }
    }
}
