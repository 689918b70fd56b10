//! Private mappings of an object of a pool: they show its pages until they are stored to, and reserve as many as they have.

use super::common::objects::{Object, bytes, touch, whole};
use super::common::*;
use super::subpool::subpool;
use super::{AT, HUGE, NORESERVE, free, map, object, with_pool};
use softfault::{Access, Errno, Event, FaultDone, FaultError, MapFlags, MlockFlags, MmapError, Order, Term};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(super) const OWN: MapFlags = MapFlags::PRIVATE;
const GONE: Result<(), FaultError> = Err(FaultError::NoHugePage);
pub(super) const BEYOND: Result<(), FaultError> = Err(FaultError::BeyondObject);
/// Where the object is mapped shared.
const SHARED_AT: u64 = AT + 32 * HUGE;

pub(super) fn own(w: &World<'_>, nr: u64, of: &Object<'_>, more: MapFlags) -> Result<u64, MmapError> {
    w.space.mmap_object(AT, nr * HUGE, RW, OWN | FIXED | more, whole(of))
}

fn bytes_or(space: &Space<'_>, at: u64) -> Result<[u8; 1], FaultError> {
    let mut byte = [0];
    space.read(at, &mut byte).map(|()| byte).map_err(|error| error.fault)
}

fn anon_and_shmem(space: &Space<'_>) -> (u64, u64) {
    (space.rss_pages().anon, space.rss_pages().shmem)
}

#[test]
fn a_page_is_the_objects_until_it_is_stored_to() {
    with_pool(1, 4, |w| {
        let file = object(w, 2);
        file.write(8, b"file").unwrap();
        assert_eq!((free(w), own(w, 2, &file, MapFlags::empty())), ((3, 0), Ok(AT)));
        assert_eq!(free(w), (3, 2), "for each of its pages, whatever the object has");
        assert_eq!(w.space.handle_fault(AT, Access::Read), Ok(FaultDone::Shared));
        assert_eq!((bytes(w.space, AT + 8), free(w), anon_and_shmem(w.space)), (*b"file", (3, 2), (0, 512)));
        check(w.vm, &[w.space]);
        file.write(9, b"F").unwrap();
        assert_eq!(bytes(w.space, AT + 8), *b"fFle", "the page itself");
        assert_eq!(w.space.handle_fault(AT + 5 * PAGE, Access::Write), Ok(FaultDone::Copied));
        assert_eq!((free(w), anon_and_shmem(w.space)), ((2, 1), (512, 0)));
        w.space.write(AT + 8, b"mine").unwrap();
        file.write(9, b"G").unwrap();
        let mut now = [0; 4];
        file.read(8, &mut now);
        assert_eq!((bytes(w.space, AT + 8), &now), (*b"mine", b"fGle"));
        check(w.vm, &[w.space]);
        // The object has none: the mapping gets its own, and the object does not, as on Linux.
        assert_eq!((bytes(w.space, AT + HUGE), free(w), anon_and_shmem(w.space)), ([0], (1, 0), (1024, 0)));
        file.write(HUGE, b"late").unwrap();
        assert_eq!((bytes(w.space, AT + HUGE), free(w)), ([0; 4], (0, 0)));
        check(w.vm, &[w.space]);
        w.space.madvise(AT, 2 * HUGE, DONTNEED).unwrap();
        assert_eq!((free(w), bytes(w.space, AT + HUGE)), ((2, 2), *b"late"));
        assert_eq!(w.space.handle_fault(AT, Access::Write), Ok(FaultDone::Copied), "in one step");
        assert_eq!((free(w), anon_and_shmem(w.space), bytes(w.space, AT + 8)), ((1, 1), (512, 512), *b"fGle"));
        check(w.vm, &[w.space]);
        w.space.munmap(AT + HUGE, HUGE).unwrap();
        assert_eq!(free(w), (1, 0), "the claim of a page that was only shown");
    });
}

