//! Days of use, a short one: nothing is lost, and huge pages can be made of what is free. The
//! long ones are `cargo xtask soak days`.
#![deny(unsafe_code)]

use softfault_testkit::days::{Mix, Row, Size, run};

const SHORT: Size = Size { nr_cpus: 4, bytes: 64 << 20, nr_processes: 1000, nr_uses: 3 };

fn short(name: &str) -> Row {
    let row = run(1, SHORT, Mix::named(name).unwrap(), &mut |_| ()).unwrap();
    assert!(row.nr_uses >= SHORT.nr_uses && row.nr_processes >= SHORT.nr_processes, "{row:?}");
    row
}

#[test]
fn private_pages_leave_huge_pages() {
    let row = short("private");
    // Of about 15 blocks.
    assert!(row.percent() >= 85, "{row:?}");
}

#[test]
fn nothing_is_lost_with_objects_and_pins() {
    let row = short("all");
    assert!(row.nr_object_pages > 0 && row.nr_pins > 0 && row.percent() >= 85, "{row:?}");
}
