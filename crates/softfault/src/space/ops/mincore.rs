//! mincore(2): which pages of a range are resident.
//!
//! Locks on entry: none. Takes the writer lock for one batch of runs at a time.

use super::{is_aligned, page_align, pages, task_size};
use crate::addr::{ObjectPages, PageRange, Vpn};
use crate::errno::op_error;
use crate::machine::Machine;
use crate::pace::Pace;
use crate::space::AddressSpace;
use crate::space::lock::Writer;
use crate::space::vma::{ObjectId, Vma};
use crate::table::format::{Entry, span_of};
use crate::table::walk::Walk;
use core::ops::ControlFlow;

op_error! {
    /// Why mincore(2) did not report all.
    MincoreError {
        Unaligned: EINVAL = "addr: should be a multiple of the page size",
        OutOfRange: ENOMEM = "addr, length: should lie in the address space",
        NotMapped: ENOMEM = "addr, length: a page of the range is not mapped",
    }
}

/// Runs that are collected under the writer lock in one batch: 1 KiB of stack.
const NR_RUNS: usize = 64;

/// Whether pages are in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Residence {
    Resident,
    Absent,
}

/// Pages of one kind, joined into runs.
struct Runs {
    runs: [(u64, Residence); NR_RUNS],
    len: usize,
}

impl Runs {
    /// Adds pages. The list must not be [full](Self::is_full).
    fn add(&mut self, nr_pages: u64, residence: Residence) {
        match self.runs[..self.len].last_mut() {
            _ if nr_pages == 0 => {}
            Some(last) if last.1 == residence => last.0 += nr_pages,
            _ => {
                self.runs[self.len] = (nr_pages, residence);
                self.len += 1;
            }
        }
    }
    fn is_full(&self) -> bool {
        self.len == NR_RUNS
    }
}

