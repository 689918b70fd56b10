//! `vm.max_map_count`, `RLIMIT_DATA` and `RLIMIT_MEMLOCK`: which call is refused at which
//! number, with which error, and what stays unchanged. `MAP_32BIT`.
#![deny(unsafe_code)]

mod common;

use common::*;
use softfault::errno::Errno;
use softfault::{
    Advice, MadviseError, MapFlags, MlockError, MlockFlags, MlockallFlags, MmapError, MprotectError, MremapError,
    MunmapError, VmaFlags,
};

const MAP_32BIT: MapFlags = MapFlags::BITS_32;
const LOCKED: MapFlags = MapFlags::LOCKED;
const GIB: u64 = 1 << 30;

fn alone(test: impl Fn(&World<'_>)) {
    in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
        let active = w.space.activate();
        test(w);
        drop(active);
        check(w.vm, &[w.space]);
    });
}

/// Pages of data that the VMAs come to.
fn data_pages(space: &Space<'_>) -> u64 {
    let mut nr = 0;
    space.maps(&mut |vma| {
        let kind = vma.flags & (VmaFlags::WRITE | VmaFlags::SHARED | VmaFlags::GROWSDOWN);
        nr += if kind == VmaFlags::WRITE { vma.range.nr_pages() } else { 0 };
    });
    nr
}

/// `nr` VMAs of one page and one page between them, three pages the first.
fn spread(w: &World<'_>, nr: u64) {
    w.space.mmap(BASE, 3 * PAGE, RW, PRIVATE | FIXED).unwrap();
    (2..nr + 1).for_each(|i| _ = w.space.mmap(BASE + 2 * i * PAGE, PAGE, RW, PRIVATE | FIXED).unwrap());
    assert_eq!(w.space.nr_vmas(), nr);
}

/// As Linux: mmap(2) makes one VMA too many, and nobody else does.
#[test]
fn each_call_keeps_to_the_limit_on_vmas() {
    alone(|w| {
        let far = BASE + 1000 * PAGE;
        w.vm.set_max_map_count(9);
        spread(w, 9);
        assert_eq!(w.space.munmap(BASE + PAGE, PAGE), Err(MunmapError::TooManyVmas));
        assert_eq!(w.space.mprotect(BASE + PAGE, PAGE, READ), Err(MprotectError::TooManyVmas));
        assert_eq!(w.space.madvise(BASE + PAGE, PAGE, WIPEONFORK), Err(MadviseError::TooManyVmas));
        assert_eq!(w.space.mlock(BASE + PAGE, PAGE, MlockFlags::empty()), Err(MlockError::TooManyVmas));
        assert_eq!(w.space.mmap(BASE + PAGE, PAGE, READ, PRIVATE | FIXED), Err(MmapError::TooManyVmas));
        assert_eq!(w.space.mremap(BASE, PAGE, PAGE, MAYMOVE | MREMAP_FIXED, far), Err(MremapError::TooManyVmas));
        w.space.set_brk(far);
        assert_eq!(w.space.brk(far + PAGE), far + PAGE, "the tenth");
        assert_eq!(w.space.nr_vmas(), 10);
        assert_eq!(w.space.brk(far + 2 * PAGE), far + PAGE, "no more, though it would merge");
        assert_eq!(w.space.mmap(0, PAGE, READ, PRIVATE), Err(MmapError::TooManyVmas));
        // A lower limit takes nothing away, and what makes no VMA more goes on.
        w.vm.set_max_map_count(2);
        w.space.mprotect(BASE, 3 * PAGE, READ).unwrap();
        w.space.munmap(BASE + 2 * PAGE, PAGE).unwrap();
        w.space.munmap(BASE, 2 * PAGE).unwrap();
        w.space.munmap(BASE, 40 * PAGE).unwrap();
        assert_eq!((w.space.nr_vmas(), w.vm.max_map_count()), (1, 2));
        w.space.mmap(0, PAGE, READ, PRIVATE).unwrap();
    });
}

