//! Store buffers: what the CPUs of a schedule have stored and others do not see yet.
//!
//! One first-in-first-out buffer per CPU, as on x86 (total store order):
//!
//! | operation | effect |
//! | --- | --- |
//! | store (plain, relaxed, release) | appended to the CPU's buffer |
//! | load | the CPU's own newest buffered store of that cell, else memory |
//! | read-modify-write, SeqCst store, fence | the CPU's buffer is drained before |
//! | heavy barrier, shootdown | the buffers of the CPUs in the set are drained |
//! | any operation | now and then the oldest store of some CPU is drained |
//!
//! How often threads are switched and stores drained is drawn anew for each
//! schedule: short turns find close races. Now and then a CPU stalls for as long as
//! an operation of another CPU takes: that finds what needs a slow partner.
//!
//! Stores of one CPU never overtake each other, and loads are never early. Orders
//! that only weaker machines show are loom's part (`docs/testing.md`).
#![allow(unsafe_code)] // drained stores go to memory by address

extern crate std;

use core::sync::atomic::{AtomicU64, Ordering};
use shuttle::rand::RngCore;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::vec::Vec;

/// Stores that a CPU may have waiting; the next one drains the oldest. x86 CPUs
/// have 40 to 110.
const CAPACITY: usize = 64;
/// One operation in so many may switch threads, and drains one store of some CPU.
const ONE_IN: [u64; 5] = [1, 4, 16, 64, 256];
/// One operation in so many begins a stall, and so many stalls has a schedule at most.
const STALL_ONE_IN: [u64; 3] = [40, 160, 640];
const MOST_STALLS: u64 = 3;
/// The longest stall, in turns of other CPUs.
const STALL_TURNS: u64 = 1500;
/// The number of a thread that is no CPU: its stores are not buffered.
const NO_CPU: usize = usize::MAX;

/// Unit that is copied without a scheduling point, of memory that others may store to meanwhile. Pages of 1 GiB have too many words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CopyStep {
    /// As the instruction does.
    Word,
    /// The CPU's own stores to the frames come before.
    Frame,
}

#[derive(Clone, Copy)]
struct Store {
    cell: *const AtomicU64,
    value: u64,
}

impl Store {
    fn lies_in(&self, addr: usize, bytes: usize) -> bool {
        (addr..addr + bytes).contains(&self.cell.addr())
    }

    fn perform(&self) {
        // SAFETY: I1: the cell was borrowed when it was stored to. It lies in a frame
        // or in the `Vm`, and both outlive the schedule, at the end of which nothing
        // is buffered.
        unsafe { (*self.cell).store(self.value, Ordering::Relaxed) }
    }
}

std::thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
    static AT_ONCE: Cell<bool> = const { Cell::new(false) };
    static COPY_STEP: Cell<CopyStep> = const { Cell::new(CopyStep::Word) };
    static SWITCH_ONE_IN: Cell<u64> = const { Cell::new(1) };
    static DRAIN_ONE_IN: Cell<u64> = const { Cell::new(1) };
    static STALL_IN: Cell<u64> = const { Cell::new(1) };
    static STALLS_LEFT: Cell<u64> = const { Cell::new(0) };
    static BUFFERS: RefCell<Vec<VecDeque<Store>>> = const { RefCell::new(Vec::new()) };
    /// The CPU of each of shuttle's threads, by their number. A look at a shuttle thread-local costs more than an operation.
    static CPUS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// State of [`random`].
    static DRAWN: Cell<u64> = const { Cell::new(0) };
}

/// From now on operations are scheduling points and stores are buffered, for
/// `nr_cpus` CPUs. Only inside a shuttle test, whose threads are coroutines of one
/// system thread.
pub fn begin(nr_cpus: usize) {
    DRAWN.set(shuttle::rand::thread_rng().next_u64());
    SWITCH_ONE_IN.set(draw(&ONE_IN));
    DRAIN_ONE_IN.set(draw(&ONE_IN));
    STALL_IN.set(draw(&STALL_ONE_IN));
    STALLS_LEFT.set(MOST_STALLS);
    BUFFERS.with_borrow_mut(|b| {
        b.clear();
        b.resize(nr_cpus, VecDeque::new());
    });
    CPUS.with_borrow_mut(Vec::clear);
    RUNNING.set(true);
}

/// All stores are performed, and words are plain memory again.
pub fn end() {
    BUFFERS.with_borrow_mut(|b| b.iter_mut().for_each(perform_all));
    RUNNING.set(false);
}

