//! F6, F7 and F8: VMAs and tables change under readers, also under CPUs that do not run the space.

use super::*;

#[test]
fn f6_growth_merge_and_split_under_readers() {
    in_each_setup(3, ARENA, |w| {
        const STEPS: u64 = 300;
        assert_eq!(w.space.mmap(BASE, 8 * PAGE, RW, PRIVATE | FIXED | GROWSDOWN), Ok(BASE));
        let lowest = AtomicU64::new(0);
        let grow = |running: &Running<'_>, _: &AtomicBool| {
            for step in 1..=STEPS {
                running.write_u64(BASE - step * PAGE, mark(1, step)).unwrap();
                lowest.store(step, SeqCst);
            }
        };
        // All that is there may be read at every moment, in one tree or the other.
        let read = |running: &Running<'_>, stop: &AtomicBool| {
            let mut step = 0;
            while !stop.load(SeqCst) {
                let low = lowest.load(SeqCst);
                step = if step >= low { 0 } else { step + 1 };
                let word = running.read_u64(BASE - step * PAGE).unwrap();
                assert_eq!(count_in(1, word), step);
                running.write_u64(BASE + 7 * PAGE, 1).unwrap();
            }
        };
        w.race(&[&grow, &read], |_| {
            while lowest.load(SeqCst) < STEPS {
                w.space.madvise(BASE + 6 * PAGE, 2 * PAGE, DONTFORK).unwrap();
                w.space.mprotect(BASE + 2 * PAGE, 2 * PAGE, READ).unwrap();
                w.space.mprotect(BASE + PAGE, 2 * PAGE, READ).unwrap();
                w.space.mprotect(BASE + PAGE, 3 * PAGE, RW).unwrap();
                w.space.madvise(BASE + 6 * PAGE, 2 * PAGE, DOFORK).unwrap();
            }
        });
        assert_eq!(w.space.nr_vmas(), 1, "all parts are one again");
        assert_eq!(w.space.vma(BASE).unwrap().range.nr_pages(), STEPS + 8);
    });
}

#[test]
fn f7_a_remote_fault_is_charged_to_its_target() {
    in_each_setup(2, ARENA, |w| {
        let other = w.vm.new_space().unwrap();
        w.map(BASE, 64, RW);
        // CPU 1 runs in the world's space and faults in the other one. Both have
        // been through as many changes, so that only their numbers tell them apart.
        w.space.mmap(0, PAGE, RW, SHARED).unwrap();
        other.mmap(BASE, 64 * PAGE, RW, PRIVATE | FIXED).unwrap();
        let shared = other.mmap(0, 8 * PAGE, RW, SHARED).unwrap();
        let remote = |running: &Running<'_>, _: &AtomicBool| {
            for page in 0..64 {
                other.handle_fault(BASE + page * PAGE, Access::Write).unwrap();
            }
            (0..8).for_each(|page| other.write(shared + page * PAGE, b"x").unwrap());
            // This CPU's hint for the one must not be used for the other.
            other.handle_fault(BASE, Access::Read).unwrap();
            running.write_u64(BASE, 1).unwrap();
        };
        let before = w.vm.event(Event::Fault);
        w.race(&[&remote], |_| ());
        let (mine, others) = (w.rss(), other.rss_pages());
        assert_eq!((others.anon, others.shmem), (64, 8));
        assert_eq!((mine.anon, mine.shmem), (1, 0));
        assert!(others.minor_faults >= 72 && mine.minor_faults >= 1);
        assert_eq!(w.vm.event(Event::Fault) - before, others.minor_faults + mine.minor_faults);
        check(w.vm, &[w.space, &other]);
    });
}

