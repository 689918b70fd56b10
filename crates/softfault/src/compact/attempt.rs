//! One attempt to free a block, and its remaining budget.
//!
//! Locks on entry: none, no section.

use super::{CompactRefusal, MigrateRefusal};
use crate::account::Event;
use crate::machine::Machine;
use crate::policy::compact::CompactBudget;
use crate::space::Vm;

/// One attempt, and its remaining budget.
pub(super) struct Attempt<'vm, M: Machine> {
    pub(super) vm: &'vm Vm<M>,
    pub(super) left: CompactBudget,
    pub(super) deadline_ns: u64,
    /// Whether the frame caches of some CPUs were emptied already.
    pub(super) stole: bool,
    /// Whether a block that is free already will do.
    pub(super) takes_free: bool,
    /// The last obstacle.
    pub(super) refusal: CompactRefusal,
}

impl<'vm, M: Machine> Attempt<'vm, M> {
    pub(super) fn new(vm: &'vm Vm<M>, budget: &CompactBudget) -> Self {
        let deadline_ns = vm.machine.now_ns().saturating_add(budget.time_ns);
        Attempt { vm, left: *budget, deadline_ns, stole: false, takes_free: true, refusal: CompactRefusal::NoBlock }
    }

    /// The same for one more free block: those that are free stay so.
    pub(super) fn for_one_more(self) -> Self {
        Attempt { takes_free: false, ..self }
    }

    /// Empties the frame caches of some CPUs. Called at most once in an attempt.
    pub(super) fn steal_caches(&mut self) {
        self.stole = true;
        self.vm.steal_some_caches();
    }

    pub(super) fn refuse(&self, refusal: MigrateRefusal) -> CompactRefusal {
        self.vm.count(refusal.event(), 1);
        CompactRefusal::InTheWay(refusal)
    }

    pub(super) fn spend_scan(&mut self, nr: u64) -> Result<(), CompactRefusal> {
        self.left.nr_scanned = self.left.nr_scanned.checked_sub(nr).ok_or(CompactRefusal::OverBudget)?;
        self.vm.count(Event::CompactMigrateScanned, nr);
        Ok(())
    }

    /// Checks the deadline and answers other CPUs. Called between pieces of work. Also ends the attempt if
    /// a last-resort allocation waits: the attempt holds frames, and would get no others.
    pub(super) fn check_time(&self) -> Result<(), CompactRefusal> {
        if self.is_over() {
            return Err(CompactRefusal::OverBudget);
        }
        if self.vm.frames.is_last_resort_active() { Err(CompactRefusal::LastResort) } else { Ok(()) }
    }

    pub(super) fn is_over(&self) -> bool {
        self.vm.machine.relax();
        self.vm.machine.now_ns() > self.deadline_ns
    }
}
