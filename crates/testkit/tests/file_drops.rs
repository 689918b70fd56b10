//! Clean folios of files are dropped before an allocation is refused, and others are not.
#![deny(unsafe_code)]

mod common;

use common::files::{content as byte_of, file};
use common::objects::{EXTRA, Object, bytes, map, orders};
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::{Access, Event, MlockFlags, Term};
use softfault_host::Running;
use softfault_testkit::random::Random;
use std::cell::Cell;
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
            // The frames that programs need come from the cache, too.
            w.map(EXTRA, ARENA_PAGES / 2, RW);
            (0..ARENA_PAGES / 2).for_each(|page| w.space.write(EXTRA + page * PAGE, &[1]).unwrap());
        });
    }
}

/// A quarter of memory that is read all the time stays while a file of four times the memory goes by; each of its pages is
/// read once for 1,024 pages of the other. Returns the share of these reads that found their page, in percent.
fn hit_percent(w: &World<'_>, sizes: FolioOrders, is_mapped: bool) -> u64 {
    let (nr_hot, nr_pages) = (ARENA_PAGES / 4, 4 * ARENA_PAGES);
    let (hot_file, hot) = file(w, nr_hot * PAGE, sizes);
    let (_file, stream) = file(w, nr_pages * PAGE, sizes);
    map(w.space, BASE, nr_hot, &hot, 0);
    map(w.space, EXTRA, nr_pages, &stream, 0);
    let running = w.cpu.enter(w.space).unwrap();
    let read = |object: &Object<'_>, at: u64, page: u64| {
        let mut byte = [0];
        if is_mapped {
            running.load(at + page * PAGE, &mut byte).unwrap();
        } else {
            object.read(page * PAGE, &mut byte);
        }
        assert_eq!(byte, [byte_of(page, 0)]);
    };
    (0..nr_hot).for_each(|page| read(&hot, BASE, page));
    let nr_cold: u64 = hot_file.log().iter().map(|read| read.1).sum();
    assert_eq!(nr_cold, nr_hot);
    for page in 0..nr_pages {
        read(&stream, EXTRA, page);
        read(&hot, BASE, page % nr_hot);
    }
    let nr_missed: u64 = hot_file.log().iter().map(|read| read.1).sum();
    assert!(w.vm.event(Event::FileRotated) > 0);
    100 - nr_missed * 100 / nr_pages
}

#[test]
fn what_is_read_again_and_again_stays() {
    for (sizes, is_mapped) in
        [(FolioOrders::BASE, false), (FolioOrders::BASE, true), (orders(0, 4), false), (orders(0, 4), true)]
    {
        in_setup(Setup::PLAIN, 1, ARENA_PAGES * PAGE, |w| {
            let percent = hit_percent(w, sizes, is_mapped);
            eprintln!("{sizes:?}, mapped: {is_mapped}: {percent} % of hits");
            assert!(percent > 90, "{sizes:?}, mapped: {is_mapped}: {percent} %");
        });
    }
}

/// Of two pages that one fault has mapped the one that was read stays, and is not mapped any more.
#[test]
fn an_entry_that_was_accessed_is_a_use() {
    in_setup(Setup::PLAIN, 1, ARENA_PAGES * PAGE, |w| {
        let (_file, object) = file(w, 3 * PAGE, FolioOrders::BASE);
        (0..3).for_each(|page| assert_eq!(object.read(page * PAGE, &mut [0]), 1));
        map(w.space, BASE, 3, &object, 0);
        w.space.handle_fault(BASE, Access::Read).unwrap();
        let heads = [0, 1, 2].map(|page| frame_of(w.space, BASE + page * PAGE));
        heads.iter().for_each(|head| w.vm.look_at_clean_folio(*head));
        w.space.handle_fault(BASE, Access::Read).unwrap();
        w.cpu.enter(w.space).unwrap().load(BASE + PAGE, &mut [0]).unwrap();
        assert_eq!(heads.map(|head| w.vm.drop_clean_folio_unless_used(head)), [0, 0, 1]);
        let is_mapped = |page| object.object_page_state(page).map(|state| state.mapped);
        assert_eq!([0, 1, 2].map(is_mapped), [Some(true), Some(false), None], "the first fault was a use, too");
        assert_eq!(w.vm.drop_clean_folio_unless_used(heads[1]), 1);
    });
}

/// The steps of a refusal do not grow with the spaces that map a file.
#[test]
fn a_refusal_costs_the_same_however_many_map_the_file() {
    let steps_of = |nr_spaces: u64| {
        let nr_steps = Cell::new(0);
        in_setup(Setup::PLAIN, 1, 3 * ARENA_PAGES * PAGE, |w| {
            let nr_pages = 3 * ARENA_PAGES;
            let (_file, object) = file(w, nr_pages * PAGE, FolioOrders::BASE);
            let spaces: Vec<_> = (0..nr_spaces).map(|_| w.vm.new_space().unwrap()).collect();
            spaces.iter().for_each(|space| map(space, BASE, nr_pages, &object, 0));
            for page in 0..nr_pages {
                let (dropped, before) = (w.vm.event(Event::FileDropped), softfault_host::nr_steps());
                spaces[0].handle_fault(BASE + page * PAGE, Access::Read).unwrap();
                if w.vm.event(Event::FileDropped) > dropped {
                    nr_steps.set(nr_steps.get().max(softfault_host::nr_steps() - before));
                }
            }
            assert_eq!(w.vm.event(Event::RefusedOutOfFrames), 0);
        });
        nr_steps.get()
    };
    let [one, some, many] = [1, 64, 1024].map(steps_of);
    eprintln!("steps of the dearest refusal: {one} with one space, {some} with 64, {many} with 1,024");
    // Without a bound a thousand spaces cost three hundred times as much as one.
    assert!(some < 4 * one && many < 4 * one, "{one}, {some}, {many}");
}

/// A page that a pin, mlock(2) or a store keeps is there afterwards, in its frame.
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

/// Four CPUs read a file that is larger than memory, store to some of its pages and pin others, while its pages are dropped
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
                // Pages that nobody stores to.
                let page = random.below(nr_pages / 256) * 256 + 128;
                object.discard(page..page + 1 + random.below(100));
            }
            read(running, 4, 3, 5_000);
        });
        assert!(w.vm.event(Event::FileDropped) > ARENA_PAGES, "{}", w.vm.event(Event::FileDropped));
    });
}
