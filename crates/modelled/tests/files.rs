//! I52 for files: a folio that is read against everybody who may use its pages, take them out, or end the object.
//!
//! Ways to fail: a page is read twice, or its read is lost; what was taken out comes back; a word names a frame
//! that is free; an object goes while somebody reads; somebody sleeps for a read that never ends, or for no read.

use common::files::{self, Reads};
use common::objects::byte;
use common::{Modelled, RW, World, be, beside_pagers, explore, let_parks_block, read_ahead, run, use_swap};
use softfault_modelled::policy::folio::FolioOrders;
use softfault_modelled::{Access, AddressSpace, Advice, FaultDone, FaultError, FaultLocking, FillError};
use softfault_modelled::{FileId, MapFlags, MlockFlags, ObjectPart, Order, SharedObject, Term};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

type Object = SharedObject<'static, Modelled>;
type Space = AddressSpace<'static, Modelled>;

const FIXED_SHARED: MapFlags = MapFlags::SHARED.union(MapFlags::FIXED);
const PAGE: u64 = 4096;
/// Where the object is mapped.
const AT: u64 = 4;
/// The file's bytes after it has changed.
const NEW: u8 = 2;

fn map(space: &Space, object: &Object, nr_pages: u64) {
    space.mmap_object(AT * PAGE, nr_pages * PAGE, RW, FIXED_SHARED, ObjectPart::new(object)).unwrap();
}

/// A file of two folios of that order, mapped; table and node are there, and no page.
fn file(order: u8) -> (World, Object) {
    file_of(order, 2 << order)
}

fn file_of(order: u8, nr_pages: u64) -> (World, Object) {
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    w.touch(0);
    let orders = FolioOrders::new(Order(order), Order(order)).unwrap();
    let object = w.vm.new_file_object(nr_pages * PAGE, orders, FileId(0)).unwrap();
    map(w.space, &object, nr_pages);
    w.space.handle_fault(AT * PAGE, Access::Read).unwrap();
    object.discard(0..nr_pages);
    files::reset();
    be(0);
    (w, object)
}

/// The same, of an object that lasts.
fn world(order: u8) -> (World, &'static Object) {
    let (w, object) = file(order);
    (w, Box::leak(Box::new(object)))
}

/// Of so many pages, each a folio.
fn world_of(nr_pages: u64) -> (World, &'static Object) {
    let (w, object) = file_of(0, nr_pages);
    (w, Box::leak(Box::new(object)))
}

fn fault(space: &Space, page: u64) -> Result<FaultDone, FaultError> {
    space.handle_fault((AT + page) * PAGE, Access::Read)
}

fn byte_at(space: &Space, page: u64) -> u8 {
    let mut byte = [0];
    space.read((AT + page) * PAGE, &mut byte).unwrap();
    byte[0]
}

/// One reads, the other sleeps meanwhile, or finds it done.
#[test]
fn two_faults_read_one_folio() {
    let_parks_block();
    explore(1, || {
        let (w, object) = world(1);
        run([0, 1]
            .map(|page| Box::new(move || assert_eq!(byte_at(w.space, page), 1)) as Box<dyn FnOnce() + Send>)
            .into());
        w.check(&[]);
        assert_eq!((files::nr_reads(), byte(object, PAGE)), (1, 1));
    });
}

/// A handle never finds zeroes where the file has bytes.
#[test]
fn a_fault_against_a_handle() {
    let_parks_block();
    explore(1, || {
        let (w, object) = world(0);
        let read = move || assert_eq!(byte(object, 0), 1);
        run(vec![Box::new(move || assert_eq!(byte_at(w.space, 0), 1)), Box::new(read)]);
        w.check(&[]);
        assert_eq!(files::nr_reads(), 1);
    });
}

/// The end of a read that was under way against who sleeps for it.
#[test]
fn a_fault_against_the_end_of_its_read() {
    let_parks_block();
    explore(2, || {
        let (w, _) = world(0);
        files::set_reads(Reads::StayFrom(0));
        let end = move || {
            files::wait_until_kept();
            assert!(files::end_kept(w.vm, Ok(())));
        };
        run(vec![Box::new(move || assert_eq!(byte_at(w.space, 0), 1)), Box::new(end)]);
        w.check(&[]);
        assert_eq!(files::nr_reads(), 1);
    });
}

/// Between a look at the word of a page in transit and the mark of a sleeper, the page is taken out, its read ends, and its
/// frame becomes another page's, whose read never ends. A CPU that has looked does not sleep for that one. `zero` takes
/// the page out: `discard` would wait for the section.
#[test]
fn a_sleeper_whose_frame_is_another_reads() {
    static NR_REUSED: AtomicU64 = AtomicU64::new(0);
    let_parks_block();
    read_ahead(4 * PAGE);
    explore(1, || {
        let (w, object) = world_of(4);
        files::set_reads(Reads::StayFrom(1));
        // The pages after it are read ahead, and stay under way.
        fault(w.space, 0).unwrap();
        files::set_reads(Reads::AtOnceOrStayFrom(3));
        let frame = files::frames_kept()[1];
        be(0);
        let reuse = move || {
            (1..4).for_each(|page| object.zero(page * PAGE + 1..page * PAGE + 2).unwrap());
            while files::end_kept(w.vm, Ok(())) {}
            fault(w.space, 2).unwrap();
            NR_REUSED.fetch_add(u64::from(files::frames_kept().contains(&frame)), Relaxed);
        };
        run(vec![Box::new(move || assert_eq!(byte_at(w.space, 2), 1)), Box::new(reuse)]);
        while files::end_kept(w.vm, Ok(())) {}
        w.check(&[]);
    });
    assert!(NR_REUSED.load(Relaxed) > 0, "no frame was another page's");
}

