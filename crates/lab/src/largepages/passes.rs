//! The emulated TLB's counts: two passes with a store to each page.
//!
//! A memset makes more TLB lookups than a stride of 4,096, but the same number of misses:
//! one for each page that is not cached when it is first accessed.

use super::ours::Arenas;
use super::plan::Thp;
use crate::error::LabError;
use crate::stage::{PAGE_BYTES, Stage};
use softfault::machine::CpuId;
use softfault_host::TlbStats;

/// Both passes with one setting.
#[derive(Clone, Copy, Debug)]
pub struct Passes {
    /// With which pages.
    pub thp: Thp,
    /// The TLB was empty.
    pub cold: TlbStats,
    /// As the first pass left it.
    pub second: TlbStats,
}

/// Without and with huge pages.
pub fn count(arenas: &mut Arenas, nr_pages: u64) -> Result<Vec<Passes>, LabError> {
    let of = |thp| {
        arenas.on_stage(thp, thp, nr_pages, |stage| {
            stage.first_touch()?;
            let (cold, second) = twice(stage)?;
            Ok(Passes { thp, cold, second })
        })
    };
    Thp::BOTH.into_iter().map(of).collect()
}

fn twice(stage: &Stage<'_>) -> Result<(TlbStats, TlbStats), LabError> {
    let (machine, running) = (stage.machine, stage.running);
    let pass = || {
        machine.reset_tlb_stats(CpuId(0));
        for addr in stage.addresses().step_by(PAGE_BYTES as usize) {
            running.write_u64(addr, addr).map_err(|e| LabError::subsystem("a pass through the TLB", e))?;
        }
        machine.tlb_stats(CpuId(0)).ok_or_else(|| LabError::subsystem("counts of the TLB", "CPU 0 has none"))
    };
    Ok((pass()?, pass()?))
}
