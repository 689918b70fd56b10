//! Failed memory: accesses to the page are refused by name, and each operation handles its entry.
#![deny(unsafe_code)]

mod common;

use common::huge::HUGE;
use common::objects::{bytes, content, faulted_frame, map, orders, whole};
use common::storage::storage;
use common::{
    BASE, DONTFORK, DONTNEED, FREE, GUARD_INSTALL, MAYMOVE, MREMAP_FIXED, NONE, PAGE, POPULATE_READ, POPULATE_WRITE,
    PRIVATE, RW, Setup, Space, World, check, frame_of,
};
use softfault::addr::Access;
use softfault::errno::Errno;
use softfault::policy::collapse::CollapseRefusal;
use softfault::policy::folio::FolioOrders;
use softfault::{
    AddressSpace, Advice, CpuId, Event, FaultDone, FaultError, MigrateRefusal, MlockFlags, MsyncError, MsyncFlags,
    ObjectWriteError, Pfn, PinError, PoisonRefusal, Term, Tunables, Vm, WriteBackError,
};
use softfault_host::{Hosted, HostedConfig};
use std::thread;

const POISONED: Result<FaultDone, FaultError> = Err(FaultError::Poisoned);
const AWAY: u64 = BASE + (1 << 32);

/// Three written pages, of which the middle one fails. The failed frame does not come back.
fn with_poison(test: impl Fn(&World<'_>)) {
    let vm = Setup::PLAIN.vm(2, 32 << 20);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let before = vm.vmstat().nr_free_pages;
    {
        let space = vm.new_space().unwrap();
        let w = World { vm: &vm, cpu: &cpu, space: &space };
        w.map(BASE, 3, RW);
        (0..3).for_each(|page| space.write(BASE + page * PAGE, &[7; PAGE as usize]).unwrap());
        let pfn = frame_of(&space, BASE + PAGE);
        assert_eq!(vm.poison_frame(pfn), Ok(1));
        assert_eq!(
            vm.poison_frame(pfn),
            Err(PoisonRefusal::Stays(MigrateRefusal::Reserved)),
            "it is out of use already"
        );
        check(&vm, &[&space]);
        test(&w);
        check(&vm, &[&space]);
    }
    check(&vm, &[]);
    let nr_poisoned = vm.event(Event::FramesPoisoned);
    assert_eq!(vm.vmstat().nr_free_pages, before - nr_poisoned, "such a frame is never given out again");
}

fn is_poisoned(space: &Space<'_>, at: u64) -> bool {
    [Access::Read, Access::Write].iter().all(|access| space.handle_fault(at, *access) == POISONED)
}

fn is_fresh(space: &Space<'_>, at: u64) -> bool {
    let mut bytes = [1; PAGE as usize];
    space.read(at, &mut bytes).is_ok() && bytes == [0; PAGE as usize]
}

#[test]
fn accesses_to_a_failed_page_are_refused() {
    with_poison(|w| {
        let at = BASE + PAGE;
        assert!(is_poisoned(w.space, at));
        assert_eq!(w.rss().anon, 2);
        let read = w.space.read(BASE, &mut [0; 3 * PAGE as usize]).unwrap_err();
        assert_eq!((read.at, read.fault, read.errno()), (at, FaultError::Poisoned, Errno::EFAULT));
        let forced = w.space.write_forced(at, &[1]).unwrap_err();
        assert_eq!((forced.fault, forced.errno()), (FaultError::Poisoned, Errno::EFAULT));
        for pinned in [w.space.pin_page(at, Term::Short).err(), w.space.pin_page_mut(at, Term::Long).err()] {
            let error = pinned.unwrap();
            assert_eq!((error, error.errno()), (PinError::Fault(FaultError::Poisoned), Errno::EFAULT));
        }
        let running = w.cpu.enter(w.space).unwrap();
        let mut byte = [0];
        assert_eq!(running.load(at, &mut byte).unwrap_err().cause, FaultError::Poisoned);
        running.load(BASE, &mut byte).unwrap();
        assert_eq!(byte, [7], "its neighbours are as they were");
        drop(running);
        assert_eq!(w.vm.event(Event::RefusedPoisoned), 7);
        for advice in [POPULATE_READ, POPULATE_WRITE] {
            let refused = w.space.madvise(BASE, 3 * PAGE, advice).unwrap_err();
            assert_eq!(refused.errno(), Errno::EHWPOISON);
        }
        assert_eq!(w.space.mlock(BASE, 3 * PAGE, MlockFlags::empty()).unwrap_err().errno(), Errno::ENOMEM);
        w.space.munlock(BASE, 3 * PAGE).unwrap();
        let mut resident = Vec::new();
        w.space.mincore(BASE, 3 * PAGE, &mut |nr, here| resident.push((nr, here))).unwrap();
        assert_eq!(resident, [(3, true)], "as Linux says");
    });
}

#[test]
fn calls_on_the_mapping_leave_it() {
    with_poison(|w| {
        let at = BASE + PAGE;
        w.space.mprotect(BASE, 3 * PAGE, NONE).unwrap();
        w.space.mprotect(BASE, 3 * PAGE, RW).unwrap();
        assert!(is_poisoned(w.space, at));
        w.space.mremap(BASE, 3 * PAGE, 3 * PAGE, MAYMOVE | MREMAP_FIXED, AWAY).unwrap();
        assert!(is_poisoned(w.space, AWAY + PAGE));
        assert_eq!(w.space.handle_fault(at, Access::Read), Err(FaultError::NotMapped));
        let child = w.space.fork().unwrap();
        assert!(is_poisoned(&child, AWAY + PAGE) && is_poisoned(w.space, AWAY + PAGE));
        check(w.vm, &[w.space, &child]);
        child.munmap(AWAY + PAGE, PAGE).unwrap();
        assert!(is_poisoned(w.space, AWAY + PAGE), "each has its own");
        drop(child);
        w.space.madvise(AWAY, 3 * PAGE, DONTFORK).unwrap();
        let child = w.space.fork().unwrap();
        assert_eq!(child.handle_fault(AWAY + PAGE, Access::Read), Err(FaultError::NotMapped));
    });
}

#[test]
fn a_page_that_goes_takes_it_along() {
    let discards: [&dyn Fn(&Space<'_>); 5] = [
        &|space| space.madvise(BASE, 3 * PAGE, DONTNEED).unwrap(),
        // Linux drops it here, too.
        &|space| space.madvise(BASE, 3 * PAGE, FREE).unwrap(),
        &|space| {
            space.madvise(BASE, 3 * PAGE, GUARD_INSTALL).unwrap();
            assert_eq!(space.handle_fault(BASE + PAGE, Access::Read), Err(FaultError::Guard));
            space.madvise(BASE, 3 * PAGE, Advice::GuardRemove).unwrap();
        },
        &|space| {
            space.munmap(BASE, 3 * PAGE).unwrap();
            space.mmap(BASE, 3 * PAGE, RW, PRIVATE | common::FIXED).unwrap();
        },
        &|space| _ = space.mmap(BASE, 3 * PAGE, RW, PRIVATE | common::FIXED).unwrap(),
    ];
    for discard in discards {
        with_poison(|w| {
            discard(w.space);
            assert!(is_fresh(w.space, BASE + PAGE));
        });
    }
}

/// A smaller size takes private copies that failed, too: a larger one shows the object.
#[test]
fn a_smaller_size_takes_copies_that_failed() {
    with_poison(|w| {
        let object = w.vm.new_shared_object(2 * PAGE).unwrap();
        w.space.mmap_object(AWAY, 2 * PAGE, RW, PRIVATE | common::FIXED, whole(&object)).unwrap();
        for at in [AWAY, AWAY + PAGE] {
            w.space.write(at, &[7]).unwrap();
            assert_eq!(w.vm.poison_frame(frame_of(w.space, at)), Ok(1));
        }
        let child = w.space.fork().unwrap();
        let spaces = [w.space, &child];
        object.set_size_bytes(PAGE);
        let beyond = |space: &&Space<'_>| space.handle_fault(AWAY + PAGE, Access::Read);
        assert_eq!(spaces.each_ref().map(beyond), [Err(FaultError::BeyondObject); 2]);
        object.set_size_bytes(2 * PAGE);
        assert!(spaces.iter().all(|space| is_poisoned(space, AWAY) && is_fresh(space, AWAY + PAGE)));
        check(w.vm, &spaces);
    });
}

/// All who map a page are told, wherever they have moved it.
#[test]
fn all_entries_of_a_shared_frame_are_poisoned() {
    with_poison(|w| {
        let child = w.space.fork().unwrap();
        let grandchild = child.fork().unwrap();
        grandchild.mremap(BASE, 3 * PAGE, 3 * PAGE, MAYMOVE | MREMAP_FIXED, AWAY).unwrap();
        // This one has a copy of its own.
        child.write(BASE + 2 * PAGE, &[8]).unwrap();
        assert_eq!(w.vm.poison_frame(frame_of(w.space, BASE + 2 * PAGE)), Ok(2));
        assert!(is_poisoned(w.space, BASE + 2 * PAGE) && is_poisoned(&grandchild, AWAY + 2 * PAGE));
        assert!(!is_poisoned(&child, BASE + 2 * PAGE));
        check(w.vm, &[w.space, &child, &grandchild]);
        // A pinned page stays, no matter which spaces shared it before: the holder of the pin has its own.
        let pfn = frame_of(w.space, BASE);
        let pin = w.space.pin_page(BASE, Term::Short).unwrap();
        assert_eq!(w.vm.poison_frame(pin.pfn()), Err(PoisonRefusal::Stays(MigrateRefusal::Pinned)));
        assert_eq!(w.vm.poison_frame(pfn), Ok(2));
        assert!(!is_poisoned(w.space, BASE) && is_poisoned(&child, BASE) && is_poisoned(&grandchild, AWAY));
    });
}

#[test]
fn frames_that_stay_in_use_are_refused_by_name() {
    let vm = Setup::PLAIN.vm(1, 32 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    let refused = |pfn| vm.poison_frame(pfn).unwrap_err();
    let small = vm.new_shared_object(PAGE).unwrap();
    map(&space, AWAY + 4 * PAGE, 1, &small, 0);
    let pin = space.pin_page_mut(AWAY + 4 * PAGE, Term::Short).unwrap();
    assert_eq!(refused(pin.pfn()), PoisonRefusal::Stays(MigrateRefusal::Pinned));
    drop(pin);
    let private = space.mmap(0, PAGE, RW, PRIVATE).unwrap();
    let pin = space.pin_page_mut(private, Term::Long).unwrap();
    assert_eq!(refused(pin.pfn()), PoisonRefusal::Stays(MigrateRefusal::Pinned));
    assert_eq!(refused(space.tag().root), PoisonRefusal::Stays(MigrateRefusal::Table));
    assert_eq!(refused(Pfn(u32::MAX)), PoisonRefusal::Stays(MigrateRefusal::Reserved));
    let free = Pfn((0..vm.nr_frames() as u32).rev().find(|pfn| vm.poison_frame(Pfn(*pfn)).is_err()).unwrap());
    assert_eq!(refused(free), PoisonRefusal::Stays(MigrateRefusal::NotInUse));
    check(&vm, &[&space]);
    assert_eq!(space.page_state(private).map(|state| state.order.0), Some(0), "nothing has changed");
}

#[test]
fn no_huge_page_is_made_over_it() {
    let vm = Vm::new(Hosted::new(HostedConfig::default().with_arena_bytes(32 << 20)).unwrap(), Tunables::default());
    let vm: Vm<Hosted> = vm.unwrap();
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space: AddressSpace<'_, Hosted> = vm.new_space().unwrap();
    let at = 0x20_0000_0000;
    space.mmap(at, HUGE, RW, PRIVATE | common::FIXED).unwrap();
    space.madvise(at, HUGE, Advice::NoHugePage).unwrap();
    space.write(at + 5 * PAGE, &[1]).unwrap();
    vm.poison_frame(frame_of(&space, at + 5 * PAGE)).unwrap();
    space.madvise(at, HUGE, Advice::HugePage).unwrap();
    assert_eq!(space.collapse(at), Err(CollapseRefusal::Poisoned));
    assert_eq!(vm.event(Event::CollapsePoisoned), 1);
    assert_eq!(space.madvise(at, HUGE, Advice::Collapse).unwrap_err().errno(), Errno::EINVAL);
    assert!(is_poisoned(&space, at + 5 * PAGE));
}

/// Programs write while their memory fails: each page is as it was written, or says so.
/// A CPU that has a translation of the page does not go on with the frame.
#[test]
fn translations_of_a_failed_page_go() {
    for setup in Setup::all() {
        let vm = setup.vm(1, 16 << 20);
        let cpu = vm.machine().bind(CpuId(0)).unwrap();
        let space = vm.new_space().unwrap();
        space.mmap(BASE, PAGE, RW, PRIVATE | common::FIXED).unwrap();
        let running = cpu.enter(&space).unwrap();
        running.store(BASE, &[7]).unwrap();
        assert_eq!(vm.poison_frame(frame_of(&space, BASE)), Ok(1));
        assert_eq!(running.load(BASE, &mut [0]).unwrap_err().cause, FaultError::Poisoned);
        assert_eq!(running.store(BASE, &[8]).unwrap_err().cause, FaultError::Poisoned);
    }
}

#[test]
fn memory_fails_under_programs() {
    let vm = Setup::PLAIN.vm(2, 32 << 20);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    const NR_PAGES: u64 = 32;
    space.mmap(BASE, NR_PAGES * PAGE, RW, PRIVATE | common::FIXED).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let _cpu = vm.machine().bind(CpuId(1)).unwrap();
            for page in (0..NR_PAGES).cycle().take(2_000) {
                if let Some(there) = space.translate_at_rest(BASE + page * PAGE).filter(|_| page % 4 == 0) {
                    _ = vm.poison_frame(there.pfn);
                }
            }
        });
        let running = cpu.enter(&space).unwrap();
        for round in 1..200_u64 {
            for page in 0..NR_PAGES {
                let at = BASE + page * PAGE;
                let mut bytes = [0; 8];
                let stored = running.store(at, &round.to_le_bytes()).and_then(|()| running.load(at, &mut bytes));
                match stored {
                    Ok(()) => assert_eq!(u64::from_le_bytes(bytes), round),
                    Err(trap) => {
                        assert_eq!((trap.cause, page % 4), (FaultError::Poisoned, 0));
                        space.madvise(at, PAGE, DONTNEED).unwrap();
                    }
                }
            }
        }
    });
    check(&vm, &[&space]);
    assert_eq!(vm.machine().violations(), (0, None));
}

