//! Folios of 2 MiB whose tails have no descriptors: their frames are free memory, nobody notices, and
//! they come back before anything needs them.
#![deny(unsafe_code)]

mod common;

use common::objects::{Object, bytes, map, touch};
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::{CpuId, Event, MigrateRefusal, Order, Pfn, TailDescsRefusal, Term};
use softfault_testkit::random::Random;
use std::sync::atomic::{AtomicBool, Ordering};

const AT: u64 = 0x20_0000_0000;
/// Pages of a folio.
const NR: u64 = 512;

fn object<'vm>(w: &World<'vm>, nr_folios: u64, least: u8) -> Object<'vm> {
    let orders = FolioOrders::new(Order(least), Order::PMD).unwrap();
    let object = w.vm.new_shared_object_of(nr_folios * NR * PAGE, orders).unwrap();
    (0..nr_folios).for_each(|folio| object.write(folio * NR * PAGE, &[1; 8]).unwrap());
    assert_eq!(object.nr_resident_pages(), nr_folios * NR);
    object
}

fn write_all(object: &Object<'_>, nr_pages: u64) {
    (0..nr_pages).for_each(|page| object.write(page * PAGE, &(page + 7).to_le_bytes()).unwrap());
}

fn assert_all(space: &Space<'_>, nr_pages: u64) {
    (0..nr_pages).for_each(|page| assert_eq!(bytes(space, AT + page * PAGE), (page + 7).to_le_bytes(), "{page}"));
}

/// The figure of the issue: at most 4 KiB of descriptors stay with a page of 2 MiB.
#[test]
fn three_frames_of_each_folio_are_free() {
    in_each_setup(1, 64 << 20, |w| {
        let object = object(w, 10, 9);
        let before = w.vm.vmstat();
        for folio in 0..10 {
            assert_eq!(object.free_tail_descs(folio * NR + 77), Ok(3));
            check(w.vm, &[w.space]);
        }
        let after = w.vm.vmstat();
        assert_eq!(after.nr_free_pages - before.nr_free_pages, 30);
        assert_eq!(after.nr_total_pages - before.nr_total_pages, 30);
        println!("frames free for each page of 2 MiB: {}", (after.nr_free_pages - before.nr_free_pages) / 10);
        for folio in 0..10 {
            assert_eq!(object.restore_tail_descs(folio * NR), Ok(3));
            check(w.vm, &[w.space]);
        }
        assert_eq!(nr_free(w), before.nr_free_pages);
        assert_eq!((w.vm.event(Event::TailDescsFreed), w.vm.event(Event::TailDescsRestored)), (30, 30));
    });
}

/// Faults, pins, uses, munmap and moves of what lies beside it.
#[test]
fn freeing_tail_descs_changes_no_bytes() {
    in_each_setup(1, 16 << 20, |w| {
        let object = object(w, 2, 0);
        write_all(&object, 2 * NR);
        map(w.space, AT, 2 * NR, &object, 0);
        assert_all(w.space, 2 * NR);
        let [before, after] = [5, 6].map(|page| move || w.space.pin_page_mut(AT + page * PAGE, Term::Long).unwrap());
        let before = before();
        assert_eq!(object.free_tail_descs(0), Ok(3));
        assert_eq!(w.space.rss_pages().shmem, NR, "no entry of the folio is left");
        check(w.vm, &[w.space]);
        let after = after();
        // The frames are another's now.
        let others = w.vm.new_space().unwrap();
        let nr_others = nr_free(w) - 100;
        others.mmap(BASE, nr_others * PAGE, RW, PRIVATE | FIXED).unwrap();
        (0..nr_others).for_each(|page| others.write(BASE + page * PAGE, &[0xff; PAGE as usize]).unwrap());
        check(w.vm, &[w.space, &others]);
        assert_all(w.space, 2 * NR);
        before.write(0, &[9; 8]);
        after.write(0, &[8; 8]);
        assert_eq!((bytes(w.space, AT + 5 * PAGE), bytes(w.space, AT + 6 * PAGE)), ([9; 8], [8; 8]));
        let first = w.space.translate_at_rest(AT).unwrap().pfn;
        for i in [0, 1, 128, 300, 511] {
            assert!(w.vm.migrate_frame(Pfn(first.0 + i)).is_err());
            assert!(w.vm.poison_frame(Pfn(first.0 + i)).is_err());
        }
        drop((before, after));
        assert!(w.vm.idle_pages(0) >= 2 * NR);
        _ = w.space.age_pages(AT, 2 * NR);
        let child = w.space.fork().unwrap();
        w.space.munmap(AT + 3 * PAGE, 300 * PAGE).unwrap();
        check(w.vm, &[w.space, &others, &child]);
        assert_eq!(bytes(&child, AT + 40 * PAGE), 47_u64.to_le_bytes());
        drop(child);
        check(w.vm, &[w.space, &others]);
    });
}

