//! Pages of objects of several sizes: they come whole, are cut, stay while they are pinned, and
//! every byte is where it was.
#![deny(unsafe_code)]

mod common;

use common::objects::{bytes, content, map, object, orders, touch};
use common::*;
use softfault::{Access, Advance, CpuId, FaultError, Term};
use softfault_testkit::random::Random;

const AT: u64 = 0x20_0000_0000;

/// Frame of the page that is mapped there.
fn frame(space: &Space<'_>, page: u64) -> u32 {
    space.translate_at_rest(AT + page * PAGE).unwrap().pfn.0
}

#[test]
fn a_fault_brings_a_folio_and_maps_its_page() {
    in_each_setup(1, 32 << 20, |w| {
        for (least, most) in [(0, 0), (0, 1), (2, 2), (3, 8), (9, 9)] {
            let object = object(w, 1024, orders(least, most));
            map(w.space, AT, 1024, &object, 0);
            touch(w.space, AT + 513 * PAGE).unwrap();
            assert_eq!((object.nr_resident_pages(), w.space.rss_pages().shmem), (1 << most, 1));
            check(w.vm, &[w.space]);
            // Its neighbours are adjacent, and at the same place in an aligned run of frames.
            let last = 513 | ((1 << most) - 1);
            touch(w.space, AT + last * PAGE).unwrap();
            assert_eq!(u64::from(frame(w.space, last)) % (1 << most), (1 << most) - 1);
            if most > 0 {
                assert_eq!(u64::from(frame(w.space, last) - frame(w.space, 513)), last - 513);
            }
            assert_eq!(object.nr_resident_pages(), 1 << most);
            w.space.munmap(AT, 1024 * PAGE).unwrap();
            drop(object);
        }
    });
}

/// A size that does not fit is smaller; the least one may reach beyond the end.
#[test]
fn sizes_follow_what_is_there() {
    in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
        let some = object(w, 21, orders(0, 4));
        map(w.space, AT, 64, &some, 0);
        touch(w.space, AT + 20 * PAGE).unwrap();
        assert_eq!(some.nr_resident_pages(), 1, "no larger one ends before page 21");
        touch(w.space, AT + 17 * PAGE).unwrap();
        assert_eq!(some.nr_resident_pages(), 5, "four end before page 20");
        some.write(0, b"x").unwrap();
        assert_eq!(some.nr_resident_pages(), 21);
        let least = object(w, 21, orders(3, 4));
        least.write(20 * PAGE, b"x").unwrap();
        assert_eq!(least.nr_resident_pages(), 8);
        least.set_size_bytes(17 * PAGE);
        assert_eq!((least.nr_resident_pages(), content(&least, 16 * PAGE)), (8, [0]));
        least.set_size_bytes(16 * PAGE);
        assert_eq!(least.nr_resident_pages(), 0, "what is beyond the end goes with the rest");
        check(w.vm, &[w.space]);
    });
}

