//! Advice about pages of files: `MADV_COLD`, `MADV_PAGEOUT`, and `MAP_POPULATE | MAP_NONBLOCK`.
#![deny(unsafe_code)]

mod common;

use common::files::{Reads, file};
use common::objects::{EXTRA, Object, bytes, content, map, object, orders, whole};
use common::storage::{Writes, storage};
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::{Advice, Event, MadviseError, MapFlags, MlockFlags, Term};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const BASE_ORDERS: FolioOrders = FolioOrders::BASE;
const PAGES: u64 = 8;

/// The pages that the object has, of the first ones.
fn there(object: &Object<'_>) -> Vec<u64> {
    (0..PAGES).filter(|page| object.object_page_state(*page).is_some()).collect()
}

fn load(w: &World<'_>, space: &Space<'_>, pages: std::ops::Range<u64>) {
    let running = w.cpu.enter(space).unwrap();
    pages.for_each(|page| running.load(BASE + page * PAGE, &mut [0]).unwrap());
}

fn page_out(space: &Space<'_>, first: u64, nr_pages: u64) {
    assert_eq!(space.madvise(BASE + first * PAGE, nr_pages * PAGE, Advice::PageOut), Ok(()));
}

/// A used page stays at the hand's next visit, unless the program says that it does not need it.
#[test]
fn cold_pages_have_no_second_chance() {
    in_each_setup(1, 16 << 20, |w| {
        let (_storage, object) = storage(w, PAGES * PAGE, BASE_ORDERS);
        map(w.space, BASE, PAGES, &object, 0);
        load(w, w.space, 0..PAGES);
        let heads: Vec<_> = (0..PAGES).map(|page| frame_of(w.space, BASE + page * PAGE)).collect();
        // The translation is there, of which only a shootdown says that the access is forgotten.
        let running = w.cpu.enter(w.space).unwrap();
        running.load(BASE + 2 * PAGE, &mut [0]).unwrap();
        assert_eq!(w.space.madvise(BASE + PAGE, 2 * PAGE, Advice::Cold), Ok(()));
        assert_eq!(there(&object).len() as u64, PAGES, "they stay while there is memory");
        running.load(BASE + 2 * PAGE, &mut [0]).unwrap();
        drop(running);
        heads.iter().for_each(|head| _ = w.vm.drop_clean_folio_unless_used(*head));
        assert_eq!(there(&object), [0, 2, 3, 4, 5, 6, 7], "the second one was used again");
    });
}

/// Clean pages go, dirty ones are written first; all others stay.
#[test]
fn pages_go_by_advice() {
    in_each_setup(1, 16 << 20, |w| {
        let (storage, object) = storage(w, PAGES * PAGE, BASE_ORDERS);
        map(w.space, BASE, PAGES, &object, 0);
        load(w, w.space, 0..PAGES);
        w.space.write(BASE + 2 * PAGE, &[7]).unwrap();
        page_out(w.space, 1, 3);
        assert_eq!((there(&object), storage.byte(2 * PAGE)), (vec![0, 4, 5, 6, 7], 7));
        assert_eq!((bytes(w.space, BASE + 2 * PAGE), bytes(w.space, BASE + 3 * PAGE)), ([7], [1]));
        for (answer, stored) in [(Writes::Fail, 1), (Writes::Stay, 1), (Writes::End, 9)] {
            storage.set(answer);
            w.space.write(BASE + 4 * PAGE, &[9]).unwrap();
            page_out(w.space, 4, 1);
            assert_eq!(there(&object).contains(&4), answer != Writes::End, "{answer:?}");
            assert_eq!(storage.byte(4 * PAGE), stored, "{answer:?}");
            assert_eq!(bytes(w.space, BASE + 4 * PAGE), [9], "{answer:?}");
            if answer == Writes::Stay {
                storage.end_one(w.vm, Err(softfault::WriteError));
            }
        }
        let _told = object.write_back(0..PAGES);
        w.space.munmap(BASE, PAGES * PAGE).unwrap();
    });
}

