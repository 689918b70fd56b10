//! One function for each kind of step: its arguments, mostly good.

use super::Maker;
use crate::model::{EXEC, READ, WRITE};
use crate::numbers::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_LOCKED, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE,
    MAP_SHARED,
};
use crate::op::{Call, HEAP, HEAP_BYTES, Op, PAGE, WINDOW, WINDOW_PAGES};

/// Pages of a locked mapping: a few of these fit.
pub(super) const LOCKED_PAGES: u64 = 64;
pub(super) const PROTS: [u64; 20] = [3, 3, 3, 3, 3, 3, 3, 3, 1, 1, 1, 1, 0, 0, 7, 7, 5, 2, 2, 4];
pub(super) const ADVICE: [u64; 31] = [
    4, 4, 4, 4, 8, 8, 9, 14, 15, 10, 11, 18, 18, 19, 22, 22, 23, 23, 24, 25, 102, 102, 103, 0, 1, 2, 3, 16, 17, 20, 21,
];

impl Maker {
    pub(super) fn mmap(&mut self, who: u64) -> Op {
        let mut nr = self.nr_pages();
        let kind = if self.random.chance(80) { MAP_PRIVATE } else { MAP_SHARED };
        let mut flags = MAP_ANONYMOUS | kind;
        flags |= self.random.pick(&[
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            MAP_POPULATE,
            MAP_POPULATE,
            MAP_NORESERVE,
            MAP_LOCKED,
        ]);
        if flags & MAP_LOCKED != 0 {
            nr = nr.min(LOCKED_PAGES);
        } else if self.limits.grows && self.random.chance(8) {
            flags |= MAP_GROWSDOWN;
        }
        let mut addr = match self.random.below(10) {
            0..3 => self.hole(who, nr),
            3 => self.random.pick(&[0, 0, 0, 1, 4095, 8192]),
            _ => self.any().0,
        };
        let landing = self.hole(who, nr);
        flags |= match self.random.below(10) {
            0..4 if addr != 0 => MAP_FIXED,
            4..6 if addr != 0 => MAP_FIXED_NOREPLACE,
            // A hint need not be aligned.
            6 if addr != 0 => {
                addr += self.random.below(PAGE);
                0
            }
            _ => 0,
        };
        if self.limits.heap && self.random.chance(2) {
            // In the way of the heap, or in the middle of it.
            addr = HEAP + self.random.below(100) * PAGE;
            nr = 1 + nr % 4;
            flags = flags & !MAP_GROWSDOWN | MAP_FIXED;
        }
        if addr < PAGE * 16 {
            // The lowest pages are the host's to give or refuse; and what was first
            // mapped so low does not grow on Linux (its page offset would wrap).
            flags &= !(MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_GROWSDOWN);
        }
        let mut len = nr * PAGE;
        if self.random.chance(9) {
            (addr, len) = self.wild(addr, len);
            // A wild hint is no error, but one near the window is not wild.
            flags |= if addr > HEAP + HEAP_BYTES && self.random.chance(50) { 0 } else { MAP_FIXED };
        } else {
            if self.random.chance(3) {
                flags = flags & !0xf | self.random.pick(&[0, 3, 4, 7, 15]);
            }
            // The window's end is the end.
            let (first, nr_pages) = self.limits.pages;
            if addr < HEAP {
                len = len.min(((first + nr_pages) * PAGE).saturating_sub(addr).max(PAGE));
            }
        }
        let prot = self.random.pick(&PROTS);
        Op::new(who, Call::Mmap, &[addr, len, prot, flags, landing])
    }

    pub(super) fn munmap(&mut self, who: u64) -> Op {
        let (mut addr, mut len) = self.range(who);
        if self.random.chance(12) {
            (addr, len) = self.wild(addr, len);
        }
        Op::new(who, Call::Munmap, &[addr, len])
    }

    pub(super) fn mprotect(&mut self, who: u64) -> Op {
        let (mut addr, mut len) = self.range(who);
        let mut prot = self.random.pick(&PROTS);
        match self.random.below(100) {
            0..8 => (addr, len) = self.wild(addr, len),
            11..15 => prot |= self.random.pick(&[1 << 24, 1 << 24, 1 << 24, 1 << 25, 3 << 24]),
            8..11 => prot = 1 << (4 + self.random.below(20)),
            _ => {}
        }
        Op::new(who, Call::Mprotect, &[addr, len, prot])
    }

