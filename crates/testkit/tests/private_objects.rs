//! Private mappings of objects: a page shows the object until the program writes to it, and is a
//! private copy from then on, through every operation.
#![deny(unsafe_code)]

mod common;

use common::objects::{EXTRA, Object, bytes, content, faulted_frame, map, orders, whole};
use common::swapped::{fill, vm_with_slots, with_slots};
use common::turns::TwoCpus;
use common::*;
use softfault::{
    Access, CpuId, Event, FaultDone, FaultError, MadviseError, MapFlags, MlockFlags, MmapError, PinError, Term,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

const NR: u64 = 8;

/// Page i of the object is full of 7 + i; pages are mapped privately at `BASE`, and shared at `EXTRA`.
fn with_private(test: impl Fn(&World<'_>, &Object<'_>)) {
    in_each_setup(1, 16 << 20, |w| with_object(w, &w.vm.new_shared_object(NR * PAGE).unwrap(), &test));
}

fn with_object(w: &World<'_>, object: &Object<'_>, test: &dyn Fn(&World<'_>, &Object<'_>)) {
    (0..NR).for_each(|i| object.write(i * PAGE, &[7 + i as u8; PAGE as usize]).unwrap());
    map_private(w.space, BASE, NR, object, 0);
    map(w.space, EXTRA, NR, object, 0);
    test(w, object);
    check(w.vm, &[w.space]);
}

fn map_private<'vm>(space: &Space<'vm>, at: u64, nr_pages: u64, object: &Object<'vm>, first_page: u64) {
    let part = whole(object).with_offset_bytes(first_page * PAGE).with_may_write(false);
    assert_eq!(space.mmap_object(at, nr_pages * PAGE, RW, MapFlags::PRIVATE | FIXED, part), Ok(at));
}

fn first_bytes(space: &Space<'_>, nr: u64) -> Vec<u8> {
    (0..nr).map(|i| bytes::<1>(space, BASE + i * PAGE)[0]).collect()
}

#[test]
fn a_write_copies_and_a_read_does_not() {
    with_private(|w, object| {
        let nr_copied = w.vm.event(Event::CowBreak);
        assert_eq!(w.space.handle_fault(BASE, Access::Read), Ok(FaultDone::Shared));
        assert_eq!(frame_of(w.space, BASE), faulted_frame(w.space, EXTRA), "it is the object's page");
        w.space.write(EXTRA, b"later").unwrap();
        assert_eq!(&bytes(w.space, BASE), b"later", "the program has not written there");
        // One page that shows the object, one that shows nothing yet.
        for at in [BASE, BASE + 2 * PAGE] {
            assert_eq!(w.space.handle_fault(at, Access::Write), Ok(FaultDone::Copied));
            w.space.write(at + 9, b"own").unwrap();
        }
        assert_eq!(w.vm.event(Event::CowBreak), nr_copied + 2);
        assert_eq!((w.rss().anon, &bytes(w.space, BASE)), (2, b"later"));
        w.space.write(EXTRA, b"again").unwrap();
        object.write(2 * PAGE, b"again").unwrap();
        assert_eq!((&bytes(w.space, BASE), bytes(w.space, BASE + 2 * PAGE)), (b"later", [9; 5]));
        assert_eq!((content(object, 9), content(object, 2 * PAGE + 9)), ([7; 3], [9; 3]));
        assert!(frame_of(w.space, BASE) != faulted_frame(w.space, EXTRA));
        check(w.vm, &[w.space]);
    });
}

/// A write fault maps no neighbours, a read fault maps them without the write right.
#[test]
fn fault_around_is_for_reads() {
    with_private(|w, _| {
        w.space.handle_fault(BASE, Access::Write).unwrap();
        assert_eq!((w.rss().anon, w.rss().shmem), (1, 0));
        w.space.handle_fault(BASE + PAGE, Access::Read).unwrap();
        let nr_shown = w.rss().shmem;
        assert!(nr_shown >= 1);
        for i in 0..NR {
            w.space.write(BASE + i * PAGE, &[1]).unwrap();
        }
        assert_eq!((w.rss().anon, w.rss().shmem), (NR, 0));
        assert_eq!(first_bytes(w.space, NR), [1; NR as usize]);
    });
}

