//! The historic mutexes around faults on pages of a pool: what they count, and that no way out of a fault keeps one. All tests
//! of `hugetlb.rs` run with each discipline: see `Setup::vm`.

use super::*;
use softfault::{HugetlbLockStat, HugetlbLocking, Tunables, Vm};

/// With a pool of three pages, of which two are promised to a mapping at `AT`.
fn with_locking(nr_cpus: usize, tunables: Tunables, test: impl Fn(&World<'_>, &Object<'_>)) {
    let config = Format::config().with_nr_cpus(nr_cpus).with_arena_bytes(32 << 20).with_tlb_entries(64);
    let vm = Vm::new(Hosted::with_format(config).unwrap(), tunables).unwrap();
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    let w = World { vm: &vm, cpu: &cpu, space: &space };
    pool(&w, 3);
    let shared = object(&w, 8);
    map(&w, AT, 2, &shared, 0, MapFlags::empty()).unwrap();
    test(&w, &shared);
    check(&vm, &[&space]);
    drop(shared);
    drop(space);
    let counts = vm.hugetlb_counts(Order::PMD).unwrap();
    assert_eq!((counts.nr, counts.free, counts.reserved), (3, 3, 0), "H9");
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 0), Ok(0));
    check(&vm, &[]);
}

fn with(locking: HugetlbLocking) -> Tunables {
    Tunables::default().with_hugetlb_locking(locking)
}

fn stat(w: &World<'_>) -> HugetlbLockStat {
    w.vm.hugetlb_lock_stat()
}

/// A fault takes one mutex once, also where the page is there already; refused or not.
#[test]
fn a_fault_takes_one_mutex_once() {
    for locking in HugetlbLocking::ALL {
        with_locking(4, with(locking), |w, shared| {
            let nr = |n: u64| if locking == HugetlbLocking::Lockfree { 0 } else { n };
            let mutexes = match locking {
                HugetlbLocking::One => 1,
                HugetlbLocking::Table => 8,
                _ => 0,
            };
            let counted = |n: u64| assert_eq!((stat(w).mutexes, stat(w).acquisitions), (mutexes, nr(n)), "{locking:?}");
            let fault = |addr| w.space.handle_fault(addr, softfault::Access::Write);
            counted(0);
            fault(AT).unwrap();
            counted(1);
            w.space.madvise(AT, HUGE, DONTNEED).unwrap();
            fault(AT).unwrap();
            counted(2);
            // Others have none.
            w.map(AT + 16 * HUGE, 1, RW);
            fault(AT + 16 * HUGE).unwrap();
            let small = w.vm.new_shared_object(PAGE).unwrap();
            w.space.mmap_object(AT + 17 * HUGE, PAGE, RW, SHARED | FIXED, whole(&small)).unwrap();
            fault(AT + 17 * HUGE).unwrap();
            counted(2);
            // Refused, and its mutex is free for the next one.
            map(w, AT + 4 * HUGE, 3, shared, 2, NORESERVE).unwrap();
            fault(AT + 4 * HUGE).unwrap();
            for n in 4..6 {
                assert_eq!(fault(AT + 5 * HUGE), Err(FaultError::NoHugePage));
                counted(n);
            }
            assert_eq!((stat(w).contentions, stat(w).wait_ns), (0, 0));
        });
    }
}

/// Each allocation of a fault may be refused. The mutex is free afterwards, or the next fault would wait for ever.
#[test]
fn a_refused_frame_keeps_no_mutex() {
    for locking in [HugetlbLocking::One, HugetlbLocking::Table] {
        with_locking(1, with(locking), |w, _| {
            assert_eq!(stat(w).mutexes, 1, "on one CPU");
            let mut nr_refused = 0;
            for k in 0..8 {
                w.vm.fail_allocation(Some(k));
                nr_refused += u64::from(touch(w.space, AT + HUGE) == Err(FaultError::OutOfFrames));
                w.vm.fail_allocation(None);
                touch(w.space, AT + HUGE).unwrap();
                w.space.munmap(AT, 2 * HUGE).unwrap();
                let shared = object(w, 2);
                map(w, AT, 2, &shared, 0, NORESERVE).unwrap();
            }
            assert!(nr_refused > 0);
        });
    }
}

/// H8: CPUs fault, punch holes and remap, with one mutex for all pages and with several: nobody waits for ever, and
/// nobody is refused.
#[test]
fn h8_mutexes_close_no_circle() {
    for (locking, mutexes) in [(HugetlbLocking::One, None), (HugetlbLocking::Table, Some(2))] {
        with_locking(3, with(locking).with_hugetlb_mutexes(mutexes), |w, shared| {
            let toucher = |page: u64| {
                move |running: &Running<'_>, stop: &AtomicBool| {
                    while !stop.load(Relaxed) {
                        running.store(AT + page * HUGE, &[1u8]).unwrap();
                        running.store(AT + (1 - page) * HUGE + 7 * PAGE, &[1u8]).unwrap();
                    }
                }
            };
            w.race(&[&toucher(0), &toucher(1)], |running| {
                let patience = Patience::new("nobody meets anybody");
                for i in 0.. {
                    if i >= 100 && stat(w).contentions > 0 {
                        break;
                    }
                    patience.check();
                    shared.discard(i % 2 * 512..1024);
                    running.store(AT, &[1u8]).unwrap();
                    w.space.madvise(AT, 2 * HUGE, DONTNEED).unwrap();
                    map(w, AT, 2, shared, 0, MapFlags::empty()).unwrap();
                }
            });
            let stat = stat(w);
            assert!(stat.acquisitions >= 100 && stat.contentions <= stat.acquisitions, "{stat:?}");
            assert!(stat.wait_ns > 0, "{stat:?}");
        });
    }
}
