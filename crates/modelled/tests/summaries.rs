//! I40: at rest the summaries list each block that has something to offer. The models cover each pair of
//! changes that meet in a word of one level, or in words of two levels.

use common::{Modelled, arena_frames, explore, run};
use softfault_modelled::addr::{Order, Pfn};
use softfault_modelled::hooks::{FewBlocks, Trees};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Block groups of one block, so that three levels need no more: blocks 0 and 1 have words of
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

/// Free pages of a pool, of which the bits are all that says so, and what is done to them at once.
fn after_pages(free: &'static [u32], actors: &'static [Actor], left: Option<u32>) {
    // With words of one block each, and with words of many.
    [NR_BLOCKS as usize, 1].into_iter().for_each(|nr_cpus| after_pages_of(nr_cpus, free, actors, left));
}

fn after_pages_of(nr_cpus: usize, free: &'static [u32], actors: &'static [Actor], left: Option<u32>) {
    explore(3, move || {
        let first: Pfn = arena_frames();
        let trees: &'static Trees = Box::leak(Box::new(Trees::over(&Modelled, first, NR_BLOCKS, nr_cpus)));
        free.iter().for_each(|b| trees.put_page(*b));
        run(actors.iter().map(|actor| Box::new(move || actor(trees)) as Box<dyn FnOnce() + Send>).collect());
        assert!(trees.finds_all_pages(), "I40: a page is passed over");
        assert_eq!(trees.page(), left);
    });
}

/// Of two CPUs one gets the page, and it can come back at once.
#[test]
fn one_cpu_takes_a_page() {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    const TAKE: Actor = |t| {
        let nr = u32::from(t.take_page(0)) + u32::from(t.take_page(0));
        TAKEN.fetch_add(nr, Relaxed);
    };
    explore(3, || {
        let first: Pfn = arena_frames();
        let trees: &'static Trees = Box::leak(Box::new(Trees::over(&Modelled, first, NR_BLOCKS, NR_BLOCKS as usize)));
        trees.put_page(0);
        let before = TAKEN.load(Relaxed);
        run((0..2).map(|_| Box::new(move || TAKE(trees)) as Box<dyn FnOnce() + Send>).collect());
        assert_eq!(TAKEN.load(Relaxed) - before, 1, "I57: a page has one owner");
        assert!(trees.page().is_none());
    });
    after_pages(&[0], &[|t| assert!(t.take_page(0)), |t| t.put_page(1)], Some(1));
    after_pages(&[0], &[|t| assert!(t.take_page(0)), |t| t.put_page(64)], Some(64));
    after_pages(
        &[0],
        &[
            |t| {
                if t.take_page(0) {
                    t.put_page(0)
                }
            },
            |t| {
                if t.take_page(0) {
                    t.put_page(0)
                }
            },
        ],
        Some(0),
    );
    after_pages(&[0, 1], &[|t| assert!(t.take_page(0)), |t| assert!(t.take_page(1))], None);
}

type BlockActor = fn(&FewBlocks);

/// The real blocks, of which only these frames are free.
fn blocks_with(free: &[(u64, u64)]) -> &'static FewBlocks {
    let first: Pfn = arena_frames();
    let blocks = FewBlocks::over(&Modelled, first, NR_BLOCKS + 1, NR_BLOCKS as usize);
    free.iter().for_each(|(first, mask)| blocks.give(*first, *mask));
    Box::leak(Box::new(blocks))
}

/// Runs the actors on blocks of which only these frames are free.
fn with_blocks(preemptions: usize, free: &'static [(u64, u64)], begin: BlockActor, actors: &'static [BlockActor]) {
    explore(preemptions, move || {
        let blocks = blocks_with(free);
        begin(blocks);
        run(actors.iter().map(|actor| Box::new(move || actor(blocks)) as Box<dyn FnOnce() + Send>).collect());
        assert!(blocks.are_true(), "I40: a block is passed over, or a run");
    });
}

const FOUND: &str = "I40: who gave a frame back finds none";

#[test]
fn who_frees_finds_it_while_another_tells_of_the_block() {
    const ACTORS: &[BlockActor] =
        &[|b| b.give(0, 1), |b| _ = (b.give(0, 2), assert_eq!(b.found(Order::BASE), Some(0), "{FOUND}"))];
    with_blocks(2, &[], |_| (), ACTORS);
}

/// Their words lie below one word, in which the other found nothing. A search comes there from
/// above.
#[test]
fn who_frees_finds_it_while_another_goes_up() {
    const ACTORS: &[BlockActor] =
        &[|b| b.give(64 * 512, 1), |b| _ = (b.give(65 * 512, 1), assert!(b.found(Order::BASE).is_some(), "{FOUND}"))];
    with_blocks(2, &[], |_| (), ACTORS);
}

/// A freed frame is allocated again before the CPU that freed it reads the block's state, and another one
/// is freed before that CPU has updated the summaries.
#[test]
fn who_frees_hides_nothing() {
    const ACTORS: &[BlockActor] = &[
        |b| b.give(0, 1),
        |b| {
            if b.take(0) == 1 {
                b.give(0, 1);
                assert_eq!(b.found(Order::BASE), Some(0), "{FOUND}");
            }
        },
    ];
    with_blocks(4, &[], |_| (), ACTORS);
}

#[test]
fn the_last_frame_goes_while_one_comes_back() {
    const ACTORS: &[BlockActor] = &[|b| assert_ne!(b.take(0), 0), |b| b.give(64, 1)];
    with_blocks(2, &[(0, 1)], |_| (), ACTORS);
}

/// Runs of 128 frames, of which each brings one half.
#[test]
fn the_halves_of_a_run_come_back_at_once() {
    const ACTORS: &[BlockActor] = &[|b| b.give(0, !0), |b| b.give(64, !0)];
    with_blocks(2, &[], |b| b.lose_runs(0), ACTORS);
}

#[test]
fn a_run_comes_back_while_somebody_finds_none() {
    const ACTORS: &[BlockActor] = &[|b| b.lose_runs(0), |b| b.give(0, !0)];
    with_blocks(2, &[(128, 1)], |_| (), ACTORS);
}

/// The last frame that stays comes back, and the block would be like any other, while somebody
/// takes the next one there.
#[test]
fn a_block_becomes_free_while_a_frame_is_taken_that_stays() {
    const ALL: &[(u64, u64)] = &[(0, !0), (64, !0), (128, !0), (192, !0), (256, !0), (320, !0), (384, !0), (448, !0)];
    const ACTORS: &[BlockActor] = &[|b| b.give(0, 1), |b| assert_ne!(b.take_fixed(64), 0)];
    explore(2, move || {
        let blocks = blocks_with(ALL);
        assert_eq!(blocks.take_fixed(0), 1);
        run(ACTORS.iter().map(|actor| Box::new(move || actor(blocks)) as Box<dyn FnOnce() + Send>).collect());
        assert!(blocks.is_fixed(0) && blocks.are_true(), "I40: a frame stays, and the block does not say so");
    });
}