/// No frames are adjacent: a size that need not be is smaller, the least one is refused.
#[test]
fn fragmented_memory_gives_smaller_sizes_or_none() {
    let vm = Setup::PLAIN.vm(1, 32 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = &vm.new_space().unwrap();
    let [any, least] = [orders(0, 5), orders(5, 5)].map(|orders| vm.new_shared_object_of(64 * PAGE, orders).unwrap());
    // Single frames are free, in runs of a few at most.
    vm.age(16, 7);
    map(space, AT, 64, &any, 0);
    touch(space, AT).unwrap();
    assert!((1..32).contains(&any.nr_resident_pages()));
    map(space, AT + (1 << 30), 64, &least, 0);
    assert_eq!(touch(space, AT + (1 << 30)), Err(FaultError::OutOfFrames));
    assert!(least.write(0, b"x").is_err());
    assert_eq!(least.nr_resident_pages(), 0);
    check(&vm, &[space]);
}

/// A pin holds all of its folio.
#[test]
fn a_pinned_folio_is_not_cut() {
    in_each_setup(1, 32 << 20, |w| {
        let object = object(w, 32, orders(0, 4));
        map(w.space, AT, 32, &object, 0);
        (0..16).for_each(|page| object.write(page * PAGE, &[page as u8 + 1; 8]).unwrap());
        let pin = w.space.pin_page(AT + 5 * PAGE, softfault::Term::Long).unwrap();
        check(w.vm, &[w.space]);
        object.discard(4..8);
        check(w.vm, &[w.space]);
        assert_eq!(object.nr_resident_pages(), 16, "the pages are zero, and stay");
        assert_eq!((bytes(w.space, AT + 5 * PAGE), bytes(w.space, AT + 8 * PAGE)), ([0; 8], [9; 8]));
        let mut seen = [1; 8];
        pin.read(0, &mut seen);
        assert_eq!(seen, [0; 8]);
        object.write(6 * PAGE, &[99; 8]).unwrap();
        // All of it goes: the pin keeps it.
        let nr_free = w.vm.vmstat().nr_free_pages;
        object.discard(0..32);
        assert_eq!((object.nr_resident_pages(), w.vm.vmstat().nr_free_pages), (0, nr_free));
        check(w.vm, &[w.space]);
        drop(pin);
        assert_eq!(w.vm.vmstat().nr_free_pages, nr_free + 16);
        check(w.vm, &[w.space]);
        // Without a pin a cut frees what goes.
        (0..16).for_each(|page| object.write(page * PAGE, &[page as u8 + 1; 8]).unwrap());
        object.discard(3..8);
        assert_eq!(object.nr_resident_pages(), 11);
        check(w.vm, &[w.space]);
        (0..16).for_each(|page| {
            let expected = if (3..8).contains(&page) { 0 } else { page as u8 + 1 };
            assert_eq!(bytes(w.space, AT + page * PAGE), [expected; 8], "page {page}");
        });
    });
}

/// Random steps against a list of bytes.
#[test]
fn what_is_written_stays_whatever_is_cut() {
    const NR: u64 = 600;
    let sizes = [(0, 0), (0, 3), (0, 9), (1, 4), (2, 2), (3, 9)];
    for (seed, (least, most)) in (1..).zip(sizes) {
        in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
            let mut random = Random::new(seed);
            let object = object(w, NR, orders(least, most));
            let other = w.vm.new_space().unwrap();
            for space in [w.space, &other] {
                map(space, AT, NR, &object, 0);
            }
            let (mut model, mut nr_pages) = (vec![0u8; NR as usize], NR);
            let mut pins = vec![];
            for step in 0..400u64 {
                let page = random.below(NR);
                let space = if random.chance(50) { w.space } else { &other };
                match random.below(10) {
                    0..4 if page < nr_pages => {
                        model[page as usize] = step as u8 | 1;
                        space.write(AT + page * PAGE, &[step as u8 | 1]).unwrap();
                    }
                    4 if page < nr_pages => {
                        model[page as usize] = step as u8 | 1;
                        object.write(page * PAGE, &[step as u8 | 1]).unwrap();
                    }
                    5 | 6 => {
                        let end = (page + 1 + random.below(40)).min(NR);
                        object.discard(page..end);
                        model[page as usize..end.min(nr_pages).max(page) as usize].fill(0);
                    }
                    7 if random.chance(20) => {
                        nr_pages = page + 1;
                        object.set_size_bytes(nr_pages * PAGE);
                        model[nr_pages as usize..].fill(0);
                    }
                    8 if page < nr_pages && pins.len() < 6 => {
                        pins.push(space.pin_page(AT + page * PAGE, softfault::Term::Short).unwrap());
                    }
                    9 if !pins.is_empty() => drop(pins.swap_remove(0)),
                    _ => _ = space.handle_fault(AT + page * PAGE, Access::Read),
                }
                let at = random.below(nr_pages);
                assert_eq!(content(&object, at * PAGE), [model[at as usize]], "seed {seed}, step {step}, page {at}");
                if step.is_multiple_of(7) {
                    check(w.vm, &[w.space, &other]);
                }
            }
            for page in 0..nr_pages {
                assert_eq!(bytes(w.space, AT + page * PAGE), [model[page as usize]], "seed {seed}, page {page}");
            }
            pins.clear();
            check(w.vm, &[w.space, &other]);
            w.space.munmap(AT, NR * PAGE).unwrap();
        });
    }
}

