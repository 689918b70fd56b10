//! One large page as plain memory: made cold, cleared by somebody, touched.
//!
//! One of the lab's files with `unsafe` (L2 is in `os.rs`): the bytes are reached
//! through raw pointers only, by one thread at a time.

use super::{HUGE_BYTES, NR_SUBPAGES, SUBPAGE_BYTES};
use std::marker::PhantomData;

const LINE_BYTES: usize = 64;
/// Lines of a sub-page.
pub const NR_LINES: usize = SUBPAGE_BYTES as usize / LINE_BYTES;
/// The first word of each sub-page of a page that is not clear.
const MARK: u64 = 0x5a5a_5a5a_5a5a_5a5a;

/// 2 MiB that live as long as what they are borrowed from.
#[derive(Clone, Copy)]
pub struct Span<'a> {
    base: *mut u8,
    owner: PhantomData<&'a ()>,
}

impl<'a> Span<'a> {
    /// # Safety
    ///
    /// L2: [`HUGE_BYTES`] from `base` are mapped, readable and writable for `'a`,
    /// and nobody has a reference into them or writes to them meanwhile but the
    /// owner, on this thread.
    pub unsafe fn new(base: *mut u8) -> Span<'a> {
        Span { base, owner: PhantomData }
    }

    fn at(self, subpage: u64, offset: usize) -> *mut u8 {
        assert!(subpage < NR_SUBPAGES && offset < SUBPAGE_BYTES as usize);
        self.base.wrapping_add((subpage * SUBPAGE_BYTES) as usize + offset)
    }

    /// Writes a mark to each sub-page.
    pub fn soil(self) {
        for subpage in 0..NR_SUBPAGES {
            // SAFETY: L2: inside, as `at` has checked; aligned.
            unsafe { self.at(subpage, 0).cast::<u64>().write_volatile(MARK) };
        }
    }

    /// Sends all of it to memory and drops it from the caches. Where there is no
    /// instruction for that it stays where it is; then it is cold only because
    /// other pages were touched since.
    pub fn evict(self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: L2: the lines are inside, and their content stays.
        unsafe {
            use core::arch::x86_64::{_mm_clflush, _mm_mfence};
            (0..HUGE_BYTES as usize).step_by(LINE_BYTES).for_each(|line| _mm_clflush(self.base.add(line)));
            _mm_mfence();
        }
    }

    /// The store that faults: a zero, so that the page stays clear.
    pub fn touch(self, subpage: u64) {
        // SAFETY: L2: inside, as `at` has checked.
        unsafe { self.at(subpage, 0).write_volatile(0) };
    }

    /// Loads from every line of the sub-page in the order of `lines`, each load
    /// waiting for the one before.
    pub fn load(self, subpage: u64, lines: &[usize]) {
        let mut carried = 0;
        for line in lines {
            // SAFETY: L2: inside, as `at` has checked: what is carried is 0 in a
            // clear page and below a line's length in any.
            carried = usize::from(unsafe { self.at(subpage, line * LINE_BYTES + carried).read_volatile() }) & 63;
        }
        std::hint::black_box(carried);
    }

    /// Writes each word in turn, as a program does that fills its memory.
    pub fn write_all(self) {
        let words = self.base.cast::<u64>();
        for i in 0..HUGE_BYTES as usize / size_of::<u64>() {
            // SAFETY: L2: inside; aligned.
            unsafe { words.add(i).write_volatile(i as u64) };
        }
    }

    /// Whether every word is zero.
    pub fn is_clear(self) -> bool {
        let words = self.base.cast::<u64>();
        // SAFETY: L2: inside; aligned.
        (0..HUGE_BYTES as usize / size_of::<u64>()).all(|i| unsafe { words.add(i).read_volatile() } == 0)
    }
}
