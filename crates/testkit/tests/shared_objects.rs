//! Shared objects that the embedder holds: files in memory, segments. Their bytes
//! through handles and mappings, their sizes, pages that leave them, and who frees
//! what in the end.
#![deny(unsafe_code)]

mod common;

use common::*;
use softfault::{
    Access, CpuId, FaultError, MapFlags, MmapError, MprotectError, MremapFlags, ObjectPart, SharedObject, VmaFlags,
};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

type Object<'vm> = SharedObject<'vm, Hosted>;

/// `MAP_SHARED`, of an object.
const MAP: MapFlags = MapFlags::SHARED;
const EXTRA: u64 = 0x30_0000_0000;

fn whole<'a, 'vm>(object: &'a Object<'vm>) -> ObjectPart<'a, 'vm, Hosted> {
    ObjectPart::new(object)
}

fn map<'vm>(space: &Space<'vm>, at: u64, nr_pages: u64, object: &Object<'vm>, first_page: u64) {
    let part = whole(object).with_offset_bytes(first_page * PAGE);
    assert_eq!(space.mmap_object(at, nr_pages * PAGE, RW, MAP | FIXED, part), Ok(at));
}

fn bytes<const N: usize>(space: &Space<'_>, at: u64) -> [u8; N] {
    let mut into = [0xee; N];
    space.read(at, &mut into).unwrap();
    into
}

fn content<const N: usize>(object: &Object<'_>, at: u64) -> [u8; N] {
    let mut into = [0xee; N];
    assert_eq!(object.read(at, &mut into), N);
    into
}

fn touch(space: &Space<'_>, at: u64) -> Result<(), FaultError> {
    space.handle_fault(at, Access::Write).map(drop)
}

#[test]
fn one_content_for_handle_and_mappings() {
    in_each_setup(1, 16 << 20, |w| {
        let object = w.vm.new_shared_object(8 * PAGE).unwrap();
        let other = w.vm.new_space().unwrap();
        assert!(!object.is_mapped());
        map(w.space, BASE, 8, &object, 0);
        map(&other, EXTRA, 4, &object, 2);
        assert_eq!((object.is_mapped(), object.nr_mapped_pages()), (true, 12));
        object.write(2 * PAGE - 3, b"across").unwrap();
        assert_eq!(&bytes(w.space, BASE + 2 * PAGE - 3), b"across");
        assert_eq!(&bytes(&other, EXTRA), b"oss");
        other.write(EXTRA + 3 * PAGE, b"mapped").unwrap();
        assert_eq!(&content(&object, 5 * PAGE), b"mapped");
        assert_eq!(&bytes(w.space, BASE + 5 * PAGE), b"mapped");
        assert_eq!(object.nr_resident_pages(), 3);
        assert_eq!(content::<4>(&object, 7 * PAGE), [0; 4]);
        assert_eq!(object.nr_resident_pages(), 3, "reading a hole fills none");
        check(w.vm, &[w.space, &other]);
        drop(other);
        w.space.munmap(BASE, 8 * PAGE).unwrap();
        assert!(!object.is_mapped());
        assert_eq!(&content(&object, 5 * PAGE), b"mapped", "nobody maps it, the handle keeps it");
        check(w.vm, &[w.space]);
    });
}

#[test]
fn a_mapping_outlives_the_handle() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        let object = w.vm.new_shared_object(2 * PAGE).unwrap();
        map(w.space, BASE, 2, &object, 0);
        object.write(PAGE, b"stays").unwrap();
        drop(object);
        check(w.vm, &[w.space]);
        assert_eq!(&bytes(w.space, BASE + PAGE), b"stays");
    });
}

