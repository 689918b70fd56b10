//! Which pages can be pinned, and who frees the frame in the end.

use super::*;

/// The zero frame is never pinned.
#[test]
fn a_page_that_was_only_read() {
    in_plain_setup(|w| {
        w.map(BASE, 2, RW);
        assert_eq!(read(w.space, BASE), 0);
        let (first, second) = (pin(w.space, BASE, Access::Read), pin(w.space, BASE + PAGE, Access::Read));
        assert_eq!(w.rss().anon, 2);
        assert_same(&first, w.space, BASE);
        assert_same(&second, w.space, BASE + PAGE);
        w.map(OTHER, 1, READ);
        let third = pin(w.space, OTHER, Access::Read);
        assert_eq!((through(&third), w.rss().anon), (0, 3));
    });
}

#[test]
fn unmapped_with_the_pin_outstanding() {
    in_each_setup(1, ARENA, |w| {
        w.map(BASE, 4, RW);
        (0..4).for_each(|i| write(w.space, BASE + i * PAGE, i));
        let mut held: Vec<Held<'_>> = (0..4).map(|i| pin(w.space, BASE + i * PAGE, Access::Write)).collect();
        let again = pin(w.space, BASE, Access::Read);
        let nr_free = w.vm.vmstat().nr_free_pages;
        w.space.munmap(BASE, 4 * PAGE).unwrap();
        check(w.vm, &[w.space]);
        // Other pages of the space get other frames.
        w.map(OTHER, 8, RW);
        (0..8).for_each(|i| write(w.space, OTHER + i * PAGE, u64::MAX));
        assert_eq!(held.iter().map(|pin| through(pin)).collect::<Vec<_>>(), [0, 1, 2, 3]);
        w.space.munmap(OTHER, 8 * PAGE).unwrap();
        while let Some(one) = held.pop() {
            drop(one);
            check(w.vm, &[w.space]);
        }
        assert_eq!(through(&again), 0);
        drop(again);
        assert!(w.vm.vmstat().nr_free_pages >= nr_free + 4, "frames stay held");
    });
}

/// DONTNEED, a move, a change of rights: the page goes or stays, the pin holds the
/// frame that it found.
#[test]
fn a_pin_outlives_changes_of_its_page() {
    in_plain_setup(|w| {
        w.map(BASE, 4, RW);
        (0..3).for_each(|i| write(w.space, BASE + i * PAGE, 10 + i));
        let held: Vec<Held<'_>> = (0..3).map(|i| pin(w.space, BASE + i * PAGE, Access::Write)).collect();
        w.space.madvise(BASE, PAGE, DONTNEED).unwrap();
        assert_eq!((read(w.space, BASE), through(&held[0])), (0, 10));
        w.space.mremap(BASE + PAGE, PAGE, PAGE, MAYMOVE | MREMAP_FIXED, OTHER).unwrap();
        assert_same(&held[1], w.space, OTHER);
        w.space.mprotect(BASE + 2 * PAGE, PAGE, NONE).unwrap();
        assert_eq!(through(&held[2]), 12);
        w.space.mprotect(BASE + 2 * PAGE, PAGE, RW).unwrap();
        assert_same(&held[2], w.space, BASE + 2 * PAGE);
        check(w.vm, &[w.space]);
    });
}

/// The space ends before the pin does.
#[test]
fn the_space_goes_first() {
    in_plain_setup(|w| {
        let space = w.vm.new_space().unwrap();
        space.mmap(BASE, 2 * PAGE, RW, PRIVATE | FIXED).unwrap();
        space.mmap(OTHER, 2 * PAGE, RW, SHARED | FIXED).unwrap();
        write(&space, BASE, 5);
        write(&space, OTHER, 6);
        let held = [pin(&space, BASE, Access::Write), pin(&space, OTHER, Access::Write)];
        drop(space);
        check(w.vm, &[w.space]);
        assert_eq!(held.each_ref().map(|pin| through(pin)), [5, 6]);
        drop(held);
        check(w.vm, &[w.space]);
    });
}

/// Pages of an object are pinned as they are, and outlive their place in it.
#[test]
fn pages_of_objects() {
    in_plain_setup(|w| {
        let object = w.vm.new_shared_object(4 * PAGE).unwrap();
        let part = softfault::ObjectPart::new(&object);
        w.space.mmap_object(BASE, 4 * PAGE, RW, SHARED | FIXED, part).unwrap();
        let mut held: Vec<Held<'_>> = (0..4).map(|i| pin(w.space, BASE + i * PAGE, Access::Write)).collect();
        let child = w.space.fork().unwrap();
        write(&child, BASE, 77);
        assert_eq!(through(&held[0]), 77, "shared memory is shared");
        assert_same(&held[0], w.space, BASE);
        // Out of the object and of all mappings: their pins have them.
        object.discard(0..2);
        check(w.vm, &[w.space, &child]);
        assert_eq!((read(w.space, BASE), through(&held[0])), (0, 79));
        drop(child);
        held[3].write(0, &[9]);
        w.space.munmap(BASE, 4 * PAGE).unwrap();
        // No entry, no pin: the object has it.
        drop(held.pop());
        check(w.vm, &[w.space]);
        let mut byte = [0];
        assert_eq!((object.read(3 * PAGE, &mut byte), byte), (1, [9]));
        drop(object);
        check(w.vm, &[w.space]);
        held[2].write(0, &[1]);
        drop(held);
        check(w.vm, &[w.space]);
    });
}

