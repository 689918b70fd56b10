//! The last page of a pool, wanted by 2 to 8 CPUs, with each discipline of faults, while holes are punched, the pool gets
//! smaller and others reserve.

use common::{RW, Shuffled, access, free, run, shuffled, vm};
use shuttle::rand::Rng;
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{
    AddressSpace, Event, FaultError, HugetlbLocking, MapFlags, MmapError, ObjectPart, Order, SharedObject,
    SubpoolLimits, Tunables, Vm,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const NR_FRAMES: u64 = 1024;
const AT: u64 = 0x4000_0000;
const HUGE: u64 = 512 * 4096;

type Machine = Shuffled<X86_64>;
type Space = AddressSpace<'static, Machine>;
type Object = SharedObject<'static, Machine>;

/// A pool of one page, and an object of one, mapped with or without its reservation.
fn world(nr_cpus: usize, more: MapFlags) -> (&'static Vm<Machine>, &'static Space, &'static Object) {
    world_with(HugetlbLocking::Lockfree, nr_cpus, more)
}

fn world_with(
    locking: HugetlbLocking,
    nr_cpus: usize,
    more: MapFlags,
) -> (&'static Vm<Machine>, &'static Space, &'static Object) {
    let vm = vm(nr_cpus, NR_FRAMES, Tunables::default().with_hugetlb_locking(locking));
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 1), Ok(1));
    let object: &Object = Box::leak(Box::new(vm.new_hugetlb_object(HUGE, Order::PMD).unwrap()));
    let space: &Space = Box::leak(Box::new(vm.new_space().unwrap()));
    map(space, AT, object, more).unwrap();
    (vm, space, object)
}

fn map(space: &Space, at: u64, object: &Object, more: MapFlags) -> Result<u64, MmapError> {
    let flags = MapFlags::SHARED.union(MapFlags::FIXED).union(more);
    space.mmap_object(at, HUGE, RW, flags, ObjectPart::new(object))
}

/// Stores to some places of the page.
fn touch(vm: &'static Vm<Machine>, space: &'static Space) -> Result<(), FaultError> {
    let active = space.activate();
    let page = shuttle::rand::thread_rng().gen_range(0..4);
    let result = access(space, vm, AT + page * 4096, Some(7)).map(drop);
    drop(active);
    result
}

/// H1, H3: 2 to 8 CPUs get the page, also while another one is about to punch a hole.
#[test]
fn the_last_page() {
    for (nr_faults, locking) in (2..=8).flat_map(|nr| HugetlbLocking::ALL.map(|locking| (nr, locking))) {
        let nr_cpus = nr_faults + 1;
        shuffled(20, move || {
            let is_reserved = shuttle::rand::thread_rng().gen_bool(0.5);
            let more = if is_reserved { MapFlags::empty() } else { MapFlags::NORESERVE };
            let (vm, space, object) = world_with(locking, nr_cpus, more);
            let mut actors: Vec<Box<dyn FnOnce() + Send>> = vec![Box::new(move || object.discard(0..512))];
            actors.resize_with(nr_cpus, || Box::new(move || touch(vm, space).unwrap()));
            run(nr_cpus, actors);
            object.discard(0..512);
            assert_eq!(free(vm), (1, 1, 0));
        });
    }
}

/// A mutex excludes other faults: none finds the page claimed by another one. Without a mutex some do, and in some
/// schedules a fault waits for the page.
#[test]
fn two_faults_and_a_mutex() {
    for locking in HugetlbLocking::ALL {
        let seen = Arc::new([const { AtomicU64::new(0) }; 2]);
        let told = Arc::clone(&seen);
        shuffled(150, move || {
            let (vm, space, object) = world_with(locking, 2, MapFlags::empty());
            // Tables come before the mutex, and may be waited for.
            touch(vm, space).unwrap();
            object.discard(0..512);
            map(space, AT, object, MapFlags::empty()).unwrap();
            let before = vm.vmstat().get(Event::Waited);
            run(2, vec![Box::new(move || touch(vm, space).unwrap()), Box::new(move || touch(vm, space).unwrap())]);
            let stat = vm.hugetlb_lock_stat();
            assert!(locking == HugetlbLocking::Lockfree || stat.acquisitions >= 1);
            let now = [vm.vmstat().get(Event::Waited) - before, stat.contentions];
            told.iter().zip(now).for_each(|(sum, now)| _ = sum.fetch_add(now, Relaxed));
            object.discard(0..512);
            assert_eq!(free(vm), (1, 1, 0));
        });
        let [waited, contentions] = [0, 1].map(|i| seen[i].load(Relaxed));
        match locking {
            HugetlbLocking::Lockfree => assert!(waited > 0 && contentions == 0),
            _ => assert!(waited == 0 && contentions > 0, "{waited} {contentions}"),
        }
    }
}

