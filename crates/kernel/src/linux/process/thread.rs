//! A thread of a program: what Linux keeps about it.

use super::{Mm, Process};
use crate::linux::file::life::Life;
use crate::linux::signal::{Pending, UNBLOCKABLE};
use crate::port::arch::fpu::Image;
use crate::port::arch::frame::Frame;
use crate::port::arch::{apic, cpu};
use crate::port::heap::Charge;
use crate::port::sched::{self, KernelStack, WaitEnd, Waiters, delay};
use crate::port::sync::SpinLock;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A thread of a program.
pub type Thread = sched::Thread<Task>;

/// sigaltstack(2).
#[derive(Clone, Copy, Default)]
pub struct AltStack {
    /// Lowest address.
    pub start: u64,
    /// Size; 0 is none.
    pub bytes: u64,
}

/// The signal state of a thread.
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

/// The personality's state of a thread, besides that of the port.
pub struct Task {
    /// Its number; the first thread's is the process's.
    pub tid: u32,
    /// Whether it runs, for those who have a descriptor of it.
    pub life: Arc<Life>,
    process: Arc<Process>,
    mm: Arc<Mm>,
    /// Word to clear and wake when it ends (set_tid_address(2)).
    pub clear_tid: AtomicU64,
    /// Head of its robust futexes.
    pub robust_list: AtomicU64,
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
    /// Begins when this thread has ended: the process's new program.
    pub successor: SpinLock<Option<Arc<Thread>>>,
    _charge: Charge,
}

impl Task {
    /// Of a new thread.
    pub fn new(life: Arc<Life>, process: Arc<Process>, mm: Arc<Mm>, charge: Charge) -> Task {
        Task {
            tid: life.number,
            life,
            process,
            mm,
            clear_tid: AtomicU64::new(0),
            robust_list: AtomicU64::new(0),
            is_parked: AtomicBool::new(false),
            resumes: SpinLock::new(None),
            exiting: AtomicU64::new(0),
            signals: SpinLock::new(ThreadSignals::default()),
            successor: SpinLock::new(None),
            _charge: charge,
        }
    }
    /// A thread of it, which starts with the registers of `frame`; `fpu` is its
    /// floating-point state.
    pub fn into_thread(self, stack: KernelStack, frame: Frame, fpu: Image) -> Arc<Thread> {
        let space = self.mm.space.clone();
        Arc::new(Thread::for_program(self, space, stack, frame, fpu))
    }
    /// Its process.
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }
    /// The memory that it runs in.
    #[inline]
    pub fn mm(&self) -> &Arc<Mm> {
        &self.mm
    }
}

impl Thread {
    /// Blocks these signals and no others; what waits may be deliverable now.
    pub fn set_mask(&self, signals: &mut ThreadSignals, mask: u64) {
        signals.mask = mask & !UNBLOCKABLE;
        self.attention.store(true, Ordering::SeqCst);
    }
    /// Whether it is to end when it comes to the edge of the kernel.
    pub fn is_to_end(&self) -> bool {
        self.exiting.load(Ordering::Relaxed) != 0
            || self.process().wants_end_of(self)
            || self.successor.lock().is_some()
    }
    /// Whether something waits that a sleeping system call has to end for: a signal, an
    /// end, or a stop that another thread has taken. Signals that
    /// others are just sending do not count before `attention` says so: they
    /// will wake the thread.
    pub fn is_interrupted(&self) -> bool {
        delay::step();
        let process = self.process();
        self.attention.load(Ordering::SeqCst)
            && (self.is_to_end() || process.stop.is_stopped() || process.has_signal_for(self))
    }
    /// The thread is the one that runs: waits like [`Waiters::wait`], until it is
    /// interrupted.
    pub fn wait_at<T>(
        &self,
        waiters: &Waiters,
        deadline_ns: Option<u64>,
        question: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitEnd> {
        waiters.wait_unless(|| self.is_interrupted(), deadline_ns, question)
    }
}

/// Makes a thread look at what waits for it: ends its sleep, and brings it into
/// the kernel if it runs.
pub fn interrupt(thread: &Arc<Thread>) {
    delay::step();
    thread.attention.store(true, Ordering::SeqCst);
    sched::wake(thread);
    if thread.is_on_cpu() {
        let me = cpu::index();
        (0..cpu::nr_cpus()).filter(|c| *c != me).for_each(apic::poke);
    }
}

/// The program's thread that executes this.
///
/// # Panics
///
/// On a thread of the kernel's own, which never gets where this is called.
pub fn current() -> Arc<Thread> {
    sched::current().downcast().expect("a program's thread")
}

/// `thread` as Linux knows it.
///
/// # Panics
///
/// As [`current`].
#[inline]
pub fn of(thread: &sched::Thread) -> &Thread {
    thread.downcast_ref().expect("a program's thread")
}
