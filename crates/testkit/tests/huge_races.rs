//! Races about huge pages, several CPUs at once in one address space and in its
//! children. The ids are those of the tests that issue 4 asks for.
#![deny(unsafe_code)]

mod common;

use common::*;
use softfault::addr::Access;
use softfault::policy::huge::{CowHuge, Enabled, SizeEnabled};
use softfault::{Advice, Discipline, Event, FaultDone, FaultError, HugeKnobs, Order};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

const HUGE: u64 = 2 << 20;
const AT: u64 = 0x10_0000_0000;
const NR_PAGES: u64 = 512;

fn always(w: &World<'_>, cow: CowHuge) {
    w.vm.set_huge_knobs(&HugeKnobs::DEFAULT.with_enabled(Enabled::Always).with_cow(cow)).unwrap();
}

/// In each setup with huge pages; the huge zero page stays, so it is made before
/// frames are counted.
fn in_each(nr_cpus: usize, arena_bytes: u64, test: impl Fn(&World<'_>)) {
    for setup in Setup::all() {
        eprintln!("{setup:?}");
        let vm = setup.vm(nr_cpus, arena_bytes);
        let cpu = vm.machine().bind(softfault::CpuId(0)).unwrap();
        let thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Always);
        vm.set_huge_knobs(&thp).unwrap();
        let space = vm.new_space().unwrap();
        space.mmap(AT, HUGE, READ, PRIVATE | FIXED).unwrap();
        assert_eq!(space.handle_fault(AT, Access::Read), Ok(FaultDone::HugeZero));
        drop(space);
        let before = vm.vmstat().nr_free_pages;
        let space = vm.new_space().unwrap();
        test(&World { vm: &vm, cpu: &cpu, space: &space });
        check(&vm, &[&space]);
        drop(space);
        check(&vm, &[]);
        assert_eq!(vm.vmstat().nr_free_pages, before, "frames were lost or freed twice");
        assert_eq!(vm.machine().violations(), (0, None));
    }
}

fn get(running: &Running<'_>, addr: u64) -> u64 {
    running.read_u64(addr).unwrap()
}

fn put(running: &Running<'_>, addr: u64, value: u64) {
    running.write_u64(addr, value).unwrap();
}

/// CPUs that go from round to round together. Nobody waits for ever for one that
/// has failed.
#[derive(Default)]
struct Rounds {
    nr_begun: AtomicU64,
    /// In this round.
    nr_done: AtomicU64,
}

impl Rounds {
    /// By the test's own CPU.
    fn begin(&self) {
        self.nr_done.store(0, SeqCst);
        self.nr_begun.fetch_add(1, SeqCst);
    }

    /// Waits for the others.
    fn end(&self, nr_others: u64) {
        wait_until(|| self.nr_done.load(SeqCst) == nr_others);
    }

    /// By another CPU: does `what` in each round until it is told to stop.
    fn each(&self, stop: &AtomicBool, what: impl Fn(u64)) {
        for round in 0.. {
            while self.nr_begun.load(SeqCst) <= round {
                if stop.load(SeqCst) {
                    return;
                }
                std::hint::spin_loop();
            }
            what(round);
            self.nr_done.fetch_add(1, SeqCst);
        }
    }
}

