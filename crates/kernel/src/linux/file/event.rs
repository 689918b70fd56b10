//! Event counters: eventfd(2).

use super::bell::Bell;
use super::ready::Ready;
use crate::linux::errno::{self, Errno};
use crate::port::sync::SpinLock;
use alloc::sync::Arc;

/// The largest value.
const MAX: u64 = u64::MAX - 1;

/// A counter.
pub struct Event {
    count: SpinLock<u64>,
    /// A read takes one, not all.
    is_semaphore: bool,
    /// Rings when there is something to take.
    pub filled: Arc<Bell>,
    /// Rings when there is room for more.
    pub emptied: Arc<Bell>,
}

impl Event {
    /// Counting from `count`.
    pub fn new(count: u64, is_semaphore: bool) -> Event {
        let [filled, emptied] = [(); 2].map(|()| Arc::new(Bell::new()));
        Event { count: SpinLock::new(count), is_semaphore, filled, emptied }
    }
    /// Takes what a read gives; EAGAIN at zero.
    pub fn take(&self) -> errno::Result {
        let taken = {
            let mut count = self.count.lock();
            if *count == 0 {
                return Err(Errno::EAGAIN);
            }
            let taken = if self.is_semaphore { 1 } else { *count };
            *count -= taken;
            taken
        };
        self.emptied.ring();
        Ok(taken)
    }
    /// Adds; EAGAIN if that would be too much.
    pub fn add(&self, n: u64) -> errno::Result<()> {
        if n > MAX {
            return Err(Errno::EINVAL);
        }
        {
            let mut count = self.count.lock();
            *count = count.checked_add(n).filter(|sum| *sum <= MAX).ok_or(Errno::EAGAIN)?;
        }
        self.filled.ring();
        Ok(())
    }
    /// The directions it is ready for.
    pub fn ready(&self) -> Ready {
        let count = *self.count.lock();
        let data = if count > 0 { Ready::IN } else { Ready::empty() };
        data | if count < MAX { Ready::OUT } else { Ready::empty() }
    }
}
