//! Pins of pages inside huge mappings: which writes the pin and the spaces see after fork,
//! split and unmapping, and what frees the frame.
#![deny(unsafe_code)]

mod common;

use common::huge::{AT, HUGE};
use common::pins::{ForRelease, Held, read, through, write};
use common::*;
use softfault::policy::huge::{CowHuge, Enabled};
use softfault::{Access, Event, HugeKnobs, Order, Term};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const ARENA: u64 = 48 << 20;
const NR_PAGES: u64 = 512;

fn in_each(test: impl Fn(&World<'_>)) {
    for cow in [CowHuge::Split, CowHuge::Copy] {
        in_each_setup(3, ARENA, |w| {
            w.vm.set_huge_knobs(&HugeKnobs::DEFAULT.with_enabled(Enabled::Always).with_cow(cow)).unwrap();
            w.map(AT, 2 * NR_PAGES, RW);
            test(w);
        });
    }
}

fn pin<'vm>(space: &Space<'vm>, addr: u64, access: Access) -> Held<'vm> {
    Held::of(space, addr, access, Term::Long).unwrap()
}

#[test]
fn a_page_of_a_huge_mapping_is_pinned_where_it_is() {
    in_each(|w| {
        write(w.space, AT + 5 * PAGE, 5);
        let held = pin(w.space, AT + 5 * PAGE, Access::Write);
        assert_eq!((held.order(), through(&held)), (Order::PMD, 5));
        held.write(0, &6u64.to_ne_bytes());
        assert_eq!(read(w.space, AT + 5 * PAGE), 6);
        check(w.vm, &[w.space]);
        // A read in an empty stretch gets memory of its own, not zeroes that others see.
        let of_nothing = pin(w.space, AT + HUGE + PAGE, Access::Read);
        write(w.space, AT + HUGE + PAGE, 9);
        assert_eq!(through(&of_nothing), 9);
        check(w.vm, &[w.space]);
        drop((held, of_nothing));
        assert_eq!(w.rss().anon_huge, 2 * NR_PAGES, "a pin splits nothing");
    });
}

#[test]
fn a_page_that_may_not_be_written_is_pinned_if_it_is_ours() {
    in_each(|w| {
        write(w.space, AT + 7 * PAGE, 5);
        w.space.mprotect(AT, HUGE, READ).unwrap();
        let held = pin(w.space, AT + 7 * PAGE, Access::Read);
        let child = w.space.fork().unwrap();
        w.space.mprotect(AT, HUGE, RW).unwrap();
        child.mprotect(AT, HUGE, RW).unwrap();
        write(&child, AT + 7 * PAGE, 50);
        write(w.space, AT + 7 * PAGE, 6);
        assert_eq!((through(&held), read(&child, AT + 7 * PAGE)), (6, 50));
        check(w.vm, &[w.space, &child]);
    });
}

#[test]
fn fork_copies_the_page_that_is_pinned_and_shares_the_others() {
    in_each(|w| {
        (0..NR_PAGES).for_each(|i| write(w.space, AT + i * PAGE, i));
        let held = pin(w.space, AT + 100 * PAGE, Access::Write);
        let free = w.vm.vmstat().nr_free_pages;
        let child = w.space.fork().unwrap();
        check(w.vm, &[w.space, &child]);
        assert!(free - w.vm.vmstat().nr_free_pages < 64, "more than the page was copied");
        assert_eq!(w.vm.event(Event::ForkPinned), 1);
        write(&child, AT + 100 * PAGE, 1000);
        write(w.space, AT + 100 * PAGE, 101);
        assert_eq!((through(&held), read(&child, AT + 100 * PAGE)), (101, 1000));
        (0..NR_PAGES).filter(|i| *i != 100).for_each(|i| assert_eq!(read(&child, AT + i * PAGE), i));
        drop(child);
        drop(held);
    });
}

#[test]
fn a_pin_of_a_shared_huge_page_unshares() {
    in_each(|w| {
        write(w.space, AT + 9 * PAGE, 5);
        let child = w.space.fork().unwrap();
        let held = pin(w.space, AT + 9 * PAGE, Access::Read);
        write(w.space, AT + 9 * PAGE, 6);
        write(&child, AT + 9 * PAGE, 7);
        assert_eq!((through(&held), read(w.space, AT + 9 * PAGE), read(&child, AT + 9 * PAGE)), (6, 6, 7));
        check(w.vm, &[w.space, &child]);
    });
}

