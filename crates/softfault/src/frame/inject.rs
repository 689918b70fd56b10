//! Allocations that fail on demand, for tests.

use super::{Frames, Memory, OutOfFrames};
use crate::cpu::ATTENTION_INJECT;
use crate::machine::{CpuId, Machine};
use crate::sync::Ordering;

impl<M: Machine> Memory<M> {
    /// From now on the `n`-th allocation fails, counted from 0, and all after it;
    /// `None` switches it off. For tests.
    pub fn fail_allocation(&self, n: Option<u64>) {
        self.frames.inject.store(n.unwrap_or(u64::MAX), Ordering::SeqCst);
        for id in 0..self.machine.nr_cpus() {
            let attention = &self.cpu(CpuId(id as u16)).attention;
            match n {
                Some(_) => attention.fetch_or(ATTENTION_INJECT, Ordering::SeqCst),
                None => attention.fetch_and(!ATTENTION_INJECT, Ordering::SeqCst),
            };
        }
    }
}

impl Frames {
    /// One allocation; fails if an injected failure says so.
    pub(super) fn count_down(&self) -> Result<(), OutOfFrames> {
        let left = self.inject.load(Ordering::Relaxed);
        if left == u64::MAX {
            return Ok(());
        }
        if left == 0 {
            return Err(OutOfFrames);
        }
        self.inject.store(left - 1, Ordering::Relaxed);
        Ok(())
    }
}