#[test]
fn through_fork_and_moves() {
    in_each_setup(1, 16 << 20, |w| {
        let object = w.vm.new_shared_object(8 * PAGE).unwrap();
        map(w.space, BASE, 4, &object, 0);
        w.space.write(BASE + PAGE, b"before").unwrap();
        let child = w.space.fork().unwrap();
        assert_eq!(object.nr_mapped_pages(), 8);
        child.write(BASE + PAGE, b"child ").unwrap();
        assert_eq!(&bytes(w.space, BASE + PAGE), b"child ");
        // More of the object behind it.
        assert_eq!(w.space.mremap(BASE, 4 * PAGE, 8 * PAGE, MAYMOVE | MREMAP_FIXED, EXTRA), Ok(EXTRA));
        assert_eq!(object.nr_mapped_pages(), 12);
        object.write(7 * PAGE, b"last").unwrap();
        assert_eq!(&bytes(w.space, EXTRA + 7 * PAGE), b"last");
        assert_eq!(&bytes(w.space, EXTRA + PAGE), b"child ");
        check(w.vm, &[w.space, &child]);
        w.space.munmap(EXTRA + 2 * PAGE, 2 * PAGE).unwrap();
        assert_eq!(object.nr_mapped_pages(), 10);
        // What was taken out is seen by neither.
        object.discard(0..2);
        assert_eq!(bytes(&child, BASE + PAGE), [0; 6]);
        assert_eq!(bytes(w.space, EXTRA + PAGE), [0; 6]);
        check(w.vm, &[w.space, &child]);
    });
}

/// Each call that makes, moves, splits or removes pages of VMAs, with a mapping that may be
/// written and one that may not.
#[test]
fn pages_that_may_be_written_are_counted() {
    in_each_setup(1, 16 << 20, |w| {
        let object = w.vm.new_shared_object(16 * PAGE).unwrap();
        let counted = |nr_mapped, nr_writable, spaces: &[&Space<'_>]| {
            assert_eq!((object.nr_mapped_pages(), object.nr_writable_pages()), (nr_mapped, nr_writable));
            check(w.vm, spaces);
        };
        let read_only = |at: u64, nr_pages: u64| {
            let part = whole(&object).with_may_write(false);
            assert_eq!(w.space.mmap_object(at, nr_pages * PAGE, READ, MAP | FIXED, part), Ok(at));
        };
        map(w.space, BASE, 4, &object, 0);
        read_only(EXTRA, 3);
        counted(7, 4, &[w.space]);
        // Without the right now; it may come back.
        w.space.mprotect(BASE, 4 * PAGE, READ).unwrap();
        counted(7, 4, &[w.space]);
        w.space.mprotect(BASE + PAGE, PAGE, RW).unwrap();
        let child = w.space.fork().unwrap();
        counted(14, 8, &[w.space, &child]);
        child.munmap(BASE + PAGE, 2 * PAGE).unwrap();
        child.munmap(EXTRA, PAGE).unwrap();
        counted(11, 6, &[w.space, &child]);
        drop(child);
        counted(7, 4, &[w.space]);
        // An old size of 0 duplicates.
        let far = EXTRA + 64 * PAGE;
        assert_eq!(w.space.mremap(EXTRA, 0, 3 * PAGE, MAYMOVE | MREMAP_FIXED, far), Ok(far));
        counted(10, 4, &[w.space]);
        assert_eq!(
            w.space.mremap(far, 3 * PAGE, 5 * PAGE, MAYMOVE | MREMAP_FIXED, far + 64 * PAGE),
            Ok(far + 64 * PAGE)
        );
        counted(12, 4, &[w.space]);
        assert_eq!(w.space.mremap(BASE + 2 * PAGE, 2 * PAGE, 5 * PAGE, MAYMOVE | MREMAP_FIXED, far), Ok(far));
        counted(15, 7, &[w.space]);
        assert_eq!(w.space.mremap(far, 5 * PAGE, 6 * PAGE, MremapFlags::empty(), 0), Ok(far));
        counted(16, 8, &[w.space]);
        assert_eq!(w.space.mremap(far, 6 * PAGE, PAGE, MremapFlags::empty(), 0), Ok(far));
        counted(11, 3, &[w.space]);
        // One in place of the other.
        read_only(BASE, 2);
        map(w.space, EXTRA, 1, &object, 0);
        counted(11, 2, &[w.space]);
        w.space.munmap(BASE, 2 * PAGE).unwrap();
        w.space.munmap(far, PAGE).unwrap();
        w.space.munmap(EXTRA, PAGE).unwrap();
        counted(7, 0, &[w.space]);
    });
}

