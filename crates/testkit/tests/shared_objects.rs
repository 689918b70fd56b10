//! Shared objects that the embedder holds: files in memory, segments. Their bytes
//! through handles and mappings, their sizes, and who frees what in the end. Pages
//! that leave them have a file of their own, `discards.rs`.
#![deny(unsafe_code)]

mod common;

use common::objects::{EXTRA, MAP, Object, bytes, content, map, touch, whole};
use common::*;
use softfault::{Access, CpuId, FaultError, MapFlags, MmapError, MprotectError, MremapFlags, SharedObject, VmaFlags};
use std::cell::Cell;

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
        // The mapping, and no entry: the child's faults find the pages.
        assert_eq!(child.rss_pages().shmem, 0);
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
        // Neither sees pages that were taken out.
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
        // Bytes that a program stores behind the end are not there when the end moves.
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
        // The read has mapped the neighbours of its page, too.
        assert_eq!((w.space.rss_pages().shmem, other.rss_pages().shmem), (3, 3));
        assert_eq!(w.vm.vmstat().nr_free_pages, nr_free + 3);
        for space in [w.space, &other] {
            assert_eq!(
                bytes::<10>(space, BASE + 2 * PAGE),
                [9, 9, 9, 9, 9, 9, 9, 9, 0, 0],
                "at once, in its last page"
            );
        }
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

#[test]
fn zeroing_bytes() {
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        let object = w.vm.new_shared_object(4 * PAGE).unwrap();
        for (start, end) in
            [(10, 20), (10, 2 * PAGE), (PAGE, 2 * PAGE), (5, 3 * PAGE + 5), (3 * PAGE, 9 * PAGE), (7, 7)]
        {
            object.write(0, &[3; 4 * PAGE as usize]).unwrap();
            object.zero(start..end).unwrap();
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
        assert_eq!(try_map(0, PAGE, RW, MapFlags::PRIVATE | GROWSDOWN, at(0)), Err(MmapError::BadFlags));
        assert_eq!(try_map(0, 1 << 62, RW, MAP, at(0)), Err(MmapError::TooLong));
        assert_eq!(try_map(0, u64::MAX, RW, MAP, at(0)), Err(MmapError::TooLong));
        assert_eq!(try_map(0, PAGE, RW, MAP, at(1 << 63)), Err(MmapError::OffsetOverflow));
        assert_eq!(try_map(0, 2 * PAGE, RW, MAP, at((1 << 63) - PAGE)), Err(MmapError::OffsetOverflow));
        assert_eq!(try_map(BASE + 1, PAGE, RW, MAP | FIXED, at(0)), Err(MmapError::Unaligned));
        let read_only = || whole(&object).with_may_write(false);
        assert_eq!(try_map(BASE, PAGE, RW, MAP | FIXED, read_only()), Err(MmapError::NoWriteRight));
        assert!(!object.is_mapped());

        // A mapping that was opened for reading stays so; the one before it is changed.
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
