//! Sequences that are worth running: mostly calls that succeed, on ranges that
//! touch each other, with some that must fail in each way there is.
//!
//! The generator keeps the model beside it, so it knows what is mapped, and
//! drops a step whose outcome the model does not know.

use crate::model::{EXEC, Expected, Model, READ, WRITE};
use crate::op::{Call, HEAP, Op, PAGE, TASK_SIZE, WINDOW, WINDOW_PAGES};
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
    /// Whether the host has guard pages (`MADV_GUARD_INSTALL`, Linux 6.13).
    pub guards: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { nr_ops: 300, nr_programs: 3, pages: (WINDOW / PAGE, WINDOW_PAGES), heap: true, guards: true }
    }
}

const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_NORESERVE: u64 = 0x4000;
const MAP_POPULATE: u64 = 0x8000;
const MAP_NOREPLACE: u64 = 0x10_0000;
const PROTS: [u64; 10] = [3, 3, 3, 3, 1, 1, 0, 7, 5, 2];
const ADVICE: [u64; 26] =
    [4, 4, 4, 4, 8, 8, 10, 11, 18, 18, 19, 22, 22, 23, 23, 102, 102, 103, 0, 1, 2, 3, 16, 17, 20, 21];

/// A generated sequence, with what has to come of each step.
pub type Sequence = Vec<(Op, Expected)>;

