//! Pages of a pool's object that a private mapping shows and copies, against holes, sizes, forks and other CPUs; gets of
//! a subpool in faults; and mappings over mappings of a pool.

use common::{RW, Shuffled, access, free, run, shuffled, vm, vm_of_fresh_memory, word_at};
use shuttle::rand::Rng;
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{
    AddressSpace, Event, FaultError, MapFlags, MmapError, ObjectPart, Order, SharedObject, SubpoolLimits, Term,
    Tunables, Vm,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const NR_FRAMES: u64 = 1536;
const AT: u64 = 0x4000_0000;
const HUGE: u64 = 512 * 4096;
/// In the last small page of a page.
const LAST: u64 = 511 * 4096;
const PRIVATE: MapFlags = MapFlags::PRIVATE.union(MapFlags::FIXED);

type Machine = Shuffled<X86_64>;
type Space = AddressSpace<'static, Machine>;
type Object = SharedObject<'static, Machine>;

/// A pool of two pages, an object of one, and a private mapping of it.
fn world(nr_cpus: usize) -> (&'static Vm<Machine>, &'static Space, &'static Object) {
    let vm = vm(nr_cpus, NR_FRAMES, Tunables::default());
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 2), Ok(2));
    let object: &Object = Box::leak(Box::new(vm.new_hugetlb_object(HUGE, Order::PMD).unwrap()));
    let space: &Space = Box::leak(Box::new(vm.new_space().unwrap()));
    space.mmap_object(AT, HUGE, RW, PRIVATE, ObjectPart::new(object)).unwrap();
    (vm, space, object)
}

fn check(vm: &Vm<Machine>, spaces: &[&Space]) {
    vm.check_in_test(spaces, &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Relaxed) {
        shuttle::thread::yield_now();
    }
}

/// A CPU has read the object's page through the mapping when another one stores to it: from then on it reads the copy.
#[test]
fn a_store_to_a_page_that_is_shown_is_seen_by_other_cpus() {
    shuffled(60, || {
        let (vm, space, object) = world(2);
        object.write(8, &7_u64.to_le_bytes()).unwrap();
        let (read, stored) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (was_read, is_stored) = (Arc::clone(&read), Arc::clone(&stored));
        let reader = move || {
            let active = space.activate();
            assert_eq!(access(space, vm, AT + 8, None), Ok(7));
            read.store(true, Relaxed);
            wait_for(&is_stored);
            assert_eq!(access(space, vm, AT + 8, None), Ok(9));
            drop(active);
        };
        let storer = move || {
            wait_for(&was_read);
            let active = space.activate();
            access(space, vm, AT + 8, Some(9)).unwrap();
            drop(active);
            // Its store is in memory.
            softfault_shuffled::sync::fence();
            stored.store(true, Relaxed);
        };
        run(2, vec![Box::new(reader), Box::new(storer)]);
        check(vm, &[space]);
    });
}

/// H3: a private mapping copies the object's page, which nothing maps, while a hole takes it, and another mapping wants its
/// memory. The copy is the page as a whole, until the hole removes it, or nothing of it.
#[test]
fn a_hole_waits_for_a_copy_of_a_page_that_nothing_maps() {
    let seen = Arc::new([const { AtomicU64::new(0) }; 2]);
    let told = Arc::clone(&seen);
    shuffled(100, move || {
        let (vm, space, object) = world(3);
        let other = PRIVATE | MapFlags::ANONYMOUS | MapFlags::HUGETLB | MapFlags::NORESERVE;
        space.mmap(AT + 4 * HUGE, HUGE, RW, other).unwrap();
        // Not through an entry, so that nothing says that the page was mapped.
        [8, LAST + 8].iter().for_each(|at| object.write(*at, &7_u64.to_le_bytes()).unwrap());
        let told = Arc::clone(&told);
        let copied = Arc::new(AtomicBool::new(false));
        let is_copied = Arc::clone(&copied);
        let store = move || {
            let active = space.activate();
            access(space, vm, AT, Some(9)).unwrap();
            let [first, last, again] = [8, LAST + 8, 8].map(|at| access(space, vm, AT + at, None).unwrap());
            drop(active);
            assert!(matches!((first, again), (0, 0) | (7, 0 | 7)), "{first} {again}");
            assert!(last == first || last == again, "{first} {last} {again}");
            told[usize::from(first == 0)].fetch_add(1, Relaxed);
            copied.store(true, Relaxed);
        };
        let want = move || {
            let active = space.activate();
            while access(space, vm, AT + 4 * HUGE + LAST + 8, Some(5)) == Err(FaultError::NoHugePage) {
                if is_copied.load(Relaxed) {
                    break;
                }
                shuttle::thread::yield_now();
            }
            drop(active);
        };
        run(3, vec![Box::new(store), Box::new(move || object.discard(0..512)), Box::new(want)]);
        check(vm, &[space]);
        space.munmap(AT + 4 * HUGE, HUGE).unwrap();
        space.munmap(AT, HUGE).unwrap();
        assert_eq!(free(vm), (2, 2, 0));
    });
    assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
}

