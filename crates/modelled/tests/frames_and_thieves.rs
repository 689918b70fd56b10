//! F10, I10: the last frames are in frame caches. One CPU (the thief) empties the caches of others
//! while these use or fill them.

use common::{World, explore, run};
use softfault_modelled::Advice;
use softfault_modelled::{Access, FaultError, FaultLocking};

/// One shows every mutant but that which takes from a frame cache in a thief's hands, whose test has
/// two. Two for all take minutes, and show no more.
const PREEMPTIONS: usize = 1;

/// A world in which all frames but `nr_left` are used. These are in the blocks: every frame cache is
/// empty.
fn nearly_nothing(nr_left: u64) -> World {
    let w = World::new(FaultLocking::Lockfree, 0, 8);
    (0..nr_left).for_each(|page| w.touch(page));
    w.touch(7);
    w.vm.age(0, 1);
    w.space.madvise(0, nr_left * 4096, Advice::DontNeed).unwrap();
    assert_eq!(w.vm.vmstat().nr_free_pages, nr_left);
    w
}

/// Touches a page; whether there was a frame for it.
fn touch(w: World, page: u64) -> bool {
    match w.space.handle_fault(page * 4096, Access::Write) {
        Ok(_) => true,
        Err(FaultError::OutOfFrames) => false,
        Err(other) => panic!("{other}"),
    }
}

/// One fault is filling its frame cache while the other finds the blocks empty and
/// steals. The later one is refused; no frame is lost or allocated twice.
#[test]
fn f10_a_thief_against_a_refill() {
    explore(PREEMPTIONS, || {
        let w = nearly_nothing(1);
        run(vec![Box::new(move || _ = touch(w, 0)), Box::new(move || _ = touch(w, 1))]);
        w.check(&[]);
        let nr_pages = w.space.rss_pages().anon - 1;
        assert_eq!(w.vm.vmstat().nr_free_pages, 1 - nr_pages);
    });
}

/// A CPU fills one of its frame caches with frames that a thief has just taken from another one of them,
/// while the thief still has the CPU's caches locked.
#[test]
fn f10_a_thief_against_a_refill_with_its_loot() {
    explore(PREEMPTIONS, || {
        let w = World::new(FaultLocking::Lockfree, 0, 8);
        w.touch(7);
        let child = w.space.fork().unwrap();
        (0..3).for_each(|page| w.touch(page));
        w.vm.age(0, 1);
        w.space.madvise(0, 3 * 4096, Advice::DontNeed).unwrap();
        // The copy takes one of three frames; two remain among those that need no zeroes.
        w.touch(7);
        assert_eq!(w.vm.vmstat().nr_free_pages, 2);
        run(vec![Box::new(move || _ = touch(w, 0)), Box::new(move || _ = touch(w, 1))]);
        w.check(&[&child]);
        let nr_pages = w.space.rss_pages().anon - 1;
        assert_eq!(w.vm.vmstat().nr_free_pages, 2 - nr_pages);
    });
}

/// One fault claims the two last frames, and takes one. The other finds the blocks empty before they are in
/// the cache. It must not be refused: it sees the claim, or the frame in the blocks or in the cache.
#[test]
fn f10_what_is_on_its_way_is_waited_for() {
    explore(PREEMPTIONS, || {
        let w = nearly_nothing(2);
        run(vec![
            Box::new(move || assert!(touch(w, 0), "refused with a frame left")),
            Box::new(move || assert!(touch(w, 1), "refused with a frame left")),
        ]);
        w.check(&[]);
        assert_eq!(w.vm.vmstat().nr_free_pages, 0);
    });
}

/// One CPU gets the last frame, finds no second one and gives it back, while the
/// other steals. I28: the other gets it in the end.
#[test]
fn f10_a_thief_against_giving_back() {
    explore(PREEMPTIONS, || {
        let w = nearly_nothing(1);
        let fault = move || assert!(touch(w, 1), "I28: refused while a call had a frame to give back");
        run(vec![Box::new(move || assert!(w.vm.new_space().is_err())), Box::new(fault)]);
        w.check(&[]);
        assert_eq!(w.vm.vmstat().nr_free_pages, 0);
    });
}

/// A CPU whose frame cache has frames takes two of them while another CPU steals.
#[test]
fn f10_a_thief_against_faults() {
    explore(2, || {
        let w = nearly_nothing(3);
        let owner = move || _ = (touch(w, 0), touch(w, 1));
        run(vec![Box::new(owner), Box::new(move || _ = touch(w, 2))]);
        w.check(&[]);
        let nr_pages = w.space.rss_pages().anon - 1;
        assert_eq!(w.vm.vmstat().nr_free_pages, 3 - nr_pages);
    });
}

/// I28: one fault claims both frames and is about to put one into its frame cache, while
/// the other finds the blocks empty.
#[test]
fn f10_a_refill_under_way_is_waited_for() {
    explore(PREEMPTIONS, || {
        let w = nearly_nothing(2);
        let fault = |page| move || assert!(touch(w, page), "I28: refused while a refill had a frame for it");
        run(vec![Box::new(fault(0)), Box::new(fault(1))]);
        w.check(&[]);
    });
}

/// I28: two faults on one page take both frames. The one that loses has a frame in
/// its preallocation, which the winner's next page needs.
#[test]
fn f10_a_loser_s_frame_is_waited_for() {
    explore(PREEMPTIONS, || {
        let w = nearly_nothing(2);
        let winner =
            move || assert!(touch(w, 0) && touch(w, 1), "I28: refused while a preallocation had a frame to give back");
        run(vec![Box::new(winner), Box::new(move || _ = touch(w, 0))]);
        w.check(&[]);
    });
}
