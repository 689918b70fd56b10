//! Moves: of private pages, of folios of objects, wholly and in part, by compaction and for long-term pins. A page that
//! cannot be copied stays where it is.

use super::common::objects::{faulted_frame, map, object, orders};
use super::common::{BASE, DONTNEED, PAGE, RW, Setup, World, check, frame_of, nr_free};
use super::{Failing, each_copy_fails, pages, run_with};
use softfault::policy::compact::CompactBudget;
use softfault::{CompactRefusal, Event, MigrateRefusal, Order, Pfn, Term};
use std::cell::Cell;

const FAILED: Result<Pfn, MigrateRefusal> = Err(MigrateRefusal::SourceFailed);

fn assert_moved_or_failed(w: &World<'_>, has_failed: bool, moved: Result<Pfn, MigrateRefusal>, from: Pfn) {
    assert_eq!(moved.is_err(), has_failed);
    if has_failed {
        assert_eq!((moved, w.vm.event(Event::MigrateRefusedSourceFailed)), (FAILED, 1));
    } else {
        assert_ne!(moved, Ok(from));
    }
}

#[test]
fn a_private_page_stays() {
    each_copy_fails(1, |w, failing| {
        w.map(BASE, 1, RW);
        w.space.write(BASE, &[7; PAGE as usize]).unwrap();
        let (child, from) = (w.space.fork().unwrap(), frame_of(w.space, BASE));
        let moved = failing.run(w, || w.vm.migrate_frame(from));
        check(w.vm, &[w.space, &child]);
        assert_moved_or_failed(w, failing.has_failed(), moved, from);
        assert_eq!(frame_of(&child, BASE) == from, failing.has_failed());
        assert_eq!((pages(w.space, BASE, 1), pages(&child, BASE, 1)), (vec![Some(7)], vec![Some(7)]));
        if failing.has_failed() {
            assert_eq!(w.vm.poison_frame(from), Ok(2), "it is in use, and can be taken out of it");
        }
    });
}

/// Of any size up to 2 MiB: no word keeps a mark, and a store finds the folio.
#[test]
fn a_folio_of_an_object_stays() {
    for (order, nr_copies) in [(0, 1), (1, 2), (3, 8)] {
        each_copy_fails(nr_copies, |w, failing| {
            let nr_pages = 1 << order;
            let object = object(w, nr_pages, orders(0, order));
            (0..nr_pages).for_each(|page| object.write(page * PAGE, &[page as u8 + 1]).unwrap());
            map(w.space, BASE, nr_pages, &object, 0);
            let from = faulted_frame(w.space, BASE);
            let moved = failing.run(w, || w.vm.migrate_frame(from));
            check(w.vm, &[w.space]);
            assert_moved_or_failed(w, failing.has_failed(), moved, from);
            assert_eq!(faulted_frame(w.space, BASE) == from, failing.has_failed());
            w.space.write(BASE, &[9]).unwrap();
            let expected: Vec<_> = (0..nr_pages as u8).map(|page| Some(if page == 0 { 9 } else { page + 1 })).collect();
            assert_eq!(pages(w.space, BASE, nr_pages), expected);
            assert!(w.vm.migrate_frame(faulted_frame(w.space, BASE)).is_ok(), "the next one moves");
            w.space.munmap(BASE, nr_pages * PAGE).unwrap();
        });
    }
}

/// Without frames for all of it: the largest part with frames would move.
#[test]
fn a_part_of_a_folio_stays() {
    for nr_before in [0, 1, 3] {
        each_copy_fails_from(nr_before, |w, failing| {
            let object = object(w, 8, orders(0, 3));
            (0..8).for_each(|page| object.write(page * PAGE, &[page as u8 + 1]).unwrap());
            map(w.space, BASE, 8, &object, 0);
            let from = faulted_frame(w.space, BASE + 5 * PAGE);
            w.vm.fail_runs(Some(Order(3)));
            let moved = failing.run(w, || w.vm.migrate_frame(from));
            w.vm.fail_runs(None);
            check(w.vm, &[w.space]);
            assert_moved_or_failed(w, true, moved, from);
            assert_eq!((faulted_frame(w.space, BASE + 5 * PAGE), w.vm.event(Event::FolioMovedInPart)), (from, 0));
            assert_eq!(object.object_page_state(5).unwrap().order, Order(3), "it is one folio");
            assert_eq!(pages(w.space, BASE, 8), (1..=8).map(Some).collect::<Vec<_>>());
            w.space.munmap(BASE, 8 * PAGE).unwrap();
        });
    }
}

