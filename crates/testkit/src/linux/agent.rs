//! The child's half: whose turn it is, forks, and the end of a sequence; the
//! steps are [`Turn`]'s (N2, N3).
#![allow(unsafe_code)]

use super::{Board, PARENT};
use crate::native::{self, Turn};
use crate::op::{Call, Op, Outcome};
use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};

/// One program: the child or a fork of it.
struct Agent {
    board: &'static Board,
    me: u32,
    /// The sequence that a fork belongs to.
    epoch: u32,
    /// The same for the child and its forks: they have its heap.
    turn: Turn,
}

/// Makes a system call; the arguments that are not named are 0. Returns its result, or the errno below 0.
fn call(nr: i64, [a, b]: [u64; 2]) -> i64 {
    // SAFETY: N2: a raw system call. The callers below pass no address.
    let ret = unsafe { libc::syscall(nr, a, b, 0, 0, 0, 0) };
    // SAFETY: N2: the location of this thread's errno.
    if ret == -1 { -i64::from(unsafe { *libc::__errno_location() }) } else { ret }
}

/// The life of the child. Never returns.
pub(super) fn serve(board: &'static Board) -> ! {
    prepare();
    board.first.store(call(libc::SYS_getpid, [0; 2]) as u32, SeqCst);
    Agent { board, me: 0, epoch: 0, turn: Turn::begin() }.live()
}

/// No zombies, no life after the parent, and what any process needs.
fn prepare() {
    native::prepare();
    // Behind it: changing the user clears the signal that the parent's death
    // sends.
    call(libc::SYS_prctl, [libc::PR_SET_PDEATHSIG as u64, libc::SIGKILL as u64]);
    // SAFETY: N2: children are reaped by nobody, so the kernel shall do it.
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
                // SAFETY: N2: ends this fork.
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
        call(libc::SYS_kill, [u64::from(self.board.first.load(SeqCst)), 0]) < 0
    }

    /// Executes steps until one is another program's.
    fn take_turn(&mut self) {
        loop {
            let pos = self.board.pos.load(Acquire) as usize;
            if pos >= self.board.nr_ops.load(Acquire) as usize {
                if self.me != 0 {
                    return self.board.pass_to(0);
                }
                self.turn.end();
                self.turn = Turn::begin();
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
            agent.board.set_pool(pos, native::host_pool_counts());
            agent.board.pos.store(pos as u32 + 1, Release);
        };
        match op.call {
            Call::Fork => {
                // Before the fork: the child may be slow to begin.
                let epoch = self.board.epoch.load(SeqCst);
                let ret = call(libc::SYS_clone, [libc::SIGCHLD as u64, 0]);
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
                self.turn.leave_pool();
                done(self, Outcome::Value(0));
                // The next step is another program's, or the end.
                let next = self.board.op(pos + 1).filter(|_| pos + 1 < self.board.nr_ops.load(Acquire) as usize);
                self.board.pass_to(next.map_or(0, |op| op.who as u32));
                // SAFETY: N2: ends this fork.
                unsafe { libc::_exit(0) };
            }
            _ => done(self, self.turn.step(&op)),
        }
    }
}
