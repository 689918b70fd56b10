//! F9, I13: the memory of a page fails while it is copied, and another CPU copies it, too, unmaps it, or moves it.
//!
//! Ways to fail: the entry stays the copying CPU's, so that the other one waits for ever; the count of the page keeps a
//! mapping that has gone; the page is used again, or one of those who share it is not told.

use common::pager::{self, Pager};
use common::{Modelled, World, be, explore, let_copies_fail, models, run};
use softfault_modelled::{Access, AddressSpace, Advice, FaultError, FaultLocking};

type Space = AddressSpace<'static, Modelled>;

/// A page that two spaces share, and cannot be copied.
fn shared() -> (World, &'static Space) {
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    w.touch(0);
    let child: &'static Space = Box::leak(Box::new(w.space.fork().unwrap()));
    let_copies_fail(true);
    (w, child)
}

/// A store; whether it was possible.
fn store(space: &'static Space) -> bool {
    match space.handle_fault(0, Access::Write) {
        Ok(_) => true,
        Err(FaultError::Poisoned | FaultError::NotMapped) => false,
        Err(other) => panic!("{other}"),
    }
}

/// The page stays if another CPU owned one of its entries, and is where it was: a store takes it out of use that nothing
/// races with, and all who share it are told.
fn assert_is_taken_out(spaces: [&'static Space; 2]) {
    let _ = store(spaces[0]);
    for space in spaces {
        assert_eq!(space.handle_fault(0, Access::Read), Err(FaultError::Poisoned), "one of two was not told");
    }
}

/// Neither of the two has a copy.
#[test]
fn two_copies_of_one_page() {
    explore(2, || {
        let (w, child) = shared();
        let copy = |space| Box::new(move || assert!(!store(space))) as Box<dyn FnOnce() + Send>;
        run(vec![copy(w.space), copy(child)]);
        w.check(&[child]);
        assert_is_taken_out([w.space, child]);
    });
}

/// The page is kept if the other has left it in time.
#[test]
fn a_copy_against_an_unmapping_by_the_other() {
    explore(2, || {
        let (w, child) = shared();
        run(vec![Box::new(move || _ = store(w.space)), Box::new(move || child.munmap(0, 4096).unwrap())]);
        w.check(&[child]);
        let done = w.space.handle_fault(0, Access::Read);
        assert!(done.is_ok() || done == Err(FaultError::Poisoned));
        assert_eq!(w.space.rss_pages().anon, u64::from(done.is_ok()));
    });
}

/// The entry that is copied goes with its mapping.
#[test]
fn a_copy_against_an_unmapping() {
    explore(2, || {
        let (w, child) = shared();
        run(vec![Box::new(move || _ = store(w.space)), Box::new(move || w.space.munmap(0, 4096).unwrap())]);
        w.check(&[child]);
        assert_eq!(w.space.rss_pages().anon, 0);
    });
}

/// A move cannot copy the page either: it stays where it is until its memory is taken out of use.
#[test]
fn a_copy_against_a_move() {
    explore(2, || {
        let (w, child) = shared();
        let from = w.space.translate_at_rest(0).unwrap().pfn;
        let copy = Box::new(move || assert!(!store(w.space)));
        run(vec![copy, Box::new(move || assert!(w.vm.migrate_frame(from).is_err()))]);
        w.check(&[child]);
        assert_is_taken_out([w.space, child]);
    });
}

/// I28: a copy has the last frame, from the frame cache of its CPU, and gives it back.
#[test]
fn the_frame_of_a_copy_that_fails_is_waited_for() {
    explore(1, || {
        let w = World::new(FaultLocking::Lockfree, 0, 8);
        [6, 7, 0, 1].iter().for_each(|page| w.touch(*page));
        let child = w.space.fork().unwrap();
        w.vm.age(0, 1);
        (0..2).for_each(|page| child.munmap(page * 4096, 4096).unwrap());
        w.space.madvise(0, 2 * 4096, Advice::DontNeed).unwrap();
        // One of two frames stays in the cache of the CPU that copies.
        be(1);
        w.touch(6);
        be(0);
        assert_eq!(w.vm.vmstat().nr_free_pages, 1);
        let_copies_fail(true);
        let copy = move || match w.space.handle_fault(7 * 4096, Access::Write) {
            Err(FaultError::Poisoned | FaultError::OutOfFrames) => {}
            done => panic!("{done:?}"),
        };
        let touch =
            move || assert!(w.space.handle_fault(4096, Access::Write).is_ok(), "I28: refused with a frame left");
        run(vec![Box::new(copy), Box::new(touch)]);
        w.check(&[&child]);
    });
}

#[test]
fn beside_a_pager() {
    // A space whose page comes back from the swap area has one of its own: the others share none.
    pager::beside_a_pager(
        Pager::SwapsOut,
        models![a_copy_against_an_unmapping_by_the_other, a_copy_against_an_unmapping],
    );
}

#[test]
fn where_memory_fails() {
    pager::beside_a_pager(
        Pager::Fails,
        models![
            two_copies_of_one_page,
            a_copy_against_an_unmapping_by_the_other,
            a_copy_against_an_unmapping,
            a_copy_against_a_move,
        ],
    );
}
