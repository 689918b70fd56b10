//! Threads that do the steps. Nobody may allocate while one is under way, so
//! threads are there before the first and stay until all has been cleaned up.

use crate::Mode;
use crate::play::Play;
use softfault_model::native::{Cpus, Turn};
use softfault_model::random::Random;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, OnceLock, PoisonError};
use std::thread;

/// Looks at whose turn it is before a thread lets others run.
const SPINS: u32 = 200;

/// One sequence, and cleans up.
pub fn run(play: &mut Play, mode: Mode, cpus: Cpus) {
    if let Mode::Turns(nr_threads) = mode {
        return in_turn(play, nr_threads, cpus);
    }
    let turn = Turn::begin();
    play.run(&turn, None);
    turn.end();
}

/// A thread for each part, all at once, and cleans up.
fn with_threads<T: Send>(parts: impl ExactSizeIterator<Item = T>, act: impl Fn(T, &Turn) + Sync) {
    let (barrier, turn, act) = (&Barrier::new(parts.len() + 1), &OnceLock::new(), &act);
    let live = move |part| {
        barrier.wait();
        barrier.wait();
        if let Some(turn) = turn.get() {
            act(part, turn);
        }
        barrier.wait();
        barrier.wait();
    };
    thread::scope(|scope| {
        parts.for_each(|part| _ = scope.spawn(move || live(part)));
        barrier.wait();
        let turn = turn.get_or_init(Turn::begin);
        barrier.wait();
        barrier.wait();
        turn.end();
        barrier.wait();
    });
}

/// A sequence on each thread.
pub fn at_once(plays: &mut [Play], cpus: Cpus) {
    with_threads(plays.iter_mut(), |play, turn| play.run(turn, Some(cpus)));
}

/// One sequence by several threads, each on a CPU of its own if there are as
/// many; who does a step is always the same.
fn in_turn(play: &mut Play, nr_threads: u64, cpus: Cpus) {
    let (steps, seen, position) = (&play.steps, Mutex::new(core::mem::take(&mut play.seen)), AtomicUsize::new(0));
    let owner = |position: usize| Random::new(position as u64).below(nr_threads);
    let threads: Vec<u64> = (0..nr_threads).collect();
    with_threads(threads.into_iter(), |me, turn| {
        cpus.hop(me);
        let mut spins = 0;
        loop {
            let at = position.load(Ordering::Acquire);
            let Some((op, expected)) = steps.get(at) else { break };
            if owner(at) != me {
                spins += 1;
                if spins % SPINS == 0 {
                    thread::yield_now()
                } else {
                    core::hint::spin_loop()
                }
                continue;
            }
            let outcome = turn.step(op);
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
            let next = if expected.allows(outcome) { at + 1 } else { steps.len() };
            position.store(next, Ordering::Release);
        }
    });
    play.seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
}
