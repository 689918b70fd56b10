//! Explicit objects: a missing page is reported with nothing held, the embedder installs and takes out pages, and all that
//! may happen at the same time finds either.
#![deny(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod foreign;

use common::objects::{EXTRA, Object, bytes, content, map, orders, read, read_on, whole};
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::{
    Access, Errno, Event, EvictError, FaultDone, FaultError, FillError, InstallError, MlockFlags, NewFileError,
    ObjectWriteError, StoppedAt, Term, Vpn,
};
use std::thread;

/// An object of so many pages.
fn explicit<'vm>(w: &World<'vm>, nr_pages: u64, orders: FolioOrders) -> Object<'vm> {
    w.vm.new_explicit_object(nr_pages * PAGE, orders).unwrap()
}

/// Where a call has stopped, and why.
fn stop<T, E: Copy>(result: Result<T, StoppedAt<E>>) -> Option<(u64, E)> {
    result.err().map(|at| (at.page, at.error))
}

const SIZES: [(u8, u8); 3] = [(0, 0), (0, 3), (2, 2)];

#[test]
fn a_missing_page_is_the_embedders() {
    in_each_setup(1, 16 << 20, |w| {
        for (least, most) in SIZES {
            let object = explicit(w, 8, orders(least, most));
            map(w.space, BASE, 8, &object, 0);
            let nr_refused = w.vm.event(Event::RefusedMissing);
            assert_eq!([read(w.space, 5), touch(w.space, 3)], [Err(FaultError::Missing), Err(FaultError::Missing)]);
            assert_eq!(w.vm.event(Event::RefusedMissing), nr_refused + 2);
            let vma = w.space.vma(BASE + 5 * PAGE).unwrap();
            assert_eq!((vma.object, vma.pgoff_of(Vpn(BASE / PAGE + 5))), (object.id(), 5), "which page it is");
            let nr_free = w.vm.vmstat().nr_free_pages;
            assert_eq!(w.space.read(BASE, &mut [0]).unwrap_err().errno(), Errno::EFAULT);
            assert_eq!(w.space.pin_page(BASE, Term::Short).map(drop).unwrap_err().errno(), Errno::EFAULT);
            assert_eq!((object.read(0, &mut [0]), object.write(0, &[1])), (0, Err(ObjectWriteError::Missing)));
            assert_eq!(w.space.madvise(BASE, PAGE, POPULATE_READ).unwrap_err().errno(), Errno::EFAULT);
            assert!(w.vm.vmstat().nr_free_pages == nr_free, "nothing was kept");
            object.install(4, &[7; 4 * PAGE as usize]).unwrap();
            assert_eq!(read(w.space, 5), Ok(FaultDone::Shared));
            assert_eq!((bytes(w.space, BASE + 8 * PAGE - 1), object.nr_resident_pages()), ([7], 4));
            assert_eq!(stop(object.install(4, &[8])), Some((4, InstallError::AlreadyThere)));
            assert!(!object.object_page_state(5).unwrap().dirty);
            check(w.vm, &[w.space]);
            w.space.munmap(BASE, 8 * PAGE).unwrap();
        }
    });
}

fn touch(space: &Space<'_>, page: u64) -> Result<FaultDone, FaultError> {
    space.handle_fault(BASE + page * PAGE, Access::Write)
}

/// Fault-around maps what is there, and population stops where a page is missing.
#[test]
fn what_is_there_is_mapped() {
    in_each_setup(1, 16 << 20, |w| {
        let object = explicit(w, 8, FolioOrders::BASE);
        map(w.space, BASE, 8, &object, 0);
        object.install(0, &[1; 3 * PAGE as usize + 1]).unwrap();
        assert_eq!(w.space.madvise(BASE, 8 * PAGE, POPULATE_READ).unwrap_err().errno(), Errno::EFAULT);
        assert_eq!((0..8).filter(|page| w.space.translate_at_rest(BASE + page * PAGE).is_some()).count(), 4);
        assert_eq!(bytes::<2>(w.space, BASE + 3 * PAGE), [1, 0], "zeroes up to the end of the page");
        object.install(4, &[1; 4 * PAGE as usize]).unwrap();
        w.space.madvise(BASE, 8 * PAGE, POPULATE_READ).unwrap();
        assert_eq!(w.vm.event(Event::ExplicitInstalled), 8);
    });
}

