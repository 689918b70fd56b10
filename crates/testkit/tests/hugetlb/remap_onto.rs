//! mremap(2) to a fixed place where a pool is mapped. The target is unmapped first, as on Linux. Refused a frame then, the call lets go of
//! the writer lock to reclaim memory, and begins again: meanwhile others find a hole, and may map there.

use super::common::huge::{self, byte};
use super::common::turns::TwoCpus;
use super::common::{FIXED, MAYMOVE, MREMAP_FIXED, PRIVATE, RW, Space};
use super::{AT, HUGE};
use softfault::policy::huge::Enabled;
use softfault::{Access, FaultError, HugeKnobs, MapFlags, MremapError, Order};

const POOL: MapFlags = PRIVATE.union(MapFlags::HUGETLB);
const FROM: u64 = AT;
/// Far away, where each has its tables.
const TO: u64 = AT + (1 << 40);
const ZEROES: u64 = AT + (2 << 40);

/// Of each place the byte, or nothing where nothing is mapped.
fn bytes(space: &Space<'_>) -> [Option<u8>; 2] {
    [FROM, TO].map(|at| space.vma(at).map(|_| byte(space, at)))
}

/// Moves the one of two private pages of a pool to the other, while allocations fail from the `k`th on. The second CPU comes at each
/// wait of the call, ends the failures and does `second`. Calls `look` with the result of the call and of the second CPU.
fn play<T: Send>(
    second: impl Fn(&Space<'_>) -> T + Sync,
    mut look: impl FnMut(&Space<'_>, Result<u64, MremapError>, T, (u64, u64)),
) {
    let mut thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Always);
    // A huge page that is mostly zeroes gives frames to reclaim.
    thp.khugepaged.max_ptes_none = 255;
    let cpus = TwoCpus::over(huge::vm(2, 16 << 20, thp));
    let vm = &cpus.vm;
    let free = || {
        let counts = vm.hugetlb_counts(Order::PMD).unwrap();
        assert_eq!((counts.nr, counts.surplus), (2, 0));
        (counts.free, counts.reserved)
    };
    let prepare = |space: &Space<'_>, k| {
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 2), Ok(2));
        assert_eq!(free(), (2, 0), "H9: what the last round had is back");
        for (at, value) in [(FROM, 5), (TO, 6)] {
            space.mmap(at, HUGE, RW, POOL | FIXED).unwrap();
            space.write(at, &[value]).unwrap();
        }
        huge::map(space, ZEROES, HUGE);
        space.write(ZEROES, &[1]).unwrap();
        assert_eq!(huge::huge_pages(space), 1);
        vm.fail_allocation(Some(k));
    };
    for k in 0..6 {
        for begin in 0.. {
            let call = |space: &Space<'_>| space.mremap(FROM, HUGE, HUGE, MAYMOVE | MREMAP_FIXED, TO);
            let second = |space: &Space<'_>| {
                vm.fail_allocation(None);
                second(space)
            };
            let overlapped = cpus.play(
                begin,
                |space| prepare(space, k),
                call,
                second,
                |space, moved, done| {
                    look(space, moved, done, free());
                },
            );
            if !overlapped {
                break;
            }
        }
    }
}

/// A touch of the target finds what was there, what is there then, or the hole between the two. No page and no claim is lost.
#[test]
fn a_touch_finds_the_hole_of_a_move_that_begins_again() {
    let (mut nr_holes, mut nr_moved) = (0, 0);
    let touch = |space: &Space<'_>| match space.handle_fault(TO, Access::Read) {
        Ok(_) => false,
        Err(FaultError::NotMapped) => true,
        Err(other) => panic!("{other}"),
    };
    play(touch, |space, moved, found_hole, free| match moved {
        Ok(at) => {
            assert_eq!((at, bytes(space), free), (TO, [None, Some(5)], (1, 0)));
            nr_holes += u64::from(found_hole);
            nr_moved += 1;
        }
        Err(MremapError::OutOfFrames(_)) if space.vma(TO).is_some() => {
            assert_eq!((bytes(space), free), ([Some(5), Some(6)], (0, 0)));
        }
        Err(MremapError::OutOfFrames(_)) => assert_eq!((bytes(space), free), ([Some(5), None], (1, 0))),
        Err(other) => panic!("{other}"),
    });
    assert!(nr_holes > 0 && nr_moved > nr_holes, "{nr_holes} of {nr_moved}");
}

/// Another thread's mapping in that hole, of the page that the target had, stays: the call is refused.
#[test]
fn a_mapping_in_the_hole_of_a_move_that_begins_again_stays() {
    let mut nr_mapped = 0;
    let map = |space: &Space<'_>| {
        let mapped = space.mmap(TO, HUGE, RW, POOL | MapFlags::FIXED_NOREPLACE).is_ok();
        mapped && space.write(TO, &[7]).is_ok()
    };
    play(map, |space, moved, is_mapped, free| match moved {
        Ok(at) => assert_eq!((at, is_mapped, bytes(space), free), (TO, false, [None, Some(5)], (1, 0))),
        Err(MremapError::TargetTaken) => {
            assert!(is_mapped);
            assert_eq!((bytes(space), free), ([Some(5), Some(7)], (0, 0)));
            nr_mapped += 1;
        }
        Err(MremapError::OutOfFrames(_)) => assert_eq!(bytes(space)[0], Some(5)),
        Err(other) => panic!("{other}"),
    });
    assert_ne!(nr_mapped, 0);
}
