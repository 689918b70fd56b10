//! One baton: of all actors only its holder runs. It passes on where the core waits.
//!
//! Each pass is a decision, taken from a list, then from a seed; so a round repeats
//! exactly. A waiting actor sleeps on a condition variable outside the core's knowledge.

use crate::random::Random;
use std::cell::Cell;
use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

std::thread_local! {
    /// Which actor the thread is, while the round lasts.
    static ACTOR: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Passes without the end of any operation after which nobody gets on any more.
const IDLE_MAX: u64 = 400_000;
/// Passes after the list's end for which the holder keeps the baton, where there is
/// no seed.
const STAY: u64 = 32;

/// The choice of the next holder of the baton.
#[derive(Clone, Debug)]
pub enum Schedule {
    /// Anybody, by random numbers.
    Seeded(u64),
    /// The decisions in the list, by number of the actor among those that still run;
    /// afterwards each for a while.
    Listed(Vec<usize>),
}

struct State {
    holder: usize,
    is_done: Vec<bool>,
    random: Option<Random>,
    listed: Vec<usize>,
    /// Number of decisions so far, and how many choices the first ones had.
    nr_decisions: u64,
    choices: Vec<usize>,
    nr_idle: u64,
    /// Has nothing to do until somebody wakes it.
    resting: Option<usize>,
}

/// The baton of a round.
pub(super) struct Turns {
    state: Mutex<State>,
    /// Of each actor, so that nobody wakes but the next holder.
    passed: Vec<Condvar>,
    /// Says which round it is.
    label: String,
}

impl Turns {
    pub(super) fn new(nr_actors: usize, schedule: &Schedule, label: String) -> Turns {
        let (random, listed) = match schedule {
            Schedule::Seeded(seed) => (Some(Random::new(*seed)), Vec::new()),
            Schedule::Listed(list) => (None, list.clone()),
        };
        let is_done = vec![false; nr_actors];
        let state = State {
            holder: 0,
            is_done,
            random,
            listed,
            nr_decisions: 0,
            choices: Vec::new(),
            nr_idle: 0,
            resting: None,
        };
        let passed = (0..nr_actors).map(|_| Condvar::new()).collect();
        Turns { state: Mutex::new(state), passed, label }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, state: MutexGuard<'_, State>, me: usize) {
        drop(self.passed[me].wait_while(state, |state| state.holder != me).unwrap_or_else(PoisonError::into_inner));
    }

    /// The calling thread is actor `me` from its first turn on, until the result is
    /// dropped.
    pub(super) fn begin(&self, me: usize) -> Playing<'_> {
        self.wait_for(self.lock(), me);
        ACTOR.set(Some(me));
        Playing { turns: self, me }
    }

    /// The core waits: perhaps somebody else's turn.
    pub(super) fn pass(&self) {
        let Some(me) = ACTOR.get() else { return };
        let mut state = self.lock();
        state.nr_idle += 1;
        if state.nr_idle > IDLE_MAX {
            self.give_up();
        }
        let next = state.decide(me);
        if next != me {
            state.holder = next;
            self.passed[next].notify_one();
            self.wait_for(state, me);
        }
    }

    /// An operation has ended: somebody gets on.
    pub(super) fn progress(&self) {
        self.lock().nr_idle = 0;
        self.pass();
    }

    /// The actor gets no turn until it is woken, or all others are done.
    pub(super) fn rest(&self, me: usize) {
        self.lock().resting = Some(me);
        self.pass();
    }

    pub(super) fn wake(&self) {
        self.lock().resting = None;
    }

    /// Whether all others are done.
    pub(super) fn is_last(&self, me: usize) -> bool {
        self.lock().is_done.iter().enumerate().all(|(i, done)| i == me || *done)
    }

    /// Passes since an operation has ended.
    pub(super) fn nr_idle(&self) -> u64 {
        self.lock().nr_idle
    }

    /// How many choices each of the first decisions had.
    pub(super) fn choices(&self) -> Vec<usize> {
        self.lock().choices.clone()
    }

    fn give_up(&self) -> ! {
        let text = format!("{}: all actors wait, {IDLE_MAX} turns long\n", self.label);
        // Past the test harness, which keeps what is printed until the test ends.
        let _ = std::io::stderr().write_all(text.as_bytes());
        std::process::exit(101)
    }
}

impl State {
    fn decide(&mut self, me: usize) -> usize {
        let left: Vec<usize> = {
            let is_left = |i: &usize| !self.is_done[*i] && (self.resting != Some(*i) || *i == me);
            (0..self.is_done.len()).filter(is_left).collect()
        };
        let n = self.nr_decisions as usize;
        self.nr_decisions += 1;
        if let Some(random) = &mut self.random {
            return random.pick(&left);
        }
        if let Some(choice) = self.listed.get(n) {
            self.choices.push(left.len());
            return left[choice % left.len()];
        }
        if (n as u64 + 1).is_multiple_of(STAY) {
            return left[(left.iter().position(|i| *i == me).unwrap_or(0) + 1) % left.len()];
        }
        me
    }
}

/// Ends an actor's part, also when it panics.
pub(super) struct Playing<'a> {
    turns: &'a Turns,
    me: usize,
}

impl Drop for Playing<'_> {
    fn drop(&mut self) {
        ACTOR.set(None);
        let mut state = self.turns.lock();
        state.is_done[self.me] = true;
        state.nr_idle = 0;
        if let Some(next) = state.is_done.iter().position(|done| !done) {
            state.holder = next;
            self.turns.passed[next].notify_one();
        }
    }
}
