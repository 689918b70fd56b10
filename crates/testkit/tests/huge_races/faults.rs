//! T2, T11: faults of several sizes in one place, and advice against huge pages.

use super::*;

/// Some fault with small pages, some with huge ones, all at the same hole. Either may win, in each round.
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
            }
        });
    });
}

/// Two want one MiB each of the same pages. The one that is slower at an entry gives the
/// frame back that it had for it; whether all are back is looked at in the end.
#[test]
fn batches_race_for_the_same_pages() {
    const NR: u64 = 256;
    for setup in Setup::all().into_iter().filter(|setup| setup.fault_locking == FaultLocking::Lockfree) {
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