#[test]
fn what_cannot_be_installed_is_refused_by_name() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        let too_large = w.vm.new_explicit_object(PAGE, orders(0, 9)).map(drop);
        assert_eq!(too_large, Err(NewFileError::FolioTooLarge));
        let object = explicit(w, 6, orders(2, 2));
        let error = |error| Some((1, error));
        assert_eq!(stop(object.install(1, &[1])), error(InstallError::Unaligned));
        assert_eq!(object.begin_install(0..0), Err(InstallError::Unaligned));
        assert_eq!(object.begin_install(8..12), Err(InstallError::BeyondObject));
        let long = [3; 12 * PAGE as usize];
        assert_eq!(stop(object.install(0, &long)), Some((8, InstallError::BeyondObject)));
        assert_eq!((object.nr_resident_pages(), content(&object, 6 * PAGE - 1)), (8, [3]));
        object.set_size_bytes(8 * PAGE);
        assert_eq!(content(&object, 6 * PAGE), [0], "bytes beyond the size were not used");
        let plain = w.vm.new_shared_object(PAGE).unwrap();
        assert_eq!(plain.begin_install(0..1), Err(InstallError::NotExplicit));
        assert_eq!(plain.begin_evict(0), Err(EvictError::NotExplicit));
        assert_eq!(plain.evict(0..1), Ok(0));
        assert!((InstallError::BeyondObject.errno(), EvictError::Dirty.errno()) == (Errno::ENXIO, Errno::EBUSY));
        check(w.vm, &[w.space]);
    });
}

/// A CPU that wants a page that is being installed sleeps; a second install is refused; an install that is given up wakes.
#[test]
fn an_install_under_way() {
    in_each_setup(2, 16 << 20, |w| {
        let object = explicit(w, 8, orders(2, 2));
        map(w.space, BASE, 8, &object, 0);
        for result in [Err(FillError), Ok(())] {
            let mut fill = object.begin_install(0..8).unwrap();
            let nr_waits = w.vm.event(Event::Waited);
            assert_eq!((fill.object(), fill.offset_bytes(), fill.nr_frames()), (object.id(), 0, 4));
            assert_eq!(object.begin_install(0..4), Err(InstallError::AlreadyThere));
            assert_eq!(object.begin_evict(1), Err(EvictError::Busy));
            check(w.vm, &[w.space]);
            thread::scope(|scope| {
                let reader = scope.spawn(|| read_on(w.vm, w.space, 1, 1));
                wait_until(|| w.vm.event(Event::Waited) > nr_waits);
                w.vm.write_fill(&mut fill, PAGE, &[5]).unwrap();
                w.vm.filled(fill, result).unwrap();
                let expected = result.map(|()| FaultDone::Shared).map_err(|_| FaultError::Missing);
                assert_eq!(reader.join().unwrap(), expected);
            });
        }
        assert_eq!(bytes::<2>(w.space, BASE + PAGE), [5, 0]);
    });
}

/// A removal does not wait for the embedder, and what it installs late does not come.
#[test]
fn what_is_removed_while_it_is_installed_stays_away() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        for sizes in [FolioOrders::BASE, orders(2, 2)] {
            let object = explicit(w, 8, sizes);
            let removals: [&dyn Fn(); 2] = [&|| object.discard(0..1), &|| {
                object.set_size_bytes(0);
                object.set_size_bytes(8 * PAGE);
            }];
            for evicts in [false, true] {
                for remove in removals {
                    if evicts {
                        object.install(0, &[9]).unwrap();
                    }
                    let fill =
                        if evicts { object.begin_evict(0).unwrap() } else { object.begin_install(0..8).unwrap() };
                    remove();
                    w.vm.filled(fill, Ok(())).unwrap();
                    assert_eq!((object.read(0, &mut [0]), object.nr_resident_pages()), (0, 0));
                    check(w.vm, &[w.space]);
                }
            }
        }
    });
}

/// Clean pages go, and the next access is told; dirty, pinned and locked ones stay, by name.
#[test]
fn what_is_used_is_not_taken_out() {
    in_each_setup(1, 16 << 20, |w| {
        for (least, most) in SIZES {
            let object = explicit(w, 16, orders(least, most));
            map(w.space, BASE, 16, &object, 0);
            object.install(0, &[4; 16 * PAGE as usize]).unwrap();
            assert_eq!(bytes(w.space, BASE + 7 * PAGE), [4]);
            assert_eq!(object.evict(0..8), Ok(8));
            assert_eq!(object.evict(0..8), Ok(0), "what is missing stays so");
            assert!(read(w.space, 7) == Err(FaultError::Missing) && read(w.space, 8).is_ok());
            assert_eq!(object.begin_evict(0), Err(EvictError::Missing));
            let folio = 1 << most;
            let stopped = |error| Some((8, error));
            let pin = w.space.pin_page(BASE + 8 * PAGE, Term::Short).unwrap();
            assert_eq!(stop(object.evict(8..9)), stopped(EvictError::Pinned));
            drop(pin);
            w.space.mlock(BASE + 8 * PAGE, PAGE, MlockFlags::empty()).unwrap();
            assert_eq!(stop(object.evict(8..9)), stopped(EvictError::Locked));
            w.space.munlock(BASE + 8 * PAGE, PAGE).unwrap();
            w.space.write(BASE + 8 * PAGE, &[5]).unwrap();
            assert_eq!(stop(object.evict(8..9)), stopped(EvictError::Dirty));
            assert_eq!(bytes(w.space, BASE + 8 * PAGE), [5]);
            assert_eq!(object.evict(8 + folio..16), Ok(8 - folio));
            object.discard(8..16);
            assert_eq!(read(w.space, 8), Err(FaultError::Missing));
            check(w.vm, &[w.space]);
            w.space.munmap(BASE, 16 * PAGE).unwrap();
        }
    });
}