/// F7 against F3: the space's own CPU unmaps what a foreign CPU faults in.
#[test]
fn f7_remote_faults_and_munmap() {
    in_each_setup(3, ARENA, |w| {
        let other = w.vm.new_space().unwrap();
        let fault = |_: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(SeqCst) {
                for page in 0..PAGES {
                    match other.write(BASE + page * PAGE, &mark(page, 1).to_ne_bytes()) {
                        Err(e) if e.fault != MAPERR => panic!("{e}"),
                        _ => {}
                    }
                    let mut word = [0; 8];
                    if other.read(BASE + page * PAGE, &mut word).is_ok() {
                        count_in(page, u64::from_ne_bytes(word));
                    }
                }
            }
        };
        w.race(&[&fault, &churn], |_| {
            for _ in 0..40 {
                other.mmap(BASE, PAGES * PAGE, RW, PRIVATE | FIXED).unwrap();
                yield_now();
                other.munmap(BASE, PAGES * PAGE).unwrap();
            }
        });
        assert_eq!(other.rss_pages().anon, 0);
        check(w.vm, &[w.space, &other]);
    });
}

#[test]
fn f8_tables_go_while_walkers_are_inside() {
    const STRETCH: u64 = 512 * PAGE;
    const ROUNDS: u64 = 13;
    in_each_setup(3, ARENA, |w| {
        let at = BASE.next_multiple_of(512 * STRETCH);
        let passes = AtomicU64::new(0);
        let walk = |running: &Running<'_>, stop: &AtomicBool| {
            let mut n = 0;
            while !stop.load(SeqCst) {
                n += 1;
                passes.store(n, SeqCst);
                // A few pages in each leaf table, so that a CPU remembers it, and so many
                // tables that every level comes and goes.
                for (page, i) in (0..PAGES).flat_map(|page| (0..6).map(move |i| (page, i))) {
                    let addr = at + page * STRETCH + i * PAGE;
                    match running.write_u64(addr, mark(page, n)).and_then(|()| running.read_u64(addr)) {
                        Ok(word) => assert!([0, n].contains(&count_in(page, word))),
                        Err(trap) => assert_eq!(trap.cause, MAPERR),
                    }
                }
            }
        };
        let before = w.vm.event(Event::TableFree);
        w.race(&[&walk, &churn], |running| {
            for round in 0..ROUNDS {
                w.map(at, PAGES * 512, RW);
                for page in 0..PAGES {
                    running.read_u64(at + page * STRETCH).unwrap();
                }
                for _ in 0..round % 4 {
                    // Keeps the mapping and frees its tables.
                    w.space.madvise(at, PAGES * STRETCH, DONTNEED).unwrap();
                }
                let n = passes.load(SeqCst);
                wait_until(|| passes.load(SeqCst) > n);
                w.space.munmap(at, PAGES * STRETCH).unwrap();
            }
        });
        assert!(w.vm.event(Event::TableFree) - before >= ROUNDS * PAGES, "no table was freed");
    });
}

/// A CPU that stays in one leaf table remembers it; here the table goes again and
/// again, and nothing else changes that would make the CPU forget.
#[test]
fn f8_a_remembered_table_goes() {
    in_each_setup(2, ARENA, |w| {
        let (at, reuse) = (BASE.next_multiple_of(512 * PAGE), BASE + (1 << 30));
        w.map(at, 512, RW);
        w.map(reuse, 64, RW);
        let passes = AtomicU64::new(0);
        let touch = |running: &Running<'_>, stop: &AtomicBool| {
            let mut n = 0;
            while !stop.load(SeqCst) {
                n += 1;
                for page in 0..PAGES {
                    running.write_u64(at + page * PAGE, mark(page, n)).unwrap();
                    let back = count_in(page, running.read_u64(at + page * PAGE).unwrap());
                    assert!(back == 0 || back == n, "wrote {n} and read {back}");
                }
                passes.store(n, SeqCst);
            }
        };
        w.race(&[&touch], |running| {
            for _ in 0..16 {
                let n = passes.load(SeqCst);
                wait_until(|| passes.load(SeqCst) > n + 1);
                w.space.madvise(at, 512 * PAGE, DONTNEED).unwrap();
                // The frames find another use.
                for page in 0..64 {
                    (0..512).for_each(|i| running.write_u64(reuse + page * PAGE + 8 * i, u64::MAX).unwrap());
                }
                w.space.madvise(reuse, 64 * PAGE, DONTNEED).unwrap();
            }
        });
    });
}