/// All who map the page are told, and so are those who read and write the object, until the page
/// has left it.
#[test]
fn a_page_of_an_object_fails() {
    let vm = Setup::PLAIN.vm(1, 32 << 20);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let before = vm.vmstat().nr_free_pages;
    {
        let (space, other) = (vm.new_space().unwrap(), vm.new_space().unwrap());
        let object = vm.new_shared_object(4 * PAGE).unwrap();
        map(&space, BASE, 4, &object, 0);
        map(&other, AWAY, 4, &object, 0);
        (0..4).for_each(|page| object.write(page * PAGE, &[7; PAGE as usize]).unwrap());
        let at = |page: u64| [(&space, BASE + page * PAGE), (&other, AWAY + page * PAGE)];
        (0..4).for_each(|page| at(page).iter().for_each(|(space, at)| space.write(*at, &[page as u8]).unwrap()));
        for page in [1, 3] {
            let pfn = frame_of(&space, BASE + page * PAGE);
            assert_eq!(vm.poison_frame(pfn), Ok(0));
            assert_eq!(vm.poison_frame(pfn), Err(PoisonRefusal::Stays(MigrateRefusal::Reserved)));
            check(&vm, &[&space, &other]);
        }
        assert!(at(1).iter().all(|(space, at)| is_poisoned(space, *at)));
        assert!(at(2).iter().all(|(space, at)| space.handle_fault(*at, Access::Write).is_ok()));
        assert_eq!(space.pin_page(BASE + PAGE, Term::Short).err(), Some(PinError::Fault(FaultError::Poisoned)));
        let mut all = [0; 4 * PAGE as usize];
        assert_eq!((object.read(0, &mut all), object.read(PAGE, &mut all)), (PAGE as usize, 0));
        assert_eq!(all[..2], [0, 7]);
        assert_eq!(object.write(PAGE - 1, &[9; 2]), Err(ObjectWriteError::Poisoned));
        assert_eq!(content::<1>(&object, PAGE - 1), [7], "all or nothing");
        assert_eq!([0, 2].map(|first| object.next_poisoned(first..4)), [Some(1), Some(3)]);
        assert_eq!((object.nr_resident_pages(), object.next_resident(1..4)), (2, Some(1)));
        object.zero(PAGE + 1..PAGE + 2).unwrap();
        assert!(is_poisoned(&space, BASE + PAGE), "a part of it is as bad as the rest");
        // A hole, and a smaller size.
        object.discard(1..2);
        object.set_size_bytes(3 * PAGE);
        object.set_size_bytes(4 * PAGE);
        assert_eq!(object.next_poisoned(0..4), None);
        assert!([1, 3].iter().all(|page| at(*page).iter().all(|(space, at)| is_fresh(space, *at))));
        check(&vm, &[&space, &other]);
        // An object that ends with such a page.
        assert_eq!(vm.poison_frame(frame_of(&space, BASE)), Ok(0));
    }
    check(&vm, &[]);
    assert_eq!(vm.event(Event::FramesPoisoned), 3);
    assert_eq!(vm.vmstat().nr_free_pages, before - 3);
}