#[test]
fn what_is_dropped_shows_the_object_again() {
    with_private(|w, object| {
        for page in 0..3 {
            w.space.write(BASE + page * PAGE, &[1]).unwrap();
        }
        assert_eq!(w.space.madvise(BASE, PAGE, FREE), Err(MadviseError::WrongMapping), "as Linux: of files");
        w.space.madvise(BASE + PAGE, PAGE, DONTNEED).unwrap();
        assert_eq!(first_bytes(w.space, 4), [1, 8, 1, 10]);
        // A hole keeps copies; it shows where there are none.
        object.discard(0..2);
        assert_eq!(first_bytes(w.space, 4), [1, 0, 1, 10]);
        assert_eq!(w.rss().anon, 2);
        w.space.munmap(BASE, NR * PAGE).unwrap();
        assert_eq!((w.rss().anon, object.nr_writable_pages()), (0, NR));
    });
}

#[test]
fn a_smaller_size_drops_copies_beyond_it() {
    with_private(|w, object| {
        for page in [0, 1, 2, 5] {
            w.space.write(BASE + page * PAGE, &[1]).unwrap();
        }
        let child = w.space.fork().unwrap();
        child.write(BASE + 3 * PAGE, &[2]).unwrap();
        // The copy of the last page stays whole.
        object.set_size_bytes(PAGE + 100);
        check(w.vm, &[w.space, &child]);
        assert_eq!((w.rss().anon, child.rss_pages().anon), (2, 2));
        assert_eq!(bytes::<1>(w.space, BASE + 2 * PAGE - 1), [8]);
        for space in [w.space, &child] {
            for access in [Access::Read, Access::Write] {
                assert_eq!(space.handle_fault(BASE + 2 * PAGE, access), Err(FaultError::BeyondObject));
            }
        }
        object.set_size_bytes(NR * PAGE);
        assert_eq!(first_bytes(w.space, 6), [1, 1, 0, 0, 0, 0]);
        assert_eq!(first_bytes(&child, 6), [1, 1, 0, 0, 0, 0]);
        check(w.vm, &[w.space, &child]);
    });
}

/// A translation that a CPU keeps goes before the copy's frame does.
#[test]
fn a_running_program_loses_its_copies() {
    with_private(|w, object| {
        w.space.write(BASE + PAGE, &[1]).unwrap();
        let running = w.cpu.enter(w.space).unwrap();
        running.load(BASE + PAGE, &mut [0]).unwrap();
        object.set_size_bytes(PAGE);
        assert_eq!(running.load(BASE + PAGE, &mut [0]).unwrap_err().cause, FaultError::BeyondObject);
    });
}

/// Other mappings in the range of a member keep their pages when the object shrinks.
#[test]
fn a_smaller_size_leaves_other_mappings() {
    with_private(|w, object| {
        w.map(BASE + 4 * PAGE, 1, RW);
        // At the displacement of the first mapping.
        let other = w.vm.new_shared_object(NR * PAGE).unwrap();
        map_private(w.space, BASE + 5 * PAGE, 1, &other, 5);
        map_private(w.space, BASE + 6 * PAGE, 1, object, 0);
        (0..NR).for_each(|i| w.space.write(BASE + i * PAGE, &[1]).unwrap());
        object.set_size_bytes(PAGE);
        assert_eq!(w.rss().anon, 4);
        assert_eq!([4, 5, 6].map(|i| bytes::<1>(w.space, BASE + i * PAGE)[0]), [1; 3]);
    });
}

#[test]
fn fork_shares_copies_and_nothing_else() {
    with_private(|w, object| {
        w.space.write(BASE, &[1]).unwrap();
        w.space.handle_fault(BASE + PAGE, Access::Read).unwrap();
        let child = w.space.fork().unwrap();
        assert_eq!((child.rss_pages().anon, child.rss_pages().shmem), (1, 0));
        child.write(BASE, &[2]).unwrap();
        w.space.write(BASE + PAGE, &[3]).unwrap();
        assert_eq!((first_bytes(w.space, 3), first_bytes(&child, 3)), (vec![1, 3, 9], vec![2, 8, 9]));
        let grandchild = child.fork().unwrap();
        drop(child);
        object.write(2 * PAGE, &[4]).unwrap();
        assert_eq!(first_bytes(&grandchild, 3), [2, 8, 4]);
        check(w.vm, &[w.space, &grandchild]);
    });
}

