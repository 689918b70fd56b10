//! Pages of pools: copies of private ones, of an object's, and those of fork(2). Page and claim go back to the pool.

use super::common::objects::whole;
use super::common::{FIXED, PAGE, PRIVATE, RW, Setup, World, check};
use super::{Failing, pages, run_with, store};
use softfault::{Access, Event, FaultError, MapFlags, MigrateRefusal, Order, Term};

const AT: u64 = 0x10_0000_0000;
const HUGE: u64 = 512 * PAGE;
const OWN: MapFlags = PRIVATE.union(MapFlags::HUGETLB);
const NR_PAGES: u64 = 3;
const NR_BEFORE: [u64; 4] = [0, 5, 511, 512];

/// Free pages, and those that are promised.
fn free(w: &World<'_>) -> (u64, u64) {
    let counts = w.vm.hugetlb_counts(Order::PMD).unwrap();
    (counts.free, counts.reserved)
}

/// Runs the test on a machine with a pool, which is whole in the end.
fn with_pool(test: impl Fn(&World<'_>, &Failing)) {
    for setup in Setup::all() {
        for nr_before in NR_BEFORE {
            let has_failed = run_with(&setup.vm(1, 32 << 20), nr_before, &|w: &World<'_>, failing: &Failing| {
                assert_eq!(w.vm.set_nr_hugepages(Order::PMD, NR_PAGES), Ok(NR_PAGES));
                test(w, failing);
                w.space.munmap(AT, HUGE).unwrap();
                assert_eq!(free(w), (NR_PAGES, 0));
                assert_eq!(w.vm.set_nr_hugepages(Order::PMD, 0), Ok(0));
            });
            assert_eq!(has_failed, nr_before < 512, "copy {nr_before}");
        }
    }
}

/// Stores once more where a store was refused: with the same claim, and memory that can be read.
fn store_again(w: &World<'_>, space: &super::Space<'_>, is_told: bool, before: (u64, u64)) {
    if is_told {
        assert_eq!((free(w), pages(space, AT, 1)), (before, vec![Some(7)]), "as before");
        assert!(!store(space, AT, 8));
    }
    assert_eq!(pages(space, AT, 2), [Some(8), Some(0)]);
}

#[test]
fn a_private_page_that_cannot_be_copied() {
    with_pool(|w, failing| {
        w.space.mmap(AT, HUGE, RW, OWN | FIXED).unwrap();
        w.space.write(AT, &[7]).unwrap();
        let child = w.space.fork().unwrap();
        let before = free(w);
        let is_told = failing.run(w, || store(&child, AT, 8));
        assert_eq!((is_told, w.vm.event(Event::CopyFailed)), (failing.has_failed(), is_told.into()));
        check(w.vm, &[w.space, &child]);
        store_again(w, &child, is_told, before);
        assert_eq!(pages(w.space, AT, 1), [Some(7)]);
        check(w.vm, &[w.space, &child]);
    });
}

/// Shown by the mapping or not, with a claim or without.
#[test]
fn a_page_of_an_object_that_cannot_be_copied() {
    for (is_shown, more) in [
        (false, MapFlags::empty()),
        (true, MapFlags::empty()),
        (false, MapFlags::NORESERVE),
        (true, MapFlags::NORESERVE),
    ] {
        with_pool(|w, failing| {
            let object = w.vm.new_hugetlb_object(HUGE, Order::PMD).unwrap();
            object.write(0, &[7]).unwrap();
            let flags = MapFlags::PRIVATE | FIXED | more;
            w.space.mmap_object(AT, HUGE, RW, flags, whole(&object)).unwrap();
            if is_shown {
                w.space.handle_fault(AT, Access::Read).unwrap();
            }
            let before = free(w);
            let is_told = failing.run(w, || store(w.space, AT, 8));
            assert_eq!(is_told, failing.has_failed());
            check(w.vm, &[w.space]);
            store_again(w, w.space, is_told, before);
            let mut byte = [0];
            assert_eq!((object.read(0, &mut byte), byte), (1, [7]));
            w.space.munmap(AT, HUGE).unwrap();
        });
    }
}

/// A move reads all of the page: it stays where it is, with its claims.
#[test]
fn a_page_that_cannot_move() {
    for is_file in [false, true] {
        with_pool(|w, failing| {
            let object = w.vm.new_hugetlb_object(HUGE, Order::PMD).unwrap();
            if is_file {
                w.space.mmap_object(AT, HUGE, RW, MapFlags::SHARED | FIXED, whole(&object)).unwrap();
            } else {
                w.space.mmap(AT, HUGE, RW, OWN | FIXED).unwrap();
            }
            w.space.write(AT, &[7]).unwrap();
            let old = w.space.translate_at_rest(AT).unwrap().pfn;
            let child = w.space.fork().unwrap();
            let before = (free(w), w.vm.vmstat().nr_free_pages);
            let mut result = Ok(old);
            failing.run(w, || {
                result = w.vm.migrate_frame(old);
                false
            });
            check(w.vm, &[w.space, &child]);
            assert_eq!(result.err(), failing.has_failed().then_some(MigrateRefusal::SourceFailed));
            assert_eq!((free(w), w.vm.vmstat().nr_free_pages), before);
            assert_eq!([w.space, &child].map(|space| pages(space, AT, 1)), [vec![Some(7)], vec![Some(7)]]);
            let now = w.space.translate_at_rest(AT).unwrap().pfn;
            assert_eq!(now == old, failing.has_failed());
            drop(child);
            w.space.munmap(AT, HUGE).unwrap();
        });
    }
}

/// The child has no page, and the pool has the one that was meant for it.
#[test]
fn a_fork_that_cannot_copy_a_pinned_page() {
    with_pool(|w, failing| {
        w.space.mmap(AT, HUGE, RW, OWN | FIXED).unwrap();
        w.space.write(AT, &[7]).unwrap();
        let pin = w.space.pin_page_mut(AT + PAGE, Term::Short).unwrap();
        let child = failing.run(w, || w.space.fork().unwrap());
        check(w.vm, &[w.space, &child]);
        let expected = if failing.has_failed() { Err(FaultError::Taken) } else { Ok(()) };
        assert_eq!(child.handle_fault(AT, Access::Read).map(drop), expected, "as where the pool has none for it");
        assert_eq!(free(w), (if failing.has_failed() { 2 } else { 1 }, 0));
        pin.write(0, &[9]);
        drop(pin);
        assert_eq!(pages(w.space, AT, 2), [Some(7), Some(9)]);
    });
}
