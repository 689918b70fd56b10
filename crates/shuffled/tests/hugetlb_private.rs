//! Private pages of a pool: copies after fork(2), with pins, and of an object's pages, against stores, drops, holes and
//! smaller sizes on other CPUs.

use common::{RW, Shuffled, access, free, run, shuffled, vm, word_at};
use shuttle::rand::Rng;
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{
    AddressSpace, Advice, Event, FaultError, HugetlbLocking, MapFlags, ObjectPart, Order, Prot, SharedObject, Term,
    Tunables, Vm,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const NR_FRAMES: u64 = 1536;
const AT: u64 = 0x4000_0000;
const HUGE: u64 = 512 * 4096;
const PRIVATE: MapFlags = MapFlags::PRIVATE.union(MapFlags::FIXED);
const ANON: MapFlags = PRIVATE.union(MapFlags::ANONYMOUS).union(MapFlags::HUGETLB);

type Machine = Shuffled<X86_64>;
type Space = AddressSpace<'static, Machine>;
type Object = SharedObject<'static, Machine>;

/// H1, H2: 2 to 8 CPUs store to the last page of the pool, a private one, with each discipline, with and without a claim, while
/// another one drops it: all are served.
#[test]
fn the_last_private_page() {
    for (nr_stores, locking) in (2..=8).flat_map(|nr| HugetlbLocking::ALL.map(|locking| (nr, locking))) {
        let nr_cpus = nr_stores + 1;
        shuffled(20, move || {
            let vm = vm(nr_cpus, NR_FRAMES, Tunables::default().with_hugetlb_locking(locking));
            assert_eq!(vm.set_nr_hugepages(Order::PMD, 1), Ok(1));
            let space: &'static Space = Box::leak(Box::new(vm.new_space().unwrap()));
            let has_claim = shuttle::rand::thread_rng().gen_bool(0.5);
            space.mmap(AT, HUGE, RW, if has_claim { ANON } else { ANON | MapFlags::NORESERVE }).unwrap();
            let mut actors: Vec<Box<dyn FnOnce() + Send>> =
                vec![Box::new(move || space.madvise(AT, HUGE, Advice::DontNeed).unwrap())];
            actors.resize_with(nr_cpus, || {
                Box::new(move || {
                    let active = space.activate();
                    access(space, vm, AT + 8, Some(7)).unwrap();
                    drop(active);
                })
            });
            run(nr_cpus, actors);
            vm.check_in_test(&[space], &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
            space.munmap(AT, HUGE).unwrap();
            assert_eq!(free(vm), (1, 1, 0));
        });
    }
}

/// H1, H3: a mix. CPUs store to a file and to private copies of it, each discipline, while a hole is punched: the pool has a page
/// for the file and one for the copy, and all are served.
#[test]
fn the_last_pages_of_a_file_and_its_copy() {
    for (nr_stores, locking) in (2..=6).flat_map(|nr| HugetlbLocking::ALL.map(|locking| (nr, locking))) {
        shuffled(20, move || {
            let vm = vm(nr_stores + 1, NR_FRAMES, Tunables::default().with_hugetlb_locking(locking));
            assert_eq!(vm.set_nr_hugepages(Order::PMD, 2), Ok(2));
            let object: &'static Object = Box::leak(Box::new(vm.new_hugetlb_object(HUGE, Order::PMD).unwrap()));
            let space: &'static Space = Box::leak(Box::new(vm.new_space().unwrap()));
            let has_claims = shuttle::rand::thread_rng().gen_bool(0.5);
            let more = MapFlags::FIXED | if has_claims { MapFlags::empty() } else { MapFlags::NORESERVE };
            for (at, kind) in [(AT, MapFlags::SHARED), (AT + 4 * HUGE, MapFlags::PRIVATE)] {
                space.mmap_object(at, HUGE, RW, kind | more, ObjectPart::new(object)).unwrap();
            }
            let mut actors: Vec<Box<dyn FnOnce() + Send>> = vec![Box::new(move || object.discard(0..512))];
            for cpu in 0..nr_stores as u64 {
                actors.push(Box::new(move || {
                    let active = space.activate();
                    access(space, vm, AT + cpu % 2 * 4 * HUGE + cpu * 4096, Some(7)).unwrap();
                    drop(active);
                }));
            }
            run(nr_stores + 1, actors);
            vm.check_in_test(&[space], &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
            space.munmap(AT + 4 * HUGE, HUGE).unwrap();
            object.discard(0..512);
            assert_eq!(free(vm), (2, 2, 0));
        });
    }
}

/// A pin ends while fork(2) looks at it: the pool has a page for the child, which gets it, as a copy, or for its first store.
#[test]
fn a_pin_that_ends_during_a_fork() {
    let copied = Arc::new([const { AtomicU64::new(0) }; 2]);
    let told = Arc::clone(&copied);
    shuffled(3000, move || {
        let vm = vm(2, NR_FRAMES, Tunables::default());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 2), Ok(2));
        let parent: &Space = Box::leak(Box::new(vm.new_space().unwrap()));
        parent.mmap(AT, HUGE, RW, ANON).unwrap();
        let pin = parent.pin_page_mut(AT + 5 * 4096, Term::Short).unwrap();
        pin.write(0, &7u64.to_ne_bytes());
        let (told, born) = (Arc::clone(&told), Arc::new(Mutex::new(None)));
        let bear = Arc::clone(&born);
        let goes = Arc::new(AtomicBool::new(false));
        let going = Arc::clone(&goes);
        let fork = move || {
            goes.store(true, Relaxed);
            let child: &'static Space = Box::leak(Box::new(parent.fork().unwrap()));
            told[vm.vmstat().get(Event::ForkPinned) as usize].fetch_add(1, Relaxed);
            let active = child.activate();
            assert_eq!(access(child, vm, AT + 5 * 4096, None), Ok(7));
            assert_eq!(access(child, vm, AT, Some(9)).map(drop), Ok(()));
            drop(active);
            *bear.lock().unwrap() = Some(child);
        };
        // At any step of the fork.
        let release = move || {
            while !going.load(Relaxed) {
                shuttle::thread::yield_now();
            }
            (0..shuttle::rand::thread_rng().gen_range(0..600)).for_each(|_| shuttle::thread::yield_now());
            drop(pin);
        };
        run(2, vec![Box::new(fork), Box::new(release)]);
        let child = born.lock().unwrap().take().unwrap();
        vm.check_in_test(&[parent, child], &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
        child.munmap(AT, HUGE).unwrap();
        parent.munmap(AT, HUGE).unwrap();
        assert_eq!(free(vm), (2, 2, 0));
    });
    assert!(copied.iter().all(|nr| nr.load(Relaxed) > 0), "{copied:?}");
}

/// H5, H8: a child copies a private page while its parent stores to it, and drops it. The copy has nothing that the parent
/// stored after fork(2).
#[test]
fn a_copy_against_a_store_and_a_drop() {
    shuffled(200, || {
        let vm = vm(3, NR_FRAMES, Tunables::default());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 2), Ok(2));
        let parent: &'static Space = Box::leak(Box::new(vm.new_space().unwrap()));
        parent.mmap(AT, HUGE, RW, ANON).unwrap();
        let store = move |space: &'static Space, at: u64, value: u64| {
            let active = space.activate();
            access(space, vm, at, Some(value)).unwrap();
            let now = access(space, vm, AT, None);
            drop(active);
            now.unwrap()
        };
        store(parent, AT, 7);
        let child: &'static Space = Box::leak(Box::new(parent.fork().unwrap()));
        run(
            3,
            vec![
                Box::new(move || assert_eq!(store(child, AT + 8, 9), 7)),
                Box::new(move || _ = store(parent, AT, 8)),
                Box::new(move || parent.madvise(AT, HUGE, Advice::DontNeed).unwrap()),
            ],
        );
        vm.check_in_test(&[parent, child], &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
        assert_eq!(store(child, AT + 16, 9), 7);
        child.munmap(AT, HUGE).unwrap();
        parent.munmap(AT, HUGE).unwrap();
        assert_eq!(free(vm), (2, 2, 0));
    });
}