#[test]
fn size_bounds_accesses() {
    in_each_setup(1, 16 << 20, |w| {
        let object = w.vm.new_shared_object(PAGE + 100).unwrap();
        map(w.space, BASE, 4, &object, 0);
        assert_eq!(touch(w.space, BASE + PAGE), Ok(()));
        assert_eq!(touch(w.space, BASE + 2 * PAGE), Err(FaultError::BeyondObject));
        let mut into = [1; 200];
        assert_eq!(object.read(PAGE, &mut into), 100);
        assert_eq!((object.read(PAGE + 100, &mut into), object.read(u64::MAX, &mut into)), (0, 0));
        object.write(PAGE + 90, &[7; 50]).unwrap();
        object.write(u64::MAX, &[7; 50]).unwrap();
        assert_eq!(bytes::<12>(w.space, BASE + PAGE + 90), [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0]);
    });
}

/// A file that grows while it is mapped: the same mapping then shows the rest.
#[test]
fn growing_while_mapped() {
    in_each_setup(1, 16 << 20, |w| {
        let object = w.vm.new_shared_object(0).unwrap();
        map(w.space, BASE, 700, &object, 0);
        assert_eq!(touch(w.space, BASE), Err(FaultError::BeyondObject));
        object.set_size_bytes(10);
        assert_eq!(touch(w.space, BASE), Ok(()));
        assert_eq!(touch(w.space, BASE + PAGE), Err(FaultError::BeyondObject));
        // What a program leaves behind the end is not there when the end moves.
        w.space.write(BASE, &[5; 20]).unwrap();
        object.set_size_bytes(700 * PAGE);
        assert_eq!(bytes::<12>(w.space, BASE), [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 0, 0]);
        // More than one node of 512 pages: the tree gets higher.
        w.space.write(BASE + 699 * PAGE, b"end").unwrap();
        assert_eq!(&content(&object, 699 * PAGE), b"end");
        assert_eq!(content(&object, 0), [5; 10]);
        assert_eq!(object.nr_resident_pages(), 2);
    });
}

/// Shrinking: the rest is out of reach for all, and zero when it comes again.
#[test]
fn shrinking_while_mapped() {
    in_each_setup(1, 16 << 20, |w| {
        let object = w.vm.new_shared_object(6 * PAGE).unwrap();
        let other = w.vm.new_space().unwrap();
        map(w.space, BASE, 6, &object, 0);
        map(&other, BASE, 6, &object, 0);
        (0..6).for_each(|page| w.space.write(BASE + page * PAGE, &[9; PAGE as usize]).unwrap());
        other.handle_fault(BASE + 4 * PAGE, Access::Read).unwrap();
        let nr_free = w.vm.vmstat().nr_free_pages;
        object.set_size_bytes(2 * PAGE + 8);
        check(w.vm, &[w.space, &other]);
        assert_eq!((w.space.rss_pages().shmem, other.rss_pages().shmem), (3, 0));
        assert_eq!(w.vm.vmstat().nr_free_pages, nr_free + 3);
        for space in [w.space, &other] {
            (3..6).for_each(|page| assert_eq!(touch(space, BASE + page * PAGE), Err(FaultError::BeyondObject)));
        }
        assert_eq!(object.nr_resident_pages(), 3);
        object.set_size_bytes(6 * PAGE);
        assert_eq!(bytes::<10>(&other, BASE + 2 * PAGE), [9, 9, 9, 9, 9, 9, 9, 9, 0, 0]);
        let mut page = [1; PAGE as usize];
        for at in 3..6 {
            w.space.read(BASE + at * PAGE, &mut page).unwrap();
            assert_eq!(page, [0; PAGE as usize]);
        }
    });
}

/// Whoever has mapped a page that is taken out finds it gone when the call returns, wherever
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
fn what_lies_between_two_mappings_stays() {
    const HUGE: u64 = 2 << 20;
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

/// What an entry knew of its page when it went, the object knows: whatever removed it.
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
            object.zero(10..20);
            object.write(2 * PAGE, &[1]).unwrap();
            assert!(dirty(0) && dirty(2), "written through the handle");
            w.space.munmap(BASE, 4 * PAGE).unwrap();
        }
    });
}

