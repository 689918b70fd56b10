//! The layouts `pool`, a file whose pages come from a reserved pool, mapped in a space for each CPU, and `private-pool`, a private
//! mapping of such pages for each. Faults are counted twice:
//!
//! - *cold*: CPU 0 has made the pool and the file, reserved all pages and mapped them, so that it wrote what says so last; each CPU
//!   has touched a small page of its program;
//! - *steady*: each CPU has taken its pages out, and mapped and reserved them again, and faults on them a second time.

use super::machine::{self, Simulated};
use super::options::{Layout, OBJECT_AT, Options, PAGE_BYTES, Pages};
use crate::error::LabError;
use softfault_recorded::addr::Access;
use softfault_recorded::{AddressSpace, HugetlbLocking, MapFlags, ObjectPart, Order, Pfn, Prot, SharedObject, Vm};

/// As the options say; the recorded core has types of its own.
pub fn discipline(options: &Options) -> HugetlbLocking {
    let name = options.hugetlb_locking.name();
    HugetlbLocking::ALL.into_iter().find(|d| d.name() == name).expect("both crates are made of the same sources")
}

/// The word in output.
pub fn name(options: &Options) -> Option<&'static str> {
    options.layout.is_of_pool().then(|| options.hugetlb_locking.name())
}

/// Below the pages of the pool.
const STACK_AT: u64 = OBJECT_AT / 2;
/// Bytes of a page.
const BYTES: u64 = Pages::HUGE.nr_frames() * PAGE_BYTES;

/// A pool with a page for each touch, and a file of as many, unless mappings are private. Each space maps its pages.
pub fn map<'vm>(
    vm: &'vm Vm<Simulated>,
    spaces: &[AddressSpace<Simulated>],
    options: &Options,
) -> Result<Option<SharedObject<'vm, Simulated>>, LabError> {
    let order = Order(options.pages.order());
    let wanted = options.nr_touched();
    let nr = vm.set_nr_hugepages(order, wanted).map_err(|e| LabError::subsystem("set_nr_hugepages", e))?;
    if nr < wanted {
        return Err(LabError::subsystem("pages of the pool", format!("{nr}, should be {wanted}")));
    }
    machine::unrecorded(|| expect_pages(vm));
    let new_file = || vm.new_hugetlb_object(wanted * BYTES, order);
    let file = (options.layout == Layout::Pool).then(new_file).transpose();
    let file = file.map_err(|e| LabError::subsystem("new_hugetlb_object", e))?;
    if let Some(file) = &file {
        let pages = 0..wanted * Pages::HUGE.nr_frames();
        file.reserve(pages).map_err(|e| LabError::subsystem("pages of the file", e))?;
    }
    (0..options.cpus).zip(spaces).try_for_each(|(cpu, space)| map_pages_of(cpu, space, options, file.as_ref()))?;
    (0..options.cpus).zip(spaces).try_for_each(|(cpu, space)| touch_stack(cpu, space))?;
    machine::become_cpu(0);
    Ok(file)
}

/// Touches one small page, as each program does before it touches one of a pool: the CPU's first fault costs lines of its own.
fn touch_stack(cpu: u16, space: &AddressSpace<Simulated>) -> Result<(), LabError> {
    let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED;
    let mapped = space.mmap(STACK_AT, PAGE_BYTES, Prot::READ | Prot::WRITE, flags);
    mapped.map_err(|e| LabError::subsystem(format!("mmap of the stack of CPU {cpu}"), e))?;
    machine::become_cpu(cpu);
    let _running = space.activate();
    let touched = space.handle_fault(STACK_AT, Access::Write);
    touched.map(drop).map_err(|e| LabError::subsystem(format!("the stack of CPU {cpu}"), e))
}

/// Prepares the host for the pages of the pool, which faults zero. All other memory is hardly touched.
fn expect_pages(vm: &Vm<Simulated>) {
    let first_of = |block: u32| u64::from(block) * Pages::HUGE.nr_frames();
    let in_pool = (0..vm.nr_blocks()).map(first_of).filter(|first| vm.lies_free_in_pool(Pfn(*first as u32)));
    in_pool.for_each(|first| vm.machine().expect_huge(first..first + Pages::HUGE.nr_frames()));
}

/// Each CPU unmaps its pages, takes them out of the file, and maps them again, which reserves them: as it was before the faults,
/// but that CPUs have done for themselves what CPU 0 did then.
pub fn begin_again(
    spaces: &[AddressSpace<Simulated>],
    options: &Options,
    file: Option<&SharedObject<'_, Simulated>>,
) -> Result<(), LabError> {
    for (cpu, space) in (0..options.cpus).zip(spaces) {
        machine::become_cpu(cpu);
        let len = u64::from(options.touches) * BYTES;
        space.munmap(OBJECT_AT, len).map_err(|e| LabError::subsystem(format!("munmap by CPU {cpu}"), e))?;
        for turn in 0..file.map_or(0, |_| u64::from(options.touches)) {
            let first = page_of(cpu, turn, options) * Pages::HUGE.nr_frames();
            file.into_iter().for_each(|file| file.discard(first..first + Pages::HUGE.nr_frames()));
        }
        map_pages_of(cpu, space, options, file)?;
    }
    Ok(())
}

/// Gives the host back what a page takes that was zeroed for a fault: nobody stores to it.
pub fn forget_bytes(vm: &Vm<Simulated>, space: &AddressSpace<Simulated>, addr: u64) {
    if let Some((pfn, _)) = space.frame_at_rest(addr) {
        let first = u64::from(pfn.0) / Pages::HUGE.nr_frames() * Pages::HUGE.nr_frames();
        vm.machine().forget(first..first + Pages::HUGE.nr_frames());
    }
}

/// Page of the file that is the CPU's `turn`th.
fn page_of(cpu: u16, turn: u64, options: &Options) -> u64 {
    turn * options.nr_cpus() + u64::from(cpu)
}

/// All are reserved.
fn map_pages_of(
    cpu: u16,
    space: &AddressSpace<Simulated>,
    options: &Options,
    file: Option<&SharedObject<'_, Simulated>>,
) -> Result<(), LabError> {
    let prot = Prot::READ | Prot::WRITE;
    let Some(file) = file else {
        let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::HUGETLB | MapFlags::FIXED;
        let done = space.mmap(OBJECT_AT, u64::from(options.touches) * BYTES, prot, flags);
        return done.map(drop).map_err(|e| LabError::subsystem(format!("mmap for CPU {cpu}"), e));
    };
    for turn in 0..u64::from(options.touches) {
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let part = ObjectPart::new(file).with_offset_bytes(page_of(cpu, turn, options) * BYTES);
        let done = space.mmap_object(OBJECT_AT + turn * BYTES, BYTES, prot, flags, part);
        done.map_err(|e| LabError::subsystem(format!("mmap_object for turn {turn} of CPU {cpu}"), e))?;
    }
    Ok(())
}
