//! Objects whose pages come from files: which CPU reads them, what the others see meanwhile, and the end of
//! reads that fail, come late or never come back.
#![deny(unsafe_code)]

mod common;

use common::files::{Reads, content as byte_of, file};
use common::objects::{EXTRA, Object, bytes, content, map, orders, read, read_on};
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::{
    CpuId, Errno, Event, FaultDone, FaultError, FileId, FillError, ForeignFill, NewFileError, ObjectWriteError, Order,
    Term,
};
use std::thread;

const BASE_ORDERS: FolioOrders = FolioOrders::BASE;

#[test]
fn a_missing_page_is_read_once_for_all() {
    in_each_setup(1, 16 << 20, |w| {
        let (file, object) = file(w, 8 * PAGE, BASE_ORDERS);
        map(w.space, BASE, 8, &object, 0);
        assert_eq!(read(w.space, 3), Ok(FaultDone::SwappedIn), "a major fault");
        assert_eq!((w.rss().major_faults, w.vm.event(Event::FileRead)), (1, 1));
        let child = w.space.fork().unwrap();
        assert_eq!(read(&child, 3), Ok(FaultDone::Shared));
        assert_eq!((file.log(), child.rss_pages().major_faults), (vec![(3, 1)], 0));
        assert_eq!(bytes::<2>(w.space, BASE + 4 * PAGE - 2), [byte_of(3, 0); 2]);
        assert!(!object.object_page_state(3).unwrap().dirty, "the file has it, too");
        check(w.vm, &[w.space, &child]);
    });
}

/// Bytes behind the size are zero, and pages behind it cannot be touched.
#[test]
fn the_last_page_ends_with_the_file() {
    in_each_setup(1, 16 << 20, |w| {
        let (file, object) = file(w, 2 * PAGE + 100, orders(0, 3));
        map(w.space, BASE, 8, &object, 0);
        assert_eq!(read(w.space, 3), Err(FaultError::BeyondObject));
        assert_eq!(bytes::<3>(w.space, BASE + 2 * PAGE + 98), [byte_of(2, 0), byte_of(2, 0), 0]);
        assert_eq!(file.log(), [(2, 1)], "a folio does not go beyond the end");
        let mut all = vec![0; 3 * PAGE as usize];
        assert_eq!(object.read(0, &mut all), 2 * PAGE as usize + 100);
        assert_eq!((all[0], all[PAGE as usize], file.log()), (byte_of(0, 0), byte_of(1, 0), vec![(0, 1), (1, 1)]));
    });
}

/// A8: the program is told, other pages are unharmed, and the next access tries again.
#[test]
fn a8_a_read_that_fails_is_tried_again() {
    in_each_setup(1, 16 << 20, |w| {
        for sizes in [BASE_ORDERS, orders(2, 2)] {
            let (file, object) = file(w, 8 * PAGE, sizes);
            map(w.space, BASE, 8, &object, 0);
            read(w.space, 0).unwrap();
            file.set(Reads::Fail);
            let nr_free = w.vm.vmstat().nr_free_pages;
            assert_eq!(read(w.space, 4), Err(FaultError::NotRead));
            assert_eq!(w.space.read(BASE + 4 * PAGE, &mut [0]).unwrap_err().errno(), Errno::EFAULT);
            assert_eq!(w.space.pin_page(BASE + 4 * PAGE, Term::Short).map(drop).unwrap_err().errno(), Errno::EFAULT);
            assert_eq!(object.read(0, &mut [0; 8 * PAGE as usize]) as u64 % PAGE, 0, "up to the page");
            assert_eq!(object.write(5 * PAGE, &[1]), Err(ObjectWriteError::NotRead));
            assert_eq!((w.vm.vmstat().nr_free_pages, object.nr_swapped_pages()), (nr_free, 0));
            assert!(w.vm.event(Event::FileReadFailed) > 0);
            assert_eq!(bytes(w.space, BASE), [byte_of(0, 0)]);
            file.set(Reads::End);
            assert_eq!(read(w.space, 4), Ok(FaultDone::SwappedIn));
            assert_eq!(bytes(w.space, BASE + 4 * PAGE), [byte_of(4, 0)]);
            w.space.munmap(BASE, 8 * PAGE).unwrap();
        }
    });
}