/// mremap(2) stays three below the limit, and two more where a place is given.
#[test]
fn a_move_keeps_its_distance_from_the_limit_on_vmas() {
    alone(|w| {
        let far = BASE + 1000 * PAGE;
        spread(w, 6);
        let grow = || w.space.mremap(BASE, 3 * PAGE, 9 * PAGE, MAYMOVE, 0);
        let place = || w.space.mremap(BASE + 4 * PAGE, PAGE, PAGE, MAYMOVE | MREMAP_FIXED, far);
        for (limit, grows, moves) in [(9, false, false), (10, true, false), (11, true, false), (12, true, true)] {
            w.vm.set_max_map_count(limit);
            assert_eq!(place().is_ok(), moves, "{limit}");
            let grown = grow();
            assert_eq!(grown.is_ok(), grows, "{limit}: {grown:?}");
            if let Ok(at) = grown {
                w.vm.set_max_map_count(65_530);
                w.space.munmap(at, 9 * PAGE).unwrap();
                w.space.mmap(BASE, 3 * PAGE, RW, PRIVATE | FIXED).unwrap();
            }
        }
    });
}

#[test]
fn data_is_counted_through_all_changes() {
    alone(|w| {
        let s = w.space;
        let count = |wanted: u64| assert_eq!((s.nr_data_pages(), data_pages(s)), (wanted, wanted));
        count(0);
        s.mmap(BASE, 8 * PAGE, RW, PRIVATE | FIXED).unwrap();
        s.mmap(BASE + 100 * PAGE, 8 * PAGE, READ, PRIVATE | FIXED).unwrap();
        s.mmap(BASE + 200 * PAGE, 8 * PAGE, RW, SHARED | FIXED).unwrap();
        s.mmap(BASE + 900 * PAGE, 8 * PAGE, RW, PRIVATE | FIXED | GROWSDOWN).unwrap();
        count(8);
        s.mprotect(BASE + 2 * PAGE, 2 * PAGE, READ).unwrap();
        count(6);
        s.mprotect(BASE + 100 * PAGE, 3 * PAGE, RW).unwrap();
        count(9);
        s.munmap(BASE + PAGE, 2 * PAGE).unwrap();
        count(8);
        s.mmap(BASE + 101 * PAGE, 4 * PAGE, RW, SHARED | FIXED).unwrap();
        count(6);
        let at = s.mremap(BASE + 3 * PAGE, PAGE, 2 * PAGE, MAYMOVE, 0).unwrap();
        count(6);
        s.mprotect(at, 2 * PAGE, RW).unwrap();
        count(8);
        s.set_brk(BASE + 2000 * PAGE);
        s.brk(BASE + 2003 * PAGE);
        count(11);
        s.brk(BASE + 2001 * PAGE);
        count(9);
        s.write(BASE + 900 * PAGE - 1, &[1]).unwrap();
        count(9);
        let child = s.fork().unwrap();
        assert_eq!((child.nr_data_pages(), data_pages(&child)), (9, 9));
        s.munmap(0, BASE + 3000 * PAGE).unwrap();
        assert_eq!(s.nr_data_pages(), data_pages(s));
    });
}

