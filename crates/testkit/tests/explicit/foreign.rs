//! Objects of foreign frames: programs read them, copies are private, and nothing takes or changes a frame.

use super::common::objects::{bytes, content, whole};
use super::common::*;
use softfault::policy::compact::CompactBudget;
use softfault::{
    Access, AddMemoryRefusal, CpuId, Errno, Event, EvictError, FaultDone, FaultError, FrameRange, InstallError,
    MapFlags, MigrateRefusal, NewForeignError, ObjectWriteError, Pfn, PinError, RemoveMemoryRefusal, SharedObject,
    SwapRefusal, Term, Tunables, Vm,
};
use softfault_host::HostedConfig;

const SECTION: u64 = 32_768;
const IMAGE: FrameRange = FrameRange { first: Pfn(SECTION as u32), nr_frames: SECTION };
const AT: u64 = BASE + (1 << 30);

/// In a machine beside which there is an image: byte i of its page p is p + 1.
fn with_image(test: impl Fn(&Vm<Hosted>, &Space<'_>)) {
    let config = HostedConfig::default().with_arena_bytes(16 << 20).with_spare_bytes((384 - 16) << 20);
    let vm = Vm::new(Hosted::new(config.with_nr_cpus(1)).unwrap(), Tunables::default()).unwrap();
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    vm.add_foreign_memory(IMAGE).unwrap();
    (0..64).for_each(|page| write(&vm, page, page as u8 + 1));
    let space = vm.new_space().unwrap();
    test(&vm, &space);
    drop(space);
    check(&vm, &[]);
    vm.remove_foreign_memory(IMAGE).unwrap();
}

fn write(vm: &Vm<Hosted>, page: u64, byte: u8) {
    vm.machine().write_foreign(Pfn((SECTION + page) as u32), &[byte; PAGE as usize]);
}

fn image(vm: &Vm<Hosted>, first: u64, nr_frames: u64) -> SharedObject<'_, Hosted> {
    vm.new_foreign_object(FrameRange { first: Pfn((SECTION + first) as u32), nr_frames }).unwrap()
}

fn map(space: &Space<'_>, at: u64, object: &SharedObject<'_, Hosted>, flags: MapFlags) {
    let prot = if flags == MapFlags::SHARED { READ } else { RW };
    space.mmap_object(at, 32 * PAGE, prot, flags | FIXED, whole(object)).unwrap();
}

/// Reads cost no frame, and stores are private: a fork has both.
#[test]
fn programs_read_and_copy() {
    with_image(|vm, space| {
        let object = image(vm, 0, 32);
        map(space, BASE, &object, MapFlags::SHARED);
        map(space, AT, &object, MapFlags::PRIVATE);
        let _ = [BASE, AT].map(|at| space.handle_fault(at + 9 * PAGE, Access::Read).unwrap());
        let nr_free = vm.vmstat().nr_free_pages;
        assert_eq!(space.handle_fault(BASE + 16 * PAGE, Access::Read), Ok(FaultDone::Shared));
        assert!(space.rss_pages().shmem >= 32 + 16, "neighbours, too");
        assert_eq!([0, 9, 31].map(|page| bytes(space, BASE + page * PAGE)), [[1], [10], [32]]);
        assert_eq!([0, 9, 31].map(|page| bytes(space, AT + page * PAGE)), [[1], [10], [32]]);
        assert_eq!(vm.vmstat().nr_free_pages, nr_free);
        // With an entry, and without.
        space.write(AT + 9 * PAGE, &[0xaa]).unwrap();
        space.madvise(AT + 20 * PAGE, PAGE, DONTNEED).unwrap();
        space.write(AT + 20 * PAGE, &[0xbb]).unwrap();
        assert_eq!(vm.vmstat().nr_free_pages, nr_free - 2);
        let child = space.fork().unwrap();
        assert_eq!([9, 10, 20].map(|page| bytes(&child, AT + page * PAGE)), [[0xaa], [11], [0xbb]]);
        write(vm, 10, 77);
        assert_eq!((bytes(space, BASE + 9 * PAGE), bytes(&child, BASE + 10 * PAGE)), ([10], [77]));
        check(vm, &[space, &child]);
        drop(child);
        space.munmap(AT, 32 * PAGE).unwrap();
        check(vm, &[space]);
    });
}

