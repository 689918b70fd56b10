//! Threads of the kernel's own: daemons, and what a CPU runs when there is nothing to
//! run.

use super::KernelStack;
use super::thread::{Next, Program, Thread};
use crate::port::arch::fpu::Image;
use crate::port::arch::frame::Frame;
use core::sync::atomic::Ordering;
use softfault::FaultError;

/// Stands for the program of a thread that is never in ring 3.
pub struct NoProgram;

impl NoProgram {
    fn never(frame: &Frame) -> ! {
        panic!("a thread of the kernel came from ring 3\n{frame}")
    }
}

impl Program for NoProgram {
    fn system_call(&self, _: &Thread, frame: &mut Frame) -> Next {
        NoProgram::never(frame)
    }
    fn fault_refused(&self, _: &Thread, frame: &Frame, _: u64, _: FaultError) {
        NoProgram::never(frame)
    }
    fn exception(&self, _: &Thread, frame: &Frame) {
        NoProgram::never(frame)
    }
    fn before_return(&self, _: &Thread, frame: &mut Frame) -> Next {
        NoProgram::never(frame)
    }
}

impl Thread<NoProgram> {
    /// A thread of the kernel's, which starts in `entry`.
    pub fn for_kernel(stack: KernelStack, entry: extern "C" fn() -> !) -> Thread<NoProgram> {
        // A function expects the stack as a call leaves it: eight off.
        let context = stack.put_context(stack.top() - 8, entry as *const () as u64);
        Thread::bare(NoProgram, None, Some(stack), context, Image::initial())
    }
    /// The thread that a CPU runs when there is no other; it is running now.
    pub fn idle() -> Thread<NoProgram> {
        let thread = Thread::bare(NoProgram, None, None, 0, Image::initial());
        thread.on_cpu.store(true, Ordering::Relaxed);
        thread
    }
}
