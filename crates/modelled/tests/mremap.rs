//! I15, I29: a mapping moves while another CPU faults in it. The toy format has
//! leaf tables of four pages.

use common::pager::{self, Pager};
use common::{World, explore, models, run};
use softfault_modelled::{Access, Event, FaultError, MremapError};
use softfault_modelled::{Advice, MremapFlags};
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;
const MOVE: MremapFlags = MremapFlags::MAYMOVE.union(MremapFlags::FIXED);
const MOVE_AND_KEEP: MremapFlags = MremapFlags::MAYMOVE.union(MremapFlags::DONTUNMAP);

/// Eight pages of which the second half has one, and all that a fault takes but
/// the leaf table of the first half.
fn half_full() -> World {
    let w = World::new(softfault_modelled::FaultLocking::Lockfree, 0, 8);
    w.touch(0);
    w.space.madvise(0, 4 * PAGE, Advice::DontNeed).unwrap();
    w.touch(4);
    w
}

/// The page of the fault is at its place, whether the fault came before or after the move.
fn moves_against_a_fault(flags: MremapFlags, preemptions: usize) {
    let nr_waited: &'static AtomicU64 = Box::leak(Box::default());
    explore(preemptions, move || {
        let w = half_full();
        let fault = move || {
            let active = w.space.activate();
            match w.space.handle_fault(0, Access::Write) {
                Ok(_) => {}
                Err(FaultError::NotMapped) => assert!(flags == MOVE, "the source stays mapped"),
                Err(other) => panic!("{other}"),
            }
            drop(active);
        };
        let remap = move || {
            w.space.mremap(0, 8 * PAGE, 8 * PAGE, flags, 8 * PAGE).unwrap();
        };
        run(vec![Box::new(fault), Box::new(remap)]);
        w.check(&[]);
        nr_waited.fetch_add(w.vm.event(Event::Waited), Ordering::Relaxed);
        let moved = w.space.page_state(12 * PAGE);
        assert!(moved.is_some() || pager::has_lost(4) || pager::has_lost(12), "a page that was there before is lost");
        let nr_installed = w.vm.event(Event::AnonInstall) - 2;
        assert_eq!(w.space.rss_pages().anon + pager::nr_lost(), 1 + nr_installed, "a page that came meanwhile is lost");
    });
    assert!(pager::here().is_some() || nr_waited.load(Ordering::Relaxed) > 0, "no fault met the mark");
}

#[test]
fn a_move_against_a_fault() {
    moves_against_a_fault(MOVE, 2);
}

#[test]
fn a_move_that_keeps_its_source_against_a_fault() {
    // One preemption: with two it takes minutes.
    moves_against_a_fault(MOVE_AND_KEEP, 1);
}

/// No frame is free for the target's table: the old tree comes back, and nobody is
/// told that the mapping had gone.
#[test]
fn a_refused_move_against_a_fault() {
    static NR_WAITED: AtomicU64 = AtomicU64::new(0);
    explore(2, || {
        let w = World::new(softfault_modelled::FaultLocking::Lockfree, 0, 4);
        // There and back, so that the tree has nodes enough.
        w.space.mremap(0, 4 * PAGE, 4 * PAGE, MOVE, 8 * PAGE).unwrap();
        w.space.mremap(8 * PAGE, 4 * PAGE, 4 * PAGE, MOVE, 0).unwrap();
        w.touch(1);
        w.vm.fail_allocation(Some(0));
        let fault = move || {
            let active = w.space.activate();
            // The zero frame: nothing has to be allocated.
            w.space.handle_fault(0, Access::Read).unwrap();
            drop(active);
        };
        let remap = move || {
            let moved = w.space.mremap(0, 4 * PAGE, 4 * PAGE, MOVE, 8 * PAGE);
            assert!(matches!(moved, Err(MremapError::OutOfFrames(_))));
        };
        run(vec![Box::new(fault), Box::new(remap)]);
        w.vm.fail_allocation(None);
        w.check(&[]);
        NR_WAITED.fetch_add(w.vm.event(Event::Waited), Ordering::Relaxed);
        assert_eq!((w.space.nr_vmas(), w.space.rss_pages().anon + pager::nr_lost()), (1, 1));
        assert!(w.space.page_state(0).is_some());
        assert!(w.space.page_state(PAGE).is_some() || pager::has_lost(1));
    });
    assert!(pager::here().is_some() || NR_WAITED.load(Ordering::Relaxed) > 0, "no fault met the mark");
}

#[test]
fn beside_a_pager() {
    // No frame is free to bring a page back in `a_refused_move_against_a_fault`.
    let models = models![a_move_against_a_fault, a_move_that_keeps_its_source_against_a_fault];
    pager::beside_a_pager(Pager::SwapsOut, models);
}

#[test]
fn where_memory_fails() {
    pager::beside_a_pager(
        Pager::Fails,
        models![a_move_against_a_fault, a_move_that_keeps_its_source_against_a_fault, a_refused_move_against_a_fault],
    );
}