/// The calling thread is that CPU until the next [`begin`].
pub fn run_as(cpu: usize) {
    let thread = this_thread();
    CPUS.with_borrow_mut(|cpus| {
        if cpus.len() <= thread {
            cpus.resize(thread + 1, NO_CPU);
        }
        cpus[thread] = cpu;
    });
}

fn this_thread() -> usize {
    shuttle::current::me().into()
}

/// From now on copies have that step, until the next call.
pub fn copy_by(step: CopyStep) {
    COPY_STEP.set(step);
}

pub(super) fn copy_step() -> CopyStep {
    COPY_STEP.get()
}

/// Calls `f` with no scheduling points in it. It sees memory and no buffer, as a
/// page walk of the hardware does.
pub fn quietly<R>(f: impl FnOnce() -> R) -> R {
    let was = RUNNING.replace(false);
    let result = f();
    RUNNING.set(was);
    result
}

/// Calls `f` with no scheduling points in it: what a CPU does in one instruction.
pub fn at_once<R>(f: impl FnOnce() -> R) -> R {
    let was = AT_ONCE.replace(true);
    let result = f();
    AT_ONCE.set(was);
    result
}

/// A full barrier on another CPU: an interrupt that is waited for.
pub fn drain_of(cpu: usize) {
    if RUNNING.get() {
        BUFFERS.with_borrow_mut(|b| perform_all(&mut b[cpu]));
    }
}

/// Where another thread may go on, and where a store may reach memory.
pub fn point() {
    if !RUNNING.get() || AT_ONCE.get() {
        return;
    }
    let drawn = random();
    if (drawn >> 48).is_multiple_of(DRAIN_ONE_IN.get()) {
        drain_one(drawn >> 32);
    }
    if STALLS_LEFT.get() > 0 && (drawn >> 16 & 0xffff).is_multiple_of(STALL_IN.get()) {
        STALLS_LEFT.set(STALLS_LEFT.get() - 1);
        (0..random() % STALL_TURNS).for_each(|_| shuttle::thread::yield_now());
    } else if (drawn & 0xffff).is_multiple_of(SWITCH_ONE_IN.get()) {
        shuttle::thread::yield_now();
    }
}

fn draw(from: &[u64]) -> u64 {
    from[(random() % from.len() as u64) as usize]
}

/// A number that follows from the schedule's first, which shuttle has drawn: so a schedule can be run again. Shuttle's own
/// numbers cost several times an operation each, and there is one for each operation. Steele, Lea and Flood, "Fast
/// splittable pseudorandom number generators", OOPSLA 2014.
fn random() -> u64 {
    let state = DRAWN.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    DRAWN.set(state);
    let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// A turn of a spin: others go on, and stores that are spun for arrive.
pub(super) fn spin() {
    if RUNNING.get() {
        drain_one(random());
        shuttle::thread::yield_now();
    }
}

/// Drains the calling CPU's buffer.
pub(super) fn drain() {
    with_own(perform_all);
}

/// The calling CPU's newest store to the cell, if it is buffered.
pub(super) fn forwarded(cell: *const AtomicU64) -> Option<u64> {
    with_own(|buffer| buffer.iter().rfind(|s| s.cell == cell).map(|s| s.value)).flatten()
}

/// Appends a store to the calling CPU's buffer; `false` where there is none.
pub(super) fn append(cell: *const AtomicU64, value: u64) -> bool {
    with_own(|buffer| {
        if buffer.len() == CAPACITY {
            buffer.drain(..1).for_each(|s| s.perform());
        }
        buffer.push_back(Store { cell, value });
    })
    .is_some()
}

/// The calling CPU is about to read or write these bytes as plain memory. Its own
/// stores to them come before.
pub(super) fn about_to_touch(addr: usize, bytes: usize) {
    with_own(|buffer| {
        if let Some(i) = buffer.iter().rposition(|s| s.lies_in(addr, bytes)) {
            buffer.drain(..=i).for_each(|s| s.perform());
        }
    });
}

fn with_own<R>(f: impl FnOnce(&mut VecDeque<Store>) -> R) -> Option<R> {
    if !RUNNING.get() {
        return None;
    }
    let thread = this_thread();
    let cpu = CPUS.with_borrow(|cpus| cpus.get(thread).copied())?;
    BUFFERS.with_borrow_mut(|b| b.get_mut(cpu).map(f))
}

fn drain_one(which: u64) {
    BUFFERS.with_borrow_mut(|b| {
        let nr_cpus = b.len() as u64;
        if let Some(store) = b[(which % nr_cpus) as usize].pop_front() {
            store.perform();
        }
    });
}

fn perform_all(buffer: &mut VecDeque<Store>) {
    buffer.drain(..).for_each(|s| s.perform());
}
