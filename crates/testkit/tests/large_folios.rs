//! Folios of objects that are one word of the tree: 2 MiB. How they come, are cut, and go.
#![deny(unsafe_code)]

mod common;

use common::objects::{content, map, object, orders, touch};
use common::*;
use softfault::{FaultError, Term};
use softfault_testkit::random::Random;

const AT: u64 = 0x20_0000_0000;
const LARGE: u64 = 512;

/// The tree has no node for its pages, wherever it lies.
#[test]
fn a_folio_is_one_word() {
    in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
        for (at, nr_nodes) in [(0, 1), (LARGE * 511, 1), (LARGE * 512, 2), (LARGE << 20, 3)] {
            let object = object(w, at + LARGE, orders(0, 9));
            let before = nr_free(w);
            object.write((at + 7) * PAGE, b"x").unwrap();
            assert_eq!((object.nr_resident_pages(), before - nr_free(w)), (LARGE, LARGE + nr_nodes), "{at}");
            assert_eq!(object.next_resident(0..u64::MAX), Some(at));
            assert_eq!(object.next_resident(at + 9..u64::MAX), Some(at + 9));
            check(w.vm, &[w.space]);
            object.discard(at..at + LARGE);
            assert_eq!((object.nr_resident_pages(), before - nr_free(w)), (0, nr_nodes));
        }
    });
}

/// One node is what a cut takes. Where there is none the folio stays, and is zero where it should
/// have gone.
#[test]
fn a_cut_that_gets_no_node_leaves_the_folio_whole() {
    in_each_setup(1, 32 << 20, |w| {
        let object = object(w, LARGE, orders(0, 9));
        map(w.space, AT, LARGE, &object, 0);
        (0..LARGE).for_each(|page| object.write(page * PAGE, &[page as u8 | 1; 8]).unwrap());
        (0..LARGE).for_each(|page| touch(w.space, AT + page * PAGE).unwrap());
        let before = nr_free(w);
        w.vm.fail_allocation(Some(0));
        object.discard(8..13);
        w.vm.fail_allocation(None);
        assert_eq!((object.nr_resident_pages(), nr_free(w)), (LARGE, before));
        let is_right = |goes: std::ops::Range<u64>| {
            (0..LARGE).for_each(|page| {
                let expected = if goes.contains(&page) { 0 } else { page as u8 | 1 };
                assert_eq!(content(&object, page * PAGE), [expected; 8], "page {page}");
            });
        };
        is_right(8..13);
        check(w.vm, &[w.space]);
        object.discard(8..13);
        assert_eq!((object.nr_resident_pages(), nr_free(w)), (LARGE - 5, before + 5 - 1));
        is_right(8..13);
        check(w.vm, &[w.space]);
        // The rest is cut without a node.
        w.vm.fail_allocation(Some(0));
        object.discard(6..40);
        w.vm.fail_allocation(None);
        assert_eq!((object.nr_resident_pages(), nr_free(w)), (LARGE - 34, before + 34 - 1));
        is_right(6..40);
        check(w.vm, &[w.space]);
        w.space.munmap(AT, LARGE * PAGE).unwrap();
    });
}

/// A range that begins in one folio and ends in another cuts both, and takes all between.
#[test]
fn both_ends_of_a_range_are_cut() {
    in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
        let object = object(w, 4 * LARGE, orders(0, 9));
        (0..4).for_each(|i| object.write(i * LARGE * PAGE, b"x").unwrap());
        let before = nr_free(w);
        object.discard(100..3 * LARGE + 3);
        assert_eq!((object.nr_resident_pages(), nr_free(w) - before), (100 + 509, 3 * LARGE - 97 - 2));
        check(w.vm, &[w.space]);
        // Both ends in one.
        object.write(LARGE * PAGE, b"x").unwrap();
        let before = nr_free(w);
        object.discard(LARGE + 1..2 * LARGE - 1);
        assert_eq!(nr_free(w) - before, 510 - 1);
        check(w.vm, &[w.space]);
        // No node is taken where nothing leaves memory, or a whole folio does.
        let whole = self::object(w, 2 * LARGE, orders(9, 9));
        whole.write(0, b"x").unwrap();
        let before = nr_free(w);
        whole.discard(1..5);
        whole.discard(LARGE - 1..LARGE);
        assert_eq!(nr_free(w), before);
        object.discard(0..4 * LARGE);
        assert_eq!(object.nr_resident_pages(), 0);
        // The nodes stay: pages there are smaller from now on.
        object.write(0, b"x").unwrap();
        assert_eq!(object.nr_resident_pages(), LARGE / 2);
        check(w.vm, &[w.space]);
    });
}

/// mincore(2) sees each page of it, also where few are asked for, or mapped.
#[test]
fn every_page_of_a_folio_is_resident() {
    in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
        let object = object(w, 3 * LARGE, orders(0, 9));
        object.write(LARGE * PAGE, b"x").unwrap();
        map(w.space, AT, 3 * LARGE - 5, &object, 5);
        let mut random = Random::new(3);
        for _ in 0..200 {
            let first = random.below(3 * LARGE - 6);
            let nr = 1 + random.below(3 * LARGE - 5 - first);
            let mut seen = vec![];
            w.space
                .mincore(AT + first * PAGE, nr * PAGE, &mut |nr, is_there| seen.extend((0..nr).map(|_| is_there)))
                .unwrap();
            let expected: Vec<bool> = (first + 5..first + nr + 5).map(|page| page / LARGE == 1).collect();
            assert_eq!(seen, expected, "{nr} from {first}");
        }
        w.space.munmap(AT, (3 * LARGE - 5) * PAGE).unwrap();
    });
}

/// Whatever allocation fails on the way to a folio, or to one of the cuts, nothing is kept of it.
#[test]
fn the_kth_allocation_of_a_fill_or_a_cut_fails() {
    in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
        for k in 0..8 {
            let object = object(w, LARGE << 10, orders(0, 9));
            map(w.space, AT, 2 * LARGE, &object, LARGE * 600);
            w.vm.fail_allocation(Some(k));
            let touched = touch(w.space, AT + 3 * PAGE);
            object.discard(LARGE * 600 + 9..LARGE * 600 + 11);
            w.vm.fail_allocation(None);
            assert!(matches!(touched, Ok(()) | Err(FaultError::OutOfFrames)), "{touched:?}");
            check(w.vm, &[w.space]);
            touch(w.space, AT + LARGE * PAGE).unwrap();
            assert_eq!(content(&object, (LARGE * 600 + 9) * PAGE), [0; 8]);
            w.space.munmap(AT, 2 * LARGE * PAGE).unwrap();
        }
    });
}

/// A pin keeps a folio whole; the last one gives back all of it after it has left.
#[test]
fn a_pinned_folio_stays_one_word() {
    in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
        let object = object(w, LARGE, orders(0, 9));
        map(w.space, AT, LARGE, &object, 0);
        touch(w.space, AT + 300 * PAGE).unwrap();
        let pin = w.space.pin_page(AT + 300 * PAGE, Term::Short).unwrap();
        let before = nr_free(w);
        object.discard(4..8);
        assert_eq!((object.nr_resident_pages(), nr_free(w)), (LARGE, before));
        object.discard(0..LARGE);
        assert_eq!((object.nr_resident_pages(), nr_free(w)), (0, before));
        check(w.vm, &[w.space]);
        drop(pin);
        assert_eq!(nr_free(w), before + LARGE);
        w.space.munmap(AT, LARGE * PAGE).unwrap();
    });
}
