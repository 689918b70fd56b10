//! A short run of `cargo xtask soak huge`.

use softfault_testkit::churn::{Size, run};
use softfault_testkit::hosted::HugeCounts;

#[test]
fn no_byte_changes_and_no_frame_is_lost() {
    let mut counts = HugeCounts::default();
    for seed in 0..12 {
        match run(seed, Size::USUAL) {
            Ok(more) => counts += more,
            Err(what) => panic!("seed {seed}: {what}"),
        }
    }
    assert!(counts.nr_faults > 300 && counts.nr_splits > 300 && counts.nr_collapsed > 50, "{counts}");
    assert!(counts.nr_dirty.iter().all(|nr| *nr > 100), "pages of each word of blocks: {:?}", counts.nr_dirty);
}
