//! F1 to F13 of the fast path on the hosted machine: several CPUs at once, every
//! discipline, both ways of invalidation.
//!
//! Where a case is about the order in which stores become visible (F2), the
//! models of `softfault-modelled` are the proof and this is the sanity check: a
//! host with strong ordering hides much. That fork writes a child's tables with
//! plain stores (F12) cannot be seen here at all; what is compared is the result.
#![deny(unsafe_code)]

mod common;

use common::*;
use softfault::hooks::Mapping;
use softfault::table::format::Format as _;
use softfault::{Access, CpuId, Event, FaultDone, FaultError, Rights, Vpn};
use softfault_host::Trap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::yield_now;

const ARENA: u64 = 16 << 20;
const MAPERR: FaultError = FaultError::NotMapped;
const ACCERR: FaultError = FaultError::NoRights;

/// A word that says which page it was written to.
fn mark(page: u64, n: u64) -> u64 {
    (0xa0 + page) << 48 | n
}

/// The count in a word of the page, 0 in an untouched one. Any other page's word
/// is a frame that was reused under a stale translation.
fn count_in(page: u64, word: u64) -> u64 {
    assert!(word == 0 || word >> 48 == 0xa0 + page, "page {page} has a foreign word {word:#x}");
    word & 0xffff_ffff_ffff
}

/// Takes frames and gives them back with words in them that are nobody's mark.
fn churn(running: &Running<'_>, stop: &AtomicBool) {
    let space = running.space();
    while !stop.load(SeqCst) {
        let at = space.mmap(0, 12 * PAGE, RW, PRIVATE).unwrap();
        for page in 0..12 {
            (0..4).for_each(|i| running.write_u64(at + page * PAGE + 8 * i, 0xdead_0000_0000).unwrap());
        }
        space.munmap(at, 12 * PAGE).unwrap();
    }
}

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

const PAGES: u64 = 6;

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

/// What was written before it began is gone when it returns; what a thread wrote
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

#[test]
fn f5_fork_while_siblings_write() {
    in_each_setup(3, ARENA, |w| {
        w.map(BASE, 2 * PAGES, RW);
        let begun: Vec<AtomicU64> = (0..2 * PAGES).map(|_| AtomicU64::new(0)).collect();
        let finished: Vec<AtomicU64> = (0..2 * PAGES).map(|_| AtomicU64::new(0)).collect();
        let count_up = |running: &Running<'_>, stop: &AtomicBool, pages: std::ops::Range<u64>| {
            let mut n = 0;
            while !stop.load(SeqCst) {
                n += 1;
                for page in pages.clone() {
                    begun[page as usize].store(n, SeqCst);
                    running.write_u64(BASE + page * PAGE, mark(page, n)).unwrap();
                    finished[page as usize].store(n, SeqCst);
                    let back = count_in(page, running.read_u64(BASE + page * PAGE).unwrap());
                    assert_eq!(back, n, "the parent's own store is lost");
                }
            }
        };
        let low = |running: &Running<'_>, stop: &AtomicBool| count_up(running, stop, 0..PAGES);
        let high = |running: &Running<'_>, stop: &AtomicBool| count_up(running, stop, PAGES..2 * PAGES);
        let numbers = |of: &[AtomicU64]| of.iter().map(|n| n.load(SeqCst)).collect::<Vec<_>>();
        w.race(&[&low, &high], |_| {
            for round in 0..8 {
                let (least, child) = (numbers(&finished), w.space.fork().unwrap());
                let most = numbers(&begun);
                let words = || {
                    (0..2 * PAGES).map(|page| {
                        let mut word = [0; 8];
                        child.read(BASE + page * PAGE, &mut word).unwrap();
                        count_in(page, u64::from_ne_bytes(word))
                    })
                };
                let first: Vec<u64> = words().collect();
                for page in 0..2 * PAGES as usize {
                    assert!(
                        (least[page]..=most[page]).contains(&first[page]),
                        "page {page}: the child has {}, which it had not during fork: {} to {}",
                        first[page],
                        least[page],
                        most[page]
                    );
                }
                wait_until(|| {
                    finished[0].load(SeqCst) > most[0] && finished[PAGES as usize].load(SeqCst) > most[PAGES as usize]
                });
                assert!(words().eq(first.iter().copied()), "what was written after fork shows in the child");
                // The child's own stores are its own; now it is the first to copy.
                if round % 2 == 0 {
                    (0..2 * PAGES).for_each(|page| child.write(BASE + page * PAGE, &[0xee; 8]).unwrap());
                }
            }
        });
    });
}

