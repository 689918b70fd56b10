//! Private mappings of an object of a pool, against its sizes and holes, and with each frame refused.

use super::common::objects::{bytes, touch, whole};
use super::common::*;
use super::of_both_sizes::fork_refusing_each_frame;
use super::private_file::{BEYOND, OWN, own};
use super::{AT, HUGE, counts, free, object, with_pool};
use softfault::{Access, FaultError, MapFlags};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// The k-th frame of a mapping, of first touches, of copies and of fork is refused: nothing is kept.
#[test]
fn each_frame_of_a_private_file_may_be_refused() {
    with_pool(1, 4, |w| {
        let file = object(w, 2);
        file.write(0, b"f").unwrap();
        let refusing = |k: u64, act: &dyn Fn() -> bool| {
            w.vm.fail_allocation(Some(k));
            let is_done = act();
            w.vm.fail_allocation(None);
            is_done
        };
        let mut nr_refused = 0;
        for k in 0.. {
            let is_done = refusing(k, &|| own(w, 2, &file, MapFlags::empty()).is_ok());
            assert_eq!(free(w), if is_done { (3, 2) } else { (3, 0) });
            check(w.vm, &[w.space]);
            if is_done {
                break;
            }
            nr_refused += 1;
        }
        for k in 0.. {
            w.space.madvise(AT, 2 * HUGE, DONTNEED).unwrap();
            let fault = |addr, access| w.space.handle_fault(addr, access).is_ok();
            let is_done =
                refusing(k, &|| fault(AT, Access::Read) && fault(AT, Access::Write) && fault(AT + HUGE, Access::Read));
            check(w.vm, &[w.space]);
            if is_done {
                break;
            }
        }
        w.space.write(AT, b"m").unwrap();
        nr_refused += fork_refusing_each_frame(w, free, &|child| assert_eq!(bytes(child, AT), *b"m"));
        assert!(nr_refused > 2);
        assert_eq!(w.space.munmap(AT, 2 * HUGE), Ok(()));
    });
}

/// H3 and H4, private: copies, reads and new mappings against holes and sizes, in a pool that has as many pages as they
/// need. No owner of a reservation is refused, no page beyond the end is there, and no page is lost.
#[test]
fn h3_h4_private_faults_against_holes_and_sizes() {
    with_pool(4, 4, |w| {
        let file = object(w, 1);
        own(w, 1, &file, MapFlags::empty()).unwrap();
        let is_fine = |result: Result<(), FaultError>| result.is_ok() || result == BEYOND;
        let storer = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(Relaxed) {
                assert!(is_fine(running.store(AT + 3 * PAGE, &[1u8]).map_err(|trap| trap.cause)));
            }
        };
        let reader = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(Relaxed) {
                assert!(is_fine(running.space().handle_fault(AT + 5 * PAGE, Access::Read).map(drop)));
                running.space().madvise(AT, HUGE, DONTNEED).unwrap();
            }
        };
        let mapper = |running: &Running<'_>, stop: &AtomicBool| {
            let (space, at) = (running.space(), AT + 8 * HUGE);
            while !stop.load(Relaxed) {
                space.mmap_object(at, HUGE, RW, OWN | FIXED, whole(&file)).unwrap();
                assert!(is_fine(touch(space, at)));
                space.munmap(at, HUGE).unwrap();
            }
        };
        w.race(&[&storer, &reader, &mapper], |_| {
            for i in 0..60_u8 {
                // One page for the file, one for each mapping.
                file.write(3 * PAGE, &[i]).unwrap();
                if i % 3 == 0 {
                    file.discard(0..512);
                } else {
                    file.set_size_bytes(0);
                    file.set_size_bytes(HUGE);
                }
            }
        });
        file.set_size_bytes(0);
        assert_eq!((touch(w.space, AT), free(w)), (BEYOND, (4, 1)));
        assert_eq!(w.space.munmap(AT, HUGE), Ok(()));
    });
}

/// H4 and H5: forks and ends of spaces against sizes. No copy is left beyond the end, and no claim is lost.
#[test]
fn h4_h5_forks_and_ends_against_sizes() {
    with_pool(3, 4, |w| {
        let file = object(w, 1);
        own(w, 1, &file, MapFlags::empty()).unwrap();
        let forker = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(Relaxed) {
                let child = running.space().fork().unwrap();
                let _ = touch(&child, AT);
                drop(child);
            }
        };
        let ender = |_: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(Relaxed) {
                let space = w.vm.new_space().unwrap();
                if space.mmap_object(AT, HUGE, RW, OWN | FIXED, whole(&file)).is_ok() {
                    let _ = touch(&space, AT);
                }
            }
        };
        w.race(&[&forker, &ender], |running| {
            for i in 0..60_u8 {
                running.store(AT, &[i]).unwrap();
                file.set_size_bytes(0);
                file.set_size_bytes(HUGE);
            }
        });
        file.set_size_bytes(0);
        assert_eq!((counts(w).nr, free(w)), (4, (4, 1)));
        assert_eq!(w.space.munmap(AT, HUGE), Ok(()));
    });
}
