//! A process: an address space, the threads in it, how signals are handled, how
//! it ends. Files under it: the archive of programs (`archive`), loading one
//! (`elf`, `stack`), ending (`exit`).

pub mod archive;
pub mod elf;
pub mod exit;
pub mod stack;

use crate::arch::fpu::Image;
use crate::arch::frame::Frame;
use crate::errno::{self, Errno};
use crate::mm::Space;
use crate::power::End;
use crate::sched::{KernelStack, Thread, Used};
use crate::signal::{Action, NR_SIGNALS, Pending};
use crate::sync::SpinLock;
use crate::{file, heap, signal};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Heap that a thread may cost, generously: so many threads there can be.
const HEAP_PER_THREAD: u64 = 64 * 1024;

static NEXT_ID: AtomicU32 = AtomicU32::new(1);
static NR_THREADS: AtomicU64 = AtomicU64::new(0);

/// A process.
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its memory.
    pub space: Space,
    /// Path of its program.
    pub path: String,
    /// Threads that have not ended.
    pub threads: SpinLock<BTreeMap<u32, Arc<Thread>>>,
    /// What happens on each signal; signal n at n-1.
    pub actions: SpinLock<[Action; NR_SIGNALS]>,
    /// Signals sent to the process as a whole.
    pub pending: SpinLock<Pending>,
    /// 0, or how it ends: `1 << 32 | kind << 8 | code`.
    ending: AtomicU64,
    /// What it has open.
    pub files: SpinLock<file::Table>,
    /// Set by the last thread as the last thing.
    pub ended: AtomicU64,
    /// Who waits for that.
    pub waiter: SpinLock<Option<Arc<Thread>>>,
    /// What threads that have ended had used.
    pub past: SpinLock<Used>,
}

impl Process {
    /// A process without threads.
    pub fn new(space: Space, path: String) -> Arc<Process> {
        Arc::new(Process {
            pid: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            space,
            path,
            threads: SpinLock::new(BTreeMap::new()),
            actions: SpinLock::new([Action::default(); NR_SIGNALS]),
            pending: SpinLock::new(Pending::default()),
            ending: AtomicU64::new(0),
            files: SpinLock::new(file::Table::standard()),
            ended: AtomicU64::new(0),
            waiter: SpinLock::new(None),
            past: SpinLock::new(Used::default()),
        })
    }
    /// A new thread with the registers of `frame`, not yet running. The first
    /// one has the process's number.
    pub fn new_thread(self: &Arc<Process>, frame: Frame, fpu: Image) -> errno::Result<Arc<Thread>> {
        let limit = heap::bytes() / HEAP_PER_THREAD;
        if NR_THREADS.fetch_add(1, Ordering::Relaxed) >= limit {
            NR_THREADS.fetch_sub(1, Ordering::Relaxed);
            return Err(Errno::EAGAIN);
        }
        let Some(stack) = KernelStack::new() else {
            NR_THREADS.fetch_sub(1, Ordering::Relaxed);
            return Err(Errno::EAGAIN);
        };
        let first = self.threads.lock().is_empty();
        let tid = if first { self.pid } else { NEXT_ID.fetch_add(1, Ordering::Relaxed) };
        let thread = Arc::new(Thread::for_program(tid, self.clone(), stack, frame, fpu));
        self.threads.lock().insert(tid, thread.clone());
        Ok(thread)
    }
    /// Takes an ended thread off the list; whether it was the last.
    fn remove_thread(&self, tid: u32) -> bool {
        let mut threads = self.threads.lock();
        let gone = threads.remove(&tid);
        let last = threads.is_empty();
        drop(threads);
        drop(gone);
        NR_THREADS.fetch_sub(1, Ordering::Relaxed);
        last
    }
    /// The threads, as they are now.
    pub fn all_threads(&self) -> Vec<Arc<Thread>> {
        self.threads.lock().values().cloned().collect()
    }
    /// Whether all its threads are to end.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed) != 0
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
    /// Makes all its threads end, unless that is under way already.
    pub fn begin_end(&self, end: End) {
        let word = match end {
            End::Exit(status) => 1 << 32 | u64::from(status),
            End::Signal(number) => 1 << 32 | 1 << 8 | u64::from(number),
            End::Panic | End::Refused => 1 << 32,
        };
        if self.ending.compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.all_threads().iter().for_each(signal::interrupt);
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
    /// What all threads have used, past and present.
    pub fn used(&self) -> Used {
        let past = *self.past.lock();
        self.all_threads().iter().map(|t| t.usage.read()).fold(past, |a, b| a + b)
    }
}