#[test]
fn reservations_are_the_mappings() {
    with_pool(1, 3, |w| {
        let file = object(w, 8);
        assert_eq!(own(w, 4, &file, MapFlags::empty()), Err(MmapError::NoHugePages));
        assert_eq!((free(w), MmapError::NoHugePages.errno()), ((3, 0), Errno::ENOMEM));
        own(w, 2, &file, MapFlags::empty()).unwrap();
        assert_eq!(free(w), (3, 2));
        map(w, SHARED_AT, 2, &file, 0, MapFlags::empty()).unwrap_err();
        map(w, SHARED_AT, 1, &file, 0, MapFlags::empty()).unwrap();
        assert_eq!((free(w), touch(w.space, SHARED_AT), touch(w.space, AT)), ((3, 3), Ok(()), Ok(())));
        assert_eq!((free(w), touch(w.space, AT + HUGE), free(w)), ((1, 1), Ok(()), (0, 0)));
        check(w.vm, &[w.space]);
        // A mapping without reservations gets no page if others took all; it continues to see those that it saw.
        let other = w.vm.new_space().unwrap();
        other.mmap_object(AT, HUGE, RW, OWN | FIXED | NORESERVE, whole(&file)).unwrap();
        assert_eq!((other.handle_fault(AT, Access::Read), touch(&other, AT)), (Ok(FaultDone::Shared), GONE));
        assert_eq!((other.page_state(AT).unwrap().order, bytes(&other, AT)), (Order::PMD, [0]));
        check(w.vm, &[w.space, &other]);
        other.mmap_object(AT + HUGE, HUGE, RW, OWN | FIXED | NORESERVE, whole(&file).with_offset_bytes(HUGE)).unwrap();
        assert_eq!((touch(&other, AT + HUGE), free(w)), (GONE, (0, 0)));
        drop(other);
        w.space.munmap(AT, HUGE).unwrap();
        assert_eq!(free(w), (1, 0));
        w.space.munmap(SHARED_AT, HUGE).unwrap();
    });
}

/// The claims, and pages, of private mappings count in the subpool of the object.
#[test]
fn h11_private_pages_are_the_subpools() {
    with_pool(1, 4, |w| {
        let few = subpool(w, Some(2), 1);
        let file = few.new_object(4 * HUGE).unwrap();
        assert_eq!((free(w), own(w, 3, &file, MapFlags::empty())), ((4, 1), Err(MmapError::SubpoolFull)));
        own(w, 2, &file, MapFlags::empty()).unwrap();
        assert_eq!((free(w), few.nr_used(), file.write(0, b"x").is_err()), ((4, 2), 2, true));
        touch(w.space, AT).unwrap();
        check(w.vm, &[w.space]);
        assert_eq!((free(w), few.nr_used()), ((3, 1), 2));
        let child = w.space.fork().unwrap();
        let full = Err(FaultError::SubpoolFull);
        assert_eq!(
            (touch(&child, AT), bytes(&child, AT), few.nr_used()),
            (full, [0], 2),
            "no more for a child, either"
        );
        w.space.write(AT, b"p").unwrap();
        assert_eq!(
            (touch(&child, AT), few.nr_used(), free(w)),
            (Err(FaultError::Taken), 2, (3, 1)),
            "nor for the owner"
        );
        w.space.write(AT, &[0]).unwrap();
        drop(child);
        w.space.munmap(AT + HUGE, HUGE).unwrap();
        let child = w.space.fork().unwrap();
        assert_eq!((free(w), few.nr_used()), ((3, 0), 1), "nothing for a copy");
        check(w.vm, &[w.space, &child]);
        child.write(AT, b"c").unwrap();
        assert_eq!((free(w), few.nr_used(), bytes(w.space, AT)), ((2, 0), 2, [0]));
        check(w.vm, &[w.space, &child]);
        child.madvise(AT, HUGE, DONTNEED).unwrap();
        let second = w.space.fork().unwrap();
        w.space.madvise(AT, HUGE, DONTNEED).unwrap();
        assert_eq!((free(w), few.nr_used()), ((3, 1), 2), "the second child has the page");
        check(w.vm, &[w.space, &child, &second]);
        drop(second);
        assert_eq!((free(w), few.nr_used()), ((4, 1), 1), "the parent's claim stays");
        // The mapping, its claim and its page outlive all handles.
        drop((file, few, child));
        check(w.vm, &[w.space]);
        assert_eq!((bytes(w.space, AT + 5), free(w)), ([0], (3, 0)));
        check(w.vm, &[w.space]);
        w.space.munmap(AT, HUGE).unwrap();
        assert_eq!(free(w), (4, 0));
    });
}

