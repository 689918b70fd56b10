//! Where frames come from on machines with many CPUs: few of them spoil few blocks.
#![deny(unsafe_code)]

mod common;

use common::huge::{self, AT, HUGE};
use common::*;
use softfault::hooks::Class;
use softfault::policy::compact::CompactBudget;
use softfault::policy::huge::Enabled;
use softfault::{Access, Advice, CpuId, FaultDone, HugeKnobs, MapFlags, ObjectPart, Order, Vm};
use softfault_host::Hosted;

const SHARED_OBJECT: MapFlags = MapFlags::SHARED;
const SMALL: u64 = 0x20_0000_0000;
const NR_SPACES: u64 = 40;
const PAGES_EACH: u64 = 1200;

/// Blocks that are wholly free.
fn nr_whole(vm: &Vm<Hosted>) -> u64 {
    vm.fragmentation(Order::PMD).nr_usable / 512
}

fn on_cpu<T>(vm: &Vm<Hosted>, id: u64, work: impl FnOnce() -> T) -> T {
    let _cpu = vm.machine().bind(CpuId(id as u16)).unwrap();
    work()
}

/// Takes as many huge pages as compaction can make.
fn compacted(vm: &Vm<Hosted>, space: &Space<'_>) -> u64 {
    let (mut nr_huge, mut nr_refused) = (0, 0);
    while nr_refused < 40 {
        let at = AT + nr_huge * HUGE;
        if vm.compact_step(&CompactBudget::BACKGROUND).is_err() {
            nr_refused += 1;
            continue;
        }
        huge::map(space, at, HUGE);
        let is_huge = space.handle_fault(at, Access::Write) == Ok(FaultDone::Huge);
        *if is_huge { &mut nr_huge } else { &mut nr_refused } += 1;
    }
    nr_huge
}

/// In 256 MiB, 40 processes come while the small pages of another are touched; then seven of
/// eight of those pages go. The CPUs that are active take turns. Gives the blocks' worth of
/// free frames, the blocks that are free, and those that compaction makes free.
fn processes_come(nr_cpus: usize, nr_active: u64) -> [u64; 3] {
    let vm = huge::vm(nr_cpus, 256 << 20, HugeKnobs::DEFAULT.with_enabled(Enabled::Always));
    let home = on_cpu(&vm, 0, || vm.new_space().unwrap());
    let nr_pages = NR_SPACES * PAGES_EACH;
    on_cpu(&vm, 0, || {
        huge::map(&home, SMALL, nr_pages * PAGE);
        home.madvise(SMALL, nr_pages * PAGE, Advice::NoHugePage).unwrap();
    });
    let mut spaces = vec![];
    for i in 0..NR_SPACES {
        for page in i * PAGES_EACH..(i + 1) * PAGES_EACH {
            let fault = || home.handle_fault(SMALL + page * PAGE, Access::Write).unwrap();
            on_cpu(&vm, page / 30 % nr_active, fault);
        }
        spaces.push(on_cpu(&vm, i * 13 % nr_active, || vm.new_space().unwrap()));
    }
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    for page in (0..nr_pages).filter(|page| page % 8 != 0) {
        home.madvise(SMALL + page * PAGE, PAGE, DONTNEED).unwrap();
    }
    let found = [vm.vmstat().nr_free_pages / 512, nr_whole(&vm), compacted(&vm, &home)];
    let all: Vec<&Space<'_>> = spaces.iter().chain([&home]).collect();
    check(&vm, &all);
    drop(spaces);
    drop(home);
    found
}

#[test]
fn unmovable_frames_spoil_no_more_blocks_with_many_cpus() {
    for nr_cpus in [1, 64, 512] {
        let [nr_free, nr_whole, nr_huge] = processes_come(nr_cpus, 1);
        assert_eq!((nr_free, nr_huge), (114, 114), "{nr_cpus} CPUs");
        assert!(nr_whole >= 32, "{nr_cpus} CPUs: {nr_whole} whole before");
    }
}

/// Each CPU would spoil a block of its own with a table or two, and keep another reserved.
#[test]
fn nor_do_many_active_ones() {
    for (nr_cpus, nr_active, least_whole, least_huge) in [(64, 64, 25, 111), (512, 40, 28, 111), (512, 512, 0, 106)] {
        let [nr_free, nr_whole, nr_huge] = processes_come(nr_cpus, nr_active);
        let what = format!("{nr_cpus} CPUs, {nr_active} active: {nr_whole} whole before, {nr_huge} huge pages");
        assert_eq!(nr_free, 114, "{what}");
        assert!(nr_whole >= least_whole && nr_huge >= least_huge, "{what}");
    }
}

