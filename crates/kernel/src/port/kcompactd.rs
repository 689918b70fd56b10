//! kcompactd: the kernel's thread that makes a block of 2 MiB free when a fault has
//! asked for one and did not want to wait (`defrag`: defer, defer+madvise). The
//! subsystem decides how; this file decides when.

use super::mm;
use super::sched::{self, KernelStack, Thread, daemon, parking};
use alloc::sync::Arc;
use softfault::sync::Ordering;

/// Lets it begin.
pub fn start() {
    let stack = KernelStack::new().expect("the heap is empty still");
    sched::start(&Arc::new(Thread::for_kernel(stack, main)));
}

extern "C" fn main() -> ! {
    sched::kernel_thread_started();
    let mut nr_served = 0;
    loop {
        let nr_requests = daemon::COMPACT.load(Ordering::SeqCst);
        if nr_requests != nr_served {
            nr_served = nr_requests;
            // It may fail: the caller will ask again.
            let _ = mm::vm().compact_step(&mm::vm().tunables().compact_background);
        } else {
            parking::sleep(&daemon::COMPACT, nr_requests, None);
        }
    }
}
