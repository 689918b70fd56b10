//! The program, the same over the memory of either system.
//!
//! One of the lab's files with `unsafe`:
//! - **L8** a [`Piece`] is memory that one thread has for itself as long as it
//!   keeps the piece: part of a `Mapping`, or frames of an arena that a private
//!   mapping of the only address space names, with no call into the core
//!   meanwhile but faults on other pages.

use super::plan::{NR_ROWS, Row};
use crate::error::LabError;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Bytes in a page of either system.
pub const PAGE_BYTES: u64 = 4096;
/// The most that is set at once: one huge page.
pub const PIECE_BYTES: u64 = 2 << 20;

/// Adjacent bytes.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// The first.
    pub at: *mut u8,
    /// How many, a multiple of a page.
    pub len: u64,
}

impl Piece {
    /// Whether the other one begins where this one ends, and both together are not
    /// too long.
    pub fn is_before(&self, other: &Piece) -> bool {
        self.at.wrapping_add(self.len as usize) == other.at && self.len + other.len <= PIECE_BYTES
    }
}

/// One run of the program.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Of each row.
    pub times: [Duration; NR_ROWS],
    /// Which part of the memory was mapped by huge pages.
    pub huge_share: f64,
}

/// What the memory is set to; not zero, so that it is seen to be the program's.
const FILL: u8 = 0x5a;
/// What the strides write.
const MARK: u8 = 0xa5;

/// What a memset does with these bytes.
#[inline]
pub fn fill(piece: Piece) {
    // Opaque, or the compiler may join the calls or leave them out.
    let at = black_box(piece.at);
    // SAFETY: L8.
    unsafe { std::ptr::write_bytes(at, FILL, piece.len as usize) };
}

fn stride(piece: Piece) {
    for page in 0..piece.len / PAGE_BYTES {
        // SAFETY: L8: inside the piece.
        unsafe { piece.at.add((page * PAGE_BYTES) as usize).write_volatile(MARK) };
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// The rows after the first, over memory that is mapped: second and third memset,
/// both strides.
pub fn later_rows(pieces: &[Piece]) -> [Duration; NR_ROWS - 1] {
    let memset = || timed(|| pieces.iter().copied().for_each(fill));
    let strides = || timed(|| pieces.iter().copied().for_each(stride));
    [memset(), memset(), strides(), strides()]
}

/// All rows of a run.
pub fn rows_of(first: Duration, later: [Duration; NR_ROWS - 1]) -> [Duration; NR_ROWS] {
    std::array::from_fn(|i| if Row::ALL[i] == Row::Fresh { first } else { later[i - 1] })
}

/// That every page has what the program wrote last.
pub fn verify(pieces: &[Piece]) -> Result<(), LabError> {
    for piece in pieces {
        for page in 0..piece.len / PAGE_BYTES {
            // SAFETY: L8: inside the piece.
            let bytes = [0, 1, PAGE_BYTES - 1]
                .map(|i| unsafe { piece.at.add((page * PAGE_BYTES + i) as usize).read_volatile() });
            if bytes != [MARK, FILL, FILL] {
                let what = format!("page {page} of a piece of {} bytes", piece.len);
                return Err(LabError::subsystem(what, format!("has {bytes:x?} after the program")));
            }
        }
    }
    Ok(())
}
