//! The end of a huge page: once a frame of it is free, its block has no folio any more
//! (I26). The next owner of the frame has a page of its own.
#![deny(unsafe_code)]

mod common;

use common::huge::{AT, HUGE, huge_pages, map, vm};
use common::turns::TwoCpus;
use common::{DONTNEED, PAGE, Space};
use softfault::policy::huge::Enabled;
use softfault::{Advice, FaultError, HugeKnobs, MigrateRefusal, Term};

/// Where small pages lie; of the first one only the table is there.
const SMALL: u64 = AT + (1 << 30);
const ARENA: u64 = 16 << 20;

/// A huge page with something in each part. All other memory is in use.
fn prepare(space: &Space<'_>) {
    map(space, AT, HUGE);
    (0..HUGE).step_by(PAGE as usize).for_each(|at| space.write(AT + at, &[1]).unwrap());
    assert_eq!(huge_pages(space), 1);
    map(space, SMALL, ARENA);
    space.madvise(SMALL, ARENA, Advice::NoHugePage).unwrap();
    let mut others = (SMALL + PAGE..SMALL + ARENA).step_by(PAGE as usize);
    let refused = others.find_map(|at| space.write(at, &[1]).err()).unwrap();
    assert_eq!(refused.fault, FaultError::OutOfFrames);
}

/// CPU 1 writes to a small page at each moment at which the huge page's end lets others
/// run. No other frame is free, so that the end must have freed the page's.
fn a_frame_is_free_after_the_end(mark: fn(&Space<'_>)) {
    let cpus = TwoCpus::over(vm(2, ARENA, HugeKnobs::DEFAULT.with_enabled(Enabled::Always)));
    let mut was_free = Vec::new();
    for begin in 0.. {
        let prepare = |space: &Space<'_>| {
            prepare(space);
            mark(space);
        };
        let first = |space: &Space<'_>| space.madvise(AT, HUGE, DONTNEED).unwrap();
        let second = |space: &Space<'_>| {
            if space.write(SMALL, &[1]).is_err() {
                return false;
            }
            let there = space.translate_at_rest(SMALL).unwrap();
            assert_ne!(cpus.vm.migrate_frame(there.pfn), Err(MigrateRefusal::HugePage), "a page of 4 KiB");
            true
        };
        let look = |_: &Space<'_>, (), is_free| was_free.push(is_free);
        if !cpus.play(begin, prepare, first, second, look) {
            break;
        }
    }
    // The last time CPU 1 began after the end.
    was_free.pop();
    assert!(was_free.contains(&false) && was_free.contains(&true), "{was_free:?}");
}

#[test]
fn of_a_page_that_goes_as_a_whole() {
    a_frame_is_free_after_the_end(|_| ());
}

/// A pin leaves a mark: each frame is looked at, and goes one by one.
#[test]
fn of_a_page_that_dissolves() {
    a_frame_is_free_after_the_end(|space| drop(space.pin_page(AT, Term::Short).unwrap()));
}
