//! The simulation: CPUs take turns of one fault each, and every access is recorded.

use super::history;
use super::lines::{Hot, Lines};
use super::machine::{self, Simulated};
use super::options::{Frames, Layout, OBJECT_AT, Options, PAGE_BYTES, Pages};
use super::pool;
use crate::error::LabError;
use crate::progress;
use softfault_recorded::addr::Access;
use softfault_recorded::policy::around::{AroundOrder, FaultAround};
use softfault_recorded::policy::huge::{Enabled, SizeEnabled};
use softfault_recorded::sync::{Touch, record};
use softfault_recorded::{
    AddressSpace, FaultDone, FaultLocking, HugeKnobs, MapFlags, ObjectPart, Order, Prot, SharedObject, Tunables, Vm,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

const TABLE_ENTRIES: u64 = 512;

/// One field of one structure, and the lines that travelled for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The structure's name in the core.
    pub structure: String,
    /// The field's.
    pub field: String,
    /// Writes to lines last written by another CPU.
    pub transfers: u64,
    /// Reads of lines written by another CPU since.
    pub read_misses: u64,
}

/// Counts of a run.
pub struct Counted {
    /// Faults taken.
    pub nr_faults: u64,
    /// Writes to lines last written by another CPU.
    pub transfers: u64,
    /// Reads of lines written by another CPU since.
    pub read_misses: u64,
    /// By structure and field, most transfers first.
    pub places: Vec<Place>,
    /// The same faults once more, with a pool: see `pool.rs`.
    pub steady: Option<Box<Counted>>,
}

/// Runs the faults of `options`; `beside` is called within each turn, recorded as
/// the fault is, and does nothing except in the test that plants a counter.
pub fn run(options: &Options, mut beside: impl FnMut()) -> Result<Counted, LabError> {
    let machine = Simulated::new(usize::from(options.cpus), options.nr_frames())?;
    let tunables = Tunables::default().with_fault_locking(recorded(options)).with_thp(knobs(options.pages));
    let tunables = tunables.with_fault_around(window(options)).with_hugetlb_locking(pool::discipline(options));
    let lines = Rc::new(RefCell::new(Lines::new()));
    machine::become_cpu(0);
    let recording = Recording::start(Rc::clone(&lines));
    // On the heap, so that its address stays what it is while places are looked up.
    let vm = Box::new(Vm::new(machine, tunables).map_err(|e| LabError::subsystem("Vm::new", e))?);
    let (spaces, base, file) = spaces(&vm, options)?;
    let run_it = |cpu: u16| {
        machine::become_cpu(cpu);
        of_cpu(&spaces, cpu).activate()
    };
    let active: Vec<_> = (0..options.cpus).map(run_it).collect();
    if options.frames == Frames::Aged {
        history::fill_and_thin_out(&vm, &spaces[0], options)?;
    }
    let mut count = || {
        // The last writers so far are kept; the costs are not.
        lines.borrow_mut().start_counting();
        let nr_faults = take_turns(&vm, &spaces, base, options, &mut beside)?;
        let lines = lines.borrow();
        let places = machine::unrecorded(|| {
            by_place(lines.hot(), |addr| vm.describe(addr).map(|place| (place.structure, place.field)))
        });
        Ok(Counted { nr_faults, transfers: lines.transfers, read_misses: lines.read_misses, places, steady: None })
    };
    let mut counted: Counted = count()?;
    if options.layout.is_of_pool() {
        pool::begin_again(&spaces, options, file.as_ref())?;
        counted.steady = Some(Box::new(count()?));
    }
    drop(recording);
    for (cpu, active) in (0..options.cpus).zip(active) {
        machine::become_cpu(cpu);
        drop(active);
    }
    Ok(counted)
}

/// One for all CPUs, or one each; where the pages are in all of them; and the file of pages of a pool.
type Spaces<'vm> = (Vec<AddressSpace<'vm, Simulated>>, u64, Option<SharedObject<'vm, Simulated>>);

