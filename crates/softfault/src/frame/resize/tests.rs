//! Memory comes and goes whole, or not at all.

use super::*;
use crate::addr::Order;
use crate::compact::MigrateRefusal;
use crate::frame::Fill;
use crate::frame::desc::FrameKind;
use crate::frame::mem_sections::MEM_SECTION_FRAMES as SECTION;
use crate::mem;
use crate::policy::huge::Enabled;
use crate::space::Vm;
use crate::sync::Word;
use crate::testing::{Plain, from_frame};
use crate::tunables::Tunables;
use crate::tunables::huge::{HugeKnobs, KhugepagedKnobs};
use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

fn sections(first: u64, nr: u64) -> FrameRange {
    FrameRange { first: Pfn((first * SECTION) as u32), nr_frames: nr * SECTION }
}

/// 2,000 frames in section 0, and room for sections 2 to 4; the last of them the machine has not.
fn small() -> Vm<Plain> {
    small_with(1, Tunables::default())
}

fn small_with(nr_cpus: usize, tunables: Tunables) -> Vm<Plain> {
    let mut machine = from_frame(0, 5 * SECTION, &[(0, 2000)]);
    machine.addable = sections(2, 2);
    machine.nr_frames_at_most = 5 * SECTION;
    machine.nr_cpus = nr_cpus;
    Vm::new(machine, tunables).unwrap()
}

fn check(vm: &Vm<Plain>) {
    vm.check_in_test(&[], &mut vec![0; vm.nr_frames() as usize]).unwrap();
    vm.check_free_in_test().unwrap();
    assert_eq!(vm.frames.wrong_section(), None);
}

/// The state that a refused call must not change.
fn state(vm: &Vm<Plain>) -> [u64; 3] {
    check(vm);
    let stat = vm.vmstat();
    [stat.nr_total_pages, stat.nr_free_pages, vm.frames.nr_free_in_blocks()]
}

/// Frames that may not be zero.
fn nr_dirty(vm: &Vm<Plain>) -> u64 {
    vm.frames.blocks.iter().flat_map(|block| &block.dirty).map(|word| u64::from(word.get().count_ones())).sum()
}

fn take_all(vm: &Vm<Plain>) -> Vec<Pfn> {
    core::iter::from_fn(|| vm.obtain(Fill::Zeroed).ok()).collect()
}

fn give_all_back(vm: &Vm<Plain>, frames: &[Pfn]) {
    frames.iter().for_each(|pfn| vm.give_back(*pfn, Fill::Raw));
}

#[test]
fn memory_that_comes_is_given_out_and_goes_when_it_is_free() {
    let vm = small();
    let nr_before = vm.vmstat().nr_free_pages;
    let nr_metadata = 2 * (DESC_ORDER.nr_pages() + BLOCK_ORDER.nr_pages());
    let used = Pfn(3 * SECTION as u32 + 77);
    for round in 0..3 {
        vm.machine.is_added_zero.set(u64::from(round == 0));
        vm.add_memory(sections(2, 2)).unwrap();
        check(&vm);
        let stat = vm.vmstat();
        assert_eq!(stat.nr_free_pages, nr_before - nr_metadata + 2 * SECTION);
        assert_eq!(stat.nr_total_pages, nr_before + 2 * SECTION);
        let given = take_all(&vm);
        let added: Vec<&Pfn> = given.iter().filter(|pfn| sections(2, 2).holds(pfn.0.into())).collect();
        assert_eq!(mem::view::<_, Word>(&vm.machine, used, 8).get(), 0, "it was given out as zeroes");
        assert_eq!((added.len() as u64, given.iter().collect::<BTreeSet<_>>().len()), (2 * SECTION, given.len()));
        let in_use = vm.remove_memory(sections(2, 1));
        assert_eq!(in_use, Err(RemoveMemoryRefusal::InUse));
        give_all_back(&vm, &given);
        check(&vm);
        vm.remove_memory(sections(2, 2)).unwrap();
        check(&vm);
        assert_eq!((vm.vmstat().nr_free_pages, vm.vmstat().nr_total_pages), (nr_before - nr_metadata, nr_before));
        assert_eq!(vm.migrate_frame(Pfn(3 * SECTION as u32)), Err(MigrateRefusal::Reserved));
        // The machine does with it what it likes.
        mem::view::<_, Word>(&vm.machine, used, 8).set(7);
        assert!(take_all(&vm).iter().map(|pfn| (vm.give_back(*pfn, Fill::Raw), pfn.0).1).all(|pfn| pfn < 2000));
    }
    assert_eq!((vm.event(Event::MemoryAdded), vm.event(Event::MemoryRemoved)), (3, 3));
}

