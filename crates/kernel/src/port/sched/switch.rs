//! Giving the CPU from one thread to another.

use super::{Thread, local, queue};
use crate::port::arch::descriptors;
use crate::port::boot::paging;
use crate::port::mm::{self, Space};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

unsafe extern "C" {
    fn switch_stacks(save: *mut u64, load: u64);
}

/// Loads an address space, if it is not loaded. The CPU's block is not borrowed
/// across calls into the subsystem.
fn enter_space(space: &Arc<Space>) {
    let is_loaded = local::this().borrow().loaded.as_ref().is_some_and(|p| Arc::ptr_eq(p, space));
    if is_loaded {
        return;
    }
    // SAFETY: I11: `loaded` keeps the space until it is deactivated below.
    unsafe { space.activate_raw() };
    paging::load_root(mm::root_address(space));
    let before = local::this().borrow_mut().loaded.replace(space.clone());
    if let Some(before) = before {
        // SAFETY: I4, I11: another root is loaded, which drops what was cached.
        unsafe { before.deactivate_raw() };
    }
}

/// Leaves whatever address space is loaded.
pub fn leave_space() {
    let before = local::this().borrow_mut().loaded.take();
    if let Some(before) = before {
        paging::load_kernel_root();
        // SAFETY: I4, I11: the kernel's root is loaded, which drops what was cached.
        unsafe { before.deactivate_raw() };
    }
}

/// Switches to `next`, which is off its CPU and in no queue; returns when the
/// thread that called is switched to again.
fn switch_to(next: Arc<Thread>) {
    // Before `attention` is read; a CPU that sets that reads `on_cpu` after it.
    next.on_cpu.store(true, Ordering::SeqCst);
    if let Some(space) = &next.space {
        enter_space(space);
        next.usage.switched_in();
    }
    if let Some(stack) = &next.stack {
        descriptors::set_kernel_stack(stack.top());
    }
    let (save, load) = {
        let mut local = local::this().borrow_mut();
        let prev = local.current();
        if prev.space.is_some() {
            prev.fpu.save();
            prev.segments.save();
        }
        assert!(prev.stack.as_ref().is_none_or(|s| s.is_intact()), "a kernel stack ran over");
        if next.space.is_some() {
            next.fpu.restore();
            next.segments.restore();
        }
        // SAFETY: K4: `next` is off its CPU, so its context is complete.
        let load = unsafe { *next.context.get() };
        let save = prev.context.get();
        local::set_current(&next);
        local.current = Some(next);
        local.leaving = Some(prev);
        (save, load)
    };
    // SAFETY: K4: `save` lies in a thread that `leaving` keeps until the other
    // side has cleared it; `load` is the context of one that nobody else runs.
    unsafe { switch_stacks(save, load) };
    finish_switch();
}

/// The first act on the new stack: the thread before may be run elsewhere now,
/// or, if it has ended, be freed.
pub(super) fn finish_switch() {
    let leaving = local::this().borrow_mut().leaving.take();
    if let Some(prev) = leaving {
        prev.on_cpu.store(false, Ordering::Release);
    }
}

/// Runs at the start of a program's new thread, before its first registers are
/// loaded.
#[unsafe(no_mangle)]
extern "C" fn thread_started() {
    finish_switch();
}

/// Runs first in each of the kernel's own threads but the idle ones.
pub fn kernel_thread_started() {
    finish_switch();
}

fn next_or_idle(me: &Thread) -> Arc<Thread> {
    queue::pop(Some(me)).unwrap_or_else(|| local::this().borrow().idle())
}

/// Waits until somebody wakes the thread, or returns at once if that has
/// happened since the last `block`.
pub(super) fn block() {
    let me = local::current();
    if !me.begin_sleep() {
        return;
    }
    if me.space.is_some() {
        me.usage.leaving_kernel();
    }
    let next = next_or_idle(&me);
    if !Arc::ptr_eq(&next, &me) {
        switch_to(next);
    }
}

/// Lets others run, if any want to.
pub fn yield_now() {
    if !queue::looks_busy() {
        return;
    }
    let me = local::current();
    if me.stack.is_none() {
        return;
    }
    if let Some(next) = queue::pop(None) {
        if me.space.is_some() {
            me.usage.leaving_kernel();
        }
        queue::push(me);
        switch_to(next);
    }
}

/// Runs `next` in the place of the idle thread, until the CPU is idle again.
pub(super) fn run(next: Arc<Thread>) {
    switch_to(next);
}

/// Leaves this CPU, which the thread may no longer use.
pub fn migrate() {
    let me = local::current();
    let next = queue::pop(None).unwrap_or_else(|| local::this().borrow().idle());
    queue::push(me);
    switch_to(next);
}

/// Ends the thread. The caller's stack is never returned to: nothing that has to
/// be dropped may be left on it.
pub fn exit_current() -> ! {
    let next = queue::pop(None).unwrap_or_else(|| local::this().borrow().idle());
    switch_to(next);
    unreachable!("a thread that ended was run")
}
