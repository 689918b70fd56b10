//! The rows: the call, the number of calls, and the preparation of each.

use super::call::{self, BASE, HUGE_BYTES, OnCpu, PAGE_BYTES, Space, failed};
use super::count::{Counter, Place};
use super::options::{Config, Options, State};
use super::state::Full;
use super::what::What;
use crate::conflicts::machine::{self, Simulated};
use crate::error::LabError;
use softfault_recorded::Vm;

/// Steps of one row in one machine, after which no more calls are made: what walks over a
/// terabyte need not do so a thousand times.
const MOST_STEPS: u64 = 20_000_000;
/// Of the calls that are counted, how many more are timed: one in so many.
const TIMED_OF: u32 = 8;

/// One row in one machine.
#[derive(Clone, Debug)]
pub struct Row {
    /// The call.
    pub what: What,
    /// In which memory.
    pub state: State,
    /// On which machine.
    pub config: Config,
    /// Words that the worst call touched.
    pub steps: u64,
    /// The median of the calls that were timed.
    pub ns: f64,
    /// Where the worst call was most.
    pub places: Vec<Place>,
}

/// Memory in a state, and the CPUs that call.
pub struct Stage<'a> {
    vm: &'a Vm<Simulated>,
    state: State,
    config: Config,
    nr_counted: u32,
    random: u64,
}

impl<'a> Stage<'a> {
    /// Nothing has been called yet.
    pub fn new(vm: &'a Vm<Simulated>, state: State, config: Config, options: &Options) -> Stage<'a> {
        Stage { vm, state, config, nr_counted: options.calls, random: options.seed() }
    }

    /// All calls of a row.
    pub fn run(&mut self, what: What) -> Result<Row, LabError> {
        let mut counter = Counter::new();
        self.vm.set_huge_knobs(&call::knobs(what)).map_err(|e| failed(what, e))?;
        if what.has_own_space() {
            self.in_own_spaces(what, &mut counter)?;
        } else {
            self.in_one_space(what, &mut counter)?;
        }
        if let Some(full) = self.full() {
            full.close();
        }
        let name = |addr| self.vm.describe(addr).map_or("elsewhere".into(), |p| format!("{}.{}", p.structure, p.field));
        let (state, config, places) = (self.state, self.config, counter.places(name));
        Ok(Row { what, state, config, steps: counter.steps(), ns: counter.ns(), places })
    }

    /// Each CPU has run before, and has its blocks: in memory that has aged they all have.
    pub fn warm_up(&self) -> Result<(), LabError> {
        let what = What::Touch4K;
        let space = self.vm.new_space().map_err(|e| failed(what, e))?;
        call::map(&space, what, u64::from(self.config.cpus) * HUGE_BYTES)?;
        self.vm.set_huge_knobs(&call::knobs(what)).map_err(|e| failed(what, e))?;
        for cpu in 0..self.config.cpus {
            let _runs = OnCpu::begin(&space, cpu);
            call::touch(what, &space, BASE + u64::from(cpu) * HUGE_BYTES)?;
        }
        Ok(())
    }

    fn full(&self) -> Option<Full<'a>> {
        (self.state == State::Full).then(|| Full::new(self.vm, self.config.cpus))
    }

    /// This thread is a CPU by chance from now on.
    fn become_any(&mut self) -> u16 {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let cpu = ((self.random >> 33) % u64::from(self.config.cpus)) as u16;
        machine::become_cpu(cpu);
        cpu
    }

    /// The calls that are counted, then those that are timed, each by its number. Few of those
    /// that take very many steps.
    fn numbers(&self) -> u32 {
        self.nr_counted + self.nr_counted.div_ceil(TIMED_OF)
    }

    fn measure<T>(&self, i: &mut u32, counter: &mut Counter, call: impl FnOnce() -> T) -> T {
        let is_counted = *i < self.nr_counted;
        let done = if is_counted { counter.count(call) } else { counter.time(call) };
        if counter.total > MOST_STEPS {
            *i = if is_counted { self.nr_counted } else { self.numbers() };
        } else {
            *i += 1;
        }
        done
    }

    /// In a space that all CPUs run, each call at a page of its own.
    fn in_one_space(&mut self, what: What, counter: &mut Counter) -> Result<(), LabError> {
        let full = self.full();
        machine::become_cpu(0);
        if let Some(full) = &full {
            full.open(0);
        }
        let space = self.vm.new_space().map_err(|e| failed(what, e))?;
        call::map(&space, what, (u64::from(self.numbers()) + 1) * HUGE_BYTES)?;
        let all: Vec<_> = (0..self.config.cpus).map(|cpu| OnCpu::begin(&space, cpu)).collect();
        if what == What::Refusal {
            machine::become_cpu(0);
            call::touch(what, &space, BASE)?;
            self.vm.take_all();
            // Looks for frames on each CPU that has had some since the last refusal, once.
            call::in_shared(what, &space, BASE + PAGE_BYTES)?;
        }
        let mut i = 0;
        while i < self.numbers() {
            let (cpu, addr) = (self.become_any(), BASE + (u64::from(i) + 1) * HUGE_BYTES);
            if let Some(full) = full.as_ref().filter(|_| what != What::Refusal) {
                full.leave_far_block(cpu)?;
            }
            self.measure(&mut i, counter, || call::in_shared(what, &space, addr))?;
            if what == What::Touch2M || full.is_some() && what != What::Refusal {
                // All of it would not fit into memory.
                space.munmap(addr - HUGE_BYTES, 2 * HUGE_BYTES).map_err(|e| failed(what, e))?;
            }
        }
        drop(all);
        machine::become_cpu(0);
        drop(space);
        Ok(())
    }

    /// Each call in a space of its own, which the CPU alone runs.
    fn in_own_spaces(&mut self, what: What, counter: &mut Counter) -> Result<(), LabError> {
        let full = self.full();
        let mut i = 0;
        while i < self.numbers() {
            let cpu = self.become_any();
            if let Some(full) = &full {
                full.open(cpu);
            }
            let space: Space<'_> = self.vm.new_space().map_err(|e| failed(what, e))?;
            call::map(&space, what, HUGE_BYTES)?;
            let runs = OnCpu::begin(&space, cpu);
            call::fill(what, &space)?;
            if let Some(full) = &full {
                full.leave_far_block(cpu)?;
            }
            if what == What::Exit {
                drop(runs);
                self.measure(&mut i, counter, || drop(space));
            } else {
                let made = self.measure(&mut i, counter, || call::in_own(what, &space))?;
                drop(runs);
                drop(made);
            }
        }
        Ok(())
    }
}
