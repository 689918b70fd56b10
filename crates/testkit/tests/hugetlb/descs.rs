//! Descriptors of the tails of a pool's pages: free memory while a page is in the pool, and there again before it leaves.

use super::common::objects::{bytes, touch, whole};
use super::common::*;
use super::{AT, HUGE, SHARED, counts, free, map, object, pool};
use softfault::{Errno, Event, MapFlags, Order, Term};

/// The figure of the issue: at most 4 KiB of descriptors stay with a page of 2 MiB. All come back.
#[test]
fn three_frames_of_each_page_are_free() {
    in_each_setup(1, 64 << 20, |w| {
        let before = w.vm.vmstat();
        pool(w, 10);
        check(w.vm, &[w.space]);
        let then = w.vm.vmstat();
        assert_eq!(before.nr_free_pages - then.nr_free_pages, 10 * 512 - 30);
        assert_eq!((then.nr_total_pages - before.nr_total_pages, w.vm.event(Event::TailDescsFreed)), (30, 30));
        pool(w, 4);
        assert_eq!(before.nr_free_pages - w.vm.vmstat().nr_free_pages, 4 * 512 - 12);
        check(w.vm, &[w.space]);
        pool(w, 0);
        let after = w.vm.vmstat();
        assert_eq!((after.nr_free_pages, after.nr_total_pages), (before.nr_free_pages, before.nr_total_pages));
        check(w.vm, &[w.space]);
    });
}

/// Faults, pins, holes and forks, while the frames that had the descriptors are others' and full of ones.
#[test]
fn pages_are_used_without_them() {
    in_each_setup(1, 24 << 20, |w| {
        pool(w, 2);
        let others = w.vm.new_space().unwrap();
        let nr_others = w.vm.vmstat().nr_free_pages - 200;
        others.mmap(BASE, nr_others * PAGE, RW, PRIVATE | FIXED).unwrap();
        (0..nr_others).for_each(|page| others.write(BASE + page * PAGE, &[0xff; PAGE as usize]).unwrap());
        let shared = object(w, 2);
        map(w, AT, 2, &shared, 0, MapFlags::empty()).unwrap();
        (0..1024).for_each(|page| w.space.write(AT + page * PAGE, &(page + 7).to_le_bytes()).unwrap());
        check(w.vm, &[w.space, &others]);
        let pin = w.space.pin_page_mut(AT + 300 * PAGE, Term::Long).unwrap();
        let child = w.space.fork().unwrap();
        shared.zero(PAGE..3 * PAGE).unwrap();
        assert_eq!((bytes(&child, AT), bytes(&child, AT + 2 * PAGE)), (7_u64.to_le_bytes(), [0; 8]));
        pin.write(0, &[9; 8]);
        shared.set_size_bytes(HUGE);
        assert_eq!((free(w), bytes(&child, AT + 300 * PAGE)), ((1, 0), [9; 8]));
        drop((pin, child));
        check(w.vm, &[w.space, &others]);
        drop(others);
        w.space.munmap(AT, 2 * HUGE).unwrap();
        drop(shared);
        pool(w, 0);
    });
}

/// Without frames for the descriptors a page stays in the pool, and the counts are as they were.
#[test]
fn a_page_stays_without_frames_for_them() {
    in_each_setup(1, 24 << 20, |w| {
        pool(w, 2);
        for k in 0..3 {
            let before = w.vm.vmstat();
            w.vm.fail_allocation(Some(k));
            assert_eq!(w.vm.set_nr_hugepages(Order::PMD, 1).unwrap_err().errno(), Errno::ENOMEM, "{k}");
            w.vm.fail_allocation(None);
            assert_eq!((counts(w).nr, counts(w).surplus, free(w)), (2, 0, (2, 0)));
            assert_eq!(w.vm.vmstat().nr_free_pages, before.nr_free_pages, "{k}");
            check(w.vm, &[w.space]);
        }
        // Used pages become surplus, and go when they are freed, if they can.
        let shared = object(w, 2);
        w.space.mmap_object(AT, 2 * HUGE, RW, SHARED | FIXED, whole(&shared)).unwrap();
        (0..2).for_each(|page| touch(w.space, AT + page * HUGE).unwrap());
        pool(w, 0);
        assert_eq!((counts(w).nr, counts(w).surplus), (2, 2));
        w.vm.fail_allocation(Some(4));
        shared.set_size_bytes(0);
        w.vm.fail_allocation(None);
        assert_eq!((counts(w).nr, counts(w).surplus, free(w)), (1, 1, (1, 0)), "one has gone");
        check(w.vm, &[w.space]);
        pool(w, 0);
        assert_eq!((counts(w).nr, counts(w).surplus), (0, 0), "and the other when the pool is set");
        w.space.munmap(AT, 2 * HUGE).unwrap();
        check(w.vm, &[w.space]);
    });
}
