//! The command line of `softfault conflicts`.

use crate::bench::{Need, Output, Window, defaults, parse_fault_locking, parse_hugetlb_locking, parse_window};
use crate::error::LabError;
use clap::{Args, ValueEnum};
use softfault::{FaultLocking, HugetlbLocking};

const HELP: &str = "\
Measurement
  CPUs are simulated: one thread acts as each CPU in turn, one fault per turn, all in one address space. The
  core's sources are compiled a second time so that each atomic operation records its 64-byte cache line.
  transfer   a write to a line that another CPU wrote last: the line moves between caches
  read miss  a read of a line that another CPU wrote last, and that the reader has not accessed since
  Both are per 1,000 faults. Counting begins before the first fault and so includes each CPU's first refill.
  Lines written during setup count as written by CPU 0. The output names the structure and field of each line.

Frames
  fresh  all memory is free and unused, as after a boot
  aged   each CPU has filled its share of memory, one page per turn, and freed 8 random pages of each 64. That
         history determines who wrote a line last. It takes eight times the memory: the default is 4,096 touches.

Limits
  The recorder sees only atomic cells: not the bytes of pages, so not zeroing. The core keeps everything that
  CPUs share in atomic cells; `cargo xtask check` enforces that. There is no clock: turns are strictly fair.

Layouts: which pages belong to which CPU
  own-table    one range per CPU, aligned to 2 MiB: each CPU has its own leaf tables
  chunks       64 pages to each CPU in turn: CPUs share leaf tables, but not lines of entries
  interleaved  one page to each CPU in turn: 8 entries share a line, so transfers are unavoidable
  same-object  each CPU runs its own address space; all map one shared object, and every CPU touches all of its
               pages in the same order. The default is 512 touches (2 MiB)
  own-part     as same-object, but each CPU touches a part of its own, 2 MiB
  pool         huge pages of a reserved pool: the pages of one file belong to the CPUs in turn. Each CPU has its own
               pages, one beside the other, in its own address space. --hugetlb-locking has the discipline. The default
               is 64 touches. Faults are counted twice. Cold: CPU 0 has made the pool and the file, reserved its pages and
               mapped them; each CPU has touched a small page of its program. Steady: each CPU has then taken its pages
               out of the file, mapped and reserved them again, and faults on them a second time
  private-pool the same with private mappings: each CPU unmaps its pages and maps them again

Fault-around
  With --fault-around, CPUs read a file: the pages of the object are in memory before counting begins, written by
  CPU 0, or for own-part by the CPU whose part they are. Each CPU's touches are reads of 2 MiB of it in order, a
  mapping of the same 2 MiB after the other. A fault maps the window's pages; mapped pages are not touched. For
  same-object and own-part; the default is 65,536 touches. With `adaptive` these are 512 faults of each CPU, 128 of
  which make a leaf table: where memory is small (--mib-each), CPUs share the blocks that tables come from.
  Transfers are per 1,000 pages mapped, too.

Pages
  small         4 KiB
  16K ... 1M    a power of two: each fault maps that many bytes of adjacent frames. Layouts count in pages of that
                size. The default number of touches takes the memory of 32,768 small pages, at least 512 touches.
  huge          2 MiB: each fault maps a whole block, zero as after a boot. Layouts count in huge pages: own-table
                takes 1 GiB for each CPU. The default is 512 touches.

JSON
  One object with the keys cpus, layout, discipline (the fault-locking mode), hugetlb_locking (null without a pool),
  frames, pages, touches, memory_gib, faults, fault_around (null without it), transfers_per_1000_faults,
  transfers_per_1000_pages, read_misses_per_1000_faults, worst (a list of structure, field,
  transfers_per_1000_faults and read_misses_per_1000_faults, most transfers first), experiment, value and unit. With a pool
  steady_transfers_per_1000_faults, steady_read_misses_per_1000_faults and steady_worst, too.

Examples:
  softfault conflicts --cpus 512
  softfault conflicts --cpus 64 --layout chunks --fault-locking split
  softfault conflicts --cpus 512 --pages 64K
  softfault conflicts --cpus 512 --layout same-object --fault-around adaptive
  softfault conflicts --layout pool --hugetlb-locking table
  softfault conflicts --cpus 512 --touches 1024 --json";

