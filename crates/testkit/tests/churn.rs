//! A short run of `cargo xtask soak huge`.

mod common;

use common::{Format, IS_FULL, fewer};
use softfault_testkit::churn::{Size, run};
use softfault_testkit::hosted::HugeCounts;

#[test]
fn no_byte_changes_and_no_frame_is_lost() {
    let mut counts = HugeCounts::default();
    for seed in 0..fewer(12) {
        match run::<Format>(seed, Size::USUAL) {
            Ok(more) => counts += more,
            Err(what) => panic!("seed {seed}: {what}"),
        }
    }
    let least = if IS_FULL { 300 } else { 30 };
    assert!(counts.nr_faults > least && counts.nr_splits > least && counts.nr_collapsed > least / 6, "{counts}");
    assert!(counts.nr_failed > least / 6, "{counts}");
    let nr_dirty = counts.nr_dirty;
    assert!(!IS_FULL || nr_dirty.iter().all(|nr| *nr > 100), "pages of each word of blocks: {nr_dirty:?}");
}
