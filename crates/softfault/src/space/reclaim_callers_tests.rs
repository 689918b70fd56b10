//! The callers that reclaim memory after a refusal, and those that react to memory that is low: what a
//! program or an embedder asked for, and no daemon.

use super::*;
use crate::account::Event;
use crate::compact::MigrateRefusal;
use crate::linux::{MlockFlags, Prot};
use crate::policy::collapse::CollapseRefusal;

/// Pages in a table of level 1 that has no twin, in a VMA that may have huge pages.
fn with_pages_to_collapse<'vm>(vm: &'vm Vm<Plain>) -> AddressSpace<'vm, Plain> {
    let space = vm.new_space().unwrap();
    space.mmap(AT, HUGE, RW, FIXED_PRIVATE).unwrap();
    (0..8).for_each(|page| space.write(AT + page * 4096, &[1]).unwrap());
    space.madvise(AT, HUGE, Advice::HugePage).unwrap();
    vm.steal_caches();
    space
}

fn advised() -> Tunables {
    Tunables { thp: HugeKnobs { enabled: Enabled::Madvise, ..HugeKnobs::DEFAULT }, ..Tunables::default() }
}

#[test]
fn a_collapse_that_a_program_asks_for_begins_again() {
    for nr_given in 0..3 {
        let mut vm = vm(4096, advised());
        vm.reclaim.shrink = note_the_shortage;
        let space = with_pages_to_collapse(&vm);
        ASKED_FOR.take();
        vm.fail_allocation(Some(nr_given));
        assert_eq!(space.madvise(AT, HUGE, Advice::Collapse), Ok(()));
        // The twin, and the huge frame.
        assert_eq!(ASKED_FOR.take().len(), usize::from(nr_given < 2), "given {nr_given}");
        assert_eq!((space.rss_pages().anon_huge, vm.event(Event::CollapseNoFrame)), (512, 0));
        vm.fail_allocation(None);
    }
}

#[test]
fn khugepaged_reclaims_nothing() {
    for nr_given in 0..2 {
        let mut vm = vm(4096, advised());
        vm.reclaim.shrink = note_the_shortage;
        let space = with_pages_to_collapse(&vm);
        ASKED_FOR.take();
        vm.frames.is_low.set(1);
        vm.fail_allocation(Some(nr_given));
        let scan = space.khugepaged_scan(AT, 512);
        assert_eq!((scan.nr_collapsed, scan.refused), (0, Some(CollapseRefusal::NoFrame)));
        vm.fail_allocation(None);
        assert_eq!(space.khugepaged_scan(AT, 512).nr_collapsed, 1);
        assert_eq!((ASKED_FOR.take(), vm.frames.is_low.get()), (Vec::new(), 1), "given {nr_given}");
        assert_eq!(vm.event(Event::CollapseNoFrame), 1);
    }
}

fn find_frames_and_unmap(vm: &Vm<Plain>, _nr_blocks: u64, _nr_frames: u64, _: Shortage) -> u64 {
    vm.fail_allocation(None);
    SPACE.get().unwrap().munmap(AT, HUGE).unwrap();
    1
}

/// Nothing is held meanwhile: another thread's munmap(2) goes on.
#[test]
fn a_collapse_that_begins_again_looks_at_the_mapping_anew() {
    let mut vm = vm(4096, advised());
    vm.reclaim.shrink = find_frames_and_unmap;
    let vm: &'static Vm<Plain> = Box::leak(Box::new(vm));
    let space: &AddressSpace<'_, _> = Box::leak(Box::new(with_pages_to_collapse(vm)));
    SPACE.set(Some(space));
    vm.fail_allocation(Some(0));
    assert_eq!(space.collapse(AT), Err(CollapseRefusal::OutsideVma));
    assert_eq!(space.rss_pages().anon, 0);
}

#[test]
fn a_frame_that_has_to_move_is_moved_after_reclaim() {
    let mut vm = vm(4096, advised());
    vm.reclaim.shrink = note_the_shortage;
    let space = with_pages_to_collapse(&vm);
    let from = space.translate_at_rest(AT).unwrap().pfn;
    ASKED_FOR.take();
    vm.fail_allocation(Some(0));
    let to = vm.migrate_frame(from).unwrap();
    assert_eq!(space.translate_at_rest(AT).unwrap().pfn, to);
    assert_eq!((ASKED_FOR.take().len(), vm.event(Event::MigrateRefusedNoTarget)), (1, 0));
}

