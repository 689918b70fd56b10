//! Pages of objects that are swapped out: programs and handles notice nothing, each operation handles them,
//! one read serves everybody, and slots and frames come back.
#![deny(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod notices;

use common::objects::{Object, faulted_frame, map};
use common::swapped::{AWAY, BYTES, MIDDLE, NR_PAGES, fill, vm_with_slots, with_slots};
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::{
    Access, CpuId, Event, FaultDone, FaultError, MigrateRefusal, MlockFlags, Notice, ObjectWriteError, Order,
    SwapRefusal, Term, Vm, Why,
};
use softfault_host::nr_steps;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;

/// In a machine with four slots: page i of an object is full of 7 + i, and mapped.
fn with_pages(test: impl Fn(&World<'_>, Object<'_>)) {
    with_slots(4, |w| {
        let object = w.vm.new_shared_object(BYTES).unwrap();
        map(w.space, BASE, NR_PAGES, &object, 0);
        fill(w);
        test(w, object);
    });
}

/// The same with the middle page swapped out.
fn with_swapped(test: impl Fn(&World<'_>, Object<'_>)) {
    with_pages(|w, object| {
        assert_eq!(w.vm.swap_out_frame(faulted_frame(w.space, MIDDLE)), Ok(0));
        check(w.vm, &[w.space]);
        assert_eq!((object.nr_swapped_pages(), object.nr_resident_pages(), w.rss().shmem), (1, 2, 2));
        test(w, object);
    });
}

fn content(object: &Object<'_>) -> Vec<u8> {
    let mut bytes = vec![0xee; BYTES as usize];
    assert_eq!(object.read(0, &mut bytes), BYTES as usize);
    bytes
}

/// Pages full of these.
fn full_of(pages: [u8; 3]) -> Vec<u8> {
    pages.iter().flat_map(|byte| [*byte; PAGE as usize]).collect()
}

#[test]
fn a_fault_brings_the_page_back_for_all() {
    with_swapped(|w, object| {
        let child = w.space.fork().unwrap();
        let nr_free = w.vm.vmstat().nr_free_pages;
        let minor = w.rss().minor_faults;
        assert_eq!(w.space.handle_fault(MIDDLE, Access::Read), Ok(FaultDone::SwappedIn));
        assert_eq!((w.rss().major_faults, w.rss().minor_faults, w.rss().shmem), (1, minor, 3));
        assert!(object.object_page_state(1).unwrap().dirty, "nothing else has the content");
        assert_eq!(child.handle_fault(MIDDLE, Access::Write), Ok(FaultDone::Shared));
        assert_eq!(faulted_frame(w.space, MIDDLE), faulted_frame(&child, MIDDLE));
        let counts = [Event::Pswpout, Event::Pswpin, Event::Pgmajfault].map(|event| w.vm.event(event));
        assert_eq!((counts, w.vm.event(Event::SwapCopied)), ([1, 1, 1], 0));
        assert!(w.vm.vmstat().nr_free_pages < nr_free);
        assert_eq!((object.nr_swapped_pages(), object.nr_resident_pages()), (0, 3));
        assert_eq!(content(&object), full_of([7, 8, 9]));
        check(w.vm, &[w.space, &child]);
    });
}

#[test]
fn every_access_brings_it_back() {
    type Access<'a> = &'a dyn Fn(&World<'_>, &Object<'_>);
    let accesses: [Access<'_>; 9] = [
        &|w, _| w.space.read(MIDDLE, &mut [0]).unwrap(),
        &|w, _| w.space.write(MIDDLE, &[8]).unwrap(),
        &|w, _| w.space.pin_page(MIDDLE, Term::Short).map(drop).unwrap(),
        &|w, _| w.space.pin_page_mut(MIDDLE, Term::Long).unwrap().write(5, &[8]),
        &|w, _| w.space.madvise(BASE, BYTES, POPULATE_READ).unwrap(),
        &|w, _| w.space.mlock(BASE, BYTES, MlockFlags::empty()).unwrap(),
        &|_, object| assert_eq!(object.read(PAGE + 5, &mut [0]), 1),
        &|_, object| object.write(PAGE + 5, &[8]).unwrap(),
        &|w, _| w.cpu.enter(w.space).unwrap().store(MIDDLE, &[8]).unwrap(),
    ];
    for access in accesses {
        with_swapped(|w, object| {
            access(w, &object);
            assert_eq!((object.nr_swapped_pages(), w.vm.event(Event::Pswpin)), (0, 1));
            assert_eq!(content(&object), full_of([7, 8, 9]));
        });
    }
}

