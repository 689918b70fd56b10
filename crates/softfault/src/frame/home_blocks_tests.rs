//! Each CPU has home blocks where there is memory for all, and none where memory has gone.

use super::*;
use crate::addr::Pfn;
use crate::frame::Fill;
use crate::frame::mem_sections::MEM_SECTION_FRAMES as SECTION;
use crate::machine::FrameRange;
use crate::space::Vm;
use crate::testing::{Plain, be, from_frame, on_relax};
use crate::tunables::Tunables;
use core::cell::Cell;
use std::boxed::Box;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

fn sections(first: u64, nr: u64) -> FrameRange {
    FrameRange { first: Pfn((first * SECTION) as u32), nr_frames: nr * SECTION }
}

/// Section 0 is there, and others may come, up to this number of them.
fn growing(nr_cpus: usize, nr_sections: u64) -> Vm<Plain> {
    let mut machine = from_frame(0, nr_sections * SECTION, &[(0, SECTION)]);
    machine.addable = sections(1, nr_sections - 1);
    machine.nr_frames_at_most = nr_sections * SECTION;
    machine.nr_cpus = nr_cpus;
    Vm::new(machine, Tunables::default()).unwrap()
}

fn homes(vm: &Vm<Plain>) -> Vec<BlockRange> {
    vm.cpus.iter().map(CpuData::home_range).collect()
}

fn nr_without(vm: &Vm<Plain>) -> usize {
    homes(vm).iter().filter(|home| home.is_empty()).count()
}

/// The checker, and what is no promise to anybody: no block is two CPUs' home, and neighbourhoods are made of homes.
fn check(vm: &Vm<Plain>) {
    vm.check_in_test(&[], &mut vec![0; vm.nr_frames() as usize]).unwrap();
    check_homes(vm);
}

fn check_homes(vm: &Vm<Plain>) {
    assert_eq!(vm.wrong_home(), None);
    let mut by_start: Vec<_> = homes(vm).into_iter().filter(|home| !home.is_empty()).collect();
    by_start.sort_by_key(|home| home.start);
    assert!(by_start.windows(2).all(|two| two[0].end <= two[1].start), "{by_start:?}");
    for cpu in vm.cpus.iter().filter(|cpu| !cpu.home_range().is_empty()) {
        assert_eq!(cpu.locality.blocks().common(&cpu.home_range()), cpu.home_range());
    }
}

/// Of 64 CPUs one has a home at first. Later each takes frames where no other one does.
#[test]
fn memory_that_comes_is_home_to_those_without() {
    let vm = growing(64, 17);
    assert!(nr_without(&vm) >= 48, "{:?}", homes(&vm));
    let at_first = homes(&vm);
    vm.add_memory(sections(1, 16)).unwrap();
    check(&vm);
    assert_eq!(nr_without(&vm), 0, "{:?}", homes(&vm));
    for (before, home) in at_first.iter().zip(homes(&vm)) {
        assert!(before.is_empty() || *before == home, "{before:?} is {home:?}");
        assert!(home.extent() >= 16);
    }
    let taken: Vec<Pfn> = (0..64).map(|id| (be(id), vm.obtain(Fill::Raw).unwrap()).1).collect();
    // The CPUs of a cluster take frames from one block.
    for (pfn, home) in taken.iter().zip(homes(&vm)).step_by(vm.frames.nr_cluster as usize) {
        assert!(home.contains(BlockId::of(*pfn)), "{pfn:?} of {home:?}");
    }
    // Tables and objects: the blocks of a neighbourhood are few again.
    let nr_narrow = vm.cpus.iter().filter(|cpu| cpu.locality.blocks().extent() <= 64).count();
    assert!(nr_narrow >= 48, "as in a machine of that size: {nr_narrow}");
    taken.iter().for_each(|pfn| vm.give_back(*pfn, Fill::Raw));
    be(0);
}

/// A share of two sections is one CPU's, also if it comes in parts, and from above.
#[test]
fn a_share_that_comes_in_parts_stays_whole() {
    for order in [[1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1], [2, 4, 6, 7, 5, 3, 1]] {
        let vm = growing(4, 8);
        assert_eq!(vm.frames.blocks.summary.nr_blocks_in_share(), 126, "as the metadata is nobody's");
        for section in order {
            vm.add_memory(sections(section, 1)).unwrap();
            check(&vm);
        }
        // From above, the 8 blocks at the end are a share.
        let nr_large = homes(&vm).iter().filter(|home| home.extent() >= 126).count();
        assert!(nr_large >= 3 && nr_without(&vm) == 0, "{order:?}: {:?}", homes(&vm));
    }
}

/// CPUs leave a few home blocks for many.
#[test]
fn small_homes_are_left_for_large_ones() {
    // Up to 17 GiB of memory: block groups are smaller than what would be a CPU's share of that.
    let vm = growing(2, 130);
    vm.add_memory(sections(1, 1)).unwrap();
    let small = homes(&vm);
    assert!(small.iter().all(|home| home.extent() == 63), "{small:?}");
    vm.add_memory(sections(2, 3)).unwrap();
    assert_eq!(homes(&vm), small);
    vm.add_memory(sections(5, 5)).unwrap();
    let ends = homes(&vm).into_iter().map(|home| (home.start.0, home.end.0));
    assert_eq!(ends.collect::<Vec<_>>(), [(5 * 64, 8 * 63), (8 * 63, 10 * 64)]);
}