#[test]
fn a_handle_reads_before_it_writes() {
    in_each_setup(1, 16 << 20, |w| {
        let (file, object) = file(w, 4 * PAGE, BASE_ORDERS);
        object.write(PAGE + 5, &[0xaa]).unwrap();
        assert_eq!((file.log(), content(&object, PAGE + 4)), (vec![(1, 1)], [byte_of(1, 0), 0xaa, byte_of(1, 0)]));
        assert!(object.object_page_state(1).unwrap().dirty);
        // The storage has changed before.
        file.change();
        object.zero(2 * PAGE + 8..2 * PAGE + 16).unwrap();
        assert_eq!((file.log(), content(&object, 2 * PAGE)), (vec![], [byte_of(2, 1)]));
    });
}

/// While a read is under way others sleep, and everything else goes on. Both are woken, one was a major fault.
#[test]
fn a_read_under_way_blocks_who_wants_its_pages() {
    in_each_setup(3, 16 << 20, |w| {
        let (file, object) = file(w, 8 * PAGE, orders(2, 3));
        map(w.space, BASE, 8, &object, 0);
        read(w.space, 4).unwrap();
        file.set(Reads::Stay);
        thread::scope(|scope| {
            scope.spawn(|| read_on(w.vm, w.space, 1, 1).unwrap());
            wait_until(|| file.nr_kept() == 1);
            scope.spawn(|| read_on(w.vm, w.space, 2, 2).unwrap());
            wait_until(|| w.vm.event(Event::Waited) > 1);
            assert_eq!((object.nr_swapped_pages(), object.nr_resident_pages()), (4, 4));
            assert_eq!(bytes(w.space, BASE + 4 * PAGE), [byte_of(4, 0)]);
            w.space.mmap(EXTRA, PAGE, RW, PRIVATE | FIXED).unwrap();
            w.space.munmap(BASE, PAGE).unwrap();
            check_shape(w);
            file.end_one(w.vm, Ok(()));
        });
        assert_eq!((file.log().len(), w.rss().major_faults, w.vm.event(Event::FileRead)), (2, 2, 8));
        assert_eq!(bytes(w.space, BASE + 3 * PAGE), [byte_of(3, 0)]);
    });
}

/// Of a machine in which others wait.
fn check_shape(w: &World<'_>) {
    check(w.vm, &[w.space]);
}

/// A CPU that waits for a read that fails later reads again, and only its own failure is reported.
#[test]
fn an_error_that_comes_late_is_reported_once() {
    in_each_setup(3, 16 << 20, |w| {
        let (file, object) = file(w, 4 * PAGE, BASE_ORDERS);
        map(w.space, BASE, 4, &object, 0);
        file.set(Reads::Stay);
        let alone = thread::scope(|scope| {
            let first = scope.spawn(|| read_on(w.vm, w.space, 1, 1));
            wait_until(|| file.nr_kept() == 1);
            file.end_one(w.vm, Err(FillError));
            first.join().unwrap()
        });
        assert_eq!(alone, Err(FaultError::NotRead));
        let (first, second) = thread::scope(|scope| {
            let first = scope.spawn(|| read_on(w.vm, w.space, 1, 1));
            wait_until(|| file.nr_kept() == 1);
            let nr_waits = w.vm.event(Event::Waited);
            let second = scope.spawn(|| read_on(w.vm, w.space, 2, 1));
            wait_until(|| w.vm.event(Event::Waited) > nr_waits);
            file.end_one(w.vm, Err(FillError));
            // The second one reads, before or after the first one has given up.
            wait_until(|| file.nr_kept() == 1);
            file.end_one(w.vm, Ok(()));
            (first.join().unwrap(), second.join().unwrap())
        });
        assert!(
            matches!(first, Err(FaultError::NotRead) | Ok(_)) && second == Ok(FaultDone::SwappedIn),
            "{first:?} {second:?}"
        );
        assert!(w.vm.event(Event::RefusedNotRead) <= 2);
    });
}

/// A page that leaves the object is not waited for, and does not come back with old bytes.
#[test]
fn what_is_discarded_meanwhile_is_read_again() {
    for sizes in [BASE_ORDERS, orders(2, 3)] {
        in_each_setup(2, 16 << 20, |w| {
            let (file, object) = file(w, 8 * PAGE, sizes);
            map(w.space, BASE, 8, &object, 0);
            let removals: [&dyn Fn(); 3] = [
                &|| object.discard(1..2),
                &|| {
                    object.set_size_bytes(PAGE + 10);
                    object.set_size_bytes(8 * PAGE);
                },
                &|| object.zero(PAGE + 1..PAGE + 2).unwrap(),
            ];
            for remove in removals {
                object.discard(0..8);
                file.set(Reads::Stay);
                thread::scope(|scope| {
                    let faulting = scope.spawn(|| read_on(w.vm, w.space, 1, 1));
                    wait_until(|| file.nr_kept() == 1);
                    let mut old = file.take();
                    file.change();
                    file.set(Reads::End);
                    remove();
                    assert_eq!(faulting.join().unwrap(), Ok(FaultDone::SwappedIn), "who sleeps is woken, and reads");
                    w.vm.write_fill(&mut old, 0, &[0xee]).unwrap();
                    w.vm.filled(old, Ok(())).unwrap();
                });
                assert_eq!(bytes(w.space, BASE + PAGE), [byte_of(1, file.version())]);
                check(w.vm, &[w.space]);
            }
        });
    }
}