/// H5: a child copies a private page while another thread of it takes the write right away and gives it back, and the parent
/// stores. A store that is refused has changed nothing, and one that is done stays.
#[test]
fn a_copy_against_mprotect() {
    let seen = Arc::new([const { AtomicU64::new(0) }; 2]);
    let told = Arc::clone(&seen);
    shuffled(300, move || {
        let vm = vm(3, NR_FRAMES, Tunables::default());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 2), Ok(2));
        let parent: &'static Space = Box::leak(Box::new(vm.new_space().unwrap()));
        parent.mmap(AT, HUGE, RW, ANON).unwrap();
        parent.write(AT, &7_u64.to_ne_bytes()).unwrap();
        let child: &'static Space = Box::leak(Box::new(parent.fork().unwrap()));
        let stored = Arc::new(AtomicBool::new(false));
        let (result, told) = (Arc::clone(&stored), Arc::clone(&told));
        let store = move || {
            let active = child.activate();
            let done = access(child, vm, AT + 8, Some(9));
            drop(active);
            assert!(matches!(done, Ok(_) | Err(FaultError::NoRights)), "{done:?}");
            told[usize::from(done.is_ok())].fetch_add(1, Relaxed);
            result.store(done.is_ok(), Relaxed);
        };
        let protect = move || {
            child.mprotect(AT, HUGE, Prot::READ).unwrap();
            child.mprotect(AT, HUGE, RW).unwrap();
        };
        let other = move || {
            let active = parent.activate();
            access(parent, vm, AT, Some(8)).unwrap();
            drop(active);
        };
        run(3, vec![Box::new(store), Box::new(protect), Box::new(other)]);
        vm.check_in_test(&[parent, child], &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
        let is_stored = stored.load(Relaxed);
        assert_eq!([word_at(child, AT), word_at(child, AT + 8)], [7, if is_stored { 9 } else { 0 }]);
        assert_eq!(word_at(parent, AT), 8);
        [parent, child].iter().for_each(|space| space.munmap(AT, HUGE).unwrap());
        assert_eq!(free(vm), (2, 2, 0));
    });
    assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
}

