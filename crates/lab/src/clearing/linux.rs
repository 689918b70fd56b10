//! Large pages of the host's Linux: fresh memory, aligned, advised to be huge.
//!
//! One of the lab's files with `unsafe` (L1 and L2 are in `os.rs`).

use super::HUGE_BYTES;
use super::span::Span;
use crate::error::LabError;
use crate::os::Mapping;
use std::marker::PhantomData;

/// Memory that nobody has touched, in which each first touch gives 2 MiB if the
/// host has them.
pub struct Fresh {
    mapping: Mapping,
    nr: u64,
    /// Spans are raw: one thread has them all.
    one_thread: PhantomData<*const ()>,
}

impl Fresh {
    /// `nr` large pages.
    pub fn new(nr: u64) -> Result<Fresh, LabError> {
        // One more, since the host places it where it likes.
        let fresh = Fresh { mapping: Mapping::fresh(((nr + 1) * HUGE_BYTES) as usize)?, nr, one_thread: PhantomData };
        let (base, len) = (fresh.base(), (nr * HUGE_BYTES) as usize);
        // SAFETY: L1: the aligned part of the mapping.
        if unsafe { libc::madvise(base.cast(), len, libc::MADV_HUGEPAGE) } != 0 {
            return Err(LabError::host("madvise(MADV_HUGEPAGE)", std::io::Error::last_os_error()));
        }
        Ok(fresh)
    }

    fn base(&self) -> *mut u8 {
        let base = self.mapping.base();
        base.wrapping_add(base.addr().next_multiple_of(HUGE_BYTES as usize) - base.addr())
    }

    /// How many.
    pub fn nr(&self) -> u64 {
        self.nr
    }

    /// The bytes of the `i`th.
    pub fn span(&self, i: u64) -> Span<'_> {
        assert!(i < self.nr);
        // SAFETY: L2: inside the mapping, which lives as long as the borrow; only
        // the thread that has it touches it.
        unsafe { Span::new(self.base().wrapping_add((i * HUGE_BYTES) as usize)) }
    }
}

/// Bytes of this process that the host maps in large pages.
pub fn anon_huge_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find(|line| line.starts_with("AnonHugePages:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// Whether the host gives large pages to who asks for them: without, its rows
/// would time something else.
pub fn gives_huge_pages() -> Result<bool, LabError> {
    const NR: u64 = 8;
    let fresh = Fresh::new(NR)?;
    let before = anon_huge_bytes();
    (0..NR).for_each(|i| fresh.span(i).touch(0));
    let grown = anon_huge_bytes().zip(before).map(|(after, before)| after.saturating_sub(before));
    Ok(grown.is_some_and(|bytes| bytes >= NR * HUGE_BYTES))
}