/// The frame goes with the last of entry and pin, whatever became of the others.
#[test]
fn a_pinned_page_outlives_its_mapping() {
    in_each(|w| {
        for whole in [false, true] {
            w.map(AT, NR_PAGES, RW);
            write(w.space, AT + 3 * PAGE, 33);
            let held = pin(w.space, AT + 3 * PAGE, Access::Write);
            let len = if whole { HUGE } else { 8 * PAGE };
            let free = w.vm.vmstat().nr_free_pages;
            w.space.munmap(AT, len).unwrap();
            assert!(w.vm.vmstat().nr_free_pages - free >= len / PAGE - 1, "the others come back at once");
            check(w.vm, &[w.space]);
            assert_eq!(through(&held), 33);
            let before = w.vm.vmstat().nr_free_pages;
            drop(held);
            assert_eq!(w.vm.vmstat().nr_free_pages, before + 1);
            check(w.vm, &[w.space]);
            w.space.munmap(AT, HUGE).unwrap();
        }
    });
}

/// Pins against forks: the holder and the program go on seeing each other.
#[test]
fn pins_race_with_forks() {
    for cow in [CowHuge::Split, CowHuge::Copy] {
        in_setup(Setup::PLAIN, 2, 64 << 20, |w| {
            w.vm.set_huge_knobs(&HugeKnobs::DEFAULT.with_enabled(Enabled::Always).with_cow(cow)).unwrap();
            w.map(AT, NR_PAGES, RW);
            write(w.space, AT, 1);
            let forker = |running: &Running<'_>, stop: &AtomicBool| {
                while !stop.load(SeqCst) {
                    let child = running.space().fork().unwrap();
                    write(&child, AT + 2 * PAGE, 77);
                    drop(child);
                }
            };
            w.race(&[&forker], |running| {
                for round in 0..400 {
                    if round % 20 == 0 {
                        // Huge again.
                        w.map(AT, NR_PAGES, RW);
                        running.write_u64(AT, 1).unwrap();
                    }
                    let addr = AT + 2 * PAGE;
                    let held = pin(w.space, addr, if round % 2 == 0 { Access::Read } else { Access::Write });
                    running.write_u64(addr, round).unwrap();
                    assert_eq!(through(&held), round, "the holder does not see the program's store");
                }
            });
        });
    }
}

/// T4: pins of all sub-pages are released while the page is split, and ends, on
/// another CPU; every count is exact, every frame is back.
#[test]
fn t4_release_against_split() {
    for setup in [Setup::PLAIN, Setup { mode: softfault_host::Mode::Broadcast, ..Setup::PLAIN }] {
        in_setup(setup, 2, ARENA, |w| {
            w.vm.set_huge_knobs(&HugeKnobs::DEFAULT.with_enabled(Enabled::Always)).unwrap();
            let held = ForRelease::default();
            let release = |_: &Running<'_>, stop: &AtomicBool| held.release_until(stop);
            w.race(&[&release], |running| {
                for round in 0..60u64 {
                    w.map(AT, NR_PAGES, RW);
                    running.write_u64(AT, 1).unwrap();
                    assert_eq!(w.rss().anon_huge, NR_PAGES);
                    let child = (round % 3 == 2).then(|| running.space().fork().unwrap());
                    let pages = (0..NR_PAGES).filter(|page| child.is_none() || page % 64 == 0);
                    pages.for_each(|page| held.push(pin(w.space, AT + page * PAGE, Access::Write)));
                    held.begin();
                    if round % 2 == 0 {
                        w.space.munmap(AT + (round % 512) * PAGE, 4 * PAGE).unwrap();
                    }
                    drop(child);
                    w.space.munmap(AT, HUGE).unwrap();
                    held.wait();
                    check(w.vm, &[w.space]);
                    assert_eq!(w.rss().anon, 0);
                }
            });
            assert_eq!(w.vm.event(Event::PinAcquired), w.vm.event(Event::PinReleased));
        });
    }
}
