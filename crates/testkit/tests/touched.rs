//! Which pages of an object were touched since a mark.
#![deny(unsafe_code)]
#![allow(clippy::single_range_in_vec_init)] // what is reported are runs

mod common;

use common::files::{Reads, file};
use common::objects::{EXTRA, Object, map, object, orders};
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::{Access, Advice, Term};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

const BASE_ORDERS: FolioOrders = FolioOrders::BASE;
const PAGES: u64 = 16;

fn touched(object: &Object<'_>) -> Vec<std::ops::Range<u64>> {
    let mut runs = Vec::new();
    object.touched(0..PAGES, &mut |run| runs.push(run));
    runs
}

/// By mappings of two programs, the handle and pins, and through entries that are there; neighbours that a fault maps are not touched.
#[test]
fn each_kind_of_touch_is_reported() {
    in_each_setup(1, 16 << 20, |w| {
        let object = object(w, PAGES, BASE_ORDERS);
        (0..PAGES).for_each(|page| object.write(page * PAGE, &[1]).unwrap());
        assert_eq!(touched(&object), [0..PAGES]);
        map(w.space, BASE, PAGES, &object, 0);
        let child = w.space.fork().unwrap();
        object.mark_untouched();
        assert_eq!(touched(&object), []);
        child.handle_fault(BASE + 2 * PAGE, Access::Read).unwrap();
        assert_eq!(touched(&object), [2..3], "not what was mapped around it");
        w.cpu.enter(&child).unwrap().load(BASE + 2 * PAGE, &mut [0]).unwrap();
        w.cpu.enter(&child).unwrap().load(BASE + 3 * PAGE, &mut [0]).unwrap();
        object.read(7 * PAGE, &mut [0]);
        object.write(8 * PAGE, &[2]).unwrap();
        drop(w.space.pin_page(BASE + 10 * PAGE, Term::Short).unwrap());
        w.space.write(BASE + 15 * PAGE, &[3]).unwrap();
        assert_eq!(touched(&object), [2..4, 7..9, 10..11, 15..16]);
        assert_eq!(touched(&object), [2..4, 7..9, 10..11, 15..16], "a report changes nothing");
        let mut part = Vec::new();
        object.touched(3..8, &mut |run| part.push(run));
        assert_eq!(part, [3..4, 7..8]);
        object.mark_untouched();
        // Through entries that a fault on another page has made.
        let running = w.cpu.enter(w.space).unwrap();
        running.load(BASE, &mut [0]).unwrap();
        running.load(BASE + PAGE, &mut [0]).unwrap();
        drop(running);
        assert_eq!(touched(&object), [0..2]);
        check(w.vm, &[w.space, &child]);
    });
}

/// Marks of pages survive reclaim, compaction and splits.
#[test]
fn marks_stay_with_their_pages() {
    in_each_setup(1, 16 << 20, |w| {
        let (_file, read) = file(w, PAGES * PAGE, BASE_ORDERS);
        (0..PAGES).for_each(|page| assert_eq!(read.read(page * PAGE, &mut [0]), 1));
        map(w.space, EXTRA, PAGES, &read, 0);
        read.mark_untouched();
        let heads = [4, 5].map(|page| {
            w.space.handle_fault(EXTRA + page * PAGE, Access::Read).unwrap();
            frame_of(w.space, EXTRA + page * PAGE)
        });
        // The front hand forgets uses.
        w.vm.look_at_clean_folio(heads[0]);
        w.vm.migrate_frame(heads[1]).unwrap();
        assert_eq!(touched(&read), [4..6]);
        w.space.munmap(EXTRA, PAGES * PAGE).unwrap();
        assert_eq!(touched(&read), [4..6]);
        read.discard(4..5);
        read.read(4 * PAGE, &mut [0]);
        read.mark_untouched();
        read.discard(4..5);
        assert_eq!(touched(&read), []);

        let folios = object(w, PAGES, orders(2, 2));
        (0..PAGES).for_each(|page| folios.write(page * PAGE, &[1]).unwrap());
        folios.mark_untouched();
        folios.read(5 * PAGE, &mut [0]);
        assert_eq!(touched(&folios), [4..8], "folios count as a whole");
        let halves = object(w, PAGES, orders(0, 2));
        halves.write(0, &[1]).unwrap();
        halves.mark_untouched();
        halves.read(0, &mut [0]);
        halves.discard(0..1);
        assert_eq!(touched(&halves), [1..4], "the rest of the folio is in other frames");
    });
}

