//! Checks the order of locks: a schedule in which a CPU takes one out of order fails, also if nobody waits in a circle this time.

use softfault_shuffled::machine::LockKind;
use std::cell::RefCell;

/// The locks of each CPU.
pub struct Order(Vec<RefCell<Vec<LockKind>>>);

impl Order {
    pub fn of(nr_cpus: usize) -> Order {
        Order((0..nr_cpus).map(|_| RefCell::default()).collect())
    }

    /// The CPU is about to wait for a lock.
    pub fn taking(&self, cpu: usize, wanted: LockKind) {
        let mut held = self.0[cpu].borrow_mut();
        let forbids = held.iter().find(|held| !held.may_take(wanted));
        assert!(forbids.is_none(), "CPU {cpu} has {forbids:?} and waits for {wanted:?}: see `LockKind::may_take`");
        held.push(wanted);
    }

    /// It has released one.
    pub fn released(&self, cpu: usize, kind: LockKind) {
        let mut held = self.0[cpu].borrow_mut();
        let place = held.iter().rposition(|held| *held == kind).expect("a CPU releases what it has");
        held.remove(place);
    }
}