/// The system call's own stores (`AddressSpace::write`) obey the same rules as the
/// program's: none is lost to a sibling's copy, none shows in the child.
#[test]
fn f5_fork_while_a_call_writes() {
    in_each_setup(3, ARENA, |w| {
        w.map(BASE, 1, RW);
        let (begun, finished) = (AtomicU64::new(0), AtomicU64::new(0));
        let call = |_: &Running<'_>, stop: &AtomicBool| {
            let mut n = 0u64;
            while !stop.load(SeqCst) {
                n += 1;
                begun.store(n, SeqCst);
                let page: Vec<u8> = (0..512).flat_map(|_| n.to_ne_bytes()).collect();
                w.space.write(BASE, &page).unwrap();
                finished.store(n, SeqCst);
                let mut back = [0; PAGE as usize];
                w.space.read(BASE, &mut back).unwrap();
                // The last word is the sibling's.
                let words = back[..PAGE as usize - 8].chunks_exact(8);
                for word in words.map(|word| u64::from_ne_bytes(word.try_into().unwrap())) {
                    assert_eq!(word, n, "a store of this call is lost");
                }
            }
        };
        // Breaks the sharing as soon as fork has made it.
        let program = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(SeqCst) {
                running.write_u64(BASE + PAGE - 8, 1).unwrap();
            }
        };
        w.race(&[&call, &program], |_| {
            for _ in 0..10 {
                let (least, child) = (finished.load(SeqCst), w.space.fork().unwrap());
                let most = begun.load(SeqCst);
                let read = || {
                    let mut page = vec![0; PAGE as usize - 8];
                    child.read(BASE, &mut page).unwrap();
                    page
                };
                let first = read();
                for word in first.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())) {
                    assert!((least..=most).contains(&word), "{word} was not there during fork: {least} to {most}");
                }
                wait_until(|| finished.load(SeqCst) > most);
                assert_eq!(read(), first, "what was written after fork shows in the child");
            }
        });
    });
}

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
            // What this CPU remembers of the one must not be taken for the other.
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
fn f10_out_of_frames_in_the_middle() {
    in_each_setup(3, 2 << 20, |w| {
        // More than there is, shared out among the CPUs.
        w.map(BASE, 1024, RW);
        let nr_refused = AtomicU64::new(0);
        let touch = |running: &Running<'_>, i: u64| {
            for page in (i..1024).step_by(3) {
                match running.write_u64(BASE + page * PAGE, mark(0, page)) {
                    Ok(()) => assert_eq!(running.read_u64(BASE + page * PAGE), Ok(mark(0, page))),
                    Err(trap) => {
                        assert_eq!(trap.cause, FaultError::OutOfFrames);
                        nr_refused.fetch_add(1, SeqCst);
                    }
                }
            }
        };
        let start = w.vm.vmstat().nr_free_pages;
        w.race(&[&|running, _| touch(running, 1), &|running, _| touch(running, 2)], |running| touch(running, 0));
        check(w.vm, &[w.space]);
        let rss = w.rss();
        assert_eq!(nr_refused.load(SeqCst) + rss.anon, 1024);
        assert_eq!(w.vm.vmstat().nr_free_pages, 0, "refused while there were frames");
        assert_eq!(rss.anon + rss.tables, start, "a refused fault keeps nothing");
        assert!(w.space.fork().is_err());
        check(w.vm, &[w.space]);
        // What is there can be read, and one page less is room for one more.
        let running = w.cpu.enter(w.space).unwrap();
        let have: Vec<u64> = (0..1024).filter(|page| w.space.translate_at_rest(BASE + page * PAGE).is_some()).collect();
        assert_eq!(have.len() as u64, rss.anon);
        have.iter().for_each(|page| assert_eq!(running.read_u64(BASE + page * PAGE), Ok(mark(0, *page))));
        w.space.madvise(BASE + have[0] * PAGE, PAGE, DONTNEED).unwrap();
        running.write_u64(BASE + have[0] * PAGE, 1).unwrap();
    });
}