/// 64 reads that never come back keep their frames, and nothing else: mappings of the object come and go.
#[test]
fn reads_that_never_end_harm_nobody_else() {
    in_setup(Setup::PLAIN, 66, 32 << 20, |w| {
        let (file, object) = file(w, 128 * PAGE, BASE_ORDERS);
        map(w.space, BASE, 128, &object, 0);
        read(w.space, 100).unwrap();
        file.set(Reads::Stay);
        thread::scope(|scope| {
            let (vm, space) = (w.vm, w.space);
            for i in 0..64 {
                // Its mapping goes while it sleeps.
                scope.spawn(move || assert_eq!(read_on(vm, space, i + 1, u64::from(i)), Err(FaultError::NotMapped)));
            }
            wait_until(|| file.nr_kept() == 64 && w.vm.event(Event::Waited) >= 64);
            check(w.vm, &[w.space]);
            assert_eq!(read(w.space, 100), Ok(FaultDone::Spurious));
            w.space.mprotect(BASE + 100 * PAGE, PAGE, READ).unwrap();
            w.space.munmap(BASE, 64 * PAGE).unwrap();
            map(w.space, EXTRA, 64, &object, 64);
            assert_eq!(bytes(w.space, EXTRA + 36 * PAGE), [byte_of(100, 0)]);
            object.discard(64..128);
            file.set(Reads::End);
            assert_eq!(bytes(w.space, EXTRA), [byte_of(64, 0)]);
            assert_eq!(object.nr_swapped_pages(), 64);
            // They do come back, for the test's end: pages for which there is no mapping.
            (0..64).for_each(|_| file.end_one(w.vm, Ok(())));
        });
        assert_eq!(object.nr_resident_pages(), 65);
    });
}

/// A handle that sleeps for a page that goes with the end of the object finds zeroes there, and no page.
#[test]
fn a_handle_reads_nothing_behind_the_size() {
    in_each_setup(2, 16 << 20, |w| {
        let (file, object) = file(w, 2 * PAGE, BASE_ORDERS);
        file.set(Reads::Stay);
        thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let _cpu = w.vm.machine().bind(CpuId(1)).unwrap();
                content::<2>(&object, 5)
            });
            wait_until(|| file.nr_kept() == 1);
            object.set_size_bytes(0);
            assert_eq!(reading.join().unwrap(), [0; 2]);
        });
        file.end_one(w.vm, Ok(()));
        assert_eq!((object.nr_resident_pages(), file.log().len()), (0, 1));
        check(w.vm, &[w.space]);
    });
}

/// A CPU that waits for a file holds no frames: others that want the last ones are refused, and do not wait for it.
#[test]
fn a_read_under_way_holds_no_frames() {
    in_setup(Setup::PLAIN, 2, 8 << 20, |w| {
        let (file, object) = file(w, 4 * PAGE, BASE_ORDERS);
        map(w.space, BASE, 4, &object, 0);
        read(w.space, 0).unwrap();
        let (vm, space) = (w.vm, w.space);
        for (page, reads) in [(1, Reads::Stay), (2, Reads::Block)] {
            file.log();
            file.set(reads);
            thread::scope(|scope| {
                scope.spawn(move || read_on(vm, space, 1, page).unwrap());
                wait_until(|| file.nr_reads() == 1);
                w.map(EXTRA, 4096, RW);
                let refused = w.space.madvise(EXTRA, 4096 * PAGE, POPULATE_WRITE);
                assert_eq!(refused.unwrap_err().errno(), Errno::ENOMEM);
                w.space.munmap(EXTRA, 4096 * PAGE).unwrap();
                file.set(Reads::End);
                if reads == Reads::Stay {
                    file.end_one(w.vm, Ok(()))
                }
            });
        }
        check(w.vm, &[w.space]);
    });
}

