//! Folios of objects move to other frames as a whole, and programs notice nothing.
#![deny(unsafe_code)]

mod common;

use common::moving::{counts_up, moves_all};
use common::objects::{Object, bytes, content, faulted_frame, map, object, orders};
use common::*;
use softfault::hooks::Class;
use softfault::{
    Access, CompactRefusal, CpuId, Event, FaultError, MigrateRefusal, Order, Pfn, PoisonRefusal, Term, Vm,
};
use softfault_testkit::random::Random;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const AT: u64 = 0x20_0000_0000;

fn frame(space: &Space<'_>, page: u64) -> Pfn {
    faulted_frame(space, AT + page * PAGE)
}

/// By any of its frames; all pages are beside each other afterwards as before, and all mappings
/// see what was written.
#[test]
fn a_folio_moves_by_any_of_its_frames() {
    in_each_setup(1, 32 << 20, |w| {
        for order in 1..=9 {
            let nr = 1 << order;
            let object = object(w, 2 * nr, orders(order, order));
            let child = w.vm.new_space().unwrap();
            map(w.space, AT, 2 * nr, &object, 0);
            map(&child, AT, nr, &object, nr);
            (0..2 * nr).for_each(|page| w.space.write(AT + page * PAGE + 8, &[page as u8; 8]).unwrap());
            child.read(AT + (nr - 1) * PAGE, &mut [0]).unwrap();
            let nr_free = w.vm.vmstat().nr_free_pages;
            for page in [nr, 2 * nr - 1, nr + nr / 2] {
                let old = frame(w.space, page);
                let new = w.vm.migrate_frame(old).unwrap();
                assert_eq!(w.space.translate_at_rest(AT + page * PAGE), None, "programs fault again");
                check(w.vm, &[w.space, &child]);
                assert_eq!((frame(w.space, page), new.0 % nr as u32), (new, old.0 % nr as u32));
                assert_eq!(w.vm.migrate_frame(old), Err(MigrateRefusal::NotInUse));
                for page in nr..2 * nr {
                    assert_eq!(bytes(w.space, AT + page * PAGE + 8), [page as u8; 8], "order {order}");
                    assert_eq!(bytes(&child, AT + (page - nr) * PAGE + 8), [page as u8; 8]);
                    assert_eq!(u64::from(frame(w.space, page).0 - frame(w.space, nr).0), page - nr);
                }
            }
            assert_eq!((w.vm.vmstat().nr_free_pages, object.nr_resident_pages()), (nr_free, 2 * nr));
            assert_eq!(content(&object, 8), [0; 8]);
            check(w.vm, &[w.space, &child]);
            w.space.munmap(AT, 2 * nr * PAGE).unwrap();
        }
        assert_eq!(w.vm.event(Event::PgmigrateFail), 0);
    });
}

/// What the head said of the folio, the new head says.
#[test]
fn a_moved_folio_is_as_dirty_as_it_was() {
    in_each_setup(1, 32 << 20, |w| {
        for dirty in [false, true] {
            let object = object(w, 16, orders(4, 4));
            map(w.space, AT, 16, &object, 0);
            let running = w.cpu.enter(w.space).unwrap();
            running.read_u64(AT + 6 * PAGE).unwrap();
            if dirty {
                // Only the entry of a tail says so.
                running.write_u64(AT + 6 * PAGE, 1).unwrap();
            }
            drop(running);
            assert!(!object.object_page_state(3).unwrap().dirty);
            w.vm.migrate_frame(frame(w.space, 11)).unwrap();
            let state = object.object_page_state(3).unwrap();
            assert_eq!((state.dirty, state.referenced, state.mapped), (dirty, true, false));
            check(w.vm, &[w.space]);
            w.space.munmap(AT, 16 * PAGE).unwrap();
        }
    });
}

/// A pin of any page holds all of them.
#[test]
fn a_pinned_folio_stays() {
    in_each_setup(1, 32 << 20, |w| {
        let object = object(w, 16, orders(4, 4));
        map(w.space, AT, 16, &object, 0);
        let pin = w.space.pin_page_mut(AT + 5 * PAGE, Term::Short).unwrap();
        for page in [0, 5, 15] {
            assert_eq!(w.vm.migrate_frame(frame(w.space, page)), Err(MigrateRefusal::Pinned));
        }
        pin.write(0, &[1; 8]);
        assert_eq!(content(&object, 5 * PAGE), [1; 8]);
        // An orphan has no object any more.
        object.discard(0..16);
        assert_eq!(w.vm.migrate_frame(pin.pfn()), Err(MigrateRefusal::Pinned));
        drop(pin);
        let large = self::object(w, 512, orders(9, 9));
        map(w.space, AT, 512, &large, 0);
        let pin = w.space.pin_page_mut(AT + 300 * PAGE, Term::Short).unwrap();
        assert_eq!(w.vm.migrate_frame(frame(w.space, 77)), Err(MigrateRefusal::Pinned));
        drop(pin);
        assert!(w.vm.migrate_frame(frame(w.space, 77)).is_ok());
        check(w.vm, &[w.space]);
    });
}