#[test]
fn homes_end_with_their_memory() {
    let vm = growing(64, 17);
    vm.add_memory(sections(1, 16)).unwrap();
    for id in 0..64 {
        be(id);
        vm.give_back(vm.obtain(Fill::Raw).unwrap(), Fill::Raw);
    }
    be(0);
    // The metadata lies in section 0.
    for gone in [3, 16, 7, 8, 15] {
        vm.remove_memory(sections(gone, 1)).unwrap();
        check_homes(&vm);
        let blocks = BlockRange { start: BlockId(gone as u32 * 64), end: BlockId(gone as u32 * 64 + 64) };
        assert!(homes(&vm).iter().all(|home| home.common(&blocks).is_empty()), "{gone}: {:?}", homes(&vm));
        assert!(nr_without(&vm) >= 3);
    }
    // Those without find frames; and homes come back with the memory.
    for id in 0..64 {
        be(id);
        vm.give_back(vm.obtain(Fill::Raw).unwrap(), Fill::Raw);
    }
    be(0);
    for back in [15, 3, 8, 16, 7] {
        vm.add_memory(sections(back, 1)).unwrap();
        check_homes(&vm);
    }
    check(&vm);
    assert_eq!(nr_without(&vm), 0, "{:?}", homes(&vm));
}

/// The home blocks of the beginning lie in holes, too: the rest ends before one.
#[test]
fn a_home_that_is_cut_ends_in_memory() {
    let vm = growing(2, 13);
    vm.add_memory(sections(1, 1)).unwrap();
    vm.add_memory(sections(3, 1)).unwrap();
    let at_first = homes(&vm).into_iter().find(|home| !home.is_empty()).unwrap();
    assert!(at_first.end > BlockId(4 * 64));
    vm.remove_memory(sections(3, 1)).unwrap();
    check(&vm);
    assert!(homes(&vm).contains(&BlockRange { end: BlockId(2 * 64), ..at_first }), "{:?}", homes(&vm));
}

/// Memory of which nobody knows the node is nobody's home; what was there at the beginning comes back to its node.
#[test]
fn homes_are_of_the_node() {
    let mut machine = from_frame(0, 12 * SECTION, &[(0, 4 * SECTION), (4 * SECTION as u32, 4 * SECTION)]);
    machine.addable = sections(1, 11);
    machine.nr_frames_at_most = 12 * SECTION;
    machine.nr_cpus = 4;
    machine.nr_nodes = 2;
    machine.node_of_ranges = vec![0, 1];
    machine.node_of_cpus = vec![0, 1, 0, 1];
    let vm = Vm::new(machine, Tunables::default()).unwrap();
    let at_first = homes(&vm);
    vm.add_memory(sections(8, 4)).unwrap();
    assert_eq!(homes(&vm), at_first);
    vm.remove_memory(sections(8, 4)).unwrap();
    vm.remove_memory(sections(4, 4)).unwrap();
    check(&vm);
    let left = homes(&vm);
    assert_eq!([0, 1, 2, 3].map(|id| left[id].is_empty()), [false, true, false, true]);
    vm.add_memory(sections(4, 4)).unwrap();
    check(&vm);
    let again = homes(&vm);
    assert_eq!([again[0], again[2]], [at_first[0], at_first[2]]);
    assert!([again[1], again[3]].iter().all(|home| home.start >= BlockId(4 * 64) && home.end <= BlockId(8 * 64)));
    assert!(!again[1].is_empty() && !again[3].is_empty(), "{again:?}");
}

/// Any order of sections: the checks hold after each.
#[test]
fn random_sections_come_and_go() {
    for (seed, (nr_cpus, nr_sections)) in [(64, 9), (3, 14), (16, 12)].into_iter().enumerate() {
        let vm = growing(nr_cpus, nr_sections);
        let mut number = seed as u64;
        for _ in 0..40 {
            number = crate::hash::mix(number + 1);
            let first = 1 + number % (nr_sections - 1);
            let range = sections(first, 1 + (number >> 32) % (nr_sections - first));
            _ = vm.add_memory(range).is_err() && vm.remove_memory(range).is_err();
            check_homes(&vm);
        }
        check(&vm);
    }
}

/// A change takes as many steps for each CPU, whatever the memory.
#[test]
fn a_change_costs_the_same_in_a_large_memory() {
    let cost = |nr_before| {
        let vm = growing(64, 34);
        vm.add_memory(sections(2, nr_before)).unwrap();
        vm.add_memory(sections(1, 1)).unwrap();
        let before = vm.machine.nr_relaxed.get();
        vm.homes_go(BlockRange { start: BlockId(64), end: BlockId(128) });
        vm.homes_come(BlockRange { start: BlockId(64), end: BlockId(128) });
        vm.machine.nr_relaxed.get() - before
    };
    let [few, many] = [2, 32].map(cost);
    assert!(many <= few + 1 && few < 12, "{few} and {many}");
}

/// A count of memory while some comes counts no frame twice.
#[test]
fn memory_that_comes_is_counted_once() {
    let vm = growing(4, 4);
    let at: &'static Vm<Plain> = Box::leak(Box::new(vm));
    let nr_looks = Rc::new(Cell::new(0));
    let looks = nr_looks.clone();
    on_relax(move || {
        looks.set(looks.get() + 1);
        let stat = at.vmstat();
        assert!(stat.nr_free_pages <= stat.nr_total_pages);
    });
    at.add_memory(sections(1, 3)).unwrap();
    on_relax(|| ());
    assert!(nr_looks.get() > 1);
    check(at);
}