/// A section reads a shared page while its program copies it, the child, which has the last entry, ends, and another program
/// gets the page: the read is of what the program had, or of the copy.
#[test]
fn a_read_against_a_copy_and_the_end_of_the_page() {
    shuffled(600, || {
        let vm = vm(4, NR_FRAMES, Tunables::default());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 2), Ok(2));
        let [parent, third] = [(); 2].map(|()| -> &Space { Box::leak(Box::new(vm.new_space().unwrap())) });
        parent.mmap(AT, HUGE, RW, ANON).unwrap();
        parent.write(AT, &7_u64.to_ne_bytes()).unwrap();
        third.mmap(AT, HUGE, RW, ANON | MapFlags::NORESERVE).unwrap();
        let child: &'static Space = Box::leak(Box::new(parent.fork().unwrap()));
        let (copied, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (is_copied, wants, is_done) = (Arc::clone(&copied), Arc::clone(&copied), Arc::clone(&done));
        let read = move || {
            while !is_done.load(Relaxed) {
                assert_eq!(word_at(parent, AT), 7);
            }
        };
        let copy = move || {
            let active = parent.activate();
            access(parent, vm, AT + 8, Some(9)).unwrap();
            copied.store(true, Relaxed);
            drop(active);
        };
        let end = move || {
            while !is_copied.load(Relaxed) {
                shuttle::thread::yield_now();
            }
            child.munmap(AT, HUGE).unwrap();
        };
        let want = move || {
            // The other page is for the copy.
            while !wants.load(Relaxed) {
                shuttle::thread::yield_now();
            }
            let active = third.activate();
            while access(third, vm, AT, Some(5)) == Err(FaultError::NoHugePage) {
                shuttle::thread::yield_now();
            }
            drop(active);
            done.store(true, Relaxed);
        };
        run(4, vec![Box::new(read), Box::new(copy), Box::new(end), Box::new(want)]);
        [parent, third].iter().for_each(|space| space.munmap(AT, HUGE).unwrap());
        assert_eq!(free(vm), (2, 2, 0));
    });
}

