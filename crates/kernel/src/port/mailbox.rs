//! Requests from CPU to CPU: a barrier, or translations to drop.
//!
//! A CPU has one request of its own under way at a time, in its slot; the others
//! find its number in their inbox. The kernel runs with interrupts off, so a
//! request is served where the target leaves the kernel (the interrupt), halts,
//! or spins: every spin calls [`poll`], the one that waits for answers included.
//! None of these lies inside a section of the subsystem, which is why a
//! shootdown is a grace period as well.

use crate::port::arch::cpu::{self, MAX_CPUS};
use crate::port::arch::{apic, time};
use crate::port::boot::paging;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use softfault::CpuSet;

/// More pages than this are dropped by dropping all.
const MAX_SINGLE_PAGES: u64 = 32;
/// As a number of pages: drop everything.
const ALL_PAGES: u64 = u64::MAX;
/// An answer takes about 1 us, from a CPU that the host runs.
const SPIN_NS: u64 = 20_000;

/// The targets' part of a request, besides a full barrier.
#[derive(Clone, Copy)]
pub enum Work {
    /// Nothing more.
    Barrier,
    /// Drop translations of the space with this root table (physical address).
    Flush {
        /// Its root table.
        root: u64,
        /// First address.
        start: u64,
        /// How many pages.
        nr_pages: u64,
    },
    /// Drop all translations of the space, the walkers' caches included.
    FlushAll {
        /// Its root table.
        root: u64,
    },
}

#[repr(align(64))]
struct Request {
    root: AtomicU64,
    start: AtomicU64,
    nr_pages: AtomicU64,
    /// CPUs that have not answered yet.
    pending: AtomicU64,
}

#[repr(align(64))]
struct Inbox(AtomicU64);

static REQUESTS: [Request; MAX_CPUS] = [const {
    Request {
        root: AtomicU64::new(0),
        start: AtomicU64::new(0),
        nr_pages: AtomicU64::new(0),
        pending: AtomicU64::new(0),
    }
}; MAX_CPUS];
/// CPUs that halted while they wait for answers.
static ASLEEP: AtomicU64 = AtomicU64::new(0);
/// CPUs that look at their inbox all the time: they need no interrupt.
static POLLING: AtomicU64 = AtomicU64::new(0);
static INBOXES: [Inbox; MAX_CPUS] = [const { Inbox(AtomicU64::new(0)) }; MAX_CPUS];

impl Work {
    fn fields(self) -> (u64, u64, u64) {
        match self {
            Work::Barrier => (0, 0, 0),
            Work::Flush { root, start, nr_pages } if nr_pages <= MAX_SINGLE_PAGES => (root, start, nr_pages),
            Work::Flush { root, .. } | Work::FlushAll { root } => (root, 0, ALL_PAGES),
        }
    }
}

/// Drops translations on this CPU, if it has that space loaded: without tags a
/// CPU holds none of any other.
fn flush_here((root, start, nr_pages): (u64, u64, u64)) {
    if nr_pages == 0 || paging::current_root() != root {
        return;
    }
    if nr_pages == ALL_PAGES {
        return paging::load_root(root);
    }
    for page in 0..nr_pages {
        x86_64::instructions::tlb::flush(x86_64::VirtAddr::new_truncate(start + page * 4096));
    }
}

/// Has `work` done on every CPU of the set, this one included if it is a member,
/// and waits until it is.
pub fn call(cpus: &CpuSet, work: Work) {
    let me = cpu::index();
    let fields = work.fields();
    let mut mask: u64 = 0;
    for cpu in cpus.iter().map(|c| usize::from(c.0)) {
        if cpu == me {
            flush_here(fields);
        } else if cpu < cpu::nr_cpus() {
            mask |= 1 << cpu;
        }
    }
    fence(Ordering::SeqCst);
    if mask == 0 {
        return;
    }
    let request = &REQUESTS[me];
    request.root.store(fields.0, Ordering::Relaxed);
    request.start.store(fields.1, Ordering::Relaxed);
    request.nr_pages.store(fields.2, Ordering::Relaxed);
    request.pending.store(mask, Ordering::Release);
    let mut left = mask;
    while left != 0 {
        let target = left.trailing_zeros() as usize;
        left &= left - 1;
        INBOXES[target].0.fetch_or(1 << me, Ordering::SeqCst);
        // A CPU that has just stopped polling looks once more after it said so.
        if POLLING.load(Ordering::SeqCst) & 1 << target == 0 {
            apic::poke(target);
        }
    }
    wait_for_answers(me, request);
    fence(Ordering::SeqCst);
}

/// Spins for a while, then halts until the last answer comes: on a host with
/// more work than cores, a CPU that only spins keeps the ones it waits for from
/// running.
fn wait_for_answers(me: usize, request: &Request) {
    let end = time::now_ns() + SPIN_NS;
    let answered = || request.pending.load(Ordering::Acquire) == 0;
    poll_until(|| answered() || time::now_ns() >= end);
    while !answered() {
        poll();
        ASLEEP.fetch_or(1 << me, Ordering::SeqCst);
        if request.pending.load(Ordering::SeqCst) != 0 {
            cpu::halt_once();
        }
        ASLEEP.fetch_and(!(1 << me), Ordering::SeqCst);
    }
}

/// Serves other CPUs until `done`; they need not interrupt this one meanwhile.
pub fn poll_until(mut done: impl FnMut() -> bool) {
    let me = cpu::index();
    POLLING.fetch_or(1 << me, Ordering::SeqCst);
    while !done() {
        poll();
    }
    POLLING.fetch_and(!(1 << me), Ordering::SeqCst);
    poll();
}

/// Serves what other CPUs have asked of this one.
#[inline]
pub fn poll() {
    let me = cpu::index();
    if INBOXES[me].0.load(Ordering::Relaxed) != 0 {
        serve(me);
    }
}

#[cold]
fn serve(me: usize) {
    let mut senders = INBOXES[me].0.swap(0, Ordering::SeqCst);
    while senders != 0 {
        let sender = senders.trailing_zeros() as usize;
        senders &= senders - 1;
        let request = &REQUESTS[sender];
        let field = |word: &AtomicU64| word.load(Ordering::Relaxed);
        flush_here((field(&request.root), field(&request.start), field(&request.nr_pages)));
        fence(Ordering::SeqCst);
        let before = request.pending.fetch_and(!(1 << me), Ordering::SeqCst);
        if before == 1 << me && ASLEEP.load(Ordering::SeqCst) & 1 << sender != 0 {
            apic::poke(sender);
        }
    }
}
