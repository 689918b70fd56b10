//! A thread: a kernel stack, what is saved while it is off its CPU, and what the
//! program set for it.

use super::delay;
use crate::linux::process::{Mm, Process};
use crate::linux::signal::{Pending, UNBLOCKABLE};
use crate::port::arch::cpu::STACK_BYTES;
use crate::port::arch::fpu::{Image, Saved};
use crate::port::arch::frame::Frame;
use crate::port::arch::time;
use crate::port::heap::Charge;
use crate::port::mm::Space;
use crate::port::sync::SpinLock;
use alloc::alloc::{Layout, alloc, dealloc};
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

const RUNNING: u8 = 0;
/// Running, and the next `block` is to return at once.
const NOTIFIED: u8 = 1;
const SLEEPING: u8 = 2;

/// Last word of a kernel stack, to notice that one was too small.
const CANARY: u64 = 0x5afe_57ac_c0de_b10c;

unsafe extern "C" {
    fn thread_begin();
}

/// Memory for kernel code to run on.
pub struct KernelStack(NonNull<u8>);

// SAFETY: K4: owned memory, used by the CPU that runs the thread.
unsafe impl Send for KernelStack {}
// SAFETY: K4: as above.
unsafe impl Sync for KernelStack {}

impl KernelStack {
    const LAYOUT: Layout = match Layout::from_size_align(STACK_BYTES, 16) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    };
    /// A new stack, or nothing if the heap has no room.
    pub fn new() -> Option<KernelStack> {
        // SAFETY: K4: the layout is not empty.
        let bottom = NonNull::new(unsafe { alloc(KernelStack::LAYOUT) })?;
        // SAFETY: K4: just allocated, aligned to 16.
        unsafe { bottom.cast::<u64>().write(CANARY) };
        Some(KernelStack(bottom))
    }
    /// One past its last byte.
    pub fn top(&self) -> u64 {
        self.0.as_ptr() as u64 + STACK_BYTES as u64
    }
    /// Whether the stack has never run over.
    pub fn is_intact(&self) -> bool {
        // SAFETY: K4: inside the allocation.
        unsafe { self.0.cast::<u64>().read_volatile() == CANARY }
    }
    /// Lays `frame` on top; gives its address.
    fn put_frame(&self, frame: Frame) -> u64 {
        let at = self.top() - size_of::<Frame>() as u64;
        // SAFETY: K4: the new stack is ours alone; its top is aligned to 16 and
        // the frame's size is a multiple of that.
        unsafe { (at as *mut Frame).write(frame) };
        at
    }
    /// Lays under `at` what makes a switch go to `begin` with `at` as stack
    /// pointer; gives the context to switch to.
    fn put_context(&self, at: u64, begin: u64) -> u64 {
        let words = (at - 7 * 8) as *mut u64;
        // SAFETY: K4: as above, and far from the bottom.
        unsafe {
            (0..6).for_each(|i| words.add(i).write(0));
            words.add(6).write(begin);
        }
        words as u64
    }
}

impl Drop for KernelStack {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; the thread has left it (K4).
        unsafe { dealloc(self.0.as_ptr(), KernelStack::LAYOUT) }
    }
}

/// sigaltstack(2).
#[derive(Clone, Copy, Default)]
pub struct AltStack {
    /// Lowest address.
    pub start: u64,
    /// Size; 0 is none.
    pub bytes: u64,
}

/// What is known about a thread's signals.
#[derive(Default)]
pub struct ThreadSignals {
    /// Sent to this thread, not delivered yet.
    pub pending: Pending,
    /// Blocked ones, bit n-1 for signal n.
    pub mask: u64,
    /// The mask from before a call that waited with another one and was
    /// interrupted. The handler's return brings it back, or, where none runs, the
    /// return to the program.
    pub restore_mask: Option<u64>,
    /// Where handlers with SA_ONSTACK run.
    pub alt_stack: AltStack,
    /// execve(2) has put another thread in this one's place, which has what was pending.
    pub has_moved: bool,
    /// While the thread forks: signals that were sent meanwhile to several processes, this
    /// one among them. The child gets them, too.
    pub forking: Option<u64>,
}