/// They come back before it moves, if there are frames for both.
#[test]
fn such_a_folio_moves() {
    in_setup(Setup::PLAIN, 1, 24 << 20, |w| {
        let object = object(w, 1, 9);
        map(w.space, AT, NR, &object, 0);
        write_all(&object, NR);
        for (fails_at, nr_back) in [(Some(0), 0), (Some(2), 0), (Some(3), 3), (None, 3)] {
            touch(w.space, AT + 77 * PAGE).unwrap();
            let from = w.space.translate_at_rest(AT + 77 * PAGE).unwrap().pfn;
            _ = object.free_tail_descs(0);
            let before = w.vm.vmstat();
            w.vm.fail_allocation(fails_at);
            let moved = w.vm.migrate_frame(from);
            w.vm.fail_allocation(None);
            check(w.vm, &[w.space]);
            let after = w.vm.vmstat();
            assert_eq!(before.nr_total_pages - after.nr_total_pages, nr_back, "{fails_at:?}");
            assert_eq!(before.nr_free_pages - after.nr_free_pages, nr_back);
            touch(w.space, AT + 77 * PAGE).unwrap();
            let now = w.space.translate_at_rest(AT + 77 * PAGE).unwrap().pfn;
            match fails_at {
                Some(_) => assert_eq!((moved, now), (Err(MigrateRefusal::NoTarget), from)),
                None => assert_eq!((moved, now == from), (Ok(now), false)),
            }
            assert_all(w.space, NR);
        }
    });
}

/// The descriptors come back elsewhere, and the frames serve anybody afterwards.
#[test]
fn other_frames_have_the_descriptors() {
    in_setup(Setup::PLAIN, 1, 24 << 20, |w| {
        let nr_before = nr_free(w);
        for round in 0..3 {
            let object = object(w, 4, 9);
            (0..4).for_each(|folio| assert_eq!(object.free_tail_descs(folio * NR), Ok(3)));
            // An allocation of single frames gets those that went.
            let others = w.vm.new_space().unwrap();
            let nr_others = nr_free(w) - 60;
            others.mmap(BASE, nr_others * PAGE, RW, PRIVATE | FIXED).unwrap();
            (0..nr_others).for_each(|page| others.write(BASE + page * PAGE, &[0xff; PAGE as usize]).unwrap());
            match round {
                0 => (0..4).for_each(|folio| assert_eq!(object.restore_tail_descs(folio * NR), Ok(3))),
                1 => object.discard(0..3 * NR),
                _ => {}
            }
            check(w.vm, &[w.space, &others]);
            drop(object);
            check(w.vm, &[w.space, &others]);
            // Frames of the folios become private pages.
            others.mmap(BASE + (1 << 30), 3 * NR * PAGE, RW, PRIVATE | FIXED).unwrap();
            (0..3 * NR).for_each(|page| others.write(BASE + (1 << 30) + page * PAGE, &page.to_le_bytes()).unwrap());
            let child = others.fork().unwrap();
            check(w.vm, &[w.space, &others, &child]);
            (0..3 * NR).for_each(|page| {
                assert_eq!(bytes(&child, BASE + (1 << 30) + page * PAGE), page.to_le_bytes());
            });
            drop((others, child));
            check(w.vm, &[w.space]);
            assert_eq!(nr_free(w), nr_before);
        }
    });
}

/// Each refusal has a name, and changes nothing.
#[test]
fn refusals_have_names() {
    in_each_setup(1, 32 << 20, |w| {
        let object = object(w, 1, 0);
        let small = w.vm.new_shared_object_of(PAGE * 64, FolioOrders::new(Order(3), Order(3)).unwrap()).unwrap();
        small.write(0, &[1]).unwrap();
        let refused = |result, refusal: TailDescsRefusal| {
            assert_eq!(result, Err(refusal));
            assert!(w.vm.event(refusal.event()) > 0);
            check(w.vm, &[w.space]);
        };
        for page in [0, 63, 512, u64::MAX] {
            refused(small.free_tail_descs(page), TailDescsRefusal::NoFolio);
            refused(small.restore_tail_descs(page), TailDescsRefusal::NoFolio);
        }
        refused(object.restore_tail_descs(3), TailDescsRefusal::Unchanged);
        assert_eq!(object.free_tail_descs(3), Ok(3));
        refused(object.free_tail_descs(9), TailDescsRefusal::Unchanged);
        for n in 0..3 {
            let before = nr_free(w);
            w.vm.fail_allocation(Some(n));
            let result = object.restore_tail_descs(0);
            w.vm.fail_allocation(None);
            refused(result, TailDescsRefusal::NoFrames);
            assert_eq!(nr_free(w), before);
        }
        assert_eq!(object.restore_tail_descs(0), Ok(3));
        check(w.vm, &[w.space]);
    });
}