/// Some fault with small pages, some with huge ones, all at the same hole.
#[test]
fn t2_a_small_and_a_huge_fault_race_on_one_entry() {
    in_each(3, 64 << 20, |w| {
        // Whether huge pages are wanted changes all the time, so that one CPU comes
        // with a huge page and the other with a table.
        let rounds = Rounds::default();
        let actor = |first: u64| {
            let rounds = &rounds;
            move |running: &Running<'_>, stop: &AtomicBool| {
                rounds.each(stop, |round| {
                    let addr = AT + (first + 7 * round) % NR_PAGES * PAGE;
                    put(running, addr, addr + round);
                    assert_eq!(get(running, addr), addr + round);
                });
            }
        };
        let (a, b) = (actor(0), actor(1));
        let (mut nr_huge, mut nr_small) = (0, 0);
        w.race(&[&a, &b], |_| {
            for round in 0..60 {
                // The leaf table has to go, too.
                w.space.munmap(AT, HUGE).unwrap();
                w.map(AT, NR_PAGES, RW);
                w.space.set_thp_disable(round % 3 == 0);
                rounds.begin();
                if round % 3 == 2 {
                    // A huge page has to be zeroed first, a table not: later is fair.
                    std::thread::yield_now();
                }
                w.space.set_thp_disable(round % 3 == 2);
                rounds.end(2);
                for first in [0, 1] {
                    let addr = AT + (first + 7 * round) % NR_PAGES * PAGE;
                    let mut bytes = [0; 8];
                    w.space.read(addr, &mut bytes).unwrap();
                    assert_eq!(u64::from_ne_bytes(bytes), addr + round, "round {round}: a store was lost");
                }
                check(w.vm, &[w.space]);
                let huge = w.rss().anon_huge > 0;
                assert!(w.rss().anon == if huge { NR_PAGES } else { 2 });
                nr_huge += u64::from(huge);
                nr_small += u64::from(!huge);
            }
        });
        assert!(nr_huge > 0 && nr_small > 0, "{nr_huge} huge and {nr_small} small ones won");
    });
}

/// Two want one MiB each of the same pages. Whoever is slower at an entry gives the
/// frame back that it had for it; whether all are back is looked at in the end.
#[test]
fn batches_race_for_the_same_pages() {
    const NR: u64 = 256;
    for setup in Setup::all().into_iter().filter(|setup| setup.discipline == Discipline::Lockfree) {
        in_setup(setup, 3, 64 << 20, |w| {
            let mut thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Always);
            thp.sizes.fill(SizeEnabled::Always);
            w.vm.set_huge_knobs(&thp).unwrap();
            let (begin, end) = (Barrier::new(3), Barrier::new(3));
            let stop = AtomicBool::new(false);
            let actor = |page: u64| {
                let (begin, end, stop) = (&begin, &end, &stop);
                move |running: &Running<'_>, _: &AtomicBool| {
                    loop {
                        begin.wait();
                        if stop.load(SeqCst) {
                            return;
                        }
                        put(running, AT + page * PAGE, page + 1);
                        assert_eq!(get(running, AT + page * PAGE), page + 1);
                        end.wait();
                    }
                }
            };
            let (a, b) = (actor(0), actor(NR - 1));
            w.race(&[&a, &b], |running| {
                for round in 0..400 {
                    w.map(AT, NR, RW);
                    begin.wait();
                    end.wait();
                    for page in 0..NR {
                        let written = if page == 0 || page == NR - 1 { page + 1 } else { 0 };
                        assert_eq!(get(running, AT + page * PAGE), written, "round {round}: page {page}");
                    }
                    assert_eq!(w.rss().anon, NR);
                }
                stop.store(true, SeqCst);
                begin.wait();
            });
            assert!(w.vm.huge_stat(Order(8)).unwrap().anon_fault_alloc > 0);
        });
    }
}

