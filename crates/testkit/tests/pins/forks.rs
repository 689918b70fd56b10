//! Pins and fork(2): who keeps the page, and what the child has.

use super::*;

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

/// A page that may only be read is the space's own all the same, and stays so when it
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
