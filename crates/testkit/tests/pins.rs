//! Pins: what their holder sees, what fork and unmapping make of a pinned page,
//! and who frees its frame.
#![deny(unsafe_code)]

mod common;

use common::pins::{Held, read, through, write};
use common::*;
use softfault::hooks::Class;
use softfault::{Access, Event, FaultError, PinError, Rights, Term};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

const ARENA: u64 = 16 << 20;
const OTHER: u64 = BASE + (1 << 30);

fn pin<'vm>(space: &Space<'vm>, addr: u64, access: Access) -> Held<'vm> {
    Held::of(space, addr, access, Term::Short).unwrap()
}

/// What one writes the other sees, both ways where the pin is for writing.
fn assert_same(pin: &Held<'_>, space: &Space<'_>, addr: u64) {
    let n = read(space, addr);
    assert_eq!(through(pin), n);
    write(space, addr, n + 1);
    assert_eq!(through(pin), n + 1, "the holder does not see the program's store");
    if let Held::Write(pin) = pin {
        pin.write(0, &(n + 2).to_ne_bytes());
        assert_eq!(read(space, addr), n + 2, "the program does not see the holder's store");
    }
}

fn in_plain_setup(test: impl Fn(&World<'_>)) {
    in_setup(Setup::PLAIN, 1, ARENA, test);
}

#[test]
fn fork_after_the_pin_copies() {
    in_each_setup(1, ARENA, |w| {
        w.map(BASE, 4, RW);
        write(w.space, BASE, 7);
        write(w.space, BASE + PAGE, 8);
        let held = pin(w.space, BASE, Access::Write);
        let child = w.space.fork().unwrap();
        assert_eq!(w.vm.event(Event::ForkPinned), 1);
        check(w.vm, &[w.space, &child]);
        // The child writes first, then the parent, then the other way round.
        write(&child, BASE, 100);
        assert_same(&held, w.space, BASE);
        write(w.space, BASE, 30);
        write(&child, BASE, 101);
        assert_same(&held, w.space, BASE);
        assert_eq!((read(&child, BASE), read(&child, BASE + PAGE)), (101, 8));
        drop(held);
        check(w.vm, &[w.space, &child]);
    });
}

#[test]
fn pin_after_the_fork_unshares() {
    in_each_setup(1, ARENA, |w| {
        w.map(BASE, 4, RW);
        for access in [Access::Read, Access::Write] {
            write(w.space, BASE, 7);
            let child = w.space.fork().unwrap();
            let held = pin(w.space, BASE, access);
            check(w.vm, &[w.space, &child]);
            assert_same(&held, w.space, BASE);
            assert_eq!(read(&child, BASE), 7);
            write(&child, BASE, 9);
            assert_same(&held, w.space, BASE);
            drop(child);
            assert_same(&held, w.space, BASE);
        }
    });
}

/// What may only be read is the space's own all the same, and stays it when it
/// becomes writable.
#[test]
fn a_page_that_may_only_be_read() {
    in_plain_setup(|w| {
        w.map(BASE, 2, RW);
        write(w.space, BASE, 7);
        w.space.mprotect(BASE, 2 * PAGE, READ).unwrap();
        let refused = w.space.pin_page_mut(BASE, Term::Short);
        assert_eq!(refused.unwrap_err(), PinError::Fault(FaultError::NoRights));
        let held = pin(w.space, BASE, Access::Read);
        let child = w.space.fork().unwrap();
        assert_eq!(w.vm.event(Event::ForkPinned), 1);
        assert_eq!(w.vm.event(Event::PinSlow), 0, "nothing needs a fault here");
        w.space.mprotect(BASE, 2 * PAGE, RW).unwrap();
        assert_same(&held, w.space, BASE);
        // Pinned after the fork, when the page is shared and not writable.
        let held_by_child = pin(&child, BASE, Access::Read);
        child.mprotect(BASE, 2 * PAGE, RW).unwrap();
        assert_same(&held_by_child, &child, BASE);
        check(w.vm, &[w.space, &child]);
    });
}

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
fn what_happens_to_the_page_is_no_matter_of_the_pin() {
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

/// While somebody pins, writes, looks and lets go, another CPU forks: the page
/// under a pin is never exchanged, and the child has a value of its own.
#[test]
fn pins_while_another_cpu_forks() {
    in_each_setup(3, ARENA, |w| {
        const PAGES: u64 = 4;
        w.map(BASE, PAGES, RW);
        let nr_pins = [AtomicU64::new(0), AtomicU64::new(0)];
        let work = |me: u64, running: &Running<'_>, stop: &AtomicBool| {
            let mut n = 0;
            while !stop.load(SeqCst) {
                n += 1;
                let addr = BASE + (2 * (n % 2) + me) * PAGE;
                let access = if n % 3 == 0 { Access::Read } else { Access::Write };
                let held = pin(running.space(), addr, access);
                for i in 0..4 {
                    let value = n << 8 | i;
                    match &held {
                        Held::Write(held) if i % 2 == 1 => {
                            held.write(0, &value.to_ne_bytes());
                            assert_eq!(running.read_u64(addr).unwrap(), value, "the program has another frame");
                        }
                        held => {
                            running.write_u64(addr, value).unwrap();
                            assert_eq!(through(held), value, "the holder has another frame");
                        }
                    }
                }
                drop(held);
                nr_pins[me as usize].store(n, SeqCst);
            }
        };
        let first = |running: &Running<'_>, stop: &AtomicBool| work(0, running, stop);
        let second = |running: &Running<'_>, stop: &AtomicBool| work(1, running, stop);
        w.race(&[&first, &second], |running| {
            for round in 0..30 {
                let seen = nr_pins.each_ref().map(|n| n.load(SeqCst));
                wait_until(|| nr_pins.iter().zip(seen).all(|(n, seen)| n.load(SeqCst) > seen));
                let child = running.space().fork().unwrap();
                let values: Vec<u64> = (0..PAGES).map(|i| read(&child, BASE + i * PAGE)).collect();
                if round % 2 == 0 {
                    (0..PAGES).for_each(|i| write(&child, BASE + i * PAGE, u64::MAX));
                } else {
                    let again: Vec<u64> = (0..PAGES).map(|i| read(&child, BASE + i * PAGE)).collect();
                    assert_eq!(again, values, "F5: a write after the fork shows in the child");
                }
            }
        });
    });
}

/// The child's copy of a pinned page is one moment's, though the program goes on
/// writing: what was stored later is not there without what was stored before.
#[test]
fn a_copy_of_a_pinned_page_is_whole() {
    in_each_setup(2, ARENA, |w| {
        w.map(BASE, 1, RW);
        let last = BASE + PAGE - 8;
        let nr_writes = AtomicU64::new(0);
        let _held = pin(w.space, BASE, Access::Write);
        let writer = |running: &Running<'_>, stop: &AtomicBool| {
            for n in 1.. {
                running.write_u64(BASE, n).unwrap();
                running.write_u64(last, n).unwrap();
                nr_writes.store(n, SeqCst);
                if stop.load(SeqCst) {
                    return;
                }
            }
        };
        w.race(&[&writer], |running| {
            for _ in 0..60 {
                let n = nr_writes.load(SeqCst);
                wait_until(|| nr_writes.load(SeqCst) > n);
                let child = running.space().fork().unwrap();
                let (first, last) = (read(&child, BASE), read(&child, last));
                assert!(first == last || first == last + 1, "the copy is torn: {first}, {last}");
                assert!(first >= n, "the copy is old");
            }
        });
    });
}

