//! Holes cost little, and nobody gets a frame of one.

use super::*;
use crate::compact::MigrateRefusal;
use crate::frame::{Advance, Fill};
use crate::space::Vm;
use crate::testing::{Plain, from_frame};
use crate::tunables::Tunables;
use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

const GIB: u64 = 1 << 18;

fn vm_over(origin: u32, nr_frames: u64, ranges: &[(u32, u64)]) -> Vm<Plain> {
    Vm::new(from_frame(origin, nr_frames, ranges), Tunables::default()).unwrap()
}

fn range(first: u64, nr_frames: u64) -> FrameRange {
    FrameRange { first: Pfn(first as u32), nr_frames }
}

/// 1 GiB at 512 GiB: a row of the summaries and two words for each 128 MiB of the hole.
#[test]
fn memory_far_up_has_the_descriptors_of_that_memory() {
    let [low, high] = [0, 1 << 27].map(|first: u32| {
        let vm = vm_over(first, GIB, &[(first, GIB)]);
        assert_eq!(vm.migrate_frame(Pfn(first.wrapping_sub(1))), Err(MigrateRefusal::Reserved));
        vm.nr_total_pages.get()
    });
    let nr_in_hole = (1u64 << 27) / MEM_SECTION_FRAMES;
    let nr_more = (nr_in_hole * (256 + 16)).div_ceil(4096) + nr_in_hole / 64 / 16 + 3;
    assert!(low - high <= nr_more, "{} frames more, should be {nr_more}", low - high);
    assert!(GIB - low <= GIB * 36 / 4096, "36 bytes a frame");
}

/// The terabyte's metadata fills sections, which have no descriptors.
#[test]
fn sections_of_metadata_have_none() {
    for nr_frames in [GIB, 64 * GIB, 64 * GIB + 5, 1024 * GIB] {
        for first in [0, 7, MEM_SECTION_FRAMES, 5 * MEM_SECTION_FRAMES - 1] {
            let ranges = [range(first, nr_frames)];
            let layout =
                Layout::of(&ranges, first + nr_frames, Lengths { cpus: 4, swap_slots: 0, hugetlb_mutexes: 9 }).unwrap();
            let (start, end) = (u64::from(layout.meta.first.0), layout.meta.end());
            assert_eq!(start, first);
            assert!(layout.meta.nr_frames * 4096 <= nr_frames * 33 + 300 * 4096, "{layout:?}");
            for section in layout.filled.clone() {
                let (first, after) = frames_of(section);
                assert!(start <= first && after < end, "{section}: {layout:?}");
            }
            // But for its ends, and for the parts that shrink when sections are left out.
            let nr_whole = layout.meta.nr_frames / MEM_SECTION_FRAMES;
            assert!(layout.filled.len() as u64 + 2 >= nr_whole, "{layout:?}");
        }
    }
}

/// Each frame of the machine is given once, but for the metadata and frame 0.
fn check_all_are_given(ranges: &[(u32, u64)]) {
    let end = ranges.iter().map(|(first, nr)| u64::from(*first) + nr).max().unwrap();
    let vm = vm_over(0, end, ranges);
    assert_eq!(vm.frames.wrong_section(), None, "{ranges:?}");
    vm.check_in_test(&[], &mut vec![0; vm.nr_frames() as usize]).unwrap();
    assert!(vm.frames.blocks.names().iter().all(|b| vm.frames.blocks.at(b).is_told()), "{ranges:?}");
    let is_named = |b: BlockId| !vm.frames.blocks.is_there(b) && vm.frames.blocks.at(b).is_named_in_vain();
    assert!(!vm.frames.blocks.names().iter().any(is_named), "{ranges:?}: a search is sent to a hole");
    let given: Vec<Pfn> = core::iter::from_fn(|| vm.obtain(Fill::Raw).ok()).collect();
    let is_memory = |pfn: &Pfn| ranges.iter().any(|(first, nr)| range((*first).into(), *nr).holds(pfn.0.into()));
    assert!(given.iter().all(is_memory), "{ranges:?}");
    assert_eq!(
        (given.len() as u64, given.iter().collect::<BTreeSet<_>>().len()),
        (vm.nr_total_pages.get(), given.len())
    );
    given.iter().for_each(|pfn| vm.give_back(*pfn, Fill::Raw));
    vm.check_in_test(&[], &mut vec![0; vm.nr_frames() as usize]).unwrap();
}

#[test]
fn nobody_gets_a_frame_of_a_hole() {
    let section = MEM_SECTION_FRAMES as u32;
    check_all_are_given(&[(0, 4000)]);
    check_all_are_given(&[(section - 700, 1400)]);
    check_all_are_given(&[(6 * section + 1, 5000), (3, 1)]);
    check_all_are_given(&[(2 * section, 1200), (4 * section - 1, 1), (section - 64, 64), (7 * section + 513, 3)]);
    check_all_are_given(&[(section - 1200, 1200 + u64::from(section)), (9 * section, 70)]);
}

/// A pass that goes from block to block reaches the ones behind a hole.
#[test]
fn passes_go_on_behind_a_hole() {
    let section = MEM_SECTION_FRAMES as u32;
    let vm = vm_over(0, 9 * MEM_SECTION_FRAMES, &[(section, 4000), (8 * section, MEM_SECTION_FRAMES)]);
    let blocks = &vm.frames.blocks;
    let there: Vec<BlockId> = blocks.there().collect();
    assert_eq!(there.len(), 128);
    assert_eq!((there[0], there[64]), (BlockId(64), BlockId(512)));
    assert_eq!([0, 63, 64, 127, 128, 511].map(|b| blocks.distance(BlockId(b))), [64, 1, 0, 0, 384, 1]);
    assert!([0, 128, 511].iter().all(|b| !blocks.is_there(BlockId(*b)) && blocks.at(BlockId(*b)).nr_free() == 0));
    assert!(vm.frames.find_desc_at_rest(Pfn(5 * section)).is_none());
    for nr_blocks in [1, 5, 200] {
        let nr_generations = vm.generation();
        let nr_steps = 1 + core::iter::repeat_with(|| vm.advance_generation(nr_blocks))
            .take_while(|a| *a != Advance::Done)
            .count();
        assert_eq!((vm.generation(), nr_steps as u64), (nr_generations + 1, 128u64.div_ceil(nr_blocks)));
        vm.check_summaries().unwrap();
    }
    assert_eq!(vm.frames.numbers().count() as u64, 2 * MEM_SECTION_FRAMES);
}
