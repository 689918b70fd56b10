//! The program's stores to a page after its fault.
//!
//! One of the lab's files with `unsafe`:
//! - **L10** only this thread uses the page: part of a host mapping, or the frames of an
//!   entry whose page no other thread touches and no call removes before the store ends.

use crate::bench::Frames;
use clap::ValueEnum;
use std::hint::black_box;

/// The bytes that are written, and so the content of a page afterwards.
pub const BYTE: u8 = 1;

/// How much of a page its first touch writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Write {
    /// Nothing on our side: the fault alone
    None,
    /// One byte, the page's first
    One,
    /// The whole page
    All,
}

impl Write {
    /// As typed, or what fits the frames: beside frames that are zero the software alone
    /// is of interest.
    pub fn or_default(typed: Option<Write>, frames: Frames) -> Write {
        typed.unwrap_or(if frames.are_zero() { Write::None } else { Write::One })
    }

    /// The word in output.
    pub fn name(self) -> &'static str {
        match self {
            Write::None => "none",
            Write::One => "one",
            Write::All => "all",
        }
    }

    /// Writes to the page of `nr_bytes` at `page`.
    ///
    /// # Safety
    ///
    /// L10: the page is mapped and writable, and this thread's alone.
    #[inline(always)]
    pub unsafe fn store(self, page: *mut u8, nr_bytes: u64) {
        match self {
            Write::None => {}
            // SAFETY: L10.
            Write::One => unsafe { page.write_volatile(BYTE) },
            // SAFETY: L10. Opaque, or the compiler joins the calls.
            Write::All => unsafe { std::ptr::write_bytes(black_box(page), BYTE, nr_bytes as usize) },
        }
    }

    /// The first and the last word of a page of 4 KiB that was zero before, the first
    /// one of what the fault mapped or not.
    pub fn first_and_last(self, is_first: bool) -> (u64, u64) {
        let all = u64::from_ne_bytes([BYTE; 8]);
        match self {
            Write::One if is_first => (u64::from(BYTE).to_le(), 0),
            Write::None | Write::One => (0, 0),
            Write::All => (all, all),
        }
    }
}
