//! Checks the order of the core's locks: which ones each CPU has when it waits for another.
//!
//! With debug assertions, as in tests, a wait that [`LockKind::may_take`] does not permit ends the process, also where nobody
//! would have waited in a circle this time. Without them nothing is noted.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use softfault::machine::LockKind;
use std::io::Write;

/// How many locks of each kind a CPU has. Only the CPU's thread writes it.
#[derive(Default)]
pub(crate) struct HeldLocks([AtomicU8; LockKind::ALL.len()]);

impl HeldLocks {
    /// The CPU is about to wait for such a lock.
    pub(crate) fn taking(&self, wanted: LockKind) {
        if let Some(held) = self.forbids(wanted) {
            out_of_order(held, wanted);
        }
        self.0[wanted as usize].fetch_add(1, Relaxed);
    }

    /// The CPU has released one.
    pub(crate) fn released(&self, kind: LockKind) {
        let before = self.0[kind as usize].fetch_sub(1, Relaxed);
        assert!(before > 0, "{kind:?} is released by a CPU that does not have it");
    }

    /// The lock that the CPU has, and under which it may not wait for that one.
    fn forbids(&self, wanted: LockKind) -> Option<LockKind> {
        let has = |kind: &LockKind| self.0[*kind as usize].load(Relaxed) > 0;
        LockKind::ALL.into_iter().filter(has).find(|held| !held.may_take(wanted))
    }
}
#[cold]
#[inline(never)]
fn out_of_order(held: LockKind, wanted: LockKind) -> ! {
    let trace = std::backtrace::Backtrace::force_capture();
    let text = format!("{trace}\na CPU that has the lock {held:?} waits for {wanted:?}: see `LockKind::may_take`\n");
    // Past the test harness, which keeps what is printed until the test ends.
    let _ = std::io::stderr().write_all(text.as_bytes());
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_forbidden_under_one_that_comes_later() {
        let cpu = HeldLocks::default();
        cpu.taking(LockKind::Writer);
        cpu.taking(LockKind::ObjectResize);
        assert_eq!(cpu.forbids(LockKind::Reserving), None);
        assert_eq!(cpu.forbids(LockKind::Writer), Some(LockKind::Writer), "two of a kind");
        assert_eq!(cpu.forbids(LockKind::Family), Some(LockKind::Writer));
        cpu.released(LockKind::Writer);
        assert_eq!(cpu.forbids(LockKind::Writer), Some(LockKind::ObjectResize));
        cpu.released(LockKind::ObjectResize);
        assert!(LockKind::ALL.into_iter().all(|kind| cpu.forbids(kind).is_none()));
    }
}
