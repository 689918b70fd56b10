//! Races about huge pages, several CPUs at once in one address space and in its
//! children: cases T2 to T11.
#![deny(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod faults;
mod splits;
mod writes;

use common::huge::{AT, HUGE};

use common::*;
use softfault::addr::Access;
use softfault::policy::huge::{CowHuge, Enabled, SizeEnabled};
use softfault::{Advice, Event, FaultDone, FaultError, FaultLocking, HugeKnobs, Order};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

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
