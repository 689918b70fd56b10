//! Resident pages: one line per address space and CPU.
//!
//! A page is charged on the CPU that installed it and discharged on the one
//! that removed it, so single lines may go below zero; their sum does not.

use crate::sync::Word;

/// What is counted. Linux's names: `RssAnon`, `RssShmem`, `VmPTE`.
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
}

/// The counters of one space on one CPU.
#[repr(C, align(64))]
pub(crate) struct RssLine {
    pub(crate) counts: [Word; 8],
}

impl RssLine {
    #[inline(always)]
    pub(crate) fn add(&self, what: Rss, n: u64) {
        self.counts[what as usize].add_owned(n);
    }
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
    /// Faults handled so far.
    pub minor_faults: u64,
    /// Of the private pages, those in huge mappings.
    pub anon_huge: u64,
}
