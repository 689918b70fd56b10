//! Pages that leave shared objects: they leave all mappings, and nothing else does.
#![deny(unsafe_code)]

mod common;

use common::huge::HUGE;
use common::objects::{EXTRA, bytes, content, map, touch};
use common::*;
use softfault::{Access, FaultError, MremapFlags};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A page is taken out where one displacement has it. Another page of the object that has been mapped there since
/// stays, though its frame is of the object.
#[test]
fn another_page_at_the_place_of_a_discarded_one_stays() {
    in_each_setup(1, 16 << 20, |w| {
        let object = w.vm.new_shared_object(8 * PAGE).unwrap();
        map(w.space, BASE, 4, &object, 0);
        (0..4).for_each(|page| w.space.write(BASE + page * PAGE, b"old").unwrap());
        map(w.space, BASE + PAGE, 1, &object, 5);
        w.space.write(BASE + PAGE, b"new").unwrap();
        let before = w.space.translate_at_rest(BASE + PAGE).unwrap();
        object.discard(1..3);
        assert_eq!(w.space.translate_at_rest(BASE + PAGE).map(|leaf| leaf.pfn), Some(before.pfn));
        assert!(w.space.translate_at_rest(BASE + 2 * PAGE).is_none());
        assert_eq!(&bytes(w.space, BASE + PAGE), b"new");
        check(w.vm, &[w.space]);
        w.space.munmap(BASE, 4 * PAGE).unwrap();
    });
}

