//! The model by hand, where it was wrong once or is easy to get wrong.

use super::*;
use crate::numbers::{MAP_ANONYMOUS, MAP_FIXED, MAP_GROWSDOWN, MAP_LOCKED, MAP_PRIVATE, MAP_SHARED};
use crate::op::{Op, WINDOW};

const FIXED: u64 = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
const SHARED: u64 = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED;

fn at(page: u64) -> u64 {
    WINDOW + page * PAGE
}

/// Does the steps; gives what has to come of the last.
fn last(steps: &[(u64, Call, &[u64])]) -> Result<Outcome, Unknown> {
    let mut model = Model::new(Features::all());
    let mut outcome = Err(Unknown);
    for (who, call, args) in steps {
        outcome = model.apply(&Op::new(*who, *call, args)).map(|expected| expected.outcome);
    }
    outcome
}

#[test]
fn a_child_has_what_its_parent_had_and_no_more() {
    let map: (u64, Call, &[u64]) = (0, Call::Mmap, &[at(0), 2 * PAGE, 3, FIXED]);
    let store: (u64, Call, &[u64]) = (0, Call::Store, &[at(0), 8, 7]);
    let fork: (u64, Call, &[u64]) = (0, Call::Fork, &[1]);
    let later: (u64, Call, &[u64]) = (0, Call::Store, &[at(0), 8, 9]);
    let load: (u64, Call, &[u64]) = (1, Call::Load, &[at(0), 8]);
    assert_eq!(last(&[map, store, fork, later, load]), Ok(Outcome::Value(7)));
    let wipe: (u64, Call, &[u64]) = (0, Call::Madvise, &[at(0), PAGE, 18]);
    assert_eq!(last(&[map, store, wipe, fork, load]), Ok(Outcome::Value(0)));
    let dont: (u64, Call, &[u64]) = (0, Call::Madvise, &[at(0), PAGE, 10]);
    assert_eq!(last(&[map, store, dont, fork, load]), Ok(Outcome::MAPERR));
}

#[test]
fn a_duplicate_over_its_original_is_refused_and_unmaps_it() {
    let map: (u64, Call, &[u64]) = (0, Call::Mmap, &[at(0), 6 * PAGE, 3, SHARED]);
    let double: (u64, Call, &[u64]) = (0, Call::Mremap, &[at(0), 0, 11 * PAGE, 3, at(0), 0]);
    assert_eq!(last(&[map, double]), Ok(EFAULT));
    assert_eq!(last(&[map, double, (0, Call::Load, &[at(0), 8])]), Ok(Outcome::MAPERR));
}

/// Two parts of one mapping grow towards each other: on Linux they stay two, and
/// the model must not say that they are one.
#[test]
fn parts_that_meet_again_are_not_surely_one() {
    let map: (u64, Call, &[u64]) = (0, Call::Mmap, &[at(300), 20 * PAGE, 3, FIXED | MAP_GROWSDOWN]);
    let cut: (u64, Call, &[u64]) = (0, Call::Munmap, &[at(305), 5 * PAGE]);
    let grow: (u64, Call, &[u64]) = (0, Call::Store, &[at(305), 8, 1]);
    let span: (u64, Call, &[u64]) = (0, Call::Mremap, &[at(302), 10 * PAGE, 20 * PAGE, 1, 0, at(600)]);
    assert_eq!(last(&[map, cut, grow, (0, Call::Load, &[at(309), 8])]), Ok(Outcome::Value(0)));
    assert_eq!(last(&[map, cut, grow, span]), Err(Unknown));
}

#[test]
fn an_unknown_step_changes_nothing() {
    let map: (u64, Call, &[u64]) = (0, Call::Mmap, &[at(0), 2 * PAGE, 3, FIXED]);
    let exec: (u64, Call, &[u64]) = (0, Call::Exec, &[at(0)]);
    assert_eq!(last(&[map, exec]), Err(Unknown));
    let look: (u64, Call, &[u64]) = (0, Call::Mincore, &[at(0), 2 * PAGE]);
    assert_eq!(last(&[map, exec, look]), Ok(Outcome::Value(0)));
}

#[test]
fn a_move_of_several_takes_their_hole_along_and_leaves_the_target_there() {
    let map: (u64, Call, &[u64]) = (0, Call::Mmap, &[at(0), 6 * PAGE, 3, FIXED]);
    let store: (u64, Call, &[u64]) = (0, Call::Store, &[at(5), 8, 7]);
    let cut: (u64, Call, &[u64]) = (0, Call::Munmap, &[at(2), PAGE]);
    let target: (u64, Call, &[u64]) = (0, Call::Mmap, &[at(12), PAGE, 1, FIXED]);
    let shift: (u64, Call, &[u64]) = (0, Call::Mremap, &[at(0), 6 * PAGE, 6 * PAGE, 3, at(10)]);
    let load = |page: u64| last(&[map, store, cut, target, shift, (0, Call::Load, &[at(page), 8])]);
    assert_eq!(last(&[map, cut, target, shift]), Ok(Outcome::Value(at(10))));
    assert_eq!(load(15), Ok(Outcome::Value(7)));
    assert_eq!(load(12), Ok(Outcome::Value(0)));
    assert_eq!(load(5), Ok(Outcome::MAPERR));
    let grow: (u64, Call, &[u64]) = (0, Call::Mremap, &[at(0), 6 * PAGE, 7 * PAGE, 3, at(10)]);
    assert_eq!(last(&[map, cut, grow]), Ok(EFAULT));
    let head: (u64, Call, &[u64]) = (0, Call::Mremap, &[at(2), 4 * PAGE, 4 * PAGE, 3, at(10)]);
    assert_eq!(last(&[map, cut, head]), Ok(EFAULT));
}