#[test]
fn each_call_keeps_to_the_limit_on_data() {
    alone(|w| {
        let s = w.space;
        s.set_limit_data(Some(8 * PAGE + 5));
        s.mmap(BASE, 6 * PAGE, RW, PRIVATE | FIXED).unwrap();
        assert_eq!(s.mmap(0, 3 * PAGE, RW, PRIVATE), Err(MmapError::OverData));
        assert_eq!(MmapError::OverData.errno(), Errno::ENOMEM);
        let readable = s.mmap(0, 8 * PAGE, READ, PRIVATE).unwrap();
        s.mmap(0, 8 * PAGE, RW, SHARED).unwrap();
        s.mmap(BASE + 900 * PAGE, 8 * PAGE, RW, PRIVATE | FIXED | GROWSDOWN).unwrap();
        assert_eq!(s.mremap(BASE, 6 * PAGE, 9 * PAGE, MAYMOVE, 0), Err(MremapError::OverData));
        assert_eq!(s.mprotect(readable, 3 * PAGE, RW), Err(MprotectError::OverData));
        s.mprotect(readable, 2 * PAGE, RW).unwrap();
        assert_eq!(s.nr_data_pages(), 8);
        s.mprotect(readable, 2 * PAGE, RW).unwrap();
        s.mprotect(BASE, 6 * PAGE, RW).unwrap();
        s.set_brk(BASE + 2000 * PAGE);
        assert_eq!(s.brk(BASE + 2001 * PAGE), BASE + 2000 * PAGE);
        // As Linux: what is replaced counts, whatever it was.
        s.mmap(readable + 2 * PAGE, 2 * PAGE, RW, PRIVATE | FIXED).unwrap();
        assert_eq!(s.nr_data_pages(), 10);
        let child = s.fork().unwrap();
        assert_eq!(child.mmap(0, PAGE, RW, PRIVATE), Err(MmapError::OverData), "a child inherits it");
        s.set_limit_data(None);
        s.mmap(0, 3 * PAGE, RW, PRIVATE).unwrap();
        s.set_limit_data(Some(0));
        assert_eq!(s.mmap(0, PAGE, RW, PRIVATE), Err(MmapError::OverData));
        s.munmap(0, BASE + 3000 * PAGE).unwrap();
    });
}

/// mprotect(2) changes the mappings before the one that is one too many.
#[test]
fn mprotect_changes_what_the_limit_on_data_allows() {
    alone(|w| {
        let s = w.space;
        s.mmap(BASE, 2 * PAGE, READ, PRIVATE | FIXED).unwrap();
        s.mmap(BASE + 2 * PAGE, 2 * PAGE, NONE, PRIVATE | FIXED).unwrap();
        s.set_limit_data(Some(3 * PAGE));
        assert_eq!(s.mprotect(BASE, 4 * PAGE, RW), Err(MprotectError::OverData));
        assert!(s.vma(BASE).unwrap().flags.contains(VmaFlags::WRITE));
        assert!(s.vma(BASE + 2 * PAGE).unwrap().flags.rights().is_empty());
        assert_eq!(s.mprotect(BASE + 2 * PAGE, 2 * PAGE, READ), Ok(()));
    });
}

/// As Linux: where the space has no room for the mapping as it is, it may change.
#[test]
fn mprotect_asks_the_limit_on_all_memory_first() {
    alone(|w| {
        let s = w.space;
        s.mmap(BASE, 4 * PAGE, READ, PRIVATE | FIXED).unwrap();
        s.set_limit_data(Some(0));
        s.set_limit_as(Some(6 * PAGE));
        assert_eq!(s.mprotect(BASE, 2 * PAGE, RW), Err(MprotectError::OverData));
        s.mprotect(BASE, 3 * PAGE, RW).unwrap();
    });
}

#[test]
fn a_move_that_keeps_the_old_asks_once_its_target_is_gone() {
    alone(|w| {
        let (s, target) = (w.space, BASE + 10 * PAGE);
        s.mmap(BASE, 4 * PAGE, RW, PRIVATE | FIXED).unwrap();
        s.mmap(target, 4 * PAGE, RW, PRIVATE | FIXED).unwrap();
        s.write(BASE, &[7]).unwrap();
        for set_limit in [|s: &Space, limit| s.set_limit_as(limit), |s: &Space, limit| s.set_limit_data(limit)] {
            set_limit(s, Some(8 * PAGE));
            assert!(s.mremap(BASE, 4 * PAGE, 4 * PAGE, MAYMOVE | DONTUNMAP, 0).is_err());
            assert_eq!(s.mremap(BASE, 4 * PAGE, 4 * PAGE, MAYMOVE | MREMAP_FIXED | DONTUNMAP, target), Ok(target));
            set_limit(s, None);
        }
        assert_eq!((s.nr_data_pages(), s.nr_mapped_pages()), (8, 8));
    });
}

