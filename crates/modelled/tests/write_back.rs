//! I56: a dirty page of a file on its way to the file, against stores, removals and other writes.
//!
//! Ways to fail: a store is neither in the file nor in a dirty page; an entry allows stores to a clean page; an old
//! version comes after a newer one; frames that are being written are freed, or never.

use common::objects::byte;
use common::pager::{self, Pager};
use common::{Modelled, RW, World, be, beside_pagers, explore, files, let_parks_block, run};
use softfault_modelled::policy::folio::FolioOrders;
use softfault_modelled::{Access, FaultLocking, FileId, MapFlags, ObjectPart, Order, SharedObject, Term};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

type Object = SharedObject<'static, Modelled>;

const PAGE: u64 = 4096;
/// Where the object is mapped.
const AT: u64 = 4;
/// The byte that is stored to page 1.
const NEW: u8 = 9;

/// The page of the store before the actors begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Before {
    Unmapped,
    /// Mapped without the write right.
    Clean,
    /// Dirty by the handle, without an entry.
    DirtyUnmapped,
    /// Dirty by the handle, and mapped without the write right.
    DirtyReadOnly,
    /// Dirty, and mapped with it.
    Stored,
}

/// A file of one folio of two pages, mapped.
fn world(before: Before) -> (World, &'static Object) {
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    w.touch(0);
    let orders = FolioOrders::new(Order(1), Order(1)).unwrap();
    let object: &Object = Box::leak(Box::new(w.vm.new_file_object(2 * PAGE, orders, FileId(0)).unwrap()));
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    w.space.mmap_object(AT * PAGE, 2 * PAGE, RW, flags, ObjectPart::new(object)).unwrap();
    w.space.handle_fault(AT * PAGE, Access::Read).unwrap();
    if matches!(before, Before::Clean | Before::DirtyReadOnly) {
        w.space.handle_fault((AT + 1) * PAGE, Access::Read).unwrap();
    }
    match before {
        Before::Unmapped | Before::Clean => {}
        Before::DirtyUnmapped | Before::DirtyReadOnly => object.write(PAGE, &[8]).unwrap(),
        Before::Stored => w.space.write((AT + 1) * PAGE, &[8]).unwrap(),
    }
    be(0);
    (w, object)
}

fn store(w: World) {
    w.space.write((AT + 1) * PAGE, &[NEW]).unwrap();
}

/// Where memory fails, stores may have been lost with it, of which one call is told.
fn write_back(object: &Object) {
    let done = object.write_back(0..2);
    assert!(done.is_ok() || pager::here() == Some(Pager::Fails), "{done:?}");
}

/// Checks that the store is in the object, and in the file after the next write.
fn is_stored(w: World, object: &Object) {
    w.check(&[]);
    assert_eq!(byte(object, PAGE), NEW);
    write_back(object);
    assert_eq!(files::written(1), Some(NEW), "the store is lost");
    w.check(&[]);
}

