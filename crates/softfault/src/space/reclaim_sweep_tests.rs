//! How often a caller starts again where there are files, and that it searches all blocks before it is refused.

use super::super::writers::{Search, Written};
use super::tunables;
use crate::addr::Order;
use crate::frame::OutOfFrames;
use crate::space::Vm;
use crate::space::vm::Shortage;
use crate::sync::Ordering;
use crate::testing::{Plain, vm};

/// Frames are freed, and others have taken them.
fn find_one_frame(_: &Vm<Plain>, _nr_blocks: u64, _nr_frames: u64, _: Shortage) -> u64 {
    1
}

/// Where files are dropped, others take what a caller has freed, many times; but not for ever.
#[test]
fn few_frames_are_progress_for_a_frame() {
    let mut vm = vm(4096, tunables());
    vm.reclaim.shrink = find_one_frame;
    vm.has_files.store(1, Ordering::Relaxed);
    let starts_again = |refused: OutOfFrames| {
        let mut nr_attempts = 0;
        let end = vm.with_reclaim(&mut || {
            nr_attempts += 1;
            Err::<(), _>(refused)
        });
        assert_eq!(end, Err(refused));
        nr_attempts - 1
    };
    assert_eq!(starts_again(OutOfFrames::Frame), 3 + 512);
    assert_eq!(starts_again(OutOfFrames::frames(1)), 3 + 16);
    assert_eq!(starts_again(OutOfFrames::frames(4000)), 3 + 16 + 62, "each reclaim frees some hundreds");
    assert_eq!(starts_again(OutOfFrames::Block(Order(9))), 3 + 16);
}

fn find_nothing(vm: &Vm<Plain>, nr_blocks: u64, _nr_frames: u64, _: Shortage) -> u64 {
    vm.clean_cursor.fetch_add(nr_blocks.min(8), Ordering::Relaxed);
    0
}

const NOTHING: Written<'_> =
    Written { nr_freed: 0, was_under_way: false, nr_blocks: 2, has_skipped: false, claim: None };

fn write_one<'a>(_: &'a Vm<Plain>, _: &Search) -> Written<'a> {
    Written { nr_freed: 1, ..NOTHING }
}

/// Counts the searches, each of which begins behind the one before.
fn write_none<'a>(vm: &'a Vm<Plain>, search: &Search) -> Written<'a> {
    let nr_before = vm.underused_cursor.fetch_add(1, Ordering::Relaxed);
    let nr_blocks = search.nr_blocks.clamp(1, 2);
    assert_eq!(search.from, nr_before * nr_blocks);
    // Another one reacts meanwhile.
    vm.clean_cursor.store(100, Ordering::Relaxed);
    Written { nr_blocks: search.nr_blocks.min(2), ..NOTHING }
}

/// Another one has the storage, in the first of four windows.
fn skip_once<'a>(vm: &'a Vm<Plain>, _: &Search) -> Written<'a> {
    let nr_before = vm.underused_cursor.fetch_add(1, Ordering::Relaxed);
    Written { has_skipped: nr_before == 0, ..NOTHING }
}

/// Another one has a storage again and again.
fn skip_always<'a>(vm: &'a Vm<Plain>, search: &Search) -> Written<'a> {
    Written { has_skipped: true, ..skip_once(vm, search) }
}

/// A search of few blocks that finds nothing is no refusal, where there are files: the caller looks at others. Then there is one
/// last attempt. Where folios were passed over, all are searched once more.
#[test]
fn all_blocks_are_searched_before_a_refusal() {
    let play = |nr_blocks, write_dirty| {
        let mut vm = vm(8 * 512, tunables().with_shrink_blocks_direct(nr_blocks));
        (vm.reclaim.shrink, vm.reclaim.write_dirty) = (find_nothing, write_dirty);
        vm.has_files.store(1, Ordering::Relaxed);
        let mut nr_attempts = 0;
        let end = vm.with_reclaim(&mut || {
            nr_attempts += 1;
            Err::<(), _>(OutOfFrames::Frame)
        });
        assert_eq!(end, Err(OutOfFrames::Frame));
        (nr_attempts, vm.underused_cursor.get())
    };
    assert_eq!(play(2, write_one), (1 + 3 + 512, 0));
    assert_eq!(play(2, write_none), (2, 4));
    assert_eq!(play(2, skip_once), (2, 8));
    assert_eq!(play(2, skip_always), (2, 16), "three waits");
    // Any size of a window ends.
    assert_eq!(play(0, write_none), (2, 8));
    assert_eq!(play(u64::MAX, write_none), (2, 4));
}

/// The search for clean folios ends after one block of two.
fn find_nothing_in_one(vm: &Vm<Plain>, _nr_blocks: u64, _nr_frames: u64, _: Shortage) -> u64 {
    vm.clean_cursor.fetch_add(1, Ordering::Relaxed);
    0
}

/// The next search begins where the one for clean folios has ended.
#[test]
fn blocks_that_were_not_reached_are_searched() {
    let mut vm = vm(8 * 512, tunables().with_shrink_blocks_direct(2));
    (vm.reclaim.shrink, vm.reclaim.write_dirty) = (find_nothing_in_one, skip_once);
    vm.has_files.store(1, Ordering::Relaxed);
    let refused = vm.with_reclaim(&mut || Err::<(), _>(OutOfFrames::Frame));
    assert_eq!((refused, vm.underused_cursor.get()), (Err(OutOfFrames::Frame), 2 * 8));
}
