//! Steps about pages of a pool: mappings of new memory and of its file, and calls on parts that are no whole pages.
//! Other memory is mapped over them now and then, and they over it.

use super::Maker;
use super::calls::{ADVICE, PROTS};
use crate::numbers::{
    MADV_REMOVE, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_HUGETLB, MAP_NORESERVE,
    MAP_POPULATE, MAP_PRIVATE, MAP_SHARED, MREMAP_FIXED, MREMAP_MAYMOVE,
};
use crate::op::{Call, HUGE, Op, PAGE, POOL_WINDOW, POOL_WINDOW_PAGES};

/// `MAP_HUGE_2MB`.
const HUGE_2MB: u64 = 21 << 26;
/// Pages of the pool that a mapping has at most.
const MOST_PAGES: u64 = 4;
/// Most pages of the pool, and of its file.
const MOST_IN_POOL: u64 = 8;
const MOST_IN_FILE: u64 = 5;

impl Maker {
    /// How a sequence with a pool begins.
    pub(super) fn first_pool(&mut self) {
        let size = self.pool_size(0);
        self.push(size);
        let nr = 1 + self.random.below(MOST_IN_FILE);
        self.push(Op::new(0, Call::PoolFile, &[nr]));
    }

    fn pool_size(&mut self, who: u64) -> Op {
        let nr = self.random.below(MOST_IN_POOL + 1);
        let overcommit = self.random.pick(&[0, 0, 0, 1, 3]);
        Op::new(who, Call::PoolSize, &[nr, overcommit])
    }

    pub(super) fn pool(&mut self, who: u64) -> Op {
        match self.random.below(100) {
            0..15 => self.mmap_pool(who),
            15..25 => self.map_pool_file(who),
            25..29 => {
                let (at, len) = self.pool_range(who);
                Op::new(who, Call::Munmap, &[at, len])
            }
            29..36 => {
                let ((at, len), prot) = (self.pool_range(who), self.random.pick(&PROTS));
                Op::new(who, Call::Mprotect, &[at, len, prot])
            }
            36..42 => self.mremap_pool(who),
            42..52 => {
                let ((at, len), advice) = (self.pool_range(who), self.random.pick(&ADVICE));
                let advice = if self.random.chance(30) { 4 } else { advice };
                Op::new(who, Call::Madvise, &[at, len, advice])
            }
            52..54 => {
                let (at, len) = self.pool_range(who);
                Op::new(who, Call::Mincore, &[at, len.min(64 * PAGE)])
            }
            54..60 => self.fork_or_exit(who),
            60..68 => self.pool_file(who),
            68..72 => self.pool_size(who),
            72..74 => self.other_memory(who),
            74..75 => self.hole_in_promised(who),
            75..84 => {
                let (at, bytes) = self.pool_target(who);
                Op::new(who, Call::Load, &[at, bytes])
            }
            _ => {
                let ((at, bytes), value) = (self.pool_target(who), self.random.number());
                Op::new(who, Call::Store, &[at, bytes, value])
            }
        }
    }

    /// A place in the window, in bytes; mostly near the beginning, so that mappings meet.
    fn pool_place(&mut self) -> u64 {
        let most = if self.random.chance(80) { 10 } else { POOL_WINDOW_PAGES - MOST_PAGES };
        POOL_WINDOW + self.random.below(most) * HUGE
    }

    /// Where nothing is mapped, in the window; 0 if that was not found.
    fn pool_hole(&mut self, who: u64, nr: u64) -> u64 {
        let places: [u64; 6] = core::array::from_fn(|_| self.pool_place());
        let is_inside = |at: u64| at + nr * HUGE <= POOL_WINDOW + POOL_WINDOW_PAGES * HUGE;
        let is_hole = |at: &u64| is_inside(*at) && self.model.is_hole(who, at / PAGE, (at + nr * HUGE) / PAGE);
        places.into_iter().find(is_hole).unwrap_or(0)
    }

