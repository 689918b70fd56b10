//! Calls that make processes and threads: clone(2), clone3(2), fork(2), vfork(2).

use super::call::Call;
use crate::linux::errno::{self, Errno};
use crate::linux::process::fork::{self, Plan};
use crate::linux::process::table;
use crate::linux::process::thread::{AltStack, Thread};
use crate::linux::signal::NR_SIGNALS;
use crate::port::arch::fpu::Image;
use crate::port::arch::frame::Frame;
use crate::port::mm::{self, USER_END};
use crate::port::sched;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::general::{
    CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_CLEAR_SIGHAND, CLONE_FS, CLONE_INTO_CGROUP, CLONE_NEWCGROUP,
    CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS, CLONE_PARENT,
    CLONE_PARENT_SETTID, CLONE_PIDFD, CLONE_PTRACE, CLONE_SETTLS, CLONE_SIGHAND, CLONE_THREAD, CLONE_VFORK, CLONE_VM,
    RLIMIT_NPROC, SIGCHLD,
};

/// The common part of clone(2) and clone3(2).
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    exit_signal: u8,
    /// Stack pointer of the child; 0 keeps the caller's.
    stack: u64,
    parent_tid: u64,
    child_tid: u64,
    tls: u64,
}

impl CloneArgs {
    fn has(&self, flag: u32) -> bool {
        self.flags & u64::from(flag) != 0
    }
    /// Combinations that no kernel takes, and what this one has not.
    fn check(&self) -> errno::Result<()> {
        let unsupported = CLONE_NEWCGROUP
            | CLONE_NEWIPC
            | CLONE_NEWNET
            | CLONE_NEWNS
            | CLONE_NEWPID
            | CLONE_NEWUSER
            | CLONE_NEWUTS
            | CLONE_PTRACE
            | CLONE_PIDFD;
        let wrong = self.has(CLONE_THREAD) && !self.has(CLONE_SIGHAND)
            || self.has(CLONE_SIGHAND) && !self.has(CLONE_VM)
            || self.flags & CLONE_CLEAR_SIGHAND != 0 && self.has(CLONE_SIGHAND)
            || self.has(unsupported)
            || self.flags & CLONE_INTO_CGROUP != 0
            || usize::from(self.exit_signal) > NR_SIGNALS;
        if wrong {
            return Err(Errno::EINVAL);
        }
        if self.has(CLONE_SETTLS) && self.tls >= USER_END {
            return Err(Errno::EPERM);
        }
        Ok(())
    }
}

pub fn clone(call: &mut Call) -> errno::Result {
    let [flags, stack, parent_tid, child_tid, tls, _] = call.args;
    let args = CloneArgs { flags: flags & 0xffff_ff00, exit_signal: flags as u8, stack, parent_tid, child_tid, tls };
    clone_as(call, &args)
}

/// `struct clone_args`, as far as anybody fills it.
pub fn clone3(call: &mut Call) -> errno::Result {
    const FIRST_BYTES: u64 = 64;
    const KNOWN_BYTES: usize = 88;
    let [at, bytes, ..] = call.args;
    if bytes < FIRST_BYTES {
        return Err(Errno::EINVAL);
    }
    if bytes > 4096 {
        return Err(Errno::E2BIG);
    }
    let mut raw = [0u64; KNOWN_BYTES / 8];
    let mut buffer = [0u8; KNOWN_BYTES];
    let known = KNOWN_BYTES.min(bytes as usize);
    mm::copy_in(call.space(), at, &mut buffer[..known])?;
    for (word, bytes) in raw.iter_mut().zip(buffer.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    // Bytes beyond must be zero: others would mean something newer.
    for offset in (KNOWN_BYTES as u64..bytes).step_by(8) {
        if mm::get::<u64>(call.space(), at.wrapping_add(offset))? != 0 {
            return Err(Errno::E2BIG);
        }
    }
    let [flags, _pidfd, child_tid, parent_tid, exit_signal, stack, stack_bytes, tls, _set_tid, nr_set_tid, _cgroup] =
        raw;
    let wrong = exit_signal > NR_SIGNALS as u64
        || flags & 0xff != 0
        || (stack == 0) != (stack_bytes == 0)
        || nr_set_tid != 0
        || flags & u64::from(CLONE_THREAD) != 0 && exit_signal != 0;
    if wrong {
        return Err(Errno::EINVAL);
    }
    let stack = stack.wrapping_add(stack_bytes);
    clone_as(call, &CloneArgs { flags, exit_signal: exit_signal as u8, stack, parent_tid, child_tid, tls })
}

pub fn fork(call: &mut Call) -> errno::Result {
    clone_as(call, &CloneArgs { exit_signal: SIGCHLD as u8, ..CloneArgs::default() })
}

pub fn vfork(call: &mut Call) -> errno::Result {
    let flags = u64::from(CLONE_VFORK | CLONE_VM);
    clone_as(call, &CloneArgs { flags, exit_signal: SIGCHLD as u8, ..CloneArgs::default() })
}

fn clone_as(call: &mut Call, args: &CloneArgs) -> errno::Result {
    args.check()?;
    let mut frame = call.frame.clone();
    frame.rax = 0;
    if args.stack != 0 {
        frame.rsp = args.stack;
    }
    if args.has(CLONE_THREAD) {
        return new_thread(call, args, frame);
    }
    if table::all().len() as u64 > call.process.limits.lock().now(RLIMIT_NPROC) {
        return Err(Errno::EAGAIN);
    }
    let plan = Plan {
        shares_memory: args.has(CLONE_VM),
        parent_waits: args.has(CLONE_VFORK),
        clears_handlers: args.flags & CLONE_CLEAR_SIGHAND != 0,
        exit_signal: args.exit_signal,
        same_parent: args.has(CLONE_PARENT),
    };
    let _ = CLONE_FS; // a place of its own is what every child gets
    let first = call.process.fork(call.thread, &plan, frame)?;
    tell_numbers(call.thread, args, &first);
    let pid = first.tid;
    fork::start(call.process, call.thread, &plan, &first);
    Ok(pid.into())
}

/// Sets what the flags ask for in a new thread. As on Linux, a bad pointer here
/// does not undo it.
fn tell_numbers(parent: &Thread, args: &CloneArgs, new: &Arc<Thread>) {
    if args.has(CLONE_SETTLS) {
        new.segments.put_fs_base(args.tls);
    }
    if args.has(CLONE_CHILD_CLEARTID) {
        new.clear_tid.store(args.child_tid, Ordering::Relaxed);
    }
    if args.has(CLONE_PARENT_SETTID) {
        let _ = mm::put(parent.space(), args.parent_tid, &new.tid);
    }
    if args.has(CLONE_CHILD_SETTID) {
        let _ = mm::put(new.space(), args.child_tid, &new.tid);
    }
}

/// Makes a thread of the same process; what is to be checked of `args` was.
fn new_thread(call: &mut Call, args: &CloneArgs, frame: Frame) -> errno::Result {
    let thread = call.process.new_thread(call.thread.mm().clone(), frame, Image::current())?;
    inherit(call.thread, &thread);
    tell_numbers(call.thread, args, &thread);
    sched::start(&thread);
    Ok(thread.tid.into())
}

fn inherit(from: &Thread, to: &Arc<Thread>) {
    to.segments.save();
    to.affinity.store(from.affinity.load(Ordering::Relaxed), Ordering::Relaxed);
    let mask = from.signals.lock().mask;
    let mut signals = to.signals.lock();
    signals.mask = mask;
    signals.alt_stack = AltStack::default();
}