/// One CPU splits and joins again; the others store, load, and walk without locks.
#[test]
fn t3_split_while_others_read_write_and_walk() {
    in_each(4, 64 << 20, |w| {
        w.map(AT, NR_PAGES, RW);
        (0..NR_PAGES).for_each(|i| w.space.write(AT + i * PAGE, &(i << 32).to_ne_bytes()).unwrap());
        let (nr_stores, nr_walks) = (AtomicU64::new(0), AtomicU64::new(0));
        let writer = |running: &Running<'_>, stop: &AtomicBool| {
            let mut round = 0;
            while !stop.load(SeqCst) {
                let page = round * 37 % NR_PAGES;
                let addr = AT + page * PAGE;
                let before = get(running, addr);
                assert_eq!(before >> 32, page, "page {page} shows {before:#x}");
                put(running, addr, before + 1);
                assert_eq!(get(running, addr), before + 1, "a store to page {page} was lost");
                round += 1;
                nr_stores.fetch_add(1, SeqCst);
            }
        };
        let reader = |running: &Running<'_>, stop: &AtomicBool| {
            let mut page = 0;
            while !stop.load(SeqCst) {
                let seen = get(running, AT + page * PAGE);
                assert_eq!(seen >> 32, page, "page {page} shows {seen:#x}");
                page = (page + 101) % NR_PAGES;
            }
        };
        let walker = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(SeqCst) {
                let mut nr = 0;
                running.space().mincore(AT, HUGE, &mut |nr_run, here| nr += nr_run * u64::from(here)).unwrap();
                assert_eq!(nr, NR_PAGES, "a page was not there for a moment");
                let mut bytes = [0; 8];
                running.space().read(AT + 77 * PAGE, &mut bytes).unwrap();
                assert_eq!(u64::from_ne_bytes(bytes) >> 32, 77);
                nr_walks.fetch_add(1, SeqCst);
            }
        };
        w.race(&[&writer, &reader, &walker], |_| {
            wait_until(|| nr_stores.load(SeqCst) > 100 && nr_walks.load(SeqCst) > 2);
            for round in 0..60 {
                let splits = w.vm.event(Event::ThpSplitPmd);
                // Rights change at a part, and are the same again.
                let at = AT + (1 + round * 13 % 500) * PAGE;
                w.space.mprotect(at, PAGE, RWX).unwrap();
                assert_eq!(w.vm.event(Event::ThpSplitPmd), splits + 1);
                w.space.mprotect(at, PAGE, RW).unwrap();
                w.space.collapse(AT).unwrap();
                assert_eq!(w.rss().anon_huge, NR_PAGES);
            }
        });
    });
}

/// Advice splits and has nothing else to shoot down. A store where a clean huge
/// translation was loaded before finds a small one, and no CPU has both.
#[test]
fn t3_after_a_split_nobody_has_the_huge_translation() {
    in_each(2, 64 << 20, |w| {
        w.map(AT, NR_PAGES, RW);
        w.space.set_thp_disable(true);
        assert_eq!(w.space.handle_fault(AT, Access::Read), Ok(FaultDone::ZeroFrame));
        w.space.set_thp_disable(false);
        w.space.collapse(AT).unwrap();
        let (loaded, split) = (Barrier::new(2), Barrier::new(2));
        let other = |running: &Running<'_>, _: &AtomicBool| {
            assert_eq!(get(running, AT + 9 * PAGE), 0);
            loaded.wait();
            split.wait();
            put(running, AT + 9 * PAGE, 1);
        };
        w.race(&[&other], |_| {
            loaded.wait();
            w.space.madvise(AT + 300 * PAGE, PAGE, Advice::Random).unwrap();
            split.wait();
        });
        assert_eq!(w.vm.event(Event::ThpSplitPmd), 1);
    });
}

/// A store through a translation that is clean, while the mapping is split: the
/// bit is in the huge entry or in the small one.
#[test]
fn t3_no_dirty_bit_is_lost() {
    in_each(2, 64 << 20, |w| {
        let rounds = Rounds::default();
        let writer = |running: &Running<'_>, stop: &AtomicBool| {
            rounds.each(stop, |round| put(running, AT + round * 11 % NR_PAGES * PAGE, round + 1));
        };
        w.race(&[&writer], |_| {
            for round in 0..fewer(80) {
                w.map(AT, NR_PAGES, RW);
                // Zeroes that were read, made huge: memory that nobody has written.
                w.space.set_thp_disable(true);
                assert_eq!(w.space.handle_fault(AT, Access::Read), Ok(FaultDone::ZeroFrame));
                w.space.set_thp_disable(false);
                w.space.collapse(AT).unwrap();
                let dirty = |w: &World<'_>| {
                    let mut nr = 0;
                    w.space.smaps(&mut |entry| nr += entry.dirty_pages);
                    nr
                };
                assert_eq!(dirty(w), 0);
                rounds.begin();
                w.space.mprotect(AT + 300 * PAGE, PAGE, READ).unwrap();
                w.space.mprotect(AT + 300 * PAGE, PAGE, RW).unwrap();
                rounds.end(1);
                assert!(dirty(w) > 0, "round {round}: what was written is not dirty");
            }
        });
    });
}