#[test]
fn new_mappings_keep_to_the_limit_on_locked_memory() {
    alone(|w| {
        let s = w.space;
        s.set_limit_memlock(Some(4 * PAGE));
        let at = s.mmap(0, 3 * PAGE, RW, PRIVATE | LOCKED).unwrap();
        assert_eq!(s.mmap(0, 2 * PAGE, RW, PRIVATE | LOCKED), Err(MmapError::TooMuchLocked));
        assert_eq!(MmapError::TooMuchLocked.errno(), Errno::EAGAIN);
        assert_eq!(s.mremap(at, 3 * PAGE, 5 * PAGE, MAYMOVE, 0), Err(MremapError::TooMuchLocked));
        s.mlockall(MlockallFlags::FUTURE).unwrap();
        assert_eq!(s.mmap(0, 2 * PAGE, RW, PRIVATE), Err(MmapError::TooMuchLocked), "MCL_FUTURE locks it");
        s.set_brk(BASE);
        assert_eq!(s.brk(BASE + 2 * PAGE), BASE);
        assert_eq!(s.brk(BASE + PAGE), BASE + PAGE);
        assert_eq!((s.nr_locked_pages(), s.nr_vmas()), (4, 2));
        s.set_limit_memlock(Some(0));
        assert_eq!(s.mmap(0, PAGE, RW, PRIVATE | LOCKED), Err(MmapError::LockNotAllowed));
        assert_eq!(MmapError::LockNotAllowed.errno(), Errno::EPERM);
        assert_eq!(s.mmap(0, PAGE, RW, PRIVATE), Err(MmapError::TooMuchLocked));
        s.set_limit_memlock(None);
        s.mmap(0, 8 * PAGE, RW, PRIVATE | LOCKED).unwrap();
    });
}

#[test]
fn a_stack_that_is_locked_grows_within_the_limit() {
    alone(|w| {
        let s = w.space;
        s.mmap(BASE, PAGE, RW, PRIVATE | FIXED | GROWSDOWN | LOCKED).unwrap();
        s.set_limit_memlock(Some(2 * PAGE));
        s.write(BASE - 1, &[1]).unwrap();
        assert!(s.write(BASE - PAGE - 1, &[1]).is_err());
        s.set_limit_memlock(None);
        s.write(BASE - PAGE - 1, &[1]).unwrap();
    });
}

#[test]
fn each_mapping_that_grows_keeps_to_the_limit_on_stacks() {
    alone(|w| {
        let (s, other) = (w.space, BASE + 100 * PAGE);
        s.mmap(BASE, PAGE, RW, PRIVATE | FIXED | GROWSDOWN).unwrap();
        s.mmap(other, 3 * PAGE, RW, PRIVATE | FIXED | GROWSDOWN).unwrap();
        s.set_limit_stack(Some(3 * PAGE));
        s.write(BASE - 2 * PAGE, &[1]).unwrap();
        assert!(s.write(BASE - 3 * PAGE, &[1]).is_err());
        assert!(s.write(other - 1, &[1]).is_err(), "as large as it may be");
        let child = s.fork().unwrap();
        assert!(child.write(BASE - 3 * PAGE, &[1]).is_err(), "a child inherits it");
        drop(child);
        s.set_limit_stack(Some(4 * PAGE));
        s.write(BASE - 3 * PAGE, &[1]).unwrap();
        s.set_limit_stack(Some(PAGE));
        s.write(BASE - 3 * PAGE, &[2]).unwrap();
        s.set_limit_stack(None);
        s.write(other - 40 * PAGE, &[1]).unwrap();
        let new = w.vm.new_space().unwrap();
        new.mmap(BASE, PAGE, RW, PRIVATE | FIXED | GROWSDOWN).unwrap();
        assert!(new.write(BASE - (9 << 20), &[1]).is_err(), "a new space has the limit of its machine");
        new.write(BASE - (7 << 20), &[1]).unwrap();
    });
}