/// A folio is used and written as one, also in parts.
#[test]
fn parts_of_a_written_folio_are_dirty() {
    in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
        let object = object(w, 16, orders(4, 4));
        map(w.space, AT, 16, &object, 0);
        w.space.handle_fault(AT + 3 * PAGE, Access::Read).unwrap();
        let state = |page| object.object_page_state(page).unwrap();
        assert!(state(9).mapped && state(9).referenced && !state(9).dirty);
        w.space.write(AT + 4 * PAGE, b"x").unwrap();
        w.space.munmap(AT, 16 * PAGE).unwrap();
        assert!(state(0).dirty && state(15).dirty);
        let read = self::object(w, 16, orders(4, 4));
        map(w.space, AT, 16, &read, 0);
        w.space.handle_fault(AT, Access::Read).unwrap();
        assert!(!read.object_page_state(0).unwrap().dirty);
        read.discard(8..9);
        assert!(read.object_page_state(0).unwrap().dirty, "zeroes were written in place of a hole");
        let object = self::object(w, 16, orders(0, 4));
        map(w.space, AT, 16, &object, 0);
        w.space.write(AT + 4 * PAGE, b"x").unwrap();
        object.discard(8..9);
        assert!([0, 7, 9, 15].iter().all(|page| object.object_page_state(*page).unwrap().dirty));
    });
}

/// The bytes of a folio do not show in the next one, of whatever size.
#[test]
fn folios_are_zero_when_they_come() {
    in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
        for order in [1, 4, 8, 9] {
            let nr_pages = 1 << order;
            for round in 0..20 {
                let object = object(w, nr_pages, orders(order, order));
                map(w.space, AT, nr_pages, &object, 0);
                (0..nr_pages).for_each(|page| {
                    assert_eq!(bytes(w.space, AT + page * PAGE + 4088), [0; 8], "order {order}, round {round}");
                    w.space.write(AT + page * PAGE + 4088, &[9; 8]).unwrap();
                });
                check(w.vm, &[w.space]);
                w.space.munmap(AT, nr_pages * PAGE).unwrap();
            }
        }
    });
}

/// A discard goes in parts: none of them ends within a folio.
#[test]
fn a_folio_that_begins_before_a_part_ends_goes_with_it() {
    in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
        let far = (128 << 20) / PAGE;
        let object = object(w, far + 64, orders(4, 4));
        [5, far + 5].iter().for_each(|page| object.write(page * PAGE, b"x").unwrap());
        assert_eq!(object.nr_resident_pages(), 32);
        object.discard(5..far + 64);
        assert_eq!(object.nr_resident_pages(), 16, "the first loses pages, and is of the least size");
        check(w.vm, &[w.space]);
    });
}

/// A store through an entry of a tail is the folio's.
#[test]
fn the_dirty_bit_of_a_tails_entry_is_the_folios() {
    in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
        for discards in [false, true] {
            let object = object(w, 16, orders(0, 4));
            map(w.space, AT, 16, &object, 0);
            {
                let running = w.cpu.enter(w.space).unwrap();
                running.read_u64(AT + 6 * PAGE).unwrap();
                assert!(!object.object_page_state(6).unwrap().dirty);
                running.write_u64(AT + 6 * PAGE, 1).unwrap();
            }
            if discards {
                object.discard(9..10);
            } else {
                w.space.munmap(AT, 16 * PAGE).unwrap();
            }
            assert!(object.object_page_state(0).unwrap().dirty);
        }
    });
}

