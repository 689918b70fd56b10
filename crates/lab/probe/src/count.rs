//! Counting instructions: under QEMU's `-icount shift=0` the time-stamp counter
//! goes up by one with each, the kernel's included. Each step of a `rep` counts.

use crate::console::Console;
use crate::sys::{self, PAGE};
use crate::warm::{self, read_pages, write_pages};
use core::arch::x86_64::_rdtsc;
use core::ffi::CStr;

/// Pages of a round; tables are a part of it as they are of a program's life.
const NR_PAGES: usize = 2048;
const NR_CALLS: u64 = 4096;
const NR_FORKS: u64 = 64;
/// Resident pages of the process that forks, apart from those of the probe itself.
const FORK_PAGES: usize = (1 << 20) / PAGE;
/// Pages that a read fault on a file maps, if they are in memory: 64 KiB, on Linux, too.
const NR_AROUND: usize = 16;
/// Uncounted rounds before the one that counts.
const NR_UNCOUNTED: usize = 2;

fn ticks() -> u64 {
    // SAFETY: L7: no kernel here forbids it.
    unsafe { _rdtsc() }
}

/// Instructions that it took.
pub fn counted(work: impl FnOnce()) -> u64 {
    let start = ticks();
    work();
    ticks() - start
}

/// Instructions that each operation took.
struct Counts {
    /// With the clearing of the page.
    write_fault: u64,
    /// Of memory never written: the zero page.
    read_fault: u64,
    /// Of a file in memory, with its neighbours.
    read_fault_16: u64,
    /// A page with a frame of its own.
    munmap_page: u64,
    getppid: u64,
    /// fork, exit and wait.
    fork_1mib: u64,
}

/// Counts, and reports.
pub fn run(console: &Console, marker: &CStr) {
    if let Err(error) = warm::warm() {
        return console.complain(format_args!("fork: error {}", -error));
    }
    let mut last = None;
    for _ in 0..=NR_UNCOUNTED {
        last = round();
    }
    let Some(counts) = last else { return console.complain(format_args!("mmap or fork was refused")) };
    console.record(
        marker,
        format_args!(
            "{{\"write_fault_and_clear\":{},\"read_fault\":{},\"read_fault_16\":{},\"munmap_page\":{},\"getppid\":{},\"fork_1mib\":{}}}",
            counts.write_fault,
            counts.read_fault,
            counts.read_fault_16,
            counts.munmap_page,
            counts.getppid,
            counts.fork_1mib
        ),
    );
}

fn round() -> Option<Counts> {
    let (write_fault, munmap_page) = faults(write_pages)?;
    let (read_fault, _) = faults(read_pages)?;
    let read_fault_16 = faults_of_file()?;
    let call = || {
        for _ in 0..NR_CALLS {
            sys::getppid();
        }
    };
    let getppid = counted(call) / NR_CALLS;
    Some(Counts { write_fault, read_fault, read_fault_16, munmap_page, getppid, fork_1mib: fork()? })
}

/// A fault for each page, less a second round without faults; then munmap, per
/// page.
fn faults(touch: fn(*mut u8, usize)) -> Option<(u64, u64)> {
    let base = sys::map(NR_PAGES * PAGE)?;
    let first = counted(|| touch(base, NR_PAGES));
    let second = counted(|| touch(base, NR_PAGES));
    // SAFETY: L2: nobody else knows of it.
    let unmapped = counted(|| unsafe { sys::unmap(base, NR_PAGES * PAGE) });
    let per_page = |count: u64| count / NR_PAGES as u64;
    Some((per_page(first.saturating_sub(second)), per_page(unmapped)))
}

/// Each fault of a pass over a file all of whose pages are in memory, less a second pass. None if a fault does not map
/// so many pages as it should: then something else was counted. A mapping that begins within a window has one more.
fn faults_of_file() -> Option<u64> {
    let file = sys::file_in_memory(c"probe", NR_PAGES * PAGE)?;
    let filled = sys::map_file(file, None, NR_PAGES * PAGE)?;
    write_pages(filled, NR_PAGES);
    let read = sys::map_file(file, None, NR_PAGES * PAGE)?;
    let before = sys::nr_faults().0;
    let first = counted(|| read_pages(read, NR_PAGES));
    let nr_faults = sys::nr_faults().0 - before;
    let second = counted(|| read_pages(read, NR_PAGES));
    // SAFETY: L2: nobody else knows of them.
    unsafe {
        sys::unmap(filled, NR_PAGES * PAGE);
        sys::unmap(read, NR_PAGES * PAGE);
    }
    sys::close(file);
    let is_around = nr_faults.abs_diff(NR_PAGES / NR_AROUND) <= 1;
    is_around.then(|| first.saturating_sub(second) / nr_faults as u64)
}

fn fork() -> Option<u64> {
    let base = sys::map(FORK_PAGES * PAGE)?;
    write_pages(base, FORK_PAGES);
    let mut refused = false;
    let count = counted(|| {
        for _ in 0..NR_FORKS {
            match sys::fork() {
                0 => sys::exit(0),
                pid if pid > 0 => _ = sys::wait(pid),
                _ => refused = true,
            }
        }
    });
    // SAFETY: L2: nobody else knows of it.
    unsafe { sys::unmap(base, FORK_PAGES * PAGE) };
    (!refused).then_some(count / NR_FORKS)
}
