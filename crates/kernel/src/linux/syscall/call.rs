//! A system call as those see it that serve it: who makes it, its raw arguments, the registers.

use crate::linux::process::Process;
use crate::linux::process::thread::Thread;
use crate::port::arch::frame::Frame;
use crate::port::arch::time::now_ns;
use crate::port::mm::Space;
use alloc::sync::Arc;
use core::cell::Cell;

/// An error of the subsystem as the program sees it.
macro_rules! to_errno {
    ($result:expr) => {
        $result.map_err(|error| error.errno())
    };
}
pub(super) use to_errno;

/// One call: who makes it, with what.
pub struct Call<'a> {
    /// The thread.
    pub thread: &'a Thread,
    /// Its process.
    pub process: &'a Arc<Process>,
    /// Arguments, in order.
    pub args: [u64; 6],
    /// The registers.
    pub frame: &'a mut Frame,
    /// Its number.
    pub(super) number: u64,
    /// When it is over, if it has said so; [`Call::deadline_in`].
    pub(super) deadline: Cell<Option<u64>>,
}

impl<'a> Call<'a> {
    /// The call whose registers are `frame`, as the entry leaves them.
    pub fn new(thread: &'a Thread, frame: &'a mut Frame) -> Call<'a> {
        let args = [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9];
        let number = frame.error;
        Call { thread, process: thread.process(), args, frame, number, deadline: Cell::new(None) }
    }
    /// The program's memory.
    pub fn space(&self) -> &Space {
        self.thread.space()
    }
    /// Argument `n` as the 32-bit number that the call's prototype has.
    pub fn int(&self, n: usize) -> u32 {
        self.args[n] as u32
    }
    /// The moment in `ns`, at which the call is over. If it goes on after an
    /// interruption, the moment from before that.
    pub fn deadline_in(&self, ns: u64) -> u64 {
        let deadline = self.deadline.get().unwrap_or_else(|| now_ns().saturating_add(ns));
        self.deadline.set(Some(deadline));
        deadline
    }
}
