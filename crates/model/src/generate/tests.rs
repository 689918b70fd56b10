//! Sequences repeat, succeed often enough, and have all calls in them.

use super::{Limits, sequence};
use crate::features::Features;
use crate::op::{Call, PAGE, WINDOW, WINDOW_PAGES};

#[test]
fn a_seed_gives_one_sequence() {
    let limits = Limits::default();
    assert_eq!(sequence(7, limits), sequence(7, limits));
    assert_ne!(sequence(7, limits), sequence(8, limits));
}

#[test]
fn most_steps_succeed_and_every_call_occurs() {
    let limits = Limits { file_percent: 20, pool_percent: 40, ..Limits::default() };
    let all: Vec<_> = (0..60).flat_map(|seed| sequence(seed, limits)).collect();
    let good = all.iter().filter(|(_, expected)| expected.outcome.is_success()).count();
    assert!(good * 100 >= all.len() * 60, "{good} of {} succeed", all.len());
    for call in Call::ALL {
        let of_call = || all.iter().filter(|(op, _)| op.call == call);
        assert!(of_call().count() > 50, "{call:?} hardly occurs");
        let good = of_call().filter(|(_, expected)| expected.outcome.is_success()).count();
        assert!(good * 100 >= of_call().count() * 25, "{call:?} hardly ever succeeds");
    }
}

#[test]
fn what_a_kernel_lacks_is_not_asked_of_it() {
    let nothing = Features::none();
    let limits = |features| Limits { features, ..Limits::default() };
    let steps = |features| (0..20).flat_map(move |seed| sequence(seed, limits(features)));
    assert!(steps(nothing).all(|(op, _)| nothing.cover(&op)));
    let asked = steps(Features::all()).filter(|(op, expected)| !nothing.cover(op) && expected.outcome.is_success());
    assert!(asked.count() > 200);
}

/// The child on Linux would lose its own memory.
#[test]
fn no_successful_step_reaches_beyond_the_window() {
    let near = WINDOW..WINDOW + (WINDOW_PAGES + 2500) * 4096;
    for (op, expected) in (0..200).flat_map(|seed| sequence(seed, Limits::default())) {
        let ranged = matches!(op.call, Call::Munmap | Call::Mprotect | Call::Madvise);
        if ranged && expected.outcome.is_success() && near.contains(&op.args[0]) && op.args[1] > 0 {
            assert!(op.args[0] + op.args[1] <= near.end, "{op}");
        }
    }
}

/// Stores that succeed in each of the eight parts of an aligned 2 MiB.
fn stores_by_word(limits: Limits) -> [usize; 8] {
    let mut nr = [0; 8];
    for (op, expected) in (0..40).flat_map(|seed| sequence(seed, limits)) {
        if op.call == Call::Store && expected.outcome.is_success() {
            nr[(op.args[0] / PAGE % 512 / 64) as usize] += 1;
        }
    }
    nr
}

/// A bitmap of a block has eight words: what is wrong with one of them shows only if
/// pages of that word are written.
#[test]
fn pages_in_each_word_of_a_block_are_written() {
    let mut of_parts = [0; 8];
    for i in 0..4 {
        let more = stores_by_word(super::part(i, 250, i % 2 == 0));
        of_parts.iter_mut().zip(more).for_each(|(nr, more)| *nr += more);
    }
    for nr in [stores_by_word(Limits::default()), of_parts] {
        assert!(nr.iter().all(|nr| *nr > 40), "{nr:?}");
    }
}