/// A space that has mapped a page that is taken out finds it gone when the call returns, wherever
/// the mapping has come from and whatever was done to it.
#[test]
fn discarded_pages_leave_all_mappings() {
    type Change = fn(&Space<'_>);
    let changes: [Change; 6] = [
        |_| (),
        |s| s.mprotect(BASE + PAGE, PAGE, READ).unwrap(),
        |s| s.munmap(BASE, PAGE).unwrap(),
        // Elsewhere, touched again there; a part of it; a second place.
        |s| {
            s.mremap(BASE, 4 * PAGE, 4 * PAGE, MAYMOVE | MREMAP_FIXED, EXTRA).unwrap();
            s.read(EXTRA, &mut [0; 4 * PAGE as usize]).unwrap();
        },
        |s| {
            s.mremap(BASE + 2 * PAGE, PAGE, PAGE, MAYMOVE | MREMAP_FIXED, EXTRA).unwrap();
            s.read(EXTRA, &mut [0; PAGE as usize]).unwrap();
        },
        |s| {
            s.mremap(BASE, 0, 4 * PAGE, MAYMOVE | MREMAP_FIXED, EXTRA).unwrap();
            s.read(EXTRA, &mut [0; 4 * PAGE as usize]).unwrap();
        },
    ];
    in_each_setup(1, 16 << 20, |w| {
        for change in changes {
            let object = w.vm.new_shared_object(4 * PAGE).unwrap();
            map(w.space, BASE, 4, &object, 0);
            (0..4).for_each(|page| w.space.write(BASE + page * PAGE, b"old").unwrap());
            let other = w.space.fork().unwrap();
            (0..4).for_each(|page| other.handle_fault(BASE + page * PAGE, Access::Read).map(drop).unwrap());
            change(w.space);
            check(w.vm, &[w.space, &other]);
            let nr_free = w.vm.vmstat().nr_free_pages;
            object.discard(1..4);
            assert_eq!((object.nr_resident_pages(), w.vm.vmstat().nr_free_pages), (1, nr_free + 3));
            assert!(w.space.rss_pages().shmem <= 2 && other.rss_pages().shmem == 1);
            check(w.vm, &[w.space, &other]);
            assert_eq!((bytes(&other, BASE), bytes(&other, BASE + 2 * PAGE)), (*b"old", [0; 3]));
            other.write(BASE + 2 * PAGE, b"new").unwrap();
            assert_eq!(&content(&object, 2 * PAGE), b"new");
            check(w.vm, &[w.space, &other]);
            drop(other);
            w.space.munmap(BASE, 4 * PAGE).unwrap();
            w.space.munmap(EXTRA, 4 * PAGE).unwrap();
            check(w.vm, &[w.space]);
        }
    });
}

/// More spaces than an object has shards, each with a part of it in several places.
#[test]
fn many_spaces_lose_what_is_discarded() {
    in_setup(Setup::PLAIN, 1, 64 << 20, |w| {
        let object = w.vm.new_shared_object(64 * PAGE).unwrap();
        let spaces: Vec<_> = (0..40).map(|_| w.vm.new_space().unwrap()).collect();
        for (i, space) in (0u64..).zip(&spaces) {
            for (at, first, nr) in [(BASE, i, 8), (EXTRA, 40 - i, 16), (EXTRA + 20 * PAGE, 30, 2)] {
                map(space, at, nr, &object, first);
                (0..nr).for_each(|page| touch(space, at + page * PAGE).unwrap());
            }
        }
        let refs: Vec<_> = spaces.iter().chain([w.space]).collect();
        check(w.vm, &refs);
        object.discard(30..32);
        check(w.vm, &refs);
        for (i, space) in (0u64..).zip(&spaces) {
            let nr_in =
                |first: u64, nr: u64| (first..first + nr).filter(|page| !(30..32).contains(page)).count() as u64;
            assert_eq!(space.rss_pages().shmem, nr_in(i, 8) + nr_in(40 - i, 16), "space {i}");
        }
        object.set_size_bytes(0);
        check(w.vm, &refs);
        assert!(spaces.iter().all(|space| space.rss_pages().shmem == 0));
    });
}

/// Between two mappings at one displacement lies what is no mapping of the object at that one:
/// private pages, a huge page, guards, the object at another displacement.
#[test]
fn pages_between_two_mappings_stay() {
    in_setup(Setup::PLAIN, 1, 64 << 20, |w| {
        let nr_pages = 6 * HUGE / PAGE;
        let object = w.vm.new_shared_object(nr_pages * PAGE).unwrap();
        let at = |stretch: u64| EXTRA + stretch * HUGE;
        let per_stretch = HUGE / PAGE;
        map(w.space, at(0), 1, &object, 0);
        w.map(at(0) + PAGE, 3, RW);
        map(w.space, at(0) + 4 * PAGE, 1, &object, 7);
        let mut knobs = w.vm.huge_knobs();
        knobs.enabled = softfault::policy::huge::Enabled::Always;
        w.vm.set_huge_knobs(&knobs).unwrap();
        w.map(at(2), per_stretch, RW);
        w.space.write(at(2), &[5]).unwrap();
        assert_eq!(w.space.rss_pages().anon_huge, per_stretch);
        map(w.space, at(5), 2, &object, 5 * per_stretch);
        w.space.madvise(at(5) + PAGE, PAGE, GUARD_INSTALL).unwrap();
        (1..4).for_each(|page| w.space.write(at(0) + page * PAGE, &[page as u8]).unwrap());
        [at(0), at(0) + 4 * PAGE, at(5)].iter().for_each(|at| touch(w.space, *at).unwrap());
        assert_eq!(w.space.rss_pages().shmem, 3);
        check(w.vm, &[w.space]);
        object.discard(0..nr_pages);
        check(w.vm, &[w.space]);
        let there = |at: u64| w.space.page_state(at).is_some();
        assert_eq!([at(0), at(0) + 4 * PAGE, at(5)].map(there), [false; 3]);
        (1..4).for_each(|page| assert_eq!(bytes(w.space, at(0) + page * PAGE), [page as u8]));
        assert_eq!((bytes(w.space, at(2)), w.space.rss_pages().anon_huge), ([5], per_stretch));
        assert_eq!(touch(w.space, at(5) + PAGE), Err(FaultError::Guard));
    });
}

/// When an entry goes, the object learns its accessed and dirty bits, no matter what removed it.
#[test]
fn the_dirty_bit_of_an_entry_outlives_it() {
    type End = fn(&Space<'_>);
    let ends: [End; 6] = [
        |s| s.munmap(BASE, 4 * PAGE).unwrap(),
        |s| s.madvise(BASE, 4 * PAGE, DONTNEED).unwrap(),
        |s| _ = s.mmap(BASE, 4 * PAGE, RW, PRIVATE | FIXED).unwrap(),
        |s| _ = s.mremap(BASE, 4 * PAGE, PAGE, MremapFlags::empty(), 0).unwrap(),
        |s| _ = s.mremap(BASE, 4 * PAGE, 4 * PAGE, MAYMOVE | MREMAP_FIXED, EXTRA).unwrap(),
        |_| (),
    ];
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        for end in ends {
            let object = w.vm.new_shared_object(4 * PAGE).unwrap();
            let filler = w.vm.new_space().unwrap();
            map(&filler, BASE, 4, &object, 0);
            // The pages are there, and nobody has written.
            (0..4).for_each(|page| filler.read(BASE + page * PAGE, &mut [0]).unwrap());
            map(w.space, BASE, 4, &object, 0);
            // The entry is made by a read, and gets dirty by the program's store, without a fault.
            (0..3).for_each(|page| _ = bytes::<1>(w.space, BASE + page * PAGE));
            w.space.write(BASE + PAGE, b"x").unwrap();
            let dirty = |page| object.object_page_state(page).is_some_and(|state| state.dirty);
            assert_eq!([0, 1, 2, 3].map(dirty), [false; 4]);
            assert!(object.object_page_state(3).unwrap().mapped);
            end(w.space);
            let child = w.vm.new_space().unwrap();
            map(&child, BASE, 4, &object, 0);
            child.handle_fault(BASE + 3 * PAGE, Access::Write).unwrap();
            if w.space.rss_pages().shmem != 0 {
                // At the end of the mapping, then.
                w.space.munmap(BASE, 4 * PAGE).unwrap();
            }
            w.space.munmap(EXTRA, 4 * PAGE).unwrap();
            assert_eq!([0, 1, 2, 3].map(dirty), [false, true, false, true]);
            object.zero(10..20).unwrap();
            object.write(2 * PAGE, &[1]).unwrap();
            assert!(dirty(0) && dirty(2), "written through the handle");
            w.space.munmap(BASE, 4 * PAGE).unwrap();
        }
    });
}

