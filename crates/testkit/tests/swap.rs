//! Pages that are swapped out: programs notice nothing, each operation handles the entries, and
//! slots and frames come back.
#![deny(unsafe_code)]

mod common;

use common::swapped::{AWAY, BYTES, MIDDLE, NR_PAGES, fill, vm_with_slots, with_slots};
use common::{
    BASE, DONTFORK, DONTNEED, FREE, GUARD_INSTALL, GUARD_REMOVE, MAYMOVE, MREMAP_FIXED, NONE, PAGE, POPULATE_READ,
    POPULATE_WRITE, PRIVATE, Patience, READ, RW, Space, StopAtEnd, World, check, frame_of,
};
use softfault::addr::Access;
use softfault::errno::Errno;
use softfault::policy::collapse::CollapseRefusal;
use softfault::{
    Advice, CpuId, Event, FaultDone, FaultError, MigrateRefusal, MlockFlags, Pfn, PinError, SwapRefusal, Term,
};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

fn swap_out(w: &World<'_>, space: &Space<'_>, at: u64) -> u64 {
    w.vm.swap_out_frame(frame_of(space, at)).unwrap()
}

fn is_swapped(space: &Space<'_>, at: u64) -> bool {
    let mut nr_swapped = 0;
    space.smaps(&mut |entry| {
        let range = entry.vma.range;
        if range.start.addr() <= at && at < range.end.addr() {
            nr_swapped = entry.swap_pages;
        }
    });
    nr_swapped > 0 && space.translate_at_rest(at).is_none()
}