/// No run is free: the folio stays, and nothing is lost.
#[test]
fn without_a_run_a_folio_stays() {
    let vm = Setup::PLAIN.vm(1, 32 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = &vm.new_space().unwrap();
    let object = vm.new_shared_object_of(32 * PAGE, orders(5, 5)).unwrap();
    map(space, AT, 32, &object, 0);
    object.write(0, b"x").unwrap();
    let at = frame(space, 9);
    for k in 0..2 {
        vm.fail_allocation(Some(k));
        let moved = vm.migrate_frame(at);
        vm.fail_allocation(None);
        assert_eq!(moved.is_ok(), k > 0, "one allocation");
    }
    let at = frame(space, 9);
    vm.age(16, 7);
    let nr_free = vm.vmstat().nr_free_pages;
    assert_eq!(vm.migrate_frame(at), Err(MigrateRefusal::NoTarget));
    assert_eq!((frame(space, 9), vm.vmstat().nr_free_pages), (at, nr_free));
    check(&vm, &[space]);
}

/// Pages say what number they have.
fn number(object: &Object<'_>, nr_pages: u64) {
    (0..nr_pages).for_each(|page| object.write(page * PAGE, &(page + 3).to_le_bytes()).unwrap());
}

fn assert_numbered(w: &World<'_>, object: &Object<'_>, nr_pages: u64) {
    check(w.vm, &[w.space]);
    for page in 0..nr_pages {
        assert_eq!(bytes(w.space, AT + page * PAGE), (page + 3).to_le_bytes(), "page {page}");
    }
    assert_eq!(object.nr_resident_pages(), nr_pages);
    check(w.vm, &[w.space]);
}

/// Without frames for all of it the largest part moves for which there are some, and the rest stays
/// where it is, in folios that are as large as may be.
#[test]
fn a_folio_moves_in_part() {
    for order in [1, 4, 8, 9] {
        for (least, page) in [(0, 0), (0, (1 << order) - 1), (0, 1 << (order - 1)), (order.min(3), 1)] {
            in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
                let nr = 1 << order;
                let object = object(w, nr, orders(least, order));
                map(w.space, AT, nr, &object, 0);
                number(&object, nr);
                for size in (least + 1..=order).rev() {
                    let before: Vec<Pfn> = (0..nr).map(|page| frame(w.space, page)).collect();
                    let nr_free = w.vm.vmstat().nr_free_pages;
                    w.vm.fail_runs(Some(Order(size)));
                    let moved = w.vm.migrate_frame(before[page as usize]);
                    w.vm.fail_runs(None);
                    assert_eq!(frame(w.space, page), moved.unwrap());
                    assert!(w.vm.block_class(moved.unwrap().0 / 512) >= Class::Shared);
                    let nr_nodes = u64::from(size == 9);
                    assert_eq!(nr_free - w.vm.vmstat().nr_free_pages, nr_nodes);
                    let nr_moved = (0..nr).filter(|page| frame(w.space, *page) != before[*page as usize]).count();
                    assert_eq!(nr_moved, 1 << (size - 1), "half of the folio");
                }
                assert_numbered(w, &object, nr);
                assert_eq!(w.vm.event(Event::FolioMovedInPart), u64::from(order - least));
                assert!((0..nr).all(|page| object.object_page_state(page).unwrap().dirty));
            });
        }
    }
}

/// Whatever allocation fails, nothing is lost, and no frame kept.
#[test]
fn the_kth_allocation_of_a_move_in_part_fails() {
    let vm = Setup::PLAIN.vm(1, 16 << 20);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    {
        let w = &World { vm: &vm, space: &space, cpu: &cpu };
        let object = object(w, 512, orders(0, 9));
        map(w.space, AT, 512, &object, 0);
        number(&object, 512);
        frame(w.space, 300);
        let nr_free = w.vm.vmstat().nr_free_pages;
        // No block is left.
        w.vm.age(32, 7);
        let nr_aged = nr_free - w.vm.vmstat().nr_free_pages;
        let mut nr_moved = 0;
        for k in 0..24 {
            let at = frame(w.space, 300);
            w.vm.fail_allocation(Some(k));
            let moved = w.vm.migrate_frame(at);
            w.vm.fail_allocation(None);
            check(w.vm, &[w.space]);
            assert_eq!(frame(w.space, 300), *moved.as_ref().unwrap_or(&at));
            nr_moved += u64::from(moved.is_ok());
            let has_node = u64::from(nr_moved > 0);
            assert_eq!(nr_free - nr_aged - w.vm.vmstat().nr_free_pages, has_node, "{k}: {moved:?}");
        }
        assert!((1..24).contains(&nr_moved), "{nr_moved}");
        assert_numbered(w, &object, 512);
    }
}