#[test]
fn zeroing_bytes() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        let object = w.vm.new_shared_object(4 * PAGE).unwrap();
        for (start, end) in
            [(10, 20), (10, 2 * PAGE), (PAGE, 2 * PAGE), (5, 3 * PAGE + 5), (3 * PAGE, 9 * PAGE), (7, 7)]
        {
            object.write(0, &[3; 4 * PAGE as usize]).unwrap();
            object.zero(start..end);
            let now: [u8; 4 * PAGE as usize] = content(&object, 0);
            for (i, byte) in now.iter().enumerate() {
                let inside = start <= i as u64 && (i as u64) < end;
                assert_eq!(*byte, if inside { 0 } else { 3 }, "byte {i} of {start}..{end}");
            }
        }
    });
}

/// Far apart, first low, then high, and the other way round.
#[test]
fn sparse_objects() {
    let pages = [
        0,
        1,
        511,
        512,
        1 << 18,
        (1 << 18) + 1,
        1 << 27,
        1 << 36,
        1 << 45,
        SharedObject::<Hosted>::MAX_BYTES / PAGE - 1,
    ];
    for upwards in [true, false] {
        in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
            let object = w.vm.new_shared_object(u64::MAX).unwrap();
            assert_eq!(object.size_bytes(), SharedObject::<Hosted>::MAX_BYTES);
            let mut order = pages;
            if !upwards {
                order.reverse();
            }
            for page in order {
                assert_eq!(content::<8>(&object, page * PAGE), [0; 8]);
                object.write(page * PAGE, &page.to_le_bytes()).unwrap();
                check(w.vm, &[w.space]);
            }
            for page in pages {
                assert_eq!(content::<8>(&object, page * PAGE), page.to_le_bytes());
            }
            assert_eq!(object.nr_resident_pages(), pages.len() as u64);
            for page in pages {
                assert_eq!(object.next_resident(page..u64::MAX), Some(page));
                assert_eq!(object.next_resident(page + 1..u64::MAX), pages.into_iter().find(|next| *next > page));
                assert_eq!(object.next_resident(page + 1..page + 1), None);
            }
            object.discard(1..1 << 27);
            assert_eq!(object.nr_resident_pages(), pages.len() as u64 - 5);
            object.set_size_bytes(PAGE);
            assert_eq!(object.nr_resident_pages(), 1);
        });
    }
}

#[test]
fn bad_arguments() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        let object = w.vm.new_shared_object(PAGE).unwrap();
        let at = |offset_bytes| whole(&object).with_offset_bytes(offset_bytes);
        let try_map = |addr, len, prot, flags, part| w.space.mmap_object(addr, len, prot, flags, part);
        assert_eq!(try_map(0, PAGE, RW, MAP, at(1)), Err(MmapError::OffsetUnaligned));
        assert_eq!(try_map(0, 0, RW, MAP, at(0)), Err(MmapError::ZeroLength));
        assert_eq!(try_map(0, PAGE, RW, MapFlags::PRIVATE, at(0)), Err(MmapError::NotShared));
        assert_eq!(try_map(0, 1 << 62, RW, MAP, at(0)), Err(MmapError::TooLong));
        assert_eq!(try_map(0, u64::MAX, RW, MAP, at(0)), Err(MmapError::TooLong));
        assert_eq!(try_map(0, PAGE, RW, MAP, at(1 << 63)), Err(MmapError::OffsetOverflow));
        assert_eq!(try_map(0, 2 * PAGE, RW, MAP, at((1 << 63) - PAGE)), Err(MmapError::OffsetOverflow));
        assert_eq!(try_map(BASE + 1, PAGE, RW, MAP | FIXED, at(0)), Err(MmapError::Unaligned));
        let read_only = || whole(&object).with_may_write(false);
        assert_eq!(try_map(BASE, PAGE, RW, MAP | FIXED, read_only()), Err(MmapError::NoWriteRight));
        assert!(!object.is_mapped());

        // What was opened for reading stays so; what lies before it is changed.
        w.map(BASE - PAGE, 1, READ);
        assert_eq!(try_map(BASE, PAGE, READ, MAP | FIXED, read_only()), Ok(BASE));
        assert_eq!(w.space.mprotect(BASE - PAGE, 2 * PAGE, RW), Err(MprotectError::NeverWritable));
        assert!(w.space.vma(BASE - PAGE).unwrap().flags.contains(VmaFlags::WRITE));
        assert_eq!(w.space.mprotect(BASE, PAGE, NONE), Ok(()));
        assert_eq!(w.space.mprotect(BASE, PAGE, READ), Ok(()));
        assert_eq!(touch(w.space, BASE), Err(FaultError::NoRights));
    });
    let (one, two) = (Setup::PLAIN.vm(1, 8 << 20), Setup::PLAIN.vm(1, 8 << 20));
    let space = {
        let _cpu = one.machine().bind(CpuId(0)).unwrap();
        one.new_space().unwrap()
    };
    let cpu = two.machine().bind(CpuId(0)).unwrap();
    let object = two.new_shared_object(PAGE).unwrap();
    assert_eq!(space.mmap_object(0, PAGE, RW, MAP, whole(&object)), Err(MmapError::OtherVm));
    drop(object);
    drop(cpu);
    let _cpu = one.machine().bind(CpuId(0)).unwrap();
    drop(space);
}

