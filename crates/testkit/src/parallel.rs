//! Runs several CPUs in one address space at once, each with a sequence in its own part of
//! the window.
//!
//! CPUs do not touch each other's parts, so the model predicts each step, while the CPUs
//! share the tree, tables, counts and TLBs. The parts are adjacent, in the same leaf tables.
//! A fork copies all parts; the forking CPU then checks only its own part of the child.
//!
//! With every second pair of seeds memory fails, pages are swapped out, and daemons run (`trouble.rs`).

use crate::fatal::as_one_of_several;
use crate::formats::Tested;
use crate::generate::Sequence;
use crate::hosted::{Objects, nr_free_pages, step};
use crate::judge::{Difference, READ_EVERY, check_after_exit, check_some};
use crate::model::Model;
use crate::op::{Call, HEAP, Op, Outcome};
use crate::spread::spread;
use crate::trouble::{Trouble, Turn};
use softfault::table::format::Format;
use softfault::{AddressSpace, Machine, Vm};
use softfault_host::{CpuGuard, Hosted};
use std::collections::BTreeMap;
use std::sync::{Barrier, Mutex};
use std::thread;

/// Runs each sequence on a CPU of its own, all at once; the first difference of each
/// sequence that has one. `seed` decides which CPUs of a large machine they are. The
/// caller must not be a CPU.
///
/// # Panics
///
/// If there are more sequences than CPUs, a CPU is taken, or a sequence has more than
/// [`READ_EVERY`] steps: free frames are read at the end.
pub fn run<F: Tested>(vm: &Vm<Hosted<F>>, sequences: &[Sequence], seed: u64) -> Vec<(usize, Difference)> {
    let machine = vm.machine();
    let cpus = spread(machine.nr_cpus(), seed);
    assert!(sequences.len() <= cpus.len(), "a CPU for each sequence");
    assert!(sequences.iter().all(|sequence| sequence.len() <= READ_EVERY), "I20 is checked at the end");
    let before = nr_free_pages(vm);
    let space = {
        let _cpu = machine.bind(cpus[0]).expect("the CPU is free");
        let space = vm.new_space().expect("room for one space");
        space.set_brk(HEAP);
        space
    };
    let start = Barrier::new(sequences.len());
    let machine_turn = Mutex::new(());
    let mut found = Vec::new();
    let play = |i: usize, sequence: &Sequence| {
        let cpu = machine.bind(cpus[i]).expect("each CPU has one thread");
        let model = Model::default().with_task_size(F::TASK_SIZE);
        let trouble = (seed % 4 > 1).then(|| Trouble::new(model, seed << 8 | i as u64));
        let (children, objects) = (BTreeMap::new(), Objects::default());
        start.wait();
        Player { vm, cpu: &cpu, space: &space, children, objects, place: 0, trouble, machine_turn: &machine_turn }
            .play(sequence)
    };
    thread::scope(|scope| {
        let play = &play;
        let spawn = |(i, sequence)| scope.spawn(move || as_one_of_several(|| play(i, sequence)));
        let threads: Vec<_> = sequences.iter().enumerate().map(spawn).collect();
        for (i, thread) in threads.into_iter().enumerate() {
            match thread.join() {
                Ok(difference) => found.extend(difference.map(|d| (i, d))),
                Err(_) => found.push((i, note("the thread panicked".into()))),
            }
        }
    });
    let _cpu = machine.bind(cpus[0]).expect("the CPU is free again");
    found.extend(check_some(vm, [&space].into_iter(), false).map(|text| (0, note(text))));
    drop(space);
    found.extend(check_after_exit(vm).map(|text| (0, note(text))));
    let after = nr_free_pages(vm);
    if after != before {
        found.push((0, note(format!("{before} frames were free before and {after} after"))));
    }
    if let (nr @ 1.., first) = machine.violations() {
        found.push((0, note(format!("{nr} times: {}", first.unwrap_or_default()))));
    }
    found
}

struct Player<'a, 'vm, F: Format> {
    vm: &'vm Vm<Hosted<F>>,
    cpu: &'a CpuGuard<'a, F>,
    space: &'a AddressSpace<'vm, Hosted<F>>,
    children: BTreeMap<u64, AddressSpace<'vm, Hosted<F>>>,
    objects: Objects<'vm, F>,
    /// The program whose space the CPU is in.
    place: u64,
    trouble: Option<Trouble>,
    /// Held while frames move or fail: the frame that is to fail is still that of the page. Nobody waits
    /// for it, since who waits answers no shootdown.
    machine_turn: &'a Mutex<()>,
}

impl<'vm, F: Format> Player<'_, 'vm, F> {
    fn space(&self, who: u64) -> Option<&AddressSpace<'vm, Hosted<F>>> {
        if who == 0 { Some(self.space) } else { self.children.get(&who) }
    }

    fn play(mut self, sequence: &Sequence) -> Option<Difference> {
        let _ = self.cpu.arrive(self.space);
        let mut found = None;
        for (i, (op, expected)) in sequence.iter().enumerate() {
            let expected = match &mut self.trouble {
                None => Some(*expected),
                Some(trouble) => trouble.expect(op),
            };
            let Some(expected) = expected.map(|expected| expected.beside_others(op.call)) else { continue };
            let seen = self.step(op);
            self.make_trouble(op);
            if !expected.allows(seen) {
                let hosted = Some(seen);
                let note = op.to_string();
                found = Some(Difference { step: i, expected: expected.outcome, linux: None, hosted, note });
                break;
            }
        }
        self.go_to(0);
        self.cpu.depart(self.space);
        found
    }

    /// Lets the machine interfere after the step: daemons run, or memory fails.
    fn make_trouble(&mut self, op: &Op) {
        let Player { vm, space, children, trouble: Some(trouble), machine_turn, .. } = self else { return };
        let Ok(_turn) = machine_turn.try_lock() else { return };
        match trouble.turn_after(op) {
            Turn::Nothing => {}
            Turn::Daemon(daemon) => daemon.run(vm),
            Turn::Failure(random) => {
                let space_of = |who| if who == 0 { Some(*space) } else { children.get(&who) };
                trouble.fail_one_beside_others(vm, &space_of, random);
            }
        }
    }

    fn go_to(&mut self, who: u64) {
        if self.place != who {
            self.space(self.place).inspect(|space| self.cpu.depart(space));
            self.space(who).inspect(|space| _ = self.cpu.arrive(space));
            self.place = who;
        }
    }

    fn step(&mut self, op: &Op) -> Outcome {
        self.go_to(if op.call == Call::Exit { 0 } else { op.who });
        match op.call {
            Call::Exit => self.children.remove(&op.who).map_or(Outcome::Broken(50), |_| Outcome::Value(0)),
            Call::Fork => match self.space(op.who).map(AddressSpace::fork) {
                Some(Ok(child)) => {
                    self.children.insert(op.args[0], child);
                    Outcome::Value(0)
                }
                Some(Err(error)) => Outcome::Errno(error.errno().0 as u64),
                None => Outcome::Broken(51),
            },
            _ => match self.space(op.who).map(|space| self.cpu.enter(space)) {
                Some(Ok(running)) => step(self.vm, &running, &self.objects, op),
                _ => Outcome::Broken(52),
            },
        }
    }
}

fn note(note: String) -> Difference {
    Difference { step: usize::MAX, expected: Outcome::Value(0), linux: None, hosted: None, note }
}
