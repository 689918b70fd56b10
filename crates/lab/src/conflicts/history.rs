//! Memory that the CPUs themselves have aged: each fills its share of it, then
//! gives back single pages here and there.
//!
//! Neighbours: `simulate` calls this before it counts, with the recorder on, so
//! that each line remembers who wrote it last.

use super::machine::{self, Simulated};
use super::options::{AGED_FREE_OF_64, Options};
use crate::error::LabError;
use crate::progress;
use softfault_recorded::addr::Access;
use softfault_recorded::{AddressSpace, Advice, MapFlags, Prot, Vm};

const PAGE_BYTES: u64 = 4096;
const TABLE_PAGES: u64 = 512;

/// Pages that a CPU fills: its part of what is free, less the tables for these and
/// for the pages that are to be counted.
fn nr_pages_each(vm: &Vm<Simulated>, options: &Options) -> u64 {
    let share = vm.vmstat().nr_free_pages / options.nr_cpus();
    let tables = share / TABLE_PAGES + u64::from(options.touches) / TABLE_PAGES + 8;
    share.saturating_sub(tables) / 64 * 64
}

/// Leaves about [`AGED_FREE_OF_64`] of 64 frames free in all of memory.
pub fn fill_and_thin_out(
    vm: &Vm<Simulated>,
    space: &AddressSpace<Simulated>,
    options: &Options,
) -> Result<(), LabError> {
    let (nr_cpus, nr_pages) = (options.nr_cpus(), nr_pages_each(vm, options));
    let stretch = nr_pages.next_multiple_of(TABLE_PAGES);
    let len = nr_cpus * stretch * PAGE_BYTES;
    let prot = Prot::READ | Prot::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::NORESERVE;
    let base = space.mmap(0, len, prot, flags).map_err(|e| LabError::subsystem(format!("mmap of {len} bytes"), e))?;
    let address = |cpu: u64, page: u64| base + (cpu * stretch + page) * PAGE_BYTES;
    let bar = progress::bar(2 * nr_pages);
    for page in 0..nr_pages {
        for cpu in 0..nr_cpus {
            machine::become_cpu(cpu as u16);
            space
                .handle_fault(address(cpu, page), Access::Write)
                .map_err(|e| LabError::subsystem(format!("page {page} of CPU {cpu}'s history"), e))?;
        }
        bar.inc(1);
    }
    let mut state = nr_cpus;
    for window in (0..nr_pages).step_by(64) {
        for cpu in 0..nr_cpus {
            machine::become_cpu(cpu as u16);
            for page in some_of_64(&mut state).map(|i| window + i) {
                space
                    .madvise(address(cpu, page), PAGE_BYTES, Advice::DontNeed)
                    .map_err(|e| LabError::subsystem(format!("page {page} of CPU {cpu}'s history"), e))?;
            }
        }
        bar.inc(64);
    }
    bar.finish_and_clear();
    Ok(())
}

/// [`AGED_FREE_OF_64`] different numbers below 64.
fn some_of_64(state: &mut u64) -> impl Iterator<Item = u64> + use<> {
    let mut bits = 0u64;
    while u64::from(bits.count_ones()) < AGED_FREE_OF_64 {
        bits |= 1 << (splitmix(state) % 64);
    }
    (0..64).filter(move |i| bits & 1 << i != 0)
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
