//! The asymmetric barrier as the core uses it, on the machine that this runs on:
//! store buffering between the two functions of `softfault::hooks::sections` that every
//! section is made of, and [`Machine::heavy_barrier`] between them on the
//! remover's side.
//!
//! ```text
//! faulter (light)              remover (heavy)
//! sections::enter(slot, odd)   gone = 1
//! saw = gone                   Machine::heavy_barrier
//!                              inside = sections::probe(slot)
//! ```
//! Never may the faulter miss what is gone while the remover misses the faulter.
//! No model can say whether a real `membarrier(2)` does what is asked of it.
//! `src/barrier/tests.rs` has the same for each kind of barrier alone.
#![deny(unsafe_code)]

use rustix::thread::{CpuSet as HostCpus, sched_getaffinity, sched_setaffinity};
use softfault::hooks::sections;
use softfault::machine::{CpuId, CpuSet, Machine};
use softfault::sync::{Ordering, Word};
use softfault_host::{Hosted, HostedConfig};
use std::time::{Duration, Instant};

/// A word in lines of its own.
#[repr(align(128))]
struct Line(Word);

impl Line {
    const fn new() -> Line {
        Line(Word::new(0))
    }
}

struct Board {
    slot: Line,
    gone: Line,
    saw: Line,
    round: Line,
    done: Line,
}

const OVER: u64 = u64::MAX;

/// Confines the thread to one CPU of the host, if there are two to choose from.
fn pin(which: usize) -> bool {
    let Ok(all) = sched_getaffinity(None) else { return false };
    let allowed: Vec<usize> = (0..HostCpus::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect();
    let mut one = HostCpus::new();
    one.set(allowed[which % allowed.len()]);
    allowed.len() > 1 && sched_setaffinity(None, &one).is_ok()
}

fn faulter(board: &Board) {
    pin(1);
    for round in 1.. {
        let seen = loop {
            match board.round.0.load(Ordering::Acquire) {
                now if now >= round => break now,
                _ => std::hint::spin_loop(),
            }
        };
        if seen == OVER {
            return;
        }
        // Every distance between the two sides comes by.
        (0..round % 61).for_each(|_| std::hint::spin_loop());
        sections::enter(&board.slot.0, 2 * round - 1);
        board.saw.0.set(board.gone.0.load(Ordering::Acquire));
        sections::leave(&board.slot.0, 2 * round);
        board.done.0.store(round, Ordering::Release);
    }
}

/// (Rounds that broke the rule, rounds played); ends after `rounds` or `limit`: with fewer rounds it shows less, and is no failure.
fn play(heavy: bool, rounds: u64, limit: Duration) -> (u64, u64) {
    let hosted = Hosted::new(HostedConfig::default().with_nr_cpus(2).with_arena_bytes(1 << 20)).unwrap();
    let mut others = CpuSet::EMPTY;
    others.insert(CpuId(1));
    let board = Board { slot: Line::new(), gone: Line::new(), saw: Line::new(), round: Line::new(), done: Line::new() };
    let (mut broken, mut played) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| faulter(&board));
        pin(0);
        let started = Instant::now();
        while played < rounds && started.elapsed() < limit {
            played += 1;
            board.gone.0.set(0);
            let outside = sections::probe(&board.slot.0);
            board.round.0.store(played, Ordering::Release);
            (0..played % 53).for_each(|_| std::hint::spin_loop());
            board.gone.0.set(1);
            if heavy {
                hosted.heavy_barrier(&others);
            } else {
                std::sync::atomic::compiler_fence(Ordering::SeqCst);
            }
            let inside = sections::probe(&board.slot.0);
            while board.done.0.load(Ordering::Acquire) < played {
                std::hint::spin_loop();
            }
            // Not yet begun for the one, nothing gone for the other.
            broken += u64::from(inside == outside && board.saw.0.get() == 0);
        }
        board.round.0.store(OVER, Ordering::Release);
    });
    (broken, played)
}

/// In a thread of its own, since it gets pinned.
fn play_apart(heavy: bool, rounds: u64, limit: Duration) -> (u64, u64) {
    std::thread::spawn(move || play(heavy, rounds, limit)).join().unwrap()
}

#[test]
fn light_and_heavy_order_both_sides() {
    let (broken, played) = play_apart(true, 60_000, Duration::from_secs(5));
    println!("with the heavy barrier: {broken} of {played} rounds broke the rule");
    assert_eq!(broken, 0, "of {played} rounds");
}

/// How often it breaks without is a matter of timing, and is shown, not judged:
/// `cargo test -p softfault-host --test litmus -- --ignored --nocapture`.
#[test]
#[ignore = "shows a number; it takes two idle CPUs to be above 0"]
fn without_the_heavy_half() {
    let (broken, played) = play_apart(false, 2_000_000, Duration::from_secs(10));
    println!("without it: {broken} of {played} rounds broke the rule");
}
