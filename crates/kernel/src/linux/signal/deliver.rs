//! Delivering signals on the way back to the program, and returning from
//! handlers.

use super::layout::{CONTEXT_OFFSET, INFO_OFFSET, RawContext, RawFrame, RawStack, join_fpu, split_fpu};
use super::{Action, Info, SI_KERNEL, SIG_DFL, STOPS, UNBLOCKABLE, bit, is_ignored, report, send};
use crate::linux::errno::{self, Errno, Restart};
use crate::linux::process::thread::{AltStack, Thread};
use crate::linux::process::{Process, table};
use crate::port::arch::fpu::{IMAGE_BYTES, Image};
use crate::port::arch::frame::Frame;
use crate::port::mm::{self, USER_END};
use crate::port::power::End;
use crate::port::sched;
use core::sync::atomic::Ordering;
use linux_raw_sys::general::{
    __NR_restart_syscall, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSTOP, SIGSYS, SIGTRAP, SS_DISABLE, SS_ONSTACK,
};
use zerocopy::FromZeros;

/// Signals that a program's own instructions cause.
const FAULTS: u64 = bit(SIGSEGV) | bit(SIGBUS) | bit(SIGILL) | bit(SIGFPE) | bit(SIGTRAP) | bit(SIGSYS);
/// `si_code`: up to here a program sent it, above the kernel did.
const SI_USER: i32 = 0;

/// EINTR, as a call gives it.
const INTERRUPTED: u64 = -(Errno::EINTR.0 as i64) as u64;
/// Bytes of the instruction `syscall`.
const SYSCALL_BYTES: u64 = 2;

/// Below the stack pointer, the program's for use without moving it.
const RED_ZONE: u64 = 128;

/// A system call that was interrupted before it did anything. The one place that
/// decides what the program gets of it is [`see_to`].
pub struct Interrupted {
    /// When it is made again.
    pub restart: Restart,
    /// Its number.
    pub number: u64,
    /// When it is over, if that counts from when it was made first.
    pub deadline_ns: Option<u64>,
}

/// Handles, before each return to a program, an end that was ordered, a signal that
/// waits, a call that was interrupted. Returns whether the thread goes on; else it ends.
pub fn before_return(thread: &Thread, frame: &mut Frame, interrupted: Option<Interrupted>) -> bool {
    let to_do = thread.attention.load(Ordering::SeqCst) || interrupted.is_some() || frame.rip >= USER_END;
    !to_do || see_to(thread, frame, interrupted)
}

/// An interrupted call leaves here with EINTR in `rax`, or as an instruction that
/// is executed again: there is no third way out.
#[cold]
fn see_to(thread: &Thread, frame: &mut Frame, mut interrupted: Option<Interrupted>) -> bool {
    let process = thread.process();
    thread.attention.store(false, Ordering::SeqCst);
    loop {
        if thread.is_to_end() {
            return false;
        }
        if process.stop.park(thread) {
            process.tell_if_all_are_parked();
            fail_if_untouched(&mut interrupted, frame);
            sched::block();
            continue;
        }
        if let Some(info) = next_signal(thread, process) {
            take(thread, process, info, frame, &mut interrupted);
            continue;
        }
        if let Some(call) = interrupted.take() {
            go_on(thread, &call, frame);
        }
        // Signals that the old mask lets through are taken before the program goes on.
        if !bring_mask_back(thread) {
            break;
        }
    }
    if frame.rip >= USER_END {
        // Such an `iret` would fault inside the kernel.
        kill(thread, &Info { signal: SIGSEGV, code: SI_KERNEL, ..Info::default() }, frame);
        return false;
    }
    true
}

fn next_signal(thread: &Thread, process: &Process) -> Option<Info> {
    let (own, mask) = {
        let mut signals = thread.signals.lock();
        let mask = signals.mask;
        (signals.pending.take(mask), mask)
    };
    own.or_else(|| process.pending.lock().take(mask))
}

/// The program makes call `number` as soon as it runs.
fn make(number: u64, frame: &mut Frame) {
    frame.rax = number;
    frame.rip -= SYSCALL_BYTES;
}

/// The call is made again, no handler having run; it ends when it would have ended.
fn go_on(thread: &Thread, call: &Interrupted, frame: &mut Frame) {
    let resumes = call.deadline_ns.map(|deadline_ns| (call.number, deadline_ns));
    make(if resumes.is_some() { __NR_restart_syscall.into() } else { call.number }, frame);
    *thread.resumes.lock() = resumes;
}

/// The process was stopped: some calls fail for that.
fn fail_if_untouched(interrupted: &mut Option<Interrupted>, frame: &mut Frame) {
    if interrupted.take_if(|call| call.restart == Restart::Untouched).is_some() {
        frame.rax = INTERRUPTED;
    }
}

/// The mask from before an interrupted call, if no handler's return brings it back;
/// whether there was one.
fn bring_mask_back(thread: &Thread) -> bool {
    let mut signals = thread.signals.lock();
    let mask = signals.restore_mask.take();
    mask.iter().for_each(|mask| thread.set_mask(&mut signals, *mask));
    mask.is_some()
}

