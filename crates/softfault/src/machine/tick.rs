//! Points of calls that a machine may observe.

use super::LockKind;

/// A point in a call into the core, for machines that measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Tick {
    /// The embedder has called into the core.
    Call,
    /// One step of a pass whose length depends on the program, on memory or on the
    /// number of CPUs: an entry, a VMA, a page of an object, a CPU.
    Step,
    /// This CPU is about to wait for such a lock, or has just got one without a wait.
    Taking(LockKind),
    /// This CPU has released such a lock, or waits for it no longer.
    Released(LockKind),
}
