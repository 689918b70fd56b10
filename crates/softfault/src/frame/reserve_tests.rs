//! Ordinary allocations never see the reserve; the reaction gets all of it.

use super::Reserve;
use crate::addr::{BLOCK_FRAMES, BlockId, Pfn};
use crate::frame::{Content, Fill, Kind, OutOfFrames};
use crate::machine::CpuId;
use crate::space::Vm;
use crate::sync::Ordering;
use crate::testing::{FIXED_PRIVATE, Plain, RW, vm};
use crate::tunables::Tunables;
use std::collections::BTreeSet;
use std::vec::Vec;

fn keeping() -> Tunables {
    Tunables { keep_min: true, ..Tunables::default() }
}

fn check(vm: &Vm<Plain>) {
    vm.check_in_test(&[], &mut std::vec![0; vm.nr_frames() as usize]).unwrap();
}

fn take_all(vm: &Vm<Plain>) -> Vec<Pfn> {
    core::iter::repeat_with(|| vm.obtain(Fill::Raw)).map_while(Result::ok).collect()
}

/// A CPU begins a block, and the next fault or operation reacts.
fn begin_and_react(vm: &Vm<Plain>) {
    vm.cpu(CpuId(0)).samples_after.set(1);
    vm.begun(BlockId(0));
    vm.reclaim_if_low();
}

#[test]
fn ordinary_allocations_leave_the_reserve_alone() {
    let vm = vm(16 * BLOCK_FRAMES, keeping());
    let nr_kept = vm.watermarks().min_pages;
    assert!((170..=181).contains(&nr_kept), "{nr_kept} of 32 MiB, 724 KiB");
    assert_eq!((vm.nr_reserve_pages(), vm.nr_free_pages()), (nr_kept, vm.nr_total_pages.get() - nr_kept));
    check(&vm);
    let others: BTreeSet<_> = take_all(&vm).into_iter().collect();
    assert_eq!(
        (others.len() as u64, vm.nr_free_pages()),
        (vm.nr_total_pages.get() - nr_kept, 0),
        "and refused exactly"
    );
    assert_eq!(vm.obtain(Fill::Fixed), Err(OutOfFrames::Frame));
    assert!(vm.obtain_huge().is_err() && vm.obtain_all(&mut |source| source.look_for(1)).is_err());
    let kept: BTreeSet<_> = core::iter::repeat_with(|| vm.take_reserved()).map_while(|pfn| pfn).collect();
    assert_eq!((kept.len() as u64, vm.nr_reserve_pages()), (nr_kept, 0));
    assert!(kept.is_disjoint(&others));
    kept.into_iter().chain(others).for_each(|pfn| vm.give_back(pfn, Fill::Raw));
    assert_eq!(vm.nr_free_pages(), vm.nr_total_pages.get());
    check(&vm);
}

#[test]
fn nothing_is_kept_unless_asked_for_or_of_tiny_memory() {
    let all = |vm: Vm<Plain>| (vm.nr_reserve_pages(), vm.nr_total_pages.get() - take_all(&vm).len() as u64);
    assert_eq!(all(vm(16 * BLOCK_FRAMES, Tunables::default())), (0, 0));
    assert_eq!(all(vm(64, keeping())), (0, 0), "256 KiB");
    assert_eq!(all(vm(250, keeping())), (0, 0), "1 MiB, of which the metadata is a part");
    assert_eq!(all(vm(1024, keeping())), (63, 63), "4 MiB");
    let asked = Tunables { min_free_kbytes: Some(40), ..keeping() };
    assert_eq!(all(vm(64, asked)), (10, 10));
}

