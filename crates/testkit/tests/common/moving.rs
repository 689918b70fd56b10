//! For tests of pages that move under use: programs that count in them, and movers.

use super::{PAGE, Running, Space};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// A program that adds 1 to a word of each of `nr_pages` pages in each round, from 0 and alone. The
/// words are at `at` and a page apart. The next `nr_pages` pages may come and go: each gets its number
/// plus 1 stored, or the store is refused.
pub fn counts_up(at: u64, nr_pages: u64, rounds: &AtomicU64) -> impl Fn(&Running<'_>, &AtomicBool) + Sync {
    move |running, stop| {
        let mut round = 0;
        while !stop.load(SeqCst) {
            for page in 0..nr_pages {
                assert_eq!(running.read_u64(at + page * PAGE).unwrap(), round, "page {page}");
                running.write_u64(at + page * PAGE, round + 1).unwrap();
                let _ = running.write_u64(at + (nr_pages + page) * PAGE, page + 1);
            }
            round += 1;
            rounds.fetch_add(1, SeqCst);
        }
    }
}

/// Moves whatever is mapped in `nr_pages` pages from `at` on to other frames, and counts the moves.
pub fn moves_all<'a>(
    space: &'a Space<'a>,
    at: u64,
    nr_pages: u64,
    nr_moved: &'a AtomicU64,
) -> impl Fn(&Running<'_>, &AtomicBool) + Sync + 'a {
    move |_, stop| {
        while !stop.load(SeqCst) {
            for page in 0..nr_pages {
                if let Some(there) = space.translate_at_rest(at + page * PAGE) {
                    nr_moved.fetch_add(u64::from(space.vm().migrate_frame(there.pfn).is_ok()), SeqCst);
                }
            }
        }
    }
}