/// A hole needs heads for what stays: frames come back, or all of it stays.
#[test]
fn a_hole_cuts_such_a_folio_if_there_are_frames() {
    for fails_at in [None, Some(0), Some(1), Some(2)] {
        in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
            let object = object(w, 1, 0);
            write_all(&object, NR);
            map(w.space, AT, NR, &object, 0);
            assert_all(w.space, NR);
            assert_eq!(object.free_tail_descs(0), Ok(3));
            w.vm.fail_allocation(fails_at);
            object.discard(100..200);
            w.vm.fail_allocation(None);
            check(w.vm, &[w.space]);
            assert_eq!(object.nr_resident_pages(), if fails_at.is_some() { NR } else { NR - 100 });
            for page in 0..NR {
                let expected = if (100..200).contains(&page) { 0 } else { page + 7 };
                assert_eq!(bytes(w.space, AT + page * PAGE), expected.to_le_bytes());
            }
            check(w.vm, &[w.space]);
            object.discard(0..NR);
            check(w.vm, &[w.space]);
        });
    }
}

/// A folio that ends where no frame is free keeps some of its own for the descriptors.
#[test]
fn the_end_of_a_folio_does_not_fail() {
    for by_pin in [false, true] {
        in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
            let object = object(w, 1, 9);
            map(w.space, AT, NR, &object, 0);
            write_all(&object, NR);
            touch(w.space, AT + 400 * PAGE).unwrap();
            let pin = by_pin.then(|| w.space.pin_page(AT + 400 * PAGE, Term::Short).unwrap());
            let first = w.space.translate_at_rest(AT + 400 * PAGE).unwrap().pfn.0 - 400;
            assert_eq!(object.free_tail_descs(0), Ok(3));
            let before = nr_free(w);
            w.vm.fail_allocation(Some(0));
            object.discard(0..NR);
            drop(pin);
            w.vm.fail_allocation(None);
            check(w.vm, &[w.space]);
            assert_eq!(nr_free(w) - before, NR - 3);
            assert!((509..512).all(|i| w.vm.migrate_frame(Pfn(first + i)).is_err()));
            // The others are as good as any.
            let others = w.vm.new_space().unwrap();
            let nr_others = nr_free(w) - 40;
            others.mmap(BASE, nr_others * PAGE, RW, PRIVATE | FIXED).unwrap();
            (0..nr_others).for_each(|page| others.write(BASE + page * PAGE, &[0xff; PAGE as usize]).unwrap());
            check(w.vm, &[w.space, &others]);
        });
    }
}

/// One CPU frees and restores, others fault, unmap, pin, fork and discard.
#[test]
fn descriptors_come_and_go_under_all_others() {
    let vm = Setup::PLAIN.vm(4, 48 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let nr_before = vm.vmstat().nr_free_pages;
    let is_over = AtomicBool::new(false);
    {
        let orders = FolioOrders::new(Order(0), Order::PMD).unwrap();
        let object = vm.new_shared_object_of(4 * NR * PAGE, orders).unwrap();
        let (vm, object, is_over) = (&vm, &object, &is_over);
        let go_on = || !is_over.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for id in 1..4 {
                scope.spawn(move || {
                    let _cpu = vm.machine().bind(CpuId(id)).unwrap();
                    let mut random = Random::new(id.into());
                    while go_on() {
                        let space = vm.new_space().unwrap();
                        map(&space, AT, 4 * NR, object, 0);
                        space.mmap(BASE, 64 * PAGE, RW, PRIVATE | FIXED).unwrap();
                        for _ in 0..40 {
                            let page = random.below(4 * NR);
                            match random.below(8) {
                                0 => drop(space.pin_page_mut(AT + page * PAGE, Term::Short)),
                                1 => drop(space.fork()),
                                2 => object.discard(page..page + 1 + random.below(600)),
                                3 => _ = vm.migrate_frame(Pfn(random.below(12_000) as u32)),
                                4 => _ = vm.idle_pages(1),
                                5 => _ = space.write(BASE + page % 64 * PAGE, &[id as u8; 8]),
                                6 => _ = space.madvise(AT + page * PAGE / NR * NR, NR * PAGE, DONTNEED),
                                _ => _ = space.write(AT + page * PAGE, &page.to_le_bytes()),
                            }
                        }
                    }
                });
            }
            let _stop = StopAtEnd(is_over);
            let mut nr = [0; 3];
            for round in 0..200 {
                let page = round % 4 * NR;
                match object.free_tail_descs(page) {
                    Ok(_) => nr[0] += 1,
                    Err(_) => _ = object.write(page * PAGE, &[1]),
                }
                nr[1] += u64::from(object.restore_tail_descs((round + 2) % 4 * NR).is_ok());
            }
            assert!(nr[0] > 0 && nr[1] > 0, "{nr:?}");
        });
        check(vm, &[]);
    }
    check(&vm, &[]);
    assert!(nr_before - vm.vmstat().nr_free_pages <= 3);
    assert_eq!(vm.machine().violations(), (0, None));
}
