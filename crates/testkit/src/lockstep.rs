//! Runs one sequence on several CPUs in turn. The model predicts each outcome, and a missed
//! shootdown on another CPU becomes visible.
//!
//! Each CPU is a thread that stays in its address space between steps. One step runs at a
//! time. Between steps CPUs run daemons (`daemons.rs`), which must not change any outcome.
//! In every second sequence memory fails, too (`trouble.rs`).

use crate::daemons::Daemon;
use crate::formats::Tested;
use crate::generate::Sequence;
use crate::hosted::{Programs, differs, end_pool, nr_free_pages};
use crate::judge::{Difference, check, check_after_exit, is_check_due};
use crate::model::Model;
use crate::numbers::MADV_FREE;
use crate::op::{Call, Op, Outcome};
use crate::random::Random;
use crate::spread::spread;
use crate::trouble::{Trouble, Turn};
use softfault::table::format::Format;
use softfault::{Machine, Vm};
use softfault_host::{CpuGuard, Hosted};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{PoisonError, RwLock};
use std::thread;

enum Order {
    /// Do the step.
    Step(Op),
    /// Leave the address space that you are in.
    Leave,
    /// Do this between two steps.
    Daemon(Daemon),
}

/// In so many of 100 cases a daemon runs after a step.
const DAEMON_PERCENT: u64 = 6;

type Shared<'a, 'vm, F> = &'a RwLock<Programs<'vm, F>>;

struct Worker<'a, 'vm, F: Format> {
    vm: &'vm Vm<Hosted<F>>,
    cpu: CpuGuard<'a, F>,
    programs: Shared<'a, 'vm, F>,
    /// The program whose space the CPU is in.
    place: Option<u64>,
}

impl<F: Format> Worker<'_, '_, F> {
    fn serve(mut self, orders: &Receiver<Order>, done: &Sender<Outcome>) {
        for order in orders {
            let outcome = match order {
                Order::Step(op) => self.step(&op),
                Order::Leave => {
                    self.go_to(None);
                    Outcome::Value(0)
                }
                Order::Daemon(daemon) => {
                    daemon.run(self.vm);
                    Outcome::Value(0)
                }
            };
            if done.send(outcome).is_err() {
                break;
            }
        }
        self.go_to(None);
    }

    fn go_to(&mut self, who: Option<u64>) {
        if self.place == who {
            return;
        }
        let programs = self.programs.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(space) = self.place.and_then(|place| programs.space(place)) {
            self.cpu.depart(space);
        }
        self.place = who.filter(|who| programs.space(*who).is_some_and(|space| self.cpu.arrive(space).is_ok()));
    }

    fn step(&mut self, op: &Op) -> Outcome {
        if op.call == Call::Exit {
            self.go_to(None);
            return self.programs.write().unwrap_or_else(PoisonError::into_inner).exit(op.who);
        }
        self.go_to(Some(op.who));
        match op.call {
            Call::Fork => self.programs.write().unwrap_or_else(PoisonError::into_inner).fork(op),
            _ => self.programs.read().unwrap_or_else(PoisonError::into_inner).step(&self.cpu, op),
        }
    }
}