fn write_against(before: Before, other: impl Fn(World, &'static Object) + Sync + Send + Copy + 'static) {
    let_parks_block();
    explore(2, move || {
        let (w, object) = world(before);
        run(vec![Box::new(move || write_back(object)), Box::new(move || other(w, object))]);
        is_stored(w, object);
    });
}

/// The first store to a page: the machine is asked, and the folio is dirty.
#[test]
fn a_write_against_a_first_store() {
    write_against(Before::Unmapped, |w, _| store(w));
    write_against(Before::Clean, |w, _| store(w));
}

/// A fault that has seen DIRTY makes an entry that allows stores.
#[test]
fn a_write_against_a_store_to_a_dirty_page() {
    write_against(Before::DirtyUnmapped, |w, _| store(w));
    write_against(Before::DirtyReadOnly, |w, _| store(w));
}

/// The entry allows stores, and is about not to.
#[test]
fn a_write_against_another_store() {
    write_against(Before::Stored, |w, _| store(w));
}

#[test]
fn a_write_against_the_handle() {
    write_against(Before::Clean, |_, object| object.write(PAGE, &[NEW]).unwrap());
    write_against(Before::Stored, |_, object| object.write(PAGE, &[NEW]).unwrap());
}

/// Its holder stores without an entry.
#[test]
fn a_write_against_a_pin() {
    write_against(Before::Stored, |w, _| {
        let pin = w.space.pin_page_mut((AT + 1) * PAGE, Term::Short).unwrap();
        pin.write(0, &[NEW]);
    });
}

/// The dirty bit of an entry that goes is the folio's.
#[test]
fn a_write_against_a_store_and_an_unmapping() {
    write_against(Before::Stored, |w, _| {
        store(w);
        w.space.munmap((AT + 1) * PAGE, PAGE).unwrap();
    });
}

/// An actor that has stored and has waited finds its store in the file, whoever else writes the folio.
#[test]
fn two_writes_and_a_store() {
    write_against(Before::Stored, |w, object| {
        store(w);
        write_back(object);
        assert_eq!(files::written(1), Some(NEW), "it was not waited for");
    });
}

/// The frames go once, with the write or before it.
#[test]
fn a_write_against_a_discard() {
    let_parks_block();
    explore(2, || {
        let (w, object) = world(Before::Stored);
        run(vec![Box::new(move || write_back(object)), Box::new(move || object.discard(0..2))]);
        w.check(&[]);
        assert_eq!(object.nr_resident_pages(), 0);
    });
}

/// As soon as the place of a page is empty, who writes what is put there finds that a call for the old page lasts.
#[test]
fn a_removal_during_the_call_for_its_page() {
    static NR_SEEN: AtomicU64 = AtomicU64::new(0);
    let_parks_block();
    explore(1, || {
        let (w, object) = world(Before::DirtyUnmapped);
        files::in_next_call(move || {
            while object.nr_resident_pages() > 0 {
                loom::thread::yield_now();
            }
            assert_eq!(object.nr_late_calls(), 1, "a write of the page is asked for beside this call");
            NR_SEEN.fetch_add(1, Relaxed);
        });
        run(vec![Box::new(move || write_back(object)), Box::new(move || object.discard(0..2))]);
        w.check(&[]);
        assert_eq!((object.nr_resident_pages(), object.nr_late_calls()), (0, 0));
    });
    assert!(NR_SEEN.load(Relaxed) > 0, "no removal came during the call");
}

/// A waiter for a write that never ends is woken when its pages go.
#[test]
fn a_write_that_never_ends_against_a_discard() {
    let_parks_block();
    explore(1, || {
        let (w, object) = world(Before::Stored);
        files::let_writes_stay(true);
        let discard = move || {
            files::wait_until_write_kept();
            object.discard(0..2);
        };
        run(vec![Box::new(move || write_back(object)), Box::new(discard)]);
        assert!(files::end_kept_write(w.vm));
        w.check(&[]);
        assert_eq!(object.nr_resident_pages(), 0);
    });
}

/// The same, where the removal may come during the call, after which the write goes on: the remover returns, though nobody ends the
/// write.
#[test]
fn a_removal_against_a_call_whose_write_goes_on() {
    let_parks_block();
    explore(2, || {
        let (w, object) = world(Before::Stored);
        files::let_writes_stay(true);
        run(vec![Box::new(move || write_back(object)), Box::new(move || object.discard(0..2))]);
        let _ = files::end_kept_write(w.vm);
        w.check(&[]);
        assert_eq!(object.nr_resident_pages(), 0);
    });
}

/// The end of a write that was under way, against who waits for it.
#[test]
fn a_write_against_its_end() {
    let_parks_block();
    explore(2, || {
        let (w, object) = world(Before::Stored);
        files::let_writes_stay(true);
        let end = move || {
            files::wait_until_write_kept();
            assert!(files::end_kept_write(w.vm));
        };
        run(vec![Box::new(move || write_back(object)), Box::new(end)]);
        w.check(&[]);
    });
}

/// A write fails: the call that waits for it is told, and no other.
#[test]
fn a_write_that_fails_against_its_waiter() {
    let_parks_block();
    explore(2, || {
        let (w, object) = world(Before::Stored);
        files::let_writes_stay(true);
        let fail = move || {
            files::wait_until_write_kept();
            assert!(files::fail_kept_write(w.vm));
        };
        let wait = move || assert!(object.write_back(0..2).is_err(), "the store is not in the file");
        run(vec![Box::new(wait), Box::new(fail)]);
        files::let_writes_stay(false);
        assert_eq!((object.write_back(0..2), files::written(1)), (Ok(()), Some(8)));
        w.check(&[]);
    });
}

beside_pagers![
    a_write_against_a_first_store,
    a_write_against_a_store_to_a_dirty_page,
    a_write_against_another_store,
    a_write_against_the_handle,
    a_write_against_a_store_and_an_unmapping,
    a_write_against_a_discard,
];
