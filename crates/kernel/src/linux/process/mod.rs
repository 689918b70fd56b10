//! A process: memory, threads, open files, how signals are handled, how it ends.
//!
//! `mm` is its memory, `table` says who is whose, `fork` and `exec` make and
//! replace processes, `elf` and `stack` lay a program out, `exit` and `wait` are
//! the two sides of its end, `thread` is one of its threads, `stop` whether they run, `usage` what they used, `limits` what it may have,
//! `identity` who it is, `kept` what else it was told, `alarm` its alarm clock, whose
//! signals `timer` sends.

pub mod alarm;
pub mod elf;
pub mod exec;
pub mod exit;
pub mod fork;
pub mod identity;
pub mod kept;
pub mod limits;
mod mm;
pub mod stack;
pub mod stop;
pub mod table;
pub mod thread;
pub mod timer;
pub mod usage;
pub mod wait;

pub use mm::Mm;
pub use table::{all, find, find_with_life, find_with_thread};

use crate::linux::errno::{self, Errno};
use crate::linux::file;
use crate::linux::file::life::Life;
use crate::linux::fs;
use crate::linux::signal::{self, Action, NR_SIGNALS, Pending};
use crate::port::arch::fpu::Image;
use crate::port::arch::frame::Frame;
use crate::port::heap;
use crate::port::power::End;
use crate::port::sched::{self, KernelStack, Used, Waiters};
use crate::port::sync::SpinLock;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use identity::{Capability, Identity};
use kept::Kept;
use limits::Limits;
use thread::{Task, Thread};
use usage::ChildUsage;

/// Heap that a thread costs, generously.
const HEAP_PER_THREAD: usize = 48 * 1024;
/// Heap that a process costs beside its threads.
const HEAP_PER_PROCESS: usize = 16 * 1024;

/// State with which each process starts.
pub struct Inherited {
    /// The action on each signal; signal n at n-1.
    pub actions: [Action; NR_SIGNALS],
    /// Its open files.
    pub files: file::Table,
    /// Where relative paths begin, and which rights new files do not get.
    pub place: fs::Place,
    /// Its limits.
    pub limits: Limits,
    /// Its identity.
    pub identity: Identity,
    /// Values that it stores without effect.
    pub kept: Kept,
    /// Value of `/proc/PID/oom_score_adj`.
    pub oom_score_adj: i32,
}

/// A process.
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its parent's number. The table (`table.rs`) writes it, under its lock; a reader needs none.
    parent: AtomicU32,
    /// Its memory; none once its last thread has left it.
    mm: SpinLock<Option<Arc<Mm>>>,
    /// A name given by prctl(2), or none.
    given_name: SpinLock<Option<String>>,
    /// Threads that have not ended.
    pub threads: SpinLock<BTreeMap<u32, Arc<Thread>>>,
    /// The action on each signal; signal n at n-1.
    pub actions: SpinLock<[Action; NR_SIGNALS]>,
    /// Signals sent to the process as a whole.
    pub pending: SpinLock<Pending>,
    /// Signals to several processes that are on their way to this one.
    pub coming: SpinLock<signal::Coming>,
    /// 0, or how it ends: `1 << 32 | kind << 8 | code`.
    ending: AtomicU64,
    /// 0, or the thread that is replacing the program: the others have to end.
    replacing: AtomicU32,
    /// Its open files.
    pub files: SpinLock<file::Table>,
    /// Where relative paths begin, and which rights new files do not get.
    pub place: SpinLock<fs::Place>,
    /// Its limits.
    pub limits: SpinLock<Limits>,
    /// Its identity.
    pub identity: SpinLock<Identity>,
    /// Values that it stores without effect.
    pub kept: SpinLock<Kept>,
    /// Its memory is its parent's, whose limits that keeps.
    borrows_memory: AtomicBool,
    /// Its first thread was started. Until then it cannot end.
    has_begun: AtomicBool,
    /// Has replaced its program since it was forked.
    pub has_executed: AtomicBool,
    /// Whether anybody runs in it, for those who have a descriptor of it.
    pub life: Arc<Life>,
    /// After its end: its parent has been sent its signal, and may take the end.
    told: AtomicBool,
    /// The signal that its end sends to the parent, or 0.
    pub exit_signal: u8,
    /// Running, stopped by a signal, and whether its parent knows.
    pub stop: stop::Stop,
    /// Threads of this process that wait for its children, and those that wait for
    /// its own end.
    pub watchers: Waiters,
    /// Set when a child of vfork(2) needs its parent's memory no more.
    released: AtomicBool,
    /// The usage of threads that have ended.
    pub past: SpinLock<Used>,
    /// The largest resident size that was observed, KiB.
    peak_kib: AtomicU64,
    /// The usage of children that were waited for.
    pub children_used: SpinLock<ChildUsage>,
    /// Alarm clock.
    pub alarm: alarm::Alarm,
    /// The value of `/proc/PID/oom_score_adj`; the choice of a victim does not depend on it.
    pub oom_score_adj: AtomicI32,
    /// Signal to send it when its parent ends; prctl(2).
    pub death_signal: AtomicU8,
    _charge: heap::Charge,
}

