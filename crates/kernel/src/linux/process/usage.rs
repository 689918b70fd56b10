//! The resources that a process and its children have used: getrusage(2), wait4(2).

use super::Process;
use crate::port::sched::Used;
use core::sync::atomic::Ordering;

/// Resources that children had used, and the largest of them.
#[derive(Clone, Copy, Default)]
pub struct ChildUsage {
    /// Times and faults, summed.
    pub used: Used,
    /// The largest resident size of any, KiB.
    pub peak_kib: u64,
}

impl Process {
    /// Returns the resources that it and its children had used.
    pub(super) fn usage_with_children(&self) -> ChildUsage {
        let below = *self.children_used.lock();
        ChildUsage { used: self.used() + below.used, peak_kib: self.peak_kib().max(below.peak_kib) }
    }
    /// The largest resident size so far, KiB.
    pub fn peak_kib(&self) -> u64 {
        let now = self.mm().map_or(0, |mm| mm.note_resident() * 4);
        self.peak_kib.fetch_max(now, Ordering::Relaxed).max(now)
    }
    /// Keeps it for after the memory has gone.
    pub(super) fn peak_at_end(&self) {
        self.peak_kib();
    }
}