/// The child's copy of a page whose holder is writing has each of its stores of a
/// word whole or not at all, none that is older than the fork is missing, and none
/// that is younger shows.
#[test]
fn a_copy_while_the_holder_writes_has_whole_words() {
    in_each_setup(2, ARENA, |w| {
        w.map(BASE, 1, RW);
        const PLACES: [u64; 3] = [0, PAGE / 2, PAGE - 8];
        let both_halves = |n: u64| n << 32 | n;
        let nr_writes = AtomicU64::new(0);
        let held = w.space.pin_page_mut(BASE, Term::Long).unwrap();
        let holder = |_: &Running<'_>, stop: &AtomicBool| {
            for n in 1.. {
                PLACES.iter().for_each(|place| held.write(*place as usize, &both_halves(n).to_ne_bytes()));
                nr_writes.store(n, SeqCst);
                if stop.load(SeqCst) {
                    return;
                }
            }
        };
        w.race(&[&holder], |running| {
            for _ in 0..15 {
                let before = nr_writes.load(SeqCst);
                wait_until(|| nr_writes.load(SeqCst) > before);
                let before = nr_writes.load(SeqCst);
                let child = running.space().fork().unwrap();
                let after = nr_writes.load(SeqCst);
                let values = PLACES.map(|place| read(&child, BASE + place));
                for value in values {
                    let n = value >> 32;
                    assert_eq!(value, both_halves(n), "half a word");
                    assert!(before <= n && n <= after + 1, "{n} of {before} to {after}");
                }
                wait_until(|| nr_writes.load(SeqCst) > after + 1);
                assert_eq!(
                    PLACES.map(|place| read(&child, BASE + place)),
                    values,
                    "F5: the child has the pinned frame"
                );
            }
        });
    });
}

