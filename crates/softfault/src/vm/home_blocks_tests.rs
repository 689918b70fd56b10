//! Home blocks lie in the memory of the CPU's node.

use crate::addr::{BLOCK_FRAMES, BlockId, BlockRange, PAGE_SIZE, Pfn};
use crate::machine::{CpuId, Machine, MemoryNode};
use crate::space::Vm;
use crate::testing::{FIXED_PRIVATE, Plain, RW, be, in_ranges, vm_of};
use crate::tunables::Tunables;
use std::vec::Vec;

/// Memory of 64 blocks in these ranges, of blocks, of these nodes.
fn vm_with_nodes(ranges: &[(u32, u64, u8)], nr_nodes: usize, node_of_cpus: &[u8]) -> Vm<Plain> {
    let frames: Vec<_> = ranges.iter().map(|(first, nr, _)| (first * BLOCK_FRAMES as u32, nr * BLOCK_FRAMES)).collect();
    let mut machine = in_ranges(64 * BLOCK_FRAMES, &frames, 0, 0);
    machine.nr_nodes = nr_nodes;
    machine.node_of_ranges = ranges.iter().map(|(_, _, node)| *node).collect();
    machine.nr_cpus = node_of_cpus.len();
    machine.node_of_cpus = node_of_cpus.to_vec();
    Vm::new(machine, Tunables::default()).unwrap()
}

fn home_ranges(vm: &Vm<Plain>) -> Vec<(u32, u32)> {
    let home_ranges = (0..vm.machine.nr_cpus()).map(|id| vm.cpu(CpuId(id as u16)).home_range());
    home_ranges.map(|home_range| (home_range.start.0, home_range.end.0)).collect()
}

fn assert_faults_stay_on_their_nodes(vm: &Vm<Plain>, nr_cpus: u16) {
    for cpu in 0..nr_cpus {
        be(cpu);
        let space = vm.new_space().unwrap();
        space.mmap(1 << 30, PAGE_SIZE, RW, FIXED_PRIVATE).unwrap();
        space.write(1 << 30, &[1]).unwrap();
        let pfn = space.translate_at_rest(1 << 30).unwrap().pfn;
        assert_eq!(vm.node_of(pfn), Some(vm.machine.node_of_cpu(CpuId(cpu))), "CPU {cpu}");
    }
    be(0);
}

#[test]
fn home_ranges_lie_in_the_memory_of_the_node() {
    let vm = vm_with_nodes(&[(0, 32, 0), (32, 32, 1)], 2, &[1, 0, 1, 0]);
    // The metadata is in the first blocks.
    assert_eq!(home_ranges(&vm), [(32, 48), (0, 16), (48, 64), (16, 32)]);
    for (frame, node) in [(0, 0), (32 * 512 - 1, 0), (32 * 512, 1), (64 * 512 - 1, 1)] {
        assert_eq!(vm.node_of(Pfn(frame)), Some(MemoryNode(node)));
    }
    assert_eq!(vm.node_of(Pfn(64 * 512)), None);
    assert_faults_stay_on_their_nodes(&vm, 4);
}

#[test]
fn ranges_may_come_in_any_order_and_leave_holes() {
    let vm = vm_with_nodes(&[(48, 16, 1), (0, 12, 0), (20, 12, 0)], 2, &[0, 1, 1, 1, 1, 1, 1, 1]);
    let home_ranges = home_ranges(&vm);
    assert_eq!(home_ranges[0].0, 0);
    assert!((32..=48).contains(&home_ranges[0].1), "with the holes: {home_ranges:?}");
    assert_eq!(home_ranges[1..].iter().map(|home_range| home_range.1).max(), Some(64));
    assert!(home_ranges[1..].iter().all(|home_range| home_range.0 >= 32), "{home_ranges:?}");
}

/// The larger part of what another node cuts in two.
#[test]
fn a_home_range_is_one_piece() {
    let one_and_seven = &[0, 1, 1, 1, 1, 1, 1, 1];
    let vm = vm_with_nodes(&[(0, 16, 0), (16, 8, 1), (24, 40, 0)], 2, one_and_seven);
    assert_eq!(home_ranges(&vm)[0], (24, 64));
    let vm = vm_with_nodes(&[(0, 40, 0), (40, 8, 1), (48, 16, 0)], 2, one_and_seven);
    assert_eq!(home_ranges(&vm)[0], (0, 40));
    let of_node_1: Vec<_> =
        home_ranges(&vm)[1..].iter().copied().filter(|home_range| home_range.0 < home_range.1).collect();
    assert_eq!(of_node_1, [(40, 48)], "one block group, for one of seven CPUs");
}