/// Sections on both sides of one that is not there; passes find what is there.
#[test]
fn sections_come_and_go_one_by_one() {
    let vm = small();
    let nr_idle = vm.idle_pages(0);
    vm.add_memory(sections(3, 1)).unwrap();
    check(&vm);
    assert_eq!(vm.frames.blocks.there_from(BlockId(64)).next(), Some(BlockId(192)));
    assert!(vm.fragmentation(Order::PMD).nr_usable >= SECTION);
    vm.add_memory(sections(2, 1)).unwrap();
    check(&vm);
    assert_eq!(vm.frames.blocks.there_from(BlockId(64)).next(), Some(BlockId(128)));
    // The other may have the metadata of this one.
    vm.remove_memory(sections(2, 1)).unwrap();
    check(&vm);
    assert_eq!(vm.remove_memory(sections(2, 2)), Err(RemoveMemoryRefusal::NotThere));
    assert_eq!(vm.add_memory(sections(2, 2)), Err(AddMemoryRefusal::AlreadyThere));
    assert_eq!(vm.idle_pages(0), nr_idle);
    while vm.advance_generation(50) != crate::frame::Advance::Done {}
    check(&vm);
}

#[test]
fn what_is_refused_changes_nothing() {
    let vm = small();
    vm.add_memory(sections(2, 1)).unwrap();
    let pfn = take_all(&vm).into_iter().fold(None, |kept, pfn| {
        let keep = kept.is_none() && pfn.0 == 3 * SECTION as u32 - 700;
        if keep { Some(pfn) } else { (vm.give_back(pfn, Fill::Raw), kept).1 }
    });
    vm.frames.desc(pfn.unwrap()).assign(FrameKind::Reserved, 0, 0, 0);
    let before = state(&vm);
    let [odd, none] = [(2 * SECTION + 1, SECTION), (4 * SECTION, 0)];
    let range = |(first, nr_frames): (u64, u64)| FrameRange { first: Pfn(first as u32), nr_frames };
    for (wrong, refused) in [
        (range(odd), AddMemoryRefusal::NotSections),
        (range(none), AddMemoryRefusal::NotSections),
        (sections(0, 1), AddMemoryRefusal::OutOfRange),
        (sections(4, 2), AddMemoryRefusal::OutOfRange),
        (sections(2, 2), AddMemoryRefusal::AlreadyThere),
        (sections(3, 2), AddMemoryRefusal::NoSuchMemory),
    ] {
        let nr = vm.event(refused.event());
        assert_eq!(vm.add_memory(wrong), Err(refused));
        assert_eq!((state(&vm), vm.event(refused.event())), (before, nr + 1), "{refused:?}");
    }
    for (wrong, refused) in [
        (range(odd), RemoveMemoryRefusal::NotSections),
        (sections(3, 1), RemoveMemoryRefusal::NotThere),
        (sections(1, 1), RemoveMemoryRefusal::NotThere),
        (sections(1 << 16, 1), RemoveMemoryRefusal::NotThere),
        (sections(2, 1 << 17), RemoveMemoryRefusal::NotThere),
        (sections(0, 1), RemoveMemoryRefusal::InUse),
        (sections(2, 1), RemoveMemoryRefusal::InUse),
    ] {
        let (nr, nr_dirty_before) = (vm.event(refused.event()), nr_dirty(&vm));
        assert_eq!(vm.remove_memory(wrong), Err(refused));
        assert_eq!(nr_dirty(&vm), nr_dirty_before, "{refused:?}");
        assert_eq!((state(&vm), vm.event(refused.event())), (before, nr + 1), "{refused:?}");
    }
    vm.give_back(pfn.unwrap(), Fill::Raw);
    vm.remove_memory(sections(2, 1)).unwrap();
    check(&vm);
}

