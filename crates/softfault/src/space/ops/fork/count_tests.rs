//! A fork is refused before it begins, for as many frames as it lacks; where the count was
//! wrong it goes on, or begins again.

use crate::account::rss::Rss;
use crate::addr::{Access, PAGE_SIZE};
use crate::frame::{Fill, OutOfFrames};
use crate::linux::{Advice, MapFlags};
use crate::pin::{PinMut, Term};
use crate::policy::huge::Enabled;
use crate::space::ops::ForkError;
use crate::space::vm::Shortage;
use crate::space::{AddressSpace, Vm};
use crate::testing::{FIXED_PRIVATE, Plain, RW, vm, vm_of};
use crate::tunables::Tunables;
use crate::tunables::huge::HugeKnobs;
use std::cell::RefCell;
use std::vec::Vec;

const AT: u64 = 1 << 30;
const FAR: u64 = 1 << 45;
const FILL: u64 = 1 << 40;
const HUGE: u64 = 2 << 20;
const SHARED: MapFlags = MapFlags::SHARED.union(MapFlags::ANONYMOUS).union(MapFlags::FIXED);

std::thread_local! {
    static ASKED_FOR: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Finds nothing, and notes how many frames were asked for.
fn find_nothing(_: &Vm<Plain>, _nr_blocks: u64, nr_frames: u64, _: Shortage) -> u64 {
    ASKED_FOR.with_borrow_mut(|all| all.push(nr_frames));
    0
}

/// The space and its frames: a root, and itself.
const NR_OF_SPACE: u64 = 2;
/// Leaf tables 4, at two places; above them 2 each. Then the nodes of the tree.
const NR_TABLES: u64 = 8;

fn small() -> Tunables {
    Tunables { thp: HugeKnobs { enabled: Enabled::Never, ..HugeKnobs::DEFAULT }, ..Tunables::default() }
}

fn subject(vm: &Vm<Plain>) -> AddressSpace<'_, Plain> {
    let space = vm.new_space().unwrap();
    space.mmap(AT, 3 * HUGE, RW, FIXED_PRIVATE).unwrap();
    space.mmap(FAR, HUGE, RW, FIXED_PRIVATE).unwrap();
    (0..3).for_each(|i| space.write(AT + i * HUGE, &[i as u8 + 1]).unwrap());
    space.write(FAR, &[4]).unwrap();
    space
}

/// Leaves `nr` frames free.
fn fill<'vm>(vm: &'vm Vm<Plain>, nr: u64) -> AddressSpace<'vm, Plain> {
    let other = vm.new_space().unwrap();
    other.mmap(FILL, 64 * HUGE, RW, FIXED_PRIVATE).unwrap();
    let mut pages = (FILL..).step_by(PAGE_SIZE as usize);
    while vm.nr_free_pages() > nr {
        other.handle_fault(pages.next().unwrap(), Access::Write).unwrap();
    }
    other
}

fn check_child(child: &AddressSpace<'_, Plain>) {
    let byte = |at: u64| {
        let mut byte = [0];
        child.read(at, &mut byte).unwrap();
        byte[0]
    };
    assert_eq!([0, 1, 2].map(|i| byte(AT + i * HUGE)), [1, 2, 3]);
    assert_eq!(byte(FAR), 4);
}

/// Whether the parent's pages are as before: a store needs no fault.
fn nothing_is_shared(space: &AddressSpace<'_, Plain>) -> bool {
    [AT, AT + HUGE, AT + 2 * HUGE, FAR].iter().all(|at| {
        let there = space.translate_at_rest(*at).unwrap();
        there.rights.contains(crate::addr::Rights::WRITE)
    })
}

/// With `nr_pins` pages pinned: for each number of free frames.
fn refusals_of(nr_pins: u64) -> Vec<(u64, Vec<u64>)> {
    let mut all = Vec::new();
    for nr_free in 0..24 {
        let mut vm = vm(2048, small());
        vm.reclaim.shrink = find_nothing;
        let space = subject(&vm);
        let pins: Vec<PinMut<'_, Plain>> =
            (0..nr_pins).map(|i| space.pin_page_mut(AT + i * HUGE, Term::Long).unwrap()).collect();
        let _other = fill(&vm, nr_free);
        ASKED_FOR.take();
        match space.fork() {
            Ok(child) => check_child(&child),
            Err(error) => {
                assert!(nothing_is_shared(&space), "{nr_free} free");
                assert_eq!(vm.nr_free_pages(), nr_free, "nothing is kept");
                if let ForkError::OutOfFrames(OutOfFrames::Frames(nr)) = error {
                    assert_eq!(ASKED_FOR.take(), [u64::from(nr)]);
                    all.push((nr_free, Vec::from([u64::from(nr)])));
                }
            }
        }
        drop(pins);
    }
    all
}

#[test]
fn a_fork_is_refused_before_it_begins() {
    for nr_pins in [0, 1, 3] {
        let all = refusals_of(nr_pins);
        let nr_needed = NR_TABLES + nr_pins;
        // Each time that there were frames for the space and its nodes, and too few tables.
        assert_eq!(all.len() as u64, nr_needed, "{nr_pins} pins: {all:?}");
        assert!(all.iter().all(|(_, asked)| *asked == [nr_needed]), "{nr_pins} pins: {all:?}");
        assert!(all[0].0 >= NR_OF_SPACE);
    }
}

