//! The host's Linux as the oracle: a child process runs sequences in its own address space.
//!
//! Parent and child share one mapping, the `Board`. The parent writes steps and waits; the
//! child writes outcomes. A real fork of the child runs the steps of a forked program; the
//! board says whose turn it is. `agent.rs` is the child's half, with the steps of
//! `native.rs`.
//!
//! Invariants of this file and of `agent.rs`:
//! - **N1** the board is one shared mapping of zeroes, made of atomics alone, and
//!   lives as long as any process that has its address: the parent unmaps it
//!   after the child has been reaped; each fork of the child has the mapping for
//!   itself.
//! - **N2** between fork and exit the child makes raw system calls and touches
//!   only the board, its stack and its statics; it never allocates.
//! - **N3** the child's steps touch only the window, its own heap past the break
//!   it began with, and mappings that the kernel placed for them.
#![allow(unsafe_code)]

mod agent;
mod host_pool;

use crate::features::Features;
use crate::model::{Expected, PoolCounts};
use crate::op::{OP_WORDS, OUTCOME_WORDS, Op, Outcome};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use host_pool::HostPool;
use std::io;
use std::time::{Duration, Instant};

/// Steps that a sequence may have.
pub const MAX_OPS: usize = 4096;
/// Programs that a sequence may have.
pub const MAX_PROGRAMS: u64 = 6;
/// The parent's turn.
const PARENT: u32 = 99;
/// A sequence of [`MAX_OPS`] takes well under a second, and as many times longer as other work on the machine makes it.
const PATIENCE: Duration = Duration::from_secs(900);

/// Memory that parent and children share (N1).
#[repr(C)]
pub(crate) struct Board {
    /// Counts sequences: a fork of an older one ends itself.
    epoch: AtomicU32,
    /// The process of the first program.
    first: AtomicU32,
    /// The number of the program whose turn it is, or [`PARENT`].
    turn: AtomicU32,
    /// The next step, or the one under way.
    pos: AtomicU32,
    nr_ops: AtomicU32,
    ops: [[AtomicU64; OP_WORDS]; MAX_OPS],
    outcomes: [[AtomicU64; OUTCOME_WORDS]; MAX_OPS],
    /// The counts of the host's pool after each step; [`NO_COUNT`] without it.
    pool: [[AtomicU64; 4]; MAX_OPS],
}

/// No number of pages.
const NO_COUNT: u64 = u64::MAX;

impl Board {
    fn op(&self, i: usize) -> Option<Op> {
        Op::decode(self.ops.get(i)?.each_ref().map(|word| word.load(Acquire)))
    }

    fn set_outcome(&self, i: usize, outcome: Outcome) {
        for (to, word) in self.outcomes[i].iter().zip(outcome.encode()) {
            to.store(word, Release);
        }
    }

    fn set_pool(&self, i: usize, counts: Option<PoolCounts>) {
        let words = counts.map_or([NO_COUNT; 4], |is| [is.nr, is.free, is.reserved, is.surplus]);
        for (to, word) in self.pool[i].iter().zip(words) {
            to.store(word, Release);
        }
    }

    fn pool(&self, i: usize) -> Option<PoolCounts> {
        let [nr, free, reserved, surplus] = self.pool[i].each_ref().map(|word| word.load(Acquire));
        (nr != NO_COUNT).then_some(PoolCounts { nr, free, reserved, surplus })
    }

    /// Gives the turn to `who`.
    fn pass_to(&self, who: u32) {
        self.turn.store(who, SeqCst);
        futex(&self.turn, libc::FUTEX_WAKE, i32::MAX as u32, None);
    }

    /// Sleeps for a while if it is still `who`'s turn.
    fn sleep_while(&self, who: u32) {
        let while_ns = libc::timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        futex(&self.turn, libc::FUTEX_WAIT, who, Some(&while_ns));
    }
}

/// The word is shared between processes, so no private futex.
fn futex(word: &AtomicU32, what: i32, value: u32, timeout: Option<&libc::timespec>) {
    let timeout = timeout.map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: N1: the word is on the board; the timeout is a live reference.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), what, value, timeout) };
}

/// A child process that executes sequences.
pub struct Linux {
    board: &'static Board,
    child: libc::pid_t,
    /// For sequences with a pool.
    pool: Option<HostPool>,
}

/// The child could not be started, or did not finish a sequence.
#[derive(Debug)]
pub enum LinuxError {
    /// The host refused memory or a process.
    Start(io::Error),
    /// The child died or hung at this step.
    Lost(usize),
    /// All programs have ended, and the host's pool is not whole.
    Pool(String),
}

impl core::fmt::Display for LinuxError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            LinuxError::Start(error) => write!(f, "the child process could not be started: {error}"),
            LinuxError::Pool(left) => write!(f, "the host's pool after the last exit: {left}"),
            LinuxError::Lost(step) => {
                write!(f, "the child process was lost at step {step}; steps should leave it alive")
            }
        }
    }
}

impl core::error::Error for LinuxError {}

impl Linux {
    /// Starts a child. It loses root's rights if it has them, so that every host
    /// refuses it the same things.
    pub fn start() -> Result<Linux, LinuxError> {
        Linux::start_with(None)
    }

    /// The same, for sequences with a pool, too: that of the host, which must be empty. It takes root, and is empty again at the end.
    pub fn start_with_pool() -> Result<Linux, LinuxError> {
        Linux::start_with(Some(HostPool::take().map_err(LinuxError::Start)?))
    }

