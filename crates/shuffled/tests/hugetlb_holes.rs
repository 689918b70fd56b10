//! Holes in an object of a pool, under private mappings: their copies go, against stores, copies and forks.

use common::{RW, Shuffled, access, free, run, shuffled, vm_of_fresh_memory, word_at};
use shuttle::rand::Rng;
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{AddressSpace, MapFlags, ObjectPart, Order, SharedObject, Tunables, Vm};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const NR_FRAMES: u64 = 2560;
const AT: u64 = 0x4000_0000;
const HUGE: u64 = 512 * 4096;
/// In the last small page of a page.
const LAST: u64 = 511 * 4096;
const PRIVATE: MapFlags = MapFlags::PRIVATE.union(MapFlags::FIXED);

type Machine = Shuffled<X86_64>;
type Space = AddressSpace<'static, Machine>;
type Object = SharedObject<'static, Machine>;

/// A pool of three pages, an object of one, and a private mapping of it.
fn world(nr_cpus: usize, more: MapFlags) -> (&'static Vm<Machine>, &'static Space, &'static Object) {
    let vm = vm_of_fresh_memory(nr_cpus, NR_FRAMES, Tunables::default());
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 3), Ok(3));
    let object: &Object = Box::leak(Box::new(vm.new_hugetlb_object(HUGE, Order::PMD).unwrap()));
    let space: &Space = Box::leak(Box::new(vm.new_space().unwrap()));
    space.mmap_object(AT, HUGE, RW, PRIVATE | more, ObjectPart::new(object)).unwrap();
    (vm, space, object)
}

fn check(vm: &Vm<Machine>, spaces: &[&Space]) {
    vm.check_in_test(spaces, &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
}

/// A program stores to its copy, sees the hole there, and stores again: that stays. It never sees the object's bytes, which the copy
/// has hidden before. Or it has no copy, sees the object's bytes until the hole, and stores then.
fn stores_again_after_a_hole(more: MapFlags, has_page: bool) {
    shuffled(300, move || {
        let (vm, space, object) = world(2, more);
        if has_page {
            object.write(8, &7_u64.to_le_bytes()).unwrap();
        }
        let has_copy = !has_page || shuttle::rand::thread_rng().gen_bool(0.5);
        if has_copy {
            space.write(AT + 8, &5_u64.to_le_bytes()).unwrap();
        }
        let before = if has_copy { 5 } else { 7 };
        let store_again = move || {
            let active = space.activate();
            loop {
                match access(space, vm, AT + 8, None) {
                    Ok(0) => break,
                    seen => assert_eq!(seen, Ok(before)),
                }
                shuttle::thread::yield_now();
            }
            access(space, vm, AT + 8, Some(9)).unwrap();
            drop(active);
        };
        run(2, vec![Box::new(store_again), Box::new(move || object.discard(0..512))]);
        check(vm, &[space]);
        assert_eq!(word_at(space, AT + 8), 9);
        space.munmap(AT, HUGE).unwrap();
        assert_eq!(free(vm), (3, 3, 0));
    });
}

#[test]
fn a_store_that_follows_a_hole_stays() {
    stores_again_after_a_hole(MapFlags::empty(), true);
}

#[test]
fn a_store_that_follows_a_hole_in_nothing_stays() {
    stores_again_after_a_hole(MapFlags::NORESERVE, false);
    stores_again_after_a_hole(MapFlags::empty(), false);
}

/// A store copies the object's page while a hole is made: the copy goes, or has nothing of the page.
#[test]
fn a_copy_against_a_hole() {
    let seen = Arc::new([const { AtomicU64::new(0) }; 2]);
    let told = Arc::clone(&seen);
    shuffled(300, move || {
        let (vm, space, object) = world(2, MapFlags::empty());
        [8, LAST + 8].iter().for_each(|at| object.write(*at, &7_u64.to_le_bytes()).unwrap());
        let is_shown = shuttle::rand::thread_rng().gen_bool(0.5);
        let store = move || {
            let active = space.activate();
            if is_shown {
                let shown = access(space, vm, AT + LAST + 8, None);
                assert!(matches!(shown, Ok(0 | 7)), "{shown:?}");
            }
            access(space, vm, AT + 8, Some(9)).unwrap();
            drop(active);
        };
        let hole = move || {
            (0..shuttle::rand::thread_rng().gen_range(0..200)).for_each(|_| shuttle::thread::yield_now());
            object.discard(0..512);
        };
        run(2, vec![Box::new(store), Box::new(hole)]);
        check(vm, &[space]);
        let stored = word_at(space, AT + 8);
        assert!([0, 9].contains(&stored), "{stored}");
        assert_eq!(word_at(space, AT + LAST + 8), 0, "of before the hole, beside {stored}");
        told[usize::from(stored == 0)].fetch_add(1, Relaxed);
        space.munmap(AT, HUGE).unwrap();
        assert_eq!(free(vm), (3, 3, 0));
    });
    assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
}

/// fork(2) shares a private page while a hole is made: no process keeps it, also not the child, which the hole may have visited before.
#[test]
fn a_fork_against_a_hole() {
    let seen = Arc::new([const { AtomicU64::new(0) }; 2]);
    let told = Arc::clone(&seen);
    shuffled(400, move || {
        let (vm, other, object) = world(2, MapFlags::NORESERVE);
        // So that any of parent and child is visited first.
        let new_space = || -> &Space { Box::leak(Box::new(vm.new_space().unwrap())) };
        let others: Vec<_> = (0..shuttle::rand::thread_rng().gen_range(0..8)).map(|_| new_space()).collect();
        let parent = new_space();
        parent.mmap_object(AT, HUGE, RW, PRIVATE, ObjectPart::new(object)).unwrap();
        parent.write(AT, b"m").unwrap();
        let first: &'static Space = Box::leak(Box::new(parent.fork().unwrap()));
        let (born, holed) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
        let (bear, is_holed, told) = (Arc::clone(&born), Arc::clone(&holed), Arc::clone(&told));
        let fork = move || {
            (0..shuttle::rand::thread_rng().gen_range(0..100)).for_each(|_| shuttle::thread::yield_now());
            let child: &'static Space = Box::leak(Box::new(parent.fork().unwrap()));
            told[usize::from(is_holed.load(Relaxed))].fetch_add(1, Relaxed);
            *bear.lock().unwrap() = Some(child);
        };
        let hole = move || {
            (0..shuttle::rand::thread_rng().gen_range(0..400)).for_each(|_| shuttle::thread::yield_now());
            object.discard(0..512);
            holed.store(true, Relaxed);
        };
        run(2, vec![Box::new(fork), Box::new(hole)]);
        let child = born.lock().unwrap().take().unwrap();
        let spaces = [other, parent, first, child];
        check(vm, &[&others[..], &spaces].concat());
        for space in spaces {
            assert_eq!(space.rss_pages().anon, 0);
            space.munmap(AT, HUGE).unwrap();
        }
        assert_eq!(free(vm), (3, 3, 0));
    });
    assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
}
