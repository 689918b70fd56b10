//! T6, T7, T10: writes to shared pages, to the huge zero page, and to what is dropped.

use super::*;

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