/// Another mapping reserves the page while one without a reservation touches it: both are served.
#[test]
fn a_reservation_against_a_fault() {
    shuffled(200, || {
        let (vm, space, object) = world(2, MapFlags::NORESERVE);
        let reserve = move || _ = map(space, AT + 4 * HUGE, object, MapFlags::empty()).unwrap();
        run(2, vec![Box::new(move || touch(vm, space).unwrap()), Box::new(reserve)]);
        assert_eq!(free(vm), (1, 0, 0));
        vm.check_in_test(&[space], &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
    });
}

/// The pool has no page, and one CPU learns it while another one reserves the same page: the reservation is refused, too, in
/// place of a promise that nobody keeps.
#[test]
fn a_reservation_against_a_fault_that_is_refused() {
    let refused = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&refused);
    shuffled(200, move || {
        let (vm, space, object) = world(2, MapFlags::NORESERVE);
        let other: &Object = Box::leak(Box::new(vm.new_hugetlb_object(HUGE, Order::PMD).unwrap()));
        other.write(0, b"x").unwrap();
        let told = Arc::clone(&told);
        let fault = move || {
            assert_eq!(touch(vm, space), Err(FaultError::NoHugePage));
            told.fetch_add(1, Relaxed);
        };
        let reserve =
            move || assert_eq!(map(space, AT + 4 * HUGE, object, MapFlags::empty()), Err(MmapError::NoHugePages));
        run(2, vec![Box::new(fault), Box::new(reserve)]);
        other.discard(0..512);
        assert_eq!(free(vm), (1, 1, 0));
    });
    assert!(refused.load(Relaxed) > 0);
}

/// The first reservation of an object makes the node of its pages, while faults without one want the same page, and another one of
/// that node, and the pool has one: whoever gets it, a page that was promised is there.
#[test]
fn the_first_reservation_against_faults() {
    let seen = Arc::new([const { AtomicU64::new(0) }; 2]);
    let told = Arc::clone(&seen);
    shuffled(300, move || {
        let vm = vm(3, NR_FRAMES, Tunables::default());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 1), Ok(1));
        let space: &'static Space = Box::leak(Box::new(vm.new_space().unwrap()));
        let object: &'static Object = Box::leak(Box::new(vm.new_hugetlb_object(2 * HUGE, Order::PMD).unwrap()));
        let part = ObjectPart::new(object);
        space.mmap_object(AT, 2 * HUGE, RW, MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE, part).unwrap();
        let told = Arc::clone(&told);
        let reserve = move || {
            let reserved = object.reserve(0..512);
            told[usize::from(reserved.is_ok())].fetch_add(1, Relaxed);
            if reserved.is_ok() {
                assert_eq!(touch(vm, space), Ok(()), "it was promised");
            }
        };
        let fault = |at: u64| {
            move || {
                let active = space.activate();
                let touched = access(space, vm, at, Some(7)).map(drop);
                drop(active);
                assert!(matches!(touched, Ok(()) | Err(FaultError::NoHugePage)), "{touched:?}");
            }
        };
        run(3, vec![Box::new(reserve), Box::new(fault(AT)), Box::new(fault(AT + HUGE))]);
        vm.check_in_test(&[space], &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
        object.discard(0..1024);
        assert_eq!((free(vm), vm.check_free_in_test()), ((1, 1, 0), Ok(())));
    });
    assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
}

/// Two reserve the same page of a file without nodes. Both have brought some, and what one of them does not need is free again.
#[test]
fn two_first_reservations_of_a_page() {
    shuffled(300, || {
        let vm = vm(2, NR_FRAMES, Tunables::default());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 1), Ok(1));
        let [alone, both] = [(); 2]
            .map(|()| -> &'static Object { Box::leak(Box::new(vm.new_hugetlb_object(HUGE, Order::PMD).unwrap())) });
        let nr_free = || vm.vmstat().nr_free_pages;
        let before = nr_free();
        alone.reserve(0..512).unwrap();
        alone.set_size_bytes(0);
        let nr_nodes = before - nr_free();
        assert!(nr_nodes > 0, "nodes stay");
        let reserve = move || both.reserve(0..512).unwrap();
        run(2, vec![Box::new(reserve), Box::new(reserve)]);
        assert_eq!((nr_free(), free(vm)), (before - 2 * nr_nodes, (1, 1, 1)));
        vm.check_in_test(&[], &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
    });
}

