//! Steps about huge pages: their knobs, and short sequences in which there are
//! some and something happens to them.

use super::Maker;
use crate::numbers::{MADV_COLLAPSE, MADV_HUGEPAGE, MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE};
use crate::op::{Call, KnobBits, Op, PAGE};

const HUGE_PAGES: u64 = 512;

impl Maker {
    /// How a sequence begins: so that each setting is the first of many.
    pub(super) fn first_knobs(&mut self) {
        if self.limits.knobs {
            let op = self.knobs(0);
            self.push(op);
            let disable = u64::from(self.random.chance(25));
            self.push(Op::new(0, Call::ThpDisable, &[disable]));
        }
    }

    fn knobs(&mut self, who: u64) -> Op {
        let enabled = self.random.pick(&[0, 0, 0, 1, 1, 2]);
        let sizes = u64::from(self.random.chance(30)) << 2;
        let rest = self.random.below(KnobBits::COUNT / 8) << 3;
        Op::new(who, Call::Knobs, &[enabled | sizes | rest])
    }

    pub(super) fn huge(&mut self, who: u64) -> Op {
        match self.random.below(10) {
            0 | 1 if self.limits.knobs => self.knobs(who),
            2 if self.limits.knobs => Op::new(who, Call::ThpDisable, &[self.random.below(2)]),
            0..7 => self.huge_mapping(who),
            _ => self.collapse(who),
        }
    }

    /// One or two aligned 2 MiB, mapped where anything may have been, and touched.
    fn huge_mapping(&mut self, who: u64) -> Op {
        let (first, nr_pages) = self.limits.pages;
        let start = first.next_multiple_of(HUGE_PAGES) + HUGE_PAGES * self.random.below(3);
        let nr = HUGE_PAGES * (1 + self.random.below(2));
        if start + nr > first + nr_pages {
            return self.load(who);
        }
        let at = start * PAGE;
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        self.push(Op::new(who, Call::Mmap, &[at, nr * PAGE, 3, flags, 0]));
        if self.random.chance(60) {
            self.push(Op::new(who, Call::Madvise, &[at, nr * PAGE, MADV_HUGEPAGE]));
        }
        for _ in 0..1 + self.random.below(6) {
            let addr = at + self.random.below(nr) * PAGE;
            let value = self.random.number();
            match self.random.below(4) {
                0 => self.push(Op::new(who, Call::Load, &[addr, 8])),
                _ => self.push(Op::new(who, Call::Store, &[addr, 8, value])),
            }
        }
        let (first, len) = (at + self.random.below(nr - 1) * PAGE, (1 + self.random.below(64)) * PAGE);
        match self.random.below(6) {
            0 => self.fork_or_exit(who),
            1 => Op::new(who, Call::Munmap, &[first, len]),
            2 => {
                let advice = self.random.pick(&[4, 4, 8, 18, 102]);
                Op::new(who, Call::Madvise, &[first, len, advice])
            }
            3 => Op::new(who, Call::Mprotect, &[first, len, 1]),
            4 => Op::new(who, Call::Mincore, &[first, len]),
            _ => {
                let to = self.hole(who, len / PAGE);
                let flags = if to == 0 { 1 } else { 3 };
                Op::new(who, Call::Mremap, &[first, len, len, flags, to, to])
            }
        }
    }

    fn collapse(&mut self, who: u64) -> Op {
        let (start, nr) = self.mapped(who);
        let (first, nr_pages) = self.limits.pages;
        let base = start / PAGE / HUGE_PAGES * HUGE_PAGES;
        let wanted = HUGE_PAGES * (1 + self.random.below(2));
        let inside = base >= first && base + wanted <= first + nr_pages;
        let (at, nr) = if inside && self.random.chance(66) { (base * PAGE, wanted) } else { (start, nr) };
        self.push(Op::new(who, Call::Madvise, &[at, nr * PAGE, MADV_COLLAPSE]));
        Op::new(who, Call::Mincore, &[at, nr.min(64) * PAGE])
    }
}