#[test]
fn calls_on_the_mapping_leave_it() {
    with_swapped(|w, object| {
        w.space.mprotect(BASE, BYTES, NONE).unwrap();
        assert_eq!(w.space.handle_fault(MIDDLE, Access::Read), Err(FaultError::NoRights));
        w.space.mprotect(BASE, BYTES, RW).unwrap();
        w.space.madvise(BASE, BYTES, DONTNEED).unwrap();
        let mut resident = Vec::new();
        w.space.mincore(BASE, BYTES, &mut |nr, here| resident.push((nr, here))).unwrap();
        assert_eq!(resident, [(1, true), (1, false), (1, true)]);
        w.space.mremap(BASE, BYTES, BYTES, MAYMOVE | MREMAP_FIXED, AWAY).unwrap();
        let child = w.space.fork().unwrap();
        w.space.munmap(AWAY, BYTES).unwrap();
        check(w.vm, &[w.space, &child]);
        assert_eq!((object.nr_swapped_pages(), object.next_resident(1..3)), (1, Some(1)), "data is there");
        assert_eq!(child.handle_fault(AWAY + PAGE, Access::Read), Ok(FaultDone::SwappedIn));
        assert_eq!(content(&object), full_of([7, 8, 9]));
    });
}

#[test]
fn a_page_that_leaves_frees_its_slot() {
    type Removal<'a> = &'a dyn Fn(&Object<'_>);
    let removals: [Removal<'_>; 3] = [
        &|object| object.discard(0..NR_PAGES),
        &|object| {
            object.set_size_bytes(0);
            object.set_size_bytes(BYTES);
        },
        &|object| object.zero(0..BYTES).unwrap(),
    ];
    for remove in removals {
        with_swapped(|w, object| {
            remove(&object);
            assert_eq!((object.nr_swapped_pages(), object.next_resident(0..NR_PAGES)), (0, None));
            check(w.vm, &[w.space]);
            assert_eq!(content(&object), full_of([0; 3]));
            assert_eq!(w.vm.event(Event::Pswpin), 0, "nobody wants it");
        });
    }
    // The end of the object, by its last mapping.
    with_swapped(|w, object| {
        drop(object);
        w.space.munmap(BASE, BYTES).unwrap();
        check(w.vm, &[w.space]);
    });
}

/// The bytes that go are zero when the page comes back, without being read; those between others need that.
#[test]
fn part_of_it_is_zeroed() {
    with_swapped(|w, object| {
        object.zero(PAGE + 150..BYTES).unwrap();
        object.set_size_bytes(PAGE + 100);
        assert_eq!(object.nr_swapped_pages(), 1);
        object.set_size_bytes(PAGE + 200);
        object.set_size_bytes(BYTES);
        assert_eq!((object.nr_swapped_pages(), w.vm.event(Event::Pswpin)), (1, 0));
        let mut expected = full_of([7, 8, 0]);
        expected[PAGE as usize + 100..].fill(0);
        assert_eq!(content(&object), expected);
    });
    with_swapped(|w, object| {
        object.zero(PAGE - 10..PAGE + 10).unwrap();
        assert_eq!((object.nr_swapped_pages(), w.vm.event(Event::Pswpin)), (0, 1));
        let mut expected = full_of([7, 8, 9]);
        expected[PAGE as usize - 10..PAGE as usize + 10].fill(0);
        assert_eq!(content(&object), expected);
    });
}

#[test]
fn what_cannot_be_swapped_out_is_refused_by_name() {
    with_pages(|w, object| {
        let refused = |at| w.vm.swap_out_frame(faulted_frame(w.space, at)).unwrap_err();
        let pin = w.space.pin_page(BASE, Term::Short).unwrap();
        assert_eq!(refused(BASE), SwapRefusal::Stays(MigrateRefusal::Pinned));
        let child = w.space.fork().unwrap();
        child.mlock(MIDDLE, PAGE, MlockFlags::empty()).unwrap();
        assert_eq!(refused(MIDDLE), SwapRefusal::Locked);
        assert!(w.space.translate_at_rest(MIDDLE).is_some(), "its entries stay");
        drop(child);
        assert_eq!(w.vm.event(Event::SwapRefusedLocked), 1);
        let large = w.vm.new_shared_object_of(4 * PAGE, FolioOrders::new(Order(2), Order(2)).unwrap()).unwrap();
        map(w.space, AWAY, 4, &large, 0);
        assert_eq!(refused(AWAY), SwapRefusal::Stays(MigrateRefusal::CannotSplit));
        assert_eq!((object.nr_swapped_pages(), large.nr_swapped_pages()), (0, 0));
        drop(pin);
        // All slots are free still.
        let more = w.vm.new_shared_object(2 * PAGE).unwrap();
        map(w.space, 2 * AWAY, 2, &more, 0);
        let places = [BASE, MIDDLE, BASE + 2 * PAGE, 2 * AWAY].map(|at| faulted_frame(w.space, at));
        assert_eq!(places.map(|pfn| w.vm.swap_out_frame(pfn)), [Ok(0); 4]);
        assert_eq!(refused(2 * AWAY + PAGE), SwapRefusal::Full);
    });
}

/// Each mapping of the page is looked at twice, and other CPUs are answered meanwhile.
#[test]
fn many_mappings_answer_others() {
    const MANY: u64 = 300;
    with_pages(|w, object| {
        (0..MANY).for_each(|i| map(w.space, AWAY + i * 2 * BYTES, NR_PAGES, &object, 0));
        let pfn = faulted_frame(w.space, MIDDLE);
        let before = nr_steps();
        assert_eq!(w.vm.swap_out_frame(pfn), Ok(0));
        assert!(nr_steps() - before >= 2 * MANY, "each mapping is a step");
    });
}

#[test]
fn a_page_that_cannot_be_written_stays() {
    with_pages(|w, object| {
        w.vm.machine().fail_swap(true, false);
        let (nr_free, pfn) = (w.vm.vmstat().nr_free_pages, faulted_frame(w.space, MIDDLE));
        assert_eq!(w.vm.swap_out_frame(pfn), Err(SwapRefusal::NotWritten));
        assert_eq!((w.vm.event(Event::SwapRefusedNotWritten), w.vm.event(Event::Pswpout)), (1, 0));
        assert_eq!((object.nr_swapped_pages(), w.vm.vmstat().nr_free_pages), (0, nr_free));
        check(w.vm, &[w.space]);
        assert_eq!((faulted_frame(w.space, MIDDLE), content(&object)), (pfn, full_of([7, 8, 9])));
        w.vm.machine().fail_swap(false, false);
        assert_eq!(w.vm.swap_out_frame(pfn), Ok(0));
        assert_eq!(w.vm.migrate_frame(pfn), Err(MigrateRefusal::NotInUse));
    });
}

#[test]
fn a_page_that_cannot_be_read_is_reported() {
    with_swapped(|w, object| {
        w.vm.machine().fail_swap(false, true);
        let nr_free = w.vm.vmstat().nr_free_pages;
        assert_eq!(w.space.handle_fault(MIDDLE, Access::Read), Err(FaultError::NotRead));
        assert_eq!(w.space.read(BASE, &mut [0; BYTES as usize]).unwrap_err().fault, FaultError::NotRead);
        assert_eq!(w.vm.event(Event::RefusedNotRead), 2);
        assert_eq!(object.read(0, &mut [0; BYTES as usize]), PAGE as usize);
        assert_eq!(object.write(PAGE - 1, &[1, 1]), Err(ObjectWriteError::NotRead), "all or nothing");
        assert_eq!(object.zero(PAGE + 1..PAGE + 2), Err(ObjectWriteError::NotRead));
        check(w.vm, &[w.space]);
        assert_eq!((object.nr_swapped_pages(), w.vm.event(Event::Pswpin)), (1, 0));
        assert!(w.vm.vmstat().nr_free_pages.abs_diff(nr_free) <= 1, "the frame is back");
        w.vm.machine().fail_swap(false, false);
        assert_eq!(content(&object), full_of([7, 8, 9]), "nothing has changed");
    });
}

/// Programs store, discard and shrink while pages are swapped out: each byte is as it was
/// written last.
#[test]
fn programs_do_not_notice() {
    const NR: u64 = 32;
    let vm = vm_with_slots(3, 16);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let (space, other) = (vm.new_space().unwrap(), vm.new_space().unwrap());
    let object = vm.new_shared_object(NR * PAGE).unwrap();
    [&space, &other].iter().for_each(|space| map(space, BASE, NR, &object, 0));
    let is_over = AtomicBool::new(false);
    let has_swapped = || [Event::Pswpout, Event::Pswpin].iter().all(|event| vm.event(*event) > 100);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _cpu = vm.machine().bind(CpuId(1)).unwrap();
            for page in (0..NR).cycle().take_while(|_| !is_over.load(Relaxed)) {
                let there = [&space, &other].iter().find_map(|space| space.translate_at_rest(BASE + page * PAGE));
                _ = there.map(|there| vm.swap_out_frame(there.pfn));
            }
        });
        // Reads the same pages in another space, so that two faults want one page.
        scope.spawn(|| {
            let cpu = vm.machine().bind(CpuId(2)).unwrap();
            let running = cpu.enter(&other).unwrap();
            let mut bytes = [0; 8];
            for page in (0..NR).cycle().take_while(|_| !is_over.load(Relaxed)) {
                running.load(BASE + page * PAGE, &mut bytes).unwrap();
            }
        });
        let _stop = StopAtEnd(&is_over);
        let running = cpu.enter(&space).unwrap();
        // A pager that is not scheduled does nothing.
        let patience = Patience::new("nothing is swapped");
        for round in (1..u64::MAX).take_while(|round| *round < 100 || !has_swapped()) {
            patience.check();
            for page in 0..NR {
                let at = BASE + page * PAGE;
                let mut bytes = [0; 8];
                running.store(at, &round.to_le_bytes()).unwrap();
                running.store(at + 4000, &round.to_le_bytes()).unwrap();
                running.load(at, &mut bytes).unwrap();
                assert_eq!(u64::from_le_bytes(bytes), round);
                if page % 16 == round % 16 {
                    object.discard(page..page + 1);
                    running.load(at, &mut bytes).unwrap();
                    assert_eq!(bytes, [0; 8], "what was discarded came back");
                }
                if page % 16 == (round + 1) % 16 {
                    object.zero(page * PAGE + 2000..(page + 1) * PAGE).unwrap();
                    let mut bytes = [[1; 8]; 2];
                    running.load(at, &mut bytes[0]).unwrap();
                    running.load(at + 4000, &mut bytes[1]).unwrap();
                    assert_eq!(bytes.map(u64::from_le_bytes), [round, 0], "what was zeroed came back");
                }
            }
        }
    });
    check(&vm, &[&space, &other]);
    assert_eq!(vm.machine().violations(), (0, None));
}
