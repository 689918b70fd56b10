//! Clean folios of files are dropped before an allocation is refused, and others are not.
#![deny(unsafe_code)]

mod common;

use common::files::{content as byte_of, file};
use common::objects::{EXTRA, bytes, map, orders};
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::{Access, Event, MlockFlags, Term};
use softfault_host::Running;
use softfault_testkit::random::Random;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const ARENA_PAGES: u64 = 4096;

/// A file four times as large as memory, by its handle and through a mapping: nobody is refused.
#[test]
fn a_file_larger_than_memory_is_read() {
    for sizes in [FolioOrders::BASE, orders(0, 4)] {
        in_setup(Setup::PLAIN, 1, ARENA_PAGES * PAGE, |w| {
            let nr_pages = 4 * ARENA_PAGES;
            let (_file, object) = file(w, nr_pages * PAGE, sizes);
            for page in 0..nr_pages {
                let mut into = [0];
                assert_eq!(object.read(page * PAGE, &mut into), 1, "page {page}");
                assert_eq!(into, [byte_of(page, 0)]);
            }
            map(w.space, BASE, nr_pages, &object, 0);
            for page in 0..nr_pages {
                assert_eq!(bytes(w.space, BASE + page * PAGE), [byte_of(page, 0)], "page {page}");
            }
            assert!(w.vm.event(Event::FileDropped) > ARENA_PAGES);
            assert_eq!((w.vm.event(Event::RefusedOutOfFrames), w.vm.event(Event::RefusedNotRead)), (0, 0));
            // What programs need comes from the cache, too.
            w.map(EXTRA, ARENA_PAGES / 2, RW);
            (0..ARENA_PAGES / 2).for_each(|page| w.space.write(EXTRA + page * PAGE, &[1]).unwrap());
        });
    }
}

/// What a pin, mlock(2) or a store keeps is there afterwards, in its frame.
#[test]
fn what_is_used_stays() {
    in_setup(Setup::PLAIN, 1, ARENA_PAGES * PAGE, |w| {
        let nr_pages = 2 * ARENA_PAGES;
        let (_file, object) = file(w, nr_pages * PAGE, FolioOrders::BASE);
        map(w.space, BASE, nr_pages, &object, 0);
        w.space.write(BASE, &[0xaa]).unwrap();
        object.write(PAGE, &[0xbb]).unwrap();
        let pin = w.space.pin_page(BASE + 2 * PAGE, Term::Short).unwrap();
        w.space.mlock(BASE + 3 * PAGE, PAGE, MlockFlags::empty()).unwrap();
        let frames: Vec<_> = (0..4)
            .map(|page| {
                w.space.handle_fault(BASE + page * PAGE, Access::Read).unwrap();
                frame_of(w.space, BASE + page * PAGE)
            })
            .collect();
        for page in 4..nr_pages {
            let done = w.space.handle_fault(BASE + page * PAGE, Access::Read);
            assert!(done.is_ok(), "page {page}: {done:?}, {} dropped", w.vm.event(Event::FileDropped));
        }
        assert!(w.vm.event(Event::FileDropped) > ARENA_PAGES / 2);
        for page in 0..4 {
            w.space.handle_fault(BASE + page * PAGE, Access::Read).unwrap();
            assert_eq!(frame_of(w.space, BASE + page * PAGE), frames[page as usize], "page {page}");
        }
        assert_eq!(bytes(w.space, BASE), [0xaa]);
        assert_eq!(bytes(w.space, BASE + PAGE), [0xbb]);
        drop(pin);
    });
}

/// Three CPUs read a file that is larger than memory, store to some of its pages and pin others, while its pages are dropped
/// and discarded: each page shows what was stored last, or what the file has.
#[test]
fn pages_that_are_dropped_come_back_as_they_were() {
    in_setup(Setup::PLAIN, 4, ARENA_PAGES * PAGE, |w| {
        let nr_pages = 2 * ARENA_PAGES;
        let (_file, object) = file(w, nr_pages * PAGE, orders(0, 4));
        map(w.space, BASE, nr_pages, &object, 0);
        // A quarter of the pages belongs to each CPU; one in 64 is stored to, and dirty from then on.
        let read = |running: &Running<'_>, seed: u64, mine: u64, nr: u64| {
            let mut random = Random::new(seed);
            let mut stored = vec![false; nr_pages as usize];
            for _ in 0..nr {
                let page = random.below(nr_pages / 4) * 4 + mine;
                let at = BASE + page * PAGE;
                let mut byte = [0];
                running.load(at, &mut byte).unwrap();
                let expected = if stored[page as usize] { 0xee } else { byte_of(page, 0) };
                assert_eq!(byte[0], expected, "page {page}");
                if page % 256 < 4 {
                    running.store(at, &[0xee]).unwrap();
                    stored[page as usize] = true;
                } else if page % 64 < 4 {
                    drop(w.space.pin_page(at, Term::Short).unwrap());
                }
            }
        };
        let until_stopped = |seed: u64, mine: u64| {
            move |running: &Running<'_>, stop: &AtomicBool| {
                let mut round = 0;
                while !stop.load(SeqCst) && round < 1 {
                    read(running, seed + round, mine, 20_000);
                    round += 1;
                }
            }
        };
        w.race(&[&until_stopped(1, 0), &until_stopped(2, 1), &until_stopped(3, 2)], |running| {
            let mut random = Random::new(9);
            for _ in 0..300 {
                // What nobody stores to.
                let page = random.below(nr_pages / 256) * 256 + 128;
                object.discard(page..page + 1 + random.below(100));
            }
            read(running, 4, 3, 5_000);
        });
        assert!(w.vm.event(Event::FileDropped) > ARENA_PAGES, "{}", w.vm.event(Event::FileDropped));
    });
}
