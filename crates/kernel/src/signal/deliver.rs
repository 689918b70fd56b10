//! Delivering signals on the way back to the program, and returning from
//! handlers.

use super::layout::{CONTEXT_OFFSET, INFO_OFFSET, RawContext, RawFrame, RawStack, join_fpu, split_fpu};
use super::{Action, Info, SIG_DFL, UNBLOCKABLE, bit, is_ignored};
use crate::arch::fpu::{IMAGE_BYTES, Image};
use crate::arch::frame::{Frame, SYSCALL_VECTOR};
use crate::errno::{self, Errno};
use crate::mm::{self, USER_END};
use crate::power::End;
use crate::process::{Process, exit};
use crate::sched::{self, AltStack, Thread};
use crate::trap;
use core::sync::atomic::Ordering;
use linux_raw_sys::general::{SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGSYS, SIGTRAP, SS_DISABLE, SS_ONSTACK};
use zerocopy::FromZeros;

/// Signals that a program's own instructions cause.
const FAULTS: u64 = bit(SIGSEGV) | bit(SIGBUS) | bit(SIGILL) | bit(SIGFPE) | bit(SIGTRAP) | bit(SIGSYS);
/// `si_code`: up to here a program sent it, above the kernel did.
const SI_USER: i32 = 0;
const SI_KERNEL: i32 = 0x80;

/// Below the stack pointer, the program's for use without moving it.
const RED_ZONE: u64 = 128;

/// What every return to a program goes through: an end that was ordered, a
/// signal that waits. Does not return if the thread ends.
pub fn before_return(frame: &mut Frame) {
    let goes_on = sched::with_current(|thread| {
        let to_do = thread.attention.load(Ordering::Relaxed) || frame.rip >= USER_END;
        let goes_on = !to_do || see_to(thread, frame);
        thread.usage.leaving_kernel();
        goes_on
    });
    if !goes_on {
        exit::exit_thread();
    }
}

#[cold]
fn see_to(thread: &Thread, frame: &mut Frame) -> bool {
    let process = thread.process();
    thread.attention.store(false, Ordering::SeqCst);
    loop {
        if thread.is_to_end() {
            return false;
        }
        // SIGKILL may have been sent after a stop was taken and before it was done.
        if process.stop.is_stopped() && !is_killed(thread, process) {
            sched::block();
            continue;
        }
        let Some(info) = next_signal(thread, process) else { break };
        take(thread, process, info, frame);
    }
    restart_call(frame);
    if frame.rip >= USER_END {
        // Such an `iret` would fault inside the kernel.
        kill(thread, &Info { signal: SIGSEGV, code: SI_KERNEL, ..Info::default() }, frame);
        return false;
    }
    true
}

fn is_killed(thread: &Thread, process: &Process) -> bool {
    let own = thread.signals.lock().pending.set();
    (own | process.pending.lock().set()) & bit(SIGKILL) != 0
}

fn next_signal(thread: &Thread, process: &Process) -> Option<Info> {
    let (own, mask) = {
        let mut signals = thread.signals.lock();
        let mask = signals.mask;
        (signals.pending.take(mask), mask)
    };
    own.or_else(|| process.pending.lock().take(mask))
}

/// An interrupted call for which no handler ran is made again.
fn restart_call(frame: &mut Frame) {
    if frame.vector == SYSCALL_VECTOR && frame.rax == Errno::RESTART.as_rax() {
        frame.rax = frame.error;
        frame.rip -= 2;
    }
}

fn take(thread: &Thread, process: &Process, info: Info, frame: &mut Frame) {
    let action = {
        let mut actions = process.actions.lock();
        let slot = &mut actions[info.signal as usize - 1];
        let action = *slot;
        if action.once() {
            slot.handler = SIG_DFL;
        }
        action
    };
    if is_ignored(&action, info.signal) {
        return;
    }
    if action.handler == SIG_DFL || bit(info.signal) & UNBLOCKABLE != 0 {
        return match bit(info.signal) & super::STOPS {
            0 => kill(thread, &info, frame),
            _ => super::stop(process, &info),
        };
    }
    if frame.vector == SYSCALL_VECTOR && frame.rax == Errno::RESTART.as_rax() {
        if action.restarts() {
            restart_call(frame);
        } else {
            frame.rax = Errno::EINTR.as_rax();
        }
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

/// The signal ends the process. What its own instruction caused is reported.
fn kill(thread: &Thread, info: &Info, frame: &Frame) {
    if bit(info.signal) & FAULTS != 0 && info.code > SI_USER {
        trap::report_death(thread, info, frame);
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
    frame.vector = 0;
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
    frame.vector = 0;
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
