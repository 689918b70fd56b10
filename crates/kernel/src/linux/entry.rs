//! Where the port hands over to Linux: system calls, faults that the subsystem
//! refused, exceptions, and the way back to the program.

use super::oom;
use super::process::exit;
use super::process::thread::{self, Task};
use super::signal::{Info, deliver};
use super::syscall;
use crate::port::arch::frame::Frame;
use crate::port::sched::{self, Next, Program};
use linux_raw_sys::general::{
    BUS_ADRERR, BUS_MCEERR_AR, FPE_INTDIV, ILL_ILLOPN, SEGV_ACCERR, SEGV_MAPERR, SIGBUS, SIGFPE, SIGILL, SIGSEGV,
    SIGTRAP, TRAP_BRKPT, TRAP_TRACE,
};
use softfault::FaultError;

/// `si_code` of what the kernel cannot say more about.
const SI_KERNEL: u32 = 0x80;

impl Program for Task {
    fn system_call(&self, thread: &sched::Thread, frame: &mut Frame) -> Next {
        let thread = thread::of(thread);
        let interrupted = syscall::serve(thread, frame);
        next(deliver::before_return(thread, frame, interrupted))
    }
    fn fault_refused(&self, thread: &sched::Thread, frame: &Frame, address: u64, error: FaultError) {
        let thread = thread::of(thread);
        let segv = |code: u32| Info::of_fault(SIGSEGV, code, address);
        let info = match error {
            FaultError::NotMapped | FaultError::Guard => segv(SEGV_MAPERR),
            FaultError::BeyondObject
            | FaultError::NotRead
            | FaultError::NoRoom
            | FaultError::NoHugePage
            | FaultError::Taken
            | FaultError::SubpoolFull => Info::of_fault(SIGBUS, BUS_ADRERR, address),
            FaultError::Poisoned => Info::of_fault(SIGBUS, BUS_MCEERR_AR, address),
            FaultError::OutOfFrames => return oom::out_of_memory(thread, address),
            _ => segv(SEGV_ACCERR),
        };
        deliver::force(thread, info, frame);
    }
    fn exception(&self, thread: &sched::Thread, frame: &Frame) {
        let at_rip = |signal, code| Info::of_fault(signal, code, frame.rip);
        let info = match frame.vector {
            0 => at_rip(SIGFPE, FPE_INTDIV),
            1 => at_rip(SIGTRAP, TRAP_TRACE),
            3 => at_rip(SIGTRAP, TRAP_BRKPT),
            6 => at_rip(SIGILL, ILL_ILLOPN),
            16 | 19 => at_rip(SIGFPE, SI_KERNEL),
            _ => Info::of_fault(SIGSEGV, SI_KERNEL, 0),
        };
        deliver::force(thread::of(thread), info, frame);
    }
    fn before_return(&self, thread: &sched::Thread, frame: &mut Frame) -> Next {
        next(deliver::before_return(thread::of(thread), frame, None))
    }
}

fn next(goes_on: bool) -> Next {
    if goes_on { Next::Resumes } else { Next::Ends(exit::exit_thread) }
}
