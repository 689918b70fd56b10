//! Break before make: all translations of a page must be gone before the page gets
//! another frame or another size. Arm requires that; x86 tolerates violations, so only
//! this check finds them.
//!
//! The owner of a TLB calls it inside an access, between walk and fill. It takes one
//! mailbox lock at a time, while it scans one TLB.

use crate::cpu::CpuState;
use crate::tlb::Translation;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use softfault::addr::Vpn;
use std::sync::{Mutex, PoisonError};

/// The violations found so far.
#[derive(Default)]
pub(crate) struct Violations {
    nr: AtomicU64,
    first: Mutex<Option<String>>,
}

impl Violations {
    /// Looks for a live translation on any of `cpus` that contradicts `found`,
    /// which `filler` has just walked to.
    pub(crate) fn check(&self, cpus: &[CpuState], filler: &CpuState, space_id: u64, found: &Translation) {
        for (i, cpu) in cpus.iter().enumerate() {
            // The pages that waiting requests name are gone already: the CPU serves them before
            // it looks at its TLB. The requests are held while the TLB is looked at,
            // so that none is served in between.
            let posts = cpu.mailbox.waiting();
            let is_alive = |old: &Translation| !posts.as_ref().is_some_and(|p| p.take(space_id, &old.pages()));
            if let Some(old) = cpu.tlb.live(space_id).find(|old| contradicts(old, found) && is_alive(old)) {
                self.record(|| {
                    format!(
                        "space {space_id}: CPU {} fills {found:?} while CPU {i} still has {old:?}: \
                         break before make was forgotten",
                        cpus.iter().position(|cpu| core::ptr::eq(cpu, filler)).unwrap_or(usize::MAX)
                    )
                });
            }
        }
    }

    fn record(&self, text: impl FnOnce() -> String) {
        self.nr.fetch_add(1, Relaxed);
        self.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(text);
    }

    pub(crate) fn report(&self) -> (u64, Option<String>) {
        (self.nr.load(Relaxed), self.first.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn contradicts(old: &Translation, new: &Translation) -> bool {
    let both = old.pages().intersect(&new.pages());
    let Vpn(page) = both.start;
    !both.is_empty() && (old.order != new.order || old.frame_of(Vpn(page)) != new.frame_of(Vpn(page)))
}

#[cfg(test)]
mod tests;