/// H3, H4: a private mapping copies the object's page while a hole or a smaller size takes it, and another mapping wants its
/// memory. The copy has the page's bytes, until the hole removes it, or those of a page that was missing. Beyond the end there is none.
#[test]
fn a_private_copy_against_a_hole_and_a_size() {
    let seen = Arc::new([const { AtomicU64::new(0) }; 3]);
    let told = Arc::clone(&seen);
    shuffled(300, move || {
        let vm = vm(3, NR_FRAMES, Tunables::default());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 2), Ok(2));
        let object: &Object = Box::leak(Box::new(vm.new_hugetlb_object(HUGE, Order::PMD).unwrap()));
        let space: &'static Space = Box::leak(Box::new(vm.new_space().unwrap()));
        space.mmap_object(AT, HUGE, RW, PRIVATE, ObjectPart::new(object)).unwrap();
        let other = ANON | MapFlags::NORESERVE;
        space.mmap(AT + 4 * HUGE, HUGE, RW, other).unwrap();
        // Without an entry of the page, so that nothing says that it was mapped.
        object.write(8, &7_u64.to_le_bytes()).unwrap();
        let mut rng = shuttle::rand::thread_rng();
        let (is_shown, is_hole) = (rng.gen_bool(0.5), rng.gen_bool(0.5));
        let mut byte = [0];
        if is_shown {
            space.read(AT + 8, &mut byte).unwrap();
            assert_eq!(byte, [7]);
        }
        let told = Arc::clone(&told);
        let store = move || {
            // On one CPU, which keeps the space until it has seen both.
            let active = space.activate();
            let results = (access(space, vm, AT, Some(9)), access(space, vm, AT + 8, None));
            drop(active);
            match results {
                (Ok(_), Ok(copied)) => {
                    assert!(copied == 7 || copied == 0 && is_hole, "{copied}");
                    told[usize::from(copied == 0)].fetch_add(1, Relaxed);
                }
                results => {
                    assert!(!is_hole && results.1 == Err(FaultError::BeyondObject), "{results:?}");
                    told[2].fetch_add(1, Relaxed);
                }
            }
        };
        let take = move || if is_hole { object.discard(0..512) } else { object.set_size_bytes(0) };
        let want = move || {
            let active = space.activate();
            let wanted = access(space, vm, AT + 4 * HUGE + 8, Some(5));
            drop(active);
            assert!(matches!(wanted, Ok(_) | Err(FaultError::NoHugePage)));
        };
        run(3, vec![Box::new(store), Box::new(take), Box::new(want)]);
        vm.check_in_test(&[space], &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
        let there = space.read(AT, &mut byte).map_err(|error| error.fault);
        if is_hole {
            assert_eq!(there, Ok(()));
            assert!([0, 9].contains(&byte[0]), "{byte:?}");
            assert_eq!(word_at(space, AT + 8), 0, "of before the hole");
        } else {
            assert_eq!(there, Err(FaultError::BeyondObject));
        }
        space.munmap(AT + 4 * HUGE, HUGE).unwrap();
        assert_eq!(free(vm), if is_hole { (2, 1, 0) } else { (2, 2, 1) });
        space.munmap(AT, HUGE).unwrap();
        assert_eq!(free(vm), (2, 2, 0));
    });
    assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
}

/// A private mapping shows the page of an object, and the pool has no other: a store owns the entry for a moment, and is refused.
/// Stores until `act` has ended on another CPU.
fn stores_are_refused_during(nr: usize, act: fn(&'static Space, &'static Vm<Machine>)) {
    shuffled(nr, move || {
        let vm = vm(2, NR_FRAMES, Tunables::default());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 1), Ok(1));
        let object: &Object = Box::leak(Box::new(vm.new_hugetlb_object(HUGE, Order::PMD).unwrap()));
        object.write(8, &7_u64.to_le_bytes()).unwrap();
        let space: &'static Space = Box::leak(Box::new(vm.new_space().unwrap()));
        space.mmap_object(AT, HUGE, RW, PRIVATE | MapFlags::NORESERVE, ObjectPart::new(object)).unwrap();
        space.read(AT + 8, &mut [0]).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let is_done = Arc::clone(&done);
        let store = move || {
            let active = space.activate();
            while !is_done.load(Relaxed) {
                assert_eq!(access(space, vm, AT, Some(9)), Err(FaultError::NoHugePage));
                shuttle::thread::yield_now();
            }
            drop(active);
        };
        let act = move || {
            (0..shuttle::rand::thread_rng().gen_range(0..100)).for_each(|_| shuttle::thread::yield_now());
            act(space, vm);
            done.store(true, Relaxed);
        };
        run(2, vec![Box::new(store), Box::new(act)]);
        vm.check_in_test(&[space], &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
        space.munmap(AT, HUGE).unwrap();
    });
}

/// A page is not split for an edge within it, although the entry does not say at that moment that it is a pool's.
#[test]
fn an_edge_within_a_page_against_a_store() {
    stores_are_refused_during(300, |space, _| {
        (0..4).for_each(|_| space.munlock(AT + 4096, 4096).unwrap());
        assert_eq!(space.page_state(AT).map_or(Order::PMD, |state| state.order), Order::PMD);
    });
}

/// H5: the child shows the object's page as its parent does: it has not lost it.
#[test]
fn a_fork_against_a_store_that_is_refused() {
    stores_are_refused_during(300, |space, vm| {
        let child = space.fork().unwrap();
        assert_eq!(vm.vmstat().get(Event::ForkNoHugePage), 0);
        let mut seen = [0];
        assert_eq!((child.read(AT + 8, &mut seen), seen), (Ok(()), [7]));
    });
}
