//! Resident counts on machines with more CPUs than have lines beside the space.

use super::{NR_IN_FRAME, NR_INLINE};
use crate::account::rss::{Rss, RssPages};
use crate::addr::{Access, Pfn};
use crate::frame::Fill;
use crate::linux::MapFlags;
use crate::machine::CpuId;
use crate::policy::huge::Enabled;
use crate::space::{AddressSpace, Vm};
use crate::testing::{FIXED_PRIVATE, Plain, RW, be, on_enter, vm_of};
use crate::tunables::Tunables;
use crate::tunables::huge::HugeKnobs;
use core::ptr::from_ref;
use std::boxed::Box;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

const AT: u64 = 0x10_0000_0000;
const PAGE: u64 = 4096;
/// Bytes that a leaf table maps.
const STRETCH: u64 = 512 * PAGE;
/// A CPU without a line beside the space.
const FAR: u16 = 40;

type Space = AddressSpace<'static, Plain>;

fn machine(nr_cpus: usize) -> &'static Vm<Plain> {
    be(0);
    let thp = HugeKnobs { enabled: Enabled::Never, ..HugeKnobs::DEFAULT };
    Box::leak(Box::new(vm_of(nr_cpus, 16_384, Tunables { thp, ..Tunables::default() }).unwrap()))
}

fn space_with(vm: &'static Vm<Plain>, nr_pages: u64) -> Space {
    let space = vm.new_space().unwrap();
    space.mmap(AT, nr_pages * PAGE, RW, FIXED_PRIVATE).unwrap();
    space
}

fn touch(space: &Space, cpu: u16, page: u64) {
    be(cpu);
    space.handle_fault(AT + page * PAGE, Access::Write).unwrap();
}

fn check(vm: &Vm<Plain>, space: &Space) {
    vm.check_in_test(&[space], &mut vec![0; vm.nr_frames() as usize]).unwrap();
}

/// Ends the space; everything it had is free again.
fn end(vm: &Vm<Plain>, space: Space, nr_free: u64) {
    be(0);
    drop(space);
    assert_eq!(vm.nr_free_pages(), nr_free, "frames were lost or freed twice");
    vm.check_in_test(&[], &mut vec![0; vm.nr_frames() as usize]).unwrap();
}

/// The CPU's counts in the line that it uses now.
fn own_faults(space: &Space, cpu: u16) -> u64 {
    space.rss_line(CpuId(cpu)).counts[Rss::MinorFaults as usize].get()
}

/// Each CPU touches two pages. The first fault is slow and adds the frame of lines, so that
/// the second is counted in the CPU's own line.
fn counted_on(nr_cpus: u16, cpus: &[u16], nr_frames: usize) {
    let vm = machine(nr_cpus.into());
    let nr_free = vm.nr_free_pages();
    let space = space_with(vm, 2 * u64::from(nr_cpus));
    assert_eq!(space.data.rss_frames().count(), 0, "none before a CPU needs it");
    for cpu in cpus {
        touch(&space, *cpu, 2 * u64::from(*cpu));
        let before = own_faults(&space, *cpu);
        touch(&space, *cpu, 2 * u64::from(*cpu) + 1);
        assert_eq!(own_faults(&space, *cpu), before + 1, "CPU {cpu}");
    }
    let lines: BTreeSet<_> = cpus.iter().map(|cpu| from_ref(space.rss_line(CpuId(*cpu)))).collect();
    assert_eq!(lines.len(), cpus.len(), "a line for each CPU");
    assert!(!lines.contains(&from_ref(&space.data.rss_shared)), "and none that is shared");
    assert_eq!(space.data.rss_frames().count(), nr_frames, "{nr_cpus} CPUs");
    let RssPages { anon, minor_faults, .. } = space.rss_pages();
    assert_eq!((anon, minor_faults), (2 * cpus.len() as u64, 2 * cpus.len() as u64));
    check(vm, &space);
    // Removed by a CPU that installed none of them: single lines go below zero.
    be(cpus[0]);
    space.munmap(AT, 2 * u64::from(nr_cpus) * PAGE).unwrap();
    assert_eq!((space.rss_pages().anon, space.rss_pages().tables), (0, 0));
    assert_eq!(space.data.rss_frames().count(), nr_frames, "they stay while the space is there");
    check(vm, &space);
    end(vm, space, nr_free);
}

