//! Interleavings of a model, alone or beside a pager.

use super::machine::CPU;
use super::pager;
use softfault_modelled::sync;

/// The calling loom thread is that CPU, and runs the space.
pub fn be(cpu: u16) {
    CPU.with(|c| c.set(cpu));
}

/// Explores interleavings with at most `preemptions` preemptions. Not all of them:
/// loom remembers one last access of each word, so that a thread which loads a
/// word and then stores to it hides that another had loaded it before
/// (tokio-rs/loom#166). Each protocol has mutants here that show what is found.
///
/// Beside a pager there are none, and only so many schedules. The gate looks at so many of the others as
/// `SOFTFAULT_MOST_SCHEDULES` says: a few models have many times as many, for which `cargo xtask models` is there.
pub fn explore(preemptions: usize, model: impl Fn() + Sync + Send + Clone + 'static) {
    let preemptions = if pager::here().is_some() { 0 } else { preemptions };
    let model = move || if pager::here().is_some() { pager::as_model(&model) } else { model() };
    let builder = move || {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.max_branches = 100_000;
        if pager::here().is_some() {
            // Looked at after so many schedules.
            builder.checkpoint_interval = pager::MOST_SCHEDULES;
            builder.max_permutations = Some(pager::MOST_SCHEDULES);
        } else if let Some(most) = most_schedules() {
            builder.checkpoint_interval = LOOKED_AT_EVERY.min(most);
            builder.max_permutations = Some(most);
        }
        builder
    };
    sync::explore(builder, model);
}

/// Loom compares the number of schedules with their limit after so many.
const LOOKED_AT_EVERY: usize = 500;

fn most_schedules() -> Option<usize> {
    let text = std::env::var("SOFTFAULT_MOST_SCHEDULES").ok()?;
    Some(text.parse().expect("SOFTFAULT_MOST_SCHEDULES should be a number"))
}

/// Runs the actors as CPUs 1, 2, ... while the words are the model's.
pub fn run(actors: Vec<Box<dyn FnOnce() + Send>>) {
    sync::begin();
    let pager = pager::here().map(|_| loom::thread::spawn(pager::act));
    let threads: Vec<_> = actors
        .into_iter()
        .enumerate()
        .map(|(i, actor)| {
            loom::thread::spawn(move || {
                be(i as u16 + 1);
                if pager::here().is_some() { pager::as_program(actor) } else { actor() }
            })
        })
        .collect();
    threads.into_iter().chain(pager).for_each(|t| t.join().unwrap());
    sync::end();
    pager::bring_back();
}
