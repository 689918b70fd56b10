//! Days of use in a minute: processes come and go on many CPUs until every block of memory
//! has been used many times. Then half of memory is freed, and compaction makes the huge
//! pages that it can.
//!
//! One thread takes the part of every CPU in turn, so that a seed repeats a run. A turn is some
//! touches of the process that the CPU is at, so that pages of many processes lie side by
//! side. `town.rs` has the processes and what outlives them, `process.rs` one process,
//! `after.rs` the count of huge pages at the end. A pager swaps pages out meanwhile, and some memory fails
//! (`trouble.rs`).
//!
//! Source: the question is that of Contiguitas (ISCA 2023), which found that pages that cannot
//! move, not a lack of free ones, keep old servers from huge pages.

mod after;
mod library;
mod process;
mod town;
mod trouble;

use crate::judge::{check, check_after_exit};
use crate::op::PAGE;
use softfault::policy::huge::Enabled;
use softfault::{AddressSpace, CpuId, HugeKnobs, Tunables, Vm};
use softfault_host::{Hosted, HostedConfig};
use town::Town;
pub use trouble::Counts as TroubleCounts;

pub(crate) type Space<'vm> = AddressSpace<'vm, Hosted>;
pub(crate) type Done<T = ()> = Result<T, String>;

/// Least memory of a run, and memory of each CPU.
const LEAST_BYTES: u64 = 256 << 20;
const BYTES_PER_CPU: u64 = 32 << 20;

/// The swap area is so much smaller than memory.
const SWAP_SHARE: u64 = 8;

/// Which pages the processes have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// As it is typed and printed.
    pub name: &'static str,
    /// Pages of shared objects among 1,000.
    pub objects_permille: u64,
    /// Pages among 1,000 of memory that are pinned for long at any time.
    pub pins_permille: u64,
    /// Whether libraries are files: read late and not always, and dropped.
    pub has_files: bool,
}

impl Mix {
    /// Those that are judged, and one of everything.
    pub const ALL: [Mix; 4] = [
        Mix { name: "private", objects_permille: 0, ..Mix::BASE },
        Mix { name: "objects", ..Mix::BASE },
        Mix { name: "pins", objects_permille: 0, pins_permille: 1, ..Mix::BASE },
        Mix { name: "all", pins_permille: 1, ..Mix::BASE },
    ];
    /// One whose libraries are files.
    pub const FILES: Mix = Mix { name: "files", has_files: true, ..Mix::BASE };
    const BASE: Mix = Mix { name: "", objects_permille: 100, pins_permille: 0, has_files: false };

    /// The one of that name.
    pub fn named(name: &str) -> Option<Mix> {
        Mix::ALL.into_iter().chain([Mix::FILES]).find(|mix| mix.name == name)
    }
}

/// How long a run is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// CPUs.
    pub nr_cpus: usize,
    /// Memory.
    pub bytes: u64,
    /// Processes that have come, at least.
    pub nr_processes: u64,
    /// Times that each block was used, at least: pages that lay in it, over 512.
    pub nr_uses: u64,
}

impl Size {
    /// Of a run that counts.
    pub const fn days(nr_cpus: usize) -> Size {
        let bytes = nr_cpus as u64 * BYTES_PER_CPU;
        let bytes = if bytes < LEAST_BYTES { LEAST_BYTES } else { bytes };
        Size { nr_cpus, bytes, nr_processes: 100_000, nr_uses: 20 }
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Processes that have come.
    pub nr_processes: u64,
    /// Uses of the block that was used least.
    pub nr_uses: u64,
}

/// Result of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Which pages the processes had.
    pub mix: Mix,
    /// CPUs.
    pub nr_cpus: usize,
    /// Processes that came.
    pub nr_processes: u64,
    /// Uses of the block that was used least.
    pub nr_uses: u64,
    /// At the end: pages in use, those of objects, and those pinned for long.
    pub nr_used: u64,
    /// See [`nr_used`](Row::nr_used).
    pub nr_object_pages: u64,
    /// See [`nr_used`](Row::nr_used).
    pub nr_pins: u64,
    /// Events that the pager and failing memory have caused.
    pub trouble: TroubleCounts,
    /// Blocks' worth of free pages.
    pub nr_possible: u64,
    /// Blocks that were free before compaction.
    pub nr_before: u64,
    /// Huge pages after compaction.
    pub nr_after: u64,
}

impl Row {
    /// Of the huge pages that free memory is worth, those that could be made, in percent,
    /// rounded down.
    pub fn percent(&self) -> u64 {
        self.nr_after * 100 / self.nr_possible.max(1)
    }

    /// Returns the first count that is lower than was asked for: processes, uses of a block, pages of objects among those in use, or
    /// pinned pages among all. Some libraries and pins have ended just before, so nine tenths of those are enough.
    pub fn shortfall(&self, size: Size) -> Option<String> {
        let nine_tenths_of = |of: u64, permille: u64| of * permille / 1000 * 9 / 10;
        let nr_pages = size.bytes / PAGE;
        let lines = [
            ("processes", self.nr_processes, size.nr_processes),
            ("uses of the block used least", self.nr_uses, size.nr_uses),
            ("pages of objects", self.nr_object_pages, nine_tenths_of(self.nr_used, self.mix.objects_permille)),
            ("pins", self.nr_pins, nine_tenths_of(nr_pages, self.mix.pins_permille)),
        ];
        let (what, nr, least) = lines.into_iter().find(|(_, nr, least)| nr < least)?;
        Some(format!("{nr} {what}, should be {least} at least"))
    }
}

/// Runs the days of `seed`. Calls `progress` every thousand processes.
///
/// # Errors
///
/// The first defect: a byte, an invariant, a frame that did not come back.
pub fn run(seed: u64, size: Size, mix: Mix, progress: &mut dyn FnMut(Progress)) -> Done<Row> {
    let config = HostedConfig::default()
        .with_nr_cpus(size.nr_cpus)
        .with_arena_bytes(size.bytes)
        .with_swap_bytes(size.bytes / SWAP_SHARE);
    let hosted = Hosted::new(config).map_err(|e| e.to_string())?;
    let tunables = Tunables::default().with_thp(HugeKnobs::DEFAULT.with_enabled(Enabled::Madvise));
    let vm = Vm::new(hosted, tunables).map_err(|e| e.to_string())?;
    let nr_free_before = vm.vmstat().nr_free_pages;
    let mut town = Town::new(&vm, seed, mix);
    town.live(size, progress)?;
    town.free_half()?;
    let _cpu = vm.machine().bind(CpuId(0)).map_err(|e| e.to_string())?;
    let home = vm.new_space().map_err(|e| e.to_string())?;
    let mut row = town.row(size);
    after::count(&vm, &home, &mut row)?;
    if let Some(text) = check(&vm, town.spaces().chain([&home])) {
        return Err(text);
    }
    drop(home);
    town.end()?;
    if let Some(text) = check_after_exit(&vm) {
        return Err(text);
    }
    row.trouble.missing(mix)?;
    let lost = nr_free_before - crate::hosted::nr_free_pages(&vm);
    if lost > 0 { Err(format!("{lost} frames did not come back")) } else { Ok(row) }
}