/// H4, H5: a store makes a private copy; fork(2), which has looked at the size, waits for it to share it, and a smaller size to drop
/// it. No page is left beyond the end: also in the child, which the smaller size may have visited before.
#[test]
fn a_fork_against_a_smaller_size() {
    const NR_FRAMES: u64 = 2560;
    let seen = Arc::new([const { AtomicU64::new(0) }; 2]);
    let told = Arc::clone(&seen);
    shuffled(300, move || {
        let vm = vm_of_fresh_memory(3, NR_FRAMES, Tunables::default());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 3), Ok(3));
        let object: &Object = Box::leak(Box::new(vm.new_hugetlb_object(HUGE, Order::PMD).unwrap()));
        let new_space = || -> &Space { Box::leak(Box::new(vm.new_space().unwrap())) };
        // So that any of parent and child is visited first.
        let others: Vec<_> = (0..shuttle::rand::thread_rng().gen_range(0..8)).map(|_| new_space()).collect();
        let parent = new_space();
        parent.mmap_object(AT, HUGE, RW, PRIVATE, ObjectPart::new(object)).unwrap();
        parent.write(AT, b"m").unwrap();
        let first: &'static Space = Box::leak(Box::new(parent.fork().unwrap()));
        let (told, born, begun) = (Arc::clone(&told), Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
        let (bear, [forks, cuts]) = (Arc::clone(&born), [0; 2].map(|_| Arc::clone(&begun)));
        let store = move || {
            begun.store(true, Relaxed);
            let active = parent.activate();
            let stored = access(parent, vm, AT, Some(9)).map(drop);
            drop(active);
            assert!(matches!(stored, Ok(()) | Err(FaultError::BeyondObject)), "{stored:?}");
        };
        let fork = move || {
            wait_for(&forks);
            let child: &'static Space = Box::leak(Box::new(parent.fork().unwrap()));
            told[usize::from(object.size_bytes() == 0)].fetch_add(1, Relaxed);
            *bear.lock().unwrap() = Some(child);
        };
        let cut = move || {
            wait_for(&cuts);
            (0..shuttle::rand::thread_rng().gen_range(0..400)).for_each(|_| shuttle::thread::yield_now());
            object.set_size_bytes(0);
        };
        run(3, vec![Box::new(store), Box::new(fork), Box::new(cut)]);
        let child = born.lock().unwrap().take().unwrap();
        let spaces = [parent, first, child];
        vm.check_in_test(&[&others[..], &spaces].concat(), &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS])
            .unwrap();
        for space in spaces {
            let there = space.read(AT, &mut [0]).map_err(|error| error.fault);
            assert_eq!((there, space.rss_pages().anon), (Err(FaultError::BeyondObject), 0));
            space.munmap(AT, HUGE).unwrap();
        }
        assert_eq!(free(vm), (3, 3, 0));
    });
    assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
}

