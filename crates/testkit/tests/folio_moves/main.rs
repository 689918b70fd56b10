//! Folios of objects move to other frames as a whole, and programs notice nothing.
#![deny(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod failures;
mod parts;

use common::moving::{counts_up, moves_all};
use common::objects::{Object, bytes, content, faulted_frame, map, object, orders};
use common::*;
use softfault::hooks::Class;
use softfault::policy::compact::CompactBudget;
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

/// The new head has the state of the old one.
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
        while w.vm.compact_step(&CompactBudget::BACKGROUND).is_ok() {
            // The CPU that takes the block keeps the next step from finding it.
            let huge = w.vm.new_shared_object_of(512 * PAGE, orders(9, 9)).unwrap();
            huge.write(0, b"h").unwrap();
            taken.push(huge);
            nr_made += 1;
        }
        check(w.vm, &[w.space]);
        let possible = before.nr_free / 512;
        assert!(nr_made * 100 >= possible * 90, "{nr_made} of {possible}, {} before", before.nr_usable / 512);
        kept.iter().for_each(|page| assert_eq!(content(&object, page * PAGE), page.to_le_bytes(), "page {page}"));
        assert_eq!(w.vm.compact_step(&CompactBudget::BACKGROUND.with_nr_mappings(0)), Err(CompactRefusal::NoBlock));
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
            assert!(w.vm.compact_step(&CompactBudget::BACKGROUND).is_err());
        }
        assert_eq!([0, nr - 1].map(|i| frame(w.space, i * 512)), frames);
        assert_eq!(w.vm.event(Event::PgmigrateSuccess), 0);
        check(w.vm, &[w.space]);
    }
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
