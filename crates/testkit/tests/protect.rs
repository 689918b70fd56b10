//! mprotect(2)'s promises when it returns, whatever another CPU does meanwhile.
#![deny(unsafe_code)]

mod common;

use common::huge::HUGE;
use common::turns::TwoCpus;
use common::{FIXED, PAGE, PRIVATE, READ, RW, Running, Space, huge};
use softfault::policy::huge::Enabled;
use softfault::{
    Access, CpuId, FaultError, HugeKnobs, MapFlags, MlockFlags, MprotectError, ObjectPart, Order, Prot, VmaFlags,
};
use std::cell::Cell;

const RX: Prot = Prot::READ.union(Prot::EXEC);
const AT: u64 = 0x10_0000_0000;
/// Locked memory that mprotect gives pages of its own, without its lock.
const FILLED: u64 = 4 * PAGE;
const BEHIND: u64 = AT + FILLED;

/// CPU 0 executes a page, and makes it writable in the place of executable, while
/// CPU 1 writes it at each moment at which the call lets others run.
fn execution_ends(enabled: Enabled) {
    let cpus = TwoCpus::over(huge::vm(2, 32 << 20, HugeKnobs::DEFAULT.with_enabled(enabled)));
    let prepare = |running: &Running<'_>| {
        let space = running.space();
        assert_eq!(space.mmap(AT, HUGE, RW, PRIVATE | FIXED), Ok(AT));
        space.write(AT, &[7]).unwrap();
        // The entry is writable only by a fault.
        space.mprotect(AT, HUGE, RX).unwrap();
        assert_eq!(running.fetch(AT), Ok(7));
    };
    let write = |running: &Running<'_>| match running.space().handle_fault(AT, Access::Write) {
        Ok(_) | Err(FaultError::NoRights) => {}
        other => panic!("{other:?}"),
    };
    let look = |running: &Running<'_>, (), ()| {
        assert!(running.try_fetch(AT).is_err(), "a translation is left that executes");
        running.store(AT, &[8]).unwrap();
    };
    let mut begin = 0;
    let protect = |running: &Running<'_>| running.space().mprotect(AT, HUGE, RW).unwrap();
    while cpus.play_running(begin, prepare, protect, write, look) {
        begin += 1;
    }
    assert!(begin > 0, "the call never let CPU 1 run");
}

#[test]
fn no_translation_of_a_page_that_was_written_executes() {
    execution_ends(Enabled::Never);
}

#[test]
fn nor_one_of_a_huge_page() {
    execution_ends(Enabled::Always);
}

/// CPU 1 replaces the memory behind what mprotect fills by `replace`.
fn while_another_is_filled(replace: impl Fn(&Space<'_>) + Sync, look: impl Fn(&Space<'_>, Result<(), MprotectError>)) {
    let cpus = TwoCpus::new(16 << 20);
    let prepare = |space: &Space<'_>| {
        assert_eq!(space.mmap(AT, FILLED, READ, PRIVATE | FIXED), Ok(AT));
        assert_eq!(space.mmap(BEHIND, PAGE, READ, PRIVATE | FIXED), Ok(BEHIND));
        // The zero frame everywhere, so that pages of its own are copies, which wait.
        space.mlock(AT, FILLED, MlockFlags::empty()).unwrap();
    };
    let protect = |space: &Space<'_>| space.mprotect(AT, FILLED + PAGE, RW);
    let mut begin = 0;
    while cpus.play(begin, prepare, protect, &replace, |space, result, ()| look(space, result)) {
        begin += 1;
    }
    assert!(begin > 4, "CPU 1 came in the middle {begin} times");
}

#[test]
fn a_late_mapping_that_may_not_be_written_is_refused() {
    let flags = |space: &Space<'_>| space.vma(BEHIND).unwrap().flags;
    while_another_is_filled(
        |space| {
            let object = space.vm().new_shared_object(PAGE).unwrap();
            let part = ObjectPart::new(&object).with_may_write(false);
            assert_eq!(space.mmap_object(BEHIND, PAGE, READ, MapFlags::SHARED | FIXED, part), Ok(BEHIND));
        },
        |space, result| {
            assert!(flags(space).contains(VmaFlags::NEVERWRITE));
            assert!(!flags(space).contains(VmaFlags::WRITE), "{result:?}");
            let refused = space.write(BEHIND, &[1]).unwrap_err();
            assert_eq!((refused.at, refused.fault), (BEHIND, FaultError::NoRights));
        },
    );
}

#[test]
fn a_hole_that_came_late_is_no_success() {
    let nr_refused = Cell::new(0);
    while_another_is_filled(
        |space| space.munmap(BEHIND, PAGE).unwrap(),
        |space, result| {
            assert!(space.vma(BEHIND).is_none());
            nr_refused.set(nr_refused.get() + u32::from(result == Err(MprotectError::NotMapped)));
        },
    );
    assert!(nr_refused.get() > 0, "CPU 1 always came after the call");
}

/// CPU 1 maps a page of a pool where the range ends within it: it is not cut.
#[test]
fn a_page_of_a_pool_that_came_late_is_not_cut() {
    const POOL: u64 = AT + HUGE;
    let cpus = TwoCpus::new(32 << 20);
    let resize = |nr| {
        let _cpu = cpus.vm.machine().bind(CpuId(0)).unwrap();
        assert_eq!(cpus.vm.set_nr_hugepages(Order::PMD, nr), Ok(nr));
    };
    resize(1);
    let nr_refused = Cell::new(0);
    let mut begin = 0;
    let prepare = |space: &Space<'_>| {
        assert_eq!(space.mmap(AT, HUGE + PAGE, READ, PRIVATE | FIXED), Ok(AT));
        space.mlock(AT, FILLED, MlockFlags::empty()).unwrap();
    };
    let protect = |space: &Space<'_>| space.mprotect(AT, HUGE + PAGE, RW);
    let replace = |space: &Space<'_>| {
        assert_eq!(space.mmap(POOL, HUGE, READ, PRIVATE | FIXED | MapFlags::HUGETLB), Ok(POOL));
    };
    let look = |space: &Space<'_>, result, ()| {
        let late = space.vma(POOL).unwrap();
        assert_eq!((late.range.nr_pages(), late.flags.contains(VmaFlags::WRITE)), (512, false), "{result:?}");
        nr_refused.set(nr_refused.get() + u32::from(result == Err(MprotectError::NotHugePages)));
    };
    while cpus.play(begin, prepare, protect, replace, look) {
        begin += 1;
    }
    assert!(nr_refused.get() > 0, "CPU 1 always came before or after the call");
    resize(0);
}
