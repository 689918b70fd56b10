//! A GiB is found, or is refused after a bounded number of looks, and nothing is kept.

use super::*;
use crate::frame::Content;
use crate::space::Vm;
use crate::testing::{Plain, from_frame};
use crate::tunables::Tunables;
use std::vec;

const GIB: u64 = 1 << 18;

fn vm_of_gibs(nr: u64) -> Vm<Plain> {
    Vm::new(from_frame(0, nr * GIB, &[(0, nr * GIB)]), Tunables::default()).unwrap()
}

fn check(vm: &Vm<Plain>) {
    vm.check_in_test(&[], &mut vec![0; vm.nr_frames() as usize]).unwrap();
}

/// All blocks of each GiB but the last are free save one, wherever it is.
#[test]
fn a_gib_is_found_behind_others_that_are_partly_used() {
    let vm = vm_of_gibs(8);
    for (gib, block) in [(1, 0), (2, 511), (3, 300), (4, 1), (5, 64), (6, 63)] {
        let b = BlockId(gib * NR_BLOCKS + block);
        assert_eq!(vm.claim_whole(b).map(|huge| huge.first), Some(b.first_frame()));
        vm.frames.folio(b.first_frame()).state.set(0);
    }
    let nr_undone = || vm.frames.nr_undone.load(Ordering::Relaxed);
    let before = nr_undone();
    // As many looks as find nothing, then those that go on from there.
    assert_eq!(vm.claim_blocks(4), None);
    assert_eq!(nr_undone(), before, "nothing was claimed for a moment");
    let found = vm.claim_blocks(4);
    assert_eq!(found, Some(Pfn((7 * GIB) as u32)));
    assert_eq!(vm.claim_blocks(64), None, "there is no other");
    vm.release_blocks(Pfn((7 * GIB) as u32), NR_BLOCKS, &mut Pace::new(&vm.machine));
    assert_eq!(vm.claim_blocks(64), found, "around the end");
}

/// Somebody takes a frame of the last block after the look: what was claimed goes back as it was.
#[test]
fn a_gib_that_is_lost_goes_back() {
    let vm = vm_of_gibs(2);
    let last = BlockId(2 * NR_BLOCKS - 1);
    let nr_free = vm.frames.nr_free_in_blocks();
    assert!(vm.frames.claim_run(last, 0, 64));
    vm.count_taken(64);
    // The summaries are late.
    vm.frames.blocks.summary.offer(Kind::Whole, last);
    assert_eq!(vm.claim_blocks(64), None);
    assert_eq!(vm.frames.nr_free_in_blocks(), nr_free - 64);
    assert!(vm.frames.is_clean(Pfn(GIB as u32), GIB - BLOCK_FRAMES), "zero frames stay zero");
    assert_ne!(vm.frames.nr_undone.load(Ordering::Relaxed), 0, "I28: a trace");
    vm.release_run(last.first_frame(), 64, Content::Zero);
    check(&vm);
    assert_eq!(vm.claim_blocks(64), Some(Pfn(GIB as u32)));
}

/// A look that takes nothing says how many folios of whole blocks there are.
#[test]
fn a_look_counts_what_is_whole() {
    let vm = vm_of_gibs(3);
    let nr_free = vm.frames.nr_free_in_blocks();
    // The first GiB has the core's own frames.
    assert!(vm.seems_to_have(Order::PUD, 2) && !vm.seems_to_have(Order::PUD, 3));
    let nr = (0..).find(|nr| !vm.seems_to_have(Order::PMD, *nr)).unwrap() - 1;
    assert!((2 * 512..3 * 512).contains(&nr), "{nr}");
    let b = BlockId(2 * NR_BLOCKS + 7);
    assert!(vm.claim_whole(b).is_some());
    assert!(vm.seems_to_have(Order::PUD, 1) && !vm.seems_to_have(Order::PUD, 2));
    assert!(vm.seems_to_have(Order::PMD, nr - 1) && !vm.seems_to_have(Order::PMD, nr));
    assert!(!vm.seems_to_have(Order::PMD, u64::MAX));
    vm.frames.folio(b.first_frame()).state.set(0);
    vm.release_run(b.first_frame(), BLOCK_FRAMES, Content::Zero);
    assert_eq!(vm.frames.nr_free_in_blocks(), nr_free);
    check(&vm);
}
