//! Module `khugepaged`: scans one space for memory to collapse into huge pages, one step at a time.
//!
//! The core has no threads and no list of programs. The embedder's daemon iterates over its spaces,
//! scans a number of entries of each (`pages_to_scan`), sleeps `scan_sleep_millisecs` between
//! rounds and `alloc_sleep_millisecs` after one that found no huge frame, and wakes early when a
//! block becomes free (`Vm::nr_blocks_emptied`).
//!
//! Locks on entry: none, no section. Takes the writer lock of the space to check each PMD range,
//! and holds none while pages are copied.

use crate::addr::{PageRange, Vpn};
use crate::machine::Machine;
use crate::pace::Pace;
use crate::policy::collapse::{CollapseLimits, CollapseRefusal};
use crate::policy::huge::Orders;
use crate::space::AddressSpace;
use crate::space::Vm;
use crate::space::vma::{ObjectId, Vma};

/// Result of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Scan {
    /// Entries that were scanned.
    pub nr_scanned: u64,
    /// Huge pages that were made.
    pub nr_collapsed: u64,
    /// Where the next step of this space goes on, bytes; `None` at its end.
    pub next: Option<u64>,
    /// Why the last PMD range that was scanned was not collapsed.
    pub refused: Option<CollapseRefusal>,
}

impl<M: Machine> AddressSpace<'_, M> {
    /// Scans up to `nr_ptes` entries from address `from` on, and collapses what knobs, advice and
    /// limits allow. Ends early when no huge frame can be had.
    ///
    /// Source: Linux, Documentation/admin-guide/mm/transhuge.rst.
    pub fn khugepaged_scan(&self, from: u64, nr_ptes: u64) -> Scan {
        self.vm.call();
        let knobs = self.vm.huge_knobs().khugepaged;
        let limits = CollapseLimits {
            max_ptes_none: u64::from(knobs.max_ptes_none),
            max_ptes_shared: u64::from(knobs.max_ptes_shared),
            wants_referenced: true,
            may_compact: knobs.defrag,
        };
        let mut scan = Scan { next: Some(from), ..Scan::default() };
        let mut pace = Pace::new(&self.vm.machine);
        while scan.nr_scanned < nr_ptes
            && let Some(at) = scan.next
        {
            pace.step();
            scan.next = self.scan_stretch(Vpn::of(at), &limits, &mut scan).map(Vpn::addr);
            if scan.refused == Some(CollapseRefusal::NoHugeFrame) {
                break;
            }
        }
        scan
    }

    /// The first PMD range from `at` on that may become huge, and where to continue.
    fn scan_stretch(&self, at: Vpn, limits: &CollapseLimits, scan: &mut Scan) -> Option<Vpn> {
        let nr = Vm::<M>::NR_SUB_FRAMES;
        // The result is checked again under the writer lock.
        let vma = self.vma_from(at)?;
        // A VMA counts, too. Otherwise a space with a million small ones would be one step.
        scan.nr_scanned += 1;
        let base = Vpn(vma.range.start.max(at).0.next_multiple_of(nr));
        let stretch = PageRange::new(base, Vpn(base.0 + nr));
        if stretch.end > vma.range.end || !self.may_scan(&vma) {
            return Some(vma.range.end);
        }
        let mut next = stretch.end;
        match self.collapse_at(base, &|vma| self.may_scan(vma), limits) {
            Ok(()) => {
                scan.nr_scanned += nr;
                scan.nr_collapsed += 1;
                scan.refused = None;
            }
            Err(refusal) => {
                let is_cheap = matches!(refusal, CollapseRefusal::Empty | CollapseRefusal::AlreadyHuge);
                scan.nr_scanned += if is_cheap { 0 } else { nr };
                scan.refused = Some(refusal);
                if refusal == CollapseRefusal::Empty {
                    next = self.end_of_hole(base).max(next);
                }
            }
        }
        Some(next)
    }

    fn may_scan(&self, vma: &Vma) -> bool {
        vma.object == ObjectId::NONE && !self.huge_orders(vma.flags).and(Orders::PMD).is_empty()
    }
}
