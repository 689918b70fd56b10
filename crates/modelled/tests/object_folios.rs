//! I45: a folio of an object is filled in whole, is found from each of its pages, and is cut only when no
//! CPU uses one of them.

use common::objects::assert_word;
use common::pager;
use common::{Modelled, RW, World, beside_pagers, explore, run};
use softfault_modelled::policy::folio::FolioOrders;
use softfault_modelled::{Access, FaultLocking, MapFlags, ObjectPart, Order, SharedObject, Term};

type Object = SharedObject<'static, Modelled>;

/// Where the two pages of the object are mapped.
const AT: u64 = 4;

/// An object whose pages are of two frames where that fits; its table is there.
fn world() -> (World, &'static Object) {
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    w.touch(0);
    let orders = FolioOrders::new(Order(0), Order(1)).unwrap();
    let object: &'static Object = Box::leak(Box::new(w.vm.new_shared_object_of(2 * 4096, orders).unwrap()));
    let flags = MapFlags::SHARED.union(MapFlags::FIXED);
    w.space.mmap_object(AT * 4096, 2 * 4096, RW, flags, ObjectPart::new(object)).unwrap();
    // The table is there, and the object's node; no page is.
    w.map(AT + 2, 1);
    w.touch(AT + 2);
    pager::take_up_to(AT + 1);
    object.write(0, &[1; 8]).unwrap();
    assert_eq!(object.nr_resident_pages(), 2, "there are frames for folios");
    object.discard(0..2);
    (w, object)
}

fn fault(w: World, page: u64) {
    w.space.handle_fault((AT + page) * 4096, Access::Read).unwrap();
}

/// One of them brings it, and both map their page of it.
#[test]
fn two_faults_bring_one_folio() {
    explore(2, || {
        let (w, object) = world();
        let nr_free = w.vm.vmstat().nr_free_pages;
        run(vec![Box::new(move || fault(w, 0)), Box::new(move || fault(w, 1))]);
        assert_eq!((pager::nr_had(object, 2), nr_free - w.vm.vmstat().nr_free_pages), (2, 2));
        assert_eq!(w.space.rss_pages().shmem, object.nr_resident_pages());
        w.check(&[]);
    });
}

/// A folio that is being put in is barred as a whole or not at all.
#[test]
fn a_fill_against_a_discard_of_a_part() {
    for goes in [0, 1] {
        explore(2, move || {
            let (w, object) = world();
            let stays = 1 - goes;
            let write = move || object.write(stays * 4096, &[7; 8]).unwrap();
            run(vec![Box::new(write), Box::new(move || object.discard(goes..goes + 1))]);
            assert_word(object, stays, 7);
            assert_word(object, goes, 0);
            w.check(&[]);
        });
    }
}

/// The page that stays keeps its bytes, whichever frame is found.
#[test]
fn a_fault_against_a_cut() {
    explore(2, || {
        let (w, object) = world();
        object.write(0, &[7; 8]).unwrap();
        object.write(4096, &[8; 8]).unwrap();
        fault(w, 1);
        let look = move || {
            fault(w, 0);
            let mut word = [0; 8];
            w.space.read(AT * 4096, &mut word).unwrap();
            assert_eq!(word, [7; 8]);
        };
        run(vec![Box::new(look), Box::new(move || object.discard(1..2))]);
        assert_word(object, 0, 7);
        assert_word(object, 1, 0);
        assert_eq!(pager::nr_had(object, 2), 1);
        w.check(&[]);
    });
}

/// A pin of a tail counts at the head: the folio is cut before it, or stays.
#[test]
fn a_pin_against_a_cut() {
    explore(2, || {
        let (w, object) = world();
        object.write(4096, &[8; 8]).unwrap();
        fault(w, 1);
        let pin = move || {
            let pin = w.space.pin_page((AT + 1) * 4096, Term::Short).unwrap();
            // Its frame is nobody else's while it is held.
            let mut word = [0; 8];
            pin.read(0, &mut word);
            assert!(word == [8; 8] || word == [0; 8], "{word:?}");
        };
        run(vec![Box::new(pin), Box::new(move || object.discard(1..2))]);
        assert_word(object, 1, 0);
        w.check(&[]);
    });
}

/// The last pin, or the discard, gives all frames back, once.
#[test]
fn a_last_pin_against_a_discard() {
    explore(2, || {
        let (w, object) = world();
        let nr_free = w.vm.vmstat().nr_free_pages;
        fault(w, 1);
        let pin = w.space.pin_page((AT + 1) * 4096, Term::Short).unwrap();
        run(vec![Box::new(move || drop(pin)), Box::new(move || object.discard(0..2))]);
        let nr_lost = u64::from(pager::has_lost(AT) || pager::has_lost(AT + 1));
        assert_eq!((object.nr_resident_pages(), w.vm.vmstat().nr_free_pages + nr_lost), (0, nr_free));
        w.check(&[]);
    });
}

/// An entry of a tail goes with its VMA while the folio goes from the object.
#[test]
fn an_unmapping_against_a_discard() {
    explore(2, || {
        let (w, object) = world();
        fault(w, 1);
        let unmap = move || w.space.munmap(AT * 4096, 2 * 4096).unwrap();
        run(vec![Box::new(unmap), Box::new(move || object.discard(0..2))]);
        assert_eq!((object.nr_resident_pages(), w.space.rss_pages().shmem), (0, 0));
        w.check(&[]);
    });
}

beside_pagers![
    two_faults_bring_one_folio,
    a_fill_against_a_discard_of_a_part,
    a_fault_against_a_cut,
    a_pin_against_a_cut,
    a_last_pin_against_a_discard,
    an_unmapping_against_a_discard,
];
