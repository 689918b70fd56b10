//! Preallocated frames: what a fault keeps from turn to turn. It owns them alone.

use crate::addr::{Order, Pfn};
use crate::cpu::CpuData;
use crate::frame::{Content, Fill, Held, OutOfFrames};
use crate::machine::Machine;
use crate::policy::huge::HugeAdvice;
use crate::section::InSection;
use crate::space::Vm;
use crate::sync::Ordering;

mod large;
mod swapped;

pub(crate) use large::HugeParts;
use large::Large;

/// The resource that an attempt lacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// One frame.
    Frame(Fill),
    /// Adjacent zeroed frames, of which this one is touched first.
    Batch { order: Order, sub_page: u32 },
    /// The same for a page of an object, of that order or a smaller one, down to the object's
    /// least.
    Folio { order: Order, sub_page: u32, least: Order },
    /// A zeroed huge frame, with the tables that a new huge mapping needs. `advice` says how hard
    /// to try.
    Huge { sub_page: u32, twin: Twin, advice: HugeAdvice },
    /// The right to claim the place of a large page in an object: frames come after that.
    Place,
    /// The huge zero frame, with the same.
    HugeZero { twin: Twin },
    /// A huge frame in place of one that is mapped.
    HugeCopy { sub_page: u32, content: Content, advice: HugeAdvice },
}

/// Whether a new huge mapping takes a twin for its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Twin {
    /// The table has one.
    Present,
    Missing,
}

/// The frames and notes that a fault keeps from turn to turn.
#[derive(Clone, Copy, Default)]
struct Kept {
    /// One frame of each [`Fill`].
    singles: [Option<Pfn>; Fill::ALL.len()],
    /// Everything for larger sizes.
    large: Large,
}

/// The fault's frames. The end frees those that were not used.
pub(crate) struct Prealloc<'vm, M: Machine> {
    vm: &'vm Vm<M>,
    /// `None` in the first turn, in which most faults end: they write one word of it.
    kept: Option<Kept>,
    /// The hold: from before the first frame was claimed until all are in use or freed (I28).
    held: Option<Held<'vm>>,
}

impl<'vm, M: Machine> Prealloc<'vm, M> {
    #[inline(always)]
    pub(crate) fn new(vm: &'vm Vm<M>) -> Self {
        Prealloc { vm, kept: None, held: None }
    }

    fn kept_mut(&mut self) -> &mut Kept {
        self.kept.get_or_insert_default()
    }

    /// Those for larger sizes.
    fn large(&self) -> Large {
        self.kept.map_or_else(Large::default, |kept| kept.large)
    }

    fn large_mut(&mut self) -> &mut Large {
        &mut self.kept_mut().large
    }

    /// Takes out the single frame of a kind.
    #[inline(always)]
    fn take_single(&mut self, fill: Fill) -> Option<Pfn> {
        self.kept.as_mut()?.singles[fill as usize].take()
    }

    /// Puts one in, where none is.
    fn put_single(&mut self, fill: Fill, pfn: Pfn) {
        let before = self.kept_mut().singles[fill as usize].replace(pfn);
        debug_assert!(before.is_none());
    }

    /// Ends a fault that was done in its first turn: only a turn that fails leaves frames here.
    #[inline(always)]
    pub(crate) fn forget_empty(self) {
        debug_assert!(self.kept.is_none_or(|kept| kept.singles == [None; Fill::ALL.len()]) && self.held.is_none());
        core::mem::forget(self);
    }

    /// Obtains what was lacking. Outside sections.
    pub(crate) fn bring(&mut self, need: Need) -> Result<(), OutOfFrames> {
        match need {
            Need::Frame(fill) => {
                let pfn = self.obtain(fill)?;
                self.put_single(fill, pfn);
            }
            Need::Place => self.let_claim(),
            Need::Folio { order, sub_page, least } => self.bring_folio(order, sub_page, least)?,
            need => self.bring_large(need),
        }
        Ok(())
    }

    /// Allocates one frame. It is refused only after the preallocation was emptied: that may
    /// contain the last frames, and no CPU may wait while it holds frames.
    fn obtain(&mut self, fill: Fill) -> Result<Pfn, OutOfFrames> {
        if self.held.is_some() {
            if let Ok(pfn) = self.vm.source().frame(fill) {
                return Ok(pfn);
            }
            self.give_back_all();
        }
        let (pfn, held) = self.vm.obtain_held(fill)?;
        self.held = Some(held);
        Ok(pfn)
    }

    /// Counts the preallocation as held, if it is not yet.
    pub(crate) fn hold(&mut self) {
        let vm = self.vm;
        self.held.get_or_insert_with(|| vm.hold());
    }

    /// Empties the preallocation, before the fault waits.
    #[cold]
    pub(crate) fn give_back_all(&mut self) {
        for fill in Fill::ALL {
            if let Some(pfn) = self.take_single(fill) {
                self.vm.give_back(pfn, fill);
            }
        }
        self.give_back_large();
        // Last: all frames can be found again.
        self.held = None;
    }

    /// Takes one frame, from the preallocation or from the CPU's frame cache, which a thief empties
    /// only after a wait for sections.
    #[inline(always)]
    pub(crate) fn take(&mut self, fill: Fill, inside: InSection<'_>, cpu: &CpuData) -> Option<Pfn> {
        self.vm.assert_inside(inside);
        if let Some(pfn) = self.take_single(fill) {
            return Some(pfn);
        }
        if cpu.attention.load(Ordering::Acquire) != 0 {
            return None;
        }
        cpu.frame_cache(fill).pop()
    }

    /// Puts an untouched frame back into the preallocation.
    #[cold]
    pub(crate) fn keep(&mut self, fill: Fill, pfn: Pfn) {
        self.vm.frames.desc(pfn).clear();
        // In the section in which the frame may have been taken from the frame cache.
        self.hold();
        self.put_single(fill, pfn);
    }
}

impl<M: Machine> Drop for Prealloc<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.held.is_some() {
            self.give_back_all();
        }
    }
}