/// Whatever allocation fails, nothing is read, and nothing kept of it.
#[test]
fn the_kth_allocation_fails() {
    type Call<'a> = &'a dyn Fn(&World<'_>, &Object<'_>) -> bool;
    let faults: Call<'_> = &|w, _| {
        let done = read(w.space, 2);
        assert!(matches!(done, Ok(_) | Err(FaultError::OutOfFrames)), "{done:?}");
        done.is_ok()
    };
    let writes: Call<'_> = &|_, object| {
        let done = object.write(2 * PAGE, &[0xaa]);
        assert!(matches!(done, Ok(()) | Err(ObjectWriteError::OutOfFrames(_))), "{done:?}");
        done.is_ok()
    };
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        for (i, sizes) in [BASE_ORDERS, orders(0, 2), orders(2, 2)].repeat(2).into_iter().enumerate() {
            let call = if i < 3 { faults } else { writes };
            let fails_at = |k| {
                let (file, object) = file(w, 8 * PAGE, sizes);
                map(w.space, BASE, 8, &object, 0);
                w.vm.fail_allocation(Some(k));
                let done = call(w, &object);
                w.vm.fail_allocation(None);
                check(w.vm, &[w.space]);
                let nr_reads = file.log().len();
                assert_eq!(object.nr_swapped_pages(), 0);
                if !done {
                    assert_eq!((nr_reads, object.nr_resident_pages()), (0, 0));
                    assert!(call(w, &object));
                }
                assert_eq!(content(&object, 2 * PAGE + 1), [byte_of(2, 0)]);
                w.space.munmap(BASE, 8 * PAGE).unwrap();
                !done
            };
            let nr_failures = (0..).take_while(|k| fails_at(*k)).count();
            assert!((1..20).contains(&nr_failures), "{nr_failures} allocations failed");
        }
    });
}

#[test]
fn an_object_ends_after_its_last_read() {
    in_each_setup(2, 16 << 20, |w| {
        let nr_free = w.vm.vmstat().nr_free_pages;
        let (file, object) = file(w, 4 * PAGE, orders(2, 2));
        map(w.space, BASE, 4, &object, 0);
        file.set(Reads::Stay);
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(read_on(w.vm, w.space, 1, 1), Err(FaultError::NotMapped)));
            wait_until(|| file.nr_kept() == 1);
            w.space.munmap(BASE, 4 * PAGE).unwrap();
            drop(object);
            file.end_one(w.vm, Ok(()));
        });
        // Tables and members of the space may stay.
        assert!(w.vm.vmstat().nr_free_pages + 8 >= nr_free);
    });
}

#[test]
fn a_fill_of_another_machine_is_refused() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        let fill = {
            let other = Setup::PLAIN.vm(2, 16 << 20);
            let file = std::sync::Arc::new(common::files::TestFile::default());
            file.set(Reads::Stay);
            let id = other.machine().add_file(file.clone());
            thread::scope(|scope| {
                let cpu = scope.spawn(|| {
                    let _cpu = other.machine().bind(CpuId(0)).unwrap();
                    let space = other.new_space().unwrap();
                    let object = other.new_file_object(PAGE, BASE_ORDERS, id).unwrap();
                    map(&space, BASE, 1, &object, 0);
                    thread::scope(|scope| {
                        scope.spawn(|| {
                            let _cpu = other.machine().bind(CpuId(1)).unwrap();
                            assert_eq!(read(&space, 0), Err(FaultError::NotMapped));
                        });
                        wait_until(|| file.nr_kept() == 1);
                        space.munmap(BASE, PAGE).unwrap();
                        object.discard(0..1);
                    });
                });
                cpu.join().unwrap()
            });
            file.take()
        };
        let offset = fill.offset_bytes();
        let ForeignFill(fill) = w.vm.filled(fill, Ok(())).unwrap_err();
        assert_eq!(fill.offset_bytes(), offset, "it comes back");
    });
}

#[test]
fn bad_input_is_refused() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        let refused = w.vm.new_file_object(PAGE, orders(0, 9), FileId(0)).map(drop);
        assert_eq!(refused, Err(NewFileError::FolioTooLarge));
        assert_eq!(refused.unwrap_err().errno(), Errno::EINVAL);
        // No such file.
        let object = w.vm.new_file_object(PAGE, FolioOrders::new(Order(0), Order(8)).unwrap(), FileId(77)).unwrap();
        map(w.space, BASE, 1, &object, 0);
        assert_eq!(read(w.space, 0), Err(FaultError::NotRead));
    });
}
