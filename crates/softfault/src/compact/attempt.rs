//! One attempt to free a block, and its remaining budget.
//!
//! Locks on entry: none, no section.

use super::{CompactRefusal, MigrateRefusal};
use crate::account::Event;
use crate::machine::Machine;
use crate::pace::Steps;
use crate::policy::compact::CompactBudget;
use crate::space::Vm;

/// One attempt, and its remaining budget.
pub(super) struct Attempt<'vm, M: Machine> {
    pub(super) vm: &'vm Vm<M>,
    pub(super) left: CompactBudget,
    /// Steps of searches that are left.
    pub(super) steps: Steps,
    /// Whether the frame caches of some CPUs were emptied already.
    pub(super) stole: bool,
    /// Whether a block that is free already will do.
    pub(super) takes_free: bool,
    /// The last obstacle.
    pub(super) refusal: CompactRefusal,
}

impl<'vm, M: Machine> Attempt<'vm, M> {
    pub(super) fn new(vm: &'vm Vm<M>, budget: &CompactBudget) -> Self {
        let (left, steps) = (*budget, Steps::new(budget.nr_steps));
        Attempt { vm, left, steps, stole: false, takes_free: true, refusal: CompactRefusal::NoBlock }
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

    pub(super) fn refuse(vm: &Vm<M>, refusal: MigrateRefusal) -> CompactRefusal {
        vm.count(refusal.event(), 1);
        CompactRefusal::InTheWay(refusal)
    }

    pub(super) fn spend_scan(&mut self, nr: u64) -> Result<(), CompactRefusal> {
        self.left.nr_scanned = self.left.nr_scanned.checked_sub(nr).ok_or(CompactRefusal::OverBudget)?;
        self.vm.count(Event::CompactMigrateScanned, nr);
        Ok(())
    }

    /// Answers other CPUs, and checks that steps are left. Called between pieces of work. Also ends the attempt if
    /// a last-resort allocation waits: the attempt holds frames, and would get no others.
    pub(super) fn check_budget(&self) -> Result<(), CompactRefusal> {
        self.vm.machine.relax();
        if self.steps.are_spent() {
            return Err(CompactRefusal::OverBudget);
        }
        if self.vm.frames.is_last_resort_active() { Err(CompactRefusal::LastResort) } else { Ok(()) }
    }

    /// Answers other CPUs within a search, and spends steps for it. Returns whether it goes on.
    pub(super) fn may_search(&mut self, nr_steps: u64) -> bool {
        self.vm.machine.relax();
        self.steps.spend(nr_steps).is_ok()
    }
}
