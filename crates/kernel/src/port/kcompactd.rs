//! kcompactd: the kernel's thread that makes a block of 2 MiB free when a fault has
//! asked for one and did not want to wait (`defrag`: defer, defer+madvise). How is
//! the subsystem's business; here is only when.

use crate::port::mm;
use crate::port::sched::{self, KernelStack, Thread};
use crate::port::sync::Once;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

static THREAD: Once<Arc<Thread>> = Once::new();
static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// Lets it begin.
pub fn start() {
    let stack = KernelStack::new().expect("the heap is empty still");
    sched::start(THREAD.set(Arc::new(Thread::for_kernel(stack, main))));
}

/// Wakes it if a fault has asked. Called when the subsystem wakes somebody.
pub fn look_for_requests() {
    if mm::vm().poll_compaction_request() {
        IS_WANTED.store(true, Ordering::SeqCst);
        if let Some(thread) = THREAD.try_get() {
            sched::wake(thread);
        }
    }
}

extern "C" fn main() -> ! {
    sched::kernel_thread_started();
    loop {
        if IS_WANTED.swap(false, Ordering::SeqCst) {
            // In vain, if need be: who asked will ask again.
            let _ = mm::vm().compact_step(&mm::vm().tunables().compact_background);
        } else {
            sched::block();
        }
    }
}
