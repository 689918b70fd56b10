//! Ages memory by use: programs map, touch, fork, unmap and exit at random until memory looks as it
//! does after long use. `state` sets the bitmaps instead; both have to agree.
//!
//! Programs' frames are returned to the host from time to time, so that 16 GiB take little of its
//! memory: nothing is ever written to them.

use super::options::Config;
use crate::conflicts::machine::{self, Simulated};
use crate::error::LabError;
use softfault_recorded::addr::Access;
use softfault_recorded::{
    AddressSpace, Advice, FaultError, ForkError, MadviseError, MapFlags, MmapError, MunmapError, Prot, Vm,
};

const PAGE_BYTES: u64 = 4096;
const BLOCK_PAGES: u64 = 512;
/// Programs at a time.
const NR_PROGRAMS: usize = 24;
/// How often as much as all of memory is touched.
const TURNOVERS: u64 = 1;
/// Percent of memory between which what is free goes up and down; it ends at the upper.
const FREE_PERCENT: std::ops::Range<u64> = 5..30;
/// Pages that a program touches at once, and gives back at once, at most: log2.
const BURST_SHIFT: u64 = 6;
/// Things done between two changes of programs, about.
const SLICE: u64 = 512;
/// Things done between two looks at how much is free.
const STEPS_PER_LOOK: u32 = 1024;
/// Pages touched between two returns to the host.
const PAGES_PER_RETURN: u64 = 1 << 19;

type Space<'a> = AddressSpace<'a, Simulated>;

/// Memory that a program has mapped.
#[derive(Clone)]
struct Area {
    at: u64,
    nr_pages: u64,
    /// Of them, how many from the first on it has touched.
    nr_touched: u64,
}

/// A program.
struct Program<'a> {
    space: Space<'a>,
    areas: Vec<Area>,
}

/// The state of the ageing.
struct Ageing<'a> {
    vm: &'a Vm<Simulated>,
    cpus: u64,
    nr_pages: u64,
    programs: Vec<Program<'a>>,
    state: u64,
    nr_touched: u64,
    /// Pages touched since the host got memory back.
    nr_since: u64,
    /// Whether more is given back than touched.
    is_shrinking: bool,
    /// Which programs the CPUs run.
    turn: u64,
}

/// Ages memory; gives the programs that live on.
pub fn age<'a>(vm: &'a Vm<Simulated>, config: Config, seed: u64) -> Result<Vec<Space<'a>>, LabError> {
    let (cpus, nr_pages) = (u64::from(config.cpus), config.bytes / PAGE_BYTES);
    let (programs, state) = (Vec::new(), seed);
    let mut ageing =
        Ageing { vm, cpus, nr_pages, programs, state, nr_touched: 0, nr_since: 0, is_shrinking: false, turn: 0 };
    // It ends where what is free has just come up to its most.
    loop {
        let was_shrinking = ageing.is_shrinking;
        ageing.look();
        if ageing.nr_touched > TURNOVERS * nr_pages && was_shrinking && !ageing.is_shrinking {
            break;
        }
        for _ in 0..STEPS_PER_LOOK {
            ageing.step()?;
        }
    }
    ageing.give_back_to_host();
    Ok(ageing.programs.into_iter().map(|program| program.space).collect())
}

