//! System calls: what all of them share. `table` has which there are. One file per subject;
//! a call gets its raw arguments and checks them itself.

mod attributes;
mod clone;
mod epoll;
mod file;
mod file_lock;
mod identity;
mod info;
mod ioctl;
mod list;
mod lock;
mod map_file;
mod memory;
mod mount;
mod names;
mod numa;
mod path;
mod pidfd;
mod poll;
mod priority;
mod process;
mod rw;
mod shm;
mod signal;
mod socket;
mod stat;
mod table;
mod thread;
mod time;
mod transfer;

use crate::linux::errno::{self, Errno};
use crate::linux::process::Process;
use crate::linux::process::thread::Thread;
use crate::linux::signal::deliver::Interrupted;
use crate::port::arch::frame::Frame;
use crate::port::arch::time::now_ns;
use crate::port::mm::Space;
use alloc::sync::Arc;
use core::cell::Cell;
use table::dispatch;

/// An error of the subsystem as the program sees it.
macro_rules! to_errno {
    ($result:expr) => {
        $result.map_err(|error| error.errno())
    };
}
use to_errno;

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
    number: u64,
    /// When it is over, if it has said so; [`Call::deadline_in`].
    deadline: Cell<Option<u64>>,
}

impl Call<'_> {
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

/// Serves the call whose registers are `frame`, and puts its answer there, or gives
/// what is to become of it.
pub fn serve(thread: &Thread, frame: &mut Frame) -> Option<Interrupted> {
    let number = frame.error;
    let args = [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9];
    let mut call = Call { thread, process: thread.process(), args, frame, number, deadline: Cell::new(None) };
    match errno::settle(dispatch(number, &mut call)) {
        Ok(rax) => {
            call.frame.rax = rax;
            None
        }
        Err(restart) => Some(Interrupted { restart, number: call.number, deadline_ns: call.deadline.get() }),
    }
}

/// restart_syscall(2), which `deliver` has threads make: goes on with the call that
/// was interrupted, unless a handler has run since.
fn go_on(call: &mut Call) -> errno::Result {
    let (number, deadline_ns) = call.thread.resumes.lock().take().ok_or(Errno::EINTR)?;
    call.number = number;
    call.deadline.set(Some(deadline_ns));
    dispatch(number, call)
}
