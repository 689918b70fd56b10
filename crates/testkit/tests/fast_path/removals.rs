//! F3 and F4: stores while another CPU makes them impossible, and possible again.

use super::*;

/// Four phases: allowed, changing, forbidden, changing. An access that began and
/// ended in one of the two that stand still has to do as it says.
#[derive(Default)]
struct Phases {
    now: AtomicU64,
    nr_judged: AtomicU64,
}

impl Phases {
    fn next(&self) {
        self.now.fetch_add(1, SeqCst);
    }
    /// Until another CPU has tried a few times in this phase.
    fn wait(&self) {
        let before = self.nr_judged.load(SeqCst);
        wait_until(|| self.nr_judged.load(SeqCst) > before + 2);
    }
    fn judge(&self, access: impl FnOnce() -> Result<(), Trap>) {
        let before = self.now.load(SeqCst);
        let result = access();
        if self.now.load(SeqCst) != before {
            return;
        }
        self.nr_judged.fetch_add(1, SeqCst);
        match (before % 4, result) {
            (0, Err(trap)) => panic!("refused though allowed: {trap}"),
            (2, Ok(())) => panic!("done though the operation that forbids it had returned"),
            _ => {}
        }
    }
}

/// F3: CPU 1 stores and loads without pause, CPU 2 reuses what is freed, and CPU 0
/// makes its stores impossible and possible again. While they are impossible, the
/// words at `frozen_at` do not change.
fn stores_against(
    forbid: impl Fn(&World<'_>),
    allow: impl Fn(&World<'_>),
    loads_stay: bool,
    refusal: FaultError,
    frozen_at: Option<u64>,
) {
    let nr_runs = AtomicU64::new(0);
    in_each_setup(3, ARENA, |w| {
        w.map(BASE, PAGES, RW);
        if (nr_runs.fetch_add(1, SeqCst) / 2).is_multiple_of(2) {
            // A neighbour keeps the table in place, so that entries go one by one.
            w.map(BASE + 2 * PAGES * PAGE, 1, RW);
            w.space.write(BASE + 2 * PAGES * PAGE, b"stays").unwrap();
        }
        let phases = Phases::default();
        let store = |running: &Running<'_>, stop: &AtomicBool| {
            let mut n = 0;
            while !stop.load(SeqCst) {
                n += 1;
                for page in 0..PAGES {
                    let at = BASE + page * PAGE;
                    let allowed = |result: Result<u64, Trap>| match result {
                        Ok(word) => Ok(_ = count_in(page, word)),
                        Err(trap) if trap.cause == refusal => Err(trap),
                        Err(trap) => panic!("{trap}"),
                    };
                    phases.judge(|| allowed(running.write_u64(at, mark(page, n)).map(|()| 0)));
                    if loads_stay {
                        allowed(running.read_u64(at)).unwrap();
                    } else {
                        phases.judge(|| allowed(running.read_u64(at)));
                    }
                }
            }
        };
        w.race(&[&store, &churn], |running| {
            for _ in 0..8 {
                phases.next();
                forbid(w);
                phases.next();
                if frozen_at.is_none() {
                    phases.wait();
                } else if let Some(at) = frozen_at {
                    let words =
                        || (0..PAGES).map(|page| running.read_u64(at + page * PAGE).unwrap()).collect::<Vec<_>>();
                    let first = words();
                    phases.wait();
                    assert_eq!(words(), first, "a store went through after the operation had returned");
                    (0..PAGES).for_each(|page| _ = count_in(page, first[page as usize]));
                }
                phases.next();
                allow(w);
                phases.next();
                phases.wait();
            }
        });
    });
}

#[test]
fn f3_munmap() {
    let unmap = |w: &World<'_>| w.space.munmap(BASE, PAGES * PAGE).unwrap();
    stores_against(unmap, |w| w.map(BASE, PAGES, RW), false, MAPERR, None);
}

#[test]
fn f3_mprotect() {
    let protect = |prot| move |w: &World<'_>| w.space.mprotect(BASE, PAGES * PAGE, prot).unwrap();
    stores_against(protect(READ), protect(RW), true, ACCERR, Some(BASE));
}

#[test]
fn f3_mprotect_to_nothing() {
    let protect = |prot| move |w: &World<'_>| w.space.mprotect(BASE, PAGES * PAGE, prot).unwrap();
    stores_against(protect(NONE), protect(RW), false, ACCERR, None);
}

#[test]
fn f3_mremap() {
    const AWAY: u64 = BASE + (64 << 20);
    let go = |from: u64, to: u64| {
        move |w: &World<'_>| {
            let len = PAGES * PAGE;
            assert_eq!(w.space.mremap(from, len, len, MAYMOVE | MREMAP_FIXED, to), Ok(to));
        }
    };
    stores_against(go(BASE, AWAY), go(AWAY, BASE), false, MAPERR, Some(AWAY));
}

