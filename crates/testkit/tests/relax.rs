//! What may happen while the core waits: see `softfault_testkit::baton`.

use softfault_testkit::baton::{Deed, Round, Schedule};

/// Rounds of three actors with random deeds.
const NR_ROUNDS: u64 = 350;
/// Decisions that are tried in all ways.
const DEPTH: usize = 4;

#[test]
fn three_actors_take_turns() {
    for seed in 0..NR_ROUNDS {
        if let Err(problem) = Round::random(seed).play() {
            panic!("{problem}");
        }
    }
}

#[test]
fn a_seed_repeats_its_round() {
    let round = Round::random(3);
    assert_eq!(round.play(), round.play());
}

/// The next list of decisions, given how many choices each of the last list had.
fn next(list: &[usize], choices: &[usize]) -> Option<Vec<usize>> {
    let mut list = list[..list.len().min(choices.len())].to_vec();
    while let Some(last) = list.pop() {
        if last + 1 < choices[list.len()] {
            list.push(last + 1);
            list.resize(DEPTH, 0);
            return Some(list);
        }
    }
    None
}

#[test]
fn each_operation_meets_each_other_at_its_first_waits() {
    const AGAINST: [Deed; 6] = [Deed::Store, Deed::Pin, Deed::Fork, Deed::Unmap, Deed::Discard, Deed::DiscardObject];
    let mut nr_rounds = 0;
    for (i, first) in Deed::ALL.into_iter().enumerate() {
        for (j, second) in AGAINST.into_iter().enumerate() {
            let seed = (i * AGAINST.len() + j) as u64;
            let frames_left = seed.is_multiple_of(3).then_some(seed % 17);
            let mut list = Some(vec![0; DEPTH]);
            while let Some(now) = list {
                let schedule = Schedule::Listed(now.clone());
                let deeds = vec![vec![first, Deed::Look], vec![second, Deed::Look]];
                let round = Round { deeds, seed, schedule, frames_left };
                let choices = round.play().unwrap_or_else(|problem| panic!("{problem}"));
                nr_rounds += 1;
                list = next(&now, &choices);
            }
        }
    }
    assert!(nr_rounds > 500, "{nr_rounds} rounds");
}