/// One that a pin holds, or that reaches beyond the end of its object, stays whole.
#[test]
fn what_stays_whole_moves_in_no_part() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        for order in [4, 9] {
            let nr = 1 << order;
            let object = object(w, nr, orders(0, order));
            map(w.space, AT, nr, &object, 0);
            number(&object, nr);
            frame(w.space, 3);
            let nr_free = w.vm.vmstat().nr_free_pages;
            let in_part = |page| {
                let at = frame(w.space, page);
                w.vm.fail_runs(Some(Order(order)));
                let moved = w.vm.migrate_frame(at);
                w.vm.fail_runs(None);
                moved
            };
            let pin = w.space.pin_page(AT + 7 * PAGE, Term::Short).unwrap();
            assert_eq!(in_part(3), Err(MigrateRefusal::Pinned));
            object.set_size_bytes(10 * PAGE);
            drop(pin);
            assert_eq!(in_part(3), Err(MigrateRefusal::NoTarget));
            check(w.vm, &[w.space]);
            assert_eq!((object.nr_resident_pages(), w.vm.vmstat().nr_free_pages), (nr, nr_free));
            object.set_size_bytes(nr * PAGE);
            assert!(in_part(3).is_ok());
            check(w.vm, &[w.space]);
            w.space.munmap(AT, nr * PAGE).unwrap();
        }
    });
}

/// A pin for long takes the whole folio out of its block, or a part if there is no room; the pages
/// beside it in the block do not suffer. What fills a block stays, and is not in the way there.
#[test]
fn a_long_pin_sets_a_folio_apart() {
    for (order, nr_moved) in [(1, 2), (4, 16), (8, 256), (9, 0)] {
        in_each_setup(1, 32 << 20, |w| {
            let nr = 1 << order;
            let object = object(w, 2 * nr, orders(0, order));
            map(w.space, AT, 2 * nr, &object, 0);
            number(&object, 2 * nr);
            let before: Vec<Pfn> = (0..2 * nr).map(|page| frame(w.space, page)).collect();
            let pin = w.space.pin_page_mut(AT + (nr + 1) * PAGE, Term::Long).unwrap();
            let moved: Vec<u64> = (0..2 * nr).filter(|page| frame(w.space, *page) != before[*page as usize]).collect();
            assert_eq!(moved, (nr..nr + nr_moved).collect::<Vec<_>>());
            assert_eq!(w.vm.block_class(pin.pfn().0 / 512), Class::Pinned);
            assert!(w.vm.block_class(before[0].0 / 512) < Class::Pinned);
            let is_apart = u64::from(nr_moved > 0);
            assert_eq!([Event::PinSetApart, Event::PinInPlace].map(|event| w.vm.event(event)), [is_apart, 0]);
            // The next one has no reason to move.
            let again = w.space.pin_page_mut(AT + nr * PAGE, Term::Long).unwrap();
            assert_eq!(w.vm.event(Event::PinSetApart), is_apart);
            drop((pin, again));
            assert_numbered(w, &object, 2 * nr);
            w.space.munmap(AT, 2 * nr * PAGE).unwrap();
        });
    }
}

#[test]
fn a_long_pin_sets_a_part_apart() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        let object = object(w, 256, orders(2, 8));
        map(w.space, AT, 256, &object, 0);
        number(&object, 256);
        let before = frame(w.space, 0);
        w.vm.fail_runs(Some(Order(8)));
        let pin = w.space.pin_page_mut(AT + 77 * PAGE, Term::Long).unwrap();
        w.vm.fail_runs(None);
        assert_eq!(frame(w.space, 128).0, before.0 + 128, "the other half stays");
        assert_eq!(w.vm.block_class(pin.pfn().0 / 512), Class::Pinned);
        assert_eq!([Event::PinSetApart, Event::FolioMovedInPart].map(|event| w.vm.event(event)), [1, 1]);
        drop(pin);
        assert_numbered(w, &object, 256);
    });
}

