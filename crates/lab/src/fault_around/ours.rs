//! The reads on the hosted machine: loads through each CPU's emulated TLB, a page fault where there is no
//! translation.
//!
//! The file is a shared object whose pages are all in memory. It is filled anew for each sample, since a
//! sample has a `Vm` of its own.

use super::load::{Load, Sample};
use super::options::Age;
use super::pattern::{Mapped, PAGE_WORDS, Pattern, TABLE_PAGES, mark_of, sum};
use crate::bench::{Arena, Frames, PAGE_BYTES, Window, bind, crew, prepare_frames};
use crate::error::LabError;
use softfault::policy::around::Neighbours;
use softfault::policy::folio::FolioOrders;
use softfault::{AddressSpace, Event, MapFlags, ObjectPart, Order, Prot, SharedObject, Tunables, Vm, VmStat};
use softfault_host::{Hosted, Running};

/// Where the mappings begin: aligned to what a leaf table maps.
const BASE: u64 = 1 << 40;

/// One row: `nr_threads` threads as as many CPUs.
pub fn run(arena: &mut Arena, load: &Load, window: Window, nr_threads: usize) -> Result<Sample, LabError> {
    prepare_frames(arena.hosted_mut(), Frames::Zeroed);
    let neighbours = if load.neighbours == Age::Young { Neighbours::Young } else { Neighbours::Old };
    let tunables = Tunables::default().with_fault_around(window.0).with_neighbours(neighbours);
    let vm = Vm::new(arena.take(), tunables).map_err(|e| LabError::subsystem("Vm::new", e))?;
    let sample = run_in(&vm, load, nr_threads)?;
    arena.put(vm.into_machine());
    Ok(sample)
}

fn run_in(vm: &Vm<Hosted>, load: &Load, nr_threads: usize) -> Result<Sample, LabError> {
    let setting_up = bind(vm.machine(), 0)?;
    let file = filled(vm, load)?;
    let new_space = || vm.new_space().map_err(|e| LabError::subsystem("new_space", e));
    let (space, other) = (new_space()?, new_space()?);
    drop(setting_up);
    let read = |space: &AddressSpace<'_, Hosted>, pattern: Pattern, nr_rounds| {
        crew::together(nr_threads, &load.cpus, |thread, steps| {
            let cpu = bind(vm.machine(), thread)?;
            let running = cpu.enter(space).map_err(|e| LabError::subsystem(format!("CPU {thread}"), e))?;
            for round in 0..nr_rounds {
                let mapping = Mapping::new(&running, &file, load, thread as u64 * nr_rounds + round)?;
                steps.timed(|| pattern.read(&mapping, 0..load.nr_pages, thread as u64))?;
                steps.timed(|| pattern.read(&mapping, 0..load.nr_pages, thread as u64))?;
                mapping.remove()?;
            }
            Ok(())
        })
    };
    // In another space: adaptive windows go on from the last one of the same space.
    read(&other, load.pattern.of_warm_up(), 1)?;
    let before = vm.vmstat();
    let done = read(&space, load.pattern, load.nr_rounds())?;
    let _tearing_down = bind(vm.machine(), 0)?;
    drop((space, other, file));
    Ok(counted(&before, &vm.vmstat(), Sample::of_walls(&done.walls)))
}

/// All events of the two moments in between are of the reads: nothing else faults.
fn counted(before: &VmStat, after: &VmStat, times: Sample) -> Sample {
    let nr = |event| after.get(event) - before.get(event);
    Sample {
        minor_faults: nr(Event::Fault) - nr(Event::Pgmajfault),
        major_faults: nr(Event::Pgmajfault),
        pages_mapped: nr(Event::SharedMap) + nr(Event::MapAround),
        ..times
    }
}

/// The file, with all its pages in memory.
fn filled<'vm>(vm: &'vm Vm<Hosted>, load: &Load) -> Result<SharedObject<'vm, Hosted>, LabError> {
    let order = Order(load.folios.order());
    let orders = FolioOrders::new(order, order).map_err(|e| LabError::subsystem("the file's folios", e))?;
    let file = vm.new_shared_object_of(load.nr_pages * PAGE_BYTES, orders);
    let file = file.map_err(|e| LabError::subsystem("new_shared_object_of", e))?;
    for page in 0..load.nr_pages {
        file.write(page * PAGE_BYTES, &mark_of(page).to_ne_bytes())
            .map_err(|e| LabError::subsystem(format!("writing page {page} of the file"), e))?;
    }
    Ok(file)
}

/// Maps the file: the one place that knows how.
fn map_file<'vm>(
    space: &AddressSpace<'vm, Hosted>,
    file: &SharedObject<'vm, Hosted>,
    addr: u64,
    len: u64,
) -> Result<(), LabError> {
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    let done = space.mmap_object(addr, len, Prot::READ, flags, ObjectPart::new(file));
    done.map(drop).map_err(|e| LabError::subsystem(format!("mmap_object at {addr:#x}"), e))
}

/// The whole file in a thread's mapping.
struct Mapping<'a> {
    running: &'a Running<'a>,
    base: u64,
    len: u64,
}

impl<'a> Mapping<'a> {
    /// The `nth` of all mappings; each has addresses of its own, with a gap between them.
    fn new(
        running: &'a Running<'a>,
        file: &SharedObject<'a, Hosted>,
        load: &Load,
        nth: u64,
    ) -> Result<Mapping<'a>, LabError> {
        let len = load.nr_pages * PAGE_BYTES;
        let base = BASE + nth * (len + TABLE_PAGES * PAGE_BYTES);
        map_file(running.space(), file, base, len)?;
        Ok(Mapping { running, base, len })
    }
    fn remove(self) -> Result<(), LabError> {
        self.running.space().munmap(self.base, self.len).map_err(|e| LabError::subsystem("munmap of the file", e))
    }
}

impl Mapped for Mapping<'_> {
    #[inline]
    fn sum_page(&self, page: u64) -> Result<u64, LabError> {
        let addr = self.base + page * PAGE_BYTES;
        self.running.read_page(addr, sum).map_err(|e| LabError::subsystem("a load", e))
    }
    #[inline]
    fn word(&self, index: u64) -> Result<u64, LabError> {
        let addr = self.base + index / PAGE_WORDS * PAGE_BYTES + index % PAGE_WORDS * 8;
        self.running.read_u64(addr).map_err(|e| LabError::subsystem("a load", e))
    }
}