#[test]
fn a_pinned_copy_stays_the_parents() {
    with_private(|w, object| {
        let pin = w.space.pin_page_mut(BASE, Term::Short).unwrap();
        w.space.handle_fault(BASE + PAGE, Access::Read).unwrap();
        let reader = w.space.pin_page(BASE + PAGE, Term::Long).unwrap();
        let child = w.space.fork().unwrap();
        pin.write(0, &[5]);
        assert_eq!((first_bytes(w.space, 1), first_bytes(&child, 1)), (vec![5], vec![7]));
        // Pinned to be read: the holder sees the program's later writes, not the object's.
        object.write(PAGE, &[6]).unwrap();
        w.space.write(BASE + PAGE + 1, &[4]).unwrap();
        let mut seen = [0; 2];
        reader.read(0, &mut seen);
        assert_eq!((seen, bytes::<2>(w.space, BASE + PAGE)), ([8, 4], [8, 4]));
        w.space.handle_fault(BASE + 2 * PAGE, Access::Read).unwrap();
        let short = w.space.pin_page(BASE + 2 * PAGE, Term::Short).unwrap();
        object.write(2 * PAGE, &[6]).unwrap();
        w.space.write(BASE + 2 * PAGE + 1, &[4]).unwrap();
        short.read(0, &mut seen);
        assert_eq!((seen, bytes::<2>(w.space, BASE + 2 * PAGE)), ([9, 4], [9, 4]));
        drop(short);
        check(w.vm, &[w.space, &child]);
        object.set_size_bytes(0);
        pin.write(0, &[6]);
        assert!(matches!(w.space.pin_page(BASE, Term::Short), Err(PinError::Fault(FaultError::BeyondObject))));
        check(w.vm, &[w.space, &child]);
    });
}

#[test]
fn rights_never_let_a_program_store_to_the_object() {
    with_private(|w, object| {
        w.space.mprotect(BASE, NR * PAGE, READ).unwrap();
        w.space.handle_fault(BASE, Access::Read).unwrap();
        w.space.write_forced(BASE + PAGE, &[1]).unwrap();
        w.space.write_forced(BASE, &[1]).unwrap();
        assert_eq!(w.space.handle_fault(BASE, Access::Write), Err(FaultError::NoRights));
        w.space.mprotect(BASE, NR * PAGE, RW).unwrap();
        check(w.vm, &[w.space]);
        let running = w.cpu.enter(w.space).unwrap();
        (0..4).for_each(|page| running.store(BASE + page * PAGE + 1, &[2]).unwrap());
        drop(running);
        assert_eq!(bytes::<2>(w.space, BASE), [1, 2]);
        assert_eq!([0, 1, 2, 3].map(|page| content::<2>(object, page * PAGE)), [[7; 2], [8; 2], [9; 2], [10; 2]]);
        w.space.mlock(BASE, NR * PAGE, MlockFlags::empty()).unwrap();
        assert_eq!((w.rss().anon, w.rss().shmem), (NR, 0), "what is locked to be written is copied at once");
    });
}

#[test]
fn a_move_carries_copies() {
    for flags in [MAYMOVE | MREMAP_FIXED, MAYMOVE | MREMAP_FIXED | DONTUNMAP] {
        with_private(|w, object| {
            let away = EXTRA + (1 << 30);
            w.space.write(BASE, &[1]).unwrap();
            w.space.handle_fault(BASE + PAGE, Access::Read).unwrap();
            assert_eq!(w.space.mremap(BASE, NR * PAGE, NR * PAGE, flags, away), Ok(away));
            check(w.vm, &[w.space]);
            assert_eq!([0, 1].map(|page| bytes::<1>(w.space, away + page * PAGE)[0]), [1, 8]);
            if flags.contains(DONTUNMAP) {
                assert_eq!(first_bytes(w.space, 2), [7, 8], "the place shows the object again");
                w.space.write(BASE, &[3]).unwrap();
            }
            object.set_size_bytes(0);
            assert_eq!(w.rss().anon, 0);
        });
    }
}

