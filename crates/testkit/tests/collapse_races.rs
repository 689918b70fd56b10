//! I31: a call that changes only what the mapping says, at each wait of a collapse.
//! And I29: a scan at each wait of a move.
#![deny(unsafe_code)]

mod common;

use common::huge::{AT, HUGE, byte, map, vm};
use common::turns::TwoCpus;
use common::{MAYMOVE, MREMAP_FIXED, PAGE};
use softfault::policy::collapse::CollapseRefusal;
use softfault::policy::huge::Enabled;
use softfault::{Advice, HugeKnobs, MlockFlags, Order, Prot, VmaFlags};

const RW: Prot = Prot::READ.union(Prot::WRITE);
/// More waits than a collapse in place has.
const WAITS_MAX: u64 = 200;

type Space<'vm> = common::Space<'vm>;

/// Small pages of one block, in order: what is collapsed needs no copy.
fn prepare(s: &Space<'_>) {
    map(s, AT, HUGE);
    (0..512).for_each(|page| s.write(AT + page * PAGE, &[page as u8]).unwrap());
    s.mprotect(AT, PAGE, Prot::READ).unwrap();
    s.mprotect(AT, PAGE, RW).unwrap();
    assert_eq!(s.page_state(AT).unwrap().order, Order::BASE);
}

fn against_a_collapse(call: fn(&Space<'_>), flag: VmaFlags) {
    let (mut nr_huge, mut nr_changed) = (0, 0);
    let knobs = HugeKnobs::DEFAULT.with_enabled(Enabled::Always);
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
    against_a_collapse(|s| s.madvise(AT, HUGE, Advice::NoHugePage).unwrap(), VmaFlags::NOHUGEPAGE);
}

#[test]
fn locking_against_a_collapse() {
    against_a_collapse(|s| s.mlock(AT, HUGE, MlockFlags::empty()).unwrap(), VmaFlags::LOCKED);
    against_a_collapse(|s| s.mlock(AT, HUGE, MlockFlags::ONFAULT).unwrap(), VmaFlags::LOCKED);
}

/// One step finds the mapping where it was or where it is afterwards: not at a place
/// that it is just leaving.
#[test]
fn a_scan_against_a_move() {
    const TO: u64 = AT + 64 * HUGE;
    let knobs = HugeKnobs::DEFAULT.with_enabled(Enabled::Always);
    let (mut nr_before, mut nr_after) = (0, 0);
    for begin in 0.. {
        let two = TwoCpus::over(vm(2, 16 << 20, knobs));
        let go = |s: &Space<'_>| s.mremap(AT, HUGE, HUGE, MAYMOVE | MREMAP_FIXED, TO).unwrap();
        let overlapped = two.play(
            begin,
            prepare,
            go,
            |s| s.khugepaged_scan(AT, 1),
            |s, to, scan| {
                assert_eq!((scan.nr_collapsed, scan.refused), (1, None), "at wait {begin}");
                assert!((0..512).all(|page| byte(s, to + page * PAGE) == page as u8));
                *(if scan.next == Some(AT + HUGE) { &mut nr_before } else { &mut nr_after }) += 1;
            },
        );
        if !overlapped {
            break;
        }
    }
    assert!(nr_after > 2, "{nr_before} before the move, {nr_after} after it");
}
