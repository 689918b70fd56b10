//! A mapping that is replaced in one call, mmap(2) or mremap(2) with a fixed place, is
//! never seen to be gone: not by a fault, by accesses for the program, by a look at the
//! mapping, nor by calls that go by what is mapped. On Linux all of these wait for the
//! lock that the call holds.
#![deny(unsafe_code)]

mod common;

use common::huge::HUGE;
use common::pins::Held;
use common::turns::TwoCpus;
use common::{FIXED, MAYMOVE, MREMAP_FIXED, PAGE, POPULATE_WRITE, PRIVATE, RW, Space};
use softfault::{Access, Advice, MadviseError, MlockFlags, MlockallFlags, Term};

const FROM: u64 = 0x10_0000_0000;
const AT: u64 = FROM + (1 << 30);
const LEN: u64 = 2 * HUGE;

fn map(space: &Space<'_>, at: u64) {
    assert_eq!(space.mmap(at, LEN, RW, PRIVATE | FIXED), Ok(at));
}

fn move_over(space: &Space<'_>) {
    assert_eq!(space.mremap(FROM, LEN, LEN, MAYMOVE | MREMAP_FIXED, AT), Ok(AT));
}

/// Runs `other` at each wait of each way to replace the mapping, which is one of two.
fn at_each_moment(other: impl Fn(&Space<'_>) + Sync) {
    for replace in [|space: &Space<'_>| map(space, AT), move_over] {
        let prepare = |space: &Space<'_>| {
            map(space, FROM);
            map(space, AT);
            for at in [FROM, AT, AT + PAGE, AT + HUGE] {
                space.write(at, &[1]).unwrap();
            }
        };
        let mut begin = 0;
        while TwoCpus::new(32 << 20).play(begin, prepare, replace, &other, |_, (), ()| {}) {
            begin += 1;
        }
        assert!(begin > 2, "the other CPU came in the middle {begin} times");
    }
}

#[test]
fn a_fault_finds_the_old_or_the_new() {
    at_each_moment(|space| {
        for page in [0, 1, 7] {
            space.handle_fault(AT + page * PAGE, Access::Write).unwrap();
        }
    });
}

#[test]
fn accesses_for_the_program_find_the_old_or_the_new() {
    at_each_moment(|space| {
        space.write(AT + PAGE, &[2]).unwrap();
        space.update_u32(AT + 9 * PAGE, &mut |_| Some(3)).unwrap();
        drop(Held::of(space, AT + PAGE, Access::Write, Term::Short).unwrap());
    });
}

#[test]
fn a_look_finds_the_old_or_the_new() {
    at_each_moment(|space| {
        let vma = space.vma(AT + PAGE).expect("a mapping that is replaced is one");
        assert_eq!((vma.range.start.addr(), vma.range.end.addr()), (AT, AT + LEN));
    });
}

#[test]
fn calls_that_go_by_mappings_find_the_old_or_the_new() {
    at_each_moment(|space| assert_eq!(space.madvise(AT, LEN, POPULATE_WRITE), Ok(())));
    // There may be no huge page to be had.
    at_each_moment(|space| assert_ne!(space.madvise(AT, LEN, Advice::Collapse), Err(MadviseError::NotMapped)));
    at_each_moment(|space| assert_eq!(space.mlock(AT, LEN, MlockFlags::empty()), Ok(())));
    at_each_moment(|space| assert_eq!(space.mlockall(MlockallFlags::CURRENT), Ok(())));
}

/// An address outside all mappings is reported as such, no matter what is mapped above it.
#[test]
fn a_look_at_a_hole() {
    at_each_moment(|space| {
        assert_eq!(space.vma(AT - PAGE), None);
        assert_eq!(space.vma(AT + LEN), None);
    });
}