/// Four allocations: descriptors and blocks of two sections.
#[test]
fn any_allocation_may_fail() {
    let vm = small();
    for k in 0..4 {
        let before = state(&vm);
        vm.fail_allocation(Some(k));
        assert_eq!(vm.add_memory(sections(2, 2)), Err(AddMemoryRefusal::NoMetadata), "{k}");
        vm.fail_allocation(None);
        assert_eq!(state(&vm), before, "{k}");
    }
    vm.fail_allocation(Some(4));
    vm.add_memory(sections(2, 2)).unwrap();
    vm.fail_allocation(None);
    check(&vm);
}

/// Memory of the beginning goes, too, but not the metadata, which may have no descriptors.
#[test]
fn memory_of_the_beginning_goes_and_comes_back() {
    let nr_frames = 130 * SECTION;
    let first = SECTION as u32;
    let mut machine = from_frame(first, nr_frames, &[(first, nr_frames)]);
    machine.addable = sections(0, 131);
    let vm = Vm::new(machine, Tunables::default()).unwrap();
    assert_eq!(vm.add_memory(sections(1, 1)), Err(AddMemoryRefusal::AlreadyThere));
    assert_eq!(vm.remove_memory(sections(1, 1)), Err(RemoveMemoryRefusal::NotThere));
    assert_eq!(vm.remove_memory(sections(2, 1)), Err(RemoveMemoryRefusal::InUse));
    let nr_free = vm.vmstat().nr_free_pages;
    vm.remove_memory(sections(100, 2)).unwrap();
    vm.check_summaries().unwrap();
    assert_eq!(vm.vmstat().nr_free_pages, nr_free - 2 * SECTION);
    vm.add_memory(sections(100, 2)).unwrap();
    vm.check_summaries().unwrap();
    assert_eq!(vm.vmstat().nr_free_pages, nr_free);
}

/// They are what a machine with that much memory would have had from the beginning.
#[test]
fn watermarks_follow() {
    for min_free in [None, Some(64), Some(3000)] {
        let vm = small_with(1, Tunables { min_free_kbytes: min_free, keep_min: true, ..Tunables::default() });
        let scale = vm.tunables.watermark_scale_factor;
        let expected = |vm: &Vm<Plain>| Watermarks::of(vm.vmstat().nr_total_pages, min_free, scale);
        let before = (vm.watermarks(), vm.frames.reserve.nr_missing());
        assert_eq!(before, (expected(&vm), 0));
        for _ in 0..2 {
            vm.add_memory(sections(2, 2)).unwrap();
            check(&vm);
            let marks = vm.watermarks();
            assert_eq!(marks, expected(&vm));
            assert_eq!(vm.frames.reserve.nr_missing(), marks.min_pages - before.0.min_pages);
            vm.remove_memory(sections(2, 2)).unwrap();
            check(&vm);
            assert_eq!((vm.watermarks(), vm.frames.reserve.nr_missing()), before);
        }
    }
}

/// All of it is counted again: else the sum says what was free before, until somebody happens to look there.
#[test]
fn memory_that_came_is_seen() {
    // Huge pages that are not much used are split where memory is short.
    let khugepaged = KhugepagedKnobs { max_ptes_none: 100, ..HugeKnobs::DEFAULT.khugepaged };
    let thp = HugeKnobs { enabled: Enabled::Always, khugepaged, ..HugeKnobs::DEFAULT };
    // A block group for some blocks each.
    let vm = small_with(32, Tunables { thp, ..Tunables::default() });
    let watch = &vm.frames.watch;
    let seen = || {
        assert!(watch.is_recounting());
        (0..100).map(|_| vm.frames.sample()).find(|_| !watch.is_recounting()).unwrap()
    };
    for (add, remove) in [(2, 3), (3, 2)] {
        vm.add_memory(sections(add, 1)).unwrap();
        let nr_free = vm.frames.nr_free_in_blocks();
        assert!((nr_free * 2 / 3..=nr_free * 4 / 3).contains(&seen()), "{add}");
        // One may have the metadata of the other.
        if vm.remove_memory(sections(remove, 1)) == Ok(()) {
            let nr_free = vm.frames.nr_free_in_blocks();
            assert!((nr_free * 2 / 3..=nr_free * 4 / 3).contains(&seen()), "{remove}");
        }
        check(&vm);
    }
}