/// Blocks with folios of several sizes can be emptied: the folios fill runs of other blocks.
#[test]
fn blocks_with_folios_are_emptied() {
    in_setup(Setup::PLAIN, 1, 64 << 20, |w| {
        let mut random = Random::new(3);
        let nr_pages = w.vm.vmstat().nr_free_pages / 100 * 92;
        let object = object(w, nr_pages, orders(0, 5));
        map(w.space, AT, nr_pages, &object, 0);
        (0..nr_pages).for_each(|page| object.write(page * PAGE, &page.to_le_bytes()).unwrap());
        // Of each 64 pages some stay, in one folio or in several.
        let mut kept = vec![];
        for first in (0..nr_pages - 64).step_by(64) {
            let stays = [1, 3, 8, 20, 32][random.below(5) as usize];
            object.discard(first + stays..first + 64);
            kept.extend(first..first + stays);
        }
        object.discard(nr_pages / 64 * 64..nr_pages);
        kept.extend(nr_pages / 64 * 64 - 64..nr_pages / 64 * 64);
        kept.retain(|page| content(&object, page * PAGE) == page.to_le_bytes());
        let before = w.vm.fragmentation(Order::PMD);
        let mut nr_made = 0;
        let mut taken = vec![];
        while w.vm.compact_step(&patient()).is_ok() {
            // Who takes the block keeps the next step from finding it.
            let huge = w.vm.new_shared_object_of(512 * PAGE, orders(9, 9)).unwrap();
            huge.write(0, b"h").unwrap();
            taken.push(huge);
            nr_made += 1;
        }
        check(w.vm, &[w.space]);
        let possible = before.nr_free / 512;
        assert!(nr_made * 100 >= possible * 90, "{nr_made} of {possible}, {} before", before.nr_usable / 512);
        kept.iter().for_each(|page| assert_eq!(content(&object, page * PAGE), page.to_le_bytes(), "page {page}"));
        assert_eq!(w.vm.compact_step(&patient().with_nr_mappings(0)), Err(CompactRefusal::NoBlock));
    });
}

/// Compaction empties blocks, and leaves those that one folio fills.
#[test]
fn a_block_with_one_folio_stays() {
    let vm = Setup::PLAIN.vm(1, 32 << 20);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    {
        let w = &World { vm: &vm, space: &space, cpu: &cpu };
        let nr = w.vm.fragmentation(Order::PMD).nr_usable / 512 - 6;
        let object = object(w, 512 * nr, orders(9, 9));
        (0..nr).for_each(|i| object.write(i * 512 * PAGE, b"h").unwrap());
        map(w.space, AT, 512 * nr, &object, 0);
        let frames = [0, nr - 1].map(|i| frame(w.space, i * 512));
        // There are free frames, none of which is a block.
        vm.age(32, 7);
        for _ in 0..20 {
            assert!(w.vm.compact_step(&patient()).is_err());
        }
        assert_eq!([0, nr - 1].map(|i| frame(w.space, i * 512)), frames);
        assert_eq!(w.vm.event(Event::PgmigrateSuccess), 0);
        check(w.vm, &[w.space]);
    }
}

fn poisoned(object: &Object<'_>, nr_pages: u64) -> Vec<u64> {
    (0..nr_pages).filter(|page| object.next_poisoned(*page..page + 1).is_some()).collect()
}

/// A page of a folio fails: its neighbours stay where they are, and are folios of their own.
#[test]
fn a_folio_loses_the_page_that_failed() {
    for setup in Setup::all() {
        for (least, bad) in [(0, 5), (0, 0), (0, 15), (2, 6), (4, 9)] {
            let vm = setup.vm(1, 16 << 20);
            let _cpu = vm.machine().bind(CpuId(0)).unwrap();
            let nr_free = vm.vmstat().nr_free_pages;
            {
                let space = vm.new_space().unwrap();
                lose_a_page(&vm, &space, least, bad);
                check(&vm, &[&space]);
            }
            check(&vm, &[]);
            assert_eq!(vm.vmstat().nr_free_pages, nr_free - 1, "the frame is out of use");
        }
    }
}

