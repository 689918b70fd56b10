//! One frame kept in each block, so that no block is whole.

use super::options::Options;
use crate::bench::bind;
use crate::error::LabError;
use crate::stage::{PAGE_BYTES, PIECE_BYTES};
use softfault::{Access, AddressSpace, Advice, FaultError, MapFlags, Prot, Vm};
use softfault_host::Hosted;
use std::collections::BTreeMap;

/// Where the other program's memory begins.
const BASE: u64 = 1 << 41;

/// Keeps frames as the options say and runs `work` meanwhile.
pub fn with_holders<T>(
    options: &Options,
    vm: &Vm<Hosted>,
    work: impl FnOnce() -> Result<T, LabError>,
) -> Result<T, LabError> {
    if !options.movable {
        let bound = bind(vm.machine(), 0)?;
        vm.hold_one_in_each_block(options.share, options.seed());
        drop(bound);
        return work();
    }
    let bound = bind(vm.machine(), 0)?;
    let space = vm.new_space().map_err(|e| LabError::subsystem("new_space", e))?;
    keep_pages(options, vm, &space)?;
    // The work has CPU 0 for itself and other spaces; this one stays as it is.
    drop(bound);
    let done = work()?;
    let _bound = bind(vm.machine(), 0)?;
    drop(space);
    Ok(done)
}

/// Fills all memory with pages of 4 KiB and gives back all but some.
fn keep_pages(options: &Options, vm: &Vm<Hosted>, space: &AddressSpace<'_, Hosted>) -> Result<(), LabError> {
    let nr_pages = vm.vmstat().nr_free_pages;
    let prot = Prot::READ | Prot::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::NORESERVE | MapFlags::FIXED;
    space
        .mmap(BASE, nr_pages * PAGE_BYTES, prot, flags)
        .map_err(|e| LabError::subsystem(format!("mmap of {nr_pages} pages"), e))?;
    advise(space, 0..nr_pages, Advice::NoHugePage)?;
    let nr_filled = fill_all(space, nr_pages)?;
    let kept = chosen(options, space, nr_filled);
    let mut next = 0;
    for page in kept {
        advise(space, next..page, Advice::DontNeed)?;
        next = page + 1;
    }
    advise(space, next..nr_filled, Advice::DontNeed)
}

fn fill_all(space: &AddressSpace<'_, Hosted>, nr_pages: u64) -> Result<u64, LabError> {
    for page in 0..nr_pages {
        match space.handle_fault(BASE + page * PAGE_BYTES, Access::Write) {
            Ok(_) => {}
            Err(FaultError::OutOfFrames) => return Ok(page),
            Err(e) => return Err(LabError::subsystem(format!("fault on page {page}"), e)),
        }
    }
    Ok(nr_pages)
}

/// Of the pages whose frames lie in one block, one by chance; in their order.
fn chosen(options: &Options, space: &AddressSpace<'_, Hosted>, nr_pages: u64) -> Vec<u64> {
    let mut best: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for page in 0..nr_pages {
        let Some(found) = space.translate_at_rest(BASE + page * PAGE_BYTES) else { continue };
        let (pfn, block) = (u64::from(found.pfn.0), u64::from(found.pfn.0) / (PIECE_BYTES / PAGE_BYTES));
        let mine = (mixed(options.seed() ^ pfn), page);
        let least = best.entry(block).or_insert(mine);
        *least = mine.min(*least);
    }
    best.retain(|block, _| mixed(options.seed() ^ !*block) % 100 < u64::from(options.share));
    let mut pages: Vec<u64> = best.into_values().map(|(_, page)| page).collect();
    pages.sort_unstable();
    pages
}

/// splitmix64 of one value.
fn mixed(value: u64) -> u64 {
    let z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn advise(space: &AddressSpace<'_, Hosted>, pages: std::ops::Range<u64>, advice: Advice) -> Result<(), LabError> {
    let len = pages.end.saturating_sub(pages.start) * PAGE_BYTES;
    if len == 0 {
        return Ok(());
    }
    space
        .madvise(BASE + pages.start * PAGE_BYTES, len, advice)
        .map_err(|e| LabError::subsystem(format!("madvise({}) of {len} bytes", advice.name()), e))
}
