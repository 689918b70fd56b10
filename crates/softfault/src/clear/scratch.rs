//! Frames of a machine that belong to no [`Vm`](crate::Vm), for measurements of clearing.

use super::{BatchPlan, BatchPlans, By, ClearOrder, Poisoned, Ways, Zeroing, clear_folio, copy_folio, zero_batch};
use crate::addr::{Order, Pfn};
use crate::machine::FrameRange;
use crate::machine::Machine;

/// Adjacent frames that the caller owns, since the machine is borrowed for writing:
/// as a slice of them would be.
pub struct Scratch<'m, M: Machine> {
    machine: &'m M,
    range: FrameRange,
    by: By,
}

impl<'m, M: Machine> Scratch<'m, M> {
    /// Takes the frames `range`, which lie in one of [`Machine::frames`]; `None` if
    /// they do not. They count as written from now on.
    pub fn new(machine: &'m mut M, range: FrameRange) -> Option<Scratch<'m, M>> {
        if !machine.frames().iter().any(|r| r.first <= range.first && range.end() <= r.end()) {
            return None;
        }
        machine.begin();
        let (near, far) = BatchPlans::STORES.of_large();
        let by = By { ways: Ways::of(machine), near, far };
        Some(Scratch { machine, range, by })
    }

    /// The machine.
    pub fn machine(&self) -> &'m M {
        self.machine
    }

    /// The ways of zeroing that this CPU has and the machine allows.
    pub fn ways(&self) -> Ways {
        self.by.ways
    }

    /// Sets the ways for the near and the far part of large pages, as [`ClearTable::large`](super::ClearTable::large) has
    /// them; until then they are those of a [`Vm`](crate::Vm) that was told of no calibration. A way that this CPU lacks becomes
    /// plain stores.
    pub fn set_large(&mut self, (near, far): (Zeroing, Zeroing)) {
        (self.by.near, self.by.far) = (near, far);
    }

    /// The frames.
    pub fn range(&self) -> FrameRange {
        self.range
    }

    /// Divides it into the first `nr_frames` frames and the rest.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn split_at(self, nr_frames: u64) -> (Scratch<'m, M>, Scratch<'m, M>) {
        let FrameRange { first, nr_frames: nr } = self.range;
        assert!(nr_frames <= nr, "nr_frames is {nr_frames}, should be at most {nr}");
        let part = |first, nr_frames| {
            let range = FrameRange { first, nr_frames };
            Scratch { machine: self.machine, range, by: self.by }
        };
        (part(first, nr_frames), part(Pfn(first.0 + nr_frames as u32), nr - nr_frames))
    }

    /// Clears the 2^order frames from number `at` of it; `hint` is the index of the
    /// one that is needed first.
    ///
    /// # Panics
    ///
    /// If there are no such frames.
    pub fn clear(&mut self, at: u64, order: Order, hint: Option<u64>, how: ClearOrder) {
        clear_folio(self.machine, self.folio(at, order), order, hint, how, self.by);
    }

    /// Zeroes `nr_frames`, 64 at most, from number `at` of it, as a refill does.
    ///
    /// # Panics
    ///
    /// If there are no such frames.
    pub fn zero(&mut self, at: u64, nr_frames: u64, plan: BatchPlan) {
        let is_inside =
            (1..=64).contains(&nr_frames) && at.checked_add(nr_frames).is_some_and(|end| end <= self.range.nr_frames);
        assert!(is_inside, "{nr_frames} at frame {at}: should be 1 to 64 of the {} frames", self.range.nr_frames);
        zero_batch(self.machine, self.by.ways, plan, u64::from(self.range.first.0) + at, !0 >> (64 - nr_frames));
    }

    /// Copies the 2^order frames from number `from` of it to those from number `to`.
    /// `check` is asked about each sub-page right before it is read.
    ///
    /// # Errors
    ///
    /// The error of `check`; some of the copy has been written then.
    ///
    /// # Panics
    ///
    /// If there are no such frames, or they overlap.
    pub fn copy(
        &mut self,
        to: u64,
        from: u64,
        order: Order,
        hint: Option<u64>,
        how: ClearOrder,
        check: &mut impl FnMut(u64) -> Result<(), Poisoned>,
    ) -> Result<(), Poisoned> {
        let (source, target) = (self.folio(from, order), self.folio(to, order));
        assert!(to.abs_diff(from) >= order.nr_pages(), "to, from: should not overlap");
        copy_folio(self.machine, target, source, order, hint, how, check)
    }

    fn folio(&self, at: u64, order: Order) -> Pfn {
        let end = at.checked_add(order.nr_pages());
        let is_inside = end.is_some_and(|end| end <= self.range.nr_frames);
        assert!(is_inside, "{order:?} at frame {at}: should lie in the {} frames of it", self.range.nr_frames);
        Pfn(self.range.first.0 + at as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clear::ClearTable;
    use crate::testing::vm;
    use crate::tunables::Tunables;

    #[test]
    fn a_scratch_clears_as_faults_do_after_the_same_calibration() {
        let plan = BatchPlan { nr_near: 1, near: Zeroing::Vector, far: Zeroing::Clzero };
        for table in [ClearTable::default(), ClearTable::default().with_batches(BatchPlans::same(plan))] {
            let vm = vm(64, Tunables::default());
            vm.set_zeroing(&table);
            let of_faults = (vm.clear_by().near, vm.clear_by().far);
            let mut machine = vm.into_machine();
            let range = machine.frames()[0];
            let mut scratch = Scratch::new(&mut machine, range).unwrap();
            scratch.set_large(table.large());
            assert_eq!((scratch.by.near, scratch.by.far), of_faults);
        }
    }
}
