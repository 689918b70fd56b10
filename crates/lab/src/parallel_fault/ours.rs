//! The stores on the hosted machine, each of which faults once for a page of the pool.

use super::load::{Load, Locks, Sample};
use super::options::Options;
use crate::bench::{Arena, Frames, bind, crew, prepare_frames};
use crate::error::LabError;
use softfault::clear::ClearTable;
use softfault::{AddressSpace, HugetlbCounts, HugetlbLocking, MapFlags, ObjectPart, Prot, SharedObject, Tunables, Vm};
use softfault_host::Hosted;

/// Where each space maps the memory: aligned to 1 GiB.
const BASE: u64 = 1 << 40;

/// One row: `nr_threads` threads as as many CPUs. No page is zero before.
pub fn run(
    arena: &mut Arena,
    measured: &ClearTable,
    (options, load): (&Options, &Load),
    (locking, nr_threads): (HugetlbLocking, usize),
) -> Result<Sample, LabError> {
    prepare_frames(arena.hosted_mut(), Frames::Fresh);
    let tunables = Tunables::default()
        .with_hugetlb_locking(locking)
        .with_hugetlb_mutexes(options.mutexes)
        .with_zeroing(options.zeroing.tunable());
    let vm = Vm::new(arena.take(), tunables).map_err(|e| LabError::subsystem("Vm::new", e))?;
    vm.set_clear_orders(measured);
    vm.set_zeroing(measured);
    let sample = run_in(&vm, options, load, nr_threads)?;
    arena.put(vm.into_machine());
    Ok(sample)
}

fn run_in(vm: &Vm<Hosted>, options: &Options, load: &Load, nr_threads: usize) -> Result<Sample, LabError> {
    let setting_up = bind(vm.machine(), 0)?;
    let order = options.page.order();
    let counts = || vm.hugetlb_counts(order).map_err(|e| LabError::subsystem("hugetlb_counts", e));
    let nr = vm.set_nr_hugepages(order, load.nr_pages).map_err(|e| LabError::subsystem("set_nr_hugepages", e))?;
    expect("pages of the pool", nr, load.nr_pages)?;
    let file = vm.new_hugetlb_object(load.bytes(), order).map_err(|e| LabError::subsystem("new_hugetlb_object", e))?;
    let spaces = (0..load.shape.nr_spaces()).map(|_| mapped(vm, &file, load.bytes())).collect::<Result<Vec<_>, _>>()?;
    drop(setting_up);
    let done = crew::together(nr_threads, &load.cpus, |thread, steps| {
        let cpu = bind(vm.machine(), thread)?;
        steps.timed(|| {
            load.parts(thread, nr_threads).try_for_each(|(space, bytes)| {
                let running = cpu.enter(&spaces[space]).map_err(|e| LabError::subsystem(format!("CPU {thread}"), e))?;
                load.touches(bytes).try_for_each(|at| {
                    running.store(BASE + at, &[1u8]).map_err(|e| LabError::subsystem(format!("a store at {at:#x}"), e))
                })
            })
        })
    })?;
    let _tearing_down = bind(vm.machine(), 0)?;
    let nr_used = load.nr_touched(nr_threads) / load.shape.nr_spaces() as u64;
    expect("free pages", counts()?.free, load.nr_pages - nr_used)?;
    let stat = vm.hugetlb_lock_stat();
    drop((spaces, file));
    let HugetlbCounts { nr, free, reserved, .. } = counts()?;
    expect("free pages in the end", free, nr)?;
    expect("reserved pages in the end", reserved, 0)?;
    let locks = (stat.mutexes > 0).then_some(Locks {
        mutexes: stat.mutexes,
        acquisitions: stat.acquisitions,
        contentions: stat.contentions,
        wait_us: stat.wait_ns as f64 / 1e3,
    });
    if let Some(locks) = &locks
        && locks.acquisitions < load.nr_touched(nr_threads)
    {
        expect("mutexes taken", locks.acquisitions, load.nr_touched(nr_threads))?;
    }
    Ok(Sample { wall: done.walls[0], locks })
}

/// A new space that maps the whole file.
fn mapped<'vm>(
    vm: &'vm Vm<Hosted>,
    file: &SharedObject<'vm, Hosted>,
    len: u64,
) -> Result<AddressSpace<'vm, Hosted>, LabError> {
    let space = vm.new_space().map_err(|e| LabError::subsystem("new_space", e))?;
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    let done = space.mmap_object(BASE, len, Prot::READ | Prot::WRITE, flags, ObjectPart::new(file));
    done.map_err(|e| LabError::subsystem(format!("mmap_object of {len} bytes"), e))?;
    Ok(space)
}

fn expect(what: &str, found: u64, wanted: u64) -> Result<(), LabError> {
    if found == wanted {
        return Ok(());
    }
    Err(LabError::subsystem(what, format!("{found}, should be {wanted}")))
}
