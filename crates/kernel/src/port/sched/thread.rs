//! A thread: a kernel stack, what is saved while it is off its CPU, and the program
//! that it runs. A personality implements [`Program`] for what it keeps about a
//! thread; the port calls that from the entries of the kernel.

use super::{KernelStack, Usage};
use crate::port::arch::fpu::{Image, Saved};
use crate::port::arch::frame::Frame;
use crate::port::arch::segments;
use crate::port::mm::Space;
use alloc::sync::Arc;
use core::any::Any;
use core::cell::UnsafeCell;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use softfault::FaultError;

const RUNNING: u8 = 0;
/// Running, and the next `block` is to return at once.
const NOTIFIED: u8 = 1;
const SLEEPING: u8 = 2;

unsafe extern "C" {
    fn thread_begin();
}

/// The next step of a thread that is about to leave the kernel.
pub enum Next {
    /// It goes on in its program.
    Resumes,
    /// It ends: by this function, which is called with nothing of it borrowed.
    Ends(fn() -> !),
}

/// The owner of a thread. Each call comes from that thread, `thread`, on its own
/// kernel stack, with no lock held.
pub trait Program: Any + Send + Sync {
    /// Serves a system call: the registers are `frame`, the number is `frame.error`.
    /// Looks at `attention` like [`Program::before_return`].
    fn system_call(&self, thread: &Thread, frame: &mut Frame) -> Next;
    /// The subsystem refused to resolve a fault at `address`. If this returns, the
    /// program makes the access again, unless something waits for the thread.
    fn fault_refused(&self, thread: &Thread, frame: &Frame, address: u64, error: FaultError);
    /// The program caused an exception, `frame.vector`, that is no page fault.
    fn exception(&self, thread: &Thread, frame: &Frame);
    /// Something waits for the thread (`Thread::attention`), or `frame.rip` lies
    /// behind the program's last address.
    fn before_return(&self, thread: &Thread, frame: &mut Frame) -> Next;
}

/// A thread. Its scheduler sees a `Thread<dyn Program>`; the owner of its program
/// sees a `Thread<P>`, and reaches `P` as if it were the thread.
pub struct Thread<P: ?Sized = dyn Program> {
    /// The address space that it runs in, all its life; the kernel's own threads have
    /// none.
    pub(super) space: Option<Arc<Space>>,
    /// Where it runs inside the kernel; idle threads run on boot stacks.
    pub(super) stack: Option<KernelStack>,
    pub(super) context: UnsafeCell<u64>,
    pub(super) on_cpu: AtomicBool,
    state: AtomicU8,
    pub(super) fpu: Saved,
    /// Its segment registers; the base of `%fs` is the C library's thread pointer.
    pub segments: segments::Saved,
    /// CPUs it may run on, one bit each.
    pub affinity: AtomicU64,
    /// Something may wait that must be handled before the program goes on: a
    /// signal, an end. Set after that waits and before the thread is woken;
    /// cleared by the thread, then it looks.
    pub attention: AtomicBool,
    /// Times and faults.
    pub usage: Usage,
    /// The program that it runs.
    pub program: P,
}

// SAFETY: K4: `context` and `fpu` are used by the CPU that has the thread.
unsafe impl<P: ?Sized + Sync> Sync for Thread<P> {}
// SAFETY: K4: as above.
unsafe impl<P: ?Sized + Send> Send for Thread<P> {}

impl<P> Thread<P> {
    pub(super) fn bare(
        program: P,
        space: Option<Arc<Space>>,
        stack: Option<KernelStack>,
        context: u64,
        fpu: Image,
    ) -> Self {
        Thread {
            space,
            stack,
            context: UnsafeCell::new(context),
            on_cpu: AtomicBool::new(false),
            state: AtomicU8::new(RUNNING),
            fpu: Saved::new(fpu),
            segments: segments::Saved::default(),
            affinity: AtomicU64::new(u64::MAX),
            attention: AtomicBool::new(true),
            usage: Usage::default(),
            program,
        }
    }
    /// A program's thread, which starts in `space` with the registers of `frame`; `fpu`
    /// is its floating-point state.
    pub fn for_program(program: P, space: Arc<Space>, stack: KernelStack, frame: Frame, fpu: Image) -> Self {
        let context = stack.put_context(stack.put_frame(frame), thread_begin as *const () as u64);
        Thread::bare(program, Some(space), Some(stack), context, fpu)
    }
}

impl Thread {
    /// The thread as the owner of its program sees it; nothing if its program is no `P`.
    #[inline]
    pub fn downcast_ref<P: Program>(&self) -> Option<&Thread<P>> {
        let is_one = (&self.program as &dyn Any).is::<P>();
        // SAFETY: K10: its program is a `P`.
        is_one.then(|| unsafe { &*core::ptr::from_ref(self).cast::<Thread<P>>() })
    }
    /// The same with the reference that was counted.
    pub fn downcast<P: Program>(self: Arc<Thread>) -> Option<Arc<Thread<P>>> {
        let is_one = (&self.program as &dyn Any).is::<P>();
        // SAFETY: K10: its program is a `P`; the count goes from one pointer to the other.
        is_one.then(|| unsafe { Arc::from_raw(Arc::into_raw(self).cast::<Thread<P>>()) })
    }
}

impl<P: ?Sized> Thread<P> {
    /// Whether a CPU is on its stack now.
    pub fn is_on_cpu(&self) -> bool {
        self.on_cpu.load(Ordering::SeqCst)
    }
    /// Whether it waits for somebody to wake it.
    pub fn is_asleep(&self) -> bool {
        self.state.load(Ordering::Acquire) == SLEEPING
    }
    /// Before the thread leaves its CPU to wait; false if it was woken already.
    pub(super) fn begin_sleep(&self) -> bool {
        if self.state.compare_exchange(RUNNING, SLEEPING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return true;
        }
        // Reads what `end_sleep` wrote: what its caller did before is seen after this.
        self.state.swap(RUNNING, Ordering::SeqCst);
        false
    }
    /// Ends its sleep, or makes its next one end at once; true if it has to be
    /// queued.
    pub(super) fn end_sleep(&self) -> bool {
        loop {
            let state = self.state.load(Ordering::Acquire);
            let next = if state == SLEEPING { RUNNING } else { NOTIFIED };
            if self.state.compare_exchange(state, next, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return state == SLEEPING;
            }
        }
    }
    /// The address space that it runs in.
    ///
    /// # Panics
    ///
    /// For a thread of the kernel's own.
    #[inline]
    pub fn space(&self) -> &Space {
        self.space.as_ref().expect("a program's thread")
    }
}

impl<P> Deref for Thread<P> {
    type Target = P;
    fn deref(&self) -> &P {
        &self.program
    }
}