/// The CPUs' frame caches, of 64 frames each, are half of memory with 512 of them; that much and
/// what is begun for clusters is not whole.
#[test]
fn a_page_for_each_cpu_leaves_most_blocks_whole() {
    for (nr_cpus, least) in [(64, 90), (512, 55)] {
        let vm = huge::vm(nr_cpus as usize, 256 << 20, HugeKnobs::DEFAULT.with_enabled(Enabled::Never));
        let space = on_cpu(&vm, 0, || vm.new_space().unwrap());
        on_cpu(&vm, 0, || huge::map(&space, SMALL, nr_cpus * 16 * PAGE));
        for cpu in 0..nr_cpus {
            on_cpu(&vm, cpu, || space.handle_fault(SMALL + cpu * 16 * PAGE, Access::Write).unwrap());
        }
        let nr_whole = nr_whole(&vm);
        assert!(nr_whole >= least, "{nr_cpus} CPUs: {nr_whole}");
        on_cpu(&vm, 0, || drop(space));
    }
}

/// Memory at the end of a test: free memory and huge pages made of it, in blocks, and the blocks of each class.
struct Left {
    nr_free: u64,
    nr_huge: u64,
    nr_shared: usize,
    nr_fixed: usize,
}

fn nr_of(vm: &Vm<Hosted>, class: Class) -> usize {
    (0..vm.nr_blocks()).filter(|b| vm.block_class(*b) == class).count()
}

/// In 256 MiB CPUs take turns; of all pages they touch, one in `nr_private` is an object's. Half
/// of the pages of each kind go again, by chance, and others come in their place, a few times.
fn kinds_mix(nr_cpus: usize, nr_private: u64) -> Left {
    const NR_PAGES: u64 = 56_000;
    let vm = huge::vm(nr_cpus, 256 << 20, HugeKnobs::DEFAULT.with_enabled(Enabled::Always));
    let space = on_cpu(&vm, 0, || vm.new_space().unwrap());
    let object = on_cpu(&vm, 0, || vm.new_shared_object(NR_PAGES * PAGE).unwrap());
    let at = |page: u64| if page.is_multiple_of(nr_private) { SMALL + (1 << 36) } else { SMALL } + page * PAGE;
    on_cpu(&vm, 0, || {
        huge::map(&space, SMALL, NR_PAGES * PAGE);
        space.madvise(SMALL, NR_PAGES * PAGE, Advice::NoHugePage).unwrap();
        let part = ObjectPart::new(&object);
        space.mmap_object(SMALL + (1 << 36), NR_PAGES * PAGE, RW, SHARED_OBJECT | FIXED, part).unwrap();
    });
    let mut chance = 7u64;
    for round in 0..4 {
        for page in 0..NR_PAGES {
            on_cpu(&vm, page / 20 % nr_cpus as u64, || space.handle_fault(at(page), Access::Write).unwrap());
        }
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        for page in 0..NR_PAGES {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let goes = chance >> 40 & 1 == 0;
            match page % nr_private {
                0 if goes => object.discard(page..page + 1),
                _ if goes => space.madvise(at(page), PAGE, DONTNEED).unwrap(),
                _ => {}
            }
        }
        if round == 3 {
            check(&vm, &[&space]);
        }
    }
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let nr_free = vm.vmstat().nr_free_pages / 512;
    let nr_huge = compacted(&vm, &space);
    let left = Left { nr_free, nr_huge, nr_shared: nr_of(&vm, Class::Shared), nr_fixed: nr_of(&vm, Class::Fixed) };
    drop((space, object));
    left
}

#[test]
fn pages_of_objects_leave_blocks_of_private_pages_alone() {
    for nr_cpus in [1, 64] {
        let Left { nr_free, nr_huge, nr_shared, nr_fixed } = kinds_mix(nr_cpus, 10);
        let what = format!("{nr_cpus} CPUs: {nr_huge} of {nr_free}, {nr_shared} shared, {nr_fixed} fixed");
        eprintln!("{what}");
        assert!(nr_huge * 100 >= nr_free * 95, "{what}");
        // Compaction has emptied some of them.
        assert!((1..=24).contains(&nr_shared), "{what}");
    }
}
