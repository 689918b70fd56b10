//! Parts of the window, for CPUs that do sequences at once.

use super::Limits;
use crate::op::{PAGE, WINDOW};

/// Pages from one part to the next: two parts share a leaf table.
const STRIDE: u64 = 256;
/// The same where huge pages are to find room; every other edge is in the middle
/// of a leaf table.
const WIDE_STRIDE: u64 = 1280;
/// Pages between parts that nobody maps.
const GAP: u64 = 16;

/// Returns the limits of the sequence that CPU `i` does in its own part of the window. The knobs of huge pages are everybody's,
/// so one of the CPUs sets them.
pub fn part(i: u64, nr_ops: usize, wide: bool) -> Limits {
    let stride = if wide { WIDE_STRIDE } else { STRIDE };
    let first = WINDOW / PAGE + i * stride;
    let pages = (first, stride - GAP);
    Limits { nr_ops, nr_programs: 3, pages, heap: i == 0, grows: false, knobs: i == 0, ..Limits::default() }
}