    pub(super) fn mremap(&mut self, who: u64) -> Op {
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
        if flags & 2 != 0 && self.random.chance(30) {
            // Only equal sizes move over several mappings.
            new_len = old_len;
        }
        let (first, nr_pages) = self.limits.pages;
        let end = (first + nr_pages) * PAGE;
        if (first * PAGE..end).contains(&old) {
            // A mapping that grows in place stays in the window.
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
            11..14 => {
                old_len = 0;
                if flags & 2 != 0 && self.random.chance(30) {
                    new = old & !(PAGE - 1);
                }
            }
            14..16 => new_len = self.random.pick(&[0, u64::MAX, self.limits.task_size + PAGE, 1 << 60]),
            _ => {}
        }
        if flags & 2 != 0 && new == 0 {
            flags &= !2;
        }
        Op::new(who, Call::Mremap, &[old, old_len, new_len, flags, new, landing])
    }

    pub(super) fn brk(&mut self, who: u64) -> Op {
        let addr = match self.random.below(12) {
            0 => 0,
            1 => HEAP - 1,
            _ => HEAP + self.random.below(96 * PAGE),
        };
        Op::new(who, Call::Brk, &[addr])
    }

    pub(super) fn madvise(&mut self, who: u64) -> Op {
        let (mut addr, mut len) = self.range(who);
        let mut advice = self.random.pick(&ADVICE);
        match self.random.below(100) {
            0..7 => (addr, len) = self.wild(addr, len),
            7..9 => advice = self.random.pick(&[5, 6, 7, 26, 99, 104, u64::MAX]),
            _ => {}
        }
        // Advice that holes do not stop would reach other mappings.
        if addr
            .checked_add(len)
            .is_some_and(|end| end > WINDOW + (WINDOW_PAGES + 512) * PAGE && end <= self.limits.task_size)
        {
            len = len.min(PAGE);
        }
        Op::new(who, Call::Madvise, &[addr, len, advice])
    }

    pub(super) fn mincore(&mut self, who: u64) -> Op {
        let (mut addr, len) = self.range(who);
        let mut len = len.min(64 * PAGE);
        if self.random.chance(8) {
            (addr, len) = self.wild(addr, len);
        }
        Op::new(who, Call::Mincore, &[addr, len])
    }

    pub(super) fn fork_or_exit(&mut self, who: u64) -> Op {
        let alive: Vec<u64> = self.model.programs().collect();
        let free = (1..self.limits.nr_programs).find(|number| !alive.contains(number));
        match free {
            Some(child) if alive.len() == 1 || self.random.chance(60) => Op::new(who, Call::Fork, &[child]),
            _ => Op::new(self.random.pick(&alive), Call::Exit, &[]),
        }
    }

    /// An address to access: mostly one that was written before or will be again.
    pub(super) fn target(&mut self, who: u64, bytes: u64) -> u64 {
        let (start, nr) = if self.random.chance(93) { self.mapped(who) } else { self.any() };
        let page = start + self.random.below(nr) * PAGE;
        let offset = match bytes {
            8 => self.random.pick(&[0, 8, 8, 4088, 2048]),
            _ => self.random.pick(&[0, 9, 15, 4095, 2048]),
        };
        match self.random.below(100) {
            0 => {
                let end = self.limits.task_size;
                self.random.pick(&[0, 8, 4096, end, end - 8, 0xffff_8000_0000_0000, u64::MAX - 7])
            }
            1..5 if self.limits.grows => (start - (1 + self.random.below(12)) * PAGE) + offset,
            _ => page + offset,
        }
    }

    pub(super) fn load(&mut self, who: u64) -> Op {
        let bytes = self.random.pick(&[1, 8, 8]);
        let addr = self.target(who, bytes);
        Op::new(who, Call::Load, &[addr, bytes])
    }

    pub(super) fn store(&mut self, who: u64) -> Op {
        let bytes = self.random.pick(&[1, 8, 8]);
        let addr = self.target(who, bytes);
        let value = if bytes == 1 && self.random.chance(30) { 0xc3 } else { self.random.number() };
        Op::new(who, Call::Store, &[addr, bytes, value])
    }

    /// Writes a `ret` first, if the page can be written.
    pub(super) fn exec(&mut self, who: u64) -> Op {
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
