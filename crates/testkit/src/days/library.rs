//! Libraries that are files: each page says which one it is; some reads fail.

use crate::op::PAGE;
use crate::random::Random;
use softfault::{FillError, Filling};
use softfault_host::{HostFile, HostFill};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Of 100 reads so many fail.
const FAILING_PERCENT: u64 = 5;

/// Returns the first word of a page.
pub(super) fn word_of(page: u64) -> u64 {
    0x11b_0000_0000 + page
}

#[derive(Default)]
pub(super) struct Library {
    nr_reads: AtomicU64,
}

impl HostFile for Library {
    fn fill(&self, mut fill: HostFill<'_>) -> Filling {
        if Random::new(self.nr_reads.fetch_add(1, Relaxed)).chance(FAILING_PERCENT) {
            return fill.end(Err(FillError));
        }
        let first = fill.offset_bytes() / PAGE;
        for (page, bytes) in (first..).zip(fill.bytes().chunks_mut(PAGE as usize)) {
            bytes.fill(0);
            bytes[..8].copy_from_slice(&word_of(page).to_le_bytes());
        }
        fill.end(Ok(()))
    }
}
