//! khugepaged: the kernel's thread that has small pages made into huge ones. How
//! that is done, and what may be, is the subsystem's; here is only who comes next,
//! for how long, and when again.
//!
//! It goes round the processes by number, an equal number of entries in each round
//! (`pages_to_scan`), and sleeps between rounds. When no block of 2 MiB was free it
//! sleeps until one is (or `alloc_sleep_millisecs`), and goes on where it failed.
//! With no memory that may become huge it sleeps until a knob is set.

use crate::linux::process::{Mm, table};
use crate::port::arch::time;
use crate::port::mm;
use crate::port::sched::{self, KernelStack, Thread, daemon, parking};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use softfault::Order;
use softfault::policy::collapse::CollapseRefusal;

/// Entries looked at before others may have the CPU: one huge page's.
const STEP_PTES: u64 = Order::PMD.nr_pages();
const HUGE_BYTES: u64 = Order::PMD.nr_pages() * 4096;
const NS_PER_MS: u64 = 1_000_000;
/// Blocks come and go in a busy machine: it is not woken more often for that. A
/// guess.
const LEAST_SLEEP_NS: u64 = 20_000_000;
/// Passes over all memory that a round begins at most.
const MOST_PASSES: u32 = 2;

static PAGES_COLLAPSED: AtomicU64 = AtomicU64::new(0);
static FULL_SCANS: AtomicU64 = AtomicU64::new(0);

/// Huge pages that it has made.
pub fn pages_collapsed() -> u64 {
    PAGES_COLLAPSED.load(Ordering::Relaxed)
}

/// How often it has been through all memory.
pub fn full_scans() -> u64 {
    FULL_SCANS.load(Ordering::Relaxed)
}

/// Lets it begin.
pub fn start() {
    let stack = KernelStack::new().expect("the heap is empty still");
    sched::start(&Arc::new(Thread::for_kernel(stack, main)));
}

/// There is a reason to look again: a knob was set.
pub fn look_again() {
    daemon::tell(&daemon::COLLAPSE);
}

/// Where the scan is.
#[derive(Clone, Copy, Default)]
struct Place {
    pid: u32,
    address: u64,
}

/// The memory at the place or after it.
fn memory_from(place: Place) -> Option<(Place, Arc<Mm>)> {
    let mut pid = place.pid;
    loop {
        let process = table::next(pid)?;
        if let Some(mm) = process.mm() {
            let address = if process.pid == place.pid { place.address } else { 0 };
            return Some((Place { pid: process.pid, address }, mm));
        }
        pid = process.pid + 1;
    }
}

/// How a round ended.
enum Round {
    /// It has looked at as much as it should.
    Done,
    /// There was no block.
    NoBlock,
}

fn round(place: &mut Place, nr_ptes: u64) -> Round {
    let nr_emptied = mm::vm().nr_blocks_emptied();
    let mut left = nr_ptes;
    let mut nr_passes = 1;
    while left > 0 && mm::vm().khugepaged_wanted() {
        let Some((found, mm)) = memory_from(*place) else {
            FULL_SCANS.fetch_add(1, Ordering::Relaxed);
            *place = Place::default();
            nr_passes += 1;
            if nr_passes > MOST_PASSES {
                break;
            }
            continue;
        };
        let scan = mm.space.khugepaged_scan(found.address, left.min(STEP_PTES));
        drop(mm);
        PAGES_COLLAPSED.fetch_add(scan.nr_collapsed, Ordering::Relaxed);
        left = left.saturating_sub(scan.nr_scanned.max(1));
        *place = match scan.next {
            Some(address) => Place { address, ..found },
            None => Place { pid: found.pid + 1, address: 0 },
        };
        if scan.refused == Some(CollapseRefusal::NoHugeFrame) {
            *place = Place { address: scan.next.unwrap_or(0).saturating_sub(HUGE_BYTES), ..found };
            daemon::wish_for_block(nr_emptied);
            return Round::NoBlock;
        }
        // The kernel is not interrupted: others get their turn here.
        sched::tick();
        sched::yield_now();
    }
    Round::Done
}

/// Sleeps so long, or until there is a reason that `seen` does not count.
fn sleep(seen: u64, ms: Option<u32>) {
    let now = time::now_ns();
    let end = ms.map(|ms| now + (u64::from(ms) * NS_PER_MS).max(LEAST_SLEEP_NS));
    let woken = || daemon::COLLAPSE.load(Ordering::SeqCst) != seen;
    while !woken() && end.is_none_or(|end| time::now_ns() < end) {
        parking::sleep(&daemon::COLLAPSE, seen, end);
    }
    while woken() && time::now_ns() < now + LEAST_SLEEP_NS {
        sched::block_until(Some(now + LEAST_SLEEP_NS));
    }
}

extern "C" fn main() -> ! {
    sched::kernel_thread_started();
    let mut place = Place::default();
    loop {
        let seen = daemon::COLLAPSE.load(Ordering::SeqCst);
        let knobs = mm::vm().huge_knobs().khugepaged;
        let ms = match mm::vm().khugepaged_wanted().then(|| round(&mut place, knobs.pages_to_scan.into())) {
            None => None,
            Some(Round::Done) => Some(knobs.scan_sleep_millisecs),
            Some(Round::NoBlock) => Some(knobs.alloc_sleep_millisecs),
        };
        sleep(seen, ms);
        daemon::wish_for_none();
    }
}