fn byte_at(space: &Space<'_>, at: u64) -> u8 {
    let mut bytes = [1; PAGE as usize];
    space.read(at, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

/// In a machine with so many slots: page i is full of 7 + i.
fn with_pages(nr_slots: u64, test: impl Fn(&World<'_>)) {
    with_slots(nr_slots, |w| {
        w.map(BASE, NR_PAGES, RW);
        fill(w);
        test(w);
    });
}

/// The same with the middle page swapped out.
fn with_swapped(test: impl Fn(&World<'_>)) {
    with_pages(4, |w| {
        assert_eq!(swap_out(w, w.space, MIDDLE), 1);
        assert!(is_swapped(w.space, MIDDLE));
        check(w.vm, &[w.space]);
        test(w);
    });
}

#[test]
fn a_fault_brings_the_page_back() {
    with_swapped(|w| {
        let nr_free = w.vm.vmstat().nr_free_pages;
        assert_eq!((w.rss().anon, w.rss().swap, w.rss().major_faults), (2, 1, 0));
        assert_eq!(w.space.handle_fault(MIDDLE, Access::Read), Ok(FaultDone::SwappedIn));
        assert_eq!((w.rss().anon, w.rss().swap, w.rss().major_faults), (3, 0, 1));
        let counts = [Event::Pswpout, Event::Pswpin, Event::Pgmajfault].map(|event| w.vm.event(event));
        assert_eq!((counts, w.vm.event(Event::SwapCopied)), ([1, 1, 1], 0));
        assert_eq!(w.vm.vmstat().nr_free_pages, nr_free - 1);
        assert_eq!(byte_at(w.space, MIDDLE), 8);
        // Its own, and writable at once.
        let state = w.space.page_state(MIDDLE).unwrap();
        assert!(state.rights.contains(softfault::Rights::WRITE));
    });
}

#[test]
fn every_access_brings_it_back() {
    let accesses: [&dyn Fn(&World<'_>); 9] = [
        &|w| assert_eq!(byte_at(w.space, MIDDLE), 8),
        &|w| w.space.write(MIDDLE, &[8]).unwrap(),
        &|w| {
            w.space.mprotect(BASE, BYTES, READ).unwrap();
            w.space.write_forced(MIDDLE, &[8]).unwrap();
        },
        &|w| {
            let mut byte = [0];
            w.space.pin_page(MIDDLE, Term::Short).unwrap().read(5, &mut byte);
            assert_eq!(byte, [8]);
        },
        &|w| w.space.pin_page_mut(MIDDLE, Term::Long).unwrap().write(5, &[8]),
        &|w| w.space.madvise(BASE, BYTES, POPULATE_READ).unwrap(),
        &|w| w.space.madvise(BASE, BYTES, POPULATE_WRITE).unwrap(),
        &|w| w.space.mlock(BASE, BYTES, MlockFlags::empty()).unwrap(),
        &|w| {
            let mut byte = [0];
            w.cpu.enter(w.space).unwrap().load(MIDDLE, &mut byte).unwrap();
            assert_eq!(byte, [8]);
        },
    ];
    for access in accesses {
        with_swapped(|w| {
            access(w);
            assert_eq!((w.rss().anon, w.rss().swap), (3, 0));
            assert_eq!([0, 1, 2].map(|page| byte_at(w.space, BASE + page * PAGE)), [7, 8, 9]);
        });
    }
}

#[test]
fn calls_on_the_mapping_leave_it() {
    with_swapped(|w| {
        w.space.mprotect(BASE, BYTES, NONE).unwrap();
        assert_eq!(w.space.handle_fault(MIDDLE, Access::Read), Err(FaultError::NoRights));
        w.space.mprotect(BASE, BYTES, READ).unwrap();
        w.space.munlock(BASE, BYTES).unwrap();
        let mut resident = Vec::new();
        w.space.mincore(BASE, BYTES, &mut |nr, here| resident.push((nr, here))).unwrap();
        assert_eq!(resident, [(1, true), (1, false), (1, true)]);
        w.space.mremap(BASE, BYTES, BYTES, MAYMOVE | MREMAP_FIXED, AWAY).unwrap();
        assert!(is_swapped(w.space, AWAY + PAGE));
        check(w.vm, &[w.space]);
        assert_eq!(w.space.handle_fault(MIDDLE, Access::Read), Err(FaultError::NotMapped));
        assert_eq!(w.space.handle_fault(AWAY + PAGE, Access::Write), Err(FaultError::NoRights));
        assert_eq!(byte_at(w.space, AWAY + PAGE), 8);
        let state = w.space.page_state(AWAY + PAGE).unwrap();
        assert!(!state.rights.contains(softfault::Rights::WRITE), "I16: no more than the mapping gives");
    });
}

#[test]
fn a_page_that_goes_frees_its_slot() {
    let discards: [&dyn Fn(&Space<'_>); 5] = [
        &|space| space.madvise(BASE, BYTES, DONTNEED).unwrap(),
        // Linux drops it here, too.
        &|space| space.madvise(BASE, BYTES, FREE).unwrap(),
        &|space| {
            space.madvise(BASE, BYTES, GUARD_INSTALL).unwrap();
            assert_eq!(space.handle_fault(MIDDLE, Access::Read), Err(FaultError::Guard));
            space.madvise(BASE, BYTES, GUARD_REMOVE).unwrap();
        },
        &|space| {
            space.munmap(BASE, BYTES).unwrap();
            space.mmap(BASE, BYTES, RW, PRIVATE | common::FIXED).unwrap();
        },
        &|space| _ = space.mmap(BASE, BYTES, RW, PRIVATE | common::FIXED).unwrap(),
    ];
    for discard in discards {
        with_swapped(|w| {
            discard(w.space);
            assert_eq!(w.rss().swap, 0);
            // Each slot is free: the checker says the same.
            check(w.vm, &[w.space]);
            assert_eq!(byte_at(w.space, MIDDLE), 0);
        });
    }
    // Whole tables, and the end of the space, which `with_pages` looks at.
    with_swapped(|w| {
        assert_eq!(swap_out(w, w.space, BASE), 1);
        w.space.munmap(0, 1 << 46).unwrap();
        assert_eq!(w.rss().swap, 0);
    });
}

#[test]
fn a_child_shares_the_slot_and_gets_its_own_page() {
    with_swapped(|w| {
        let child = w.space.fork().unwrap();
        let grandchild = child.fork().unwrap();
        grandchild.mremap(BASE, BYTES, BYTES, MAYMOVE | MREMAP_FIXED, AWAY).unwrap();
        assert_eq!((child.rss_pages().swap, grandchild.rss_pages().swap, w.rss().swap), (1, 1, 1));
        check(w.vm, &[w.space, &child, &grandchild]);
        child.write(MIDDLE, &[99; PAGE as usize]).unwrap();
        check(w.vm, &[w.space, &child, &grandchild]);
        assert_eq!([byte_at(w.space, MIDDLE), byte_at(&child, MIDDLE)], [8, 99]);
        drop(child);
        assert_eq!(byte_at(&grandchild, AWAY + PAGE), 8);
        check(w.vm, &[w.space, &grandchild]);
        w.space.madvise(BASE, BYTES, DONTFORK).unwrap();
        let child = w.space.fork().unwrap();
        assert_eq!(child.handle_fault(MIDDLE, Access::Read), Err(FaultError::NotMapped));
    });
}

/// All who map a page lose it together, wherever they have moved it.
#[test]
fn all_entries_of_a_shared_frame_name_the_slot() {
    with_pages(4, |w| {
        let child = w.space.fork().unwrap();
        let grandchild = child.fork().unwrap();
        grandchild.mremap(BASE, BYTES, BYTES, MAYMOVE | MREMAP_FIXED, AWAY).unwrap();
        // This one has a copy of its own.
        child.write(MIDDLE, &[42; PAGE as usize]).unwrap();
        assert_eq!(swap_out(w, w.space, MIDDLE), 2);
        assert!(is_swapped(w.space, MIDDLE) && is_swapped(&grandchild, AWAY + PAGE) && !is_swapped(&child, MIDDLE));
        check(w.vm, &[w.space, &child, &grandchild]);
        assert_eq!(swap_out(w, &child, MIDDLE), 1);
        let bytes = [byte_at(w.space, MIDDLE), byte_at(&child, MIDDLE), byte_at(&grandchild, AWAY + PAGE)];
        assert_eq!(bytes, [8, 42, 8]);
        assert_eq!(w.vm.event(Event::Pgmajfault), 3);
        check(w.vm, &[w.space, &child, &grandchild]);
    });
}

#[test]
fn slots_are_used_again() {
    with_pages(1, |w| {
        for round in 0..5 {
            let at = BASE + round % NR_PAGES * PAGE;
            assert_eq!(swap_out(w, w.space, at), 1);
            let other = frame_of(w.space, BASE + (round + 1) % NR_PAGES * PAGE);
            assert_eq!(w.vm.swap_out_frame(other), Err(SwapRefusal::Full));
            check(w.vm, &[w.space]);
            assert_eq!(byte_at(w.space, at), 7 + (round % NR_PAGES) as u8);
        }
        assert_eq!(w.vm.event(Event::SwapRefusedFull), 5);
    });
}

#[test]
fn what_cannot_be_swapped_out_is_refused_by_name() {
    with_pages(0, |w| {
        assert_eq!(w.vm.swap_out_frame(frame_of(w.space, BASE)), Err(SwapRefusal::NoArea));
        assert_eq!(w.vm.event(Event::SwapRefusedNoArea), 1);
    });
    with_pages(4, |w| {
        let refused = |pfn| w.vm.swap_out_frame(pfn).unwrap_err();
        let pin = w.space.pin_page(BASE, Term::Short).unwrap();
        assert_eq!(refused(pin.pfn()), SwapRefusal::Stays(MigrateRefusal::Pinned));
        assert_eq!(w.vm.event(Event::MigrateRefusedPinned), 1);
        w.space.mlock(MIDDLE, PAGE, MlockFlags::empty()).unwrap();
        assert_eq!(refused(frame_of(w.space, MIDDLE)), SwapRefusal::Locked);
        assert_eq!(w.vm.event(Event::SwapRefusedLocked), 1);
        w.space.munlock(MIDDLE, PAGE).unwrap();
        assert_eq!(refused(w.space.tag().root), SwapRefusal::Stays(MigrateRefusal::Table));
        assert_eq!(refused(Pfn(u32::MAX)), SwapRefusal::Stays(MigrateRefusal::Reserved));
        assert_eq!(w.rss().swap, 0);
        // All slots are free still.
        (0..NR_PAGES).skip(1).for_each(|page| assert_eq!(swap_out(w, w.space, BASE + page * PAGE), 1));
        let zeroes = w.space.mmap(0, 2 * PAGE, RW, PRIVATE).unwrap();
        (0..2).for_each(|page| w.space.write(zeroes + page * PAGE, &[0; PAGE as usize]).unwrap());
        (0..2).for_each(|page| assert_eq!(swap_out(w, w.space, zeroes + page * PAGE), 1));
    });
}

#[test]
fn a_page_that_cannot_be_written_is_not_lost() {
    with_pages(1, |w| {
        w.vm.machine().fail_swap(true, false);
        let nr_free = w.vm.vmstat().nr_free_pages;
        assert_eq!(w.vm.swap_out_frame(frame_of(w.space, MIDDLE)), Err(SwapRefusal::NotWritten));
        assert_eq!((w.vm.event(Event::SwapRefusedNotWritten), w.vm.event(Event::Pswpout)), (1, 0));
        assert_eq!(w.vm.vmstat().nr_free_pages, nr_free, "the slot keeps the frame");
        check(w.vm, &[w.space]);
        let child = w.space.fork().unwrap();
        assert_eq!(byte_at(w.space, MIDDLE), 8);
        check(w.vm, &[w.space, &child]);
        assert_eq!(byte_at(&child, MIDDLE), 8);
        assert_eq!((w.vm.event(Event::SwapCopied), w.vm.event(Event::Pgmajfault), w.rss().major_faults), (2, 0, 0));
        drop(child);
        assert_eq!(w.vm.swap_out_frame(frame_of(w.space, MIDDLE)), Err(SwapRefusal::NotWritten));
        w.space.munmap(BASE, BYTES).unwrap();
    });
}

#[test]
fn a_page_that_cannot_be_read_is_reported() {
    with_swapped(|w| {
        w.vm.machine().fail_swap(false, true);
        assert_eq!(w.space.handle_fault(MIDDLE, Access::Read), Err(FaultError::NotRead));
        let read = w.space.read(BASE, &mut [0; BYTES as usize]).unwrap_err();
        assert_eq!((read.at, read.fault, read.errno()), (MIDDLE, FaultError::NotRead, Errno::EFAULT));
        let pinned = w.space.pin_page(MIDDLE, Term::Short).unwrap_err();
        assert_eq!((pinned, pinned.errno()), (PinError::Fault(FaultError::NotRead), Errno::EFAULT));
        assert_eq!(w.vm.event(Event::RefusedNotRead), 3);
        assert_eq!(w.space.madvise(BASE, BYTES, POPULATE_READ).unwrap_err().errno(), Errno::EFAULT);
        assert_eq!(w.space.mlock(BASE, BYTES, MlockFlags::empty()).unwrap_err().errno(), Errno::ENOMEM);
        check(w.vm, &[w.space]);
        w.vm.machine().fail_swap(false, false);
        assert_eq!(byte_at(w.space, MIDDLE), 8, "nothing has changed");
    });
}

#[test]
fn no_huge_page_is_made_over_it() {
    const HUGE: u64 = 2 << 20;
    with_pages(4, |w| {
        let at = 0x20_0000_0000;
        w.space.mmap(at, HUGE, RW, PRIVATE | common::FIXED).unwrap();
        w.space.write(at + 5 * PAGE, &[1]).unwrap();
        assert_eq!(swap_out(w, w.space, at + 5 * PAGE), 1);
        assert_eq!(w.space.collapse(at), Err(CollapseRefusal::Swapped));
        assert_eq!(w.vm.event(Event::CollapseSwapped), 1);
        assert_eq!(w.space.madvise(at, HUGE, Advice::Collapse).unwrap_err().errno(), Errno::EINVAL);
        let mut byte = [0];
        w.space.read(at + 5 * PAGE, &mut byte).unwrap();
        assert_eq!(byte, [1]);
    });
}

/// Programs write, fork and discard while their pages are swapped out: each byte is as it was
/// written last.
#[test]
fn programs_do_not_notice() {
    const NR: u64 = 32;
    let vm = vm_with_slots(3, 16);
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    space.mmap(BASE, NR * PAGE, RW, PRIVATE | common::FIXED).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _cpu = vm.machine().bind(CpuId(1)).unwrap();
            for page in (0..NR).cycle().take_while(|_| !is_over.load(Relaxed)) {
                if let Some(there) = space.translate_at_rest(BASE + page * PAGE) {
                    _ = vm.swap_out_frame(there.pfn);
                }
            }
        });
        // Reads the same pages, so that two faults bring one page back.
        scope.spawn(|| {
            let cpu = vm.machine().bind(CpuId(2)).unwrap();
            let running = cpu.enter(&space).unwrap();
            let mut bytes = [0; 8];
            for page in (0..NR).cycle().take_while(|_| !is_over.load(Relaxed)) {
                running.load(BASE + page * PAGE, &mut bytes).unwrap();
            }
        });
        let _stop = StopAtEnd(&is_over);
        let running = cpu.enter(&space).unwrap();
        // A pager that is not scheduled does nothing.
        let patience = Patience::new("nothing is swapped");
        let has_swapped = || [Event::Pswpout, Event::Pswpin].iter().all(|event| vm.event(*event) > 100);
        for round in (1..u64::MAX).take_while(|round| *round < 100 || !has_swapped()) {
            patience.check();
            for page in 0..NR {
                let at = BASE + page * PAGE;
                let mut bytes = [0; 8];
                running.store(at, &round.to_le_bytes()).unwrap();
                running.load(at, &mut bytes).unwrap();
                assert_eq!(u64::from_le_bytes(bytes), round);
                if page % 16 == round % 16 {
                    space.madvise(at, PAGE, DONTNEED).unwrap();
                    running.load(at, &mut bytes).unwrap();
                    assert_eq!(bytes, [0; 8], "what was discarded came back");
                }
            }
            if round % 8 == 0 {
                let child = space.fork().unwrap();
                let mut bytes = [0; 8];
                let written = (0..NR).filter(|page| page % 16 != round % 16);
                for page in written {
                    child.read(BASE + page * PAGE, &mut bytes).unwrap();
                    assert_eq!(u64::from_le_bytes(bytes), round, "of page {page}");
                }
            }
        }
    });
    check(&vm, &[&space]);
    assert_eq!(vm.machine().violations(), (0, None));
}