/// Which pages belong to which CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Layout {
    /// One range per CPU, aligned to 2 MiB
    OwnTable,
    /// 64 pages to each CPU in turn
    Chunks,
    /// One page to each CPU in turn
    Interleaved,
    /// The same pages for all CPUs, of one object that each maps in its own space
    SameObject,
    /// A part of one object for each CPU, which maps it in its own space
    OwnPart,
    /// One page of a pool of 2 MiB pages to each CPU in turn, of one file that each maps in its own space
    Pool,
    /// Pages of a pool of 2 MiB pages for each CPU, which maps them privately in its own space
    PrivatePool,
}

/// The state of memory at the first fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Frames {
    /// All memory is free, as after a boot
    Fresh,
    /// The same CPUs have used it; free frames are scattered
    Aged,
}

/// Size of the page that a fault maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pages {
    order: u8,
}

/// The sizes by the words of the command line, and the log2 of their frames.
const SIZES: [(&str, u8); 9] = [
    ("small", 0),
    ("16K", 2),
    ("32K", 3),
    ("64K", 4),
    ("128K", 5),
    ("256K", 6),
    ("512K", 7),
    ("1M", 8),
    ("huge", TABLE_PAGES.ilog2() as u8),
];

impl Pages {
    /// 4 KiB.
    pub const SMALL: Pages = Pages { order: SIZES[0].1 };
    /// 2 MiB.
    pub const HUGE: Pages = Pages { order: SIZES[8].1 };

    /// The word on the command line and in output.
    pub fn name(self) -> &'static str {
        SIZES.iter().find(|(_, order)| *order == self.order).map_or("?", |(name, _)| name)
    }
    /// log2 of the frames of one page.
    pub fn order(self) -> u8 {
        self.order
    }
    /// Frames of one page.
    pub const fn nr_frames(self) -> u64 {
        1 << self.order
    }
}

/// One of [`SIZES`].
pub(super) fn parse_pages(text: &str) -> Result<Pages, String> {
    let found = SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    let names = || SIZES.map(|(name, _)| name).join(", ");
    found.map(|(_, order)| Pages { order: *order }).ok_or_else(|| format!("should be one of {}", names()))
}

/// Of 64 frames, how many are free in memory that has aged.
pub const AGED_FREE_OF_64: u64 = 8;

impl Frames {
    /// The word on the command line and in output.
    pub fn name(self) -> &'static str {
        match self {
            Frames::Fresh => "fresh",
            Frames::Aged => "aged",
        }
    }
}

/// Bytes of a small page.
pub const PAGE_BYTES: u64 = 4096;
/// Where all spaces map the object of the layouts that have one.
pub const OBJECT_AT: u64 = 1 << 32;
/// Pages that one leaf table maps.
const TABLE_PAGES: u64 = 512;
/// Pages in a chunk: 8 lines of entries.
const CHUNK_PAGES: u64 = 64;

impl Layout {
    /// The word on the command line and in output.
    pub fn name(self) -> &'static str {
        match self {
            Layout::OwnTable => "own-table",
            Layout::Chunks => "chunks",
            Layout::Interleaved => "interleaved",
            Layout::SameObject => "same-object",
            Layout::OwnPart => "own-part",
            Layout::Pool => "pool",
            Layout::PrivatePool => "private-pool",
        }
    }
    /// Which page, from the start of the mapping, CPU `cpu` of `nr_cpus` touches
    /// as its `turn`th of `touches`.
    pub fn page(self, cpu: u64, nr_cpus: u64, turn: u64, touches: u64) -> u64 {
        match self {
            Layout::OwnTable => cpu * touches.next_multiple_of(TABLE_PAGES) + turn,
            Layout::Chunks => (turn / CHUNK_PAGES * nr_cpus + cpu) * CHUNK_PAGES + turn % CHUNK_PAGES,
            Layout::Interleaved => turn * nr_cpus + cpu,
            Layout::SameObject | Layout::OwnPart | Layout::Pool | Layout::PrivatePool => turn,
        }
    }
    /// Pages that the mapping needs.
    pub fn nr_pages(self, nr_cpus: u64, touches: u64) -> u64 {
        match self {
            Layout::OwnTable => nr_cpus * touches.next_multiple_of(TABLE_PAGES),
            Layout::Chunks => nr_cpus * touches.next_multiple_of(CHUNK_PAGES),
            Layout::Interleaved | Layout::Pool | Layout::PrivatePool => nr_cpus * touches,
            Layout::SameObject => touches,
            Layout::OwnPart => nr_cpus * touches.next_multiple_of(TABLE_PAGES),
        }
    }
    /// Whether CPUs have spaces of their own.
    pub fn has_own_spaces(self) -> bool {
        matches!(self, Layout::SameObject | Layout::OwnPart) || self.is_of_pool()
    }
    /// Whether pages come from a pool.
    pub fn is_of_pool(self) -> bool {
        matches!(self, Layout::Pool | Layout::PrivatePool)
    }
}

