//! Days of use, a short one: nothing is lost, and huge pages can be made of what is free. The
//! long ones are `cargo xtask soak days`.
#![deny(unsafe_code)]

use softfault_testkit::days::{Mix, Row, Size, run};

const SHORT: Size = Size { nr_cpus: 4, bytes: 64 << 20, nr_processes: 1000, nr_uses: 3 };

/// In so short a run a huge page that lives long may keep a block: the seed is one where none does.
fn short(seed: u64, name: &str) -> Row {
    let row = run(seed, SHORT, Mix::named(name).unwrap(), &mut |_| ()).unwrap();
    assert_eq!(row.shortfall(SHORT), None, "{row:?}");
    assert!(row.shortfall(Size { nr_uses: row.nr_uses + 1, ..SHORT }).is_some());
    row
}

#[test]
fn private_pages_leave_huge_pages() {
    let row = short(1, "private");
    // Of about 15 blocks.
    assert!(row.percent() >= 85, "{row:?}");
}

#[test]
fn nothing_is_lost_with_objects_and_pins() {
    let row = short(2, "all");
    assert!(row.nr_object_pages > 0 && row.nr_pins > 0 && row.percent() >= 85, "{row:?}");
    let trouble = row.trouble;
    assert!(trouble.nr_object_out > 0 && trouble.nr_private_out > 0 && trouble.nr_object_failed > 0, "{trouble:?}");
}
