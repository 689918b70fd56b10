//! The child's half: executes steps by raw system calls (T2, T3).
#![allow(unsafe_code)]

use super::probe::{Probe, install, probe};
use super::{Board, PARENT};
use crate::op::{Call, HEAP, HEAP_BYTES, Op, Outcome, PAGE, WINDOW, WINDOW_PAGES};
use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};

const MREMAP_MAYMOVE: u64 = 1;
const MREMAP_FIXED: u64 = 2;
/// An account without rights, `nobody` on most systems.
const NOBODY: u64 = 65534;

/// One program: the child or a fork of it.
struct Agent {
    board: &'static Board,
    me: u32,
    /// The sequence that a fork belongs to.
    epoch: u32,
    /// The break that the process began with: where steps see [`HEAP`].
    heap: u64,
}

/// The life of the child. Never returns.
pub(super) fn serve(board: &'static Board) -> ! {
    prepare();
    install();
    let heap = call(libc::SYS_brk, [0; 6]) as u64;
    board.first.store(call(libc::SYS_getpid, [0; 6]) as u32, SeqCst);
    Agent { board, me: 0, epoch: 0, heap }.live()
}

fn call(nr: i64, args: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = args;
    // SAFETY: T2, T3: a raw system call with the step's arguments.
    let ret = unsafe { libc::syscall(nr, a, b, c, d, e, f) };
    if ret != -1 {
        return ret;
    }
    // SAFETY: T2: the location of this thread's errno.
    -i64::from(unsafe { *libc::__errno_location() })
}