#[test]
fn copies_go_to_the_swap_area_and_back() {
    with_slots(4, |w| {
        let object = w.vm.new_shared_object(3 * PAGE).unwrap();
        map_private(w.space, BASE, 3, &object, 0);
        fill(w);
        assert_eq!(w.vm.swap_out_frame(frame_of(w.space, BASE + PAGE)), Ok(1));
        assert_eq!(w.vm.swap_out_frame(frame_of(w.space, BASE)), Ok(1));
        check(w.vm, &[w.space]);
        assert_eq!((w.rss().anon, w.rss().swap), (1, 2));
        assert_eq!(bytes::<1>(w.space, BASE + PAGE), [8]);
        object.set_size_bytes(0);
        assert_eq!((w.rss().anon, w.rss().swap), (0, 0));
        check(w.vm, &[w.space]);
    });
}

/// A copy handles the state of the object's page as a read does: it is read back or refused.
#[test]
fn every_state_of_the_source_is_handled() {
    let vm = vm_with_slots(2, 4);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    let w = World { vm: &vm, cpu: &cpu, space: &space };
    let object = vm.new_shared_object(3 * PAGE).unwrap();
    map(&space, BASE, 3, &object, 0);
    fill(&w);
    map_private(&space, EXTRA, 4, &object, 0);
    assert_eq!(vm.swap_out_frame(frame_of(&space, BASE)), Ok(0));
    // Read for all, then copied.
    assert_eq!(space.handle_fault(EXTRA, Access::Write), Ok(FaultDone::SwappedIn));
    assert_eq!((object.nr_swapped_pages(), w.rss().anon, bytes::<1>(&space, EXTRA)), (0, 1, [7]));
    vm.poison_frame(frame_of(&space, BASE + PAGE)).unwrap();
    assert_eq!(space.handle_fault(EXTRA + PAGE, Access::Write), Err(FaultError::Poisoned));
    assert_eq!(space.handle_fault(EXTRA + 3 * PAGE, Access::Write), Err(FaultError::BeyondObject));
    // A copy that fails says so until it is dropped.
    vm.poison_frame(frame_of(&space, EXTRA)).unwrap();
    assert_eq!(space.handle_fault(EXTRA, Access::Read), Err(FaultError::Poisoned));
    check(&vm, &[&space]);
    space.madvise(EXTRA, PAGE, DONTNEED).unwrap();
    assert_eq!(bytes::<1>(&space, EXTRA), [7]);
    check(&vm, &[&space]);
}

/// Of a large folio one page is copied; the others stay its own.
#[test]
fn a_page_of_a_folio_is_copied_alone() {
    in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
        for order in [4, 9] {
            let object = w.vm.new_shared_object_of(4 << 20, orders(order, order)).unwrap();
            object.write(3 * PAGE, &[5]).unwrap();
            map_private(w.space, BASE, 1024, &object, 0);
            assert_eq!(w.space.handle_fault(BASE + 3 * PAGE, Access::Read), Ok(FaultDone::Shared));
            for page in [3, 4] {
                w.space.write(BASE + page * PAGE + 1, &[6]).unwrap();
            }
            check(w.vm, &[w.space]);
            assert_eq!((bytes::<2>(w.space, BASE + 3 * PAGE), w.rss().anon), ([5, 6], 2));
            assert_eq!(content::<2>(&object, 3 * PAGE), [5, 0]);
            w.space.munmap(BASE, 1024 * PAGE).unwrap();
        }
    });
}