fn spaces<'vm>(vm: &'vm Vm<Simulated>, options: &Options) -> Result<Spaces<'vm>, LabError> {
    let nr = if options.layout.has_own_spaces() { options.cpus } else { 1 };
    let new_space = |_| vm.new_space().map_err(|e| LabError::subsystem("new_space", e));
    let spaces = (0..nr).map(new_space).collect::<Result<Vec<_>, _>>()?;
    let (base, file) = match options.layout {
        Layout::SameObject | Layout::OwnPart => (map_object(vm, &spaces, options)?, None),
        Layout::Pool | Layout::PrivatePool => (OBJECT_AT, pool::map(vm, &spaces, options)?),
        _ => (map(&spaces[0], options)?, None),
    };
    Ok((spaces, base, file))
}

/// The space that the CPU runs.
fn of_cpu<'a, 'vm>(spaces: &'a [AddressSpace<'vm, Simulated>], cpu: u16) -> &'a AddressSpace<'vm, Simulated> {
    &spaces[usize::from(cpu) % spaces.len()]
}

/// Maps one object in each of the spaces: as often as its pages are to be touched. It is empty, or its pages
/// are all there, each written by the CPU whose part it is.
fn map_object(vm: &Vm<Simulated>, spaces: &[AddressSpace<Simulated>], options: &Options) -> Result<u64, LabError> {
    let bytes = options.object_pages() * PAGE_BYTES;
    let object = vm.new_shared_object(bytes).map_err(|e| LabError::subsystem("new_shared_object", e))?;
    if options.fault_around.is_some() {
        for page in 0..options.object_pages() {
            machine::become_cpu(if options.layout == Layout::OwnPart { (page / TABLE_ENTRIES) as u16 } else { 0 });
            object.write(page * PAGE_BYTES, &[1]).map_err(|e| LabError::subsystem("filling the object", e))?;
        }
        machine::become_cpu(0);
    }
    let (part, touches) = (options.part_pages(), u64::from(options.touches));
    for (cpu, space) in (0..options.nr_cpus()).zip(spaces) {
        for first in (0..touches).step_by(part as usize) {
            let (len, offset) = (part.min(touches - first) * PAGE_BYTES, options.part_of(cpu) * PAGE_BYTES);
            let (prot, flags) = (Prot::READ | Prot::WRITE, MapFlags::SHARED | MapFlags::FIXED);
            space
                .mmap_object(
                    OBJECT_AT + first * PAGE_BYTES,
                    len,
                    prot,
                    flags,
                    ObjectPart::new(&object).with_offset_bytes(offset),
                )
                .map_err(|e| LabError::subsystem(format!("mmap_object of {len} bytes"), e))?;
        }
    }
    Ok(OBJECT_AT)
}