/// Pages leave the object while programs use them and the embedder reads and
/// writes. Every word that is seen is zero or one that was written to its page:
/// no frame that went shows the next owner's bytes.
#[test]
fn discarding_under_use() {
    for setup in Setup::all() {
        in_setup(setup, 3, 8 << 20, |w| {
            let object = w.vm.new_shared_object(16 * PAGE).unwrap();
            map(w.space, BASE, 16, &object, 0);
            let seen = AtomicU64::new(0);
            let look = |word: u64, page: u64| {
                assert!(word == 0 || word == page + 100, "page {page} shows {word}");
                seen.fetch_add(u64::from(word != 0), SeqCst);
            };
            w.race(
                &[
                    &|running, stop| {
                        while !stop.load(SeqCst) {
                            for page in 0..16 {
                                // Refused where the object is short just now.
                                let _ = running.write_u64(BASE + page * PAGE, page + 100);
                                if let Ok(word) = running.read_u64(BASE + page * PAGE) {
                                    look(word, page);
                                }
                            }
                        }
                    },
                    &|_, stop| {
                        // The frames that go are wanted at once by somebody else.
                        while !stop.load(SeqCst) {
                            for page in 0..16 {
                                let mut word = [0; 8];
                                object.read(page * PAGE, &mut word);
                                look(u64::from_le_bytes(word), page);
                                object.write(page * PAGE, &(page + 100).to_le_bytes()).unwrap();
                            }
                            let scratch = w.vm.new_shared_object(16 * PAGE).unwrap();
                            scratch.write(0, &[0xff; 16 * PAGE as usize]).unwrap();
                        }
                    },
                ],
                |_| {
                    for round in 0..200 {
                        wait_until(|| seen.load(SeqCst) >= round);
                        if round % 4 == 0 {
                            object.set_size_bytes(8 * PAGE);
                            object.set_size_bytes(16 * PAGE);
                        } else {
                            object.discard(round % 16..16);
                        }
                    }
                },
            );
            object.discard(0..16);
            assert_eq!(object.nr_resident_pages(), 0);
        });
    }
}