/// The last entry and the last pin go at once, on two CPUs: one of them frees.
#[test]
fn release_while_another_cpu_unmaps() {
    in_each_setup(2, ARENA, |w| {
        const PAGES: u64 = 16;
        let held: Mutex<Vec<Held<'_>>> = Mutex::new(Vec::new());
        let go = AtomicBool::new(false);
        let release = |_: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(SeqCst) {
                if go.swap(false, SeqCst) {
                    held.lock().unwrap().drain(..).for_each(drop);
                }
                std::thread::yield_now();
            }
        };
        let nr_free = w.race(&[&release], |running| {
            let mut nr_free = Vec::new();
            for _ in 0..100 {
                w.map(BASE, PAGES, RW);
                for i in 0..PAGES {
                    running.write_u64(BASE + i * PAGE, i).unwrap();
                    held.lock().unwrap().push(pin(w.space, BASE + i * PAGE, Access::Write));
                }
                go.store(true, SeqCst);
                w.space.munmap(BASE, PAGES * PAGE).unwrap();
                wait_until(|| held.lock().unwrap().is_empty());
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

/// Rights that the table shows after a pin are never more than the mapping's.
#[test]
fn an_unshared_page_keeps_its_rights() {
    in_plain_setup(|w| {
        w.map(BASE, 1, RW);
        write(w.space, BASE, 3);
        w.space.mprotect(BASE, PAGE, READ).unwrap();
        let child = w.space.fork().unwrap();
        let _held = pin(&child, BASE, Access::Read);
        assert_eq!(child.translate_at_rest(BASE).unwrap().rights, Rights::READ);
        check(w.vm, &[w.space, &child]);
    });
}

/// A page that is pinned for long leaves the block of its neighbours; compaction looks at none of
/// the blocks with such pins.
#[test]
fn a_long_pin_moves_its_page_to_a_block_of_pins() {
    in_each_setup(1, 16 << 20, |w| {
        w.space.mmap(BASE, 8 * PAGE, RW, PRIVATE | FIXED).unwrap();
        w.space.mmap(BASE + 8 * PAGE, 8 * PAGE, RW, SHARED | FIXED).unwrap();
        (0..16).for_each(|page| w.space.write(BASE + page * PAGE, &[page as u8 + 1; 8]).unwrap());
        let block = |page: u64| w.space.translate_at_rest(BASE + page * PAGE).unwrap().pfn.0 / 512;
        let short = w.space.pin_page(BASE + PAGE, Term::Short).unwrap();
        assert_eq!(w.vm.block_class(short.pfn().0 / 512), Class::Movable);
        let mut pins = vec![];
        for page in [0, 3, 8, 11] {
            let before = block(page);
            let pin = w.space.pin_page_mut(BASE + page * PAGE, Term::Long).unwrap();
            assert_eq!((pin.pfn().0 / 512, w.vm.block_class(block(page))), (block(page), Class::Pinned), "page {page}");
            assert!(before != block(page) && w.vm.block_class(before) < Class::Pinned);
            let mut seen = [0; 8];
            pin.read(0, &mut seen);
            assert_eq!(seen, [page as u8 + 1; 8]);
            pins.push(pin);
        }
        assert_eq!((w.vm.event(Event::PinSetApart), w.vm.event(Event::PinInPlace)), (4, 0));
        // A second pin of the same page, and one that somebody else holds already.
        pins.push(w.space.pin_page_mut(BASE, Term::Long).unwrap());
        assert_eq!((w.vm.event(Event::PinSetApart), w.vm.event(Event::PinInPlace)), (4, 0));
        let held = w.space.pin_page(BASE + PAGE, Term::Long).unwrap();
        assert_eq!((w.vm.event(Event::PinSetApart), w.vm.event(Event::PinInPlace)), (4, 1));
        assert_eq!(w.vm.block_class(held.pfn().0 / 512), Class::Pinned, "compaction passes it over");
        check(w.vm, &[w.space]);
        drop((pins, held, short));
        (0..16).for_each(|page| {
            let mut seen = [0; 8];
            w.space.read(BASE + page * PAGE, &mut seen).unwrap();
            assert_eq!(seen, [page as u8 + 1; 8]);
        });
    });
}
