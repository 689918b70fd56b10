//! The life of a process or thread, apart from it: what a descriptor (pidfd_open(2)) holds. A descriptor so outlives what
//! it names without keeping any of it, and a process that gets the same number later has another life.
//!
//! Two words and a bell, no lock. Who changes a word rings afterwards, with no lock held.

use super::bell::Bell;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

/// The state of a process or thread that outlives it.
pub struct Life {
    /// Its number.
    pub number: u32,
    /// Nobody runs in it any more.
    has_ended: AtomicBool,
    /// It was waited for, or nobody was to: the number may be another's.
    is_gone: AtomicBool,
    /// Rings for either.
    pub bell: Arc<Bell>,
}

impl Life {
    /// Of one that begins.
    pub fn new(number: u32) -> Arc<Life> {
        let bell = Arc::new(Bell::new());
        Arc::new(Life { number, has_ended: AtomicBool::new(false), is_gone: AtomicBool::new(false), bell })
    }
    /// Whether nobody runs in it any more.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }
    /// Whether its end was taken, too.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }
    /// It ends.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.bell.ring();
    }
    /// It is forgotten; the caller rings.
    pub fn forget(&self) {
        self.is_gone.store(true, Ordering::Release);
    }
    /// The end of a thread, for which nobody waits.
    pub fn end_and_forget(&self) {
        self.forget();
        self.end();
    }
}
