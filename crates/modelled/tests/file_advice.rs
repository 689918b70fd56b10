//! I22, I56: holes that programs make (`MADV_REMOVE`) and pages that go by advice (`MADV_PAGEOUT`), against faults.
//!
//! Ways to fail: bytes from before the hole come back, or stay mapped; a store is lost with its page; a frame that is
//! free is mapped; the hole is in an object that has another one's place by then.

use common::files;
use common::objects::byte;
use common::{Modelled, RW, World, be, beside_pagers, explore, let_parks_block, run};
use softfault_modelled::policy::around::FaultAround;
use softfault_modelled::policy::folio::FolioOrders;
use softfault_modelled::{Access, Advice, FaultLocking, FileId, MadviseError, MapFlags, MlockFlags, ObjectPart};
use softfault_modelled::{ObjectId, Order, SharedObject};
use std::cell::Cell;

type Object = SharedObject<'static, Modelled>;

const PAGE: u64 = 4096;
/// Where the object is mapped.
const AT: u64 = 4;
/// The bytes of the file before the hole, and in it.
const OLD: u8 = 1;
const HOLE: u8 = 2;
/// The byte that is stored.
const STORED: u8 = 9;

std::thread_local! {
    /// In this execution: the hole is made.
    static IS_PUNCHED: Cell<bool> = const { Cell::new(false) };
    /// In this execution: the store began after that.
    static IS_STORED_LATE: Cell<bool> = const { Cell::new(false) };
}

/// The first page before the actors begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Before {
    Missing,
    Unmapped,
    Mapped,
    /// Mapped and dirty.
    Stored,
}

fn map(w: World, object: &Object) {
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    w.space.mmap_object(AT * PAGE, 2 * PAGE, RW, flags, ObjectPart::new(object)).unwrap();
}

/// A file of two pages, each a folio, or both one; mapped, and the table is there.
fn file(order: u8, before: Before) -> (World, Object) {
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    w.touch(0);
    let orders = FolioOrders::new(Order(order), Order(order)).unwrap();
    let object = w.vm.new_file_object(2 * PAGE, orders, FileId(0)).unwrap();
    map(w, &object);
    w.space.handle_fault(AT * PAGE, Access::Read).unwrap();
    match before {
        Before::Missing => object.discard(0..2),
        Before::Unmapped => w.space.madvise(AT * PAGE, 2 * PAGE, Advice::DontNeed).unwrap(),
        Before::Mapped => {}
        Before::Stored => store(w, 8),
    }
    be(0);
    (w, object)
}

fn world(order: u8, before: Before) -> (World, &'static Object) {
    let (w, object) = file(order, before);
    (w, Box::leak(Box::new(object)))
}

fn byte_at(w: World, page: u64) -> u8 {
    let mut byte = [0xee];
    w.space.read((AT + page) * PAGE, &mut byte).unwrap();
    byte[0]
}

fn store(w: World, byte: u8) {
    w.space.write(AT * PAGE, &[byte]).unwrap();
}

fn remove(w: World, page: u64) {
    w.space.madvise((AT + page) * PAGE, PAGE, Advice::Remove).unwrap();
}

fn page_out(w: World) {
    w.space.madvise(AT * PAGE, 2 * PAGE, Advice::PageOut).unwrap();
}

/// Whoever looks after the call finds the hole.
#[test]
fn a_hole_against_a_fault() {
    let_parks_block();
    for (before, preemptions) in [(Before::Missing, 1), (Before::Unmapped, 2), (Before::Mapped, 2)] {
        explore(preemptions, move || {
            let (w, object) = world(0, before);
            let punch = move || {
                remove(w, 0);
                assert_eq!(byte(object, 0), HOLE, "an old byte came back");
            };
            run(vec![Box::new(move || _ = byte_at(w, 0)), Box::new(punch)]);
            w.check(&[]);
            assert_eq!([byte_at(w, 0), byte(object, 0)], [HOLE; 2], "an old byte came back late");
            w.check(&[]);
        });
    }
}

/// The page is mapped with its neighbour, and goes.
#[test]
fn a_hole_against_around() {
    let_parks_block();
    for is_file in [false, true] {
        explore(2, move || {
            let w = World::new(FaultLocking::Lockfree, 0, 1);
            w.touch(0);
            let object = match is_file {
                true => w.vm.new_file_object(2 * PAGE, FolioOrders::BASE, FileId(0)).unwrap(),
                false => w.vm.new_shared_object(2 * PAGE).unwrap(),
            };
            let object: &'static Object = Box::leak(Box::new(object));
            map(w, object);
            _ = [0, 1].map(|page| byte_at(w, page));
            if !is_file {
                object.write(PAGE, &[OLD]).unwrap();
            }
            w.space.madvise(AT * PAGE, 2 * PAGE, Advice::DontNeed).unwrap();
            w.vm.set_fault_around(FaultAround::DEFAULT);
            be(0);
            let hole = if is_file { HOLE } else { 0 };
            let punch = move || {
                remove(w, 1);
                assert_eq!(byte_at(w, 1), hole);
            };
            run(vec![Box::new(move || _ = byte_at(w, 0)), Box::new(punch)]);
            w.check(&[]);
            assert_eq!([byte_at(w, 1), byte(object, PAGE)], [hole; 2]);
            w.check(&[]);
        });
    }
}

