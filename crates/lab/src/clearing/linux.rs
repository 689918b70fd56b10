//! Large pages of the host's Linux: fresh memory, aligned, advised to be huge.
//!
//! One of the lab's files with `unsafe` (L1 and L2 are in `os.rs`):
//! - **L9** a process that forks to share its memory has one thread, and the child
//!   waits on a pipe and exits.

use super::HUGE_BYTES;
use super::span::Span;
use crate::error::LabError;
use crate::os::Mapping;
use std::io::Read;
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

/// Notes on standard error that a host gives no huge pages, so that there is no row of Linux. Gives what it was told.
pub fn or_note(gives_huge_pages: bool) -> bool {
    if !gives_huge_pages {
        eprintln!("softfault: no row of Linux: it gives no huge pages (/sys/kernel/mm/transparent_hugepage/enabled)");
    }
    gives_huge_pages
}

/// Does `work` while a child has all memory of this process too. Called by
/// processes of one thread.
pub fn while_shared<T>(work: impl FnOnce() -> T) -> Result<T, LabError> {
    let (mut reader, writer) = std::io::pipe().map_err(|e| LabError::host("pipe", e))?;
    // SAFETY: L9: the child waits for the end of the pipe and exits.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(LabError::host("fork", std::io::Error::last_os_error())),
        0 => {
            drop(writer);
            // Whatever it says, the parent is done or gone.
            let _ = reader.read(&mut [0]);
            // SAFETY: L9: nothing of the parent's is run on the way out.
            unsafe { libc::_exit(0) }
        }
        child => {
            let done = work();
            drop(writer);
            // SAFETY: L1: our own child; its status is not asked for.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            Ok(done)
        }
    }
}

/// Bytes of this process that the host maps in large pages.
pub fn anon_huge_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find(|line| line.starts_with("AnonHugePages:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// Whether the host gives large pages to programs that ask for them: otherwise its rows
/// would time something else.
pub fn gives_huge_pages() -> Result<bool, LabError> {
    const NR: u64 = 8;
    let fresh = Fresh::new(NR)?;
    let before = anon_huge_bytes();
    (0..NR).for_each(|i| fresh.span(i).touch(0));
    let grown = anon_huge_bytes().zip(before).map(|(after, before)| after.saturating_sub(before));
    Ok(grown.is_some_and(|bytes| bytes >= NR * HUGE_BYTES))
}
