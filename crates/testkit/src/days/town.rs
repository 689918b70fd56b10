//! The processes of a run, the libraries that they map, and the pins that outlive them.

use super::library::Library;
use super::process::{Birth, Process};
use super::trouble::Trouble;
use super::{Done, Mix, Progress, Row, Size, Space};
use crate::op::PAGE;
use crate::random::Random;
use softfault::hooks::Class;
use softfault::policy::folio::FolioOrders;
use softfault::{CpuId, Order, Pin, SharedObject, Vm};
use softfault_host::Hosted;
use std::sync::Arc;

/// Touches of a turn.
const TOUCHES: u64 = 32;
/// Turns between two looks at what is free, which asks all CPUs.
const TURNS_PER_LOOK: u64 = 16;
/// In memory of so many pages lives are as long as `grown` has them: then the living fill more
/// than there is, so that some end early.
const PAGES_FOR_A_LIFE: u64 = 30_000;
const NR_LIBRARIES: u64 = 8;
/// Pages of a block.
const BLOCK_PAGES: u64 = 512;
/// Times more processes than were asked for, after which a block that is used less is
/// accepted: it is one that something rare keeps.
const MOST_TIMES: u64 = 6;

pub(super) struct Town<'vm> {
    vm: &'vm Vm<Hosted>,
    mix: Mix,
    random: Random,
    /// Processes that grow, one for each CPU, and those that only live.
    growing: Vec<Option<Process<'vm>>>,
    living: Vec<Process<'vm>>,
    libraries: Vec<SharedObject<'vm, Hosted>>,
    pins: Vec<Pin<'vm, Hosted>>,
    /// Pages that lay in each block.
    uses: Vec<u64>,
    /// Of the block that was used least, when enough processes had come: afterwards blocks change their class.
    nr_uses: u64,
    nr_total: u64,
    nr_processes: u64,
    turn: u64,
    trouble: Trouble,
    /// Private pages of a process, on average.
    nr_pages: u64,
}

impl<'vm> Town<'vm> {
    pub(super) fn new(vm: &'vm Vm<Hosted>, seed: u64, mix: Mix) -> Town<'vm> {
        Town {
            vm,
            mix,
            random: Random::new(seed),
            growing: vec![],
            living: vec![],
            libraries: vec![],
            pins: vec![],
            uses: vec![0; vm.nr_blocks() as usize],
            nr_total: vm.vmstat().nr_total_pages,
            nr_processes: 0,
            turn: 0,
            trouble: Trouble::new(seed, vm.nr_blocks()),
            nr_pages: 0,
            nr_uses: 0,
        }
    }

    /// All spaces.
    pub(super) fn spaces(&self) -> impl Iterator<Item = &Space<'vm>> {
        self.growing.iter().flatten().chain(&self.living).map(|process| &process.space)
    }

    /// Turns of all CPUs, until enough processes have come and every block was used.
    pub(super) fn live(&mut self, size: Size, progress: &mut dyn FnMut(Progress)) -> Done {
        // A quarter more than what uses all blocks so often.
        self.nr_pages = (self.nr_total * size.nr_uses * 5 / 4 / size.nr_processes).max(100);
        self.growing.resize_with(size.nr_cpus, || None);
        let mut shown = 0;
        loop {
            let cpu = self.random.below(size.nr_cpus as u64);
            let _cpu = self.vm.machine().bind(CpuId(cpu as u16)).map_err(|e| e.to_string())?;
            self.take_turn(cpu as usize)?;
            if self.nr_processes < shown + 1000 {
                continue;
            }
            shown = self.nr_processes;
            let now = Progress { nr_processes: self.nr_processes, nr_uses: self.least_uses() };
            progress(now);
            let is_enough = now.nr_uses >= size.nr_uses || shown >= MOST_TIMES * size.nr_processes;
            if shown >= size.nr_processes && is_enough {
                self.nr_uses = now.nr_uses;
                return Ok(());
            }
        }
    }

    /// Of the blocks of private pages: libraries stay in theirs for long.
    fn least_uses(&self) -> u64 {
        let blocks = (0..self.vm.nr_blocks()).filter(|b| self.vm.block_class(*b) == Class::Movable);
        blocks.map(|b| self.uses[b as usize] / BLOCK_PAGES).min().unwrap_or(0)
    }

    fn take_turn(&mut self, cpu: usize) -> Done {
        self.turn += 1;
        if self.turn.is_multiple_of(TURNS_PER_LOOK) && self.nr_free() < self.nr_total / 5 {
            self.free_until(self.nr_total / 4)?;
        }
        match self.growing[cpu].take() {
            None => self.growing[cpu] = Some(self.born()?),
            Some(mut process) => {
                let uses = &mut self.uses;
                process.grow(TOUCHES, self.turn, &mut |pfn, nr| uses[(pfn / BLOCK_PAGES) as usize] += nr)?;
                self.pin_some(&process)?;
                if process.is_grown() {
                    self.grown(process)?;
                } else {
                    self.growing[cpu] = Some(process);
                }
            }
        }
        self.look_after_the_living()?;
        let processes = self.growing.iter().flatten().chain(&self.living);
        self.trouble.turn(self.vm, processes, self.mix.objects_permille > 0);
        Ok(())
    }