/// The embedder saves a dirty page while nobody can store to it; if it cannot, the page comes back dirty.
#[test]
fn a_dirty_page_is_saved_and_taken_out() {
    in_each_setup(2, 16 << 20, |w| {
        let object = explicit(w, 8, orders(1, 1));
        map(w.space, BASE, 8, &object, 0);
        object.install(0, &[4; 8 * PAGE as usize]).unwrap();
        assert!(!object.begin_evict(2).map(|fill| (fill.is_dirty(), w.vm.filled(fill, Ok(())).unwrap()).0).unwrap());
        w.space.write(BASE + 3 * PAGE, &[5]).unwrap();
        for keeps in [true, false] {
            let fill = object.begin_evict(3).unwrap();
            let mut saved = [0; 2];
            w.vm.read_fill(&fill, PAGE, &mut saved).unwrap();
            assert_eq!((fill.is_dirty(), fill.offset_bytes(), saved), (true, 2 * PAGE, [5, 4]));
            check(w.vm, &[w.space]);
            let nr_waits = w.vm.event(Event::Waited);
            thread::scope(|scope| {
                let reader = scope.spawn(|| read_on(w.vm, w.space, 1, 3));
                wait_until(|| w.vm.event(Event::Waited) > nr_waits);
                w.vm.filled(fill, if keeps { Ok(()) } else { Err(FillError) }).unwrap();
                assert_eq!(
                    reader.join().unwrap(),
                    if keeps { Ok(FaultDone::Shared) } else { Err(FaultError::Missing) }
                );
            });
        }
        assert_eq!((w.vm.event(Event::ExplicitInstalled), w.vm.event(Event::ExplicitEvicted)), (8, 2));
        object.install(2, &[6; 2 * PAGE as usize]).unwrap();
        assert_eq!(bytes(w.space, BASE + 3 * PAGE), [6]);
        check(w.vm, &[w.space]);
    });
}

/// A private mapping copies what is there, and keeps its copy when the page is taken out. A fork goes on with both.
#[test]
fn private_copies_stay() {
    in_each_setup(1, 16 << 20, |w| {
        let object = explicit(w, 4, FolioOrders::BASE);
        w.space.mmap_object(EXTRA, 4 * PAGE, RW, FIXED | softfault::MapFlags::PRIVATE, whole(&object)).unwrap();
        assert_eq!(w.space.write(EXTRA, &[1]).unwrap_err().fault, FaultError::Missing);
        object.install(0, &[4; 2 * PAGE as usize]).unwrap();
        w.space.write(EXTRA + 1, &[1]).unwrap();
        assert_eq!(bytes(w.space, EXTRA + PAGE), [4]);
        let child = w.space.fork().unwrap();
        assert_eq!(object.evict(0..4), Ok(2));
        assert_eq!(bytes::<2>(&child, EXTRA), [4, 1]);
        assert_eq!(child.handle_fault(EXTRA + PAGE, Access::Read), Err(FaultError::Missing));
        check(w.vm, &[w.space, &child]);
    });
}

/// Whatever allocation fails, the page is missing still, or there.
#[test]
fn the_kth_allocation_fails() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        for sizes in [FolioOrders::BASE, orders(0, 2), orders(2, 2)] {
            let fails_at = |k| {
                let object = explicit(w, 8, sizes);
                w.vm.fail_allocation(Some(k));
                let done = object.install(0, &[3; 8 * PAGE as usize]);
                w.vm.fail_allocation(None);
                check(w.vm, &[w.space]);
                match done {
                    Ok(()) => assert_eq!(object.nr_resident_pages(), 8),
                    Err(StoppedAt { page, error: InstallError::OutOfFrames(_), .. }) => {
                        assert_eq!(object.nr_resident_pages(), page);
                        object.install(page, &vec![3; ((8 - page) * PAGE) as usize]).unwrap();
                    }
                    Err(other) => panic!("{other}"),
                }
                assert_eq!(content(&object, 8 * PAGE - 1), [3]);
                assert_eq!(object.evict(0..8), Ok(8));
                done.is_err()
            };
            let nr_failures = (0..).take_while(|k| fails_at(*k)).count();
            assert!((1..20).contains(&nr_failures), "{nr_failures} allocations failed");
        }
    });
}

/// An object without handle and mapping ends with its last fill.
#[test]
fn an_object_ends_after_its_last_fill() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        let nr_free = w.vm.vmstat().nr_free_pages;
        let object = explicit(w, 4, orders(1, 1));
        object.install(0, &[1; 2 * PAGE as usize]).unwrap();
        let fills = [object.begin_evict(0).unwrap(), object.begin_install(2..4).unwrap()];
        drop(object);
        let [out, new] = fills;
        w.vm.filled(out, Ok(())).unwrap();
        w.vm.filled(new, Err(FillError)).unwrap();
        assert_eq!(w.vm.vmstat().nr_free_pages, nr_free);
        check(w.vm, &[w.space]);
    });
}
