//! I47: ages. Walks, claims and advances write the same words.

use common::{World, beside_pagers, explore, run, use_blocks};
use softfault_modelled::{Access, AddressSpace, Advance, FaultLocking};

const ALL: u64 = u64::MAX;

/// One page, which was touched in the generation before this one; its entry is accessed.
fn world() -> World {
    let w = World::new(FaultLocking::Lockfree, 0, 2);
    w.touch(0);
    assert_eq!(w.vm.advance_generation(ALL), Advance::Done);
    assert_eq!((w.vm.idle_pages(1), w.vm.idle_pages(2)), (1, 0));
    w
}

fn walk(space: &AddressSpace<'static, common::Modelled>) {
    let _ = space.age_pages(0, ALL);
}

/// At each moment the entry or the age shows the use.
#[test]
fn a_walk_against_who_wants_to_evict() {
    explore(2, || {
        let w = world();
        let look = move || {
            let is_young = w.space.test_young(0, 4096) > 0;
            assert!(is_young || w.vm.idle_pages(1) == 0, "the use is nowhere");
        };
        run(vec![Box::new(move || walk(w.space)), Box::new(look)]);
        assert_eq!(w.vm.idle_pages(1), 0);
        w.check(&[]);
    });
}

/// Pages of two spaces beside each other in one word.
#[test]
fn two_walks_note_neighbours() {
    explore(2, || {
        let w = World::new(FaultLocking::Lockfree, 0, 1);
        let other: &'static _ = Box::leak(Box::new(w.space.fork().unwrap()));
        w.touch(0);
        other.handle_fault(0, Access::Write).unwrap();
        assert_eq!(w.vm.advance_generation(ALL), Advance::Done);
        assert_eq!(w.vm.idle_pages(1), 2);
        run(vec![Box::new(move || walk(w.space)), Box::new(move || walk(other))]);
        assert_eq!(w.vm.idle_pages(1), 0);
        w.check(&[other]);
    });
}

/// The generation advances while a use is being recorded. The last pass stops after the page, so that the
/// checker sees whether it has moved the page's old age away.
fn against_generations(late: impl Fn(World) + Sync + Send + Copy + 'static) {
    use_blocks();
    explore(2, move || {
        let w = world();
        let advance = move || {
            for _ in 0..3 {
                assert_eq!(w.vm.advance_generation(ALL), Advance::Done);
            }
            assert!(matches!(w.vm.advance_generation(1), Advance::UnderWay { .. }));
        };
        run(vec![Box::new(move || late(w)), Box::new(advance)]);
        w.check(&[]);
        let last = |_: World| while w.vm.advance_generation(ALL) != Advance::Done {};
        last(w);
        w.check(&[]);
    });
}

#[test]
fn a_late_walk_against_a_pass() {
    against_generations(|w| walk(w.space));
}

/// The frame that is claimed was free when the pass looked, or is not old.
#[test]
fn a_late_claim_against_a_pass() {
    against_generations(|w| w.touch(1));
}

/// A store is made while the walk finds the page unused, and while it records the use.
#[test]
fn a_walk_against_a_store() {
    explore(2, || {
        let w = world();
        walk(w.space);
        assert_eq!(w.vm.advance_generation(ALL), Advance::Done);
        run(vec![Box::new(move || walk(w.space)), Box::new(move || w.space.write(0, &[1]).unwrap())]);
        walk(w.space);
        assert_eq!(w.vm.idle_pages(1), 0, "one of the walks sees the store");
        w.check(&[]);
    });
}

beside_pagers![
    a_walk_against_who_wants_to_evict,
    two_walks_note_neighbours,
    a_late_walk_against_a_pass,
    a_late_claim_against_a_pass,
    a_walk_against_a_store
];
