//! Allocations that fail on demand.

use crate::addr::Order;
use crate::cpu::ATTENTION_INJECT;
use crate::machine::{CpuId, Machine};
use crate::space::Vm;
use crate::sync::Ordering;

impl<M: Machine> Vm<M> {
    /// From now on the `n`-th allocation fails, counted from 0, and all after it;
    /// `None` switches it off.
    pub fn fail_allocation(&self, n: Option<u64>) {
        self.frames.injection.arm(n);
        for id in 0..self.machine.nr_cpus() {
            let attention = &self.cpu(CpuId(id as u16)).attention;
            match n {
                Some(_) => attention.fetch_or(ATTENTION_INJECT, Ordering::SeqCst),
                None => attention.fetch_and(!ATTENTION_INJECT, Ordering::SeqCst),
            };
        }
    }

    /// Refuses all runs of 2^least frames and more from now on, as if none were free.
    pub fn fail_runs(&self, least: Option<Order>) {
        self.frames.injection.arm_runs(least);
    }
}
