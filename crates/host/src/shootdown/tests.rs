//! Shootdowns between threads: what a program sees, in both modes.

use crate::config::Mode;
use crate::testing::{BOTH_MODES, Bench, RW, leaf};
use crate::watchdog::let_others_run;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use softfault::addr::Pfn;
use softfault::machine::{CpuId, Flush};
use softfault::table::format::{Entry, Format, X86_64};
use std::thread;

const NR_PAGES: u64 = 8;
const DEAD: u64 = 0xdead;

/// Moves each page from frame to frame, the old one poisoned as soon as the
/// protocol says that nobody has it. `shoot` is the step that may be left out.
fn mover(bench: &Bench, frames: &[[Pfn; 2]], rounds: u64, shoot: impl Fn(&Bench, u64)) {
    for round in 1..=rounds {
        for (page, frames) in (0..).zip(frames) {
            let [old, new] = if round % 2 == 1 { *frames } else { [frames[1], frames[0]] };
            bench.set(page, 0, Entry::Busy);
            shoot(bench, page);
            bench.poke(old, DEAD);
            bench.poke(new, round);
            bench.set(page, 0, leaf(new, RW));
        }
    }
}

/// The same with whole leaf tables, whose entries stay as they are: only cached
/// pointers and translations can lead to them.
fn table_mover(bench: &Bench, tables: &[Pfn; 2], frames: &[[Pfn; 2]], rounds: u64) {
    for round in 1..=rounds {
        let new = (round % 2) as usize;
        bench.set(0, 1, Entry::Busy);
        bench.shoot_what(Flush::Space);
        frames.iter().for_each(|frames| {
            bench.poke(frames[1 - new], DEAD);
            bench.poke(frames[new], round);
        });
        bench.set(0, 1, Entry::Table(tables[new]));
    }
}

/// One CPU moves pages, the others load and store: how often one of them saw a
/// frame that the page had left, and how many accesses there were. An odd number
/// of rounds leaves the first frames poisoned.
fn stress(mode: Mode, rounds: u64, shoot: impl Fn(&Bench, u64) + Sync) -> (Bench, u64, u64) {
    stress_with(mode, |bench, frames| mover(bench, frames, rounds, &shoot))
}

fn stress_with(mode: Mode, mover: impl Fn(&Bench, &[[Pfn; 2]])) -> (Bench, u64, u64) {
    let bench = Bench::small(3, mode);
    let frames: Vec<[Pfn; 2]> = (0..NR_PAGES).map(|_| [bench.frame(), bench.frame()]).collect();
    (0..).zip(&frames).for_each(|(page, frames)| bench.set(page, 0, leaf(frames[0], RW)));
    let (over, dead) = (AtomicBool::new(false), AtomicU64::new(0));
    let done = [const { AtomicU64::new(0) }; 2];
    let wait_for_all = |nr: u64| {
        let reach = done.each_ref().map(|done| done.load(Relaxed) + nr);
        while done.iter().zip(reach).any(|(done, reach)| done.load(Relaxed) < reach) {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        for (id, done) in [1, 2].into_iter().zip(&done) {
            let (bench, over, dead) = (&bench, &over, &dead);
            scope.spawn(move || {
                let cpu = bench.machine.bind(CpuId(id)).unwrap();
                for turn in 0.. {
                    let addr = (turn % NR_PAGES) << 12;
                    if let Ok(value) = bench.load(&cpu, addr) {
                        dead.fetch_add(u64::from(value == DEAD), Relaxed);
                    }
                    // Another word of the same page, for the dirty bit's walk.
                    let _ = bench.store(&cpu, addr + 8, turn);
                    done.fetch_add(1, Relaxed);
                    if over.load(Relaxed) {
                        break;
                    }
                }
            });
        }
        let _cpu = bench.machine.bind(CpuId(0)).unwrap();
        wait_for_all(1000);
        mover(&bench, &frames);
        wait_for_all(1000);
        over.store(true, Relaxed);
    });
    let done = done.iter().map(|done| done.load(Relaxed)).sum();
    (bench, dead.into_inner(), done)
}

#[test]
fn nobody_uses_a_frame_that_was_shot_down() {
    for mode in BOTH_MODES {
        let (bench, dead, done) = stress(mode, 601, Bench::shoot);
        assert_eq!(dead, 0, "{mode:?}: of {done} accesses");
        assert_eq!(bench.machine.violations(), (0, None), "{mode:?}");
    }
}

#[test]
fn nobody_uses_a_table_that_was_shot_down() {
    for mode in BOTH_MODES {
        let (bench, dead, done) = stress_with(mode, |bench, frames| {
            let Entry::Table(first) = bench.get(0, 1) else { panic!("there is a leaf table") };
            let tables = [first, bench.frame()];
            for (page, frames) in frames.iter().enumerate() {
                let word = X86_64::encode(leaf(frames[1], RW), 0);
                bench.machine.arena.word(tables[1], page * 8).store(word, Relaxed);
            }
            table_mover(bench, &tables, frames, 30_001);
        });
        assert_eq!(dead, 0, "{mode:?}: of {done} accesses");
        assert_eq!(bench.machine.violations(), (0, None), "{mode:?}");
    }
}

/// The same without the shootdown has to fail, or the test above shows nothing.
#[test]
fn without_the_shootdown_it_shows() {
    for mode in BOTH_MODES {
        let (_, dead, done) = stress(mode, 601, |_, _| ());
        assert!(dead > 0, "{mode:?}: of {done} accesses");
    }
}

/// Each CPU shoots at all others while it accesses memory itself.
#[test]
fn two_who_shoot_at_each_other_both_finish() {
    for mode in BOTH_MODES {
        let bench = Bench::small(3, mode);
        (0..NR_PAGES).for_each(|page| bench.set(page, 0, leaf(bench.frame(), RW)));
        thread::scope(|scope| {
            for id in 0..3 {
                let bench = &bench;
                scope.spawn(move || {
                    let cpu = bench.machine.bind(CpuId(id)).unwrap();
                    for turn in 0..2000u64 {
                        let page = turn % NR_PAGES;
                        bench.store(&cpu, page << 12 | u64::from(id) << 3, turn).unwrap();
                        match turn % 10 {
                            0 => bench.shoot_what(Flush::Space),
                            _ => bench.shoot(page),
                        }
                        assert_eq!(bench.load(&cpu, page << 12 | u64::from(id) << 3), Ok(turn));
                    }
                });
            }
        });
    }
}

/// An access that is under way when the shootdown begins is waited for.
#[test]
fn an_access_under_way_is_waited_for() {
    for mode in BOTH_MODES {
        let bench = Bench::small(2, mode);
        let (inside, left) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let cpu = bench.machine.bind(CpuId(1)).unwrap();
                let section = cpu.state().enter();
                inside.store(true, Release);
                let_others_run();
                left.store(true, Release);
                drop(section);
            });
            let _cpu = bench.machine.bind(CpuId(0)).unwrap();
            while !inside.load(Acquire) {
                thread::yield_now();
            }
            bench.shoot(0);
            assert!(left.load(Acquire), "{mode:?}: the shootdown did not wait");
        });
    }
}