    fn start_with(pool: Option<HostPool>) -> Result<Linux, LinuxError> {
        let failed = || LinuxError::Start(io::Error::last_os_error());
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: N1: a new mapping; zeroes are valid atomics.
        let board = unsafe { libc::mmap(core::ptr::null_mut(), size_of::<Board>(), prot, flags, -1, 0) };
        if board == libc::MAP_FAILED {
            return Err(failed());
        }
        // SAFETY: N1: mapped, page-aligned, and large enough.
        let board: &'static Board = unsafe { &*board.cast::<Board>() };
        board.turn.store(PARENT, SeqCst);
        // SAFETY: N2: the child goes straight into the agent, which never returns.
        let child = unsafe { libc::fork() };
        match child {
            -1 => Err(failed()),
            0 => agent::serve(board),
            _ => Ok(Linux { board, child, pool }),
        }
    }

    /// Executes a sequence in a fresh address space: what came of each step.
    ///
    /// # Panics
    ///
    /// If there are more than [`MAX_OPS`] steps.
    pub fn run(&mut self, ops: &[Op]) -> Result<Vec<Outcome>, LinuxError> {
        assert!(ops.len() <= MAX_OPS, "{} steps", ops.len());
        for (place, op) in self.board.ops.iter().zip(ops) {
            for (to, word) in place.iter().zip(op.encode()) {
                to.store(word, Release);
            }
        }
        self.board.nr_ops.store(ops.len() as u32, Release);
        self.board.pos.store(0, Release);
        self.board.epoch.fetch_add(1, SeqCst);
        self.board.pass_to(0);
        let started = Instant::now();
        loop {
            let turn = self.board.turn.load(SeqCst);
            if turn == PARENT {
                break;
            }
            self.board.sleep_while(turn);
            if started.elapsed() > PATIENCE || self.is_dead() {
                return Err(LinuxError::Lost(self.board.pos.load(Acquire) as usize));
            }
        }
        if let Some(pool) = &self.pool {
            // The forks of this one end.
            self.board.epoch.fetch_add(1, SeqCst);
            pool.settle().map_err(LinuxError::Pool)?;
        }
        let outcome = |words: &[AtomicU64; OUTCOME_WORDS]| Outcome::decode(words.each_ref().map(|w| w.load(Acquire)));
        Ok(self.board.outcomes[..ops.len()].iter().map(outcome).collect())
    }

    /// How the counts of the host's pool after a step of the last sequence are others than expected.
    pub fn pool_differs(&self, step: usize, expected: &Expected) -> Option<String> {
        let (expected, seen) = (expected.pool?, self.board.pool(step));
        (seen != Some(expected)).then(|| format!("Linux's pool: {seen:?}, should be {expected:?}"))
    }

    /// The same as [`run`](Linux::run), once more if something else comes of a step than expected, or of the pool: now and
    /// then Linux makes a huge page in the background, which is seen in what is
    /// resident.
    pub fn run_expecting(&mut self, ops: &[Op], expected: &[Expected]) -> Result<Vec<Outcome>, LinuxError> {
        let outcomes = self.run(ops).map_err(|error| self.explain(ops, expected, error))?;
        let is_good = |(step, (expected, seen)): (usize, (&Expected, &Outcome))| {
            expected.allows(*seen) && self.pool_differs(step, expected).is_none()
        };
        if expected.iter().zip(&outcomes).enumerate().all(is_good) { Ok(outcomes) } else { self.run(ops) }
    }

    /// Adds to what is left in the pool the step after which it was first seen, and those before it.
    fn explain(&self, ops: &[Op], expected: &[Expected], error: LinuxError) -> LinuxError {
        let LinuxError::Pool(left) = error else { return error };
        let of_pool = |(step, expected)| Some((step, self.pool_differs(step, expected)?));
        let Some((step, how)) = expected.iter().enumerate().find_map(of_pool) else { return LinuxError::Pool(left) };
        let steps: String = ops[..=step].iter().enumerate().map(|(i, op)| format!("{i}: {op}\n")).collect();
        LinuxError::Pool(format!("{left}; first after step {step}: {how}\n{steps}"))
    }

    /// Returns the features of this host's kernel.
    pub fn features(&mut self) -> Result<Features, LinuxError> {
        Features::probe(|steps| Ok(self.run(steps)?.last().is_some_and(Outcome::is_success)))
    }

    /// Whether it runs sequences with a pool.
    pub fn has_pool(&self) -> bool {
        self.pool.is_some()
    }

    fn is_dead(&mut self) -> bool {
        // SAFETY: N1: our own child; a null status is allowed.
        let reaped = self.child > 0 && unsafe { libc::waitpid(self.child, core::ptr::null_mut(), libc::WNOHANG) } != 0;
        if reaped {
            self.child = 0;
        }
        reaped
    }
}

impl Drop for Linux {
    fn drop(&mut self) {
        // SAFETY: N1: our own child, not reaped yet. Its forks have the mapping for
        // themselves, and end when they find it dead.
        unsafe {
            if self.child > 0 {
                libc::kill(self.child, libc::SIGKILL);
                libc::waitpid(self.child, core::ptr::null_mut(), 0);
            }
            libc::munmap(core::ptr::from_ref(self.board).cast_mut().cast(), size_of::<Board>());
        }
    }
}

#[cfg(test)]
mod tests;
