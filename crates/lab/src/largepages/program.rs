//! The program, the same over the memory of either system.
//!
//! One of the lab's files with `unsafe` (L8 is in `stage.rs`).

use super::plan::{NR_ROWS, Row};
use crate::error::LabError;
use crate::os;
use crate::stage::{FILL, PAGE_BYTES, Piece, fill};
use std::time::Duration;

/// One run of the program.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Of each row.
    pub times: [Duration; NR_ROWS],
    /// Which part of the memory was mapped by huge pages.
    pub huge_share: f64,
}

/// The byte that the strides write.
const MARK: u8 = 0xa5;

fn stride(piece: Piece) {
    for page in 0..piece.len / PAGE_BYTES {
        // SAFETY: L8: inside the piece.
        unsafe { piece.at.add((page * PAGE_BYTES) as usize).write_volatile(MARK) };
    }
}

/// The rows after the first, over memory that is mapped: second and third memset,
/// both strides.
pub fn later_rows(pieces: &[Piece]) -> [Duration; NR_ROWS - 1] {
    let memset = || os::cpu_time_of(|| pieces.iter().copied().for_each(fill)).0;
    let strides = || os::cpu_time_of(|| pieces.iter().copied().for_each(stride)).0;
    [memset(), memset(), strides(), strides()]
}

/// All rows of a run.
pub fn rows_of(first: Duration, later: [Duration; NR_ROWS - 1]) -> [Duration; NR_ROWS] {
    std::array::from_fn(|i| if Row::ALL[i] == Row::Fresh { first } else { later[i - 1] })
}

/// Checks that every page has the last bytes that the program wrote.
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