#[test]
fn map_32bit_gives_the_second_gibibyte_or_nothing() {
    alone(|w| {
        let s = w.space;
        let map = |at, len| s.mmap(at, len, NONE, PRIVATE | MAP_32BIT);
        assert_eq!(map(0, PAGE), Ok(GIB));
        assert_eq!(map(0, 2 * PAGE), Ok(GIB + PAGE));
        assert_eq!(map(2 * GIB - PAGE, PAGE), Ok(2 * GIB - PAGE), "a hint below 2 GiB");
        assert_eq!(map(GIB / 2, PAGE), Ok(GIB / 2));
        assert_eq!(map(BASE, PAGE), Ok(GIB + 3 * PAGE), "a hint above is none");
        assert_eq!(map(0, GIB - 4 * PAGE), Err(MmapError::NoHole));
        assert_eq!(map(0, GIB - 5 * PAGE), Ok(GIB + 4 * PAGE));
        assert_eq!(map(0, PAGE), Err(MmapError::NoHole));
        assert_eq!(map(0, 3 * GIB), Err(MmapError::NoHole));
        assert_eq!(s.mmap(BASE, PAGE, NONE, PRIVATE | FIXED | MAP_32BIT), Ok(BASE), "MAP_FIXED says where");
        s.munmap(0, BASE + PAGE).unwrap();
    });
}

/// Mappings of `/dev/zero`: their refusals, and when one joins its neighbour.
#[test]
fn zeroes_of_a_file_are_anonymous_memory_with_an_offset() {
    alone(|w| {
        let s = w.space;
        let zero = |at, len, flags, offset| s.mmap_zero(at, len, RW, flags, offset);
        assert_eq!(zero(0, PAGE, SHARED, 0), Err(MmapError::BadFlags));
        assert_eq!(zero(0, PAGE, PRIVATE | MapFlags::GROWSDOWN, 0), Err(MmapError::BadFlags));
        assert_eq!(zero(0, 0, PRIVATE, 0), Err(MmapError::ZeroLength));
        assert_eq!(zero(0, u64::MAX, PRIVATE, 0), Err(MmapError::TooLong));
        assert_eq!(zero(0, PAGE, PRIVATE, 1), Err(MmapError::OffsetUnaligned));
        assert_eq!(zero(0, PAGE, PRIVATE, u64::MAX - PAGE + 1), Err(MmapError::OffsetOverflow));
        let at = zero(BASE, 2 * PAGE, PRIVATE | FIXED, 7 * PAGE).unwrap();
        s.mmap(BASE + 2 * PAGE, PAGE, RW, PRIVATE | FIXED).unwrap();
        assert_eq!(s.nr_vmas(), 2, "anonymous memory beside it is another VMA");
        zero(BASE + 2 * PAGE, PAGE, PRIVATE | FIXED, 7 * PAGE).unwrap();
        assert_eq!(s.nr_vmas(), 2, "the offset begins again");
        zero(BASE + 2 * PAGE, PAGE, PRIVATE | FIXED, 9 * PAGE).unwrap();
        assert_eq!((s.nr_vmas(), s.vma(at).unwrap().pgoff), (1, 7), "it continues");
        s.mprotect(BASE + PAGE, PAGE, NONE).unwrap();
        assert_eq!((s.nr_vmas(), s.vma(BASE + 2 * PAGE).unwrap().pgoff), (3, 9));
        s.mprotect(BASE + PAGE, PAGE, RW).unwrap();
        assert_eq!(s.nr_vmas(), 1);
        assert_eq!(s.madvise(at, PAGE, WIPEONFORK), Err(MadviseError::WrongMapping));
        assert_eq!(s.madvise(at, PAGE, Advice::Remove), Err(MadviseError::NotShared));
        s.write(at, b"private").unwrap();
        let child = s.fork().unwrap();
        let mut bytes = [0; 7];
        child.read(at, &mut bytes).unwrap();
        assert_eq!((&bytes, child.vma(at).unwrap().pgoff), (b"private", 7));
        s.madvise(at, 3 * PAGE, FREE).unwrap();
        s.munmap(at, 3 * PAGE).unwrap();
    });
}
