//! What a fault carries from turn to turn: frames that are its alone.

use crate::addr::Pfn;
use crate::cpu::CpuData;
use crate::frame::{Fill, OutOfFrames};
use crate::machine::Machine;
use crate::sync::Ordering;
use crate::vm::Vm;

/// What an attempt lacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// A frame of zeroes.
    Zeroed,
    /// A frame to copy into.
    Raw,
}

/// The fault's frames. What is left at the end goes back.
pub(crate) struct Kit<'vm, M: Machine> {
    vm: &'vm Vm<M>,
    zeroed: Option<Pfn>,
    raw: Option<Pfn>,
}

impl<'vm, M: Machine> Kit<'vm, M> {
    #[inline(always)]
    pub(crate) fn new(vm: &'vm Vm<M>) -> Self {
        Kit { vm, zeroed: None, raw: None }
    }

    /// The end of a fault that was done in its first turn: only a turn that fails
    /// leaves something in the hand.
    #[inline(always)]
    pub(crate) fn forget_empty(self) {
        debug_assert!(self.zeroed.is_none() && self.raw.is_none());
        core::mem::forget(self);
    }

    /// Outside the section: gets what was lacking.
    pub(crate) fn fetch(&mut self, need: Need) -> Result<(), OutOfFrames> {
        match need {
            Need::Zeroed => self.zeroed = Some(self.vm.obtain(Fill::Zeroed)?),
            Need::Raw => self.raw = Some(self.vm.obtain(Fill::Raw)?),
        }
        Ok(())
    }

    /// In the section: a frame of zeroes, from the hand or the CPU's group.
    #[inline(always)]
    pub(crate) fn zeroed(&mut self, cpu: &CpuData) -> Option<Pfn> {
        if let Some(pfn) = self.zeroed.take() {
            return Some(pfn);
        }
        if cpu.attention.load(Ordering::Acquire) != 0 {
            return None;
        }
        cpu.zeroed.pop()
    }

    /// Back into the hand, untouched.
    #[cold]
    pub(crate) fn keep_zeroed(&mut self, pfn: Pfn) {
        self.vm.frames.desc(pfn).clear();
        debug_assert!(self.zeroed.is_none());
        self.zeroed = Some(pfn);
    }

    /// In the section: a frame to copy into.
    pub(crate) fn raw(&mut self, cpu: &CpuData) -> Option<Pfn> {
        if let Some(pfn) = self.raw.take() {
            return Some(pfn);
        }
        if cpu.attention.load(Ordering::Acquire) != 0 {
            return None;
        }
        cpu.raw.pop()
    }

    #[cold]
    pub(crate) fn keep_raw(&mut self, pfn: Pfn) {
        self.vm.frames.desc(pfn).clear();
        debug_assert!(self.raw.is_none());
        self.raw = Some(pfn);
    }
}

impl<M: Machine> Drop for Kit<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(pfn) = self.zeroed.take() {
            self.vm.give_back(pfn, Fill::Zeroed);
        }
        if let Some(pfn) = self.raw.take() {
            self.vm.give_back(pfn, Fill::Raw);
        }
    }
}
