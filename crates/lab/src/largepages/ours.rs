//! The program on the hosted machine.
//!
//! A page fault is a call of `handle_fault`; the program's stores go straight to
//! the frame that the page then has, at the speed of this CPU. Which frame that
//! is the core is asked through `translate`, inside the timed part: that is a
//! walk of the tables, which hardware does, too.
//!
//! The CPU's own TLB sees the arena, not our tables. So the rows after the first
//! run in an arena that the host maps by pages of the size that ours have. The
//! first row always runs in the one of huge pages: a kernel reaches frames through
//! a direct map of huge pages, whatever it gives the program.

use super::options::Options;
use super::plan::Thp;
use super::program::{PAGE_BYTES, Piece, Sample, fill, later_rows, rows_of, verify};
use crate::error::LabError;
use crate::os;
use crate::pft::measure::{self, Arena};
use crate::pft::{Frames, bind};
use softfault::clear::{ClearOrder, ClearTable, calibrate};
use softfault::machine::Machine;
use softfault::policy::huge::Enabled;
use softfault::{Access, Config, HugeKnobs, Order, Tunables, Vm};
use softfault_host::{Hosted, HostedConfig, Running};
use std::time::{Duration, Instant};

/// Where the program's memory begins: aligned for any size of page.
const BASE: u64 = 1 << 40;

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
            let hosted = Hosted::new(HostedConfig {
                arena_bytes: Options::arena_bytes(nr_pages),
                tlb_entries: options.tlb_entries as usize,
                huge,
                ..HostedConfig::default()
            })
            .map_err(|e| LabError::host("the hosted machine", e))?;
            measure::warm(&hosted);
            Ok(hosted)
        };
        let (huge, small) = (machine(true)?, machine(false)?);
        let base = huge.frame_ptr(huge.regions()[0].first);
        let len = Options::arena_bytes(nr_pages);
        let host_huge_share = os::huge_bytes(base, len as usize) as f64 / len as f64;
        let measured = calibrate(&huge, huge.regions()[0]);
        let wanted = options.clear_order;
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
        let frames = if thp == Thp::OnZeroed { Frames::Zeroed } else { Frames::Fresh };
        measure::prepare_frames(arena.hosted(), frames);
        let regions = arena.hosted().regions();
        let config = Config { regions: &regions, frames_are_zero: frames.are_zero(), tunables };
        let vm = Vm::new(arena.take(), &config).map_err(|e| LabError::subsystem("Vm::new", e))?;
        vm.set_clear_orders(&self.measured);
        let done = in_space(&vm, nr_pages, play)?;
        arena.put(vm.into_machine());
        Ok(done)
    }

    fn tunables(&self, thp: Thp) -> Tunables {
        let enabled = if thp.is_huge() { Enabled::Always } else { Enabled::Never };
        Tunables { thp: HugeKnobs { enabled, ..HugeKnobs::DEFAULT }, clear_order: self.wanted, ..Tunables::default() }
    }

    /// In which order 2 MiB are cleared.
    pub fn clear_order(&self) -> ClearOrder {
        self.wanted.or(self.measured.best(Order::PMD)).unwrap_or(ClearOrder::Forward)
    }
}

/// A CPU in an address space with the program's memory mapped.
pub struct Stage<'a> {
    /// The machine.
    pub machine: &'a Hosted,
    /// The calling thread as a CPU in the address space.
    pub running: &'a Running<'a>,
    nr_pages: u64,
}

impl Stage<'_> {
    /// Addresses of the program's memory.
    pub fn addresses(&self) -> std::ops::Range<u64> {
        BASE..BASE + self.nr_pages * PAGE_BYTES
    }

    /// The memory that is mapped at `addr`, to the end of that page, and whether
    /// the page is a huge one.
    fn piece(&self, addr: u64) -> Result<(Piece, bool), LabError> {
        let found = self.running.space().translate(addr);
        let found = found.ok_or_else(|| LabError::subsystem(format!("{addr:#x} after its fault"), "is not mapped"))?;
        let size = found.order.nr_pages() * PAGE_BYTES;
        let len = (size - addr % size).min(self.addresses().end - addr);
        Ok((Piece { at: self.machine.frame_ptr(found.pfn), len }, found.order >= Order::PMD))
    }

    /// The first row: faults each page in and sets its bytes.
    pub fn first_touch(&self) -> Result<(), LabError> {
        let mut addr = self.addresses().start;
        while addr < self.addresses().end {
            self.running
                .space()
                .handle_fault(addr, Access::Write)
                .map_err(|e| LabError::subsystem(format!("fault at {addr:#x}"), e))?;
            let (piece, _) = self.piece(addr)?;
            fill(piece);
            addr += piece.len;
        }
        Ok(())
    }

    /// Everything that is mapped now, and the part of it that is in huge pages.
    /// Frames that are adjacent are one piece: a memset does not stop at a page's
    /// end.
    fn pieces(&self) -> Result<(Vec<Piece>, f64), LabError> {
        let (mut pieces, mut huge_bytes, mut addr) = (Vec::<Piece>::new(), 0, self.addresses().start);
        while addr < self.addresses().end {
            let (piece, is_huge) = self.piece(addr)?;
            huge_bytes += if is_huge { piece.len } else { 0 };
            addr += piece.len;
            match pieces.last_mut() {
                Some(last) if last.is_before(&piece) => last.len += piece.len,
                _ => pieces.push(piece),
            }
        }
        Ok((pieces, huge_bytes as f64 / (self.nr_pages * PAGE_BYTES) as f64))
    }
}

fn in_space<T>(
    vm: &Vm<Hosted>,
    nr_pages: u64,
    play: impl FnOnce(&Stage<'_>) -> Result<T, LabError>,
) -> Result<T, LabError> {
    let cpu = bind(vm.machine(), 0)?;
    let space = vm.new_space().map_err(|e| LabError::subsystem("new_space", e))?;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    space
        .mmap(BASE, nr_pages * PAGE_BYTES, prot as u64, flags as u64)
        .map_err(|e| LabError::subsystem(format!("mmap of {nr_pages} pages"), e))?;
    let running = cpu.enter(&space).map_err(|e| LabError::subsystem("entering the address space", e))?;
    play(&Stage { machine: vm.machine(), running: &running, nr_pages })
}

/// Runs the program once.
pub fn run(arenas: &mut Arenas, thp: Thp, nr_pages: u64) -> Result<Sample, LabError> {
    let timed_first = |stage: &Stage<'_>| -> Result<Duration, LabError> {
        let start = Instant::now();
        stage.first_touch()?;
        Ok(start.elapsed())
    };
    let first = match thp {
        Thp::Off => Some(arenas.on_stage(Thp::On, thp, nr_pages, timed_first)?),
        Thp::On | Thp::OnZeroed => None,
    };
    arenas.on_stage(thp, thp, nr_pages, |stage| {
        let took = timed_first(stage)?;
        let (pieces, huge_share) = stage.pieces()?;
        let times = rows_of(first.unwrap_or(took), later_rows(&pieces));
        verify(&pieces)?;
        Ok(Sample { times, huge_share })
    })
}