/// No rights, no huge pages, no zombies, no life after the parent.
fn prepare() {
    call(libc::SYS_prctl, [libc::PR_SET_PDEATHSIG as u64, libc::SIGKILL as u64, 0, 0, 0, 0]);
    call(libc::SYS_prctl, [libc::PR_SET_THP_DISABLE as u64, 1, 0, 0, 0, 0]);
    // The usual limits, which the model knows.
    let stack = [8u64 << 20; 2];
    call(libc::SYS_prlimit64, [0, libc::RLIMIT_STACK as u64, stack.as_ptr() as u64, 0, 0, 0]);
    call(libc::SYS_setresgid, [NOBODY, NOBODY, NOBODY, 0, 0, 0]);
    call(libc::SYS_setresuid, [NOBODY, NOBODY, NOBODY, 0, 0, 0]);
    // Changing the user clears the signal that the parent's death sends.
    call(libc::SYS_prctl, [libc::PR_SET_PDEATHSIG as u64, libc::SIGKILL as u64, 0, 0, 0, 0]);
    // SAFETY: T2: children are reaped by nobody, so the kernel shall do it.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

impl Agent {
    fn live(mut self) -> ! {
        loop {
            self.await_turn();
            self.take_turn();
        }
    }

    fn await_turn(&self) {
        loop {
            let turn = self.board.turn.load(SeqCst);
            if self.me != 0 && (self.board.epoch.load(SeqCst) != self.epoch || self.is_orphan()) {
                // SAFETY: T2: ends this fork.
                unsafe { libc::_exit(0) };
            }
            if turn == self.me {
                return;
            }
            self.board.sleep_while(turn);
        }
    }

    /// Whether the first program is dead. Its parent in turn may be one that has
    /// exited as it should.
    fn is_orphan(&self) -> bool {
        call(libc::SYS_kill, [u64::from(self.board.first.load(SeqCst)), 0, 0, 0, 0, 0]) < 0
    }

    /// Executes steps until one is another program's.
    fn take_turn(&mut self) {
        loop {
            let pos = self.board.pos.load(Acquire) as usize;
            if pos >= self.board.nr_ops.load(Acquire) as usize {
                if self.me != 0 {
                    return self.board.pass_to(0);
                }
                self.clean_up();
                return self.board.pass_to(PARENT);
            }
            let Some(op) = self.board.op(pos) else {
                return self.board.pass_to(PARENT);
            };
            if op.who != u64::from(self.me) {
                return self.board.pass_to(op.who as u32);
            }
            self.step(pos, op);
        }
    }

    fn step(&mut self, pos: usize, op: Op) {
        let done = |agent: &Agent, outcome| {
            agent.board.set_outcome(pos, outcome);
            agent.board.pos.store(pos as u32 + 1, Release);
        };
        match op.call {
            Call::Fork => {
                // Before the fork: the child may be slow to begin.
                let epoch = self.board.epoch.load(SeqCst);
                let ret = call(libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0, 0, 0, 0]);
                if ret == 0 {
                    self.me = op.args[0] as u32;
                    self.epoch = epoch;
                    // The child has copies of its parent's frames on its stack and
                    // goes on where the parent was, in its own turn.
                    self.await_turn();
                    return;
                }
                done(self, if ret < 0 { Outcome::Errno(-ret as u64) } else { Outcome::Value(0) });
            }
            Call::Exit => {
                done(self, Outcome::Value(0));
                // The next step is another program's, or the end.
                let next = self.board.op(pos + 1).filter(|_| pos + 1 < self.board.nr_ops.load(Acquire) as usize);
                self.board.pass_to(next.map_or(0, |op| op.who as u32));
                // SAFETY: T2: ends this fork.
                unsafe { libc::_exit(0) };
            }
            _ => done(self, self.execute(op)),
        }
    }

    fn execute(&self, op: Op) -> Outcome {
        let [a, b, c, d, e, f] = op.args;
        let at = self.to_real(a);
        match op.call {
            Call::Mmap => {
                let ret = call(libc::SYS_mmap, [at, b, c, d, u64::MAX, 0]);
                self.settle(ret, b, e)
            }
            Call::Mremap => {
                let ret = call(libc::SYS_mremap, [at, b, c, d, self.to_real(e), 0]);
                self.settle(ret, c, f)
            }
            Call::Munmap => plain(call(libc::SYS_munmap, [at, b, 0, 0, 0, 0])),
            Call::Mprotect => plain(call(libc::SYS_mprotect, [at, b, c, 0, 0, 0])),
            Call::Madvise => plain(call(libc::SYS_madvise, [at, b, c, 0, 0, 0])),
            Call::Brk => Outcome::Value(self.to_logical(call(libc::SYS_brk, [at, 0, 0, 0, 0, 0]) as u64)),
            Call::Mincore => mincore(at, b),
            Call::Load => probe(if b == 1 { Probe::Load1 } else { Probe::Load8 }, at, 0),
            Call::Store => probe(if b == 1 { Probe::Store1 } else { Probe::Store8 }, at, c),
            Call::Exec => probe(Probe::Exec, at, 0),
            Call::Fork | Call::Exit => Outcome::Broken(2),
        }
    }

    /// What a placing call gave: an address of ours, or one of the kernel's own
    /// choice, which is then moved to `landing` or unmapped.
    fn settle(&self, ret: i64, len: u64, landing: u64) -> Outcome {
        if ret < 0 {
            return Outcome::Errno(-ret as u64);
        }
        let logical = self.to_logical(ret as u64);
        if is_ours(logical) {
            return Outcome::Value(logical);
        }
        let len = len.next_multiple_of(PAGE);
        let moved = match landing {
            0 => call(libc::SYS_munmap, [ret as u64, len, 0, 0, 0, 0]) == 0,
            _ => {
                let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
                call(libc::SYS_mremap, [ret as u64, len, len, flags, landing, 0]) == landing as i64
            }
        };
        if moved { Outcome::Elsewhere } else { Outcome::Broken(3) }
    }

    fn to_real(&self, addr: u64) -> u64 {
        if (HEAP..HEAP + HEAP_BYTES).contains(&addr) { addr - HEAP + self.heap } else { addr }
    }

    fn to_logical(&self, addr: u64) -> u64 {
        if (self.heap..self.heap + HEAP_BYTES).contains(&addr) { addr - self.heap + HEAP } else { addr }
    }

    fn clean_up(&self) {
        call(libc::SYS_munmap, [WINDOW - (64 << 20), WINDOW_PAGES * PAGE + (128 << 20), 0, 0, 0, 0]);
        // A step may have unmapped the heap's end, and then the break does not
        // shrink: map the hole first.
        let now = call(libc::SYS_brk, [0; 6]) as u64;
        if now > self.heap {
            let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;
            call(libc::SYS_mmap, [self.heap, (now - self.heap).next_multiple_of(PAGE), 3, flags, u64::MAX, 0]);
            call(libc::SYS_brk, [self.heap, 0, 0, 0, 0, 0]);
        }
        call(libc::SYS_munmap, [self.heap, HEAP_BYTES, 0, 0, 0, 0]);
    }
}

fn is_ours(logical: u64) -> bool {
    let window = WINDOW - (64 << 20)..WINDOW + WINDOW_PAGES * PAGE + (64 << 20);
    window.contains(&logical) || (HEAP..HEAP + HEAP_BYTES).contains(&logical)
}

fn plain(ret: i64) -> Outcome {
    if ret < 0 { Outcome::Errno(-ret as u64) } else { Outcome::Value(ret as u64) }
}

/// A bit for each page; of longer ranges only whether it failed.
fn mincore(addr: u64, len: u64) -> Outcome {
    // The kernel writes as far as it comes before it fails: at most what can be
    // mapped in one piece.
    let mut seen = [0u8; 2 * WINDOW_PAGES as usize];
    let ret = call(libc::SYS_mincore, [addr, len, seen.as_mut_ptr() as u64, 0, 0, 0]);
    if ret < 0 || len.div_ceil(PAGE) > 64 {
        return plain(ret);
    }
    Outcome::Value(seen[..64].iter().enumerate().fold(0, |bits, (i, byte)| bits | u64::from(byte & 1) << i))
}
