//! A hosted machine on loan, so that one warm arena serves the `Vm`s of all rows.
//!
//! One of the lab's files with `unsafe`; its invariant:
//! - **L4** [`Lent`] hands every call on to the machine that it borrows, which
//!   keeps I1 to I4 itself; there is one `Vm` over it at a time.

use softfault::Pfn;
use softfault::machine::{CpuId, CpuSet, Flush, Machine, SpaceTag};
use softfault::sync::Word;
use softfault_host::Hosted;

/// A machine that outlives the `Vm` over it.
pub struct Lent<'a>(pub &'a Hosted);

// SAFETY: L4: every call is handed on.
unsafe impl Machine for Lent<'_> {
    type Format = <Hosted as Machine>::Format;

    #[inline(always)]
    fn frame_ptr(&self, pfn: Pfn) -> *mut u8 {
        self.0.frame_ptr(pfn)
    }
    fn nr_cpus(&self) -> usize {
        self.0.nr_cpus()
    }
    #[inline(always)]
    fn this_cpu(&self) -> CpuId {
        self.0.this_cpu()
    }
    fn heavy_barrier(&self, cpus: &CpuSet) {
        self.0.heavy_barrier(cpus);
    }
    fn shootdown(&self, space: SpaceTag, cpus: &CpuSet, what: Flush) {
        self.0.shootdown(space, cpus, what);
    }
    fn shootdown_is_grace(&self) -> bool {
        self.0.shootdown_is_grace()
    }
    #[inline(always)]
    fn relax(&self) {
        self.0.relax();
    }
    fn park(&self, word: &Word, expected: u64) {
        self.0.park(word, expected);
    }
    fn unpark(&self, word: &Word) {
        self.0.unpark(word);
    }
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }
    fn random(&self) -> u64 {
        self.0.random()
    }
}