/// A store is in the hole, in which it is dirty, or gone with the page. One that begins after the call is there.
#[test]
fn a_hole_against_a_store() {
    let_parks_block();
    for (before, preemptions) in [(Before::Unmapped, 1), (Before::Stored, 2)] {
        explore(preemptions, move || {
            let (w, object) = world(0, before);
            IS_PUNCHED.set(false);
            IS_STORED_LATE.set(false);
            let store = move || {
                IS_STORED_LATE.set(IS_PUNCHED.get());
                store(w, STORED);
            };
            let punch = move || {
                remove(w, 0);
                IS_PUNCHED.set(true);
            };
            run(vec![Box::new(store), Box::new(punch)]);
            w.check(&[]);
            let byte = byte(object, 0);
            assert!([HOLE, STORED].contains(&byte), "{byte}");
            assert!(byte == STORED || !IS_STORED_LATE.get(), "a store after the hole is lost");
            object.write_back(0..2).unwrap();
            assert!(byte == HOLE || files::written(0) == Some(STORED));
            w.check(&[]);
        });
    }
}

/// The last mapping goes, the handle has gone before, and another object comes. It has no hole.
#[test]
fn a_hole_against_the_end_of_the_object() {
    let_parks_block();
    explore(2, || {
        let (w, object) = file(0, Before::Mapped);
        drop(object);
        let punch = move || match w.space.madvise(AT * PAGE, PAGE, Advice::Remove) {
            Ok(()) | Err(MadviseError::NotMapped) => {}
            Err(error) => panic!("{error}"),
        };
        let end = move || {
            w.space.munmap(AT * PAGE, 2 * PAGE).unwrap();
            let other: &'static Object = Box::leak(Box::new(w.vm.new_shared_object(PAGE).unwrap()));
            other.write(0, &[STORED]).unwrap();
            loom::thread::yield_now();
            assert_eq!(byte(other, 0), STORED);
        };
        run(vec![Box::new(punch), Box::new(end)]);
        w.check(&[]);
    });
}

fn page_out_against(order: u8, before: Before, other: impl Fn(World, &Object) + Sync + Send + Copy + 'static) {
    let_parks_block();
    explore(1, move || {
        let (w, object) = world(order, before);
        run(vec![Box::new(move || page_out(w)), Box::new(move || other(w, object))]);
        w.check(&[]);
    });
}

/// The fault has the page that goes, or reads it again.
#[test]
fn a_page_out_against_a_fault() {
    page_out_against(0, Before::Mapped, |w, object| assert_eq!([byte_at(w, 0), byte(object, 0)], [OLD; 2]));
    page_out_against(0, Before::Unmapped, |w, _| assert_eq!(byte_at(w, 0), OLD));
    page_out_against(1, Before::Unmapped, |w, _| assert_eq!(byte_at(w, 1), OLD));
}

fn page_out_against_a_store(before: Before, store: impl Fn(World, &Object) + Sync + Send + Copy + 'static) {
    let_parks_block();
    explore(1, move || {
        let (w, object) = world(0, before);
        run(vec![Box::new(move || page_out(w)), Box::new(move || store(w, object))]);
        w.check(&[]);
        assert!(files::written(0) == Some(STORED) || byte(object, 0) == STORED, "the store is lost");
        w.check(&[]);
    });
}

/// The model's file does not give back what was written to it: a store is in the page or was written. One of the handle is
/// no use of the page.
#[test]
fn a_page_out_against_a_store() {
    page_out_against_a_store(Before::Mapped, |w, _| store(w, STORED));
    page_out_against_a_store(Before::Stored, |w, _| store(w, STORED));
    page_out_against_a_store(Before::Unmapped, |_, object| object.write(0, &[STORED]).unwrap());
}

/// A page that is locked stays, in either order.
#[test]
fn a_page_out_against_a_lock() {
    let_parks_block();
    explore(1, || {
        let (w, object) = world(0, Before::Mapped);
        let lock = move || w.space.mlock(AT * PAGE, PAGE, MlockFlags::empty()).unwrap();
        // Locked pages take no such advice.
        let go = move || _ = w.space.madvise(AT * PAGE, PAGE, Advice::PageOut);
        run(vec![Box::new(go), Box::new(lock)]);
        w.check(&[]);
        assert_eq!(object.nr_resident_pages(), 1);
    });
}

/// The page goes once.
#[test]
fn a_page_out_against_a_hole() {
    page_out_against(0, Before::Stored, |w, object| {
        remove(w, 0);
        assert_eq!(byte(object, 0), HOLE);
    });
}

/// `MAP_POPULATE | MAP_NONBLOCK` while another thread maps private memory at the same place, which gets no page.
#[test]
fn what_is_ready_against_another_mapping() {
    explore(2, || {
        let (w, object) = world(0, Before::Unmapped);
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE | MapFlags::NONBLOCK;
        let map_ready = move || {
            w.space.mmap_object(AT * PAGE, 2 * PAGE, RW, flags, ObjectPart::new(object)).unwrap();
        };
        run(vec![Box::new(map_ready), Box::new(move || w.map(AT, 2))]);
        w.check(&[]);
        let rss = w.space.rss_pages();
        assert_eq!((rss.anon, rss.shmem <= 2), (1, true), "a page was added");
        let is_anon = |page: u64| w.space.vma((AT + page) * PAGE).unwrap().object == ObjectId::NONE;
        assert!([0, 1].iter().all(|page| !is_anon(*page) || w.space.translate_at_rest((AT + page) * PAGE).is_none()));
    });
}

beside_pagers![a_hole_against_a_fault, a_hole_against_around, a_page_out_against_a_hole];
