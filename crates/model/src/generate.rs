//! Generates sequences of calls. Most calls succeed, on adjacent ranges; some fail, in each
//! possible way.
//!
//! The generator runs the model to know what is mapped, and drops steps that the model
//! cannot predict. This file chooses ranges, `calls.rs` makes the steps, and `rare.rs` and
//! `huge.rs` make steps that random choice rarely makes.

mod calls;
mod files;
mod huge;
mod part;
mod pools;
mod rare;

pub use part::part;

use crate::features::Features;
use crate::model::{Expected, Model};
use crate::op::{Call, HEAP, HUGE, Op, PAGE, TASK_SIZE, WINDOW, WINDOW_PAGES};
use crate::random::Random;

/// Which steps a sequence may have.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Steps.
    pub nr_ops: usize,
    /// Programs alive at once, the first included.
    pub nr_programs: u64,
    /// First page of the window's part that is used, and how many pages.
    pub pages: (u64, u64),
    /// Whether the heap may be used.
    pub heap: bool,
    /// Whether mappings may grow (`MAP_GROWSDOWN`), which looks beyond the pages.
    pub grows: bool,
    /// Features that all sides have.
    pub features: Features,
    /// Additional steps about huge pages, in percent of all steps.
    pub huge_percent: u64,
    /// Steps about files, in percent of all steps; with 0 there are none.
    pub file_percent: u64,
    /// Steps about pages of a pool, in percent of all steps; with 0 there are none.
    pub pool_percent: u64,
    /// Whether the knobs of huge pages are the sequence's to set.
    pub knobs: bool,
    /// Whether a Linux does the steps, too.
    pub linux: bool,
    /// Also those about a pool.
    pub linux_pool: bool,
    /// One past the last user address.
    pub task_size: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            nr_ops: 300,
            nr_programs: 3,
            pages: (WINDOW / PAGE, WINDOW_PAGES),
            heap: true,
            grows: true,
            features: Features::default(),
            huge_percent: 0,
            file_percent: 0,
            pool_percent: 0,
            knobs: true,
            linux: false,
            linux_pool: false,
            task_size: TASK_SIZE,
        }
    }
}

/// A generated sequence, with what has to come of each step.
pub type Sequence = Vec<(Op, Expected)>;

/// The sequence of `seed`.
pub fn sequence(seed: u64, limits: Limits) -> Sequence {
    let mut model = Model::new(limits.features).with_task_size(limits.task_size);
    if limits.linux {
        model = model.beside_linux();
    }
    if limits.linux_pool {
        model = model.beside_linux_pool();
    }
    let mut maker = Maker { random: Random::new(seed), model, limits, done: Vec::new() };
    maker.first_knobs();
    if limits.file_percent > 0 {
        maker.push(Op::new(0, Call::MakeFiles, &[]));
    }
    if limits.pool_percent > 0 {
        maker.first_pool();
    }
    while maker.done.len() < limits.nr_ops {
        let op = maker.step();
        maker.push(op);
    }
    maker.finish();
    maker.done
}

struct Maker {
    random: Random,
    model: Model,
    limits: Limits,
    done: Sequence,
}

impl Maker {
    fn push(&mut self, op: Op) {
        if !self.limits.features.cover(&op) {
            return;
        }
        if let Ok(expected) = self.model.apply(&op) {
            self.done.push((op, expected));
        }
    }

    /// Looks at what was written and ends all programs but the first.
    fn finish(&mut self) {
        let programs: Vec<u64> = self.model.programs().collect();
        for who in programs.into_iter().rev() {
            for page in self.model.written_pages(who, 24) {
                self.push(Op::new(who, Call::Load, &[page, 8]));
            }
            for page in self.model.pool_pages(who) {
                self.push(Op::new(who, Call::Load, &[page * HUGE, 8]));
            }
            self.push(Op::new(who, Call::Exit, &[]));
        }
    }

    fn who(&mut self) -> u64 {
        let programs: Vec<u64> = self.model.programs().collect();
        self.random.pick(&programs)
    }

