//! I40: at rest no search passes over a block that has something. Each pair of changes that
//! meet in a word of one level, or in the words of two.

mod common;

use common::{Modelled, arena_frames, explore, run};
use softfault_modelled::addr::Pfn;
use softfault_modelled::hooks::Trees;

/// Tracts of one block, so that three levels need no more: blocks 0 and 1 have words of
/// their own below one word, 64 lies below another.
const NR_BLOCKS: u32 = 65;

type Actor = fn(&Trees);

/// Blocks that have one thing each, and what is done to them at once.
fn after(full: &'static [u32], actors: &'static [Actor], test: impl Fn(&Trees) + Sync + Send + Clone + 'static) {
    explore(2, move || {
        let first: Pfn = arena_frames();
        let trees: &'static Trees = Box::leak(Box::new(Trees::over(&Modelled, first, NR_BLOCKS, NR_BLOCKS as usize)));
        full.iter().for_each(|b| trees.give(*b));
        run(actors.iter().map(|actor| Box::new(move || actor(trees)) as Box<dyn FnOnce() + Send>).collect());
        assert!(trees.are_true(), "I40: a block is passed over");
        test(trees);
    });
}

#[test]
fn a_block_runs_out_while_something_comes_back() {
    after(&[0], &[|t| assert!(t.take(0)), |t| t.give(0)], |t| assert_eq!(t.offering(), Some(0)));
}

#[test]
fn a_word_runs_out_while_its_neighbour_gets_something() {
    after(&[0], &[|t| assert!(t.take(0)), |t| t.give(1)], |t| assert_eq!(t.offering(), Some(1)));
}

#[test]
fn words_of_different_words_above() {
    after(&[0], &[|t| assert!(t.take(0)), |t| t.give(64)], |t| assert_eq!(t.offering(), Some(64)));
}

#[test]
fn the_last_two_run_out_at_once() {
    after(&[0, 1], &[|t| assert!(t.take(0)), |t| assert!(t.take(1))], |t| assert_eq!(t.offering(), None));
}

#[test]
fn what_comes_back_is_taken_at_once() {
    const ACTORS: &[Actor] = &[|t| _ = (t.take(0), t.take(0)), |t| t.give(0)];
    after(&[0], ACTORS, |_| ());
}

#[test]
fn something_comes_and_goes_on_either_side() {
    const ACTORS: &[Actor] = &[|t| assert!((t.give(1), t.take(1)).1), |t| t.give(0)];
    after(&[], ACTORS, |t| assert_eq!(t.offering(), Some(0)));
}