/// At the edge: three CPUs take and give back so much that now and then one finds
/// nothing but what others hold in reserve.
#[test]
fn f10_at_the_edge() {
    in_each_setup(3, 2 << 20, |w| {
        let room = w.vm.vmstat().nr_free_pages / 3 - 6;
        (0..3).for_each(|i| w.map(BASE + (i << 30), room, RW));
        let take = |running: &Running<'_>, i: u64| {
            let at = BASE + (i << 30);
            for round in 0..20 {
                // A full third, then a few: the rest lies about in groups.
                for page in 0..if round % 2 == 0 { room } else { 9 } {
                    running.write_u64(at + page * PAGE, mark(page, i)).expect("there is room for all three");
                }
                running.space().madvise(at, room * PAGE, DONTNEED).unwrap();
            }
        };
        w.race(&[&|running, _| take(running, 1), &|running, _| take(running, 2)], |running| take(running, 0));
    });
}

/// The same where it is certain that some are refused: nothing is lost in the
/// exchange of groups between CPUs.
#[test]
fn f10_past_the_edge() {
    in_each_setup(3, 2 << 20, |w| {
        let room = w.vm.vmstat().nr_free_pages / 2;
        (0..3).for_each(|i| w.map(BASE + (i << 30), room, RW));
        let take = |running: &Running<'_>, i: u64| {
            let at = BASE + (i << 30);
            for _ in 0..20 {
                for page in 0..room {
                    match running.write_u64(at + page * PAGE, mark(page, i)) {
                        Ok(()) => {}
                        Err(trap) => assert_eq!(trap.cause, FaultError::OutOfFrames),
                    }
                }
                running.space().madvise(at, room * PAGE, DONTNEED).unwrap();
            }
        };
        w.race(&[&|running, _| take(running, 1), &|running, _| take(running, 2)], |running| take(running, 0));
    });
}

/// Pages are made clean, then stored to while their entries get other rights. Every
/// store has to be found dirty, every load accessed.
#[test]
fn f11_accessed_and_dirty_survive_a_change_of_rights() {
    in_each_setup(2, ARENA, |w| {
        w.map(BASE, PAGES, RW);
        let (round, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let store = |running: &Running<'_>, stop: &AtomicBool| {
            let mut last = 0;
            while !stop.load(SeqCst) {
                let now = round.load(SeqCst);
                if now == last {
                    yield_now();
                    continue;
                }
                for page in 0..PAGES {
                    let at = BASE + page * PAGE;
                    // Odd pages are only loaded. Refused while it is read-only.
                    let access =
                        || if page % 2 == 0 { running.write_u64(at, 1) } else { running.read_u64(at).map(drop) };
                    while access().is_err() {}
                }
                last = now;
                done.store(now, SeqCst);
            }
        };
        w.race(&[&store], |running| {
            (0..PAGES).for_each(|page| running.write_u64(BASE + page * PAGE, 1).unwrap());
            for now in 1..=24 {
                w.space.madvise(BASE, PAGES * PAGE, FREE).unwrap();
                let mut smaps = Vec::new();
                w.space.smaps(&mut |entry| smaps.push(*entry));
                assert_eq!((smaps[0].dirty_pages, smaps[0].referenced_pages), (0, 0), "all were made clean");
                round.store(now, SeqCst);
                while done.load(SeqCst) != now {
                    w.space.mprotect(BASE, PAGES * PAGE, RWX).unwrap();
                    w.space.mprotect(BASE, PAGES * PAGE, if now % 4 == 0 { READ } else { RW }).unwrap();
                    w.space.mprotect(BASE, PAGES * PAGE, RW).unwrap();
                }
                smaps.clear();
                w.space.smaps(&mut |entry| smaps.push(*entry));
                assert_eq!(smaps.iter().map(|s| s.dirty_pages).sum::<u64>(), PAGES / 2, "a dirty bit is lost");
                assert_eq!(smaps.iter().map(|s| s.referenced_pages).sum::<u64>(), PAGES, "an accessed bit is lost");
            }
        });
    });
}