/// Calls that would write, move or take a foreign frame are refused by name.
#[test]
fn what_changes_frames_is_refused() {
    with_image(|vm, space| {
        let object = image(vm, 4, 32);
        let shared = space.mmap_object(BASE, PAGE, RW, MapFlags::SHARED, whole(&object));
        assert_eq!(shared.unwrap_err().errno(), Errno::EACCES);
        map(space, BASE, &object, MapFlags::SHARED);
        assert_eq!(space.mprotect(BASE, PAGE, RW).unwrap_err().errno(), Errno::EACCES);
        assert_eq!(space.handle_fault(BASE, Access::Read), Ok(FaultDone::Shared));
        assert_eq!(space.handle_fault(BASE, Access::Write), Err(FaultError::NoRights));
        let pfn = frame_of(space, BASE);
        assert_eq!(pfn, Pfn(SECTION as u32 + 4));
        assert_eq!(vm.migrate_frame(pfn), Err(MigrateRefusal::Reserved));
        assert_eq!(vm.swap_out_frame(pfn), Err(SwapRefusal::NoArea));
        assert!(vm.poison_frame(pfn).is_err() && vm.remove_memory(IMAGE) == Err(RemoveMemoryRefusal::InUse));
        assert_eq!(object.write(0, &[1]), Err(ObjectWriteError::Foreign));
        assert_eq!(object.zero(0..1), Err(ObjectWriteError::Foreign));
        assert_eq!(object.begin_install(0..1), Err(InstallError::NotExplicit));
        assert_eq!(object.begin_evict(0), Err(EvictError::NotExplicit));
        object.discard(0..4);
        assert_eq!((content(&object, 0), bytes(space, BASE)), ([5], [5]));
        _ = vm.compact_step(&CompactBudget::BACKGROUND);
        let mut resident = Vec::new();
        space.mincore(BASE, 8 * PAGE, &mut |nr, is| resident.push((nr, is))).unwrap();
        assert_eq!(resident.iter().filter(|(_, is)| *is).map(|(nr, _)| nr).sum::<u64>(), 8);
        check(vm, &[space]);
    });
}

/// A pin of a private mapping is a copy's; one of a shared mapping keeps the frames with the Vm, for any term.
#[test]
fn pins_copy_or_are_counted() {
    with_image(|vm, space| {
        let object = image(vm, 0, 32);
        map(space, BASE, &object, MapFlags::SHARED);
        map(space, AT, &object, MapFlags::PRIVATE);
        let copy = space.pin_page(AT, Term::Long).unwrap();
        assert!(frame_of(space, AT).0 < SECTION as u32);
        drop(copy);
        assert_eq!(space.pin_page_mut(BASE, Term::Short).map(drop), Err(PinError::Fault(FaultError::NoRights)));
        for term in [Term::Short, Term::Long] {
            let pin = space.pin_page(BASE + PAGE, term).unwrap();
            assert_eq!(frame_of(space, BASE + PAGE), Pfn(SECTION as u32 + 1));
            check(vm, &[space]);
            drop(pin);
        }
    });
}