#[test]
fn what_others_need_stays() {
    in_each_setup(1, 16 << 20, |w| {
        let (_storage, object) = storage(w, PAGES * PAGE, BASE_ORDERS);
        map(w.space, BASE, PAGES, &object, 0);
        let child = w.space.fork().unwrap();
        load(w, w.space, 0..PAGES);
        load(w, &child, 1..2);
        let pin = w.space.pin_page(BASE + 2 * PAGE, Term::Short).unwrap();
        child.mlock(BASE + 3 * PAGE, PAGE, MlockFlags::empty()).unwrap();
        page_out(w.space, 0, 5);
        assert_eq!(there(&object), [1, 2, 3, 5, 6, 7], "used, pinned and locked ones");
        drop(pin);
        page_out(w.space, 0, 5);
        assert_eq!(there(&object), [3, 5, 6, 7], "nobody has used them since");
        // A locked mapping refuses, and nothing goes.
        w.space.mlock(BASE + 6 * PAGE, PAGE, MlockFlags::empty()).unwrap();
        for advice in [Advice::Cold, Advice::PageOut] {
            assert_eq!(w.space.madvise(BASE, PAGES * PAGE, advice), Err(MadviseError::WrongMapping));
        }
        assert_eq!(there(&object), [3, 5, 6, 7]);
        check(w.vm, &[w.space, &child]);
    });
}

/// Folios go as a whole or not at all; copies, and memory that no file has, stay as they are.
#[test]
fn what_is_not_a_folio_of_the_range_stays() {
    in_each_setup(1, 16 << 20, |w| {
        let (_storage, folios) = storage(w, PAGES * PAGE - 100, orders(2, 2));
        map(w.space, BASE, PAGES, &folios, 0);
        load(w, w.space, 0..PAGES);
        // Twice: the first call takes the entries that were accessed.
        for _ in 0..2 {
            page_out(w.space, 1, 6);
            assert_eq!(there(&folios).len() as u64, PAGES);
        }
        page_out(w.space, 1, 7);
        assert_eq!(there(&folios), [0, 1, 2, 3]);

        let (_storage, file) = storage(w, PAGES * PAGE, BASE_ORDERS);
        w.space.mmap_object(BASE, PAGES * PAGE, RW, MapFlags::PRIVATE | FIXED, whole(&file)).unwrap();
        load(w, w.space, 0..PAGES);
        w.space.write(BASE + PAGE, &[0xc1]).unwrap();
        page_out(w.space, 0, PAGES);
        assert_eq!((there(&file), bytes(w.space, BASE + PAGE)), (vec![], [0xc1]));

        let memory = object(w, PAGES, BASE_ORDERS);
        memory.write(0, &[5]).unwrap();
        map(w.space, BASE, PAGES, &memory, 0);
        load(w, w.space, 0..1);
        let before = w.vm.event(Event::FileDropped);
        page_out(w.space, 0, PAGES);
        assert_eq!((bytes(w.space, BASE), w.vm.event(Event::FileDropped)), ([5], before));
    });
}

/// The cost does not grow with the programs that map a file: pages of those that many map are left to the clock.
#[test]
fn what_many_map_is_left_alone() {
    in_setup(Setup::PLAIN, 1, 64 << 20, |w| {
        let (_storage, object) = storage(w, PAGES * PAGE, BASE_ORDERS);
        map(w.space, BASE, PAGES, &object, 0);
        let children: Vec<_> = (0..64).map(|_| w.space.fork().unwrap()).collect();
        load(w, w.space, 0..PAGES);
        page_out(w.space, 0, PAGES);
        assert_eq!(there(&object).len() as u64, PAGES);
        drop(children);
        page_out(w.space, 0, PAGES);
        assert_eq!(there(&object), []);
    });
}

