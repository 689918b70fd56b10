//! A child: fork(2), vfork(2), clone(2) without CLONE_THREAD.

use super::thread::Thread;
use super::{Mm, Process, table};
use crate::linux::errno::{self, Restart};
use crate::linux::signal;
use crate::port::arch::fpu::Image;
use crate::port::arch::frame::Frame;
use crate::port::sched::delay;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

/// How a child differs from its parent.
pub struct Plan {
    /// Runs in the parent's memory (CLONE_VM).
    pub shares_memory: bool,
    /// The parent sleeps until the child ends or runs another program
    /// (CLONE_VFORK).
    pub parent_waits: bool,
    /// Handlers are forgotten (CLONE_CLEAR_SIGHAND).
    pub clears_handlers: bool,
    /// Sent to the parent at the end.
    pub exit_signal: u8,
    /// Becomes a sibling of the caller (CLONE_PARENT).
    pub same_parent: bool,
}

impl Process {
    /// Makes a child with one thread, a copy of `thread` with the registers of
    /// `frame`; it is in the table but does not run yet.
    ///
    /// Everything that can fail comes before the child can be seen. A pending signal is
    /// handled first: the call is made again after that. Of those that come later the child
    /// gets what is sent to a group.
    pub fn fork(self: &Arc<Process>, thread: &Thread, plan: &Plan, frame: Frame) -> errno::Result<Arc<Thread>> {
        {
            let mut signals = thread.signals.lock();
            signals.forking = Some(self.coming.lock().set);
        }
        delay::step();
        // After that, and whether the thread has been told to look or not: what is no longer
        // on its way has arrived.
        let is_interrupted = thread.is_to_end() || self.stop.is_stopped() || self.has_signal_for(thread);
        let child = if is_interrupted { Err(Restart::Always.errno()) } else { self.add_child(thread, plan, frame) };
        thread.signals.lock().forking = None;
        child
    }
    fn add_child(self: &Arc<Process>, thread: &Thread, plan: &Plan, frame: Frame) -> errno::Result<Arc<Thread>> {
        let mut from = self.inherited()?;
        if plan.clears_handlers {
            signal::forget_handlers(&mut from.actions);
        }
        let child = Process::bare(table::new_id(), from, plan.exit_signal)?;
        let mm: Arc<Mm> = if plan.shares_memory { thread.mm().clone() } else { thread.mm().fork()? };
        let first = child.new_leader(mm, frame, Image::current())?;
        child.borrows_memory.store(plan.shares_memory, Ordering::Relaxed);
        // Those of the copy are from a later moment, or of the process that lent this one its memory.
        child.apply_limits();
        child.set_name(self.given_name.lock().clone());
        first.segments.save();
        first.affinity.store(thread.affinity.load(Ordering::Relaxed), Ordering::Relaxed);
        {
            let own = thread.signals.lock();
            let mut signals = first.signals.lock();
            signals.mask = own.mask;
            signals.alt_stack = if plan.shares_memory { Default::default() } else { own.alt_stack };
        }
        delay::step();
        if thread.is_to_end() || !table::insert_child(&child, self.pid, plan.same_parent, thread) {
            child.take_apart(&first);
            return Err(Restart::Always.errno());
        }
        Ok(first)
    }
    /// Takes a child apart that nobody has seen.
    fn take_apart(&self, first: &Arc<Thread>) {
        first.mm().leave();
        self.set_mm(None);
        let gone = self.threads.lock().remove(&first.tid);
        drop(gone);
    }
    /// Sleeps until the child has released the memory that it shares, or until
    /// this process is to end.
    pub fn wait_for_release(&self, thread: &Thread, child: &Process) {
        let _ = child
            .watchers
            .wait(None, || (child.released.load(Ordering::Acquire) || self.wants_end_of(thread)).then_some(()));
    }
    /// Says that it needs a parent's memory no more.
    pub(super) fn release_parent(&self) {
        self.released.store(true, Ordering::Release);
        self.watchers.wake_all();
    }
}

/// Lets a child run, and its parent wait for it if that is the plan.
pub fn start(process: &Process, thread: &Thread, plan: &Plan, first: &Arc<Thread>) {
    first.process().begin(first);
    if plan.parent_waits {
        process.wait_for_release(thread, first.process());
    }
}