/// H5: fork(2) copies a page that is pinned, while another thread of the parent stores through its translation, first to the
/// page's first word, then to its last one: the copy is of one moment.
#[test]
fn a_fork_copies_a_pinned_page_against_stores() {
    shuffled(300, || {
        let vm = vm(2, NR_FRAMES, Tunables::default());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 2), Ok(2));
        let parent: &'static Space = Box::leak(Box::new(vm.new_space().unwrap()));
        parent.mmap(AT, HUGE, RW, PRIVATE | MapFlags::ANONYMOUS | MapFlags::HUGETLB).unwrap();
        let pin = parent.pin_page_mut(AT + 5 * 4096, Term::Short).unwrap();
        let last = AT + HUGE - 8;
        let (stored, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (is_stored, is_done) = (Arc::clone(&stored), Arc::clone(&done));
        let store = move || {
            let active = parent.activate();
            for value in 1.. {
                for at in [AT, last] {
                    access(parent, vm, at, Some(value)).unwrap();
                }
                stored.store(true, Relaxed);
                if is_done.load(Relaxed) {
                    break;
                }
            }
            drop(active);
        };
        let fork = move || {
            wait_for(&is_stored);
            let child: &'static Space = Box::leak(Box::new(parent.fork().unwrap()));
            done.store(true, Relaxed);
            let words = [AT, last].map(|at| word_at(child, at));
            assert!(words[1] == words[0] || words[1] + 1 == words[0], "{words:?}");
            child.munmap(AT, HUGE).unwrap();
        };
        run(2, vec![Box::new(store), Box::new(fork)]);
        assert_eq!(vm.vmstat().get(Event::ForkPinned), 1);
        drop(pin);
        parent.munmap(AT, HUGE).unwrap();
        assert_eq!(free(vm), (2, 2, 0));
    });
}

/// H5: two children want copies of their parent's page while it stores, first to the page's first word, then to its last one; the
/// pool has one more page. Only one of them reads the page at a time: where the other one gives up, the parent would take its entry,
/// be alone, and store beside the copy.
#[test]
fn two_copies_of_a_page_against_stores_of_its_owner() {
    shuffled(400, || {
        let vm = vm(3, NR_FRAMES, Tunables::default());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 2), Ok(2));
        let parent: &'static Space = Box::leak(Box::new(vm.new_space().unwrap()));
        parent.mmap(AT, HUGE, RW, PRIVATE | MapFlags::ANONYMOUS | MapFlags::HUGETLB).unwrap();
        let words = [AT, AT + HUGE - 8];
        words.iter().for_each(|at| parent.write(*at, &7_u64.to_ne_bytes()).unwrap());
        let children = [(); 2].map(|()| -> &'static Space { Box::leak(Box::new(parent.fork().unwrap())) });
        let begun = Arc::new(AtomicU64::new(0));
        let is_begun = Arc::clone(&begun);
        let copy = |child: &'static Space| -> Box<dyn FnOnce() + Send> {
            let begun = Arc::clone(&begun);
            Box::new(move || {
                begun.fetch_add(1, Relaxed);
                // Refused if the other one, or the parent, has the second page.
                if child.write(AT + HUGE / 2, &[1]).is_ok() {
                    assert_eq!(words.map(|at| word_at(child, at)), [7; 2], "bytes that were stored after fork(2)");
                }
            })
        };
        let store = move || {
            while is_begun.load(Relaxed) < 2 {
                shuttle::thread::yield_now();
            }
            (0..shuttle::rand::thread_rng().gen_range(0..600)).for_each(|_| shuttle::thread::yield_now());
            words.iter().for_each(|at| parent.write(*at, &9_u64.to_ne_bytes()).unwrap());
        };
        run(3, vec![copy(children[0]), copy(children[1]), Box::new(store)]);
        let spaces = [parent, children[0], children[1]];
        vm.check_in_test(&spaces, &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
        spaces.iter().for_each(|space| space.munmap(AT, HUGE).unwrap());
        assert_eq!(free(vm), (2, 2, 0));
    });
}