#[test]
fn what_mremap_cuts_off_may_be_anything() {
    let map: (u64, Call, &[u64]) = (0, Call::Mmap, &[at(0), 6 * PAGE, 3, FIXED]);
    let cut: (u64, Call, &[u64]) = (0, Call::Munmap, &[at(2), PAGE]);
    let shrink: (u64, Call, &[u64]) = (0, Call::Mremap, &[at(0), 6 * PAGE, PAGE, 0]);
    assert_eq!(last(&[map, cut, shrink]), Ok(Outcome::Value(at(0))));
    assert_eq!(last(&[map, cut, shrink, (0, Call::Load, &[at(4), 8])]), Ok(Outcome::MAPERR));
    assert_eq!(last(&[map, cut, shrink, (0, Call::Load, &[at(0), 8])]), Ok(Outcome::Value(0)));
}

#[test]
fn locked_memory_is_there_and_stays_but_not_in_a_child() {
    let map: (u64, Call, &[u64]) = (0, Call::Mmap, &[at(0), 2 * PAGE, 1, FIXED | MAP_LOCKED]);
    let look: (u64, Call, &[u64]) = (0, Call::Mincore, &[at(0), 4 * PAGE]);
    let grow: (u64, Call, &[u64]) = (0, Call::Mremap, &[at(0), 2 * PAGE, 4 * PAGE, 0]);
    assert_eq!(last(&[map, grow, look]), Ok(Outcome::Value(0xf)));
    let dropped = [at(0), PAGE, 4];
    let drop = |who| (who, Call::Madvise, &dropped[..]);
    assert_eq!(last(&[map, drop(0)]), Ok(EINVAL));
    assert_eq!(last(&[map, (0, Call::Fork, &[1]), drop(1)]), Ok(OK));
    let always: (u64, Call, &[u64]) = (0, Call::Madvise, &[at(0), PAGE, 24]);
    assert_eq!(last(&[map, grow, always, look]), Ok(Outcome::Value(0xe)));
    // A page that showed the zero page is copied when it becomes writable: there again.
    let write: (u64, Call, &[u64]) = (0, Call::Mprotect, &[at(0), PAGE, 3]);
    assert_eq!(last(&[map, grow, always, write, look]), Ok(Outcome::Value(0xf)));
}

#[test]
fn advice_that_only_files_or_huge_pages_take() {
    let map: (u64, Call, &[u64]) = (0, Call::Mmap, &[at(0), PAGE, 3, FIXED]);
    for advice in [9, 25] {
        let of = |page| last(&[map, (0, Call::Madvise, &[at(page), PAGE, advice])]);
        assert_eq!((of(0), of(1)), (Ok(EINVAL), Ok(ENOMEM)), "{advice}");
    }
}

/// A fork of a private page of a pool: who has a reservation then, and who gets no page.
#[test]
fn a_page_of_a_pool_is_shared_until_one_stores() {
    const OWN: u64 = FIXED | crate::numbers::MAP_HUGETLB;
    let (at, len) = (crate::op::POOL_WINDOW, crate::op::HUGE);
    let run = |nr: u64, steps: &[(u64, Call, &[u64])]| {
        let mut model = Model::new(Features::all());
        let first: [(u64, Call, &[u64]); 4] = [
            (0, Call::PoolSize, &[nr, 0]),
            (0, Call::Mmap, &[at, len, 3, OWN]),
            (0, Call::Store, &[at, 8, 7]),
            (0, Call::Fork, &[1]),
        ];
        let all = first.iter().chain(steps);
        let mut last = Expected::certain(OK);
        for (who, call, args) in all {
            last = model.apply(&Op::new(*who, *call, args)).unwrap();
        }
        let counts = last.pool.unwrap();
        (last.outcome, counts.free, counts.reserved)
    };
    let load: (u64, Call, &[u64]) = (1, Call::Load, &[at, 8]);
    let store: (u64, Call, &[u64]) = (1, Call::Store, &[at, 8, 8]);
    let owner_stores: (u64, Call, &[u64]) = (0, Call::Store, &[at, 8, 9]);
    assert_eq!(run(1, &[load]), (Outcome::Value(7), 0, 0));
    assert_eq!(run(1, &[store]), (Outcome::ADRERR, 0, 0));
    assert_eq!(run(1, &[store, load]), (Outcome::Value(7), 0, 0), "its reads go on");
    assert_eq!(run(1, &[owner_stores]), (OK, 0, 0));
    assert_eq!(run(1, &[owner_stores, load]), (Outcome::ADRERR, 0, 0), "the owner has taken the page");
    assert_eq!(run(2, &[load]), (Outcome::Value(7), 1, 0));
    assert_eq!(run(2, &[store, (0, Call::Load, &[at, 8])]), (Outcome::Value(7), 0, 0));
    assert_eq!(run(2, &[(0, Call::Munmap, &[at, PAGE])]), (EINVAL, 1, 0));
    assert_eq!(run(2, &[(0, Call::Munmap, &[at, len]), load]), (Outcome::Value(7), 1, 0));
    assert_eq!(run(3, &[(0, Call::Mmap, &[at + 2 * len, 2 * len, 3, OWN])]), (Outcome::Value(at + 2 * len), 2, 2));
    assert_eq!(run(2, &[(0, Call::Mmap, &[at + 2 * len, 2 * len, 3, OWN])]), (ENOMEM, 1, 0));
}
