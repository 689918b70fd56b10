//! F1, F2, F9 and F13: CPUs that install entries at the same time, in empty entries and over the zero frame.

use super::*;

#[test]
fn f1_two_cpus_fault_one_page() {
    const ROUNDS: u64 = 12;
    const PAGES: u64 = 32;
    in_each_setup(3, ARENA, |w| {
        w.map(BASE, ROUNDS * PAGES, RW);
        let gate = Barrier::new(3);
        let failed = AtomicU64::new(0);
        let touch = || {
            for round in 0..ROUNDS {
                gate.wait();
                for page in round * PAGES..(round + 1) * PAGES {
                    let done = w.space.handle_fault(BASE + page * PAGE, Access::Write);
                    failed.fetch_add(u64::from(done.is_err()), SeqCst);
                }
            }
        };
        let before = w.vm.event(Event::AnonInstall);
        w.race(&[&|_, _| touch(), &|_, _| touch()], |_| touch());
        assert_eq!(failed.load(SeqCst), 0, "all succeed");
        assert_eq!(w.rss().anon, ROUNDS * PAGES, "resident +1 for each page");
        assert_eq!(w.vm.event(Event::AnonInstall) - before, ROUNDS * PAGES, "one frame installed for each page");
        assert_eq!(w.rss().minor_faults, 3 * ROUNDS * PAGES);
    });
}

/// Tables are installed by the same race, one level up.
#[test]
fn f1_two_cpus_fault_one_table() {
    const STRETCH: u64 = 512 * PAGE;
    in_each_setup(3, ARENA, |w| {
        let at = BASE.next_multiple_of(512 * STRETCH);
        w.map(at, 16 * 512, RW);
        let gate = Barrier::new(3);
        let touch = |i: u64| {
            for stretch in 0..16 {
                gate.wait();
                let _ = w.space.handle_fault(at + stretch * STRETCH + i * PAGE, Access::Write);
            }
        };
        w.race(&[&|_, _| touch(1), &|_, _| touch(2)], |_| touch(0));
        let nr_above = u64::from(Format::LEVELS) - 2;
        assert_eq!((w.rss().anon, w.rss().tables), (48, 16 + nr_above), "16 leaf tables and one of each level above");
    });
}

#[test]
fn f2_who_sees_the_entry_sees_the_page() {
    in_each_setup(2, ARENA, |w| {
        const PAGES: u64 = 16;
        let (round, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        let look = |_: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(SeqCst) {
                let now = round.load(SeqCst);
                for addr in (0..PAGES).map(|page| BASE + page * PAGE) {
                    // A look between two rounds may have left the zero frame there, which
                    // nobody counts.
                    let there = w.space.translate_at_rest(addr).filter(|there| there.rights.contains(Rights::WRITE));
                    let Some(there) = there else { continue };
                    let mut found = [Mapping { space: 0, vpn: Vpn(0) }; 4];
                    let nr = w.vm.rmap_anon(there.pfn, &mut found).min(found.len());
                    let nr_entries = found[..nr].iter().filter(|m| m.vpn.addr() == addr).count();
                    let mut page = [1; PAGE as usize];
                    w.space.read(addr, &mut page).unwrap();
                    // The pages stay until the next round begins.
                    if round.load(SeqCst) == now && now % 2 == 1 {
                        assert_eq!(nr_entries, 1, "rmap does not know the entry at {addr:#x}");
                        assert!(page.iter().all(|b| *b == 0), "the page at {addr:#x} was not clear");
                        seen.fetch_add(1, SeqCst);
                    }
                }
            }
        };
        w.race(&[&look], |running| {
            w.map(BASE, PAGES, RW);
            for _ in 0..20 {
                round.fetch_add(1, SeqCst);
                for page in 0..PAGES {
                    w.space.handle_fault(BASE + page * PAGE, Access::Write).unwrap();
                }
                let before = seen.load(SeqCst);
                wait_until(|| seen.load(SeqCst) > before);
                round.fetch_add(1, SeqCst);
                // Frames go back with something in them.
                for page in 0..PAGES {
                    running.store(BASE + page * PAGE, &[0xff; PAGE as usize]).unwrap();
                }
                w.space.madvise(BASE, PAGES * PAGE, DONTNEED).unwrap();
            }
        });
        assert!(seen.load(SeqCst) > 0, "the reader never saw a page");
    });
}

#[test]
fn f9_a_write_to_the_zero_page() {
    in_each_setup(3, ARENA, |w| {
        const ROUNDS: u64 = 24;
        w.map(BASE, ROUNDS * PAGES, RW);
        let gate = Barrier::new(3);
        let write = |running: &Running<'_>, i: u64| {
            for round in 0..ROUNDS {
                gate.wait();
                for page in round * PAGES..(round + 1) * PAGES {
                    // Everyone reads first: the zero frame; then everyone writes.
                    let _ = running.read_u64(BASE + page * PAGE + 8 * i);
                    let _ = running.write_u64(BASE + page * PAGE + 8 * i, mark(page, i));
                }
            }
        };
        for page in 0..ROUNDS * PAGES {
            assert_eq!(w.space.handle_fault(BASE + page * PAGE, Access::Read), Ok(FaultDone::ZeroFrame));
        }
        let zero = w.space.translate_at_rest(BASE).unwrap();
        assert_eq!(zero.rights, Rights::READ, "the zero frame is never writable");
        assert_eq!(w.rss().anon, 0, "and is charged to nobody");
        w.race(&[&|running, _| write(running, 1), &|running, _| write(running, 2)], |running| write(running, 0));
        let running = w.cpu.enter(w.space).unwrap();
        for page in 0..ROUNDS * PAGES {
            let at = BASE + page * PAGE;
            assert_ne!(w.space.translate_at_rest(at).unwrap().pfn, zero.pfn);
            let expected = |i| if i < 3 { mark(page, i) } else { 0 };
            for i in 0..512 {
                assert_eq!(running.read_u64(at + 8 * i), Ok(expected(i)), "a store is lost, or the page was not clear");
            }
        }
        assert_eq!(w.rss().anon, ROUNDS * PAGES);
        // `check`, which looks at the zero frame, comes behind this.
    });
}

#[test]
fn f13_filling_an_empty_entry_sends_no_shootdown() {
    in_each_setup(3, ARENA, |w| {
        w.map(BASE, 900, RW);
        let shared = w.space.mmap(0, 300 * PAGE, RW, SHARED).unwrap();
        let counts = || {
            let served = (0..3).map(|cpu| w.vm.machine().stats(CpuId(cpu)).unwrap().served).sum::<u64>();
            (w.vm.event(Event::Shootdown), w.vm.event(Event::Grace), served)
        };
        let touch = |running: &Running<'_>, i: u64| {
            for page in (i..900).step_by(3) {
                let at = BASE + page * PAGE;
                match page % 2 {
                    0 => running.write_u64(at, 1).unwrap(),
                    _ => assert_eq!(running.read_u64(at), Ok(0)),
                }
                running.write_u64(shared + page / 3 * PAGE, 1).unwrap();
            }
        };
        let before = counts();
        w.race(&[&|running, _| touch(running, 1), &|running, _| touch(running, 2)], |running| touch(running, 0));
        assert_eq!(counts(), before, "shootdowns, grace periods, flushes served");
        assert_eq!((w.rss().anon, w.rss().shmem), (450, 300));
        // The counters do count.
        let running = w.cpu.enter(w.space).unwrap();
        running.write_u64(BASE + PAGE, 1).unwrap();
        assert_eq!(w.vm.event(Event::Shootdown), before.0 + 1, "the zero frame gave way");
    });
}
