//! A CPU remembers the leaf table of its last fault. A removal takes that table and
//! announces it later; a fault or pin in between waits for it.
#![deny(unsafe_code)]

mod common;

use common::turns::TwoCpus;
use common::{DONTNEED, FIXED, PRIVATE, RW, Space};
use softfault::{Access, Machine, Term};

/// Span of a leaf table.
const SPAN: u64 = 2 << 20;
const FROM: u64 = 0x10_0000_0000;
const ELSEWHERE: u64 = FROM + (1 << 30);

/// CPU 1 faults in the first leaf table, and again, or pins, at each moment at which
/// MADV_DONTNEED of four leaf tables lets others run.
fn at_each_moment_of_dontneed(then: impl Fn(&Space<'_>) + Sync) {
    let cpus = TwoCpus::new(16 << 20);
    let mut nr_overlapped = 0;
    for nr_turns in 0..40 {
        let prepare = |space: &Space<'_>| {
            for at in [FROM, ELSEWHERE] {
                assert_eq!(space.mmap(at, 4 * SPAN, RW, PRIVATE | FIXED), Ok(at));
                (0..4).for_each(|span| space.write(at + span * SPAN, &[1]).unwrap());
            }
        };
        let first = |space: &Space<'_>| {
            // Waits, so that CPU 1 gets to know the table.
            space.madvise(ELSEWHERE, SPAN, DONTNEED).unwrap();
            space.madvise(FROM, 4 * SPAN, DONTNEED).unwrap();
        };
        let second = |space: &Space<'_>| {
            for _ in 0..nr_turns {
                // Each time anew, since a CPU that takes a table makes all hints stale later.
                space.handle_fault(FROM, Access::Write).unwrap();
                cpus.vm.machine().relax();
            }
            then(space);
        };
        let look = |space: &Space<'_>, (), ()| space.munmap(FROM, ELSEWHERE + 4 * SPAN - FROM).unwrap();
        nr_overlapped += u32::from(cpus.play(0, prepare, first, second, look));
    }
    assert!(nr_overlapped > 10, "CPU 1 came in the middle {nr_overlapped} times");
}

#[test]
fn a_pin_ends_while_its_table_goes() {
    at_each_moment_of_dontneed(|space| drop(space.pin_page_mut(FROM, Term::Short).unwrap()));
}

#[test]
fn a_fault_waits_while_its_table_goes() {
    at_each_moment_of_dontneed(|space| _ = space.handle_fault(FROM, Access::Write).unwrap());
}