    /// A range of pages that are mapped, mostly; one in four begins or ends within a page.
    fn pool_range(&mut self, who: u64) -> (u64, u64) {
        let pages = self.model.pool_pages(who);
        let at = if pages.is_empty() || self.random.chance(10) {
            self.pool_place()
        } else {
            self.random.pick(&pages) * HUGE
        };
        let len = HUGE * self.random.pick(&[1, 1, 1, 2, 2, 3]);
        let part = PAGE * (1 + self.random.below(HUGE / PAGE - 1));
        match self.random.below(12) {
            0 => (at + part, len),
            1 => (at, len - part),
            2 => (at + part, len - part),
            _ => (at, len),
        }
    }

    fn pool_target(&mut self, who: u64) -> (u64, u64) {
        let (at, len) = self.pool_range(who);
        let bytes = self.random.pick(&[1, 8, 8]);
        let offset = self.random.pick(&[0, 8, 2048, PAGE, 9 * PAGE + 16, HUGE - 8]);
        ((at & !(PAGE - 1)) + if len > HUGE { HUGE } else { 0 } + offset, bytes)
    }

    /// Flags of a mapping, its place, and where it goes if it is put anywhere.
    fn pool_flags(&mut self, who: u64, nr: u64) -> (u64, u64, u64) {
        let kind = if self.random.chance(65) { MAP_PRIVATE } else { MAP_SHARED };
        let more = self.random.pick(&[0, 0, 0, 0, 0, 0, MAP_NORESERVE, MAP_NORESERVE, MAP_POPULATE, MAP_GROWSDOWN]);
        let (landing, mut at) = (self.pool_hole(who, nr), self.pool_place());
        if self.random.chance(50) {
            at = self.pool_hole(who, nr);
        }
        if at == 0 {
            return (kind | more, 0, landing);
        }
        let how = self.random.pick(&[MAP_FIXED, MAP_FIXED, MAP_FIXED, MAP_FIXED, MAP_FIXED_NOREPLACE, 0]);
        at += if self.random.chance(4) { PAGE } else { 0 };
        (kind | more | how, at, landing)
    }

    fn mmap_pool(&mut self, who: u64) -> Op {
        let nr = 1 + self.random.below(MOST_PAGES);
        let (mut flags, at, landing) = self.pool_flags(who, nr);
        if self.random.chance(3) {
            flags = flags & !0xf | self.random.pick(&[0, 3, 4]);
        }
        let size = self.random.pick(&[0, 0, HUGE_2MB]);
        let less = if self.random.chance(10) { self.random.below(HUGE) } else { 0 };
        let len = if self.random.chance(2) { 0 } else { nr * HUGE - less };
        let prot = self.random.pick(&PROTS);
        Op::new(who, Call::Mmap, &[at, len, prot, flags | MAP_ANONYMOUS | MAP_HUGETLB | size, landing])
    }

    fn map_pool_file(&mut self, who: u64) -> Op {
        let first = self.random.below(MOST_IN_FILE) * (HUGE / PAGE) + u64::from(self.random.chance(3));
        let nr = 1 + self.random.below(MOST_PAGES);
        let (flags, at, landing) = self.pool_flags(who, nr);
        let less = if self.random.chance(4) { PAGE } else { 0 };
        let prot = self.random.pick(&PROTS);
        Op::new(who, Call::PoolMap, &[at, nr * HUGE - less, prot, flags, landing, first])
    }

    fn mremap_pool(&mut self, who: u64) -> Op {
        let (old, old_len) = self.pool_range(who);
        let new_len = if self.random.chance(50) { old_len } else { self.pool_range(who).1 };
        let nr = new_len.div_ceil(HUGE).max(1);
        let mut new = if self.random.chance(70) { self.pool_hole(who, nr) } else { self.pool_place() };
        new += if self.random.chance(6) { PAGE } else { 0 };
        let flags = self.random.pick(&[0, MREMAP_MAYMOVE, 3, 3, 3, 3, 5, 7]);
        let flags = if new == 0 { flags & !MREMAP_FIXED } else { flags };
        let new = if flags & MREMAP_FIXED != 0 { new } else { 0 };
        Op::new(who, Call::Mremap, &[old, old_len, new_len, flags, new, 0])
    }