fn take(thread: &Thread, process: &Process, info: Info, frame: &mut Frame, interrupted: &mut Option<Interrupted>) {
    let action = {
        let mut actions = process.actions.lock();
        let slot = &mut actions[info.signal as usize - 1];
        let action = *slot;
        if action.once() && !is_ignored(&action, info.signal) {
            slot.handler = SIG_DFL;
        }
        action
    };
    if is_ignored(&action, info.signal) {
        return;
    }
    if action.handler == SIG_DFL || bit(info.signal) & UNBLOCKABLE != 0 {
        if bit(info.signal) & STOPS == 0 {
            return kill(thread, &info, frame);
        }
        // Only SIGSTOP stops a group that nobody would continue.
        if info.signal != SIGSTOP && table::is_orphaned(process.group()) {
            return;
        }
        fail_if_untouched(interrupted, frame);
        return send::stop(process, &info);
    }
    match interrupted.take() {
        Some(call) if call.restart == Restart::Always => make(call.number, frame),
        Some(call) if call.restart == Restart::AsAsked && action.restarts() => make(call.number, frame),
        Some(_) => frame.rax = INTERRUPTED,
        None => {}
    }
    if run_handler(thread, &action, &info, frame).is_err() {
        let no_room = Info::of_fault(SIGSEGV, SI_KERNEL as u32, 0);
        // Its handler may have another stack; without one that can be written,
        // there is nobody left to tell.
        match info.signal {
            SIGSEGV => kill(thread, &no_room, frame),
            _ => force(thread, no_room, frame),
        }
    }
}

/// The signal ends the process. A fault of its own instruction is reported.
fn kill(thread: &Thread, info: &Info, frame: &Frame) {
    if bit(info.signal) & FAULTS != 0 && info.code > SI_USER {
        report::death(thread, info, frame);
    }
    thread.process().begin_end(End::Signal(info.signal as u8));
}

/// Raises a signal that the thread's own instruction caused: if it is blocked or
/// ignored, it kills.
pub fn force(thread: &Thread, info: Info, frame: &Frame) {
    let process = thread.process();
    let action = process.actions.lock()[info.signal as usize - 1];
    let mut signals = thread.signals.lock();
    let unwanted = signals.mask & bit(info.signal) != 0 || is_ignored(&action, info.signal);
    if !unwanted {
        signals.pending.add(info);
        thread.attention.store(true, Ordering::SeqCst);
        return;
    }
    drop(signals);
    kill(thread, &info, frame);
}

fn is_on(stack: &AltStack, sp: u64) -> bool {
    stack.bytes != 0 && sp > stack.start && sp - stack.start <= stack.bytes
}

/// The thread's alternate stack as programs see it.
pub fn raw_stack(stack: &AltStack, sp: u64) -> RawStack {
    let flags = match stack.bytes {
        0 => SS_DISABLE,
        _ if is_on(stack, sp) => SS_ONSTACK,
        _ => 0,
    };
    RawStack { sp: stack.start, flags, pad: 0, bytes: stack.bytes }
}

/// Lays the frame on the program's stack and points its registers at the
/// handler.
fn run_handler(thread: &Thread, action: &Action, info: &Info, frame: &mut Frame) -> errno::Result<()> {
    let (mask, saved_mask, alt) = {
        let signals = thread.signals.lock();
        (signals.mask, signals.restore_mask.unwrap_or(signals.mask), signals.alt_stack)
    };
    let switch = action.on_alt_stack() && alt.bytes != 0 && !is_on(&alt, frame.rsp);
    let top = if switch { alt.start.wrapping_add(alt.bytes) } else { frame.rsp.wrapping_sub(RED_ZONE) };
    let fpu_at = top.wrapping_sub(IMAGE_BYTES as u64) & !63;
    let at = (fpu_at.wrapping_sub(size_of::<RawFrame>() as u64) & !15).wrapping_sub(8);

    let mut image = Image::current();
    join_fpu(&mut image.0, frame);
    mm::copy_out(thread.space(), fpu_at, &image.0)?;
    let raw = RawFrame::new(frame, info, saved_mask, raw_stack(&alt, frame.rsp), fpu_at, action.restorer);
    mm::put(thread.space(), at, &raw)?;

    let own = if action.nests() { 0 } else { bit(info.signal) };
    {
        let mut signals = thread.signals.lock();
        signals.restore_mask = None;
        thread.set_mask(&mut signals, mask | action.mask | own);
    }
    frame.rip = action.handler;
    frame.rsp = at;
    frame.rdi = u64::from(info.signal);
    frame.rsi = at + INFO_OFFSET;
    frame.rdx = at + CONTEXT_OFFSET;
    frame.rax = 0;
    // Direction and trap flag as a function expects them.
    frame.set_user_flags(frame.rflags & !0x500);
    Ok(())
}

/// rt_sigreturn(2): the handler has returned to its restorer.
pub fn sigreturn(thread: &Thread, frame: &mut Frame) -> errno::Result {
    let space = thread.space();
    let at = frame.rsp.wrapping_sub(8);
    let restored = mm::get::<RawContext>(space, at.wrapping_add(CONTEXT_OFFSET)).and_then(|context| {
        let fpu_at = context.restore(frame);
        let mut image = Image(<[u8; IMAGE_BYTES]>::new_zeroed());
        if fpu_at != 0 {
            mm::copy_in(space, fpu_at, &mut image.0)?;
            split_fpu(&image.0, frame);
            image.load();
        }
        Ok(context)
    });
    // A handler has run: a call that was to go on has been interrupted for ever.
    *thread.resumes.lock() = None;
    match restored {
        Ok(context) => {
            let stack = context.stack();
            let mut signals = thread.signals.lock();
            thread.set_mask(&mut signals, context.mask);
            let bytes = if stack.flags & SS_DISABLE != 0 { 0 } else { stack.bytes };
            signals.alt_stack = AltStack { start: stack.sp, bytes };
        }
        Err(_) => force(thread, Info::of_fault(SIGSEGV, SI_KERNEL as u32, at), frame),
    }
    Ok(frame.rax)
}
