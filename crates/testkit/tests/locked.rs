//! mlock(2), mlock2(2), munlock(2), mlockall(2), munlockall(2): errno, what is
//! marked, what is brought in.

mod common;

use common::{DONTNEED, GUARD_INSTALL, NONE, PAGE, PRIVATE, RW, SHARED, Setup, World, in_setup};
use softfault::errno::Errno;
use softfault::{MlockFlags, MlockallFlags, Vma, VmaFlags};

fn alone(test: impl Fn(&World<'_>)) {
    in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
        let active = w.space.activate();
        test(w);
        drop(active);
    });
}

/// Which of the pages are there.
fn present(w: &World<'_>, at: u64, nr_pages: u64) -> Vec<bool> {
    (0..nr_pages).map(|page| w.space.translate_at_rest(at + page * PAGE).is_some()).collect()
}

fn errno<T, E>(result: Result<T, E>, errno: impl Fn(E) -> Errno) -> &'static str {
    result.map_or_else(|e| errno(e).name().unwrap_or("unknown"), |_| "ok")
}

/// The mapping goes on behind what is asked for.
#[test]
fn the_first_part_of_what_is_locked_is_locked_again() {
    alone(|w| {
        let at = w.space.mmap(0, 4 * PAGE, RW, PRIVATE).unwrap();
        w.space.mlock(at, 4 * PAGE, MlockFlags::empty()).unwrap();
        w.space.mlock(at, 2 * PAGE, MlockFlags::empty()).unwrap();
        assert_eq!((w.space.nr_vmas(), w.space.nr_locked_pages()), (1, 4));
    });
}

#[test]
fn a_part_is_marked_split_off_and_brought_in() {
    alone(|w| {
        let at = w.space.mmap(0, 8 * PAGE, RW, PRIVATE).unwrap();
        w.space.mlock(at + 2 * PAGE + 5, PAGE, MlockFlags::empty()).unwrap();
        assert_eq!(present(w, at, 8), [false, false, true, true, false, false, false, false], "bytes in two pages");
        assert_eq!((w.space.nr_vmas(), w.space.nr_locked_pages()), (3, 2));
        assert!(w.space.translate_at_rest(at + 2 * PAGE).unwrap().rights.contains(softfault::Rights::WRITE));
        assert_eq!(w.space.madvise(at + 2 * PAGE, PAGE, DONTNEED).map_err(|e| e.errno()), Err(Errno::EINVAL));
        w.space.munlock(at, 8 * PAGE).unwrap();
        assert_eq!((w.space.nr_vmas(), w.space.nr_locked_pages()), (1, 0), "one again");
        w.space.madvise(at + 2 * PAGE, PAGE, DONTNEED).unwrap();
    });
}

#[test]
fn on_fault_marks_and_brings_nothing_in() {
    alone(|w| {
        let at = w.space.mmap(0, 4 * PAGE, RW, SHARED).unwrap();
        w.space.mlock(at, 4 * PAGE, MlockFlags::ONFAULT).unwrap();
        assert_eq!((present(w, at, 4), w.space.nr_locked_pages()), (vec![false; 4], 4));
        w.space.mlock(at, PAGE, MlockFlags::empty()).unwrap();
        assert_eq!(present(w, at, 4), [true, false, false, false]);
        assert_eq!(w.space.nr_locked_pages(), 4);
    });
}

#[test]
fn errno_of_mlock() {
    alone(|w| {
        let at = w.space.mmap(0, 8 * PAGE, RW, PRIVATE).unwrap();
        w.space.munmap(at + 4 * PAGE, PAGE).unwrap();
        let lock = |addr, len, flags, limit| {
            w.space.set_limit_memlock(limit);
            errno(w.space.mlock(addr, len, MlockFlags::from_linux(flags)), |e| e.errno())
        };
        assert_eq!(lock(at, PAGE, 2, None), "EINVAL");
        assert_eq!(lock(at, PAGE, 0, Some(0)), "EPERM");
        assert_eq!(lock(at, 0, 0, None), "ok");
        assert_eq!(lock(at, u64::MAX, 0, None), "ok", "Linux rounds it to nothing");
        assert_eq!(lock(at, u64::MAX - 2 * PAGE, 0, None), "EINVAL");
        assert_eq!(lock(at, u64::MAX - 2 * PAGE, 0, Some(PAGE)), "ENOMEM", "the limit is looked at first");
        assert_eq!(lock(at + 4 * PAGE, PAGE, 0, None), "ENOMEM", "a hole");
        assert_eq!(w.space.nr_locked_pages(), 0);
        assert_eq!(lock(at, 8 * PAGE, 0, None), "ENOMEM", "a hole in the middle");
        assert_eq!(w.space.nr_locked_pages(), 4, "what lies before it");
        assert_eq!(errno(w.space.munlock(at, 8 * PAGE), |e| e.errno()), "ENOMEM");
        assert_eq!(w.space.nr_locked_pages(), 0);
        assert_eq!(lock(at, 4 * PAGE, 0, Some(3 * PAGE)), "ENOMEM", "over the limit");
        assert_eq!(lock(at, 3 * PAGE, 0, Some(3 * PAGE)), "ok");
        assert_eq!(lock(at + PAGE, 2 * PAGE, 0, Some(3 * PAGE)), "ok", "nothing is counted twice");
        assert_eq!(lock(at + PAGE, 3 * PAGE, 0, Some(3 * PAGE)), "ENOMEM");
    });
}

