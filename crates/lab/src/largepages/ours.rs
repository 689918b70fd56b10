//! The program on the hosted machine.
//!
//! Faults and stores are those of [`crate::stage`]; the core's `translate` is timed. The CPU's
//! own TLB translates the arena, not our tables, so the rows after the first run in an arena
//! that the host maps with pages of the same size as ours. The first row always runs in the
//! arena of huge pages: a kernel reaches all frames through a direct map of huge pages.

use super::options::{Clearing, Options};
use super::plan::Thp;
use super::program::{Sample, later_rows, rows_of, verify};
use crate::bench::{self, Arena, Frames, bind};
use crate::error::LabError;
use crate::os;
use crate::stage::{self, Mapped, PagesOf, Stage};
use softfault::clear::{ClearOrder, ClearTable};
use softfault::machine::Machine;
use softfault::policy::huge::Enabled;
use softfault::{HugeKnobs, Order, Tunables, Vm};
use softfault_host::{Hosted, HostedConfig};
use std::time::Duration;

/// Two machines, for the whole experiment.
pub struct Arenas {
    huge: Arena,
    small: Arena,
    host_huge_share: f64,
    /// In which order huge pages are to be cleared; else as was measured.
    wanted: Option<ClearOrder>,
    measured: ClearTable,
}

impl Arenas {
    /// Both, with all their memory near.
    pub fn new(options: &Options, nr_pages: u64) -> Result<Arenas, LabError> {
        let machine = |huge: bool| {
            let mut hosted = Hosted::new(
                HostedConfig::default()
                    .with_arena_bytes(Options::arena_bytes(nr_pages))
                    .with_tlb_entries(options.tlb_entries as usize)
                    .with_huge(huge),
            )
            .map_err(|e| LabError::host("the hosted machine", e))?;
            bench::warm(&mut hosted);
            Ok(hosted)
        };
        let (mut huge, small) = (machine(true)?, machine(false)?);
        let base = huge.frame_ptr(huge.frames()[0].first);
        let len = Options::arena_bytes(nr_pages);
        let host_huge_share = os::huge_bytes(base, len as usize) as f64 / len as f64;
        let measured = bench::calibrated(&mut huge);
        let wanted = match options.clear_order {
            Clearing::In(order) => Some(order),
            Clearing::Calibrated => None,
        };
        Ok(Arenas { huge: Arena::of(huge), small: Arena::of(small), host_huge_share, wanted, measured })
    }

    /// Which part of the arena for huge pages the host has mapped by such.
    pub fn host_huge_share(&self) -> f64 {
        self.host_huge_share
    }

    /// Sets up a `Vm` over the arena that the host maps as `arena` says, and an
    /// address space in it; runs `play` in that.
    pub fn on_stage<T>(
        &mut self,
        arena: Thp,
        thp: Thp,
        nr_pages: u64,
        play: impl FnOnce(&Stage<'_>) -> Result<T, LabError>,
    ) -> Result<T, LabError> {
        let tunables = self.tunables(thp);
        let arena = if arena.is_huge() { &mut self.huge } else { &mut self.small };
        bench::prepare_frames(arena.hosted_mut(), Frames::Fresh);
        let vm = Vm::new(arena.take(), tunables).map_err(|e| LabError::subsystem("Vm::new", e))?;
        vm.set_clear_orders(&self.measured);
        vm.set_zeroing(&self.measured);
        if thp == Thp::OnZeroed {
            let _idle = bind(vm.machine(), 0)?;
            while vm.zero_ahead(u64::MAX) > 0 {}
        }
        let from = if thp == Thp::Hugetlb { grown(&vm, nr_pages)? } else { PagesOf::Memory };
        let done = stage::on_stage(&vm, nr_pages, from, play)?;
        arena.put(vm.into_machine());
        Ok(done)
    }

    fn tunables(&self, thp: Thp) -> Tunables {
        let enabled = if matches!(thp, Thp::On | Thp::OnZeroed) { Enabled::Always } else { Enabled::Never };
        let thp = HugeKnobs::DEFAULT.with_enabled(enabled);
        Tunables::default().with_thp(thp).with_clear_order(self.wanted).with_zero_ahead_blocks(u64::MAX)
    }

    /// In which order 2 MiB are cleared.
    pub fn clear_order(&self) -> ClearOrder {
        self.wanted.or(self.measured.best(Order::PMD)).unwrap_or(ClearOrder::Forward)
    }
}

/// Grows the pool of 2 MiB pages to hold `nr_pages` base pages.
fn grown(vm: &Vm<Hosted>, nr_pages: u64) -> Result<PagesOf, LabError> {
    let _setting_up = bind(vm.machine(), 0)?;
    let wanted = nr_pages / Order::PMD.nr_pages();
    let nr = vm.set_nr_hugepages(Order::PMD, wanted).map_err(|e| LabError::subsystem("set_nr_hugepages", e))?;
    if nr == wanted {
        return Ok(PagesOf::Pool);
    }
    Err(LabError::subsystem("the pool", format!("has {nr} pages, should have {wanted}")))
}

/// Runs the program once.
pub fn run(arenas: &mut Arenas, thp: Thp, nr_pages: u64) -> Result<Sample, LabError> {
    let timed_first = |stage: &Stage<'_>| -> Result<Duration, LabError> {
        let (took, done) = os::cpu_time_of(|| stage.first_touch());
        done.map(|()| took)
    };
    let first = match thp {
        Thp::Off => Some(arenas.on_stage(Thp::On, thp, nr_pages, timed_first)?),
        Thp::On | Thp::OnZeroed | Thp::Hugetlb => None,
    };
    arenas.on_stage(thp, thp, nr_pages, |stage| {
        let took = timed_first(stage)?;
        let Mapped { pieces, huge_share } = stage.mapped()?;
        let times = rows_of(first.unwrap_or(took), later_rows(&pieces));
        verify(&pieces)?;
        Ok(Sample { times, huge_share })
    })
}
