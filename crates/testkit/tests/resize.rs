//! Memory is added and removed under programs, compaction and counters.
#![deny(unsafe_code)]

mod common;

use common::{BASE, FIXED, PAGE, PRIVATE, RW, SECTION, StopAtEnd, check, section};
use softfault::hooks::Holds;
use softfault::policy::compact::CompactBudget;
use softfault::policy::folio::FolioOrders;
use softfault::{
    AddMemoryRefusal, AddressSpace, Advance, Advice, CpuId, Event, MapFlags, Order, Pfn, RemoveMemoryRefusal, Tunables,
    Vm,
};
use softfault_host::{Hosted, HostedConfig};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

fn vm(nr_cpus: usize) -> Vm<Hosted> {
    let config = HostedConfig::default().with_arena_bytes(24 << 20).with_spare_bytes((384 - 24) << 20);
    Vm::new(Hosted::new(config.with_nr_cpus(nr_cpus)).unwrap(), Tunables::default()).unwrap()
}

/// More than the machine began with is written to memory that came, and read again.
#[test]
fn programs_use_memory_that_came() {
    let vm = vm(1);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let nr_free = vm.vmstat().nr_free_pages;
    {
        let space: AddressSpace<'_, Hosted> = vm.new_space().unwrap();
        let nr_pages = 12_000;
        space.mmap(BASE, nr_pages * PAGE, RW, PRIVATE | FIXED).unwrap();
        assert_eq!(vm.add_memory(section(1)), Ok(()));
        assert_eq!(vm.add_memory(section(1)), Err(AddMemoryRefusal::AlreadyThere));
        let running = cpu.enter(&space).unwrap();
        (0..nr_pages).for_each(|page| running.store(BASE + page * PAGE, &page.to_le_bytes()).unwrap());
        assert_eq!(vm.remove_memory(section(1)), Err(RemoveMemoryRefusal::InUse));
        for page in 0..nr_pages {
            let mut bytes = [0; 8];
            running.load(BASE + page * PAGE, &mut bytes).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), page);
        }
        drop(running);
        check(&vm, &[&space]);
    }
    assert_eq!(vm.remove_memory(section(1)), Ok(()));
    check(&vm, &[]);
    assert_eq!(vm.vmstat().nr_free_pages, nr_free - 256 - 8);
}

/// A section is removed when it is free. Pages of a pool, free or in use, keep it, unless they are moved out (`offline.rs`).
#[test]
fn a_section_with_pages_of_a_pool_stays() {
    let (vm, at) = (vm(1), 1 << 32);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    vm.add_memory(section(1)).unwrap();
    // More than the machine had before.
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 20), Ok(20));
    assert_eq!(vm.remove_memory(section(1)), Err(RemoveMemoryRefusal::InUse));
    let space: AddressSpace<'_, Hosted> = vm.new_space().unwrap();
    let flags = PRIVATE | FIXED | MapFlags::HUGETLB;
    space.mmap(at, 20 * 512 * PAGE, RW, flags).unwrap();
    (0..20).for_each(|page| space.write(at + page * 512 * PAGE, &[1 + page as u8]).unwrap());
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 0), Ok(0), "they are surplus now");
    assert_eq!(vm.remove_memory(section(1)), Err(RemoveMemoryRefusal::InUse));
    check(&vm, &[&space]);
    (0..20).for_each(|page| {
        let mut byte = [0];
        space.read(at + page * 512 * PAGE, &mut byte).unwrap();
        assert_eq!(byte, [1 + page as u8]);
    });
    space.munmap(at, 20 * 512 * PAGE).unwrap();
    assert_eq!(vm.remove_memory(section(1)), Ok(()));
    check(&vm, &[&space]);
}

