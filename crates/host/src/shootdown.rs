//! Shootdowns (I4) in both modes.
//!
//! The caller is a CPU of the machine, inside a call into the core and outside accesses.
//! It holds nothing while it waits, and an access never waits (E4), so two callers never
//! wait for each other.

use crate::config::Mode;
use crate::cpu::{CpuState, spun_long};
use crate::hosted::Hosted;
use core::hint::spin_loop;
use core::sync::atomic::Ordering::Acquire;
use softfault::machine::{CpuId, CpuSet, Flush, SpaceTag};
use softfault::table::format::Format;

impl<F: Format> Hosted<F> {
    pub(crate) fn shoot(&self, me: CpuId, space: SpaceTag, cpus: &CpuSet, what: Flush) {
        let mut others = *cpus;
        others.remove(me);
        if cpus.contains(me) {
            self.cpus[me.0 as usize].flush(space.id, what);
        }
        if others.is_empty() {
            return;
        }
        for cpu in self.states(&others) {
            match self.mode {
                Mode::Interrupt => cpu.mailbox.post(space.id, what),
                Mode::Broadcast => cpu.flush(space.id, what),
            }
        }
        // E5: accesses that began before this barrier show in their slots; those
        // that begin after it find the request, or the entries gone.
        self.barrier.pass();
        self.states(&others).for_each(wait_out);
    }

    fn states(&self, set: &CpuSet) -> impl Iterator<Item = &CpuState> {
        set.iter().filter_map(|cpu| self.cpus.get(cpu.0 as usize))
    }
}

/// Waits for the end of the current access on `cpu`, if there is one.
fn wait_out(cpu: &CpuState) {
    let slot = &cpu.own.slot;
    let seen = slot.load(Acquire);
    while !seen.is_multiple_of(2) && slot.load(Acquire) == seen {
        pause();
    }
}

/// One turn of a spin loop; every 64th yields to the host.
pub(crate) fn pause() {
    if spun_long() {
        std::thread::yield_now();
    } else {
        spin_loop();
    }
}

#[cfg(test)]
mod tests;
