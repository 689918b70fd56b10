//! Machines that name frames which cannot be, or too few of them.

use super::{NewVmError, Vm};
use crate::addr::{Access, PAGE_SIZE, Pfn};
use crate::machine::{CpuId, MAX_CPUS, MAX_NODES, MemoryNode};
use crate::policy::huge::Enabled;
use crate::program;
use crate::testing::{FIXED_PRIVATE, Plain, RW, in_ranges, nr_begun, was_unwritten, without_memory};
use crate::tunables::Tunables;
use crate::tunables::huge::HugeKnobs;

/// The refusal, which came before the machine heard that its frames would be written, and
/// before any was.
fn refused(machine: Plain, tunables: Tunables) -> NewVmError {
    let before = nr_begun();
    let refusal = Vm::new(machine, tunables).err().expect("should be refused");
    assert_eq!(nr_begun(), before, "{refusal}: the frames are not about to be written");
    refusal
}

/// Where there is no memory, a search for a frame fails the test.
#[test]
fn bad_frames_are_refused_before_any_is_touched() {
    let empty = |range| NewVmError::EmptyRange { range };
    let high = |range| NewVmError::RangeTooHigh { range };
    let overlap = |range, with| NewVmError::Overlap { range, with };
    type Case = (&'static [(u32, u64)], NewVmError);
    let cases: [Case; 15] = [
        (&[], NewVmError::NoFrames),
        (&[(0, 0)], empty(0)),
        (&[(5, 0)], empty(0)),
        (&[(0, 4096), (4096, 0)], empty(1)),
        (&[(0, 64), (63, 64)], overlap(1, 0)),
        (&[(64, 64), (0, 65)], overlap(1, 0)),
        (&[(0, 1024), (512, 1)], overlap(1, 0)),
        (&[(512, 1), (0, 1024)], overlap(1, 0)),
        (&[(5, 100), (5, 100)], overlap(1, 0)),
        (&[(0, 4096), (8192, 64), (8255, 2)], overlap(2, 1)),
        (&[(u32::MAX, 1)], high(0)),
        (&[(0, 1 << 32)], high(0)),
        (&[(1 << 20, u64::MAX)], high(0)),
        (&[(0, 4096), (u32::MAX - 1, 2)], high(1)),
        (&[(0, u64::MAX), (7, u64::MAX)], high(0)),
    ];
    for (frames, refusal) in cases {
        assert_eq!(refused(without_memory(frames), Tunables::default()), refusal, "{frames:?}");
        assert!(std::format!("{refusal}").starts_with("Machine::frames: "), "{refusal}");
    }
}

#[test]
fn numbers_of_cpus_that_no_machine_has_are_refused() {
    for nr_cpus in [0, MAX_CPUS + 1, usize::MAX] {
        let mut machine = without_memory(&[(0, 4096)]);
        machine.nr_cpus = nr_cpus;
        assert_eq!(refused(machine, Tunables::default()), NewVmError::BadCpus, "{nr_cpus}");
    }
}

#[test]
fn nodes_that_there_are_not_are_refused() {
    let refusal = |nr_nodes, ranges: &[u8], cpus: &[u8]| {
        let mut machine = without_memory(&[(0, 4096), (8192, 64)]);
        (machine.nr_nodes, machine.nr_cpus) = (nr_nodes, 2);
        (machine.node_of_ranges, machine.node_of_cpus) = (ranges.into(), cpus.into());
        refused(machine, Tunables::default())
    };
    for nr_nodes in [0, MAX_NODES + 1, usize::MAX] {
        assert_eq!(refusal(nr_nodes, &[], &[]), NewVmError::BadNodes);
    }
    let (range, cpu) = (1, CpuId(1));
    for (nr_nodes, wrong) in [(1, 1), (2, 2), (64, 64), (64, 255)] {
        let node = MemoryNode(wrong);
        let of_range = refusal(nr_nodes, &[0, wrong], &[]);
        assert_eq!(of_range, NewVmError::NoSuchNodeOfRange { range, node });
        let of_cpu = refusal(nr_nodes, &[0, 0], &[0, wrong]);
        assert_eq!(of_cpu, NewVmError::NoSuchNodeOfCpu { cpu, node });
    }
}

#[test]
fn watermarks_that_no_memory_has_are_refused() {
    let tunables = Tunables::default();
    let refusal = |tunables| refused(without_memory(&[(0, 4096)]), tunables);
    let NewVmError::MinFreeTooLarge { most_kbytes } = refusal(Tunables { min_free_kbytes: Some(u64::MAX), ..tunables })
    else {
        panic!("should be too large")
    };
    assert!((7_000..8_192).contains(&most_kbytes), "{most_kbytes} of 16 MiB less the metadata");
    let above = Tunables { min_free_kbytes: Some(most_kbytes + 1), ..tunables };
    assert_eq!(refusal(above), NewVmError::MinFreeTooLarge { most_kbytes });
    for factor in [3_001, u64::MAX] {
        assert_eq!(refusal(Tunables { watermark_scale_factor: factor, ..tunables }), NewVmError::BadScaleFactor);
    }
    let most = Tunables { min_free_kbytes: Some(most_kbytes), watermark_scale_factor: 3_000, ..tunables };
    let vm = crate::testing::vm(4096, most);
    assert_eq!(vm.watermarks().min_pages, most_kbytes / 4);
    assert_eq!(vm.watermarks().low_pages - most_kbytes / 4, vm.nr_total_pages.get() * 3 / 10);
}

#[test]
fn frames_that_are_not_aligned_are_refused() {
    for skew in [1, 8, 2048, 4095] {
        let mut machine = in_ranges(4096, &[(700, 3000), (0, 64)], 0, 0).soil();
        machine.skew = skew;
        assert_eq!(refused(machine, Tunables::default()), NewVmError::NotAligned { pfn: Pfn(700) }, "{skew}");
        assert!(was_unwritten());
    }
}

/// A section has descriptors for all of its frames, holes included.
#[test]
fn frames_without_room_for_the_metadata_are_refused_before_any_is_touched() {
    let cases: [&[(u32, u64)]; 4] =
        [&[(0, 3)], &[(0, 240), (1 << 27, 240)], &[(0x8_0000, 1), (0xf_0000, 250)], &[(0, 2), (4, 2), (8, 2)]];
    for frames in cases {
        let refused = refused(without_memory(frames), Tunables::default());
        assert!(matches!(refused, NewVmError::NoRoom { .. }), "{frames:?}: {refused:?}");
    }
}

/// A search right after the beginning passes over holes and metadata.
#[test]
fn no_block_is_offered_for_what_it_never_had() {
    let vm = Vm::new(in_ranges(4096, &[(0, 700), (2048, 2048)], 0, 0), Tunables::default()).unwrap();
    let blocks = &vm.frames.blocks;
    assert_eq!(blocks.names().iter().find(|b| blocks.at(*b).is_named_in_vain()), None);
    assert!(blocks.names().iter().all(|b| blocks.at(b).is_told()));
}

/// Frames are joined across the border of two ranges that touch; what lies between them
/// in memory would be overwritten.
#[test]
fn ranges_that_lie_apart_are_refused() {
    type Case = (&'static [(u32, u64)], u64, u32);
    let cases: [Case; 4] = [
        (&[(0, 700), (700, 3000)], 1, 700),
        (&[(0, 700), (700, 1), (701, 3000)], 300, 700),
        (&[(0, 700), (1024, 2048)], 5, 1024),
        (&[(700, 3000), (4000, 8), (0, 700)], 80, 4000),
    ];
    for (ranges, gap, first) in cases {
        let refused = refused(in_ranges(4096, ranges, first, gap).soil(), Tunables::default());
        assert_eq!(refused, NewVmError::NotLinear { pfn: Pfn(first) }, "{ranges:?}");
        assert!(was_unwritten());
    }
}

/// Ranges of a linear map: those that touch are used as one, and nothing is written
/// between the others.
#[test]
fn ranges_of_a_linear_map_are_used_to_the_edge() {
    const AT: u64 = 0x10_0000_0000;
    for enabled in [Enabled::Never, Enabled::Always] {
        let machine = in_ranges(4096, &[(1100, 1972), (0, 700), (700, 324)], 0, 0);
        let between = || (1024..1100).chain(3072..4096).map(Pfn);
        between().for_each(|pfn| program::write(&machine, pfn, 0, &[0xaa; PAGE_SIZE as usize]));
        let thp = HugeKnobs { enabled, ..HugeKnobs::DEFAULT };
        let vm = Vm::new(machine, Tunables { thp, ..Tunables::default() }).unwrap();
        let space = vm.new_space().unwrap();
        space.mmap(AT, 4096 * PAGE_SIZE, RW, FIXED_PRIVATE).unwrap();
        let write = |page: &u64| space.handle_fault(AT + page * PAGE_SIZE, Access::Write).is_ok();
        assert!((0..4096).take_while(write).count() > 2800, "of 2,996 frames");
        let has_folio = vm.frames.folio(Pfn(700)).state().nr_maps() > 0;
        assert_eq!(has_folio, enabled == Enabled::Always, "a huge page across the border");
        for pfn in between() {
            let mut bytes = [0; PAGE_SIZE as usize];
            program::read(&vm.machine, pfn, 0, &mut bytes);
            assert_eq!(bytes, [0xaa; PAGE_SIZE as usize], "{pfn:?} is nobody's to write");
        }
    }
}