impl<'a> Ageing<'a> {
    fn random(&mut self, below: u64) -> u64 {
        self.state = self.state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.state >> 33) % below
    }

    /// Small numbers most often: from 1 to 2^`shift`.
    fn random_log(&mut self, shift: u64) -> u64 {
        let most = 1 << self.random(shift + 1);
        1 + self.random(most)
    }

    /// Whether it is time to shrink, or no longer.
    fn look(&mut self) {
        let blocks = 0..self.vm.nr_blocks();
        let nr_free: u64 = blocks.flat_map(|b| self.vm.free_bits(b)).map(|word| u64::from(word.count_ones())).sum();
        let percent = nr_free * 100 / self.nr_pages;
        self.is_shrinking = if self.is_shrinking { percent < FREE_PERCENT.end } else { percent < FREE_PERCENT.start };
        if self.nr_since > PAGES_PER_RETURN {
            self.give_back_to_host();
        }
    }

    /// One thing that some program does.
    fn step(&mut self) -> Result<(), LabError> {
        let cpu = self.random(self.cpus);
        machine::become_cpu(cpu as u16);
        if self.programs.len() < NR_PROGRAMS / 2 {
            return self.begin();
        }
        // A program runs for a while before the CPU takes another one.
        if self.random(SLICE) == 0 {
            self.turn = self.random(1 << 20);
        }
        let i = ((self.turn + cpu) % self.programs.len() as u64) as usize;
        match self.random(8192) {
            0 => drop(self.programs.swap_remove(i)),
            1 => self.fork(i)?,
            2 => self.begin()?,
            3..64 => self.map(i)?,
            64..80 => self.unmap(i)?,
            n if (n % 4 == 0) != self.is_shrinking => self.give_back(i)?,
            _ => self.touch(i)?,
        }
        Ok(())
    }

    /// Memory is short: a program ends.
    fn end_one(&mut self) {
        self.is_shrinking = true;
        let i = self.random(self.programs.len() as u64) as usize;
        self.programs.swap_remove(i);
    }

    fn begin(&mut self) -> Result<(), LabError> {
        match self.vm.new_space() {
            Ok(space) => {
                // Every other program has small pages only.
                space.set_thp_disable(self.random(2) == 0);
                self.programs.push(Program { space, areas: vec![] });
            }
            Err(_) if !self.programs.is_empty() => self.end_one(),
            Err(e) => return Err(LabError::subsystem("a program while memory ages", e)),
        }
        Ok(())
    }

    fn fork(&mut self, i: usize) -> Result<(), LabError> {
        if self.programs.len() >= NR_PROGRAMS {
            return Ok(());
        }
        match self.programs[i].space.fork() {
            Ok(space) => self.programs.push(Program { space, areas: self.programs[i].areas.clone() }),
            Err(ForkError::OutOfFrames(_)) => self.end_one(),
            Err(e) => return Err(LabError::subsystem("fork while memory ages", e)),
        }
        Ok(())
    }

    fn map(&mut self, i: usize) -> Result<(), LabError> {
        let shift = u64::from((self.nr_pages / 100).ilog2());
        let nr_pages = self.random_log(shift);
        let prot = Prot::READ | Prot::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::NORESERVE;
        match self.programs[i].space.mmap(0, nr_pages * PAGE_BYTES, prot, flags) {
            Ok(at) => self.programs[i].areas.push(Area { at, nr_pages, nr_touched: 0 }),
            Err(MmapError::OutOfFrames(_)) => self.end_one(),
            Err(e) => return Err(LabError::subsystem("mmap while memory ages", e)),
        }
        Ok(())
    }

    fn unmap(&mut self, i: usize) -> Result<(), LabError> {
        let Some(area) = self.any_area(i) else { return Ok(()) };
        let Area { at, nr_pages, .. } = self.programs[i].areas.swap_remove(area);
        match self.programs[i].space.munmap(at, nr_pages * PAGE_BYTES) {
            Err(MunmapError::OutOfFrames(_)) => self.end_one(),
            done => done.map_err(|e| LabError::subsystem("munmap while memory ages", e))?,
        }
        Ok(())
    }

    fn any_area(&mut self, i: usize) -> Option<usize> {
        let nr = self.programs[i].areas.len() as u64;
        (nr > 0).then(|| self.random(nr) as usize)
    }

    /// Some adjacent pages of an area: the next ones, or some that it has had before.
    fn touch(&mut self, i: usize) -> Result<(), LabError> {
        let Some(area) = self.any_area(i) else { return self.map(i) };
        let nr = self.random_log(BURST_SHIFT);
        let Area { at, nr_pages, nr_touched } = self.programs[i].areas[area].clone();
        if nr_touched == nr_pages && self.random(4) > 0 {
            return self.map(i);
        }
        let first = if nr_touched < nr_pages { nr_touched } else { self.random(nr_pages) };
        let end = (first + nr).min(nr_pages);
        self.programs[i].areas[area].nr_touched = nr_touched.max(end);
        for page in first..end {
            match self.programs[i].space.handle_fault(at + page * PAGE_BYTES, Access::Write) {
                Ok(_) => self.nr_touched += 1,
                Err(FaultError::OutOfFrames) => {
                    self.end_one();
                    break;
                }
                Err(e) => return Err(LabError::subsystem("a fault while memory ages", e)),
            }
        }
        self.nr_since += end - first;
        Ok(())
    }

    /// Some adjacent pages of an area are not needed any more.
    fn give_back(&mut self, i: usize) -> Result<(), LabError> {
        let Some(area) = self.any_area(i) else { return Ok(()) };
        let nr = self.random_log(BURST_SHIFT);
        let Area { at, nr_touched, .. } = self.programs[i].areas[area];
        if nr_touched > 0 {
            let first = self.random(nr_touched);
            let nr = nr.min(nr_touched - first);
            match self.programs[i].space.madvise(at + first * PAGE_BYTES, nr * PAGE_BYTES, Advice::DontNeed) {
                Err(MadviseError::OutOfFrames(_)) => self.end_one(),
                done => done.map_err(|e| LabError::subsystem("madvise while memory ages", e))?,
            }
        }
        Ok(())
    }

    fn give_back_to_host(&mut self) {
        self.nr_since = 0;
        for b in (0..self.vm.nr_blocks()).filter(|b| self.vm.has_pages_only(*b)) {
            let first = u64::from(b) * BLOCK_PAGES;
            self.vm.machine().forget(first..first + BLOCK_PAGES);
        }
    }
}