#[test]
fn refusals() {
    in_plain_setup(|w| {
        w.map(BASE, 4, RW);
        w.space.mprotect(BASE + PAGE, PAGE, READ).unwrap();
        w.space.mprotect(BASE + 2 * PAGE, PAGE, NONE).unwrap();
        w.space.madvise(BASE + 3 * PAGE, PAGE, GUARD_INSTALL).unwrap();
        let error = |addr, access| match Held::of(w.space, addr, access, Term::Long) {
            Ok(_) => panic!("{addr:#x} was pinned"),
            Err(error) => error,
        };
        let fault = PinError::Fault;
        assert_eq!(error(BASE + 4 * PAGE, Access::Read), fault(FaultError::NotMapped));
        assert_eq!(error(BASE + PAGE, Access::Write), fault(FaultError::NoRights));
        assert_eq!(error(BASE + 2 * PAGE, Access::Read), fault(FaultError::NoRights));
        assert_eq!(error(BASE + 3 * PAGE, Access::Read), fault(FaultError::Guard));
        for addr in [1 << 47, 1 << 63, u64::MAX] {
            assert_eq!(error(addr, Access::Read), fault(FaultError::NotMapped), "{addr:#x}");
        }
        // All or none.
        let mut pins = [const { None }; 4];
        let before = w.vm.event(Event::PinAcquired);
        assert_eq!(w.space.pin_range(BASE, Term::Short, &mut pins), Err(fault(FaultError::NoRights)));
        assert!(pins.iter().all(Option::is_none));
        assert_eq!(w.vm.event(Event::PinAcquired) - before, 2);
        check(w.vm, &[w.space]);
        w.space.pin_range(BASE, Term::Short, &mut pins[..2]).unwrap();
        assert!(pins[..2].iter().all(Option::is_some) && pins[2..].iter().all(Option::is_none));
        let mut many = [const { None }; 2];
        let wrapped = w.space.pin_range(u64::MAX - 100, Term::Short, &mut many);
        assert_eq!(wrapped, Err(fault(FaultError::NotMapped)));
    });
}

/// As many pins of one page as can be counted; then a refusal, and no harm.
#[test]
fn one_page_pinned_until_the_count_is_full() {
    in_plain_setup(|w| {
        w.map(BASE, 1, RW);
        let mut held = Vec::new();
        let refused = loop {
            match w.space.pin_page_mut(BASE, Term::Long) {
                Ok(pin) => held.push(pin),
                Err(error) => break error,
            }
        };
        assert_eq!((refused, w.vm.event(Event::PinRefusedFull)), (PinError::PinsFull, 1));
        assert!(held.len() > 200_000);
        assert_eq!(w.vm.event(Event::PinLongterm), held.len() as u64);
        check(w.vm, &[w.space]);
        held.pop();
        let _again = pin(w.space, BASE, Access::Write);
        w.space.munmap(BASE, PAGE).unwrap();
        check(w.vm, &[w.space]);
    });
}

/// MADV_FREE has made the page clean; what a device writes counts as written.
#[test]
fn a_pin_for_writing_makes_the_page_dirty() {
    in_plain_setup(|w| {
        w.map(BASE, 1, RW);
        write(w.space, BASE, 1);
        w.space.madvise(BASE, PAGE, FREE).unwrap();
        let nr_dirty = || {
            let mut nr = 0;
            w.space.smaps(&mut |entry| nr += entry.dirty_pages);
            nr
        };
        drop(pin(w.space, BASE, Access::Read));
        assert_eq!(nr_dirty(), 0);
        drop(pin(w.space, BASE, Access::Write));
        assert_eq!(nr_dirty(), 1);
    });
}

/// The last entry and the last pin go at once, on two CPUs: one of them frees.
#[test]
fn release_while_another_cpu_unmaps() {
    in_each_setup(2, ARENA, |w| {
        const PAGES: u64 = 16;
        let held = ForRelease::default();
        let release = |_: &Running<'_>, stop: &AtomicBool| held.release_until(stop);
        let nr_free = w.race(&[&release], |running| {
            let mut nr_free = Vec::new();
            for _ in 0..100 {
                w.map(BASE, PAGES, RW);
                for i in 0..PAGES {
                    running.write_u64(BASE + i * PAGE, i).unwrap();
                    held.push(pin(w.space, BASE + i * PAGE, Access::Write));
                }
                held.begin();
                w.space.munmap(BASE, PAGES * PAGE).unwrap();
                held.wait();
                nr_free.push(w.vm.event(Event::PinAcquired) - w.vm.event(Event::PinReleased));
            }
            nr_free
        });
        assert_eq!(nr_free.last(), Some(&0));
    });
}

/// A CPU that does not run the space pins in it while its own CPU unmaps.
#[test]
fn remote_pins_while_the_program_unmaps() {
    in_each_setup(2, ARENA, |w| {
        let target = w.vm.new_space().unwrap();
        let nr_pinned = AtomicU64::new(0);
        let remote = |_: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(SeqCst) {
                if let Ok(held) = target.pin_page_mut(BASE, Term::Short) {
                    held.write(8, &1u64.to_ne_bytes());
                    nr_pinned.fetch_add(1, SeqCst);
                    drop(held);
                }
            }
        };
        w.race(&[&remote], |_| {
            for _ in 0..30 {
                target.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
                let n = nr_pinned.load(SeqCst);
                wait_until(|| nr_pinned.load(SeqCst) > n);
                target.munmap(BASE, PAGE).unwrap();
                assert!(target.vma(BASE).is_none());
            }
        });
        check(w.vm, &[w.space, &target]);
    });
}