/// Another call that needs the page less than this one may take it away meanwhile.
#[test]
fn a_frame_that_is_freed_during_the_reclaim_is_not_moved() {
    let mut vm = vm(4096, advised());
    vm.reclaim.shrink = find_frames_and_unmap;
    let vm: &'static Vm<Plain> = Box::leak(Box::new(vm));
    let space: &AddressSpace<'_, _> = Box::leak(Box::new(with_pages_to_collapse(vm)));
    SPACE.set(Some(space));
    let from = space.translate_at_rest(AT).unwrap().pfn;
    vm.fail_allocation(Some(0));
    assert_eq!(vm.migrate_frame(from), Err(MigrateRefusal::NotInUse));
}

/// Fewer frames are free than the watermark `high`, whatever is given back: it is more than
/// all of memory.
fn always_short(nr_frames: u64) -> Vm<Plain> {
    let min_free_kbytes = Some(nr_frames * 4 * 45 / 100);
    let vm = vm(nr_frames, Tunables { min_free_kbytes, watermark_scale_factor: 3000, ..advised() });
    assert!(vm.watermarks().high_pages > nr_frames);
    vm
}

/// No frame is out of sight, and nobody has a turn or a writer lock.
fn find_nothing_held(vm: &Vm<Plain>, _nr_blocks: u64, nr_frames: u64, _: Shortage) -> u64 {
    let nr_holders: u64 = vm.cpus.iter().map(|cpu| cpu.held.get() & 0xffff).sum();
    assert_eq!((nr_holders, vm.frames.is_last_resort_active()), (0, false), "I28");
    ASKED_FOR.with_borrow_mut(|all| all.push(nr_frames));
    0
}

/// Checks that `call` reclaims memory once, with nothing held.
fn reacts(vm: &Vm<Plain>, what: &str, call: &mut dyn FnMut()) {
    ASKED_FOR.take();
    vm.frames.is_low.set(1);
    call();
    assert_eq!((vm.frames.is_low.get(), ASKED_FOR.take().len()), (0, 1), "{what}");
}

#[test]
fn a_fault_that_copies_reacts_to_low_memory() {
    let mut vm = always_short(4096);
    vm.reclaim.shrink = find_nothing_held;
    let space = vm.new_space().unwrap();
    space.mmap(AT, 4096, RW, FIXED_PRIVATE).unwrap();
    space.write(AT, &[1]).unwrap();
    let child = space.fork().unwrap();
    reacts(&vm, "a write to a shared page", &mut || child.write(AT, &[2]).unwrap());
}

#[test]
fn operations_that_allocate_react_to_low_memory() {
    let mut vm = always_short(8192);
    vm.reclaim.shrink = find_nothing_held;
    let vm = &vm;
    let space = with_pages_to_collapse(vm);
    let object = vm.new_shared_object(1 << 20).unwrap();
    let at = |i: u64| 2 * AT + i * HUGE;
    let reacts = |what: &str, call: &mut dyn FnMut()| reacts(vm, what, call);
    reacts("new_space", &mut || _ = vm.new_space().unwrap());
    reacts("new_shared_object", &mut || _ = vm.new_shared_object(1).unwrap());
    reacts("write to an object", &mut || object.write(0, &[1]).unwrap());
    reacts("mmap", &mut || _ = space.mmap(at(0), HUGE, RW, FIXED_PRIVATE).unwrap());
    reacts("brk", &mut || _ = space.brk(at(9)));
    reacts("mprotect", &mut || space.mprotect(at(0), 4096, Prot::READ).unwrap());
    reacts("mlock", &mut || space.mlock(at(0), 4096, MlockFlags::ONFAULT).unwrap());
    reacts("munlock", &mut || space.munlock(at(0), 4096).unwrap());
    reacts("guards", &mut || space.madvise(at(0), 4096, Advice::GuardInstall).unwrap());
    reacts("mremap", &mut || {
        _ = space.mremap(at(0), 8192, 8192, MremapFlags::MAYMOVE | MremapFlags::FIXED, at(3)).unwrap();
    });
    reacts("munmap", &mut || space.munmap(at(3), 4096).unwrap());
    reacts("fork", &mut || drop(space.fork().unwrap()));
    reacts("migrate_frame", &mut || {
        _ = vm.migrate_frame(space.translate_at_rest(AT + 4096).unwrap().pfn).unwrap();
    });
    reacts("collapse", &mut || space.madvise(AT, HUGE, Advice::Collapse).unwrap());
}
