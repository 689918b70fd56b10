//! I23: pins against fork, against removal, and their release against the last
//! unmapping.

use common::pager::{self, Pager};
use common::{Modelled, World, explore, models, run, use_whole_block};
use softfault_modelled::MapFlags;
use softfault_modelled::{Access, AddressSpace, Event, FaultError, FaultLocking, Pfn, Pin, PinError, Term};
use std::sync::{Arc, Mutex};

type Held = Arc<Mutex<Option<Pin<'static, Modelled>>>>;
type Child = Arc<Mutex<Option<AddressSpace<'static, Modelled>>>>;

/// The frame that the space has at page 0, by a pin of its own.
fn frame_of(space: &AddressSpace<'static, Modelled>) -> Pfn {
    space.pin_page_mut(0, Term::Short).unwrap().pfn()
}

fn pin(space: &'static AddressSpace<'static, Modelled>, access: Access) -> Pin<'static, Modelled> {
    match access {
        Access::Write => space.pin_page_mut(0, Term::Short).unwrap().into(),
        Access::Read | Access::Exec => space.pin_page(0, Term::Short).unwrap(),
    }
}

fn pin_against_fork(world: impl Fn() -> World + Sync + Send + Copy + 'static, access: Access) {
    explore(2, move || {
        let w = world();
        let (held, child) = (Held::default(), Child::default());
        let (pinned, forked) = (held.clone(), child.clone());
        run(vec![
            Box::new(move || *pinned.lock().unwrap() = Some(pin(w.space, access))),
            Box::new(move || *forked.lock().unwrap() = Some(w.space.fork().unwrap())),
        ]);
        let held = held.lock().unwrap().take().unwrap();
        let child = child.lock().unwrap().take().unwrap();
        w.check(&[&child]);
        // Both write: the parent's page is still the pinned one.
        assert_eq!(frame_of(w.space), held.pfn(), "I23: the parent has lost the pinned frame");
        assert_ne!(frame_of(&child), held.pfn(), "I23: the child writes the pinned frame");
        w.check(&[&child]);
        drop((held, child));
        w.check(&[]);
    });
}

#[test]
fn pin_against_fork_of_a_writable_page() {
    pin_against_fork(World::written, Access::Write);
}

/// Decided under the lock bit.
#[test]
fn pin_against_fork_of_a_page_that_is_not_writable() {
    let world = || {
        let w = World::written();
        w.space.mprotect(0, 4096, common::READ).unwrap();
        w.space.mprotect(0, 4096, common::RW).unwrap();
        w
    };
    pin_against_fork(world, Access::Read);
}

/// Two spaces share the page; one pins it while the other writes or goes.
fn pin_against_the_sharer(other: impl Fn(&'static AddressSpace<'static, Modelled>) + Sync + Send + Copy + 'static) {
    explore(2, move || {
        let w = World::written();
        let child: &'static _ = Box::leak(Box::new(w.space.fork().unwrap()));
        let held = Held::default();
        let pinned = held.clone();
        run(vec![
            Box::new(move || *pinned.lock().unwrap() = Some(w.space.pin_page(0, Term::Short).unwrap())),
            Box::new(move || other(child)),
        ]);
        let held = held.lock().unwrap().take().unwrap();
        w.check(&[child]);
        assert_eq!(frame_of(w.space), held.pfn());
        assert!(child.vma(0).is_none() || frame_of(child) != held.pfn(), "I23: another space writes the pinned frame");
        drop(held);
        w.check(&[child]);
    });
}

#[test]
fn pin_against_a_write_of_the_sharer() {
    pin_against_the_sharer(|child| {
        child.handle_fault(0, Access::Write).unwrap();
    });
}

#[test]
fn pin_against_munmap_of_the_sharer() {
    pin_against_the_sharer(|child| child.munmap(0, 4096).unwrap());
}

fn pin_against_removal(term: Term) {
    explore(2, move || {
        let w = World::written();
        let held = Held::default();
        let pinned = held.clone();
        let pin = move || match w.space.pin_page_mut(0, term) {
            Ok(pin) => *pinned.lock().unwrap() = Some(pin.into()),
            Err(PinError::Fault(FaultError::NotMapped)) => {}
            Err(error) => panic!("{error}"),
        };
        run(vec![Box::new(pin), Box::new(move || w.space.munmap(0, 4096).unwrap())]);
        w.check(&[]);
        let nr_free = w.vm.vmstat().nr_free_pages;
        let nr_held = u64::from(held.lock().unwrap().take().is_some());
        assert_eq!(w.vm.vmstat().nr_free_pages, nr_free + nr_held);
        w.check(&[]);
    });
}

#[test]
fn pin_against_munmap() {
    pin_against_removal(Term::Short);
}

/// The page goes while it is pinned for its move: then its frame is free once the pin is dropped.
#[test]
fn pin_for_long_against_munmap() {
    // The page is among others, which may move.
    use_whole_block();
    pin_against_removal(Term::Long);
}

#[test]
fn release_against_the_last_unmap() {
    explore(2, || {
        let w = World::written();
        let pin = w.space.pin_page_mut(0, Term::Short).unwrap();
        run(vec![Box::new(move || drop(pin)), Box::new(move || w.space.munmap(0, 4096).unwrap())]);
        w.check(&[]);
        assert_eq!(w.vm.event(Event::PinReleased), 1);
    });
}

#[test]
fn release_against_release() {
    explore(2, || {
        let w = World::written();
        let [first, second] = [0; 2].map(|_| w.space.pin_page_mut(0, Term::Short).unwrap());
        w.space.munmap(0, 4096).unwrap();
        run(vec![Box::new(move || drop(first)), Box::new(move || drop(second))]);
        w.check(&[]);
    });
}

/// The object loses the page while a pin of it is released.
#[test]
fn release_against_discard() {
    explore(2, || {
        let w = World::new(FaultLocking::Lockfree, 0, 2);
        let object: &'static _ = Box::leak(Box::new(w.vm.new_shared_object(4096).unwrap()));
        let part = softfault_modelled::ObjectPart::new(object);
        w.space.mmap_object(4 * 4096, 4096, common::RW, MapFlags::SHARED | MapFlags::FIXED, part).unwrap();
        let pin = w.space.pin_page_mut(4 * 4096, Term::Short).unwrap();
        w.space.munmap(4 * 4096, 4096).unwrap();
        run(vec![Box::new(move || drop(pin)), Box::new(move || object.discard(0..1))]);
        w.check(&[]);
        assert_eq!(object.nr_resident_pages(), 0);
    });
}

/// Those that have pages of the world's space.
const WITH_PAGES: &[(&str, fn())] = models![
    pin_against_fork_of_a_writable_page,
    pin_against_fork_of_a_page_that_is_not_writable,
    pin_against_a_write_of_the_sharer,
    pin_against_munmap_of_the_sharer,
    pin_against_munmap,
    pin_for_long_against_munmap,
    release_against_the_last_unmap,
    release_against_release,
    release_against_discard
];

#[test]
fn beside_a_pager() {
    pager::beside_a_pager(Pager::SwapsOut, WITH_PAGES);
}

#[test]
fn where_memory_fails() {
    // Each of them wants the page at the end, which kills it.
    let _nr_held = pager::play(Pager::Fails, WITH_PAGES);
}
