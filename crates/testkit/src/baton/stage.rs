//! The stage that all kinds of rounds share: a machine whose waits pass the baton, a thread for each actor, and frames that are
//! all free in the end.

use super::machine;
use super::turns::{Schedule, Turns};
use crate::hosted::nr_free_pages;
use softfault::{CpuId, Vm};
use softfault_host::Hosted;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

/// The machine of a round, and who runs on it.
pub(super) struct Stage<'a> {
    /// Says which round it is.
    pub(super) label: String,
    pub(super) seed: u64,
    pub(super) nr_cpus: usize,
    pub(super) schedule: &'a Schedule,
}

impl Stage<'_> {
    /// Plays a round, which returns its problems. Gives the number of choices that each listed decision had.
    pub(super) fn play(
        self,
        round: impl FnOnce(&Vm<Hosted>, &Arc<Turns>) -> Result<Vec<String>, String>,
    ) -> Result<Vec<usize>, String> {
        let label = self.label;
        let vm = machine(self.seed, self.nr_cpus)?;
        let turns = Arc::new(Turns::new(self.nr_cpus, self.schedule, label.clone()));
        let hook = turns.clone();
        vm.machine().on_wait(Box::new(move || hook.pass())).map_err(|_| "the machine has a hook")?;
        let before = {
            let _cpu = vm.machine().bind(CpuId(0)).map_err(|e| e.to_string())?;
            nr_free_pages(&vm)
        };
        let problems = round(&vm, &turns)?;
        let _cpu = vm.machine().bind(CpuId(0)).map_err(|e| e.to_string())?;
        let after = nr_free_pages(&vm);
        match problems.first() {
            Some(first) => Err(format!("{label}: {first}")),
            None if after != before => Err(format!("{label}: {before} frames were free, now {after}")),
            None => Ok(turns.choices()),
        }
    }
}

/// Runs all actors, and perhaps a part of the machine beside them, until they end. A panic of an actor is a problem.
pub(super) fn run(
    nr_actors: usize,
    act: &(dyn Fn(usize) + Sync),
    problem: &(dyn Fn(String) + Sync),
    beside: Option<&(dyn Fn() + Sync)>,
) {
    let play = &|me: usize| {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| act(me))) {
            let text = panic.downcast_ref::<String>().cloned();
            problem(format!("actor {me} panicked: {}", text.unwrap_or_default()));
        }
    };
    thread::scope(|scope| {
        (0..nr_actors).for_each(|me| drop(scope.spawn(move || play(me))));
        if let Some(beside) = beside {
            scope.spawn(beside);
        }
    });
}
