//! The memory of a file's page fails: a clean page is missing, and read again; of a dirty one the stores are lost, and one call that
//! waits for the file is told. A remover, a fault, a store and a write-back run meanwhile.
//!
//! Ways to fail: a store is lost and nobody is told, or a call that was to wait for it says that it is in the file; an access to a page that
//! was clean is refused; a page that was taken out meanwhile comes back.

use common::objects::byte;
use common::{Modelled, RW, World, be, beside_pagers, explore, files, let_parks_block, pager, run};
use softfault_modelled::policy::folio::FolioOrders;
use softfault_modelled::{Access, FaultError, FaultLocking, FileId, MapFlags, ObjectPart, Order, SharedObject};
use std::cell::Cell;

type Object = SharedObject<'static, Modelled>;

const PAGE: u64 = 4096;
/// Where the object is mapped, and where its page 1 is.
const AT: u64 = 4 * PAGE;
const AT_ONE: u64 = AT + PAGE;
/// The byte that is stored to page 1.
const NEW: u8 = 9;

std::thread_local! {
    /// In this execution: calls that waited for the file and were told; page 1 was stored to; pages were taken out.
    static NR_TOLD: Cell<u64> = const { Cell::new(0) };
    static IS_STORED: Cell<bool> = const { Cell::new(false) };
    static IS_REMOVED: Cell<bool> = const { Cell::new(false) };
}

type Actor = fn(World, &Object);

/// A file of two pages in folios of that order, mapped. Page 1 is in memory.
fn world(order: u8) -> (World, &'static Object) {
    files::reset();
    NR_TOLD.set(0);
    IS_STORED.set(false);
    IS_REMOVED.set(false);
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    w.touch(0);
    let orders = FolioOrders::new(Order(order), Order(order)).unwrap();
    let object: &Object = Box::leak(Box::new(w.vm.new_file_object(2 * PAGE, orders, FileId(0)).unwrap()));
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    w.space.mmap_object(AT, 2 * PAGE, RW, flags, ObjectPart::new(object)).unwrap();
    w.space.handle_fault(AT_ONE, Access::Read).unwrap();
    be(0);
    (w, object)
}

/// The memory of page 1 fails while others run, with folios of one page and of two that are lost together.
fn failure_against(preemptions: usize, before: Actor, others: &'static [Actor]) {
    let_parks_block();
    // Of the file no other page fails, nor this one twice.
    pager::take_up_to(0);
    for order in [0, 1] {
        explore(preemptions, move || {
            let (w, object) = world(order);
            before(w, object);
            let pfn = w.space.translate_at_rest(AT_ONE).unwrap().pfn;
            let fail: Box<dyn FnOnce() + Send> = Box::new(move || _ = w.vm.poison_frame(pfn));
            let act = |(i, other): (usize, &'static Actor)| -> Box<dyn FnOnce() + Send> {
                Box::new(move || {
                    // The third is the CPU that waits for the others.
                    if i == 1 {
                        be(0);
                    }
                    other(w, object);
                })
            };
            let others = others.iter().enumerate().map(act);
            run([fail].into_iter().chain(others).collect());
            ends_well(w, object);
        });
    }
}

/// Checks that the store is in the file, or lost and told of, once.
fn ends_well(w: World, object: &Object) {
    w.check(&[]);
    let is_lost = pager::has_failed(object, 1);
    (0..2).for_each(|_| _ = write_back(object));
    if !IS_REMOVED.get() {
        assert_eq!(NR_TOLD.get(), u64::from(is_lost));
        assert!(is_lost || !IS_STORED.get() || files::written(1) == Some(NEW), "the store is lost");
    }
    assert!(NR_TOLD.get() <= 1);
    object.discard(0..2);
    assert_eq!((byte(object, PAGE), w.space.handle_fault(AT_ONE, Access::Read).is_ok()), (1, true), "it is read again");
    w.check(&[]);
}

/// Whether the stores before are in the file, as the call says.
fn write_back(object: &Object) -> bool {
    let is_done = object.write_back(0..2).is_ok();
    NR_TOLD.set(NR_TOLD.get() + u64::from(!is_done));
    is_done
}

fn nothing(_: World, _: &Object) {}

fn read(w: World, _: &Object) {
    assert!(w.space.handle_fault(AT_ONE, Access::Read).is_ok(), "the file has the page");
}

fn store(w: World, _: &Object) {
    match w.space.write(AT_ONE, &[NEW]) {
        Ok(()) => IS_STORED.set(true),
        Err(error) => assert_eq!(error.fault, FaultError::Poisoned),
    }
}

fn sync(_: World, object: &Object) {
    write_back(object);
}

/// After a store.
fn sync_the_store(_: World, object: &Object) {
    if write_back(object) {
        assert_eq!(files::written(1), Some(NEW), "the call says that the store is in the file");
    }
}

fn remove(_: World, object: &Object) {
    IS_REMOVED.set(true);
    object.discard(0..2);
}

#[test]
fn a_clean_page_against_a_fault() {
    failure_against(2, nothing, &[read]);
}

#[test]
fn a_clean_page_against_a_store() {
    failure_against(2, nothing, &[store]);
}

#[test]
fn a_clean_page_against_a_removal() {
    failure_against(2, nothing, &[remove]);
}

#[test]
fn a_clean_page_against_a_removal_and_a_fault() {
    failure_against(1, nothing, &[remove, read]);
}

#[test]
fn a_clean_page_against_a_store_and_a_write() {
    failure_against(1, nothing, &[store, sync]);
}

#[test]
fn a_dirty_page_against_a_write() {
    failure_against(2, store, &[sync_the_store]);
}

#[test]
fn a_dirty_page_against_a_store() {
    failure_against(2, store, &[store]);
}

#[test]
fn a_dirty_page_against_a_removal() {
    failure_against(2, store, &[remove]);
}

beside_pagers![
    a_clean_page_against_a_fault,
    a_clean_page_against_a_store,
    a_clean_page_against_a_removal,
    a_dirty_page_against_a_write,
    a_dirty_page_against_a_store,
    a_dirty_page_against_a_removal,
];