/// Parent and child both write to what they share, and both split: each has its
/// own in the end.
#[test]
fn t6_reuse_while_another_space_splits() {
    for cow in [CowHuge::Split, CowHuge::Copy] {
        in_each(2, 64 << 20, |w| {
            always(w, cow);
            for round in 0..40u64 {
                w.map(AT, NR_PAGES, RW);
                (0..NR_PAGES).for_each(|i| w.space.write(AT + i * PAGE, &i.to_ne_bytes()).unwrap());
                let child = w.space.fork().unwrap();
                let start = Barrier::new(2);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let cpu = w.vm.machine().bind(softfault::CpuId(1)).unwrap();
                        {
                            let running = cpu.enter(&child).unwrap();
                            start.wait();
                            child.munmap(AT + round % NR_PAGES * PAGE, PAGE).unwrap();
                            for i in (0..NR_PAGES).filter(|i| *i != round % NR_PAGES).step_by(3) {
                                put(&running, AT + i * PAGE, i + 1000);
                            }
                            for i in (0..NR_PAGES).filter(|i| *i != round % NR_PAGES) {
                                let own = if get(&running, AT + i * PAGE) >= 1000 { i + 1000 } else { i };
                                assert_eq!(get(&running, AT + i * PAGE), own, "the child's page {i}");
                            }
                        }
                        // The last of its frames go while the parent decides.
                        drop(child);
                    });
                    let running = w.cpu.enter(w.space).unwrap();
                    start.wait();
                    for i in (0..NR_PAGES).step_by(2) {
                        put(&running, AT + i * PAGE, i + 2000);
                    }
                    for i in 0..NR_PAGES {
                        let own = if i % 2 == 0 { i + 2000 } else { i };
                        assert_eq!(get(&running, AT + i * PAGE), own, "the parent's page {i}");
                    }
                });
                check(w.vm, &[w.space]);
            }
        });
    }
}

/// A debugger writes to what shows the huge zero page, while it goes and comes.
#[test]
fn t7_forced_writes_to_the_huge_zero_page() {
    in_each(4, 64 << 20, |w| {
        w.map(AT, NR_PAGES, READ);
        w.map(AT + 2 * HUGE, NR_PAGES, RW);
        let nr_written = AtomicU64::new(0);
        let debugger = |running: &Running<'_>, stop: &AtomicBool| {
            let mut round = 1u64;
            while !stop.load(SeqCst) {
                let addr = AT + round * 31 % NR_PAGES * PAGE;
                running.space().write_forced(addr, &round.to_ne_bytes()).unwrap();
                nr_written.fetch_add(1, SeqCst);
                round += 1;
            }
        };
        let dropper = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(SeqCst) {
                running.space().madvise(AT, HUGE, DONTNEED).unwrap();
                let _ = running.space().handle_fault(AT + 5 * PAGE, Access::Read);
            }
        };
        // Somebody else's zeroes.
        let reader = |running: &Running<'_>, stop: &AtomicBool| {
            let mut page = 0;
            while !stop.load(SeqCst) {
                assert_eq!(get(running, AT + 2 * HUGE + page * PAGE), 0, "the zero page was written");
                page = (page + 31) % NR_PAGES;
            }
        };
        w.race(&[&debugger, &dropper, &reader], |_| wait_until(|| nr_written.load(SeqCst) > 300));
        // The program itself may not write, whatever was forced.
        assert_eq!(w.space.handle_fault(AT, Access::Write), Err(FaultError::NoRights));
    });
}