#[test]
fn nodes_without_memory_or_cpus_are_no_nodes_apart() {
    let vm = vm_with_nodes(&[(0, 64, 2)], 4, &[0, 3]);
    assert_eq!(home_ranges(&vm), [(0, 32), (32, 64)], "they share what there is");
    let vm = vm_with_nodes(&[(0, 32, 0), (32, 32, 1)], 2, &[0, 0, 0, 0]);
    assert!(
        home_ranges(&vm).iter().all(|home_range| home_range.1 <= 32 || home_range.0 == home_range.1),
        "{:?}",
        home_ranges(&vm)
    );
    // Memory that is nobody's home is found all the same.
    let space = vm.new_space().unwrap();
    space.mmap(1 << 30, 64 << 21, RW, FIXED_PRIVATE).unwrap();
    let write = |page: &u64| space.write((1 << 30) + page * PAGE_SIZE, &[1]).is_ok();
    assert!((0..64 * 512).take_while(write).count() > 61 * 512);
}

/// The bits of a CPU's home block groups share no word of level 1 with those of another's.
#[test]
fn no_row_of_level_1_serves_two_cpus() {
    let vm = vm_of(16, 16 * 70 * BLOCK_FRAMES, Tunables::default()).unwrap();
    let summary = &vm.frames.blocks.summary;
    let nr_in_row = summary.nr_block_groups_in_share();
    assert!(nr_in_row > 1);
    let firsts: Vec<u32> = (0..summary.nr_block_groups())
        .step_by(nr_in_row as usize)
        .map(|block_group| summary.blocks_of(block_group).start.0)
        .collect();
    let starts: Vec<u32> = home_ranges(&vm)
        .iter()
        .filter(|home_range| home_range.0 < home_range.1)
        .map(|home_range| home_range.0)
        .collect();
    assert!(starts.len() >= 15 && starts.iter().all(|start| firsts.contains(start)), "{starts:?} of {firsts:?}");
}

#[test]
fn a_cluster_is_of_one_node() {
    let vm = vm_with_nodes(&[(0, 8, 0), (8, 56, 1)], 2, &[0, 1].repeat(32));
    assert_eq!(vm.frames.nr_cluster, 4);
    let clusters: Vec<u16> = (0..8).map(|id| vm.cpu(CpuId(id)).locality.first_of_cluster().0).collect();
    assert_eq!(clusters, [0, 1, 0, 1, 4, 5, 4, 5]);
    assert_faults_stay_on_their_nodes(&vm, 8);
}

/// And the next begins there: all memory is somebody's.
#[test]
fn home_ranges_end_with_the_node() {
    let vm = vm_with_nodes(&[(0, 33, 0), (33, 31, 1)], 2, &[0, 0, 1, 1]);
    assert_eq!(vm.frames.blocks.summary.nr_block_groups_in_share(), 1);
    assert_eq!(vm.frames.blocks.summary.blocks_of(2), BlockRange { start: BlockId(32), end: BlockId(48) });
    assert_eq!(home_ranges(&vm), [(0, 16), (16, 33), (33, 48), (48, 64)]);
}

/// A CPU without home blocks is no neighbour.
#[test]
fn homes_lie_in_the_memory_of_the_node() {
    let mut nr_empty = 0;
    for nr in 1..=16 {
        let vm = vm_with_nodes(&[(0, nr, 0), (nr as u32, 64 - nr, 1)], 2, &[0, 0, 1, 1, 1, 1, 1, 1]);
        nr_empty += home_ranges(&vm)[..2].iter().filter(|home_range| home_range.0 == home_range.1).count();
        for cpu in 0..2 {
            let neighbourhood = vm.cpu(CpuId(cpu)).locality.blocks();
            assert_eq!(
                (neighbourhood.start.0, u64::from(neighbourhood.end.0)),
                (0, nr),
                "{nr} blocks, CPU {cpu}: {:?}",
                home_ranges(&vm)
            );
        }
    }
    assert!(nr_empty > 0, "a node of one block group has a range of home blocks for one CPU");
}