/// The command line of `softfault conflicts`.
#[derive(Args, Debug, Clone)]
#[command(after_help = HELP, mut_args(defaults("1", "1", "the transfers of the lines that move most")))]
pub struct Options {
    /// Simulated CPUs
    #[arg(long, value_name = "N", default_value = "512", value_parser = clap::value_parser!(u16).range(1..=softfault::machine::MAX_CPUS as i64))]
    pub cpus: u16,
    /// Which pages belong to which CPU
    #[arg(long, value_enum, default_value = "own-table")]
    pub layout: Layout,
    /// How faults exclude each other
    #[arg(long, alias = "discipline", value_name = "MODE", default_value = "lockfree", value_parser = parse_fault_locking)]
    pub fault_locking: FaultLocking,
    /// How faults on pages of the pool exclude each other: one, table or lockfree
    #[arg(long, value_name = "DISCIPLINE", default_value = "lockfree", value_parser = parse_hugetlb_locking)]
    pub hugetlb_locking: HugetlbLocking,
    /// First touches per CPU
    #[arg(long, value_name = "N", default_value = "32768",
        default_value_if("fault_around", clap::builder::ArgPredicate::IsPresent, "65536"), default_value_ifs([
        ("layout", "pool", "64"), ("layout", "private-pool", "64"),
        ("pages", "16K", "8192"), ("pages", "32K", "4096"), ("pages", "64K", "2048"), ("pages", "128K", "1024"),
        ("pages", "256K", "512"), ("pages", "512K", "512"), ("pages", "1M", "512"), ("pages", "huge", "512"),
        ("layout", "same-object", "512"), ("layout", "own-part", "512"), ("frames", "aged", "4096"),
    ]), value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
    pub touches: u32,
    /// State of memory at the first fault
    #[arg(long, value_enum, default_value = "fresh")]
    pub frames: Frames,
    /// Size of the pages that a fault maps
    #[arg(long, value_name = "SIZE", default_value = "small", default_value_ifs([("layout", "pool", "huge"), ("layout", "private-pool", "huge")]), value_parser = parse_pages, ignore_case = true)]
    pub pages: Pages,
    /// Read pages that are in memory, with this window: 0 to 9, or adaptive
    #[arg(long, value_name = "ORDER", value_parser = parse_window)]
    pub fault_around: Option<Window>,
    /// With --fault-around, MiB of memory for each CPU, at least
    #[arg(long, value_name = "MIB", default_value = "128", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub mib_each: u32,
    #[command(flatten)]
    pub output: Output,
}