/// H3: a page is reserved, and wanted for another file, while a hole is made over its place, which is empty. A promise that was made stays, in a
/// node that comes with it and in one that was there.
#[test]
fn h3_a_hole_against_a_reservation() {
    for has_node in [false, true] {
        let seen = Arc::new([const { AtomicU64::new(0) }; 2]);
        let told = Arc::clone(&seen);
        shuffled(300, move || {
            let (vm, space, object) = world(3, MapFlags::NORESERVE);
            let other: &Object = Box::leak(Box::new(vm.new_hugetlb_object(HUGE, Order::PMD).unwrap()));
            if has_node {
                object.write(0, b"x").unwrap();
                object.discard(0..512);
            }
            let is_reserved = Arc::new(AtomicBool::new(false));
            let reserved = Arc::clone(&is_reserved);
            let reserve = move || reserved.store(object.reserve(0..512).is_ok(), Relaxed);
            let want = move || _ = other.write(0, b"y");
            run(3, vec![Box::new(reserve), Box::new(move || object.discard(0..512)), Box::new(want)]);
            let is_reserved = is_reserved.load(Relaxed);
            assert_eq!(free(vm), if is_reserved { (1, 1, 1) } else { (1, 0, 0) });
            told[usize::from(is_reserved)].fetch_add(1, Relaxed);
            vm.check_in_test(&[space], &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
            assert_eq!(touch(vm, space).is_ok(), is_reserved);
        });
        assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
    }
}

/// H9: the last mapping of an object goes while a fault fills its page in. The fault counts nothing in the object, so the end waits
/// for it, and the page and its claim are the pool's again.
#[test]
fn the_end_of_an_object_against_a_fault() {
    let seen = Arc::new([const { AtomicU64::new(0) }; 2]);
    let told = Arc::clone(&seen);
    shuffled(300, move || {
        let vm = vm(2, NR_FRAMES, Tunables::default());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 1), Ok(1));
        let space: &Space = Box::leak(Box::new(vm.new_space().unwrap()));
        let object = vm.new_hugetlb_object(HUGE, Order::PMD).unwrap();
        map(space, AT, &object, MapFlags::empty()).unwrap();
        drop(object);
        let told = Arc::clone(&told);
        let fault = move || match touch(vm, space) {
            Ok(()) => _ = told[0].fetch_add(1, Relaxed),
            Err(error) => {
                assert_eq!(error, FaultError::NotMapped);
                told[1].fetch_add(1, Relaxed);
            }
        };
        run(2, vec![Box::new(fault), Box::new(move || space.munmap(AT, HUGE).unwrap())]);
        assert_eq!(free(vm), (1, 1, 0));
        vm.check_in_test(&[space], &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
    });
    assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
}

/// H6: a smaller pool and a fault compete for a page without a reservation.
#[test]
fn a_smaller_pool_against_a_fault() {
    shuffled(200, || {
        let (vm, space, object) = world(2, MapFlags::NORESERVE);
        let fault = move || assert!(matches!(touch(vm, space), Ok(()) | Err(FaultError::NoHugePage)));
        run(2, vec![Box::new(fault), Box::new(move || assert_eq!(vm.set_nr_hugepages(Order::PMD, 0), Ok(0)))]);
        let (nr, nr_free, nr_reserved) = free(vm);
        assert_eq!((nr, nr_free, nr_reserved), (object.nr_resident_pages() / 512, 0, 0), "it is surplus, or gone");
        object.discard(0..512);
        assert_eq!(free(vm), (0, 0, 0));
    });
}

/// H6: a page, or a reservation, goes while the pool gets smaller: nobody needs a surplus page, so none stays.
#[test]
fn a_smaller_pool_against_a_page_that_goes() {
    for more in [MapFlags::NORESERVE, MapFlags::empty()] {
        shuffled(200, move || {
            let (vm, space, object) = world(2, more);
            if more == MapFlags::NORESERVE {
                touch(vm, space).unwrap();
            }
            let resize = move || assert_eq!(vm.set_nr_hugepages(Order::PMD, 0), Ok(0));
            run(2, vec![Box::new(move || object.set_size_bytes(0)), Box::new(resize)]);
            assert_eq!(free(vm), (0, 0, 0));
        });
    }
}

/// A claim to the one surplus page ends while another CPU looks for surplus pages that nobody needs: it does not stay.
#[test]
fn surplus_pages_go_in_any_order() {
    shuffled(3000, || {
        let vm = vm(2, 1536, Tunables::default());
        vm.set_nr_overcommit_hugepages(Order::PMD, 1).unwrap();
        let object: Object = vm.new_hugetlb_object(HUGE, Order::PMD).unwrap();
        object.reserve(0..512).unwrap();
        let goes = Arc::new(AtomicBool::new(false));
        let going = Arc::clone(&goes);
        // Both begin together, but for the steps of an object's end before its claim ends.
        let end = move || {
            goes.store(true, Relaxed);
            drop(object);
        };
        let look = move || {
            while !going.load(Relaxed) {
                shuttle::thread::yield_now();
            }
            (0..shuttle::rand::thread_rng().gen_range(0..40)).for_each(|_| shuttle::thread::yield_now());
            assert_eq!(vm.set_nr_hugepages(Order::PMD, 0), Ok(0));
        };
        run(2, vec![Box::new(end), Box::new(look)]);
        assert_eq!(free(vm), (0, 0, 0));
        vm.check_in_test(&[], &mut vec![0; 1536 + common::NR_SLOTS]).unwrap();
    });
}