/// A read that ends in the call while the file changes, and pages are taken out. Of these no old byte is there, at `at`
/// nor behind.
fn read_against(order: u8, page: u64, at: u64, remove: impl Fn(&Object) + Sync + Send + Copy + 'static) {
    let_parks_block();
    explore(1, move || {
        let (w, object) = world(order);
        let change = move || {
            files::set_version(NEW);
            remove(object);
            assert!(at >= object.size_bytes() || byte(object, at) != 1, "it has come back");
        };
        run(vec![Box::new(move || _ = byte_at(w.space, page)), Box::new(change)]);
        w.check(&[]);
        object.set_size_bytes((2 << order) * PAGE);
        assert_ne!(byte(object, at), 1, "it has come back late");
        w.check(&[]);
    });
}

#[test]
fn a_read_against_a_discard() {
    read_against(0, 0, 0, |object| object.discard(0..1));
    for page in [0, 1] {
        read_against(1, page, PAGE, |object| object.discard(1..2));
    }
    read_against(1, 0, 0, |object| object.discard(0..1));
}

#[test]
fn a_read_against_a_smaller_size() {
    read_against(1, 0, 11, |object| object.set_size_bytes(10));
}

#[test]
fn a_read_against_zeroes() {
    read_against(1, 1, PAGE + 5, |object| object.zero(PAGE + 5..PAGE + 6).unwrap());
}

/// It never ends, and a CPU that wants its page has the new one.
#[test]
fn a_read_that_never_ends_against_a_discard() {
    let_parks_block();
    explore(1, || {
        let (w, object) = world(1);
        files::set_reads(Reads::StayFrom(0));
        let remove = move || {
            files::wait_until_kept();
            files::set_version(NEW);
            files::set_reads(Reads::End);
            object.discard(1..2);
        };
        run(vec![Box::new(move || assert_eq!(byte_at(w.space, 0), NEW)), Box::new(remove)]);
        assert!(files::end_kept(w.vm, Ok(())));
        w.check(&[]);
        assert_eq!(byte(object, PAGE), NEW);
    });
}

/// A read ends while its folio is taken out. Its frames are freed after no page is in transit in them.
#[test]
fn the_end_of_a_read_against_a_discard() {
    let_parks_block();
    explore(1, || {
        let (w, object) = world(1);
        files::set_reads(Reads::StayFrom(0));
        w.space.madvise(AT * PAGE, 2 * PAGE, Advice::WillNeed).unwrap();
        let frame = files::frames_kept()[0];
        be(0);
        let end = move || {
            assert!(files::end_kept(w.vm, Ok(())));
            assert_ne!(object.object_page_in_transit(1), Some(frame), "I52: its frame is free");
        };
        run(vec![Box::new(end), Box::new(move || object.discard(0..2))]);
        w.check(&[]);
        assert_eq!(object.nr_resident_pages(), 0);
    });
}

/// A handle reads a page that is gone with the end of the object.
#[test]
fn a_handle_against_a_smaller_size() {
    let_parks_block();
    explore(1, || {
        let (w, object) = world(0);
        let read = move || assert_ne!(object.read(PAGE, &mut [0xee]), 2);
        run(vec![Box::new(read), Box::new(move || object.set_size_bytes(PAGE))]);
        w.check(&[]);
        assert_eq!(object.nr_resident_pages(), 0);
    });
}

/// A read finds the other part of a page that is zeroed in part while it would go to the swap area, which no page of a file does.
#[test]
fn a_dirty_page_that_goes_out_against_zeroes() {
    let_parks_block();
    explore(1, || {
        use_swap(false);
        let w = World::new(FaultLocking::Lockfree, 0, 1);
        let object: &Object = Box::leak(Box::new(w.vm.new_explicit_object(PAGE, FolioOrders::BASE).unwrap()));
        map(w.space, object, 1);
        object.install(0, &[9; 8]).unwrap();
        fault(w.space, 0).unwrap();
        let pfn = w.space.translate_at_rest(AT * PAGE).unwrap().pfn;
        be(0);
        run(vec![Box::new(move || _ = w.vm.swap_out_frame(pfn)), Box::new(move || object.zero(1..2).unwrap())]);
        w.check(&[]);
        assert_eq!([0, 1, 2].map(|at| byte(object, at)), [9, 0, 9]);
    });
}