/// The sequence of `seed`.
pub fn sequence(seed: u64, limits: Limits) -> Sequence {
    let mut maker = Maker { random: Random::new(seed), model: Model::default(), limits, done: Vec::new() };
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
            self.push(Op::new(who, Call::Exit, &[]));
        }
    }

    fn who(&mut self) -> u64 {
        let programs: Vec<u64> = self.model.programs().collect();
        self.random.pick(&programs)
    }

    fn step(&mut self) -> Op {
        let who = self.who();
        match self.random.below(100) {
            0..14 => self.mmap(who),
            14..20 => self.munmap(who),
            20..28 => self.mprotect(who),
            28..35 => self.mremap(who),
            35..38 if self.limits.heap => self.brk(who),
            35..52 => self.madvise(who),
            52..58 => self.mincore(who),
            58..60 => self.fork_or_exit(who),
            60..76 => self.load(who),
            76..97 => self.store(who),
            _ => self.exec(who),
        }
    }

    fn nr_pages(&mut self) -> u64 {
        let nr = match self.random.below(100) {
            0..60 => 1 + self.random.below(8),
            60..88 => 1 + self.random.below(64),
            88..98 => 1 + self.random.below(600),
            _ => 1 + self.random.below(2500),
        };
        nr.min(self.limits.pages.1 / 2)
    }

    /// A page of the window; most lie around the end of one 2 MiB, so that ranges
    /// meet each other and the ends of tables.
    fn page(&mut self) -> u64 {
        let (first, nr_pages) = self.limits.pages;
        match self.random.chance(75) {
            true => first + (416 + self.random.below(192)) % nr_pages,
            false => first + self.random.below(nr_pages),
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
            4 => (TASK_SIZE - self.random.below(2) * PAGE, 2 * PAGE),
            5 => (1 << 63 | addr, len),
            _ => (addr, (1 << 47) + self.random.below(1 << 60)),
        }
    }

    fn mmap(&mut self, who: u64) -> Op {
        let nr = self.nr_pages();
        let kind = if self.random.chance(80) { MAP_PRIVATE } else { MAP_SHARED };
        let mut flags = MAP_ANONYMOUS | kind;
        flags |= self.random.pick(&[0, 0, 0, 0, 0, 0, MAP_POPULATE, MAP_NORESERVE]);
        let mut addr = match self.random.below(10) {
            0..3 => self.hole(who, nr),
            3 => 0,
            _ => self.any().0,
        };
        let landing = self.hole(who, nr);
        flags |= match self.random.below(10) {
            0..4 if addr != 0 => MAP_FIXED,
            4..6 if addr != 0 => MAP_NOREPLACE,
            _ => 0,
        };
        let mut len = nr * PAGE;
        if self.random.chance(9) {
            (addr, len) = self.wild(addr, len);
            flags |= MAP_FIXED;
        } else if self.random.chance(3) {
            flags = flags & !0xf | self.random.pick(&[0, 3, 4, 7, 15]);
        } else {
            // The window's end is the end.
            let (first, nr_pages) = self.limits.pages;
            len = len.min(((first + nr_pages) * PAGE).saturating_sub(addr).max(PAGE));
        }
        let prot = self.random.pick(&PROTS);
        Op::new(who, Call::Mmap, &[addr, len, prot, flags, landing])
    }

    fn munmap(&mut self, who: u64) -> Op {
        let (mut addr, mut len) = self.range(who);
        if self.random.chance(12) {
            (addr, len) = self.wild(addr, len);
        }
        Op::new(who, Call::Munmap, &[addr, len])
    }

    fn mprotect(&mut self, who: u64) -> Op {
        let (mut addr, mut len) = self.range(who);
        let mut prot = self.random.pick(&PROTS);
        match self.random.below(100) {
            0..8 => (addr, len) = self.wild(addr, len),
            8..11 => prot = 1 << (4 + self.random.below(20)),
            _ => {}
        }
        Op::new(who, Call::Mprotect, &[addr, len, prot])
    }

    fn mremap(&mut self, who: u64) -> Op {
        let (mut old, mut old_len) = self.range(who);
        let nr = match self.random.below(4) {
            0 => old_len / PAGE,
            1 => old_len / PAGE / 2,
            _ => self.nr_pages().min(600),
        };
        let mut new_len = (nr * PAGE).max(if self.random.chance(3) { 0 } else { PAGE });
        let mut flags = self.random.pick(&[0, 1, 1, 1, 3, 3, 3, 5, 7]);
        if flags & 4 != 0 && self.random.chance(80) {
            new_len = old_len;
        }
        let (first, nr_pages) = self.limits.pages;
        let end = (first + nr_pages) * PAGE;
        if (first * PAGE..end).contains(&old) {
            // What grows in place stays in the window.
            new_len = new_len.min(end - old);
        }
        let pages = new_len.div_ceil(PAGE).max(1);
        let landing = self.hole(who, pages);
        let mut new = match (flags & 2 != 0, self.random.chance(70)) {
            (false, _) => 0,
            (true, true) => landing,
            (true, false) => self.any().0,
        };
        if new + new_len > end {
            new = landing;
        }
        match self.random.below(100) {
            0..6 => (old, old_len) = self.wild(old, old_len),
            6..9 => flags = 8 << self.random.below(8),
            9..11 => new |= 1,
            11..14 => old_len = 0,
            14..16 => new_len = self.random.pick(&[0, u64::MAX, 1 << 47, 1 << 60]),
            _ => {}
        }
        if flags & 2 != 0 && new == 0 {
            flags &= !2;
        }
        Op::new(who, Call::Mremap, &[old, old_len, new_len, flags, new, landing])
    }

    fn brk(&mut self, who: u64) -> Op {
        let addr = match self.random.below(12) {
            0 => 0,
            1 => HEAP - 1,
            _ => HEAP + self.random.below(96 * PAGE),
        };
        Op::new(who, Call::Brk, &[addr])
    }

    fn madvise(&mut self, who: u64) -> Op {
        let (mut addr, mut len) = self.range(who);
        let mut advice = self.random.pick(&ADVICE);
        if !self.limits.guards && advice > 100 {
            advice = 4;
        }
        match self.random.below(100) {
            0..7 => (addr, len) = self.wild(addr, len),
            7..9 => advice = self.random.pick(&[5, 6, 7, 26, 99, 104, u64::MAX]),
            _ => {}
        }
        // Advice that holes do not stop would reach other mappings.
        if addr.checked_add(len).is_some_and(|end| end > WINDOW + (WINDOW_PAGES + 512) * PAGE && end <= TASK_SIZE) {
            len = len.min(PAGE);
        }
        Op::new(who, Call::Madvise, &[addr, len, advice])
    }

    fn mincore(&mut self, who: u64) -> Op {
        let (mut addr, len) = self.range(who);
        let mut len = len.min(64 * PAGE);
        if self.random.chance(8) {
            (addr, len) = self.wild(addr, len);
        }
        Op::new(who, Call::Mincore, &[addr, len])
    }

    fn fork_or_exit(&mut self, who: u64) -> Op {
        let alive: Vec<u64> = self.model.programs().collect();
        let free = (1..self.limits.nr_programs).find(|number| !alive.contains(number));
        match free {
            Some(child) if alive.len() == 1 || self.random.chance(60) => Op::new(who, Call::Fork, &[child]),
            _ => Op::new(self.random.pick(&alive), Call::Exit, &[]),
        }
    }

    /// An address to access: mostly one that was written before or will be again.
    fn target(&mut self, who: u64, bytes: u64) -> u64 {
        let (start, nr) = if self.random.chance(93) { self.mapped(who) } else { self.any() };
        let page = start + self.random.below(nr) * PAGE;
        let offset = match bytes {
            8 => self.random.pick(&[0, 8, 8, 4088, 2048]),
            _ => self.random.pick(&[0, 9, 15, 4095, 2048]),
        };
        match self.random.below(100) {
            0 => self.random.pick(&[0, 8, 4096, TASK_SIZE, TASK_SIZE - 8, 0xffff_8000_0000_0000, u64::MAX & !7]),
            _ => page + offset,
        }
    }

    fn load(&mut self, who: u64) -> Op {
        let bytes = self.random.pick(&[1, 8, 8]);
        let addr = self.target(who, bytes);
        Op::new(who, Call::Load, &[addr, bytes])
    }

    fn store(&mut self, who: u64) -> Op {
        let bytes = self.random.pick(&[1, 8, 8]);
        let addr = self.target(who, bytes);
        let value = if bytes == 1 && self.random.chance(30) { 0xc3 } else { self.random.next() };
        Op::new(who, Call::Store, &[addr, bytes, value])
    }

    /// Writes a `ret` first, if the page can be written.
    fn exec(&mut self, who: u64) -> Op {
        let addr = self.target(who, 1);
        if self.random.chance(70) && self.model.rights(who, addr).is_some_and(|p| p & (WRITE | EXEC) != 0) {
            self.push(Op::new(who, Call::Mprotect, &[addr & !(PAGE - 1), PAGE, READ | WRITE]));
            self.push(Op::new(who, Call::Store, &[addr, 1, 0xc3]));
            let prot = self.random.pick(&[READ | EXEC, READ | WRITE | EXEC, READ]);
            self.push(Op::new(who, Call::Mprotect, &[addr & !(PAGE - 1), PAGE, prot]));
        }
        if self.random.chance(50) {
            self.push(Op::new(who, Call::Load, &[addr, 1]));
        }
        Op::new(who, Call::Exec, &[addr])
    }
}

#[cfg(test)]
mod tests;