/// Up to `high`, and 512 frames at a time.
#[test]
fn the_reserve_is_filled_again_when_memory_is_no_longer_short() {
    let vm = vm(64 * BLOCK_FRAMES, Tunables { min_free_kbytes: Some(4096), ..keeping() });
    let nr_kept = vm.watermarks().min_pages;
    assert_eq!(nr_kept, 1024);
    let mut others = take_all(&vm);
    assert_eq!(vm.spend_reserve(u64::MAX), nr_kept);
    others.extend(take_all(&vm));
    assert_eq!(vm.nr_free_pages(), 0);
    // The reserve counts as used, as on Linux, and not as free.
    let high = vm.watermarks().high_pages;
    for nr_free in [0, 100, high * 2 / 3 - 1] {
        let nr = nr_free - vm.nr_free_pages();
        others.drain(..nr as usize).for_each(|pfn| vm.release_one(pfn, Content::Unknown));
        begin_and_react(&vm);
        assert_eq!(vm.nr_reserve_pages(), 0, "{nr_free} free of {high}");
    }
    others.drain(..2 * high as usize).for_each(|pfn| vm.give_back(pfn, Fill::Raw));
    let before = vm.nr_free_pages();
    for nr in [512, 1024, 1024] {
        begin_and_react(&vm);
        assert_eq!((vm.nr_reserve_pages(), vm.nr_free_pages()), (nr, before - nr));
    }
    assert_eq!(vm.frames.is_low.load(Ordering::Relaxed), 0);
    others.into_iter().for_each(|pfn| vm.give_back(pfn, Fill::Raw));
    check(&vm);
}

/// Frames set aside are a part of what `low` and `high` are about.
#[test]
fn what_is_kept_counts_for_the_watermarks() {
    let vm = vm(16 * BLOCK_FRAMES, keeping());
    let marks = vm.watermarks();
    let mut others = take_all(&vm);
    assert!(marks.high_pages > marks.min_pages && vm.nr_reserve_pages() == marks.min_pages);
    vm.steal_caches();
    assert!(vm.nr_to_high().abs_diff(marks.high_pages - marks.min_pages) <= 64, "{} to {marks:?}", vm.nr_to_high());
    others.drain(..2 * marks.high_pages as usize).for_each(|pfn| vm.release_one(pfn, Content::Unknown));
    assert_eq!(vm.nr_to_high(), 0);
}

/// An allocation that is about to be refused comes first.
#[test]
fn nothing_is_set_aside_while_a_last_resort_runs() {
    let vm = vm(16 * BLOCK_FRAMES, keeping());
    let nr_kept = vm.nr_reserve_pages();
    assert_eq!(vm.spend_reserve(100), 100);
    let turn = vm.last_resort();
    begin_and_react(&vm);
    assert_eq!(vm.nr_reserve_pages(), nr_kept - 100);
    drop(turn);
    begin_and_react(&vm);
    assert_eq!(vm.nr_reserve_pages(), nr_kept);
}

/// A program sees no difference but that memory ends earlier.
#[test]
fn faults_end_where_the_reserve_begins() {
    let vm = vm(16 * BLOCK_FRAMES, keeping());
    let space = vm.new_space().unwrap();
    space.mmap(1 << 30, 1 << 26, RW, FIXED_PRIVATE).unwrap();
    let written = (0..1u64 << 14).take_while(|page| space.write((1 << 30) + page * 4096, &[1]).is_ok()).count();
    assert!(written > 7000, "{written}");
    assert_eq!((vm.nr_free_pages(), vm.nr_reserve_pages()), (0, vm.watermarks().min_pages));
    drop(space);
    check(&vm);
}

/// Not even at the very beginning, when nothing is kept.
#[test]
fn no_block_is_looked_at_where_nothing_is_missing() {
    let vm = vm(16 * BLOCK_FRAMES, Tunables::default());
    let (_, pressure) = Reserve::new(0);
    // Out of date: the next look at the block takes it back.
    let b = BlockId(9);
    vm.frames.blocks.summary.offer(Kind::Fixed, b);
    assert!(!vm.frames.set_aside(&pressure, u64::MAX));
    assert!(vm.frames.blocks.summary.says(Kind::Fixed, b));
    assert!(!vm.frames.blocks.at(b).offers(Kind::Fixed) && !vm.frames.blocks.summary.says(Kind::Fixed, b));
}