impl Process {
    /// A process without threads and memory, not in the table.
    fn bare(pid: u32, from: Inherited, exit_signal: u8) -> errno::Result<Arc<Process>> {
        let charge = heap::charge(HEAP_PER_PROCESS).map_err(|_| Errno::EAGAIN)?;
        Ok(Arc::new(Process {
            pid,
            parent: AtomicU32::new(table::INIT),
            mm: SpinLock::new(None),
            given_name: SpinLock::new(None),
            threads: SpinLock::new(BTreeMap::new()),
            actions: SpinLock::new(from.actions),
            pending: SpinLock::new(Pending::default()),
            coming: SpinLock::default(),
            ending: AtomicU64::new(0),
            replacing: AtomicU32::new(0),
            files: SpinLock::new(from.files),
            place: SpinLock::new(from.place),
            limits: SpinLock::new(from.limits),
            identity: SpinLock::new(from.identity),
            kept: SpinLock::new(from.kept),
            borrows_memory: AtomicBool::new(false),
            has_begun: AtomicBool::new(false),
            has_executed: AtomicBool::new(false),
            life: Life::new(pid),
            told: AtomicBool::new(false),
            exit_signal,
            stop: stop::Stop::default(),
            watchers: Waiters::new(),
            released: AtomicBool::new(false),
            past: SpinLock::new(Used::default()),
            peak_kib: AtomicU64::new(0),
            children_used: SpinLock::new(ChildUsage::default()),
            alarm: alarm::Alarm::default(),
            oom_score_adj: AtomicI32::new(from.oom_score_adj),
            death_signal: AtomicU8::new(0),
            _charge: charge,
        }))
    }
    /// The first process, which has these files and is at the root; it has no parent.
    pub fn first(files: file::Table) -> errno::Result<Arc<Process>> {
        let from = Inherited {
            actions: [Action::default(); NR_SIGNALS],
            files,
            place: fs::Place::root(),
            limits: Limits::default(),
            identity: Identity::default(),
            kept: Kept::default(),
            oom_score_adj: 0,
        };
        let process = Process::bare(table::new_id(), from, 0)?;
        table::insert(&process, table::INIT);
        Ok(process)
    }
    /// Gives its memory the limits that it has now. Under the limits' lock, so that of two
    /// callers the last one has seen what both have changed.
    pub fn apply_limits(&self) {
        // In this order: execve(2) sets its own memory before it says that it has some.
        let is_lent = self.borrows_memory.load(Ordering::Acquire);
        let Some(mm) = self.mm().filter(|_| !is_lent) else { return };
        let limits = self.limits.lock();
        let has_ipc_lock = self.identity.lock().has(Capability::IpcLock);
        limits.apply(&mm.space, has_ipc_lock);
    }
    /// Its memory, if it has any still.
    pub fn mm(&self) -> Option<Arc<Mm>> {
        self.mm.lock().clone()
    }
    fn set_mm(&self, mm: Option<Arc<Mm>>) {
        let before = core::mem::replace(&mut *self.mm.lock(), mm);
        drop(before);
    }
    /// A new thread with the registers of `frame`, not yet running and in no
    /// list.
    fn new_thread_in(
        self: &Arc<Process>,
        tid: u32,
        mm: Arc<Mm>,
        frame: Frame,
        fpu: Image,
    ) -> errno::Result<Arc<Thread>> {
        let charge = heap::charge(HEAP_PER_THREAD).map_err(|_| Errno::EAGAIN)?;
        let stack = KernelStack::new().ok_or(Errno::EAGAIN)?;
        mm.enter();
        let life = if tid == self.pid { self.life.clone() } else { Life::new(tid) };
        Ok(Task::new(life, self.clone(), mm, charge).into_thread(stack, frame, fpu))
    }
    /// The process's first thread, which has its number.
    pub fn new_leader(self: &Arc<Process>, mm: Arc<Mm>, frame: Frame, fpu: Image) -> errno::Result<Arc<Thread>> {
        let thread = self.new_thread_in(self.pid, mm.clone(), frame, fpu)?;
        self.set_mm(Some(mm));
        self.threads.lock().insert(self.pid, thread.clone());
        Ok(thread)
    }
    /// One more thread.
    pub fn new_thread(self: &Arc<Process>, mm: Arc<Mm>, frame: Frame, fpu: Image) -> errno::Result<Arc<Thread>> {
        let thread = self.new_thread_in(table::new_id(), mm, frame, fpu)?;
        self.threads.lock().insert(thread.tid, thread.clone());
        Ok(thread)
    }
    /// The threads, as they are now.
    pub fn all_threads(&self) -> Vec<Arc<Thread>> {
        self.threads.lock().values().cloned().collect()
    }
    /// Whether its first thread has not ended.
    pub fn has_first_thread(&self) -> bool {
        self.threads.lock().contains_key(&self.pid)
    }
    /// How many threads it has.
    pub fn nr_threads(&self) -> usize {
        self.threads.lock().len()
    }
    /// Whether all its threads are to end.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed) != 0
    }
    /// Whether `thread` is to end, because all are or because another thread
    /// replaces the program.
    pub fn wants_end_of(&self, thread: &Thread) -> bool {
        let replacing = self.replacing.load(Ordering::Relaxed);
        self.is_ending() || replacing != 0 && replacing != thread.tid
    }
    /// Whether nobody runs in it any more.
    pub fn has_ended(&self) -> bool {
        self.life.has_ended()
    }
    /// How it ends, if that is known.
    pub fn end(&self) -> Option<End> {
        let word = self.ending.load(Ordering::Acquire);
        let code = word as u8;
        match word >> 8 & 0xff {
            _ if word == 0 => None,
            0 => Some(End::Exit(code)),
            _ => Some(End::Signal(code)),
        }
    }
    /// Starts its first thread.
    pub fn begin(&self, first: &Arc<Thread>) {
        self.has_begun.store(true, Ordering::Relaxed);
        sched::start(first);
    }
    /// Whether its first thread was started. Until then it cannot end: the thread that makes it still works on it.
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }
    /// Makes all its threads end, unless that is under way already.
    pub fn begin_end(&self, end: End) {
        let word = match end {
            End::Exit(status) => 1 << 32 | u64::from(status),
            End::Signal(number) => 1 << 32 | 1 << 8 | u64::from(number),
            End::Panic | End::Refused => 1 << 32,
        };
        if self.ending.compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.stop.end();
            self.all_threads().iter().for_each(thread::interrupt);
        }
    }
    /// Whether a signal waits that `thread` would take.
    pub fn has_signal_for(&self, thread: &Thread) -> bool {
        let (own, mask) = {
            let signals = thread.signals.lock();
            (signals.pending.set(), signals.mask)
        };
        let wanted = (own | self.pending.lock().set()) & !mask;
        wanted != 0 && signal::any_effective(&self.actions.lock(), wanted)
    }
    /// Returns the usage of all threads, past and present.
    pub fn used(&self) -> Used {
        let past = *self.past.lock();
        self.all_threads().iter().map(|t| t.usage.read()).fold(past, |a, b| a + b)
    }
    /// Number of its parent.
    pub fn parent_pid(&self) -> u32 {
        self.parent.load(Ordering::Relaxed)
    }
    /// Its group's number.
    pub fn group(&self) -> u32 {
        table::group_and_session(self.pid).map_or(0, |g| g.0)
    }
    /// Its session's number.
    pub fn session(&self) -> u32 {
        table::group_and_session(self.pid).map_or(0, |g| g.1)
    }
    /// Its name: at most 15 bytes.
    pub fn name(&self) -> String {
        let given = self.given_name.lock().clone();
        given.or_else(|| self.mm().map(|mm| mm.program.name.clone())).unwrap_or_default()
    }
    /// prctl(PR_SET_NAME).
    pub fn set_name(&self, name: Option<String>) {
        let before = core::mem::replace(&mut *self.given_name.lock(), name);
        drop(before);
    }
    /// Returns the state of one of its threads, as /proc shows it: runs or could run, sleeps,
    /// is stopped, has ended. A process's own letter is that of its first thread:
    /// programs wait for it to sleep.
    pub fn state_letter(&self, tid: u32) -> char {
        let thread = self.threads.lock().get(&tid).cloned();
        match thread {
            _ if self.has_ended() => 'Z',
            None => 'Z',
            Some(thread) if thread.is_parked.load(Ordering::Relaxed) => 'T',
            Some(thread) if thread.is_asleep() => 'S',
            Some(_) => 'R',
        }
    }
    /// Returns the state with which a child starts.
    pub fn inherited(&self) -> errno::Result<Inherited> {
        Ok(Inherited {
            actions: *self.actions.lock(),
            files: self.files.lock().duplicate()?,
            place: self.place.lock().clone(),
            limits: self.limits.lock().clone(),
            identity: *self.identity.lock(),
            kept: self.kept.lock().for_child(),
            oom_score_adj: self.oom_score_adj.load(Ordering::Relaxed),
        })
    }
}