/// Rights change all the time; what is dropped is gone all the same.
#[test]
fn t10_dropped_while_rights_change() {
    in_each(3, 64 << 20, |w| {
        w.map(AT, NR_PAGES, RW);
        let nr_changes = AtomicU64::new(0);
        let changer = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(SeqCst) {
                let first = nr_changes.fetch_add(1, SeqCst) * 7 % 256 + 128;
                for (at, len) in [(AT + first * PAGE, 3 * PAGE), (AT, HUGE)] {
                    running.space().mprotect(at, len, READ).unwrap();
                    running.space().mprotect(at, len, RWX).unwrap();
                }
                running.space().mprotect(AT, HUGE, RW).unwrap();
            }
        };
        let reader = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(SeqCst) {
                let seen = get(running, AT + 200 * PAGE);
                assert!(seen == 0 || seen == 7, "{seen:#x}");
            }
        };
        w.race(&[&changer, &reader], |running| {
            wait_until(|| nr_changes.load(SeqCst) > 3);
            for round in 0..60 {
                let pages = [0, 127, 128, 200, 300, 511];
                for page in pages {
                    // The other one may just have taken the right away.
                    while running.write_u64(AT + page * PAGE, 7).is_err() {}
                }
                let (first, nr) = if round % 2 == 0 { (0, NR_PAGES) } else { (100, 250) };
                w.space.madvise(AT + first * PAGE, nr * PAGE, DONTNEED).unwrap();
                for page in pages {
                    let gone = (first..first + nr).contains(&page);
                    assert_eq!(get(running, AT + page * PAGE), if gone { 0 } else { 7 }, "round {round}: page {page}");
                }
            }
        });
    });
}

/// Of many huge pages little is kept, again and again: all else comes back at once,
/// and there is always memory for the next ones.
#[test]
fn t11_memory_of_partly_unmapped_huge_pages_comes_back() {
    const NR: u64 = 6;
    in_each(3, 64 << 20, |w| {
        let actor = |cpu: u64| {
            move |running: &Running<'_>, _: &AtomicBool| {
                let space = running.space();
                let at = AT + cpu * 4 * NR * HUGE;
                // In all far more than there is.
                for round in 0..24 {
                    space.mmap(at, NR * HUGE, RW, PRIVATE | FIXED).unwrap();
                    for i in 0..NR {
                        let kept = at + i * HUGE + (round * 67 + i) % NR_PAGES * PAGE;
                        put(running, kept, kept);
                        space.munmap(at + i * HUGE, kept - (at + i * HUGE)).ok();
                        let end = at + (i + 1) * HUGE;
                        if kept + PAGE < end {
                            space.munmap(kept + PAGE, end - kept - PAGE).unwrap();
                        }
                        assert_eq!(get(running, kept), kept);
                    }
                    space.munmap(at, NR * HUGE).unwrap();
                }
            }
        };
        let (a, b, c) = (actor(0), actor(1), actor(2));
        w.race(&[&a, &b], |running| c(running, &AtomicBool::new(false)));
        assert!(w.vm.event(Event::ThpSplitPmd) > 300, "{} splits", w.vm.event(Event::ThpSplitPmd));
        assert_eq!(w.rss().anon, 0);
        // Kept pages alone hold memory: 20 huge pages, one page each.
        let before = w.vm.vmstat().nr_free_pages;
        w.map(AT, 20 * NR_PAGES, RW);
        for i in 0..20 {
            w.space.write(AT + i * HUGE, &[1]).unwrap();
            w.space.munmap(AT + i * HUGE + PAGE, HUGE - PAGE).unwrap();
        }
        assert!(before - w.vm.vmstat().nr_free_pages < 20 + 64, "only what is mapped is kept");
        w.space.munmap(AT, 20 * HUGE).unwrap();
    });
}

/// Advice against huge pages while others fault: what comes after it is small.
#[test]
fn t2_advice_against_them_wins_over_faults_that_come_later() {
    in_each(3, 64 << 20, |w| {
        let faults = |running: &Running<'_>, stop: &AtomicBool| {
            let mut page = 0;
            while !stop.load(SeqCst) {
                // Between unmapping and mapping there is nothing.
                let _ = running.write_u64(AT + page % NR_PAGES * PAGE, 1);
                page += 17;
            }
        };
        w.race(&[&faults, &faults], |running| {
            for _ in 0..60 {
                w.space.munmap(AT, HUGE).unwrap();
                w.map(AT, NR_PAGES, NONE);
                w.space.madvise(AT, HUGE, Advice::NoHugePage).unwrap();
                w.space.mprotect(AT, HUGE, RW).unwrap();
                put(running, AT, 1);
                assert_eq!(w.rss().anon_huge, 0, "a huge page after the advice");
                w.map(AT, NR_PAGES, RW);
                put(running, AT, 1);
            }
        });
    });
}