impl Options {
    /// CPUs.
    pub fn nr_cpus(&self) -> u64 {
        u64::from(self.cpus)
    }
    /// Pages of the object that a CPU maps, in the layouts that have one.
    pub fn part_pages(&self) -> u64 {
        match self.fault_around {
            Some(_) => TABLE_PAGES.min(u64::from(self.touches)),
            None => u64::from(self.touches),
        }
    }
    /// Pages that all CPUs touch: each is mapped by a fault of its own or of a neighbour.
    pub fn nr_touched(&self) -> u64 {
        self.nr_cpus() * u64::from(self.touches)
    }
    /// Where the part of a CPU begins in the object, pages.
    pub fn part_of(&self, cpu: u64) -> u64 {
        if self.layout == Layout::OwnPart { cpu * self.part_pages().next_multiple_of(TABLE_PAGES) } else { 0 }
    }
    /// Pages of the object.
    pub fn object_pages(&self) -> u64 {
        self.part_of(self.nr_cpus() - 1) + self.part_pages()
    }
    /// Frames of the simulated machine: the pages, 2 % for tables and
    /// descriptors, and what each CPU may reserve ahead of need.
    pub fn nr_frames(&self) -> u64 {
        let pages = match self.fault_around {
            // Those of the object, and a leaf table for each mapping.
            Some(_) => {
                let pages = self.object_pages() + self.nr_cpus() * u64::from(self.touches) / TABLE_PAGES;
                pages.max((self.nr_cpus() * u64::from(self.mib_each)) << 8)
            }
            None => self.layout.nr_pages(self.nr_cpus(), u64::from(self.touches)) * self.pages.nr_frames(),
        };
        let nr = pages + pages / 50 + self.nr_cpus() * 4 * TABLE_PAGES + (64 << 20) / 4096;
        let times = if self.frames == Frames::Aged { 64 / AGED_FREE_OF_64 } else { 1 };
        (nr * times).next_multiple_of(TABLE_PAGES)
    }
    /// Refuses arguments that cannot work.
    pub fn check_arguments(&self) -> Result<(), LabError> {
        if self.layout.has_own_spaces() {
            let with = |what| format!("with --layout {} should be {what}", self.layout.name());
            let pages = if self.layout.is_of_pool() { Pages::HUGE } else { Pages::SMALL };
            if self.pages != pages {
                return Err(LabError::Argument {
                    name: "--pages",
                    given: self.pages.name().into(),
                    wanted: with(pages.name()),
                });
            }
            if self.frames != Frames::Fresh {
                return Err(LabError::Argument {
                    name: "--frames",
                    given: self.frames.name().into(),
                    wanted: with("fresh"),
                });
            }
        }
        if let Some(window) = self.fault_around.filter(|_| !self.layout.has_own_spaces() || self.layout.is_of_pool()) {
            let wanted =
                format!("with --layout {} there is no object of small pages: should be left out", self.layout.name());
            return Err(LabError::Argument { name: "--fault-around", given: window.name(), wanted });
        }
        if self.pages != Pages::SMALL && self.frames == Frames::Aged {
            let wanted = format!("with --pages {} should be fresh: aged memory has none left", self.pages.name());
            return Err(LabError::Argument { name: "--frames", given: self.frames.name().into(), wanted });
        }
        if self.nr_frames() > u64::from(u32::MAX) {
            let wanted = format!("with {} CPUs is more memory than 16 TiB: should be smaller", self.cpus);
            return Err(LabError::Argument { name: "--touches", given: self.touches.to_string(), wanted });
        }
        Ok(())
    }
    /// Memory of the host. A frame costs a descriptor, an entry and the recorder's lines; its bytes are never touched.
    /// A huge page costs its block and its tables.
    pub fn memory(&self) -> Need {
        let bytes = match self.pages {
            Pages::HUGE => self.nr_frames() / TABLE_PAGES * 8192,
            _ => self.nr_frames() * 64,
        };
        Need { condition: format!("with {} CPUs", self.cpus), ..Need::of("--touches", self.touches, bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_touch_has_a_page_of_its_own_inside_the_mapping() {
        for layout in [Layout::OwnTable, Layout::Chunks, Layout::Interleaved] {
            let (nr_cpus, touches) = (5, 700);
            let pages: HashSet<u64> = (0..nr_cpus)
                .flat_map(|cpu| (0..touches).map(move |turn| layout.page(cpu, nr_cpus, turn, touches)))
                .collect();
            assert_eq!(pages.len() as u64, nr_cpus * touches, "{layout:?}");
            assert!(pages.into_iter().all(|page| page < layout.nr_pages(nr_cpus, touches)), "{layout:?}");
        }
    }

    #[test]
    fn only_the_interleaved_layout_shares_lines_of_entries() {
        for layout in [Layout::OwnTable, Layout::Chunks] {
            let line = |cpu, turn| layout.page(cpu, 3, turn, 512) / 8;
            let of_first: HashSet<u64> = (0..512).map(|turn| line(0, turn)).collect();
            assert!((0..512).all(|turn| !of_first.contains(&line(1, turn))), "{layout:?}");
        }
        assert_eq!(Layout::Interleaved.page(0, 3, 0, 512) / 8, Layout::Interleaved.page(1, 3, 0, 512) / 8);
    }
}