/// Guards are no F3 of the list, but the same race.
#[test]
fn f3_guards() {
    let advise = |advice| move |w: &World<'_>| w.space.madvise(BASE, PAGES * PAGE, advice).unwrap();
    stores_against(advise(GUARD_INSTALL), advise(GUARD_REMOVE), false, FaultError::Guard, None);
}

/// Values written before it began are gone when it returns; what a thread wrote
/// it reads back, or nothing at all.
#[test]
fn f3_madv_dontneed() {
    in_each_setup(3, ARENA, |w| {
        w.map(BASE, PAGES, RW);
        w.map(BASE + PAGES * PAGE, PAGES, RW);
        let finished: [AtomicU64; PAGES as usize] = Default::default();
        // Odd while the second half, to which only CPU 0 stores, is empty.
        let (gone, nr_seen) = (AtomicU64::new(0), AtomicU64::new(0));
        let store = |running: &Running<'_>, stop: &AtomicBool| {
            let mut n = 0;
            while !stop.load(SeqCst) {
                n += 1;
                for page in 0..PAGES {
                    let at = BASE + page * PAGE;
                    running.write_u64(at, mark(page, n)).unwrap();
                    finished[page as usize].store(n, SeqCst);
                    let back = count_in(page, running.read_u64(at).unwrap());
                    assert!(back == 0 || back == n, "wrote {n} and read {back}");
                    let before = gone.load(SeqCst);
                    let other = count_in(PAGES + page, running.read_u64(at + PAGES * PAGE).unwrap());
                    if before % 2 == 1 && gone.load(SeqCst) == before {
                        assert_eq!(other, 0, "this CPU still sees the page");
                        nr_seen.fetch_add(1, SeqCst);
                    }
                }
            }
        };
        w.race(&[&store, &churn], |running| {
            for round in 0..16 {
                let before: Vec<u64> = finished.iter().map(|n| n.load(SeqCst)).collect();
                w.space.madvise(BASE, 2 * PAGES * PAGE, DONTNEED).unwrap();
                gone.fetch_add(1, SeqCst);
                for page in 0..PAGES {
                    let now = count_in(page, running.read_u64(BASE + page * PAGE).unwrap());
                    assert!(now == 0 || now > before[page as usize], "{now} outlived MADV_DONTNEED");
                }
                let before = nr_seen.load(SeqCst);
                wait_until(|| nr_seen.load(SeqCst) > before);
                gone.fetch_add(1, SeqCst);
                for page in PAGES..2 * PAGES {
                    running.write_u64(BASE + page * PAGE, mark(page, round)).unwrap();
                }
                // It gets to know them.
                let n = finished[0].load(SeqCst);
                wait_until(|| finished[0].load(SeqCst) > n + 1);
            }
        });
        assert!(nr_seen.load(SeqCst) > 0, "the other CPU never looked");
    });
}

/// MAP_FIXED puts a read-only mapping in place of a writable one and back: no
/// store ends in it, and nobody who may access it is ever refused.
#[test]
fn f4_the_vma_is_replaced_before_the_install() {
    in_each_setup(3, ARENA, |w| {
        w.map(BASE, PAGES, RW);
        let phases = Phases::default();
        let store = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(SeqCst) {
                for page in 0..PAGES {
                    let at = BASE + page * PAGE;
                    phases.judge(|| match running.write_u64(at, mark(page, 1)) {
                        Err(trap) if trap.cause != ACCERR => panic!("{trap}"),
                        other => other,
                    });
                    count_in(page, running.read_u64(at).expect("there is always a mapping that may be read"));
                }
            }
        };
        w.race(&[&store, &churn], |running| {
            let read_all = || (0..PAGES).map(|page| running.read_u64(BASE + page * PAGE).unwrap()).sum::<u64>();
            for _ in 0..8 {
                phases.next();
                w.map(BASE, PAGES, READ);
                phases.next();
                assert_eq!(read_all(), 0, "new memory is zero");
                phases.wait();
                assert_eq!(read_all(), 0, "a store went into memory that is read-only");
                phases.next();
                w.map(BASE, PAGES, RW);
                phases.next();
                phases.wait();
            }
        });
    });
}
