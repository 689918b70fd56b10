//! Whoever is refused starts again only after frames were given back, and not for ever.

use crate::frame::OutOfFrames;
use crate::huge::knobs::{HugeKnobs, KhugepagedKnobs};
use crate::policy::huge::Enabled;
use crate::testing::{FIXED_PRIVATE, RW, vm};
use crate::tunables::Tunables;

const AT: u64 = 1 << 30;
const HUGE: u64 = 2 << 20;

fn tunables() -> Tunables {
    let khugepaged = KhugepagedKnobs { max_ptes_none: 100, ..HugeKnobs::DEFAULT.khugepaged };
    let thp = HugeKnobs { enabled: Enabled::Always, khugepaged, ..HugeKnobs::DEFAULT };
    Tunables { thp, ..Tunables::default() }
}

/// A huge page that is mostly zeroes is there again before each attempt.
#[test]
fn an_operation_starts_again_three_times() {
    let vm = vm(4096, tunables());
    let space = vm.new_space().unwrap();
    let mut nr_attempts = 0;
    let refused = vm.with_relief(OutOfFrames, &mut |_| {
        nr_attempts += 1;
        space.munmap(AT, HUGE).unwrap();
        space.mmap(AT, HUGE, RW, FIXED_PRIVATE).unwrap();
        space.write(AT, &[1]).unwrap();
        assert_eq!(space.rss_pages().anon_huge, 512);
        Err::<(), _>(OutOfFrames)
    });
    assert_eq!((refused, nr_attempts), (Err(OutOfFrames), 4));
}

#[test]
fn nothing_to_give_back_is_no_reason_to_start_again() {
    let vm = vm(4096, tunables());
    let mut nr_attempts = 0;
    let refused = vm.with_relief(OutOfFrames, &mut |_| {
        nr_attempts += 1;
        Err::<(), _>(OutOfFrames)
    });
    assert_eq!((refused, nr_attempts), (Err(OutOfFrames), 1));
}