    fn born(&mut self) -> Done<Process<'vm>> {
        self.nr_processes += 1;
        if self.random.chance(25) && !self.living.is_empty() {
            // Half of all children have the same parent, as those of a shell.
            let parent = if self.random.chance(50) { 0 } else { self.random.below(self.living.len() as u64) };
            return self.living[parent as usize].fork();
        }
        let mean = self.nr_pages;
        let usual = mean / 2 + self.random.below(mean);
        let nr_pages = if self.random.below(16) == 0 { (usual * 8).min(self.nr_total / 16) } else { usual };
        let nr_shared = nr_pages * self.mix.objects_permille / 1000;
        let nr_huge = if self.random.chance(3) { 1 + self.random.below(3) } else { 0 };
        let space = self.vm.new_space().map_err(|e| e.to_string())?;
        self.renew_libraries()?;
        let library = self.libraries.get(self.random.below(NR_LIBRARIES) as usize);
        Process::new(space, &Birth { nr_pages, nr_shared, nr_huge }, library, &mut self.random)
    }

    /// All of them at first, later one now and then; processes that map the old one keep it.
    fn renew_libraries(&mut self) -> Done {
        let nr_pages = self.nr_total * self.mix.objects_permille / 1000 / NR_LIBRARIES / 2;
        if nr_pages == 0 {
            return Ok(());
        }
        if self.libraries.len() == NR_LIBRARIES as usize && self.random.below(500) == 0 {
            self.libraries.swap_remove(self.random.below(NR_LIBRARIES) as usize);
        }
        while self.libraries.len() < NR_LIBRARIES as usize {
            // Pages of 4 KiB to 64 KiB, of one size or of all up to one.
            let most = Order(self.random.below(5) as u8);
            let least = if self.random.chance(50) { most } else { Order::BASE };
            let orders = FolioOrders::new(least, most).map_err(|e| e.to_string())?;
            let library = if self.mix.has_files {
                let file = self.vm.machine().add_file(Arc::new(Library::default()));
                self.vm.new_file_object(nr_pages * PAGE, orders, file).map_err(|e| e.to_string())?
            } else {
                self.vm.new_shared_object_of(nr_pages * PAGE, orders).map_err(|e| e.to_string())?
            };
            self.libraries.push(library);
        }
        Ok(())
    }

    fn pin_some(&mut self, process: &Process<'vm>) -> Done {
        let nr_most = (self.nr_total * self.mix.pins_permille / 1000) as usize;
        if self.pins.len() < nr_most && self.random.chance(30) {
            self.pins.extend(process.pin(&mut self.random)?);
        }
        if !self.pins.is_empty() && self.random.chance(2) {
            let i = self.random.below(self.pins.len() as u64) as usize;
            drop(self.pins.swap_remove(i));
        }
        Ok(())
    }

    /// Most end at once, some soon, a few live long.
    fn grown(&mut self, mut process: Process<'vm>) -> Done {
        let life = match self.random.below(100) {
            0..50 => return end(process),
            50..85 => self.random.below(1000),
            85..97 => self.random.below(10_000),
            _ => self.random.below(100_000),
        };
        process.ends_at = self.turn + life * self.nr_total / PAGES_FOR_A_LIFE;
        self.living.push(process);
        Ok(())
    }

    /// One of them in each turn: its life is over, or it gives some pages back.
    fn look_after_the_living(&mut self) -> Done {
        if self.living.is_empty() {
            return Ok(());
        }
        let i = self.random.below(self.living.len() as u64) as usize;
        if self.living[i].ends_at < self.turn {
            return end(self.living.swap_remove(i));
        }
        if self.random.chance(10) {
            return self.living[i].breathe(&mut self.random, self.turn);
        }
        Ok(())
    }

    fn nr_free(&self) -> u64 {
        self.vm.vmstat().nr_free_pages
    }

    /// Ends processes, those that would live shorter more often.
    fn free_until(&mut self, nr_free: u64) -> Done {
        while self.nr_free() < nr_free {
            if self.living.is_empty() {
                let Some(process) = self.growing.iter_mut().find_map(Option::take) else { return Ok(()) };
                end(process)?;
                continue;
            }
            let [a, b] = [(); 2].map(|()| self.random.below(self.living.len() as u64) as usize);
            let first = if self.living[a].ends_at < self.living[b].ends_at { a } else { b };
            end(self.living.swap_remove(first))?;
        }
        Ok(())
    }

    /// Half of memory, in the end.
    pub(super) fn free_half(&mut self) -> Done {
        let _cpu = self.vm.machine().bind(CpuId(0)).map_err(|e| e.to_string())?;
        self.free_until(self.nr_total / 2)
    }

    /// Counts what is there, before compaction.
    pub(super) fn row(&self, size: Size) -> Row {
        let processes = self.growing.iter().flatten().chain(&self.living);
        let in_libraries: u64 = self.libraries.iter().map(SharedObject::nr_resident_pages).sum();
        let nr_free = self.nr_free();
        Row {
            mix: self.mix,
            nr_cpus: size.nr_cpus,
            nr_processes: self.nr_processes,
            nr_uses: self.nr_uses,
            nr_used: self.nr_total - nr_free,
            nr_object_pages: in_libraries + processes.map(|process| process.nr_shared_touched).sum::<u64>(),
            nr_pins: self.pins.len() as u64,
            nr_possible: nr_free / BLOCK_PAGES,
            trouble: self.trouble.counts(),
            nr_before: 0,
            nr_after: 0,
        }
    }

    /// All processes end, and all pins and libraries go.
    pub(super) fn end(&mut self) -> Done {
        self.libraries.clear();
        self.pins.clear();
        self.growing.iter_mut().filter_map(Option::take).chain(self.living.drain(..)).try_for_each(end)
    }
}

fn end(process: Process<'_>) -> Done {
    process.look()
}