#[test]
fn h5_a_child_shows_what_the_parent_has() {
    with_pool(1, 4, |w| {
        let file = object(w, 2);
        file.write(0, b"0").unwrap();
        file.write(HUGE, b"1").unwrap();
        own(w, 2, &file, MapFlags::empty()).unwrap();
        w.space.write(AT, b"p").unwrap();
        assert_eq!((bytes(w.space, AT + HUGE), free(w)), (*b"1", (1, 1)));
        let child = w.space.fork().unwrap();
        assert_eq!((w.vm.event(Event::ForkNoHugePage), free(w)), (0, (1, 1)), "what is left is the parent's");
        assert_eq!((touch(&child, AT), bytes(&child, AT), bytes(&child, AT + HUGE)), (GONE, *b"p", *b"1"));
        assert_eq!(touch(&child, AT + HUGE), GONE, "no reservation");
        w.space.write(AT + HUGE, b"p").unwrap();
        assert_eq!((bytes(w.space, AT + HUGE), bytes(&child, AT + HUGE), free(w)), (*b"p", *b"1", (0, 0)));
        check(w.vm, &[w.space, &child]);
        drop(child);
        file.set_size_bytes(HUGE);
        assert_eq!(free(w), (2, 1), "page, and copy, whose claim stays");
        let child = w.space.fork().unwrap();
        child.write(AT, b"c").unwrap();
        assert_eq!(
            (bytes(w.space, AT), bytes(&child, AT), free(w)),
            (*b"p", *b"c", (1, 1)),
            "of the file's former page"
        );
        check(w.vm, &[w.space, &child]);
    });
}

/// A hole drops private copies, whose places keep their claims, and so does a smaller size.
#[test]
fn h3_h4_holes_and_sizes_drop_copies() {
    with_pool(1, 4, |w| {
        let file = object(w, 2);
        file.write(0, b"f").unwrap();
        file.write(HUGE, b"f").unwrap();
        own(w, 2, &file, MapFlags::empty()).unwrap();
        w.space.write(AT, b"m").unwrap();
        assert_eq!((bytes(w.space, AT + HUGE), free(w)), (*b"f", (1, 1)));
        file.discard(0..1024);
        assert_eq!(free(w), (4, 2));
        check(w.vm, &[w.space]);
        assert_eq!((bytes(w.space, AT), free(w)), ([0], (3, 1)));
        assert_eq!((bytes(w.space, AT + HUGE), free(w)), ([0], (2, 0)), "a page of its own");
        let child = w.space.fork().unwrap();
        assert_eq!(free(w), (2, 0));
        file.set_size_bytes(HUGE);
        assert_eq!((touch(w.space, AT + HUGE), touch(&child, AT + HUGE), free(w)), (BEYOND, BEYOND, (3, 1)));
        check(w.vm, &[w.space, &child]);
        file.set_size_bytes(0);
        assert_eq!((touch(w.space, AT), touch(&child, AT), free(w)), (BEYOND, BEYOND, (4, 2)));
        check(w.vm, &[w.space, &child]);
        file.set_size_bytes(2 * HUGE);
        assert_eq!((bytes(w.space, AT), bytes(w.space, AT + HUGE), free(w)), ([0], [0], (2, 0)), "nothing stale");
        drop(child);
    });
}

/// Of a page that lies below the end in part nothing is dropped.
#[test]
fn a_page_that_ends_beyond_the_size_stays() {
    with_pool(1, 2, |w| {
        let file = object(w, 1);
        own(w, 1, &file, MapFlags::empty()).unwrap();
        w.space.write(AT, b"m").unwrap();
        file.set_size_bytes(3 * PAGE);
        let child = w.space.fork().unwrap();
        assert_eq!((bytes(w.space, AT), bytes(&child, AT), free(w)), (*b"m", *b"m", (1, 0)));
        check(w.vm, &[w.space, &child]);
    });
}

/// The holder of a pin and the program see each other's stores: a page of the object is copied first, also to be read.
#[test]
fn a_pin_gets_a_copy() {
    with_pool(1, 3, |w| {
        let file = object(w, 1);
        file.write(0, b"f").unwrap();
        own(w, 1, &file, MapFlags::empty()).unwrap();
        assert_eq!(bytes(w.space, AT), *b"f");
        let read = w.space.pin_page(AT + PAGE, Term::Short).unwrap();
        assert_eq!((anon_and_shmem(w.space), free(w)), ((512, 0), (1, 0)));
        w.space.write(AT + PAGE, b"m").unwrap();
        let mut seen = [0];
        read.read(0, &mut seen);
        assert_eq!(&seen, b"m");
        check(w.vm, &[w.space]);
        // It outlives the copy, and the place gets the last page of the pool.
        file.set_size_bytes(0);
        assert_eq!((touch(w.space, AT), free(w)), (BEYOND, (2, 1)));
        check(w.vm, &[w.space]);
        file.set_size_bytes(HUGE);
        assert_eq!((bytes(w.space, AT), free(w)), ([0], (1, 0)));
        let mine = w.space.pin_page_mut(AT, Term::Short).unwrap();
        map(w, SHARED_AT, 1, &file, 0, MapFlags::empty()).unwrap();
        touch(w.space, SHARED_AT).unwrap();
        file.set_size_bytes(0);
        assert_eq!(free(w), (1, 1), "the file's page");
        touch(w.space, AT).unwrap_err();
        drop((mine, read));
        check(w.vm, &[w.space]);
        w.space.munmap(SHARED_AT, HUGE).unwrap();
    });
}

