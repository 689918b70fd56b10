//! Who has claimed frames that are not in use yet: see `sight`.

use super::{Frames, Memory};
use crate::machine::Machine;
use crate::sync::{Ordering, Word};

/// `CpuData::held`: holders in bits 0..16, above them how many have ended.
pub(super) const HOLDERS: u64 = 0xffff;

/// Free frames may be out of sight until this is dropped.
#[must_use]
pub(crate) struct Held<'vm>(&'vm Word);

impl Held<'_> {
    /// Ends without a trace: nothing was claimed.
    pub(crate) fn in_vain(self) {
        self.0.fetch_sub(1, Ordering::Release);
        core::mem::forget(self);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // One holder less, one more that has ended.
        self.0.fetch_add(HOLDERS, Ordering::Release);
    }
}

impl<M: Machine> Memory<M> {
    /// Counts the caller as a holder. Called before its first claim, or in the
    /// section in which a frame left the CPU's group.
    pub(crate) fn hold(&self) -> Held<'_> {
        let word = &self.cpu(self.machine.this_cpu()).held;
        word.fetch_add(1, Ordering::AcqRel);
        Held(word)
    }

    /// As [`hold`](Self::hold), for those who can do without: nobody is counted while an
    /// allocation is about to be refused.
    pub(crate) fn hold_unless_in_need(&self) -> Option<Held<'_>> {
        (!self.frames.is_anybody_in_need()).then(|| self.hold())
    }
}

impl Frames {
    /// Whether an allocation is about to be refused. A hint for those who would
    /// claim frames only to give them back.
    pub(crate) fn is_anybody_in_need(&self) -> bool {
        self.turns.load(Ordering::Relaxed) != self.nr_turns_over.load(Ordering::Relaxed)
    }

    /// Whether everybody else has to stand back for it. A hint as well.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed) != 0
    }
}
