//! The program on the host's Linux.

use super::plan::Thp;
use super::program::{Sample, later_rows, rows_of, verify};
use crate::error::LabError;
use crate::os::{self, HostPages, Mapping};
use crate::stage::{PAGE_BYTES, PIECE_BYTES, Piece, fill};

/// Runs it on memory that the host has had in its hands just before: a frame that
/// the hypervisor has taken back costs several microseconds, which is not Linux's
/// doing.
pub fn run(thp: Thp, nr_pages: u64) -> Result<Sample, LabError> {
    let pages = match thp {
        Thp::Off => HostPages::Small,
        Thp::On | Thp::OnZeroed => HostPages::Huge,
        Thp::Hugetlb => HostPages::Hugetlb,
    };
    let fresh = || Mapping::aligned((nr_pages * PAGE_BYTES) as usize, pages);
    let warm = fresh()?;
    pieces(&warm, nr_pages).into_iter().for_each(fill);
    drop(warm);

    let mapping = fresh()?;
    let pieces = pieces(&mapping, nr_pages);
    let (first, ()) = os::cpu_time_of(|| pieces.iter().copied().for_each(fill));
    let huge_bytes = if thp == Thp::Hugetlb { nr_pages * PAGE_BYTES } else { mapping.huge_bytes() };
    let huge_share = huge_bytes as f64 / (nr_pages * PAGE_BYTES) as f64;
    let times = rows_of(first, later_rows(&pieces));
    verify(&pieces)?;
    Ok(Sample { times, huge_share })
}

fn pieces(mapping: &Mapping, nr_pages: u64) -> Vec<Piece> {
    let len = nr_pages * PAGE_BYTES;
    let piece = |at: u64| Piece { at: mapping.base().wrapping_add(at as usize), len: PIECE_BYTES.min(len - at) };
    (0..len).step_by(PIECE_BYTES as usize).map(piece).collect()
}