/// Runs the sequence on up to eight CPUs of the machine, one of which is the caller's
/// meanwhile; `seed` decides which CPUs they are and which does each step. The core's
/// checker looks at everything every `check_every` steps, if that is not 0; all free
/// frames are read at the end. Gives the first difference.
///
/// # Panics
///
/// If a CPU that is needed is taken, or there is only one.
pub fn run<F: Tested>(vm: &Vm<Hosted<F>>, sequence: &Sequence, seed: u64, check_every: usize) -> Option<Difference> {
    let cpus = spread(vm.machine().nr_cpus(), seed);
    let (own, others) = cpus.split_first().expect("a machine has a CPU");
    let cpu = vm.machine().bind(*own).expect("the CPU is free");
    let before = nr_free_pages(vm);
    let programs = RwLock::new(Programs::new(vm)?);
    let mut found = thread::scope(|scope| {
        let workers: Vec<(Sender<Order>, Receiver<Outcome>)> = others
            .iter()
            .map(|id| {
                let ((orders, get_order), (done, get_done)) = (channel(), channel());
                let programs = &programs;
                scope.spawn(move || {
                    let cpu = vm.machine().bind(*id).expect("each CPU has one thread");
                    Worker { vm, cpu, programs, place: None }.serve(&get_order, &done);
                });
                (orders, get_done)
            })
            .collect();
        conduct(vm, &programs, &workers, sequence, seed, check_every)
    });
    drop(programs);
    found = found.or_else(|| end_pool(vm, sequence.iter().map(|(op, _)| op)).map(|text| note(sequence.len(), text)));
    found = found.or_else(|| check_after_exit(vm).map(|text| note(sequence.len(), text)));
    drop(cpu);
    let after = nr_free_pages(vm);
    if found.is_none() && after != before {
        found = Some(note(sequence.len(), format!("{before} frames were free before and {after} after")));
    }
    if let (nr @ 1.., first) = vm.machine().violations() {
        found = found.or(Some(note(sequence.len(), format!("{nr} times: {}", first.unwrap_or_default()))));
    }
    found
}

fn conduct<'vm, F: Tested>(
    vm: &'vm Vm<Hosted<F>>,
    programs: Shared<'_, 'vm, F>,
    workers: &[(Sender<Order>, Receiver<Outcome>)],
    sequence: &Sequence,
    seed: u64,
    check_every: usize,
) -> Option<Difference> {
    let ask = |i: usize, order: Order| {
        let (orders, done) = &workers[i];
        orders.send(order).ok().and_then(|()| done.recv().ok()).unwrap_or(Outcome::Broken(40))
    };
    let (mut random, mut daemons) = (Random::new(seed), Random::new(!seed));
    // These tell a page in the swap area from others: nothing goes there before.
    let tells = |op: &Op| op.call == Call::Mincore || op.call == Call::Madvise && op.args[2] == MADV_FREE;
    let swaps_from = sequence.iter().rposition(|(op, _)| tells(op));
    let model = || Model::default().with_task_size(F::TASK_SIZE);
    let mut trouble = (!seed.is_multiple_of(2)).then(|| Trouble::new(model(), seed));
    for (step, (op, expected)) in sequence.iter().enumerate() {
        let expected = match &mut trouble {
            None => Some(*expected),
            Some(trouble) => trouble.expect(op),
        };
        let Some(expected) = expected else { continue };
        if op.call == Call::Exit {
            // Nobody may be in a space that ends.
            (0..workers.len()).for_each(|i| _ = ask(i, Order::Leave));
        }
        let seen = ask(random.below(workers.len() as u64) as usize, Order::Step(*op));
        if !expected.allows(seen) {
            let hosted = Some(seen);
            return Some(Difference { step, expected: expected.outcome, linux: None, hosted, note: String::new() });
        }
        if let Some(text) = differs(vm, expected.pool) {
            return Some(note(step, text));
        }
        let cpu = daemons.below(workers.len() as u64) as usize;
        let turn = match &trouble {
            Some(trouble) => trouble.turn_after(op),
            None if daemons.chance(DAEMON_PERCENT) => Turn::Daemon(Daemon::any(&mut daemons)),
            None => Turn::Nothing,
        };
        match (turn, &mut trouble) {
            (Turn::Daemon(Daemon::Swap { .. }), None) if swaps_from.is_some_and(|last| last >= step) => {}
            (Turn::Daemon(daemon), _) => _ = ask(cpu, Order::Daemon(daemon)),
            (Turn::Failure(random), Some(trouble)) => {
                let programs = programs.read().unwrap_or_else(PoisonError::into_inner);
                if let Err(text) = trouble.fail_one(vm, &programs, random) {
                    return Some(note(step, text));
                }
            }
            _ => {}
        }
        if is_check_due(step, check_every) {
            let programs = programs.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(text) = check(vm, programs.spaces()) {
                return Some(note(step, text));
            }
        }
    }
    None
}

fn note(step: usize, note: String) -> Difference {
    Difference { step, expected: Outcome::Value(0), linux: None, hosted: None, note }
}