/// The same with this copy alone, which fails.
fn each_copy_fails_from(nr_before: u64, test: impl Fn(&World<'_>, &Failing)) {
    let vm = Setup::PLAIN.vm(1, 32 << 20);
    assert!(run_with(&vm, nr_before, &test));
}

#[test]
fn a_folio_of_2_mib_stays() {
    for nr_before in [0, 100, 511] {
        each_copy_fails_from(nr_before, |w, failing| {
            let object = object(w, 512, orders(0, 9));
            object.write(0, &[1]).unwrap();
            object.write(511 * PAGE, &[2]).unwrap();
            map(w.space, BASE, 512, &object, 0);
            let from = faulted_frame(w.space, BASE);
            let moved = failing.run(w, || w.vm.migrate_frame(from));
            assert_moved_or_failed(w, true, moved, from);
            assert_eq!(faulted_frame(w.space, BASE), from);
            assert_eq!((pages(w.space, BASE, 1), pages(w.space, BASE + 511 * PAGE, 1)), (vec![Some(1)], vec![Some(2)]));
            w.space.munmap(BASE, 512 * PAGE).unwrap();
        });
    }
}

/// Compaction leaves the block, or goes on with another one. No page is lost, whatever it has moved by then.
#[test]
fn compaction_leaves_what_it_cannot_copy() {
    let (nr_failed, nr_refused) = (Cell::new(0), Cell::new(0));
    for nr_before in 0..24 {
        let vm = Setup::PLAIN.vm(1, 16 << 20);
        run_with(&vm, nr_before, &|w: &World<'_>, failing: &Failing| {
            let object = object(w, 64, orders(0, 2));
            // No block is free, and each could be.
            let nr_pages = nr_free(w) / 100 * 90;
            w.map(BASE, nr_pages, RW);
            for page in 0..nr_pages {
                w.space.write(BASE + page * PAGE, &[page as u8]).unwrap();
                if page % 32 == 0 && page < 64 * 32 {
                    object.write(page / 32 * PAGE, &[page as u8 ^ 0xff]).unwrap();
                }
            }
            let is_kept = |page: &u64| page % 16 == 3;
            (0..nr_pages).filter(|page| !is_kept(page)).for_each(|page| {
                w.space.madvise(BASE + page * PAGE, PAGE, DONTNEED).unwrap();
            });
            let done = failing.run(w, || w.vm.compact_step(&CompactBudget::BACKGROUND));
            if failing.has_failed() && done.is_err() {
                nr_refused.set(nr_refused.get() + 1);
                assert_eq!(done, Err(CompactRefusal::InTheWay(MigrateRefusal::SourceFailed)));
            }
            nr_failed.set(nr_failed.get() + u64::from(failing.has_failed()));
            check(w.vm, &[w.space]);
            for page in (0..nr_pages).filter(is_kept) {
                assert_eq!(pages(w.space, BASE + page * PAGE, 1), [Some(page as u8)]);
            }
            for page in 0..64 {
                let mut byte = [0];
                assert_eq!((object.read(page * PAGE, &mut byte), byte), (1, [(page * 32) as u8 ^ 0xff]));
            }
        });
    }
    assert!(nr_failed.get() > 4, "{} of {}", nr_refused.get(), nr_failed.get());
}

/// A page that cannot be set apart is pinned where it is.
#[test]
fn a_long_pin_stays() {
    each_copy_fails(1, |w, failing| {
        w.map(BASE, 1, RW);
        w.space.write(BASE, &[7]).unwrap();
        let from = frame_of(w.space, BASE);
        let pin = failing.run(w, || w.space.pin_page_mut(BASE, Term::Long).unwrap());
        assert_eq!(
            (pin.pfn() == from, w.vm.event(Event::PinInPlace)),
            (failing.has_failed(), u64::from(failing.has_failed()))
        );
        let mut byte = [0];
        pin.read(0, &mut byte);
        assert_eq!(byte, [7]);
        drop(pin);
        check(w.vm, &[w.space]);
    });
}
