//! The litmus test of the asymmetric barrier (store buffering):
//!
//! ```text
//! faulter                      remover
//! slot = odd  (plain store)    gone = 1
//! compiler fence               heavy barrier
//! saw = gone                   inside = slot
//! ```
//! A round in which the faulter saw nothing gone and the remover saw nobody
//! inside is the one that must not be.

use super::Barrier;
use crate::watchdog::Watchdog;
use core::sync::atomic::{AtomicU64, Ordering::*, compiler_fence};
use std::time::{Duration, Instant};

#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

#[derive(Default)]
struct Board {
    slot: Line,
    gone: Line,
    saw: Line,
    round: Line,
    done: Line,
}

fn faulter(board: &Board, spread: u64) {
    for round in 1.. {
        while board.round.0.load(Acquire) < round {
            std::hint::spin_loop();
        }
        if board.round.0.load(Acquire) == u64::MAX {
            return;
        }
        (0..round % spread).for_each(|_| std::hint::spin_loop());
        board.slot.0.store(1, Relaxed);
        compiler_fence(SeqCst);
        board.saw.0.store(board.gone.0.load(Relaxed), Relaxed);
        board.done.0.store(round, Release);
    }
}

/// Rounds that broke the rule, out of at most `rounds`; ends at the first one if
/// `first` is set, and in any case after `limit`: with fewer rounds it shows less, and is no failure.
fn litmus(barrier: Option<Barrier>, rounds: u64, first: bool, limit: Duration) -> (u64, u64) {
    let board = Board::default();
    let (mut broken, mut played) = (0, 0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| faulter(&board, 61));
        for round in 1..=rounds {
            board.slot.0.store(0, Relaxed);
            board.gone.0.store(0, Relaxed);
            board.round.0.store(round, Release);
            (0..round % 53).for_each(|_| std::hint::spin_loop());
            board.gone.0.store(1, Relaxed);
            match barrier {
                Some(barrier) => barrier.pass(),
                None => compiler_fence(SeqCst),
            }
            let inside = board.slot.0.load(Relaxed);
            while board.done.0.load(Acquire) < round {
                std::hint::spin_loop();
            }
            played += 1;
            broken += u64::from(inside == 0 && board.saw.0.load(Relaxed) == 0);
            if started.elapsed() > limit || (first && broken > 0) {
                break;
            }
        }
        board.round.0.store(u64::MAX, Release);
    });
    (broken, played)
}

#[test]
fn the_barrier_orders_both_sides() {
    let barrier = Barrier::Auto.choose().unwrap();
    let (broken, played) = litmus(Some(barrier), 60_000, false, Duration::from_secs(4));
    assert_eq!(broken, 0, "{barrier:?} let {broken} of {played} rounds through");
}

#[test]
fn the_walk_orders_both_sides() {
    let (broken, played) = litmus(Some(Barrier::Walk), 300, false, Duration::from_secs(4));
    assert_eq!(broken, 0, "the walk let {broken} of {played} rounds through");
}

/// Without the barrier the rule breaks, or the two tests above show nothing. It
/// takes two CPUs that really run at once: on one the test says so and passes.
#[test]
fn without_a_barrier_the_rule_breaks() {
    if std::thread::available_parallelism().map_or(1, |n| n.get()) < 2 {
        eprintln!("one CPU: store buffering cannot be seen here");
        return;
    }
    // However long it takes until both run at once.
    let _watchdog = Watchdog::new("no round without a barrier broke the rule: the litmus test is blind");
    let (broken, _) = litmus(None, u64::MAX, true, Duration::MAX);
    assert_eq!(broken, 1);
}