    fn step(&mut self) -> Op {
        let who = self.who();
        // At 0 no number is drawn: the sequences of known seeds stay what they are.
        if self.model.has_file() && self.random.chance(self.limits.file_percent) {
            return self.file(who);
        }
        if self.limits.pool_percent > 0 && self.random.chance(self.limits.pool_percent) {
            return self.pool(who);
        }
        if self.limits.huge_percent > 0 && self.random.chance(self.limits.huge_percent) {
            return self.huge(who);
        }
        match self.random.below(100) {
            0..14 => self.mmap(who),
            14..20 => self.munmap(who),
            20..28 => self.mprotect(who),
            28..35 => self.mremap(who),
            35..38 if self.limits.heap => self.brk(who),
            35..52 => self.madvise(who),
            52..58 => self.mincore(who),
            58..60 => self.fork_or_exit(who),
            60..75 => self.load(who),
            75..91 => self.store(who),
            91..95 => self.huge(who),
            95..98 => self.rare(who),
            _ => self.exec(who),
        }
    }

    fn nr_pages(&mut self) -> u64 {
        let nr = match self.random.below(100) {
            0..60 => 1 + self.random.below(8),
            60..88 => 1 + self.random.below(64),
            88..95 => 1 + self.random.below(600),
            95..98 => 512 * (1 + self.random.below(2)) + self.random.pick(&[0, 0, 0, 1]),
            _ => 1 + self.random.below(2500),
        };
        nr.min(self.limits.pages.1 / 2)
    }

    /// A page of the window; most lie around the end of one 2 MiB, so that ranges
    /// meet each other and the ends of tables.
    fn page(&mut self) -> u64 {
        let (first, nr_pages) = self.limits.pages;
        match self.random.below(100) {
            0..70 => first + (416 + self.random.below(192)) % nr_pages,
            // Where a huge page begins.
            70..80 => first + 512 * self.random.below(4) % nr_pages,
            _ => first + self.random.below(nr_pages),
        }
    }

    /// Start and pages of a range of the window, mapped or not.
    fn any(&mut self) -> (u64, u64) {
        let (page, nr) = (self.page(), self.nr_pages());
        let (first, nr_pages) = self.limits.pages;
        (page * PAGE, nr.min(first + nr_pages - page).max(1))
    }

    /// Start and pages of a range that is mapped, if there is any.
    fn mapped(&mut self, who: u64) -> (u64, u64) {
        if self.model.has_file()
            && self.random.chance(self.limits.file_percent)
            && let Some(range) = self.of_file(who)
        {
            return range;
        }
        let from = if self.limits.heap && self.random.chance(4) { HEAP / PAGE } else { self.page() };
        let nr = self.nr_pages();
        match self.model.mapped_near(who, from, nr) {
            Some((first, nr)) => (first * PAGE, nr),
            None => self.any(),
        }
    }

    /// Mostly mapped, sometimes anything, as (start, bytes).
    fn range(&mut self, who: u64) -> (u64, u64) {
        let (start, nr) = if self.random.chance(88) { self.mapped(who) } else { self.any() };
        // A length need not be whole pages.
        let bytes = if self.random.chance(10) { nr * PAGE - self.random.below(PAGE) } else { nr * PAGE };
        (start, bytes)
    }

    /// A hole of `nr` pages, or 0.
    fn hole(&mut self, who: u64, nr: u64) -> u64 {
        let (first, nr_pages) = self.limits.pages;
        for _ in 0..12 {
            let page = self.page();
            if page + nr <= first + nr_pages && self.model.is_hole(who, page, page + nr) {
                return page * PAGE;
            }
        }
        0
    }

    /// Addresses and lengths that no call accepts; nothing that exists is hit.
    fn wild(&mut self, addr: u64, len: u64) -> (u64, u64) {
        match self.random.below(7) {
            0 => (addr | 1 << self.random.below(12), len),
            1 => (addr, 0),
            2 => (u64::MAX - self.random.below(1 << 20), len),
            3 => (addr, u64::MAX - self.random.below(1 << 13)),
            4 => (self.limits.task_size - self.random.below(2) * PAGE, 2 * PAGE),
            5 => (1 << 63 | addr, len),
            _ => (addr, self.limits.task_size + PAGE + self.random.below(1 << 60)),
        }
    }
}

#[cfg(test)]
mod tests;