/// A place that has lost its page, and has no claim, says so beyond the end, too. It gets a claim when there is a page again.
#[test]
fn a_lost_page_comes_back_with_its_claim() {
    with_pool(1, 1, |w| {
        let file = object(w, 1);
        own(w, 1, &file, MapFlags::empty()).unwrap();
        w.space.write(AT, b"m").unwrap();
        let pin = w.space.pin_page(AT, Term::Short).unwrap();
        file.set_size_bytes(0);
        assert_eq!((touch(w.space, AT).is_err(), free(w)), (true, (0, 0)), "the pin has the pool's only page");
        check(w.vm, &[w.space]);
        file.set_size_bytes(HUGE);
        assert_eq!((touch(w.space, AT), bytes_or(w.space, AT)), (GONE, Err(FaultError::NoHugePage)));
        file.write(0, b"f").unwrap_err();
        drop(pin);
        file.write(0, b"f").unwrap();
        assert_eq!((bytes_or(w.space, AT), free(w)), (Err(FaultError::NoHugePage), (0, 0)), "the file has the page");
        file.discard(0..512);
        assert_eq!((bytes_or(w.space, AT), free(w)), (Ok([0]), (0, 0)));
        check(w.vm, &[w.space]);
    });
}

#[test]
fn the_other_calls() {
    with_pool(1, 4, |w| {
        let file = object(w, 2);
        file.write(0, b"f").unwrap();
        own(w, 2, &file, MapFlags::empty()).unwrap();
        assert_eq!(bytes(w.space, AT), *b"f");
        assert_eq!((w.space.mprotect(AT, HUGE, READ), touch(w.space, AT)), (Ok(()), Err(FaultError::NoRights)));
        assert_eq!((w.space.mprotect(AT, 2 * HUGE, RW), anon_and_shmem(w.space)), (Ok(()), (0, 512)));
        check(w.vm, &[w.space]);
        // Of the object's pages the entries stay behind, with their claims; private ones go along.
        w.space.write(AT + HUGE, b"m").unwrap();
        let to = AT + 8 * HUGE;
        assert_eq!(w.space.mremap(AT, 2 * HUGE, 2 * HUGE, MAYMOVE | MREMAP_FIXED, to), Ok(to));
        assert_eq!((anon_and_shmem(w.space), free(w)), ((512, 0), (2, 1)));
        check(w.vm, &[w.space]);
        assert_eq!((bytes(w.space, to), bytes(w.space, to + HUGE), free(w)), (*b"f", *b"m", (2, 1)));
        assert_eq!(w.space.mremap(to, 2 * HUGE, HUGE, MAYMOVE, 0), Ok(to));
        assert_eq!(
            (free(w), w.space.mremap(to, HUGE, 2 * HUGE, MAYMOVE, 0).unwrap_err().errno()),
            ((3, 1), Errno::EINVAL)
        );
        assert_eq!((w.space.mlock(to, HUGE, MlockFlags::empty()), anon_and_shmem(w.space)), (Ok(()), (512, 0)));
        assert_eq!((bytes(w.space, to), free(w)), (*b"f", (2, 0)), "as a store");
        check(w.vm, &[w.space]);
        let refused = w.space.madvise(to, HUGE, softfault::Advice::Remove);
        assert_eq!(refused.unwrap_err().errno(), Errno::EACCES);
        // Another mapping over it, and none that cuts it.
        assert_eq!(w.space.mmap(to + PAGE, PAGE, RW, PRIVATE | FIXED), Err(MmapError::NotHugePages));
        assert_eq!(w.space.mmap(to, HUGE, RW, PRIVATE | FIXED), Ok(to));
        assert_eq!(free(w), (3, 0));
    });
}

