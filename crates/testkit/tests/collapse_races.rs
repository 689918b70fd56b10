//! I31: a call that changes only what the mapping says, at each wait of a collapse.
#![deny(unsafe_code)]

mod common;

use common::PAGE;
use common::huge::{AT, HUGE, byte, map, vm};
use common::turns::TwoCpus;
use softfault::policy::collapse::CollapseRefusal;
use softfault::policy::huge::Enabled;
use softfault::{HugeKnobs, Order, VmaFlags};

const NOHUGEPAGE: u64 = 15;
const MLOCK_ONFAULT: u64 = 1;
const READ: u64 = 1;
const RW: u64 = 3;
/// More waits than a collapse in place has.
const WAITS_MAX: u64 = 200;

type Space<'vm> = common::Space<'vm>;

/// Small pages of one block, in order: what is collapsed needs no copy.
fn prepare(s: &Space<'_>) {
    map(s, AT, HUGE);
    (0..512).for_each(|page| s.write(AT + page * PAGE, &[page as u8]).unwrap());
    s.mprotect(AT, PAGE, READ).unwrap();
    s.mprotect(AT, PAGE, RW).unwrap();
    assert_eq!(s.page_state(AT).unwrap().order, Order::BASE);
}

fn against_a_collapse(call: fn(&Space<'_>), flag: VmaFlags) {
    let (mut nr_huge, mut nr_changed) = (0, 0);
    let knobs = HugeKnobs { enabled: Enabled::Always, ..HugeKnobs::DEFAULT };
    for begin in 0.. {
        assert!(begin < WAITS_MAX);
        let two = TwoCpus::over(vm(2, 8 << 20, knobs));
        let look = |s: &Space<'_>, collapsed: Result<(), CollapseRefusal>, ()| {
            assert!(s.vma(AT).unwrap().flags.contains(flag));
            assert!((0..512).all(|page| byte(s, AT + page * PAGE) == page as u8));
            // A huge page may have come after the call has returned; nothing else has.
            let is_huge = s.page_state(AT).unwrap().order == Order::PMD;
            assert_eq!(is_huge, collapsed.is_ok(), "{collapsed:?}");
            nr_huge += u64::from(is_huge);
            nr_changed += u64::from(collapsed == Err(CollapseRefusal::Changed));
        };
        if !two.play(begin, prepare, |s| s.collapse(AT), call, look) {
            break;
        }
    }
    assert!(nr_huge > 0 && nr_changed > 0, "{nr_huge} huge pages, {nr_changed} that the mapping's change kept small");
}

#[test]
fn advice_against_a_collapse() {
    against_a_collapse(|s| s.madvise(AT, HUGE, NOHUGEPAGE).unwrap(), VmaFlags::NOHUGEPAGE);
}

#[test]
fn locking_against_a_collapse() {
    against_a_collapse(|s| s.mlock(AT, HUGE, 0, None).unwrap(), VmaFlags::LOCKED);
    against_a_collapse(|s| s.mlock(AT, HUGE, MLOCK_ONFAULT, None).unwrap(), VmaFlags::LOCKED);
}