/// The last mapping goes, the handle has gone before: a CPU that reads has the object still. `stays`: the read ends after
/// that.
#[test]
fn a_read_against_the_end_of_the_object() {
    let_parks_block();
    for stays in [false, true] {
        explore(1, move || {
            let (w, object) = file(0);
            drop(object);
            let read = move || match fault(w.space, 0) {
                Ok(_) | Err(FaultError::NotMapped) => {}
                Err(error) => panic!("{error}"),
            };
            if stays {
                files::set_reads(Reads::StayFrom(0));
            }
            let end = move || {
                if stays {
                    files::wait_until_kept();
                }
                w.space.munmap(AT * PAGE, 2 * PAGE).unwrap();
                let object: &'static _ = Box::leak(Box::new(w.vm.new_shared_object(PAGE).unwrap()));
                assert_eq!((object.nr_mapped_pages(), files::end_kept(w.vm, Ok(()))), (0, stays));
            };
            run(vec![Box::new(read), Box::new(end)]);
            w.check(&[]);
        });
    }
}

/// A CPU whose read fails late is told; one that comes later reads again.
#[test]
fn a_late_failure_against_another_fault() {
    let_parks_block();
    for comes_later in [false, true] {
        explore(1, move || {
            let (w, _) = world(0);
            files::set_reads(Reads::StayFrom(0));
            let read = move || match fault(w.space, 0) {
                Err(FaultError::NotRead) => {}
                other => assert!(comes_later && other.is_ok(), "{other:?}"),
            };
            let fail = move || {
                files::wait_until_kept();
                files::set_reads(Reads::End);
                assert!(files::end_kept(w.vm, Err(FillError)));
                if comes_later {
                    fault(w.space, 0).unwrap();
                }
            };
            run(vec![Box::new(read), Box::new(fail)]);
            w.check(&[]);
        });
    }
}

/// The folio of a page is dropped while another CPU does something.
fn drop_against(order: u8, other: impl Fn(&Space, &Object) + Sync + Send + Copy + 'static, after: [u8; 2]) {
    let_parks_block();
    explore(1, move || {
        let (w, object) = world(order);
        fault(w.space, 0).unwrap();
        let head = w.space.translate_at_rest(AT * PAGE).unwrap().pfn;
        be(0);
        run(vec![Box::new(move || _ = w.vm.drop_clean_folio(head)), Box::new(move || other(w.space, object))]);
        w.check(&[]);
        assert_eq!([0, PAGE].map(|at| byte(object, at)), after);
        w.check(&[]);
    });
}

#[test]
fn a_drop_against_a_fault() {
    drop_against(1, |space, _| assert_eq!(byte_at(space, 1), 1), [1, 1]);
}

/// A store stays, through an entry or by the handle.
#[test]
fn a_drop_against_a_store() {
    drop_against(1, |space, _| space.write((AT + 1) * PAGE, &[9]).unwrap(), [1, 9]);
    drop_against(0, |_, object| object.write(0, &[9]).unwrap(), [9, 1]);
}

/// A page that is taken out has the new bytes afterwards.
#[test]
fn a_drop_against_a_discard() {
    let discard = |_: &Space, object: &Object| {
        files::set_version(NEW);
        object.discard(0..2);
    };
    drop_against(1, discard, [NEW, NEW]);
}

/// The pin is held to the end: the page is its frame then.
#[test]
fn a_drop_against_a_pin() {
    let_parks_block();
    explore(1, || {
        let (w, object) = world(1);
        fault(w.space, 0).unwrap();
        let head = w.space.translate_at_rest(AT * PAGE).unwrap().pfn;
        be(0);
        let held = std::sync::Arc::new(std::sync::Mutex::new(None));
        let pinned = held.clone();
        let pin = move || *pinned.lock().unwrap() = Some(w.space.pin_page((AT + 1) * PAGE, Term::Short).unwrap());
        run(vec![Box::new(move || _ = w.vm.drop_clean_folio(head)), Box::new(pin)]);
        w.check(&[]);
        let held = held.lock().unwrap().take().unwrap();
        object.write(PAGE, &[9]).unwrap();
        let mut byte = [0];
        held.read(0, &mut byte);
        assert_eq!(byte, [9], "it was dropped under a pin");
    });
}

/// In either order: a page that is locked is there at the end.
#[test]
fn a_drop_against_a_lock() {
    let_parks_block();
    explore(1, || {
        let (w, object) = world(0);
        fault(w.space, 0).unwrap();
        let head = w.space.translate_at_rest(AT * PAGE).unwrap().pfn;
        be(0);
        let lock = move || w.space.mlock(AT * PAGE, PAGE, MlockFlags::empty()).unwrap();
        run(vec![Box::new(move || _ = w.vm.drop_clean_folio(head)), Box::new(lock)]);
        w.check(&[]);
        assert_eq!((object.nr_resident_pages(), w.vm.drop_clean_folio(head)), (1, 0));
    });
}

beside_pagers![
    two_faults_read_one_folio,
    a_fault_against_the_end_of_its_read,
    a_read_against_a_discard,
    a_read_against_a_smaller_size,
    a_read_against_zeroes,
    a_read_against_the_end_of_the_object,
];