/// A CPU that clears an accessed bit notes the touch in the page.
#[test]
fn ages_and_advice_forget_no_touch() {
    in_each_setup(1, 16 << 20, |w| {
        let (_file, object) = file(w, PAGES * PAGE, BASE_ORDERS);
        (0..PAGES).for_each(|page| assert_eq!(object.read(page * PAGE, &mut [0]), 1));
        map(w.space, BASE, PAGES, &object, 0);
        let forget: [&dyn Fn(); 3] = [
            &|| assert_eq!(w.space.madvise(BASE, PAGES * PAGE, Advice::Cold), Ok(())),
            &|| assert!(w.space.age_pages(BASE, PAGES).nr_young > 0),
            &|| assert!(w.space.test_and_clear_young(BASE, PAGES * PAGE) > 0),
        ];
        for forget in forget {
            object.mark_untouched();
            let running = w.cpu.enter(w.space).unwrap();
            // The second one through an entry that the first fault has made.
            (2..4).for_each(|page| running.load(BASE + page * PAGE, &mut [0]).unwrap());
            drop(running);
            forget();
            assert_eq!(touched(&object), [2..4]);
        }
        // Of private pages nobody keeps a record, and their counts stay.
        w.space.mmap(EXTRA, PAGES * PAGE, RW, PRIVATE | FIXED).unwrap();
        w.space.write(EXTRA, &[1]).unwrap();
        w.space.age_pages(EXTRA, PAGES);
        w.space.write(EXTRA, &[1]).unwrap();
        w.space.test_and_clear_young(EXTRA, PAGES * PAGE);
        check(w.vm, &[w.space]);
    });
}

/// Its page is not in memory yet.
#[test]
fn a_read_that_never_ends_is_not_waited_for() {
    in_each_setup(1, 16 << 20, |w| {
        let (file, object) = file(w, PAGES * PAGE, BASE_ORDERS);
        map(w.space, BASE, PAGES, &object, 0);
        object.read(5 * PAGE, &mut [0]);
        file.set(Reads::Stay);
        w.space.madvise(BASE, 4 * PAGE, Advice::WillNeed).unwrap();
        assert!(file.nr_kept() > 0);
        object.mark_untouched();
        assert_eq!(touched(&object), []);
        while file.nr_kept() > 0 {
            file.end_one(w.vm, Ok(()));
        }
        check(w.vm, &[w.space]);
    });
}

/// A page that is touched again and again beside marks and reports is in the report that follows.
#[test]
fn no_touch_is_lost() {
    in_setup(Setup::PLAIN, 3, 16 << 20, |w| {
        let object = object(w, PAGES, BASE_ORDERS);
        (0..PAGES).for_each(|page| object.write(page * PAGE, &[1]).unwrap());
        map(w.space, BASE, PAGES, &object, 0);
        let rounds = [const { AtomicU64::new(0) }; 2];
        let toucher = |i: usize| {
            let rounds = &rounds;
            move |running: &softfault_host::Running<'_>, stop: &AtomicBool| {
                while !stop.load(SeqCst) {
                    running.load(BASE + (3 + 5 * i as u64) * PAGE, &mut [0]).unwrap();
                    rounds[i].fetch_add(1, SeqCst);
                }
            }
        };
        w.race(&[&toucher(0), &toucher(1)], |_| {
            for _ in 0..200 {
                object.mark_untouched();
                let before = rounds.each_ref().map(|nr| nr.load(SeqCst));
                // One that began before the mark may be counted; the next one has not.
                wait_until(|| (0..2).all(|i| rounds[i].load(SeqCst) > before[i] + 1));
                assert_eq!(touched(&object), [3..4, 8..9]);
            }
        });
    });
}