    fn pool_file(&mut self, who: u64) -> Op {
        let nr = self.model.pool_file_pages().max(1);
        let at = self.random.below(nr) * HUGE + self.random.pick(&[0, 8, 9, PAGE, HUGE - 1]);
        match self.random.below(10) {
            0..3 => Op::new(who, Call::PoolFileSize, &[self.random.below(MOST_IN_FILE + 1) * HUGE]),
            3..5 => {
                let (first, nr) = (self.random.below(nr), 1 + self.random.below(2));
                let part = if self.random.chance(25) { 7 } else { 0 };
                Op::new(who, Call::PoolFilePunch, &[first * (HUGE / PAGE) + part, nr * (HUGE / PAGE)])
            }
            5..7 => Op::new(who, Call::PoolFileRead, &[at]),
            _ => Op::new(who, Call::PoolFileWrite, &[at, 1 + self.random.below(255)]),
        }
    }

    /// A hole over pages of the file that are promised, of which one may be there. Then others take what nobody was promised, and the
    /// file's pages are touched: so promises that went with the hole are missed.
    fn hole_in_promised(&mut self, who: u64) -> Op {
        let nr = self.model.pool_file_pages();
        let at = if nr == 0 { 0 } else { self.pool_hole(who, nr) };
        if at == 0 {
            return self.pool_file(who);
        }
        self.push(Op::new(who, Call::PoolMap, &[at, nr * HUGE, 3, MAP_SHARED | MAP_FIXED, 0, 0]));
        let touch = |page: u64, value: u64| Op::new(who, Call::Store, &[at + page * HUGE, 8, value]);
        if self.random.chance(60) {
            let op = touch(self.random.below(nr), self.random.number());
            self.push(op);
        }
        let first = self.random.below(nr);
        let len = 1 + self.random.below(nr - first);
        let hole = if self.random.chance(50) {
            Op::new(who, Call::Madvise, &[at + first * HUGE, len * HUGE, MADV_REMOVE])
        } else {
            Op::new(who, Call::PoolFilePunch, &[first * (HUGE / PAGE), len * (HUGE / PAGE)])
        };
        self.push(hole);
        self.take_the_rest(who);
        for page in 0..nr {
            let op = touch(page, self.random.number());
            self.push(op);
        }
        touch(first, self.random.number())
    }

    /// Stores to new pages, as many as nobody was promised.
    fn take_the_rest(&mut self, who: u64) {
        let nr = self.model.pool_counts().map_or(0, |counts| counts.free.saturating_sub(counts.reserved));
        let at = if nr == 0 { 0 } else { self.pool_hole(who, nr) };
        if at == 0 {
            return;
        }
        let flags = MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED | MAP_ANONYMOUS | MAP_HUGETLB;
        self.push(Op::new(who, Call::Mmap, &[at, nr * HUGE, 3, flags, 0]));
        for page in 0..nr {
            let value = self.random.number();
            self.push(Op::new(who, Call::Store, &[at + page * HUGE, 8, value]));
        }
    }

    /// Small or huge pages that are in the way of those of the pool, or replace them.
    fn other_memory(&mut self, who: u64) -> Op {
        let at = self.pool_place() + PAGE * self.random.pick(&[0, 0, 0, 17]);
        let len = self.random.pick(&[HUGE, HUGE, 2 * HUGE, 5 * PAGE]);
        let kind = self.random.pick(&[MAP_PRIVATE, MAP_PRIVATE, MAP_SHARED]);
        let how = self.random.pick(&[MAP_FIXED, MAP_FIXED, MAP_FIXED_NOREPLACE]);
        self.push(Op::new(who, Call::Mmap, &[at, len, 3, kind | how | MAP_ANONYMOUS, 0]));
        Op::new(who, Call::Store, &[at + self.random.below(len / PAGE) * PAGE, 8, self.random.number()])
    }
}