#[test]
fn pages_that_cannot_be_brought_in_stay_marked() {
    alone(|w| {
        let at = w.space.mmap(0, 4 * PAGE, NONE, PRIVATE).unwrap();
        assert_eq!(errno(w.space.mlock(at, 4 * PAGE, MlockFlags::empty()), |e| e.errno()), "ENOMEM", "PROT_NONE");
        assert_eq!(w.space.nr_locked_pages(), 4);
        let at = w.space.mmap(0, 4 * PAGE, RW, PRIVATE).unwrap();
        w.space.madvise(at + PAGE, PAGE, GUARD_INSTALL).unwrap();
        assert_eq!(errno(w.space.mlock(at, 4 * PAGE, MlockFlags::empty()), |e| e.errno()), "ENOMEM", "a guard");
        assert_eq!(present(w, at, 4), [true, false, false, false]);
        let nr_free = w.vm.vmstat().nr_free_pages;
        let len = (nr_free + 16) * PAGE;
        let big = w.space.mmap(0, len, RW, PRIVATE).unwrap();
        assert_eq!(errno(w.space.mlock(big, len, MlockFlags::empty()), |e| e.errno()), "EAGAIN", "more than there is");
        w.space.munmap(big, len).unwrap();
    });
}

#[test]
fn all_there_is_and_all_there_will_be() {
    alone(|w| {
        let all = |flags, limit| {
            w.space.set_limit_memlock(limit);
            let done = errno(w.space.mlockall(flags), |e| e.errno());
            w.space.set_limit_memlock(None);
            done
        };
        let old = w.space.mmap(0, 2 * PAGE, RW, PRIVATE).unwrap();
        for flags in [MlockallFlags::empty(), MlockallFlags::ONFAULT, MlockallFlags::from_linux(8)] {
            assert_eq!(all(flags, None), "EINVAL", "{flags:?}");
        }
        assert_eq!(all(MlockallFlags::CURRENT, Some(0)), "EPERM");
        assert_eq!(all(MlockallFlags::CURRENT, Some(PAGE)), "ENOMEM");
        assert_eq!(all(MlockallFlags::FUTURE, Some(PAGE)), "ok");
        assert_eq!(present(w, old, 2), [false, false]);
        let new = w.space.mmap(0, 2 * PAGE, RW, SHARED).unwrap();
        assert_eq!((present(w, new, 2), w.space.nr_locked_pages()), (vec![true; 2], 2));
        assert_eq!(all(MlockallFlags::CURRENT, None), "ok");
        assert_eq!((present(w, old, 2), w.space.nr_locked_pages()), (vec![true; 2], 4));
        let later = w.space.mmap(0, PAGE, RW, PRIVATE).unwrap();
        assert_eq!(present(w, later, 1), [false], "MCL_CURRENT alone ends MCL_FUTURE");
        assert_eq!(all(MlockallFlags::CURRENT | MlockallFlags::FUTURE | MlockallFlags::ONFAULT, None), "ok");
        let later = w.space.mmap(0, PAGE, RW, PRIVATE).unwrap();
        assert_eq!((present(w, later, 1), w.space.nr_locked_pages()), (vec![false], 6));
        w.space.munlockall().unwrap();
        w.space.mmap(0, PAGE, RW, PRIVATE).unwrap();
        assert_eq!(w.space.nr_locked_pages(), 0);
    });
}

/// The heap is no exception, and a child has none of it.
#[test]
fn the_heap_and_the_child() {
    alone(|w| {
        w.space.set_brk(common::BASE);
        w.space.mlockall(MlockallFlags::CURRENT | MlockallFlags::FUTURE).unwrap();
        assert_eq!(w.space.brk(common::BASE + 3 * PAGE), common::BASE + 3 * PAGE);
        assert_eq!((present(w, common::BASE, 3), w.space.nr_locked_pages()), (vec![true; 3], 3));
        let child = w.space.fork().unwrap();
        assert_eq!(child.nr_locked_pages(), 0);
        child.maps(&mut |vma: &Vma| assert!(!vma.flags.intersects(VmaFlags::LOCKED | VmaFlags::ONFAULT)));
        let at = child.mmap(0, PAGE, RW, PRIVATE).unwrap();
        assert!(child.translate_at_rest(at).is_none());
    });
}