/// Three CPUs store while another pages out: no store is lost.
#[test]
fn paging_out_against_stores() {
    in_setup(Setup::PLAIN, 4, 16 << 20, |w| {
        for sizes in [BASE_ORDERS, orders(0, 3)] {
            let nr_pages = 32;
            let (_storage, object) = storage(w, nr_pages * PAGE, sizes);
            map(w.space, BASE, nr_pages, &object, 0);
            let count = |cpu: u64| {
                move |running: &softfault_host::Running<'_>, stop: &AtomicBool| {
                    let mut counts = [1u8; 32];
                    let mut random = softfault_testkit::random::Random::new(cpu);
                    while !stop.load(SeqCst) {
                        let page = random.below(nr_pages);
                        let (at, mut byte) = (BASE + page * PAGE + cpu * 64, [0]);
                        running.load(at, &mut byte).unwrap();
                        assert_eq!(byte, [counts[page as usize]], "a store to page {page} is lost");
                        counts[page as usize] = counts[page as usize].wrapping_add(1);
                        running.store(at, &[counts[page as usize]]).unwrap();
                        // The CPU that pages out waits for the others at each shootdown.
                        std::thread::yield_now();
                    }
                }
            };
            w.race(&[&count(1), &count(2), &count(3)], |_| {
                let before = w.vm.event(Event::FileDropped);
                let nr_dropped = || w.vm.event(Event::FileDropped) - before;
                // A page that is stored to again meanwhile stays: with fewer CPUs than these most do.
                let patience = Patience::new("no page is free of stores for a moment");
                for i in 0.. {
                    page_out(w.space, i % 4 * 8, 8);
                    if nr_dropped() >= 300 || (i >= 2_000 && nr_dropped() > 0) {
                        break;
                    }
                    patience.check();
                }
            });
            object.write_back(0..nr_pages).unwrap();
            assert_eq!(content::<1>(&object, 0), [1]);
            w.space.munmap(BASE, nr_pages * PAGE).unwrap();
        }
    });
}

/// `MAP_POPULATE | MAP_NONBLOCK` maps pages that are there. It adds none, begins no read, and waits for none.
#[test]
fn populate_without_waiting_maps_what_is_ready() {
    in_each_setup(1, 16 << 20, |w| {
        let flags = FIXED | MapFlags::POPULATE | MapFlags::NONBLOCK;
        let is_mapped = |page: &u64| w.space.translate_at_rest(BASE + page * PAGE).is_some();
        let populate = |object: &Object<'_>, kind, prot| -> Vec<u64> {
            w.space.mmap_object(BASE, PAGES * PAGE, prot, kind | flags, whole(object)).unwrap();
            (0..PAGES).filter(is_mapped).collect()
        };
        let memory = object(w, PAGES, BASE_ORDERS);
        memory.write(6 * PAGE, &[1]).unwrap();
        assert_eq!((populate(&memory, MapFlags::SHARED, RW), there(&memory)), (vec![6], vec![6]));
        w.space.munmap(BASE, PAGES * PAGE).unwrap();
        // Pages that are not there cost nothing.
        let nr_pages = 1 << 18;
        let sparse = object(w, nr_pages, BASE_ORDERS);
        sparse.write((nr_pages - 3) * PAGE, &[1]).unwrap();
        let nr_tables = || w.vm.event(Event::TableInstall);
        let before = nr_tables();
        w.space.mmap_object(BASE, nr_pages * PAGE, RW, MapFlags::SHARED | flags, whole(&sparse)).unwrap();
        assert!(is_mapped(&(nr_pages - 3)));
        assert!(nr_tables() - before <= 4, "{} tables", nr_tables() - before);
        w.space.munmap(BASE, nr_pages * PAGE).unwrap();

        let (reads, object) = file(w, PAGES * PAGE, BASE_ORDERS);
        (0..4).for_each(|page| assert_eq!(object.read(page * PAGE, &mut [0]), 1));
        map(w.space, EXTRA, PAGES, &object, 0);
        reads.set(Reads::Stay);
        w.space.madvise(EXTRA + 5 * PAGE, PAGE, Advice::WillNeed).unwrap();
        let before = (reads.nr_reads(), reads.nr_kept());
        assert_eq!(before.1, 1);
        for kind in [MapFlags::SHARED, MapFlags::PRIVATE] {
            assert_eq!(populate(&object, kind, RW), [0, 1, 2, 3]);
            assert_eq!((reads.nr_reads(), reads.nr_kept()), before);
        }
        assert_eq!(populate(&object, MapFlags::SHARED, NONE), []);
        assert_eq!(w.space.mmap(BASE, PAGES * PAGE, RW, PRIVATE | flags), Ok(BASE));
        assert!(!(0..PAGES).any(|page| is_mapped(&page)), "private memory is not there");
        reads.set(Reads::End);
        reads.end_one(w.vm, Ok(()));
        w.space.munmap(EXTRA, PAGES * PAGE).unwrap();
    });
}
