//! The choice from figures of real machines; plans in words.

use super::{BATCHES, BatchPlan, BatchPlans, ZeroCost, Zeroing, class_of};
use std::vec::Vec;

/// Line and all, for each way.
fn measured(costs: [(u64, u64); 4]) -> Vec<(BatchPlan, ZeroCost)> {
    let of = |(way, (line, all))| (BatchPlan::all(way), ZeroCost::new(line, all));
    Zeroing::ALL.into_iter().zip(costs).map(of).collect()
}

fn ways(costs: [(u64, u64); 4]) -> (Zeroing, Zeroing) {
    let BatchPlans { dense, sparse } = BatchPlans::best_of(&measured(costs));
    (dense.far, sparse.far)
}

#[test]
fn machines_that_were_measured_get_what_serves_them() {
    use Zeroing::{Clzero, Stores, Streaming, Vector};
    // AMD Zen 3, batches of 64.
    assert_eq!(ways([(341, 351), (259, 300), (113, 365), (107, 362)]), (Vector, Clzero));
    // AMD Zen 5 (family 26), batches of 1, 8 and 64.
    assert_eq!(ways([(163, 200), (117, 138), (150, 309), (286, 339)]), (Vector, Vector));
    assert_eq!(ways([(98, 158), (116, 153), (61, 225), (87, 281)]), (Stores, Streaming));
    assert_eq!(ways([(88, 147), (118, 154), (54, 222), (55, 233)]), (Stores, Streaming));
    // Nothing to choose from; the first of equals.
    assert_eq!(ways([(100, 100); 4]), (Stores, Stores));
    assert_eq!(ways([(0, 0); 4]), (Stores, Stores));
}

#[test]
fn a_plan_has_to_save_a_twentieth() {
    use Zeroing::{Stores, Streaming, Vector};
    assert_eq!(ways([(100, 100), (96, 96), (100, 200), (100, 200)]), (Stores, Stores));
    assert_eq!(ways([(100, 100), (94, 94), (100, 200), (100, 200)]), (Vector, Vector));
    assert_eq!(ways([(100, 100), (100, 100), (96, 200), (96, 200)]), (Stores, Stores));
    assert_eq!(ways([(100, 100), (100, 100), (94, 200), (94, 200)]), (Stores, Streaming));
}

#[test]
fn one_plan_serves_all_programs_where_it_costs_none_much() {
    use Zeroing::{Stores, Streaming};
    assert_eq!(ways([(300, 400), (300, 400), (100, 420), (100, 420)]), (Streaming, Streaming));
    assert_eq!(ways([(300, 400), (300, 400), (100, 421), (100, 421)]), (Stores, Streaming));
    assert!(!BatchPlans::best_of(&measured([(300, 400), (300, 400), (100, 420), (100, 420)])).differ());
}

#[test]
fn no_measurement_is_plain_stores() {
    assert_eq!(BatchPlans::best_of(&[]), BatchPlans::STORES);
    assert_eq!(BatchPlans::from_word(0), BatchPlans::STORES);
    assert_eq!(BatchPlans::dense_of(&[]), BatchPlan::all(Zeroing::Stores));
}

#[test]
fn plans_are_read_back_from_words_and_any_word_is_some_plan() {
    let plans: Vec<BatchPlan> = Zeroing::ALL
        .into_iter()
        .flat_map(|near| Zeroing::ALL.map(|far| (near, far)))
        .flat_map(|(near, far)| [0, 1, 8, 64].map(|nr_near| BatchPlan { nr_near, near, far }))
        .collect();
    for dense in &plans {
        for sparse in &plans {
            let both = BatchPlans { dense: *dense, sparse: *sparse };
            assert_eq!(BatchPlans::from_word(both.to_word()), both);
        }
    }
    let hostile = BatchPlan { nr_near: u64::MAX, ..plans[0] };
    let word = BatchPlans { dense: hostile, sparse: hostile }.to_word();
    assert_eq!(BatchPlans::from_word(word).sparse.nr_near, 64);
    for word in [u64::MAX, 0x5555_5555_5555_5555, 1 << 63, 0x7f | 1 << 22] {
        let BatchPlans { dense, sparse } = BatchPlans::from_word(word);
        assert!(dense.nr_near < 128 && sparse.nr_near < 128, "{word:#x}");
    }
}

#[test]
fn each_batch_has_a_class_that_was_measured() {
    let classes: Vec<u64> = [0, 1, 2, 8, 15, 16, 63, 64, u64::MAX].map(|nr| BATCHES[class_of(nr)]).into();
    assert_eq!(classes, [1, 1, 8, 8, 8, 64, 64, 64, 64]);
}

#[test]
fn mixed_plans_keep_frames_near_that_the_batch_has() {
    let mixed =
        |nr| BatchPlan::mixed(Zeroing::Stores, Zeroing::Clzero, nr).map(|plan| plan.nr_near).collect::<Vec<_>>();
    assert_eq!((mixed(1), mixed(8), mixed(64)), (Vec::new(), Vec::from([1]), Vec::from([8, 1])));
}