/// H11: faults get pages of a subpool with the words of their pages claimed, and others spin for these: so no get sleeps.
#[test]
fn h11_a_fault_gets_a_page_of_a_subpool_awake() {
    let nr_refused = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&nr_refused);
    shuffled(300, move || {
        let vm = vm(4, NR_FRAMES, Tunables::default());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 2), Ok(2));
        let subpool = vm.new_hugetlb_subpool(Order::PMD, SubpoolLimits::default().with_most(Some(2))).unwrap();
        let space: &Space = Box::leak(Box::new(vm.new_space().unwrap()));
        let ready = Arc::new(AtomicU64::new(0));
        let toucher = |nr: u64| -> Box<dyn FnOnce() + Send> {
            let file: &Object = Box::leak(Box::new(subpool.new_object(HUGE).unwrap()));
            let (at, flags) = (AT + nr * HUGE, MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE);
            space.mmap_object(at, HUGE, RW, flags, ObjectPart::new(file)).unwrap();
            // Nodes and tables come before.
            space.write(at, &[1]).unwrap();
            file.discard(0..512);
            let (ready, told) = (Arc::clone(&ready), Arc::clone(&told));
            Box::new(move || {
                ready.fetch_add(1, Relaxed);
                while ready.load(Relaxed) < 4 {
                    shuttle::thread::yield_now();
                }
                let active = space.activate();
                for _ in 0..3 {
                    match access(space, vm, at, Some(7)) {
                        Ok(_) => file.discard(0..512),
                        Err(error) => {
                            // The page of a put is the subpool's before its claim is the pool's.
                            assert!(matches!(error, FaultError::SubpoolFull | FaultError::NoHugePage), "{error}");
                            told.fetch_add(1, Relaxed);
                        }
                    }
                }
                drop(active);
            })
        };
        run(4, (0..4).map(toucher).collect());
        assert_eq!((vm.machine().nr_parks(), subpool.nr_used(), free(vm)), (0, 0, (2, 2, 0)));
        check(vm, &[space]);
    });
    assert!(nr_refused.load(Relaxed) > 0);
}

/// A mapping replaces another one to have its pages, and any of its frames is refused. Another thread touches the range
/// throughout, and never finds a hole: the fault waits for the mapping, or finds the one before.
#[test]
fn a_mapping_over_pages_that_it_needs_shows_no_hole() {
    const ANON: MapFlags = PRIVATE.union(MapFlags::ANONYMOUS).union(MapFlags::HUGETLB);
    let seen = Arc::new([const { AtomicU64::new(0) }; 3]);
    let told = Arc::clone(&seen);
    shuffled(300, move || {
        let vm = vm(2, NR_FRAMES, Tunables::default());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 2), Ok(2));
        let space: &Space = Box::leak(Box::new(vm.new_space().unwrap()));
        space.mmap(AT, 2 * HUGE, RW, ANON).unwrap();
        [0, HUGE].iter().for_each(|at| space.write(AT + at, &7_u64.to_le_bytes()).unwrap());
        let (told_touch, done) = (Arc::clone(&told), Arc::new(AtomicBool::new(false)));
        let (is_done, replaced) = (Arc::clone(&done), Arc::new(Mutex::new(None)));
        let result = Arc::clone(&replaced);
        vm.fail_allocation(Some(shuttle::rand::thread_rng().gen_range(0..6)));
        let replace = move || {
            *result.lock().unwrap() = Some(space.mmap(AT, 2 * HUGE, RW, ANON).map(drop));
            done.store(true, Relaxed);
        };
        let touch = move || {
            let active = space.activate();
            let mut was_there = true;
            while !is_done.load(Relaxed) {
                let value = access(space, vm, AT, None).unwrap();
                assert!(value == 0 || (value == 7 && was_there), "{value}");
                was_there = value == 7;
                shuttle::thread::yield_now();
            }
            told_touch[0].fetch_add(u64::from(!was_there), Relaxed);
            drop(active);
        };
        run(2, vec![Box::new(replace), Box::new(touch)]);
        vm.fail_allocation(None);
        let (nr_free, nr_reserved) = (free(vm).1, free(vm).2);
        match replaced.lock().unwrap().take().unwrap() {
            Ok(()) => {
                told[1].fetch_add(1, Relaxed);
                assert_eq!((nr_free, space.page_state(AT + HUGE)), (nr_reserved, None));
            }
            Err(MmapError::OutOfFrames(_)) => {
                told[2].fetch_add(1, Relaxed);
                assert_eq!((nr_free, nr_reserved), (0, 0));
            }
            Err(other) => panic!("{other}"),
        }
        check(vm, &[space]);
    });
    assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
}