/// The counts of tables are what they are when somebody else has changed them meanwhile.
#[test]
fn a_count_that_is_wrong_is_made_good() {
    for wrong in [-8, -5, -1, 1, 5, 100, 5000] {
        let vm = vm(2048, small());
        let space = subject(&vm);
        let _pin = space.pin_page_mut(AT, Term::Long).unwrap();
        // Of tables that are in no place.
        space.charge(Rss::Tables, wrong);
        let free = vm.nr_free_pages();
        let child = space.fork().unwrap();
        check_child(&child);
        drop(child);
        space.charge(Rss::Tables, -wrong);
        assert_eq!(vm.nr_free_pages(), free, "{wrong}");
        vm.check_in_test(&[&space], &mut std::vec![0; 2048]).unwrap();
    }
}

/// With many CPUs the parent's counts are not even read.
#[test]
fn a_fork_costs_no_more_for_more_cpus() {
    let asked = [(0, 32), (0, 33), (0, 512), (4096, 1), (4097, 1)];
    assert_eq!(asked.map(|(left_out, cpus)| super::is_summed(left_out, cpus)), [true, false, false, true, false]);
    for nr_cpus in [32, 33] {
        let vm = vm_of(nr_cpus, 4096, small()).unwrap();
        let space = subject(&vm);
        let free = vm.nr_free_pages();
        let child = space.fork().unwrap();
        check_child(&child);
        drop(child);
        assert_eq!(vm.nr_free_pages(), free, "{nr_cpus} CPUs");
        vm.check_in_test(&[&space], &mut std::vec![0; 4096]).unwrap();
    }
}

/// The steps after the reserve may wait for frames, and so begins with the end of it (I28).
#[test]
fn a_count_that_is_too_low_makes_nobody_wait() {
    for nr_free in 0..24 {
        let mut vm = vm(2048, small());
        vm.reclaim.shrink = find_nothing;
        let space = subject(&vm);
        space.charge(Rss::Tables, -1);
        let _other = fill(&vm, nr_free);
        // So that what is set aside may be all that is free.
        vm.steal_caches();
        match space.fork() {
            Ok(child) => check_child(&child),
            Err(ForkError::OutOfFrames(_)) => assert_eq!(vm.nr_free_pages(), nr_free, "nothing is kept"),
        }
    }
}

/// The last frame is in a frame cache of the CPU from which no table is taken.
#[test]
fn what_was_not_counted_is_looked_for_everywhere() {
    let mut nr_made = 0;
    for nr_free in 8..24 {
        let vm = vm(2048, Tunables { zero_batch: 1, ..small() });
        let space = subject(&vm);
        space.charge(Rss::Tables, -1);
        let _other = fill(&vm, nr_free);
        vm.steal_caches();
        let zeroed = vm.obtain(Fill::Zeroed).unwrap();
        vm.give_back(zeroed, Fill::Zeroed);
        let forked = space.fork();
        nr_made += u64::from(forked.is_ok());
    }
    assert_eq!(nr_made, 24 - NR_OF_SPACE - NR_TABLES - 1, "a frame for nodes, too");
}

/// Huge mappings need deposits and a twin; one with pins is split.
#[test]
fn huge_pages_are_counted_as_they_are_shared() {
    for (nr_pins, nr_tables) in [(0, 10), (1, 10), (3, 10)] {
        let vm = vm(4096, Tunables::default());
        let space = subject(&vm);
        assert_eq!(space.rss_pages().anon_huge, 4 * 512);
        let pins: Vec<PinMut<'_, Plain>> =
            (0..nr_pins).map(|i| space.pin_page_mut(AT + i * HUGE, Term::Long).unwrap()).collect();
        let nr = space.count_for_child(&space.write_lock(), super::Count::Exactly);
        assert_eq!(nr, nr_tables + nr_pins);
        let child = space.fork().unwrap();
        assert_eq!(child.rss_pages().tables, nr_tables, "{nr_pins} pins");
        drop(pins);
    }
}

/// Tables of objects are not the child's, and take no frames from it.
#[test]
fn what_is_left_out_is_not_counted() {
    let vm = vm(2048, small());
    let space = subject(&vm);
    space.mmap(2 * AT, 16 * HUGE, RW, SHARED).unwrap();
    (0..16).for_each(|i| space.write(2 * AT + i * HUGE, &[1]).unwrap());
    space.mmap(3 * AT, 16 * HUGE, RW, FIXED_PRIVATE).unwrap();
    (0..16).for_each(|i| space.write(3 * AT + i * HUGE, &[1]).unwrap());
    space.madvise(3 * AT, 16 * HUGE, Advice::DontFork).unwrap();
    let writer = space.write_lock();
    assert_eq!(space.count_for_child(&writer, super::Count::Tables), NR_TABLES);
    assert_eq!(space.count_for_child(&writer, super::Count::Exactly), NR_TABLES);
    drop(writer);
    check_child(&space.fork().unwrap());
}

/// One CPU's allocations fail from the k-th on until memory is reclaimed.
#[test]
fn a_fork_begins_again_after_reclaim() {
    fn find_frames(vm: &Vm<Plain>, _: u64, _: u64, _: Shortage) -> u64 {
        vm.fail_allocation(None);
        1
    }
    for nr_given in 0..24 {
        let mut vm = vm(2048, small());
        vm.reclaim.shrink = find_frames;
        let space = subject(&vm);
        let _pin = space.pin_page_mut(AT, Term::Long).unwrap();
        let free = vm.nr_free_pages();
        vm.fail_allocation(Some(nr_given));
        let child = space.fork().unwrap();
        vm.fail_allocation(None);
        check_child(&child);
        vm.check_in_test(&[&space, &child], &mut std::vec![0; 2048]).unwrap();
        drop(child);
        assert_eq!(vm.nr_free_pages(), free, "given {nr_given}");
    }
}
