//! Safety nets for tests that wait for other threads: one that hangs says so and ends.
//!
//! No test asserts a time. These limits are far above what a loaded machine takes, and no result depends on them. The testkit has this
//! file, too, by path.
#![allow(dead_code)] // each crate uses its part

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any wait for another thread.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// Longer than a whole test.
const LONGEST: Duration = Duration::from_secs(900);

/// A wait that is about to take for ever.
pub struct Patience {
    what: &'static str,
    begun: Instant,
}

impl Patience {
    /// `what` goes wrong where it ends.
    pub fn new(what: &'static str) -> Patience {
        Patience { what, begun: Instant::now() }
    }

    /// Called in each turn of the wait.
    ///
    /// # Panics
    ///
    /// After [`PATIENCE`].
    pub fn check(&self) {
        assert!(self.begun.elapsed() < PATIENCE, "{}: no end after {PATIENCE:?}", self.what);
    }
}

/// Ends the process if it is not dropped in time. For waits in which a thread cannot look, as in a condition variable or a barrier.
pub struct Watchdog {
    _ended: Sender<()>,
}

impl Watchdog {
    /// `what` goes wrong where it ends.
    pub fn new(what: &'static str) -> Watchdog {
        Watchdog::within(LONGEST, move || {
            eprintln!("{what}: no end after {LONGEST:?}");
            std::process::abort();
        })
    }

    fn within(limit: Duration, bark: impl FnOnce() + Send + 'static) -> Watchdog {
        let (ended, end) = channel::<()>();
        thread::spawn(move || {
            if end.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                bark();
            }
        });
        Watchdog { _ended: ended }
    }
}

/// Lets other threads run, so that what must not happen now has time to happen.
pub fn let_others_run() {
    (0..1000).for_each(|_| thread::yield_now());
}

#[cfg(test)]
mod tests {
    use super::Watchdog;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_watchdog_barks_unless_it_is_dropped() {
        let (sender, barked) = channel();
        let again = sender.clone();
        let watchdog = Watchdog::within(Duration::ZERO, move || sender.send("late").unwrap());
        assert_eq!(barked.recv(), Ok("late"));
        drop(watchdog);
        drop(Watchdog::within(Duration::MAX, move || again.send("early").unwrap()));
        assert!(barked.recv().is_err(), "its thread has ended and said nothing");
    }
}
