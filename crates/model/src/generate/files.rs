//! Steps about files: mappings of them, sizes, holes, reads and writes.

use super::Maker;
use crate::numbers::{MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_POPULATE, MAP_PRIVATE, MAP_SHARED};
use crate::op::{Call, FILE_PAGES, NR_FILES, Op, PAGE};

/// Larger than they are at first, so that mappings go beyond the end.
const MOST_PAGES: u64 = FILE_PAGES + 8;
const PROTS: [u64; 8] = [3, 3, 3, 3, 3, 1, 1, 0];
/// Where in a page bytes are.
const OFFSETS: [u64; 6] = [0, 8, 9, 15, 2048, 4095];

impl Maker {
    pub(super) fn file(&mut self, who: u64) -> Op {
        let file = self.random.below(NR_FILES as u64);
        match self.random.below(100) {
            0..30 => self.mmap_file(who, file),
            30..42 => self.file_size(who, file),
            42..52 => {
                let first = self.random.below(MOST_PAGES);
                let most = if self.random.chance(70) { 4 } else { MOST_PAGES };
                let nr = 1 + self.random.below(most);
                Op::new(who, Call::FilePunch, &[file, first, nr])
            }
            52..76 => {
                let at = self.file_offset(file);
                Op::new(who, Call::FileRead, &[file, at])
            }
            _ => {
                let (at, byte) = (self.file_offset(file), 1 + self.random.below(255));
                Op::new(who, Call::FileWrite, &[file, at, byte])
            }
        }
    }

    fn file_offset(&mut self, file: u64) -> u64 {
        let nr_pages = self.model.file_size(file as usize).div_ceil(PAGE).max(1) + u64::from(self.random.chance(10));
        self.random.below(nr_pages) * PAGE + self.random.pick(&OFFSETS)
    }

    /// In whole words; seldom in the middle of a page.
    fn file_size(&mut self, who: u64, file: u64) -> Op {
        let now = self.model.file_size(file as usize);
        let nr_pages = match self.random.below(10) {
            0 => 0,
            1..5 => FILE_PAGES,
            5..7 => (now / PAGE).saturating_sub(self.random.below(4)),
            _ => self.random.below(MOST_PAGES),
        };
        let more = if self.random.chance(20) { self.random.pick(&[8, 16, 2048, 4088]) } else { 0 };
        Op::new(who, Call::FileSize, &[file, nr_pages * PAGE + more])
    }

    fn mmap_file(&mut self, who: u64, file: u64) -> Op {
        let nr = if self.random.chance(30) { FILE_PAGES } else { 1 + self.random.below(12) };
        let first = if nr == FILE_PAGES { 0 } else { self.random.below(MOST_PAGES) };
        let mut flags = if self.random.chance(60) { MAP_PRIVATE } else { MAP_SHARED };
        flags |= self.random.pick(&[0, 0, 0, MAP_POPULATE]);
        let landing = self.hole(who, nr);
        let addr = if self.random.chance(60) { self.hole(who, nr) } else { self.any().0 };
        let (window, nr_pages) = self.limits.pages;
        let nr = if addr == 0 { nr } else { nr.min((window + nr_pages).saturating_sub(addr / PAGE)).max(1) };
        if addr != 0 {
            flags |= self.random.pick(&[MAP_FIXED, MAP_FIXED, MAP_FIXED_NOREPLACE, 0]);
        }
        let prot = self.random.pick(&PROTS);
        Op::new(who, Call::MmapFile, &[addr, nr * PAGE, prot, flags, landing, Op::file_and_page(file, first)])
    }

    /// Start and pages of a range that maps a file, if there is one.
    pub(super) fn of_file(&mut self, who: u64) -> Option<(u64, u64)> {
        let pages = self.model.pages_of_files(who);
        if pages.is_empty() {
            return None;
        }
        let first = self.random.pick(&pages);
        let nr = 1 + self.random.below(8);
        self.model.mapped_near(who, first, nr).map(|(first, nr)| (first * PAGE, nr))
    }
}
