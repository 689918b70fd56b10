//! Resident pages: one line per address space and CPU.
//!
//! A page is charged on the CPU that installed it and discharged on the one
//! that removed it, so single lines may go below zero; their sum does not.

use crate::sync::{Ordering, Word};

/// The kinds of counts. Linux's names: `RssAnon`, `RssShmem`, `VmPTE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rss {
    /// Private pages.
    Anon = 0,
    /// Pages of shared objects.
    Shmem = 1,
    /// Page tables, the root not counted.
    Tables = 2,
    /// Faults handled (`minflt`).
    MinorFaults = 3,
    /// Private pages in huge mappings (`AnonHugePages`); they are counted as
    /// private pages, too.
    Huge = 4,
    /// Private pages that were swapped out (`VmSwap`).
    Swap = 5,
    /// Faults for which a page was read (`majflt`).
    MajorFaults = 6,
}

/// The counters of one space on one CPU, or on all CPUs that have no line of their own.
#[repr(C, align(64))]
pub(crate) struct RssLine {
    pub(crate) counts: [Word; 7],
    /// 1: several CPUs count here.
    is_shared: Word,
}

impl RssLine {
    #[inline(always)]
    pub(crate) fn add(&self, what: Rss, n: u64) {
        let count = &self.counts[what as usize];
        if self.is_shared.get() == 0 {
            count.add_owned(n);
        } else {
            add_shared(count, n);
        }
    }

    /// Adds one to each of two, and asks once whose line it is.
    #[inline(always)]
    pub(crate) fn add_one_of_each(&self, both: [Rss; 2]) {
        let [first, second] = both.map(|what| &self.counts[what as usize]);
        if self.is_shared.get() == 0 {
            first.add_owned(1);
            second.add_owned(1);
        } else {
            add_shared(first, 1);
            add_shared(second, 1);
        }
    }

    /// Makes it one for several CPUs. Before any count.
    pub(crate) fn share(&self) {
        self.is_shared.set(1);
    }
}

/// Apart, so that faults which have a line of their own stay short.
#[cold]
#[inline(never)]
fn add_shared(count: &Word, n: u64) {
    count.fetch_add(n, Ordering::Relaxed);
}

/// Resident pages of an address space.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct RssPages {
    /// Private pages.
    pub anon: u64,
    /// Pages of shared objects.
    pub shmem: u64,
    /// Page tables below the root.
    pub tables: u64,
    /// Faults handled so far without reading a page.
    pub minor_faults: u64,
    /// Of the private pages, those in huge mappings.
    pub anon_huge: u64,
    /// Private pages that were swapped out; not resident.
    pub swap: u64,
    /// Faults handled so far for which a page was read from the swap area.
    pub major_faults: u64,
}