/// The memory of a page fails. If it was dirty its stores are lost, and one call that waits for the file is told. A clean page is
/// read again.
#[test]
fn a_dirty_page_that_fails_is_an_error_of_the_file() {
    with_poison(|w| {
        for sizes in [FolioOrders::BASE, orders(0, 3), orders(2, 2)] {
            let (storage, object) = storage(w, 16 * PAGE, sizes);
            map(w.space, BASE, 16, &object, 0);
            let sync = || w.space.msync(BASE, 16 * PAGE, MsyncFlags::SYNC);
            let fail = || _ = w.vm.poison_frame(faulted_frame(w.space, BASE + PAGE)).unwrap();
            let dirty: [&dyn Fn(); 3] =
                [&|| w.space.write(BASE + PAGE, &[7]).unwrap(), &|| object.write(PAGE, &[7]).unwrap(), &|| {
                    w.space.pin_page_mut(BASE + PAGE, Term::Short).unwrap().write(0, &[7])
                }];
            for store in dirty {
                fail();
                check(w.vm, &[w.space]);
                assert_eq!((object.next_poisoned(0..16), sync(), object.write_back(0..16)), (None, Ok(()), Ok(())));
                assert_eq!((bytes(w.space, BASE + PAGE), content(&object, PAGE)), ([1], [1]), "it is read again");
                store();
                fail();
                check(w.vm, &[w.space]);
                assert!(object.next_poisoned(1..2) == Some(1) && object.read(PAGE, &mut [0]) == 0);
                assert_eq!((sync(), sync(), object.write_back(0..16)), (Err(MsyncError::NotWritten), Ok(()), Ok(())));
                object.discard(0..16);
                assert_eq!(bytes(w.space, BASE + PAGE), [1]);
                store();
                fail();
                assert_eq!((object.write_back(0..16), sync()), (Err(WriteBackError::NotWritten), Ok(())));
                object.discard(0..16);
            }
            assert_eq!(storage.byte(PAGE), 1);
            w.space.munmap(BASE, 16 * PAGE).unwrap();
        }
    });
}