/// How many faults there were: one a touch, unless a fault maps the pages of later touches.
fn take_turns(
    vm: &Vm<Simulated>,
    spaces: &[AddressSpace<Simulated>],
    base: u64,
    options: &Options,
    beside: &mut impl FnMut(),
) -> Result<u64, LabError> {
    let (nr_cpus, touches) = (options.nr_cpus(), u64::from(options.touches));
    let access = if options.fault_around.is_some() { Access::Read } else { Access::Write };
    let mut nr_faults = 0;
    let wanted = what_is_mapped(options);
    let bar = progress::bar(touches);
    for turn in 0..touches {
        for cpu in 0..nr_cpus {
            machine::become_cpu(cpu as u16);
            let page = options.layout.page(cpu, nr_cpus, turn, touches);
            let addr = base + page * options.pages.nr_frames() * PAGE_BYTES;
            let space = of_cpu(spaces, cpu as u16);
            if options.fault_around.is_some() && machine::unrecorded(|| space.page_state(addr).is_some()) {
                continue;
            }
            nr_faults += 1;
            let done = space
                .handle_fault(addr, access)
                .map_err(|e| LabError::subsystem(format!("fault {turn} of CPU {cpu}"), e))?;
            if done != wanted && !options.layout.is_of_pool() {
                return Err(LabError::subsystem(format!("fault {turn} of CPU {cpu}"), WrongSize));
            }
            if options.layout.is_of_pool() {
                machine::unrecorded(|| pool::forget_bytes(vm, space, addr));
            }
            beside();
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(nr_faults)
}

/// Returns the setting for the neighbours that a read fault maps.
fn window(options: &Options) -> FaultAround {
    let Some(window) = options.fault_around else { return FaultAround::DEFAULT };
    // The recorded core has types of its own.
    window.order().and_then(|order| AroundOrder::new(order.get())).map_or(FaultAround::Adaptive, FaultAround::Fixed)
}

/// This size alone.
fn knobs(pages: Pages) -> HugeKnobs {
    let mut thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Always);
    thp.sizes.fill(SizeEnabled::Never);
    // No knob for small pages.
    let _ = thp.set_size(Order(pages.order()), SizeEnabled::Always);
    thp
}

/// The expected result of each fault.
fn what_is_mapped(options: &Options) -> FaultDone {
    match options.pages {
        Pages::SMALL if options.layout.has_own_spaces() => FaultDone::Shared,
        Pages::SMALL => FaultDone::Installed,
        Pages::HUGE => FaultDone::Huge,
        pages => FaultDone::Folio(Order(pages.order())),
    }
}

/// Writable memory for all CPUs' pages, aligned to the span of a table of them.
fn map(space: &AddressSpace<Simulated>, options: &Options) -> Result<u64, LabError> {
    let unit_bytes = options.pages.nr_frames() * PAGE_BYTES;
    let table_bytes = unit_bytes * TABLE_ENTRIES;
    let len = options.layout.nr_pages(options.nr_cpus(), u64::from(options.touches)) * unit_bytes + table_bytes;
    let prot = Prot::READ | Prot::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::NORESERVE;
    let addr = space.mmap(0, len, prot, flags).map_err(|e| LabError::subsystem(format!("mmap of {len} bytes"), e))?;
    Ok(addr.next_multiple_of(table_bytes))
}

/// The recorded core is a crate of its own, with types of its own.
fn recorded(options: &Options) -> FaultLocking {
    let name = options.fault_locking.name();
    FaultLocking::ALL.into_iter().find(|d| d.name() == name).expect("both crates are made of the same sources")
}

/// A fault mapped another size than was asked for: the count would mean nothing.
#[derive(Debug)]
struct WrongSize;

impl std::fmt::Display for WrongSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a page of another size was mapped than --pages says")
    }
}
impl std::error::Error for WrongSize {}

/// While it lives, this thread's touches go into the books.
struct Recording;

impl Recording {
    fn start(lines: Rc<RefCell<Lines>>) -> Recording {
        record(Some(Box::new(move |addr, touch| {
            if machine::is_paused() {
                return;
            }
            let mut lines = lines.borrow_mut();
            match touch {
                Touch::Read => lines.read(machine::this_cpu(), addr),
                Touch::Write => lines.write(machine::this_cpu(), addr),
            }
        })));
        Recording
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        record(None);
    }
}

/// Adds up what belongs to one field, wherever in memory it lies.
fn by_place<'a>(hot: impl Iterator<Item = Hot>, name: impl Fn(usize) -> Option<(&'a str, &'a str)>) -> Vec<Place> {
    let mut sums: HashMap<(&str, &str), (u64, u64)> = HashMap::new();
    for word in hot {
        let sum = sums.entry(name(word.addr).unwrap_or(("elsewhere", "unknown"))).or_default();
        sum.0 += word.transfers;
        sum.1 += word.read_misses;
    }
    let mut places: Vec<Place> = sums
        .into_iter()
        .map(|((structure, field), (transfers, read_misses))| Place {
            structure: structure.into(),
            field: field.into(),
            transfers,
            read_misses,
        })
        .collect();
    places.sort_by(|a, b| {
        (b.transfers, b.read_misses, &a.structure, &a.field).cmp(&(a.transfers, a.read_misses, &b.structure, &b.field))
    });
    places
}

#[cfg(test)]
#[path = "simulate_tests.rs"]
mod tests;