/// What a thread has used. Only the thread itself writes, so that a plain load
/// and store do; times are ticks of the time-stamp counter.
#[derive(Default)]
pub struct Usage {
    user: AtomicU64,
    system: AtomicU64,
    faults: AtomicU64,
    last: AtomicU64,
}

/// A reading of [`Usage`].
#[derive(Clone, Copy, Default)]
pub struct Used {
    /// Nanoseconds in the program.
    pub user_ns: u64,
    /// Nanoseconds in the kernel on its behalf.
    pub system_ns: u64,
    /// Page faults that were resolved.
    pub nr_faults: u64,
}

fn add(word: &AtomicU64, n: u64) {
    word.store(word.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

impl Usage {
    fn since_last(&self) -> u64 {
        let now = time::ticks();
        let passed = now.saturating_sub(self.last.load(Ordering::Relaxed));
        self.last.store(now, Ordering::Relaxed);
        passed
    }
    /// The program has just entered the kernel.
    pub fn entered_kernel(&self) {
        add(&self.user, self.since_last());
    }
    /// The kernel is about to return to the program, or to switch away.
    pub fn leaving_kernel(&self) {
        add(&self.system, self.since_last());
    }
    /// The thread is on a CPU again: what went by in between is nobody's.
    pub fn switched_in(&self) {
        self.since_last();
    }
    /// A page fault was resolved.
    pub fn faulted(&self) {
        add(&self.faults, 1);
    }
    /// All of it, as it is now.
    pub fn read(&self) -> Used {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let ns = |word| time::to_ns(load(word));
        Used { user_ns: ns(&self.user), system_ns: ns(&self.system), nr_faults: load(&self.faults) }
    }
}

impl core::ops::Add for Used {
    type Output = Used;
    fn add(self, other: Used) -> Used {
        Used {
            user_ns: self.user_ns + other.user_ns,
            system_ns: self.system_ns + other.system_ns,
            nr_faults: self.nr_faults + other.nr_faults,
        }
    }
}

/// A thread.
pub struct Thread {
    /// Its number; the first thread's is the process's.
    pub tid: u32,
    /// Whose it is; the kernel's own threads have none.
    pub process: Option<Arc<Process>>,
    /// The memory that it runs in, all its life.
    mm: Option<Arc<Mm>>,
    /// Where it runs inside the kernel; idle threads run on boot stacks.
    pub stack: Option<KernelStack>,
    pub(super) context: UnsafeCell<u64>,
    pub(super) on_cpu: AtomicBool,
    state: AtomicU8,
    pub(super) fpu: Saved,
    /// Base of `%fs`: the C library's thread pointer.
    pub fs_base: AtomicU64,
    /// Base of the program's `%gs`.
    pub gs_base: AtomicU64,
    /// CPUs it may run on, one bit each.
    pub affinity: AtomicU64,
    /// Word to clear and wake when it ends (set_tid_address(2)).
    pub clear_tid: AtomicU64,
    /// Head of its robust futexes.
    pub robust_list: AtomicU64,
    /// Something may wait that has to be seen to before the program goes on: a
    /// signal, an end. Set after that waits and before the thread is woken;
    /// cleared by the thread, then it looks.
    pub attention: AtomicBool,
    /// Stays where it is because its process was stopped. Written under the lock of
    /// `Process::stop`.
    pub is_parked: AtomicBool,
    /// The number and the deadline of an interrupted call that is to go on with
    /// restart_syscall(2).
    pub resumes: SpinLock<Option<(u64, u64)>>,
    /// exit(2) was called with this status: `1 << 32 | status`.
    pub exiting: AtomicU64,
    /// Signals.
    pub signals: SpinLock<ThreadSignals>,
    /// Times and faults.
    pub usage: Usage,
    /// Begins when this thread has ended: the process's new program.
    pub successor: SpinLock<Option<Arc<Thread>>>,
    _charge: Option<Charge>,
}

// SAFETY: K4: `context` and `fpu` are used by the CPU that has the thread.
unsafe impl Sync for Thread {}
// SAFETY: K4: as above.
unsafe impl Send for Thread {}

impl Thread {
    fn bare(tid: u32, process: Option<Arc<Process>>, stack: Option<KernelStack>, context: u64) -> Thread {
        Thread {
            tid,
            process,
            mm: None,
            stack,
            context: UnsafeCell::new(context),
            on_cpu: AtomicBool::new(false),
            state: AtomicU8::new(RUNNING),
            fpu: Saved::new(Image::initial()),
            fs_base: AtomicU64::new(0),
            gs_base: AtomicU64::new(0),
            affinity: AtomicU64::new(u64::MAX),
            clear_tid: AtomicU64::new(0),
            robust_list: AtomicU64::new(0),
            attention: AtomicBool::new(true),
            is_parked: AtomicBool::new(false),
            resumes: SpinLock::new(None),
            exiting: AtomicU64::new(0),
            signals: SpinLock::new(ThreadSignals::default()),
            usage: Usage::default(),
            successor: SpinLock::new(None),
            _charge: None,
        }
    }
    /// A program's thread, which starts with the registers of `frame`; `fpu` is
    /// its floating-point state.
    pub fn for_program(
        tid: u32,
        process: Arc<Process>,
        mm: Arc<Mm>,
        stack: KernelStack,
        frame: Frame,
        fpu: Image,
        charge: Charge,
    ) -> Thread {
        let context = stack.put_context(stack.put_frame(frame), thread_begin as *const () as u64);
        let mut thread = Thread::bare(tid, Some(process), Some(stack), context);
        thread.fpu = Saved::new(fpu);
        thread.mm = Some(mm);
        thread._charge = Some(charge);
        thread
    }
    /// A thread of the kernel's, which starts in `entry`.
    pub fn for_kernel(stack: KernelStack, entry: extern "C" fn() -> !) -> Thread {
        // A function expects the stack as a call leaves it: eight off.
        let context = stack.put_context(stack.top() - 8, entry as *const () as u64);
        Thread::bare(0, None, Some(stack), context)
    }
    /// The thread that a CPU runs when there is no other; it is running now.
    pub fn idle() -> Thread {
        let thread = Thread::bare(0, None, None, 0);
        thread.on_cpu.store(true, Ordering::Relaxed);
        thread
    }
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
    /// Blocks these signals and no others; what waits may be deliverable now.
    pub fn set_mask(&self, signals: &mut ThreadSignals, mask: u64) {
        signals.mask = mask & !UNBLOCKABLE;
        self.attention.store(true, Ordering::SeqCst);
    }
    /// Its process.
    ///
    /// # Panics
    ///
    /// For a thread of the kernel's, which never gets where this is called.
    pub fn process(&self) -> &Arc<Process> {
        self.process.as_ref().expect("a program's thread")
    }
    /// The memory that it runs in.
    ///
    /// # Panics
    ///
    /// As [`Thread::process`].
    #[inline]
    pub fn mm(&self) -> &Arc<Mm> {
        self.mm.as_ref().expect("a program's thread")
    }
    /// The address space that it runs in.
    #[inline]
    pub fn space(&self) -> &Space {
        &self.mm().space
    }
    /// The memory that it runs in, if it is a program's.
    pub(super) fn any_mm(&self) -> Option<&Arc<Mm>> {
        self.mm.as_ref()
    }
    /// Whether it is to end when it comes to the edge of the kernel.
    pub fn is_to_end(&self) -> bool {
        self.exiting.load(Ordering::Relaxed) != 0
            || self.process().wants_end_of(self)
            || self.successor.lock().is_some()
    }
    /// Whether something waits that a sleeping system call has to end for: a signal, an
    /// end, or a stop that another thread has taken. What
    /// others are just sending does not count before `attention` says so: they
    /// will wake the thread.
    pub fn is_interrupted(&self) -> bool {
        delay::step();
        let process = self.process();
        self.attention.load(Ordering::SeqCst)
            && (self.is_to_end() || process.stop.is_stopped() || process.has_signal_for(self))
    }
}