#[test]
fn arguments_are_checked() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        let object = w.vm.new_shared_object(PAGE).unwrap();
        let part = || whole(&object).with_may_write(false);
        let try_map = |flags| w.space.mmap_object(BASE, PAGE, RW, flags | FIXED, part());
        assert_eq!(try_map(MapFlags::PRIVATE | GROWSDOWN), Err(MmapError::BadFlags));
        assert_eq!(try_map(MapFlags::SHARED), Err(MmapError::NoWriteRight));
        assert_eq!(try_map(MapFlags::PRIVATE), Ok(BASE), "copies may be written, whatever the object allows");
        assert_eq!((object.nr_mapped_pages(), object.nr_writable_pages()), (1, 0));
        w.space.munmap(BASE, PAGE).unwrap();
        assert!(!object.is_mapped());
    });
}

/// A program does nothing but change the size. It waits for a fork that has copied in vain, and goes on.
#[test]
fn fork_ends_beside_a_program_that_changes_the_size() {
    const NR_TABLES: u64 = 256;
    const HUGE: u64 = 512 * PAGE;
    const NR_CHANGES_MAX: u64 = 400;
    for begin in [0, 1, 5] {
        let cpus = TwoCpus::new(16 << 20);
        let object = {
            let _cpu = cpus.vm.machine().bind(CpuId(0)).unwrap();
            cpus.vm.new_shared_object(NR_TABLES * HUGE).unwrap()
        };
        let (nr_changes, has_ended, nr_beside_fork) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
        let prepare = |space: &Space<'_>| {
            let part = softfault::ObjectPart::new(&object);
            space.mmap_object(BASE, NR_TABLES * HUGE, RW, MapFlags::PRIVATE | FIXED, part).unwrap();
            (0..NR_TABLES).for_each(|table| space.write(BASE + table * HUGE, &[9]).unwrap());
            space.write(BASE + NR_TABLES * HUGE - 1, &[9]).unwrap();
        };
        let fork = |space: &Space<'_>| {
            let child = space.fork().unwrap();
            has_ended.store(true, SeqCst);
            let nr = nr_changes.load(SeqCst);
            nr_beside_fork.store(nr, SeqCst);
            (0..NR_TABLES).for_each(|table| assert_eq!(bytes(&child, BASE + table * HUGE), [9]));
            let mut last = [0];
            let read = child.read(BASE + NR_TABLES * HUGE - 1, &mut last);
            assert!(nr == 0 || read.is_err() || last == [0], "I54: the child has a copy that a smaller size dropped");
        };
        let change = |_: &Space<'_>| {
            while !has_ended.load(SeqCst) && nr_changes.load(SeqCst) < NR_CHANGES_MAX {
                object.set_size_bytes(NR_TABLES * HUGE - PAGE);
                nr_changes.fetch_add(1, SeqCst);
                object.set_size_bytes(NR_TABLES * HUGE);
            }
        };
        let overlapped = cpus.play(begin, prepare, fork, change, |_, (), ()| {});
        let _cpu = cpus.vm.machine().bind(CpuId(0)).unwrap();
        drop(object);
        let nr = nr_beside_fork.into_inner();
        assert!(overlapped && (1..NR_CHANGES_MAX / 4).contains(&nr), "{nr} changes of the size beside one fork");
    }
}

/// All end, and no change of the size sleeps for ever, also where two forks are counted.
#[test]
fn forks_and_sizes_wait_for_each_other_and_end() {
    in_setup(Setup::PLAIN, 3, 16 << 20, |w| {
        let object = w.vm.new_shared_object(512 * PAGE).unwrap();
        map_private(w.space, BASE, 512, &object, 0);
        (0..511).for_each(|page| w.space.write(BASE + page * PAGE, &[9]).unwrap());
        let second = w.space.fork().unwrap();
        thread::scope(|scope| {
            let forks = [(1, w.space), (2, &second)].map(|(cpu, space)| {
                let vm = w.vm;
                scope.spawn(move || {
                    let _cpu = vm.machine().bind(CpuId(cpu)).unwrap();
                    for _ in 0..200 {
                        let child = space.fork().unwrap();
                        assert_eq!(bytes(&child, BASE), [9]);
                    }
                })
            });
            while forks.iter().any(|fork| !fork.is_finished()) {
                object.set_size_bytes(511 * PAGE);
                object.set_size_bytes(512 * PAGE);
            }
        });
        check(w.vm, &[w.space, &second]);
    });
}
