//! Which operations wait for the sections of other CPUs, and which need not: a
//! wait is an interrupt to each of them.

mod common;

use common::{PAGE, PRIVATE, RW, Setup, in_setup};
use softfault::{Access, CpuId, Event, FaultDone};
use std::sync::Barrier;
use std::thread;

/// Grace periods and shootdowns of `run`, while a second CPU is in the space.
fn waits_of(run: impl Fn(&common::World<'_>, u64)) -> (u64, u64) {
    let seen = std::cell::Cell::new((0, 0));
    in_setup(Setup::PLAIN, 2, 64 << 20, |w| {
        let at = w.space.mmap(0, 8 * PAGE, RW, PRIVATE).unwrap();
        let (there, done) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|threads| {
            threads.spawn(|| {
                let _cpu = w.vm.machine().bind(CpuId(1)).unwrap();
                let active = w.space.activate();
                there.wait();
                done.wait();
                drop(active);
            });
            let active = w.space.activate();
            there.wait();
            let counts = || (w.vm.vmstat().get(Event::Grace), w.vm.vmstat().get(Event::Shootdown));
            let before = counts();
            run(w, at);
            let after = counts();
            seen.set((after.0 - before.0, after.1 - before.1));
            done.wait();
            drop(active);
        });
    });
    seen.get()
}

/// The first write to a page that was read: everybody's translation of the zero
/// frame goes, but nobody writes that frame and nothing frees it.
#[test]
fn a_write_to_the_zero_frame_shoots_but_waits_for_no_section() {
    let waits = waits_of(|w, at| {
        assert_eq!(w.space.handle_fault(at, Access::Read), Ok(FaultDone::ZeroFrame));
        assert_eq!(w.space.handle_fault(at, Access::Write), Ok(FaultDone::Installed));
    });
    assert_eq!(waits, (0, 1), "grace periods, shootdowns");
}

/// A copy of a page waits: a section may be storing into the old frame.
#[test]
fn a_copy_waits_for_sections() {
    let waits = waits_of(|w, at| {
        w.space.handle_fault(at, Access::Write).unwrap();
        let child = w.space.fork().unwrap();
        let before = w.vm.vmstat().get(Event::Grace);
        assert_eq!(w.space.handle_fault(at, Access::Write), Ok(FaultDone::Copied));
        assert_eq!(w.vm.vmstat().get(Event::Grace) - before, 1);
        drop(child);
    });
    assert!(waits.1 >= 2, "fork and copy shoot: {waits:?}");
}
