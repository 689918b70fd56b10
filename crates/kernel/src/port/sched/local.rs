//! Each CPU's state of threads.

use super::Thread;
use super::kernel_thread::NoProgram;
use crate::port::arch::cpu::{self, MAX_CPUS};
use crate::port::mm::Space;
use alloc::sync::Arc;
use core::cell::{Cell, RefCell};

/// The state of one CPU.
pub struct Local {
    pub(super) current: Option<Arc<Thread>>,
    idle: Option<Arc<Thread>>,
    /// The thread that was switched away from, until its stack is no longer used.
    pub(super) leaving: Option<Arc<Thread>>,
    /// The address space that is loaded. Kept while idle threads run: coming back
    /// to it then costs nothing.
    pub(super) loaded: Option<Arc<Space>>,
}

#[repr(align(64))]
struct PerCpu {
    /// The thread that runs; `local` owns it.
    current: Cell<*const Thread>,
    local: RefCell<Local>,
}

// SAFETY: K2 and K3: an entry is used by the CPU that it belongs to, with interrupts
// off.
unsafe impl Sync for PerCpu {}

static CPUS: [PerCpu; MAX_CPUS] = [const {
    PerCpu {
        current: Cell::new(core::ptr::null::<Thread<NoProgram>>()),
        local: RefCell::new(Local { current: None, idle: None, leaving: None, loaded: None }),
    }
}; MAX_CPUS];

impl Local {
    /// The thread that runs.
    pub fn current(&self) -> Arc<Thread> {
        self.current.clone().expect("set before the first switch")
    }
    /// The thread that runs when no other does.
    pub fn idle(&self) -> Arc<Thread> {
        self.idle.clone().expect("set before the first switch")
    }
    /// Makes `thread` this CPU's idle thread, which is running.
    pub fn adopt(&mut self, thread: Arc<Thread>) {
        set_current(&thread);
        self.idle = Some(thread.clone());
        self.current = Some(thread);
    }
}

/// The state of the executing CPU. Not borrowed across calls into the subsystem.
pub fn this() -> &'static RefCell<Local> {
    &CPUS[cpu::index()].local
}

/// `thread` is the one that runs from now on; `Local::current` keeps it.
pub(super) fn set_current(thread: &Arc<Thread>) {
    CPUS[cpu::index()].current.set(Arc::as_ptr(thread));
}

/// The thread that executes this.
pub fn current() -> Arc<Thread> {
    this().borrow().current()
}

/// Does something with the thread that executes this, without counting a
/// reference: for what every entry into the kernel does.
pub fn with_current<R>(f: impl FnOnce(&Thread) -> R) -> R {
    let thread = CPUS[cpu::index()].current.get();
    // SAFETY: K4: the CPU's entry refers to the thread that runs on it, which
    // lives as long as its code executes: until `exit_current`, from which the
    // closure does not come back.
    f(unsafe { &*thread })
}

/// The address space that the current thread runs in, if it has one and the scheduler
/// is not at work: for reports.
pub fn current_space() -> Option<Arc<Space>> {
    this().try_borrow().ok()?.current.as_ref()?.space.clone()
}