/// Whatever allocation fails, nothing is kept of it.
#[test]
fn the_kth_allocation_fails() {
    in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
        for (least, most) in [(0, 4), (4, 4), (9, 9)] {
            for k in 0..12 {
                let object = object(w, 600, orders(least, most));
                map(w.space, AT, 600, &object, 0);
                w.vm.fail_allocation(Some(k));
                let touched = touch(w.space, AT + 3 * PAGE);
                let _ = object.write(590 * PAGE, b"x");
                w.vm.fail_allocation(None);
                assert!(matches!(touched, Ok(()) | Err(FaultError::OutOfFrames)), "{touched:?}");
                check(w.vm, &[w.space]);
                touch(w.space, AT + 3 * PAGE).unwrap();
                object.write(590 * PAGE, b"x").unwrap();
                w.space.munmap(AT, 600 * PAGE).unwrap();
            }
        }
    });
}

/// A folio has one age: a use of any page is its use, and parts of it are as old as it was.
#[test]
fn a_folio_has_the_age_of_its_head() {
    in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
        let object = object(w, 16, orders(0, 4));
        map(w.space, AT, 16, &object, 0);
        w.space.handle_fault(AT + 5 * PAGE, Access::Read).unwrap();
        let later = || while w.vm.advance_generation(u64::MAX) != Advance::Done {};
        assert_eq!(w.vm.idle_pages(0), 16);
        later();
        assert_eq!(w.vm.idle_pages(1), 16);
        // The entry of a tail is accessed.
        assert_eq!(w.space.age_pages(AT, 512).nr_young, 1);
        assert_eq!(w.vm.idle_pages(1), 0);
        later();
        w.space.read(AT + 5 * PAGE, &mut [0]).unwrap();
        assert_eq!(w.space.test_and_clear_young(AT, 16 * PAGE), 1);
        assert_eq!(w.vm.idle_pages(1), 0, "who clears the bit of a tail notes the head");
        later();
        later();
        object.discard(8..9);
        assert_eq!([0, 1, 2, 3].map(|age| w.vm.idle_pages(age)), [15, 15, 15, 0]);
        assert_eq!(object.read(13 * PAGE, &mut [0]), 1);
        assert_eq!(w.vm.idle_pages(1), 11, "four pages from page 12 on were read");
        // The accessed bit of an entry that goes is a use.
        w.space.handle_fault(AT + 2 * PAGE, Access::Read).unwrap();
        w.space.munmap(AT, 16 * PAGE).unwrap();
        assert_eq!(w.vm.idle_pages(1), 3, "and eight to page 7");
        later();
        check(w.vm, &[w.space]);
    });
}

/// A pinned folio stays whole when its object shrinks. Bytes that the holder of the pin stores beyond
/// the end is gone when the object grows.
#[test]
fn an_object_that_grows_is_zero_beyond_its_old_end() {
    in_each_setup(1, 32 << 20, |w| {
        for most in [0, 4] {
            let object = object(w, 16, orders(0, most));
            map(w.space, AT, 16, &object, 0);
            let pin = w.space.pin_page_mut(AT + 12 * PAGE, Term::Short).unwrap();
            object.set_size_bytes(4 * PAGE);
            pin.write(0, b"stale!!!");
            object.set_size_bytes(16 * PAGE);
            assert_eq!(content::<8>(&object, 12 * PAGE), [0; 8], "most {most}");
            drop(pin);
            w.space.munmap(AT, 16 * PAGE).unwrap();
        }
    });
}

/// Pages that stayed beyond the end because of a pin go when they can.
#[test]
fn what_is_beyond_the_end_can_be_discarded() {
    in_each_setup(1, 32 << 20, |w| {
        for shrink in [false, true] {
            let object = object(w, 512, orders(0, 9));
            map(w.space, AT, 512, &object, 0);
            object.write(0, b"x").unwrap();
            let pin = w.space.pin_page(AT, Term::Short).unwrap();
            object.set_size_bytes(4 * PAGE);
            drop(pin);
            assert_eq!(object.nr_resident_pages(), 512);
            if shrink {
                object.set_size_bytes(3 * PAGE)
            } else {
                object.discard(4..512)
            }
            assert_eq!(object.nr_resident_pages(), if shrink { 3 } else { 4 });
            check(w.vm, &[w.space]);
            w.space.munmap(AT, 512 * PAGE).unwrap();
        }
    });
}