#[test]
fn all_cpus_have_a_line_in_as_few_frames_as_hold_them() {
    for (nr_cpus, nr_frames) in [(32, 0), (33, 1), (64, 1), (65, 1), (96, 1), (97, 2), (128, 2), (512, 8)] {
        let all: Vec<u16> = (0..nr_cpus).collect();
        counted_on(nr_cpus, &all, nr_frames);
    }
}

/// The edges of the frames, of which those of other CPUs are not added.
#[test]
fn cpus_that_never_run_the_space_cost_no_frame() {
    let (first, per) = (NR_INLINE as u16, NR_IN_FRAME as u16);
    assert_eq!((first, per), (32, 64));
    counted_on(512, &[first - 1], 0);
    counted_on(512, &[first], 1);
    counted_on(512, &[first + per - 1], 1);
    counted_on(512, &[first, first + per - 1], 1);
    counted_on(512, &[first + per - 1, first + per], 2);
    counted_on(512, &[first + 2 * per, first + 3 * per - 1], 1);
    counted_on(512, &[511], 1);
    counted_on(512, &[0, 511], 1);
}

/// Two frames that are not adjacent are enough for a space, and one is not, on any machine.
#[test]
fn a_space_needs_no_adjacent_frames() {
    for nr_cpus in [1, 33, 65, 512] {
        let vm = machine(nr_cpus);
        let taken: Vec<Pfn> = core::iter::from_fn(|| vm.obtain(Fill::Raw).ok()).collect();
        let give = |i: usize| vm.give_back(taken[i], Fill::Raw);
        give(0);
        assert!(vm.new_space().is_err());
        assert_eq!(vm.nr_free_pages(), 1, "a refused space keeps nothing");
        give(1001);
        assert!(taken[0].0.abs_diff(taken[1001].0) > 1);
        let space = vm.new_space().unwrap();
        assert_eq!(vm.nr_free_pages(), 0);
        drop(space);
        assert_eq!(vm.nr_free_pages(), 2);
    }
}

/// Memory for one page and its tables, and none for lines: the CPU counts in the shared line
/// until there is a frame.
#[test]
fn without_a_frame_cpus_count_together() {
    let vm = machine(128);
    let nr_free = vm.nr_free_pages();
    let space = space_with(vm, 8);
    let taken: Vec<Pfn> = core::iter::from_fn(|| vm.obtain(Fill::Raw).ok()).collect();
    // Three levels of tables below the root, and a page.
    taken[..4].iter().for_each(|pfn| vm.give_back(*pfn, Fill::Raw));
    touch(&space, FAR, 0);
    vm.give_back(taken[4], Fill::Raw);
    touch(&space, FAR + 64, 1);
    assert_eq!((space.data.rss_frames().count(), vm.nr_free_pages()), (0, 0));
    assert_eq!((space.rss_pages().anon, space.rss_pages().tables, space.rss_pages().minor_faults), (2, 3, 2));
    assert!([FAR, FAR + 64].iter().all(|cpu| own_faults(&space, *cpu) == 2), "both count in one line");
    taken[5..].iter().for_each(|pfn| vm.give_back(*pfn, Fill::Raw));
    // The one that has a line now, and the one that has none yet.
    touch(&space, FAR, 2);
    touch(&space, FAR, 3);
    assert_eq!(space.data.rss_frames().count(), 1);
    assert_eq!((own_faults(&space, FAR), own_faults(&space, FAR + 64)), (1, 3));
    assert_eq!((space.rss_pages().anon, space.rss_pages().minor_faults), (4, 4), "what was counted before stays");
    check(vm, &space);
    end(vm, space, nr_free);
}