/// The same against a move, which takes each entry away and sets it down elsewhere.
#[test]
fn f11_dirty_survives_a_move() {
    in_each_setup(2, ARENA, |w| {
        const AWAY: u64 = BASE + (64 << 20);
        // What was stored before the pages were made clean may lie on clean ones: the
        // round is stored, which begins when they are.
        let round = AtomicU64::new(0);
        let store = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(SeqCst) {
                for page in 0..PAGES {
                    let _ = running.write_u64(BASE + page * PAGE, mark(page, round.load(SeqCst)));
                }
            }
        };
        w.map(BASE, PAGES, RW);
        w.race(&[&store], |running| {
            for now in 1..=25 {
                (0..PAGES).for_each(|page| running.write_u64(BASE + page * PAGE, mark(page, 0)).unwrap());
                w.space.madvise(BASE, PAGES * PAGE, FREE).unwrap();
                round.store(now, SeqCst);
                yield_now();
                w.space.mremap(BASE, PAGES * PAGE, PAGES * PAGE, MAYMOVE | MREMAP_FIXED, AWAY).unwrap();
                let mut dirty = 0;
                w.space.smaps(&mut |entry| dirty += entry.dirty_pages);
                let stored = (0..PAGES).filter(|page| running.read_u64(AWAY + page * PAGE) == Ok(mark(*page, now)));
                assert!(stored.count() as u64 <= dirty, "a page was stored to and is clean");
                w.space.mremap(AWAY, PAGES * PAGE, PAGES * PAGE, MAYMOVE | MREMAP_FIXED, BASE).unwrap();
            }
        });
    });
}

/// Only the outcome: the child's entries are the parent's without the write right.
#[test]
fn f12_the_childs_tables_are_the_parents() {
    in_each_setup(1, ARENA, |w| {
        w.map(BASE, 600, RW);
        let shared = w.space.mmap(0, 8 * PAGE, RW, SHARED).unwrap();
        {
            let running = w.cpu.enter(w.space).unwrap();
            for page in (0..600).step_by(7) {
                running.write_u64(BASE + page * PAGE, mark(1, page)).unwrap();
                running.read_u64(BASE + (page + 1) * PAGE).unwrap();
            }
            running.write_u64(shared, 1).unwrap();
        }
        w.space.madvise(BASE + 3 * PAGE, PAGE, GUARD_INSTALL).unwrap();
        // A guard stays when the pages around it go, and so it is in the child.
        w.space.madvise(BASE + 2 * PAGE, 3 * PAGE, DONTNEED).unwrap();
        let child = w.space.fork().unwrap();
        check(w.vm, &[w.space, &child]);
        for page in 0..600 {
            let entry = w.space.translate_at_rest(BASE + page * PAGE);
            assert_eq!(entry, child.translate_at_rest(BASE + page * PAGE));
            assert_eq!(entry.is_some(), page % 7 < 2);
            assert!(entry.is_none_or(|entry| entry.rights == Rights::READ));
        }
        assert_eq!(child.translate_at_rest(shared), None, "pages of an object come by a fault");
        assert_eq!(child.handle_fault(BASE + 3 * PAGE, Access::Read), Err(FaultError::Guard));
        assert_eq!(child.rss_pages().anon, w.rss().anon);
        assert_eq!(child.nr_mapped_pages(), w.space.nr_mapped_pages());
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
