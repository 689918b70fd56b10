//! Every order, every target: each sub-page once, the target warm at the end.

use super::{ClearOrder, Run, WARM_RADIUS};
use std::vec;
use std::vec::Vec;

fn runs(order: ClearOrder, nr: u64, hint: Option<u64>) -> Vec<Run> {
    order.plan(nr, hint).collect()
}

fn indices(order: ClearOrder, nr: u64, hint: Option<u64>) -> Vec<u64> {
    order.plan(nr, hint).flat_map(Run::indices).collect()
}

/// As the text of 2017 has it, one sub-page after the other.
fn converge_by_the_book(nr: u64, n: u64) -> Vec<u64> {
    let (mut first, window): (Vec<u64>, _) =
        if 2 * n <= nr { ((2 * n..nr).rev().collect(), 0..2 * n) } else { ((0..2 * n - nr).collect(), 2 * n - nr..nr) };
    let (mut left, mut right) = (window.start, window.end);
    while left < right {
        right -= 1;
        first.extend([left, right]);
        left += 1;
    }
    first
}

fn targets(nr: u64) -> Vec<u64> {
    if nr <= 512 {
        return (0..nr).collect();
    }
    vec![0, 1, 2, 3, WARM_RADIUS, nr / 2 - 1, nr / 2, nr / 2 + 1, nr - 1 - WARM_RADIUS, nr - 3, nr - 2, nr - 1]
}

const SIZES: [u64; 9] = [2, 4, 8, 16, 17, 32, 64, 512, 262_144];

#[test]
fn each_subpage_exactly_once() {
    for nr in SIZES {
        for (order, target) in ClearOrder::ALL.into_iter().flat_map(|o| targets(nr).into_iter().map(move |t| (o, t))) {
            let mut seen = vec![false; nr as usize];
            for i in indices(order, nr, Some(target)) {
                assert!(!std::mem::replace(&mut seen[i as usize], true), "{order:?} {nr} {target}: {i} twice");
            }
            assert!(seen.into_iter().all(|s| s), "{order:?} {nr} {target}: one is left out");
            assert!(order.plan(nr, Some(target)).all(|run| run.count > 0), "{order:?} {nr} {target}");
        }
    }
}

#[test]
fn the_target_comes_last() {
    for nr in SIZES {
        for target in targets(nr) {
            for order in [ClearOrder::Converge, ClearOrder::Hybrid] {
                assert_eq!(indices(order, nr, Some(target)).last(), Some(&target), "{order:?} {nr}");
            }
            let last = runs(ClearOrder::Runs, nr, Some(target)).pop().unwrap();
            let wanted = target.saturating_sub(2)..(target + 3).min(nr);
            assert_eq!(last.start..last.start + last.count, wanted, "runs {nr} {target}");
        }
    }
}

#[test]
fn converge_is_the_order_of_2017() {
    for nr in SIZES {
        for n in targets(nr) {
            assert_eq!(indices(ClearOrder::Converge, nr, Some(n)), converge_by_the_book(nr, n), "{nr} {n}");
        }
    }
    assert_eq!(indices(ClearOrder::Converge, 8, Some(2)), [7, 6, 5, 4, 0, 3, 1, 2]);
    assert_eq!(indices(ClearOrder::Converge, 8, Some(4)), [0, 7, 1, 6, 2, 5, 3, 4]);
    assert_eq!(indices(ClearOrder::Converge, 8, Some(6)), [0, 1, 2, 3, 4, 7, 5, 6]);
}

#[test]
fn a_hint_outside_counts_as_none() {
    for (order, nr) in ClearOrder::ALL.into_iter().flat_map(|o| SIZES.map(|nr| (o, nr))) {
        let without = indices(order, nr, None);
        for hint in [0, nr, nr + 1, u64::MAX] {
            assert_eq!(indices(order, nr, Some(hint)), without, "{order:?} {nr} {hint}");
        }
    }
}

#[test]
fn runs_are_three_and_forward() {
    let forward = |start, count| Run { start, count, is_backward: false, is_streaming: false };
    let all = runs(ClearOrder::Runs, 512, Some(100));
    assert_eq!(all, [forward(103, 409), forward(0, 98), forward(98, 5)]);
    assert_eq!(runs(ClearOrder::Runs, 512, None), [forward(3, 509), forward(0, 3)]);
    assert_eq!(runs(ClearOrder::Runs, 512, Some(511)), [forward(0, 509), forward(509, 3)]);
    assert_eq!(runs(ClearOrder::Runs, 4, Some(1)), [forward(0, 4)]);
    assert_eq!(runs(ClearOrder::Forward, 512, Some(100)), [forward(0, 512)]);
}

#[test]
fn hybrid_streams_what_is_far_and_nothing_else() {
    for nr in SIZES {
        for target in targets(nr) {
            let mut is_near_begun = false;
            let plan = ClearOrder::Hybrid.plan(nr, Some(target));
            assert_eq!(plan.target(), target);
            let nr_far = nr - (0..nr).filter(|i| plan.near().contains(i)).count() as u64;
            assert_eq!(plan.nr_streaming(), nr_far, "{nr} {target}: the near part is the rest");
            for run in ClearOrder::Hybrid.plan(nr, Some(target)) {
                for i in run.indices() {
                    assert_eq!(run.is_streaming, i.abs_diff(target) > WARM_RADIUS, "{nr} {target}: {i}");
                }
                assert!(!(run.is_streaming && is_near_begun), "{nr} {target}: the far part comes first");
                is_near_begun |= !run.is_streaming;
            }
            for order in [ClearOrder::Forward, ClearOrder::Converge, ClearOrder::Runs] {
                assert!(order.plan(nr, Some(target)).all(|run| !run.is_streaming));
            }
        }
    }
}

#[test]
fn names_lead_back() {
    for order in ClearOrder::ALL {
        assert_eq!(ClearOrder::named(order.name()), Some(order));
    }
    assert_eq!(ClearOrder::named("backward"), None);
}