fn lose_a_page<'vm>(vm: &'vm Vm<Hosted>, space: &Space<'vm>, least: u8, bad: u64) {
    let object = vm.new_shared_object_of(16 * PAGE, orders(least, 4)).unwrap();
    map(space, AT, 16, &object, 0);
    (0..16).for_each(|page| space.write(AT + page * PAGE, &[page as u8 + 1; 8]).unwrap());
    let frames: Vec<Pfn> = (0..16).map(|page| frame(space, page)).collect();
    assert_eq!(vm.poison_frame(frames[bad as usize]), Ok(0));
    check(vm, &[space]);
    let nr_lost = 1 << least;
    let lost = bad / nr_lost * nr_lost..(bad / nr_lost + 1) * nr_lost;
    assert_eq!((poisoned(&object, 16), object.nr_resident_pages()), (lost.clone().collect(), 16 - nr_lost));
    for page in 0..16 {
        let at = AT + page * PAGE;
        if lost.contains(&page) {
            assert_eq!(space.handle_fault(at, Access::Read), Err(FaultError::Poisoned));
        } else {
            assert_eq!((bytes(space, at), frame(space, page)), ([page as u8 + 1; 8], frames[page as usize]));
            assert!(object.object_page_state(page).unwrap().dirty);
        }
    }
    // A part of what failed together stays.
    if least > 0 {
        object.discard(lost.start + 1..16);
        assert_eq!(poisoned(&object, 16), lost.clone().collect::<Vec<_>>());
    }
    object.discard(0..lost.end);
    check(vm, &[space]);
    space.write(AT + bad * PAGE, b"n").unwrap();
    assert_eq!((poisoned(&object, 16), content(&object, bad * PAGE)), (vec![], *b"n\0"));
}

/// Those that failed together go with the pages of the object that there are.
#[test]
fn what_failed_at_the_end_of_an_object_is_healed() {
    let vm = Setup::PLAIN.vm(1, 32 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = &vm.new_space().unwrap();
    let object = vm.new_shared_object_of(6 * PAGE, orders(2, 2)).unwrap();
    map(space, AT, 6, &object, 0);
    object.write(5 * PAGE, b"x").unwrap();
    vm.poison_frame(frame(space, 5)).unwrap();
    assert_eq!(poisoned(&object, 8), [4, 5, 6, 7]);
    object.discard(4..6);
    assert_eq!((poisoned(&object, 8), content(&object, 5 * PAGE)), (vec![], [0]));
    object.write(5 * PAGE, b"x").unwrap();
    // A pinned folio does not lose a page, nor does one that reaches beyond the end.
    let large = vm.new_shared_object_of(16 * PAGE, orders(0, 4)).unwrap();
    map(space, AT + 16 * PAGE, 16, &large, 0);
    let pin = space.pin_page(AT + 16 * PAGE, Term::Short).unwrap();
    let refused = |why| Err(PoisonRefusal::Stays(why));
    assert_eq!(vm.poison_frame(Pfn(pin.pfn().0 + 3)), refused(MigrateRefusal::Pinned));
    large.set_size_bytes(4 * PAGE);
    let bad = Pfn(pin.pfn().0 + 1);
    drop(pin);
    assert_eq!(vm.poison_frame(bad), refused(MigrateRefusal::HugePage));
    large.set_size_bytes(3 * PAGE);
    vm.poison_frame(bad).unwrap();
    assert_eq!((poisoned(&large, 16), large.nr_resident_pages()), (vec![1], 2));
    check(&vm, &[space]);
}

/// Programs and the embedder add to words of folios that move, are cut, and leave. Nobody loses a
/// store, and nobody sees another frame.
#[test]
fn folio_moves_under_use() {
    const NR: u64 = 16;
    for setup in Setup::all().into_iter().skip(1) {
        in_setup(setup, 5, 16 << 20, |w| {
            let object = object(w, 2 * NR, orders(0, 3));
            map(w.space, AT, 2 * NR, &object, 0);
            let [nr_moved, rounds] = [0; 2].map(AtomicU64::new);
            let program = |offset| counts_up(AT + offset, NR, &rounds);
            let mover = moves_all(w.space, AT, 2 * NR, &nr_moved);
            w.race(&[&program(0), &program(8), &mover, &mover], |_| {
                let mut round: u64 = 0;
                while nr_moved.load(SeqCst) < 30 || rounds.load(SeqCst) < 5 {
                    for page in 0..NR {
                        let mut word = [0; 8];
                        object.read(page * PAGE + 16, &mut word);
                        assert_eq!(u64::from_le_bytes(word), round);
                        object.write(page * PAGE + 16, &(round + 1).to_le_bytes()).unwrap();
                    }
                    round += 1;
                    // Of the second half some pages, so that folios are cut.
                    let first = NR + round % NR;
                    object.discard(first..2 * NR);
                    let held = w.space.pin_page(AT + round % NR * PAGE, Term::Short).unwrap();
                    let mut word = [0; 8];
                    held.read(16, &mut word);
                    assert_eq!(u64::from_le_bytes(word), round, "moved away under a pin");
                    drop(held);
                }
            });
        });
    }
}