impl<M: Machine> AddressSpace<'_, M> {
    /// Calls `out(number of pages, whether they are resident)` for the pages of the range in order.
    /// Most adjacent pages of one kind are reported together. A hole in the tables of any size costs
    /// one call. No lock is held while `out` runs: it may call back.
    ///
    /// # Errors
    ///
    /// [`MincoreError`]; `out` may have been called for pages before the first one that is not
    /// mapped.
    ///
    /// Source: mincore(2).
    pub fn mincore(&self, addr: u64, len: u64, out: &mut dyn FnMut(u64, bool)) -> Result<(), MincoreError> {
        self.vm.call();
        if !is_aligned(addr) {
            return Err(MincoreError::Unaligned);
        }
        let limit = task_size::<M::Format>();
        if addr > limit || len > limit - addr {
            return Err(MincoreError::OutOfRange);
        }
        let mut rest = pages(addr, page_align(len));
        while !rest.is_empty() {
            let mut runs = Runs { runs: [(0, Residence::Absent); NR_RUNS], len: 0 };
            let all_mapped = self.residence_of_batch(&mut rest, &mut runs);
            let is_in = |residence: &Residence| *residence == Residence::Resident;
            runs.runs[..runs.len].iter().for_each(|(nr_pages, residence)| out(*nr_pages, is_in(residence)));
            all_mapped?;
        }
        Ok(())
    }

    /// Fills `runs` from the start of `rest`, and advances that start past the reported pages.
    fn residence_of_batch(&self, rest: &mut PageRange, runs: &mut Runs) -> Result<(), MincoreError> {
        let writer = &self.write_lock();
        let mut pace = Pace::new(&self.vm.machine);
        while !rest.is_empty() && !runs.is_full() {
            let vma = self.tree(writer).lookup(rest.start).map(|f| f.vma).ok_or(MincoreError::NotMapped)?;
            let end = vma.range.end.min(rest.end);
            while rest.start < end && !runs.is_full() {
                pace.step();
                rest.start = self.residence_from(writer, &vma, PageRange::new(rest.start, end), &mut pace, runs);
            }
        }
        Ok(())
    }

    /// Reports the pages that one walk finds: those of a leaf table, a huge mapping or a hole, up to
    /// the end of the range or until `runs` is full. Returns the first page after them.
    fn residence_from(
        &self,
        writer: &Writer<'_, M>,
        vma: &Vma,
        range: PageRange,
        pace: &mut Pace<'_, M>,
        runs: &mut Runs,
    ) -> Vpn {
        let machine = &self.vm.machine;
        let up_to_end_of = |level: u8| {
            let span = span_of::<M::Format>(level);
            PageRange::new(range.start, Vpn((range.start.0 / span + 1) * span).min(range.end))
        };
        match self.walk(writer, range.start) {
            // Another operation owns an entry of an upper level for a moment.
            Walk::Owned => {
                machine.relax();
                range.start
            }
            Walk::Huge(pmd) => {
                let part = up_to_end_of(pmd.slot.level);
                // A place that has lost its page: of a child for which a pool had none.
                let is_lost = pmd.slot.observe().entry == Entry::Poison;
                runs.add(part.nr_pages(), if is_lost { Residence::Absent } else { Residence::Resident });
                part.end
            }
            Walk::Hole(pmd) => {
                let part = up_to_end_of(pmd.slot.level);
                self.residence_in_object(vma, part, runs)
            }
            Walk::Leaf(_) => {
                let part = up_to_end_of(1);
                for vpn in (part.start.0..part.end.0).map(Vpn) {
                    if runs.is_full() {
                        return vpn;
                    }
                    pace.step();
                    self.residence_of(writer, vma, vpn, runs);
                }
                part.end
            }
        }
    }

    /// Reports one page whose leaf table exists; the writer lock keeps it.
    fn residence_of(&self, writer: &Writer<'_, M>, vma: &Vma, vpn: Vpn, runs: &mut Runs) {
        self.assert_writer(writer);
        let Walk::Leaf(slot) = self.walk(writer, vpn) else {
            debug_assert!(false, "I15: the writer lock keeps tables");
            return runs.add(1, Residence::Absent);
        };
        match slot.observe().entry {
            // As on Linux, a page that failed counts as resident: no I/O would bring it in.
            Entry::Leaf(_) | Entry::LockedLeaf(_) | Entry::Busy | Entry::Poison => runs.add(1, Residence::Resident),
            Entry::Swap(_) => runs.add(1, Residence::Absent),
            Entry::Guard if vma.object == ObjectId::NONE => runs.add(1, Residence::Absent),
            // A guard denies the program the page of an object; mincore reports it as it is.
            Entry::Guard | Entry::None | Entry::LockedNone | Entry::Table(_) => {
                _ = self.residence_in_object(vma, PageRange::new(vpn, Vpn(vpn.0 + 1)), runs);
            }
        }
    }

    /// Reports pages that have no entry here, but may be resident in the object. Returns the first
    /// page that was not reported.
    fn residence_in_object(&self, vma: &Vma, part: PageRange, runs: &mut Runs) -> Vpn {
        let first = vma.pgoff_of(part.start);
        let (mut at, end) = (first, first + part.nr_pages());
        // As on Linux: of pages of a pool those that have an entry.
        if vma.object != ObjectId::NONE && self.vm.pool_of_vma(vma).is_none() {
            let there = ObjectPages::from(at..end).below(self.vm.object_nr_pages(vma.object));
            if self.vm.foreign_frames_of(vma.object).is_some() && at < there.end && !runs.is_full() {
                runs.add(there.end - at, Residence::Resident);
                at = there.end;
            }
            let ended = self.vm.for_each_page(vma.object, there, &mut |index, slot| {
                if slot.page().is_away() {
                    return ControlFlow::Continue(());
                }
                runs.add(index - at, Residence::Absent);
                at = index;
                if !runs.is_full() {
                    at = there.end.min(index + slot.nr_pages());
                    runs.add(at - index, Residence::Resident);
                }
                if runs.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if ended.is_break() {
                return Vpn(part.start.0 + (at - first));
            }
        }
        runs.add(end - at, Residence::Absent);
        part.end
    }
}
