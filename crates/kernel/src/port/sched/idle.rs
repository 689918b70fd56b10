//! The work of a CPU that no thread wants.

use super::queue::{self, HALTED, SPINNING};
use super::{Thread, leave_space, local, switch, tick};
use crate::port::arch::{cpu, time};
use crate::port::{mailbox, mm};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

/// How long a CPU watches the queue before it halts: waking a halted one takes
/// some 15 to 50 us under QEMU, one that spins under one.
const SPIN_NS: u64 = 20_000;
/// How long a CPU that has found no block to zero does not look again, unless one
/// has become free.
const LOOK_AGAIN_NS: u64 = 10_000_000;

/// Watches the queue with plain loads; `pause` would stop the emulation of the
/// other CPUs for long.
fn spin() -> bool {
    let me = 1 << cpu::index();
    SPINNING.fetch_or(me, Ordering::SeqCst);
    let end = time::now_ns() + SPIN_NS;
    let mut found = false;
    mailbox::poll_until(|| {
        found = queue::looks_busy();
        found || time::now_ns() > end
    });
    SPINNING.fetch_and(!me, Ordering::SeqCst);
    found
}

/// When this CPU found no block to zero, and how often one had become free by then.
struct Looked {
    at_ns: AtomicU64,
    nr_emptied: AtomicU64,
}

static LOOKED: [Looked; cpu::MAX_CPUS] =
    [const { Looked { at_ns: AtomicU64::new(0), nr_emptied: AtomicU64::new(u64::MAX) } }; cpu::MAX_CPUS];

static NR_ZEROED: AtomicU64 = AtomicU64::new(0);

/// Blocks that idle CPUs have zeroed so far.
pub fn nr_blocks_zeroed() -> u64 {
    NR_ZEROED.load(Ordering::Relaxed)
}

/// Zeroes blocks ahead of time, one after the other, until there is work or no
/// block; whether there is work. Unneeded work is not done: without huge pages
/// a CPU that has nothing to do halts at once.
fn zero_ahead() -> bool {
    let vm = mm::vm();
    if !vm.khugepaged_wanted() {
        return false;
    }
    let looked = &LOOKED[cpu::index()];
    let (now, nr_emptied) = (time::now_ns(), vm.nr_blocks_emptied());
    let is_same = looked.nr_emptied.load(Ordering::Relaxed) == nr_emptied;
    if is_same && now < looked.at_ns.load(Ordering::Relaxed) + LOOK_AGAIN_NS {
        return false;
    }
    loop {
        if queue::has_work() {
            return true;
        }
        let nr = vm.zero_ahead(1);
        if nr == 0 {
            looked.at_ns.store(time::now_ns(), Ordering::Relaxed);
            looked.nr_emptied.store(vm.nr_blocks_emptied(), Ordering::Relaxed);
            return queue::has_work();
        }
        NR_ZEROED.fetch_add(nr, Ordering::Relaxed);
        // No interrupt comes through meanwhile.
        mailbox::poll();
        tick::tick();
    }
}

/// Waits for an interrupt, unless there is work.
fn halt() {
    leave_space();
    let me = 1 << cpu::index();
    HALTED.fetch_or(me, Ordering::SeqCst);
    if !queue::has_work() {
        cpu::halt_once();
    }
    HALTED.fetch_and(!me, Ordering::SeqCst);
}

/// Becomes the executing CPU's idle thread.
pub fn run_idle() -> ! {
    local::this().borrow_mut().adopt(Arc::new(Thread::idle()));
    tick::tick();
    loop {
        match queue::pop(None) {
            Some(next) => switch::run(next),
            None => {
                if (!spin() || !queue::has_work()) && !zero_ahead() {
                    halt();
                }
            }
        }
        mailbox::poll();
    }
}