/// Folios of 2 MiB keep a section from being removed until they have moved, whole or in parts: no
/// block is wholly free elsewhere.
#[test]
fn a_section_with_large_folios_is_emptied() {
    let vm = vm(1);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    vm.add_memory(section(1)).unwrap();
    let space: AddressSpace<'_, Hosted> = vm.new_space().unwrap();
    // Memory below the section: pages of it stay in each block.
    let nr_below = 24 * 256 - 900;
    space.mmap(BASE, nr_below * PAGE, RW, PRIVATE | FIXED).unwrap();
    (0..nr_below).for_each(|page| space.write(BASE + page * PAGE, b"p").unwrap());
    let orders = FolioOrders::new(Order::BASE, Order::PMD).unwrap();
    let object = vm.new_shared_object_of(3 * 512 * PAGE, orders).unwrap();
    (0..3 * 512).for_each(|page: u64| object.write(page * PAGE, &page.to_le_bytes()).unwrap());
    (0..nr_below).filter(|page| page % 300 != 0).for_each(|page| {
        space.madvise(BASE + page * PAGE, PAGE, Advice::DontNeed).unwrap();
    });
    let range = section(1);
    assert_eq!(vm.remove_memory(range), Err(RemoveMemoryRefusal::InUse));
    // Frames that become free there are kept, so that nothing moves from one place of it to another.
    let blocks = 64..128;
    blocks.clone().for_each(|b| vm.take_bits(b, &[!0; 8]));
    for pfn in (range.first.0..).take(SECTION as usize).map(Pfn) {
        if vm.migrate_frame(pfn).is_ok() {
            vm.take_bits(pfn.0 / 512, &[!0; 8]);
        }
    }
    blocks.for_each(|b| vm.give_bits(b, &[!0; 8], Holds::Anything));
    check(&vm, &[&space]);
    assert_eq!(vm.remove_memory(range), Ok(()));
    assert!(vm.event(Event::FolioMovedInPart) >= 3);
    for page in 0..3 * 512_u64 {
        let mut bytes = [0; 8];
        object.read(page * PAGE, &mut bytes);
        assert_eq!(u64::from_le_bytes(bytes), page);
    }
    check(&vm, &[&space]);
}

/// One CPU adds and removes; others fault, and give back what they have; one compacts and counts.
#[test]
fn memory_comes_and_goes_under_all_others() {
    let vm = vm(4);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let nr_free = vm.vmstat().nr_free_pages;
    let is_over = AtomicBool::new(false);
    let go_on = || !is_over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        for id in 1..3 {
            let vm = &vm;
            scope.spawn(move || {
                let cpu = vm.machine().bind(CpuId(id)).unwrap();
                let mut round = 0_u64;
                while go_on() {
                    let space: AddressSpace<'_, Hosted> = vm.new_space().unwrap();
                    let nr_pages = 200 << (round % 5);
                    space.mmap(BASE, nr_pages * PAGE, RW, PRIVATE | FIXED).unwrap();
                    let running = cpu.enter(&space).unwrap();
                    // Without enough memory a store is refused.
                    let is_there =
                        |page: &u64| running.store(BASE + page * PAGE, &(page ^ round).to_le_bytes()).is_ok();
                    let there: Vec<u64> = (0..nr_pages).filter(is_there).collect();
                    for page in there {
                        let mut bytes = [0; 8];
                        running.load(BASE + page * PAGE, &mut bytes).unwrap();
                        assert_eq!(u64::from_le_bytes(bytes), page ^ round);
                    }
                    round += 1;
                }
            });
        }
        scope.spawn(|| {
            let _cpu = vm.machine().bind(CpuId(3)).unwrap();
            while go_on() {
                _ = vm.compact_step(&CompactBudget::BACKGROUND);
                _ = (
                    vm.fragmentation(Order(3)),
                    vm.fragmentation(Order(10)),
                    vm.idle_pages(1),
                    vm.vmstat(),
                    vm.shrink_underused(50),
                );
                (0..3 * SECTION as u32).step_by(4001).for_each(|pfn| _ = vm.migrate_frame(Pfn(pfn)));
                _ = vm.advance_generation(40) == Advance::Done;
            }
        });
        let _stop = StopAtEnd(&is_over);
        let (mut nr_gone, mut nr_in_use) = (0, 0);
        for nr in [1, 2, 1, 2, 2, 1, 2].into_iter().cycle().take(60) {
            match vm.add_memory(section(nr)) {
                Ok(()) | Err(AddMemoryRefusal::AlreadyThere | AddMemoryRefusal::NoMetadata) => {}
                Err(other) => panic!("{other:?}"),
            }
            match vm.remove_memory(section(3 - nr)) {
                Ok(()) => nr_gone += 1,
                Err(RemoveMemoryRefusal::InUse) => nr_in_use += 1,
                Err(RemoveMemoryRefusal::NotThere | RemoveMemoryRefusal::LastResort) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(nr_gone + nr_in_use > 0);
    });
    check(&vm, &[]);
    // One may have the metadata of the other.
    let nr_left = [1, 2].iter().filter(|nr| vm.remove_memory(section(**nr)) == Err(RemoveMemoryRefusal::InUse)).count();
    assert!(nr_left < 2);
    check(&vm, &[]);
    assert!(vm.vmstat().nr_free_pages >= nr_free - 2 * (256 + 8));
    assert!(vm.event(Event::MemoryAdded) >= vm.event(Event::MemoryRemoved));
    assert_eq!(vm.machine().violations(), (0, None));
}