/// The k-th allocation fails, and all after it: a fault that has its page is not refused for
/// want of lines, and what is counted is what is there.
#[test]
fn a_failing_allocation_loses_no_count() {
    let vm = machine(128);
    let nr_free = vm.nr_free_pages();
    let mut nr_without_lines = 0;
    for k in 0.. {
        let space = space_with(vm, 4 * 512);
        vm.steal_caches();
        vm.fail_allocation(Some(k));
        be(FAR);
        let done: Vec<bool> = (0..4).map(|i| space.handle_fault(AT + i * STRETCH, Access::Write).is_ok()).collect();
        vm.fail_allocation(None);
        let nr_done = done.iter().filter(|done| **done).count() as u64;
        let rss = space.rss_pages();
        assert_eq!((rss.anon, rss.minor_faults), (nr_done, nr_done), "k = {k}");
        check(vm, &space);
        let has_lines = space.data.rss_frames().count() == 1;
        nr_without_lines += u32::from(nr_done > 0 && !has_lines);
        // With memory again the next slow fault adds them.
        be(FAR);
        vm.steal_caches();
        touch(&space, FAR, 511);
        touch(&space, FAR, 510);
        assert_eq!((space.rss_pages().anon, space.data.rss_frames().count()), (nr_done + 2, 1), "k = {k}");
        end(vm, space, nr_free);
        if nr_done == 4 && has_lines {
            break;
        }
    }
    assert!(nr_without_lines > 0, "no failure hit the frame of lines");
}

/// CPU 41 adds the frame, and counts in it, after CPU 40 saw that there was none. CPU 40 gives
/// its own back.
#[test]
fn of_two_cpus_that_add_a_frame_one_keeps_it() {
    let vm = machine(128);
    let nr_free = vm.nr_free_pages();
    let space = Rc::new(space_with(vm, 8));
    // Tables, so that the faults below bring pages only.
    touch(&space, 0, 0);
    let nr_before = vm.nr_free_pages();
    be(FAR);
    let (mut is_first, other) = (true, space.clone());
    on_enter(move || {
        if core::mem::take(&mut is_first) {
            (1..4).for_each(|page| touch(&other, FAR + 1, page));
            be(FAR);
        }
    });
    space.add_rss_frame();
    on_enter(|| ());
    assert_eq!(space.data.rss_frames().count(), 1);
    assert_eq!(vm.nr_free_pages(), nr_before - 4, "three pages and one frame of lines");
    assert_eq!((space.rss_pages().anon, space.rss_pages().minor_faults), (4, 4));
    assert_eq!((own_faults(&space, FAR), own_faults(&space, FAR + 1)), (0, 2));
    touch(&space, FAR, 4);
    assert_eq!((own_faults(&space, FAR), own_faults(&space, FAR + 1)), (1, 2));
    check(vm, &space);
    end(vm, Rc::into_inner(space).unwrap(), nr_free);
}

/// Counts are kept apart: pages, pages of objects, tables, faults.
#[test]
fn each_kind_has_its_count_in_every_line() {
    let vm = machine(128);
    let space = vm.new_space().unwrap();
    let shared = MapFlags::SHARED | MapFlags::ANONYMOUS | MapFlags::FIXED;
    space.mmap(AT, 8 * PAGE, RW, FIXED_PRIVATE).unwrap();
    space.mmap(AT + STRETCH, 8 * PAGE, RW, shared).unwrap();
    for cpu in [0, FAR, FAR + 64] {
        let first = u64::from(cpu) / 40 * 2;
        touch(&space, cpu, first);
        touch(&space, cpu, first + 1);
        touch(&space, cpu, 512 + first);
    }
    let rss = space.rss_pages();
    assert_eq!((rss.anon, rss.shmem, rss.tables, rss.minor_faults, rss.anon_huge), (6, 3, 4, 9, 0));
    check(vm, &space);
}

/// A frame of lines comes from memory that programs have used.
#[test]
fn lines_begin_with_nothing_counted() {
    let vm = machine(64);
    let space = space_with(vm, 16_384);
    let is_written = |page: &u64| space.write(AT + page * PAGE, &[0xff; PAGE as usize]).is_ok();
    let nr_written = (0..16_384).take_while(is_written).count();
    assert!(nr_written > 8000, "all of memory: {nr_written} pages");
    drop(space);
    let nr_free = vm.nr_free_pages();
    let space = space_with(vm, 8);
    (0..8).for_each(|page| touch(&space, FAR, page));
    assert_eq!(space.data.rss_frames().count(), 1);
    assert_eq!((space.rss_pages().anon, space.rss_pages().shmem, space.rss_pages().minor_faults), (8, 0, 8));
    check(vm, &space);
    end(vm, space, nr_free);
}