/// As on Linux, a mapping over another one may have its pages; if these do not suffice, what was there is gone.
#[test]
fn a_mapping_has_the_pages_of_what_it_replaces() {
    with_pool(1, 3, |w| {
        let file = object(w, 4);
        own(w, 2, &file, MapFlags::empty()).unwrap();
        w.space.write(AT, b"m").unwrap();
        assert_eq!((free(w), own(w, 2, &file, MapFlags::empty())), ((2, 1), Ok(AT)));
        assert_eq!((free(w), bytes(w.space, AT)), ((3, 2), [0]));
        check(w.vm, &[w.space]);
        let anon = PRIVATE | FIXED | MapFlags::HUGETLB;
        assert_eq!((w.space.mmap(AT, 3 * HUGE, RW, anon), free(w)), (Ok(AT), (3, 3)));
        check(w.vm, &[w.space]);
        assert_eq!((own(w, 4, &file, MapFlags::empty()), free(w)), (Err(MmapError::NoHugePages), (3, 0)));
        assert_eq!(touch(w.space, AT), Err(FaultError::NotMapped));
        check(w.vm, &[w.space]);
    });
}

/// A shared mapping has the pages of the private ones that it replaces. Its words need nodes, which are there before anything is
/// unmapped.
#[test]
fn a_shared_mapping_replaces_private_pages_while_the_kth_allocation_fails() {
    let nr_kept = AtomicU64::new(0);
    for k in 0..16 {
        with_pool(1, 4, |w| {
            let file = w.vm.new_hugetlb_object(4 * HUGE, Order::PMD).unwrap();
            assert_eq!(w.space.mmap(AT, 4 * HUGE, RW, PRIVATE | FIXED | MapFlags::HUGETLB), Ok(AT));
            (0..4).for_each(|i| w.space.write(AT + i * HUGE, &[1 + i as u8]).unwrap());
            w.vm.fail_allocation(Some(k));
            let mapped = w.space.mmap_object(AT + HUGE, 2 * HUGE, RW, MapFlags::SHARED | FIXED, whole(&file));
            w.vm.fail_allocation(None);
            check(w.vm, &[w.space]);
            let all = || (0..4).map(|i| bytes(w.space, AT + i * HUGE)).collect::<Vec<[u8; 1]>>();
            match mapped {
                Ok(at) => assert_eq!((at, free(w), all()), (AT + HUGE, (2, 2), vec![[1], [0], [0], [4]])),
                Err(MmapError::OutOfFrames(_)) => {
                    nr_kept.fetch_add(1, Relaxed);
                    assert_eq!((free(w), all()), ((0, 0), vec![[1], [2], [3], [4]]));
                }
                Err(other) => panic!("allocation {k}: {other}"),
            }
            // Refused twice, it leaves a hole, and the object has no promises.
            let more = w.vm.new_hugetlb_object(5 * HUGE, Order::PMD).unwrap();
            let refused = w.space.mmap_object(AT, 5 * HUGE, RW, MapFlags::SHARED | FIXED, whole(&more));
            assert_eq!((refused, w.space.vma(AT)), (Err(MmapError::NoHugePages), None));
            assert_eq!(free(w), (if mapped.is_ok() { 2 } else { 4 }, 0), "pages that were touched stay in the file");
            check(w.vm, &[w.space]);
        });
    }
    assert_ne!(nr_kept.into_inner(), 0);
}

/// H7: offsets and sizes.
#[test]
fn h7_private_offsets_and_sizes() {
    with_pool(1, 2, |w| {
        let file = w.vm.new_hugetlb_object(1 << 50, Order::PMD).unwrap();
        let at = |offset: u64, len: u64| {
            let part = whole(&file).with_offset_bytes(offset);
            w.space.mmap_object(0, len, RW, OWN, part).map_err(MmapError::errno)
        };
        for (offset, len, errno) in [
            (PAGE, HUGE, Errno::EINVAL),
            (0, PAGE, Errno::EINVAL),
            (5, HUGE, Errno::EINVAL),
            ((1 << 63) - HUGE, 2 * HUGE, Errno::EOVERFLOW),
            (!(HUGE - 1), HUGE, Errno::EOVERFLOW),
            (0, 3 * HUGE, Errno::ENOMEM),
            (0, 1 << 62, Errno::ENOMEM),
            (0, 0, Errno::EINVAL),
        ] {
            assert_eq!((at(offset, len), free(w)), (Err(errno), (2, 0)), "{offset:#x} {len:#x}");
        }
        let far = at((1 << 50) - HUGE, 2 * HUGE).unwrap();
        assert_eq!((touch(w.space, far), touch(w.space, far + HUGE), free(w)), (Ok(()), BEYOND, (1, 1)));
        w.space.munmap(far, 2 * HUGE).unwrap();
    });
}