/// A surplus page is wanted, and memory for one goes after the look for it, while the page of the pool is put back: the pool keeps it.
#[test]
fn a_page_comes_back_while_no_surplus_page_comes() {
    shuffled(300, || {
        let vm = vm(2, 1536, Tunables::default());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 1), Ok(1));
        let [object, other] = [(); 2].map(|()| -> &Object {
            let object: &Object = Box::leak(Box::new(vm.new_hugetlb_object(HUGE, Order::PMD).unwrap()));
            object.reserve(0..512).unwrap();
            object.set_size_bytes(0);
            object.set_size_bytes(HUGE);
            object
        });
        object.write(0, b"x").unwrap();
        vm.set_nr_overcommit_hugepages(Order::PMD, 1).unwrap();
        vm.fail_runs(Some(Order::PMD));
        let reserve = move || _ = other.reserve(0..512);
        run(2, vec![Box::new(reserve), Box::new(move || object.discard(0..512))]);
        vm.fail_runs(None);
        other.set_size_bytes(0);
        assert_eq!(free(vm), (1, 1, 0));
        vm.check_in_test(&[], &mut vec![0; 1536 + common::NR_SLOTS]).unwrap();
    });
}

/// H11: two files of a subpool, with room for both, take pages and claims and give them back, while the handle goes. Nobody is
/// refused, and the subpool ends with the last of the three.
#[test]
fn h11_gets_and_puts_of_a_subpool() {
    for (most, least) in [(Some(2), 0), (Some(2), 2), (None, 1), (Some(2), 1)] {
        shuffled(60, move || {
            let vm = vm(3, 1536, Tunables::default());
            assert_eq!(vm.set_nr_hugepages(Order::PMD, 2), Ok(2));
            let limits = SubpoolLimits::default().with_most(most).with_least(least);
            let subpool = vm.new_hugetlb_subpool(Order::PMD, limits).unwrap();
            let file = || -> Object { subpool.new_object(HUGE).unwrap() };
            let of_file = |file: Object| -> Box<dyn FnOnce() + Send> {
                Box::new(move || {
                    file.write(0, b"x").unwrap();
                    file.discard(0..512);
                    file.reserve(0..512).unwrap();
                    file.write(8, b"y").unwrap();
                    file.set_size_bytes(0);
                    file.set_size_bytes(HUGE);
                    file.reserve(0..512).unwrap();
                    // The reservation ends with the file.
                })
            };
            run(3, vec![of_file(file()), of_file(file()), Box::new(move || drop(subpool))]);
            assert_eq!(free(vm), (2, 2, 0));
            vm.check_in_test(&[], &mut vec![0; 1536 + common::NR_SLOTS]).unwrap();
        });
    }
}

/// H11: two files want the one page that their subpool may have, or that the pool has for it: one of them gets it.
#[test]
fn h11_two_gets_for_one_page() {
    for (most, nr) in [(Some(1), 2), (None, 1)] {
        shuffled(600, move || {
            let vm = vm(2, 1536, Tunables::default());
            assert_eq!(vm.set_nr_hugepages(Order::PMD, nr), Ok(nr));
            let limits = SubpoolLimits::default().with_most(most).with_least(1);
            let subpool = vm.new_hugetlb_subpool(Order::PMD, limits).unwrap();
            let (nr_granted, nr_ready) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
            let actor = || -> Box<dyn FnOnce() + Send> {
                let file: &Object = Box::leak(Box::new(subpool.new_object(HUGE).unwrap()));
                // Nodes come before.
                file.reserve(0..512).unwrap();
                file.set_size_bytes(0);
                file.set_size_bytes(HUGE);
                let (granted, ready) = (Arc::clone(&nr_granted), Arc::clone(&nr_ready));
                Box::new(move || {
                    ready.fetch_add(1, Relaxed);
                    while ready.load(Relaxed) < 2 {
                        shuttle::thread::yield_now();
                    }
                    granted.fetch_add(u64::from(file.reserve(0..512).is_ok()), Relaxed);
                })
            };
            run(2, vec![actor(), actor()]);
            assert_eq!((nr_granted.load(Relaxed), subpool.nr_used(), free(vm)), (1, 1, (nr, nr, 1)));
            vm.check_in_test(&[], &mut vec![0; 1536 + common::NR_SLOTS]).unwrap();
        });
    }
}