/// Each allocation of each call fails in turn: contents, size and mappings are as
/// before, and the same call then succeeds.
#[test]
fn failing_allocations() {
    type Call = fn(&Object<'_>) -> bool;
    let write: Call = |object| object.write(600 * PAGE - 5, &[4; 3 * PAGE as usize]).is_ok();
    let far: Call = |object| object.write(1 << 50, b"far").is_ok();
    for (least, call) in [(3, write), (6, far)] {
        let mut k = 0;
        loop {
            let done = Cell::new(false);
            in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
                let object = w.vm.new_shared_object(1 << 60).unwrap();
                map(w.space, BASE, 8, &object, 0);
                object.write(600 * PAGE - 5, b"first").unwrap();
                w.vm.fail_allocation(Some(k));
                done.set(call(&object));
                w.vm.fail_allocation(None);
                check(w.vm, &[w.space]);
                if !done.get() {
                    assert_eq!(&content(&object, 600 * PAGE - 5), b"first");
                    assert_eq!(content(&object, 600 * PAGE), [0; 8]);
                    assert_eq!((object.size_bytes(), object.nr_mapped_pages()), (1 << 60, 8));
                    assert!(call(&object));
                    check(w.vm, &[w.space]);
                }
            });
            if done.get() {
                break;
            }
            k += 1;
        }
        assert!(k >= least, "only {k} allocations failed");
    }
}

/// Making one, and mapping it.
#[test]
fn failing_allocations_of_mappings() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        let nr_free = w.vm.vmstat().nr_free_pages;
        w.vm.fail_allocation(Some(0));
        assert!(w.vm.new_shared_object(PAGE).is_err());
        w.vm.fail_allocation(None);
        assert_eq!(w.vm.vmstat().nr_free_pages, nr_free);
        let object = w.vm.new_shared_object(PAGE).unwrap();
        let mut nr_failures = 0;
        for page in 0..400 {
            w.vm.fail_allocation(Some(0));
            let at = BASE + 2 * page * PAGE;
            if w.space.mmap_object(at, PAGE, RW, MAP | FIXED, whole(&object)).is_err() {
                assert_eq!((object.nr_mapped_pages(), w.space.nr_vmas()), (page, page));
                w.vm.fail_allocation(None);
                map(w.space, at, 1, &object, 0);
                nr_failures += 1;
            }
            w.vm.fail_allocation(None);
        }
        assert!(nr_failures > 5);
        check(w.vm, &[w.space]);
    });
}

/// Programs on two CPUs and the embedder on a third add to words of one page; no
/// page is ever two.
#[test]
fn all_see_one_page() {
    for setup in Setup::all() {
        in_setup(setup, 3, 16 << 20, |w| {
            let object = w.vm.new_shared_object(64 * PAGE).unwrap();
            map(w.space, BASE, 64, &object, 0);
            w.race(
                &[
                    &|running, _| (0..64).for_each(|i| running.write_u64(BASE + i * PAGE, i + 1).unwrap()),
                    &|running, _| (0..64).rev().for_each(|i| running.write_u64(BASE + i * PAGE + 8, i + 2).unwrap()),
                ],
                |_| (0..64).for_each(|i| object.write(i * PAGE + 16, &(i + 3).to_le_bytes()).unwrap()),
            );
            for i in 0..64 {
                let words = [0, 8, 16].map(|at| u64::from_le_bytes(content(&object, i * PAGE + at)));
                assert_eq!(words, [i + 1, i + 2, i + 3]);
            }
            assert_eq!(object.nr_resident_pages(), 64);
        });
    }
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
