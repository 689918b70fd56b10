//! Flushes that are posted to a CPU and not yet served ([`Mode::Interrupt`](crate::Mode)).
//!
//! Posters and the owner hold the lock briefly and wait for nothing under it. Each access
//! reads the flag once, without the lock.

use core::sync::atomic::{AtomicBool, Ordering::*};
use softfault::addr::PageRange;
use softfault::machine::Flush;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Capacity in requests; on overflow the owner drops all its translations.
const NR_POSTS: usize = 16;

#[derive(Default)]
pub(crate) struct Posts {
    waiting: Vec<(u64, Flush)>,
    overflow: bool,
    served: u64,
    overflows: u64,
}

impl Posts {
    /// Whether serving them drops a translation of `pages`.
    pub(crate) fn take(&self, space_id: u64, pages: &PageRange) -> bool {
        let takes = |what: &Flush| match what {
            Flush::Pages(range) => range.overlaps(pages),
            // The space, or what is not known here.
            _ => true,
        };
        self.overflow || self.waiting.iter().any(|(id, what)| *id == space_id && takes(what))
    }
}

/// The requests to one CPU.
#[derive(Default)]
pub(crate) struct Mailbox {
    any: AtomicBool,
    posts: Mutex<Posts>,
}

impl Mailbox {
    fn posts(&self) -> MutexGuard<'_, Posts> {
        // A panic while it was held leaves the list whole: each step is one push.
        self.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether requests are waiting. The heavy barrier of E5 orders the load.
    #[inline(always)]
    pub(crate) fn has_post(&self) -> bool {
        self.any.load(Acquire)
    }

    /// The waiting requests; none is served while the result lives. `None` means that all
    /// requests made before the call are served, since the flag is cleared last.
    pub(crate) fn waiting(&self) -> Option<MutexGuard<'_, Posts>> {
        self.has_post().then(|| self.posts())
    }

    /// Asks the owner to flush before its next access.
    pub(crate) fn post(&self, space_id: u64, what: Flush) {
        let mut posts = self.posts();
        if posts.waiting.len() < NR_POSTS {
            posts.waiting.push((space_id, what));
        } else {
            posts.overflow = true;
        }
        self.any.store(true, Release);
    }

    /// Passes all requests to `flush`, which drops their translations; `None` is everything.
    /// The owner calls it inside an access.
    pub(crate) fn serve(&self, flush: impl Fn(Option<(u64, Flush)>)) {
        let mut posts = self.posts();
        if posts.overflow {
            flush(None);
            posts.overflows += 1;
        } else {
            posts.waiting.iter().for_each(|&posted| flush(Some(posted)));
        }
        posts.served += posts.waiting.len() as u64;
        posts.waiting.clear();
        posts.overflow = false;
        // Last, and under the lock: a CPU that sees the flag down sees clean entries.
        self.any.store(false, Release);
    }

    /// Requests served, and overflows.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let posts = self.posts();
        (posts.served, posts.overflows)
    }
}

#[cfg(test)]
mod tests;
