//! Threads that take timed steps together.

use crate::error::LabError;
use crate::os;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Results of all threads.
pub struct Done<T> {
    /// Of each step: from the first thread's start to the last one's end.
    pub walls: Vec<Duration>,
    /// The result of each thread.
    pub results: Vec<T>,
}

/// Runs `work(i)` on `nr_threads` threads, pinned to `cpus` in turn. Each has to take the same steps.
///
/// # Errors
///
/// The first thread's that has one; then the others end at their next step.
pub fn together<T: Send>(
    nr_threads: usize,
    cpus: &[usize],
    work: impl Fn(usize, &mut Steps<'_>) -> Result<T, LabError> + Sync,
) -> Result<Done<T>, LabError> {
    let gate = Gate { nr_threads, arrived: AtomicUsize::new(0), is_broken: AtomicBool::new(false) };
    let thread = |i: usize| {
        let mut steps = Steps { gate: &gate, spans: Vec::new(), is_done: false };
        os::pin(cpus[i % cpus.len()])?;
        let result = work(i, &mut steps)?;
        steps.is_done = true;
        Ok((std::mem::take(&mut steps.spans), result))
    };
    let thread = &thread;
    let ends: Vec<Result<_, Failure>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..nr_threads).map(|i| scope.spawn(move || thread(i).map_err(Failure::of))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let (mut done, mut failures) = (Vec::new(), Vec::new());
    for end in ends {
        match end {
            Ok(end) => done.push(end),
            Err(failure) => failures.push(failure),
        }
    }
    failures.sort_by_key(|failure| failure.is_of_another);
    if let Some(first) = failures.into_iter().next() {
        return Err(first.error);
    }
    let (spans, results): (Vec<Spans>, Vec<T>) = done.into_iter().unzip();
    Ok(Done { walls: walls(&spans), results })
}

type Spans = Vec<(Instant, Instant)>;

/// Why a thread ended early.
struct Failure {
    is_of_another: bool,
    error: LabError,
}

/// The error of a thread that waited for one that has failed.
const OTHER: &str = "another thread failed";

impl Failure {
    fn of(error: LabError) -> Failure {
        Failure { is_of_another: matches!(&error, LabError::Subsystem { why, .. } if why == OTHER), error }
    }
}

fn walls(spans: &[Spans]) -> Vec<Duration> {
    let nr_steps = spans.iter().map(Vec::len).min().unwrap_or(0);
    let wall = |step: usize| {
        let first = spans.iter().map(|of| of[step].0).min().expect("at least one thread");
        spans.iter().map(|of| of[step].1).max().expect("at least one thread") - first
    };
    (0..nr_steps).map(wall).collect()
}

/// Where all threads meet, again and again.
struct Gate {
    nr_threads: usize,
    arrived: AtomicUsize,
    is_broken: AtomicBool,
}

impl Gate {
    /// Spins, so that all threads leave within the time that a line takes to travel; yields now and then
    /// for the case that there are more threads than CPUs.
    fn meet(&self) -> Result<(), LabError> {
        let all = (self.arrived.fetch_add(1, Ordering::AcqRel) + 1).next_multiple_of(self.nr_threads);
        let mut nr_turns = 0u32;
        while self.arrived.load(Ordering::Acquire) < all {
            if self.is_broken.load(Ordering::Acquire) {
                return Err(LabError::subsystem("a common step", OTHER));
            }
            nr_turns += 1;
            if nr_turns.is_multiple_of(1000) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        Ok(())
    }
}

/// A thread's way through the common steps. A thread that ends before the others, also by a panic, lets
/// them end too.
pub struct Steps<'a> {
    gate: &'a Gate,
    spans: Spans,
    is_done: bool,
}

impl Steps<'_> {
    /// Does `work` while all threads do theirs. The code between two steps is not timed, and no thread does
    /// it while another thread's clock runs.
    pub fn timed<T>(&mut self, work: impl FnOnce() -> Result<T, LabError>) -> Result<T, LabError> {
        self.gate.meet()?;
        let start = Instant::now();
        let done = work()?;
        self.spans.push((start, Instant::now()));
        self.gate.meet()?;
        Ok(done)
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.gate.is_broken.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus() -> Vec<usize> {
        os::allowed_cpus().unwrap()
    }

    #[test]
    fn a_step_lasts_from_the_first_start_to_the_last_end() {
        let counted = AtomicUsize::new(0);
        let done = together(3, &cpus(), |i, steps| {
            for _ in 0..4 {
                steps.timed(|| Ok(counted.fetch_add(1, Ordering::Relaxed)))?;
                assert_eq!(counted.load(Ordering::Relaxed) % 3, 0, "a step ends for all at once");
                steps.timed(|| {
                    std::thread::sleep(Duration::from_millis(i as u64));
                    Ok(())
                })?;
            }
            Ok(i)
        })
        .unwrap();
        assert_eq!((done.results, done.walls.len()), (vec![0, 1, 2], 8));
        assert!(done.walls[1] >= Duration::from_millis(2));
    }

    #[test]
    fn who_fails_lets_the_others_end() {
        let error = together(3, &cpus(), |i, steps| {
            if i == 2 {
                return Err(LabError::subsystem("thread 2", "its own reason"));
            }
            steps.timed(|| Ok(()))
        });
        assert_eq!(error.err().unwrap().to_string(), "thread 2: its own reason");
    }
}