/// The frames go back to their owner when no object names them, no entry and no pin.
#[test]
fn removal_while_used_is_refused() {
    with_image(|vm, space| {
        assert_eq!(vm.add_foreign_memory(IMAGE), Err(AddMemoryRefusal::AlreadyThere));
        assert_eq!(vm.add_memory(IMAGE), Err(AddMemoryRefusal::AlreadyThere));
        let (object, other) = (image(vm, 0, 32), image(vm, 8, 4));
        map(space, BASE, &object, MapFlags::SHARED);
        drop(object);
        let in_use = Err(RemoveMemoryRefusal::InUse);
        assert_eq!((bytes(space, BASE), vm.remove_foreign_memory(IMAGE)), ([1], in_use));
        let pin = space.pin_page(BASE + 8 * PAGE, Term::Short).unwrap();
        space.munmap(BASE, 32 * PAGE).unwrap();
        assert_eq!(content(&other, 0), [9]);
        drop(other);
        assert_eq!(vm.remove_foreign_memory(IMAGE), in_use, "pinned");
        drop(pin);
        let named = image(vm, 8, 4);
        assert_eq!(vm.remove_foreign_memory(IMAGE), in_use, "no entry names it, but an object");
        drop(named);
        assert_eq!(vm.remove_foreign_memory(IMAGE), Ok(()));
        assert_eq!(vm.new_foreign_object(IMAGE).map(drop), Err(NewForeignError::NotForeign));
        assert_eq!(vm.remove_foreign_memory(IMAGE), Err(RemoveMemoryRefusal::NotThere));
        // It may become memory, and somebody else's again.
        vm.add_memory(IMAGE).unwrap();
        assert_eq!(vm.new_foreign_object(IMAGE).map(drop), Err(NewForeignError::NotForeign));
        check(vm, &[space]);
        vm.remove_memory(IMAGE).unwrap();
        vm.add_foreign_memory(IMAGE).unwrap();
    });
}

/// A smaller size takes pages from mappings, copies included; a larger one brings them back, and no more.
#[test]
fn a_smaller_size_takes_pages_away() {
    with_image(|vm, space| {
        let object = image(vm, 0, 32);
        map(space, BASE, &object, MapFlags::SHARED);
        map(space, AT, &object, MapFlags::PRIVATE);
        space.write(AT + 9 * PAGE, &[0xaa]).unwrap();
        assert_eq!((bytes(space, BASE + 9 * PAGE), bytes(space, BASE + 7 * PAGE)), ([10], [8]));
        object.set_size_bytes(8 * PAGE);
        let beyond = Err(FaultError::BeyondObject);
        assert_eq!([BASE, AT].map(|at| space.handle_fault(at + 9 * PAGE, Access::Read)), [beyond; 2]);
        assert_eq!((bytes(space, BASE + 7 * PAGE), object.read(8 * PAGE, &mut [0])), ([8], 0));
        check(vm, &[space]);
        object.set_size_bytes(u64::MAX);
        assert_eq!((object.size_bytes(), bytes(space, AT + 9 * PAGE)), (32 * PAGE, [10]));
    });
}

#[test]
fn the_kth_allocation_fails() {
    with_image(|vm, space| {
        let nothing = FrameRange { first: Pfn(SECTION as u32), nr_frames: 0 };
        let wild = FrameRange { first: Pfn(u32::MAX), nr_frames: u64::MAX };
        let half = FrameRange { first: Pfn(0), nr_frames: 2 * SECTION };
        for range in [nothing, wild, half] {
            assert_eq!(vm.new_foreign_object(range).map(drop), Err(NewForeignError::NotForeign));
        }
        let fails_at = |k| {
            vm.fail_allocation(Some(k));
            let made = vm.new_foreign_object(IMAGE);
            vm.fail_allocation(None);
            assert!(matches!(made, Ok(_) | Err(NewForeignError::OutOfFrames(_))));
            made.is_err()
        };
        assert!((1..20).contains(&(0..).take_while(|k| fails_at(*k)).count()));
        let nr_refused = vm.event(Event::RemoveMemoryInUse);
        vm.remove_foreign_memory(IMAGE).unwrap();
        assert_eq!(vm.event(Event::RemoveMemoryInUse), nr_refused, "nothing names them");
        let other = FrameRange { first: Pfn(2 * SECTION as u32), nr_frames: SECTION };
        let fails_at = |k| {
            vm.fail_allocation(Some(k));
            let added = vm.add_foreign_memory(other);
            vm.fail_allocation(None);
            check(vm, &[space]);
            assert!(matches!(added, Ok(()) | Err(AddMemoryRefusal::NoMetadata)));
            added.is_err()
        };
        assert!((1..20).contains(&(0..).take_while(|k| fails_at(*k)).count()));
        vm.add_foreign_memory(IMAGE).unwrap();
    });
}
