//! Steps for what random arguments rarely meet: each class of flags in each kind
//! of place equally often, and short sequences that lead to a corner.

use super::Maker;
use super::calls::*;
use crate::numbers::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_LOCKED, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE,
    MAP_SHARED,
};
use crate::op::{Call, Op, PAGE};

impl Maker {
    pub(super) fn rare(&mut self, who: u64) -> Op {
        match self.random.below(10) {
            0..4 => self.any_mmap(who),
            4..7 => self.any_mremap(who),
            7 => self.move_of_several(who),
            8 => self.locked(who),
            _ => self.populate_guards(who),
        }
    }

    fn any_mmap(&mut self, who: u64) -> Op {
        let kind = self.random.pick(&[MAP_PRIVATE, MAP_SHARED, 4]);
        let how = self.random.pick(&[MAP_FIXED, MAP_FIXED_NOREPLACE, 0, 0]);
        let mut extra = self.random.pick(&[0, MAP_POPULATE, MAP_NORESERVE, MAP_LOCKED, MAP_GROWSDOWN]);
        if !self.limits.grows {
            extra &= !MAP_GROWSDOWN;
        }
        let nr = 1 + self.random.below(16);
        let (mut addr, mut len) = match self.random.below(3) {
            0 => (self.mapped(who).0, nr * PAGE),
            _ => (self.hole(who, nr), nr * PAGE),
        };
        let (first, nr_pages) = self.limits.pages;
        let window = first * PAGE..(first + nr_pages) * PAGE;
        if !window.contains(&addr) {
            // No hole, or the heap.
            addr = first * PAGE;
        }
        len = len.min(window.end - addr);
        let landing = self.hole(who, nr);
        if self.random.chance(30) {
            (addr, len) = self.wild(addr, len);
        } else if self.random.chance(10) {
            len = 0;
        } else if how == 0 && self.random.chance(50) {
            addr = 0;
            extra &= !MAP_GROWSDOWN;
        }
        let prot = self.random.pick(&PROTS);
        Op::new(who, Call::Mmap, &[addr, len, prot, kind | how | extra | MAP_ANONYMOUS, landing])
    }

    fn any_mremap(&mut self, who: u64) -> Op {
        let flags = self.random.pick(&[0, 1, 3, 5, 7, 2, 4, 6]);
        let (mut old, nr) = if self.random.chance(75) { self.mapped(who) } else { self.any() };
        let (first, nr_pages) = self.limits.pages;
        let end = (first + nr_pages) * PAGE;
        let nr = nr.min(64);
        let (old_nr, new_nr) = match self.random.below(8) {
            0 => (0, nr),
            1 => (nr, 0),
            2..4 => (nr, nr),
            4..6 => (nr, nr + 1 + self.random.below(8)),
            _ => (nr + 1, 1 + self.random.below(nr)),
        };
        let new_nr = if old < end { new_nr.min((end - old) / PAGE) } else { new_nr };
        let landing = self.hole(who, new_nr.max(1));
        let taken = self.any().0;
        let new = if landing == 0 || self.random.chance(20) { taken.min(end - new_nr * PAGE) } else { landing };
        if self.random.chance(8) {
            old += self.random.below(PAGE);
        }
        let new = if flags & 2 != 0 { new } else { 0 };
        Op::new(who, Call::Mremap, &[old, old_nr * PAGE, new_nr * PAGE, flags, new, landing])
    }

    /// Of a range with a hole, or with a part of other rights.
    fn move_of_several(&mut self, who: u64) -> Op {
        let (start, nr) = self.mapped(who);
        let nr = nr.min(64);
        let cut = start + self.random.below(nr) * PAGE;
        if self.random.chance(40) {
            self.push(Op::new(who, Call::Munmap, &[cut, PAGE]));
        } else {
            let prot = self.random.pick(&PROTS);
            self.push(Op::new(who, Call::Mprotect, &[cut, PAGE, prot]));
        }
        let to = self.hole(who, nr);
        // The part that is cut off is more often of several than the one that stays.
        let (kept, to, flags) = match self.random.below(4) {
            0 => (1 + self.random.below(nr), 0, self.random.below(2)),
            1 => (1 + self.random.below(nr), to, 3),
            _ => (nr, to, self.random.pick(&[3, 3, 7])),
        };
        let flags = if to == 0 { flags & !6 } else { flags };
        Op::new(who, Call::Mremap, &[start, nr * PAGE, kept * PAGE, flags, to, to])
    }

    /// Makes a step that has another result on locked memory.
    fn locked(&mut self, who: u64) -> Op {
        let nr = 1 + self.random.below(16);
        let at = self.hole(who, 3 * nr);
        let kind = self.random.pick(&[MAP_PRIVATE, MAP_PRIVATE, MAP_SHARED]);
        let flags = MAP_ANONYMOUS | MAP_LOCKED | MAP_FIXED | kind;
        if at == 0 {
            return self.mmap(who);
        }
        let prot = self.random.pick(&PROTS);
        self.push(Op::new(who, Call::Mmap, &[at, nr * PAGE, prot, flags, 0]));
        let part = at + self.random.below(nr) * PAGE;
        match self.random.below(4) {
            0 => {
                let advice = self.random.pick(&ADVICE);
                Op::new(who, Call::Madvise, &[part, PAGE, advice])
            }
            1 => {
                self.push(Op::new(who, Call::Mprotect, &[part, PAGE, 3]));
                Op::new(who, Call::Mincore, &[at, nr * PAGE])
            }
            2 => {
                self.push(Op::new(who, Call::Mremap, &[at, nr * PAGE, 2 * nr * PAGE, 1, 0, at + nr * PAGE]));
                Op::new(who, Call::Mincore, &[at, 2 * nr * PAGE])
            }
            _ => {
                // In the child nothing is locked.
                let child = self.fork_or_exit(who);
                self.push(child);
                let who = self.who();
                Op::new(who, Call::Madvise, &[at, nr * PAGE, 4])
            }
        }
    }

    /// The first page that cannot be reached ends it.
    fn populate_guards(&mut self, who: u64) -> Op {
        let (start, nr) = self.mapped(who);
        let at = start + self.random.below(nr) * PAGE;
        self.push(Op::new(who, Call::Madvise, &[at, PAGE, 102]));
        let advice = self.random.pick(&[22, 23]);
        self.push(Op::new(who, Call::Madvise, &[start, nr * PAGE, advice]));
        Op::new(who, Call::Mincore, &[start, nr.min(64) * PAGE])
    }
}
