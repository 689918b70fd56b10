//! Frames that are set aside for the reaction to pressure: they lie in memory that goes, since they come from its end, and there are fewer
//! when there is less memory.

use super::*;

const NR_TABLES: u64 = 8;
/// Pages in each of them.
const NR_PAGES: u64 = 300;

/// Keeps a reserve, in memory of 24 MiB and so many sections that come. It is set aside when nothing else is free than in these.
fn grown(nr_sections: u64) -> Vm<Hosted> {
    let bytes = (1 + nr_sections) * SECTION * PAGE;
    let config = HostedConfig::default().with_arena_bytes(24 << 20).with_spare_bytes(bytes - (24 << 20));
    let tunables = Tunables::default().with_keep_min(true);
    let vm: Vm<Hosted> = Vm::new(Hosted::new(config.with_nr_cpus(1)).unwrap(), tunables).unwrap();
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let least = vm.nr_reserve_pages();
    assert_eq!(least, vm.watermarks().min_pages);
    // Their metadata stays where it is.
    (1..=nr_sections).for_each(|nr| vm.add_memory(section(nr)).unwrap());
    (1..=nr_sections).rev().for_each(|nr| vm.remove_memory(section(nr)).unwrap());
    let space: Space<'_> = vm.new_space().unwrap();
    space.mmap(BASE, NR_TABLES * HUGE, RW, PRIVATE | FIXED).unwrap();
    space.madvise(BASE, NR_TABLES * HUGE, Advice::NoHugePage).unwrap();
    let table = |nr: u64| BASE + nr * HUGE;
    (0..NR_TABLES).for_each(|nr| space.write(table(nr), b"x").unwrap());
    let ballast = vm.new_shared_object(1 << 30).unwrap();
    vm.spend_reserve(u64::MAX);
    assert!((0..SECTION).any(|page| ballast.write(page * PAGE, &[1]).is_err()));
    (1..=nr_sections).for_each(|nr| vm.add_memory(section(nr)).unwrap());
    // CPUs begin blocks, and memory is not short. The first page of each table stays, and the table.
    for round in 0.. {
        if vm.nr_reserve_pages() == vm.watermarks().min_pages {
            break;
        }
        assert!(round < 100, "{} of {:?}", vm.nr_reserve_pages(), vm.watermarks());
        let pages = (0..NR_TABLES).flat_map(|nr| (1..NR_PAGES).map(move |page| table(nr) + page * PAGE));
        pages.for_each(|at| space.write(at, b"x").unwrap());
        (0..NR_TABLES).for_each(|nr| space.madvise(table(nr) + PAGE, (NR_PAGES - 1) * PAGE, Advice::DontNeed).unwrap());
    }
    assert!(vm.nr_reserve_pages() > least);
    let nr_in_sections: u64 = (1..=nr_sections).map(|nr| vm.nr_reserve_pages_in(&section(nr))).sum();
    assert!(nr_in_sections > 0, "it lies in memory that goes");
    check(&vm, &[&space]);
    drop((space, ballast));
    drop(cpu);
    vm
}

fn is_settled(vm: &Vm<Hosted>) {
    assert_eq!(vm.nr_reserve_pages(), vm.watermarks().min_pages);
    check(vm, &[]);
    assert_eq!(softfault_testkit::at_rest::check_free_is_zero(vm), Ok(()));
}

/// Removed as it is, or emptied: nobody uses a frame of it, and what was set aside there is set aside elsewhere.
#[test]
fn memory_goes_with_frames_of_the_reserve() {
    for empties in [false, true] {
        let vm = grown(1);
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        let (before, nr_free) = (vm.nr_reserve_pages(), vm.vmstat().nr_free_pages);
        if empties {
            assert_eq!(vm.offline_memory(section(1)), Ok(()));
        } else {
            assert_eq!(vm.remove_memory(section(1)), Ok(()));
        }
        assert!(vm.nr_reserve_pages() < before);
        is_settled(&vm);
        // Free or set aside, all the other frames are there.
        assert_eq!(vm.vmstat().nr_free_pages + vm.nr_reserve_pages(), nr_free + before - SECTION);
        // It comes again, and goes.
        assert_eq!((vm.add_memory(section(1)), vm.remove_memory(section(1))), (Ok(()), Ok(())));
        is_settled(&vm);
    }
}

/// A removal that is refused leaves as many frames set aside as before, and none of them is lost.
#[test]
fn a_refused_removal_keeps_the_reserve() {
    let vm = grown(1);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space: Space<'_> = vm.new_space().unwrap();
    // More than there was before.
    space.mmap(BASE, 8000 * PAGE, RW, PRIVATE | FIXED).unwrap();
    (0..8000).for_each(|page| space.write(BASE + page * PAGE, b"x").unwrap());
    let in_section = (0..8000).find(|page| in_range(space.translate_at_rest(BASE + page * PAGE).unwrap().pfn)).unwrap();
    let pin = space.pin_page(BASE + in_section * PAGE, Term::Short).unwrap();
    let before = (vm.nr_reserve_pages(), vm.vmstat().nr_free_pages);
    assert_eq!(vm.remove_memory(section(1)), Err(RemoveMemoryRefusal::InUse));
    assert_eq!((vm.nr_reserve_pages(), vm.vmstat().nr_free_pages), before);
    assert!(vm.offline_memory(section(1)).is_err());
    assert_eq!((vm.nr_reserve_pages(), vm.vmstat().nr_free_pages), before);
    drop(pin);
    check(&vm, &[&space]);
    drop(space);
    is_settled(&vm);
}

/// With less memory less is kept, whichever memory goes.
#[test]
fn the_reserve_shrinks_with_memory() {
    for goes in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
        let vm = grown(3);
        let _cpu = vm.machine().bind(CpuId(0)).unwrap();
        for nr in goes {
            let before = vm.nr_reserve_pages();
            assert_eq!(vm.remove_memory(section(nr)), Ok(()), "{nr} of {goes:?}");
            assert!(vm.nr_reserve_pages() < before);
            is_settled(&vm);
        }
    }
}
