//! I22, I45: a folio of an object moves as a whole or not at all, while another CPU uses, discards or moves
//! one of its pages.

use common::objects::{content, mover};
use common::pager;
use common::{Modelled, RW, World, beside_pagers, explore, run};
use softfault_modelled::policy::folio::FolioOrders;
use softfault_modelled::{Access, FaultLocking, MapFlags, ObjectPart, Order, Pfn, SharedObject, Term};
use std::sync::{Arc, Mutex};

type Object = SharedObject<'static, Modelled>;
type Actor = Box<dyn FnOnce() + Send>;

/// Where the two pages of the object are mapped.
const AT: u64 = 4;

/// An object that is one folio of two pages, which say 7 and 8; the second one is mapped. And its frame.
fn page(w: World, least: u8) -> (Object, Pfn) {
    w.touch(0);
    let orders = FolioOrders::new(Order(least), Order(1)).unwrap();
    let object = w.vm.new_shared_object_of(2 * 4096, orders).unwrap();
    let flags = MapFlags::SHARED.union(MapFlags::FIXED);
    w.space.mmap_object(AT * 4096, 2 * 4096, RW, flags, ObjectPart::new(&object)).unwrap();
    object.write(0, &[7; 8]).unwrap();
    object.write(4096, &[8; 8]).unwrap();
    assert_eq!(object.nr_resident_pages(), 2, "there are frames for folios");
    w.touch(AT + 1);
    let pfn = w.space.translate_at_rest((AT + 1) * 4096).unwrap().pfn;
    (object, pfn)
}

/// The same, of an object that lasts.
fn world(least: u8) -> (World, &'static Object, Pfn) {
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    let (object, pfn) = page(w, least);
    (w, Box::leak(Box::new(object)), pfn)
}

/// Of the pages whose memory has not failed.
fn assert_words(object: &Object, expected: [u8; 2]) {
    for page in [0, 1] {
        let mut word = [0xee; 8];
        let nr = object.read(page * 4096, &mut word);
        let is_right = nr == 8 && word == [expected[page as usize]; 8];
        assert!(is_right || pager::has_failed(object, page), "page {page}: {word:?}, not {expected:?}");
    }
}

/// One CPU moves the folio by its second frame, another does something with it.
fn move_against(
    preemptions: usize,
    other: impl Fn(World, &'static Object) + Sync + Send + Copy + 'static,
    expected: [u8; 2],
) {
    explore(preemptions, move || {
        let (w, object, pfn) = world(0);
        run(vec![mover(w, pfn), Box::new(move || other(w, object))]);
        w.check(&[]);
        assert_words(object, expected);
    });
}

/// The page that has no entry yet gets one, while the words are marked one after the other.
#[test]
fn a_move_against_a_fault() {
    let fault = |w: World, _: &Object| _ = w.space.handle_fault(AT * 4096, Access::Write).unwrap();
    move_against(2, fault, [7, 8]);
}

#[test]
fn a_move_against_a_store_to_a_tail() {
    move_against(2, |w, _| w.space.write((AT + 1) * 4096, &[9; 8]).unwrap(), [7, 9]);
}

#[test]
fn a_move_against_a_write_by_the_handle() {
    let write = |_: World, object: &Object| object.write(4096 - 8, &[9; 16]).unwrap();
    move_against(2, write, [7, 9]);
}

/// One of the two marks the first word first. Pages that stay have the bytes that they had.
#[test]
fn a_move_against_a_cut() {
    for goes in [0, 1] {
        let expected = if goes == 0 { [0, 8] } else { [7, 0] };
        move_against(1, move |_, object| object.discard(goes..goes + 1), expected);
    }
}

#[test]
fn a_move_against_a_discard() {
    move_against(1, |_, object| object.discard(0..2), [0, 0]);
}

/// Moves one page alone: there are no two frames beside each other.
fn mover_of_a_part(w: World, pfn: Pfn) -> Actor {
    Box::new(move || {
        w.vm.fail_runs(Some(Order(1)));
        _ = w.vm.migrate_frame(pfn);
    })
}

/// One CPU moves a page of the folio, another does something with it.
fn part_against(
    preemptions: usize,
    other: impl Fn(World, &'static Object) + Sync + Send + Copy + 'static,
    expected: [u8; 2],
) {
    explore(preemptions, move || {
        let (w, object, pfn) = world(0);
        run(vec![mover_of_a_part(w, pfn), Box::new(move || other(w, object))]);
        w.check(&[]);
        assert_words(object, expected);
    });
}

#[test]
fn a_move_of_a_part_against_a_fault() {
    let fault = |w: World, _: &Object| w.space.write(AT * 4096, &[9; 8]).unwrap();
    part_against(2, fault, [9, 8]);
}

#[test]
fn a_move_of_a_part_against_a_store_to_it() {
    part_against(2, |w, _| w.space.write((AT + 1) * 4096, &[9; 8]).unwrap(), [7, 9]);
}

#[test]
fn a_move_of_a_part_against_a_discard() {
    part_against(1, |_, object| object.discard(0..1), [0, 8]);
    part_against(1, |_, object| object.discard(0..2), [0, 0]);
}

/// A pin of the page that would stay keeps all.
#[test]
fn a_move_of_a_part_against_a_pin() {
    explore(1, || {
        let (w, object, pfn) = world(0);
        w.space.handle_fault(AT * 4096, Access::Write).unwrap();
        let held = Arc::new(Mutex::new(None));
        let pinned = held.clone();
        let pin = move || match w.space.pin_page_mut(AT * 4096, Term::Short) {
            Ok(pin) => *pinned.lock().unwrap() = Some(pin),
            Err(error) => panic!("{error}"),
        };
        run(vec![mover_of_a_part(w, pfn), Box::new(pin)]);
        w.check(&[]);
        let held = held.lock().unwrap().take().unwrap();
        held.write(0, &[9; 8]);
        assert_words(object, [9, 8]);
        drop(held);
        w.check(&[]);
    });
}

/// The old frames are allocated again at once.
#[test]
fn a_move_against_a_read() {
    explore(2, || {
        let (w, object, pfn) = world(0);
        let reuse = move || {
            if w.vm.migrate_frame(pfn).is_ok() {
                let orders = FolioOrders::new(Order(1), Order(1)).unwrap();
                let scratch = w.vm.new_shared_object_of(2 * 4096, orders).unwrap();
                scratch.write(0, &[5; 8]).unwrap();
                scratch.write(4096, &[5; 8]).unwrap();
            }
        };
        run(vec![Box::new(reuse), Box::new(|| assert_words(object, [7, 8]))]);
        w.check(&[]);
    });
}

/// A pin of a tail keeps the folio where it is, whenever it came.
#[test]
fn a_move_against_a_pin_of_a_tail() {
    explore(2, || {
        let (w, object, pfn) = world(0);
        let held = Arc::new(Mutex::new(None));
        let pinned = held.clone();
        let pin = move || match w.space.pin_page_mut((AT + 1) * 4096, Term::Short) {
            Ok(pin) => *pinned.lock().unwrap() = Some(pin),
            Err(error) => panic!("{error}"),
        };
        run(vec![mover(w, pfn), Box::new(pin)]);
        w.check(&[]);
        let held = held.lock().unwrap().take().unwrap();
        held.write(0, &[9; 8]);
        assert_words(object, [7, 9]);
        assert!(w.vm.migrate_frame(held.pfn()).is_err());
        drop(held);
        w.check(&[]);
    });
}

/// The folio comes to frames that somebody is about to move.
#[test]
fn a_move_against_a_fill() {
    explore(2, || {
        let (w, object, pfn) = world(0);
        object.discard(0..2);
        let fill = move || {
            w.space.write((AT + 1) * 4096, &[9; 8]).unwrap();
            assert_eq!(pager::nr_had(object, 2), 2);
        };
        run(vec![mover(w, pfn), Box::new(fill)]);
        w.check(&[]);
        assert_words(object, [0, 9]);
    });
}

/// The mover finds the first page present, and the second one still FILLING. If it marked the second one, the
/// filler would overwrite the mark, and a store would be lost in the old frame.
#[test]
fn a_move_against_half_a_fill() {
    explore(3, || {
        let (w, object, pfn) = world(0);
        object.discard(0..2);
        let fill = move || {
            w.touch(AT + 1);
            // The mover removes the entry now. Of a mover that has waited loom switches back to no other way.
            loom::thread::yield_now();
            w.space.write((AT + 1) * 4096, &[9; 8]).unwrap();
        };
        run(vec![mover(w, pfn), Box::new(fill)]);
        w.check(&[]);
        assert_words(object, [0, 9]);
    });
}

#[test]
fn a_move_against_the_end_of_the_object() {
    explore(1, || {
        let w = World::new(FaultLocking::Lockfree, 0, 1);
        let (object, pfn) = page(w, 1);
        drop(object);
        let end = move || w.space.munmap(AT * 4096, 2 * 4096).unwrap();
        run(vec![mover(w, pfn), Box::new(end)]);
        w.check(&[]);
    });
}

/// A folio of the least size that loses a page stays whole, and may be moving.
#[test]
fn a_move_against_a_hole_in_the_least_size() {
    explore(1, || {
        let (w, object, pfn) = world(1);
        run(vec![mover(w, pfn), Box::new(move || object.discard(1..2))]);
        w.check(&[]);
        assert_words(object, [7, 0]);
        assert_eq!(pager::nr_had(object, 2), 2);
    });
}

/// The memory of one page fails, by its frame, while another CPU does something.
fn failure_against(
    preemptions: usize,
    bad: u32,
    other: impl Fn(World, &'static Object) + Sync + Send + Copy + 'static,
) {
    explore(preemptions, move || {
        let (w, object, tail) = world(0);
        let poison: Actor = Box::new(move || _ = w.vm.poison_frame(Pfn(tail.0 - 1 + bad)));
        run(vec![poison, Box::new(move || other(w, object))]);
        w.check(&[]);
    });
}

/// The other page is as it was, and is a folio of its own afterwards.
#[test]
fn a_failure_against_a_fault() {
    failure_against(2, 1, |w, object| {
        w.space.write(AT * 4096, &[9; 8]).unwrap();
        assert_eq!(content(object, 0), [9; 8]);
    });
}

/// Discarded pages are gone, whichever sizes the remover has found.
#[test]
#[ignore = "half a minute, for a mutant: `-- --ignored`"]
fn a_failure_against_a_discard() {
    explore(1, || {
        let (w, object, tail) = world(0);
        w.space.munmap(AT * 4096, 2 * 4096).unwrap();
        let poison: Actor = Box::new(move || _ = w.vm.poison_frame(Pfn(tail.0 - 1)));
        run(vec![poison, Box::new(|| object.discard(0..2))]);
        w.check(&[]);
        assert_eq!((object.next_poisoned(0..2), object.nr_resident_pages()), (None, 0));
    });
}

#[test]
fn a_failure_against_a_hole_beside_it() {
    failure_against(1, 1, |_, object| {
        object.discard(0..1);
        assert_eq!(content(object, 0), [0; 8]);
        let mut word = [0; 8];
        let is_there = object.read(4096, &mut word) == 8;
        assert!(is_there && word == [8; 8] || object.next_poisoned(0..2) == Some(1), "{word:?}");
    });
}

/// A pin of either page keeps the folio.
#[test]
fn a_failure_against_a_pin() {
    failure_against(2, 0, |w, _| {
        let pin = w.space.pin_page_mut((AT + 1) * 4096, Term::Short).unwrap();
        if w.vm.poison_frame(pin.pfn()).is_ok() {
            panic!("a pinned frame is in use");
        }
        pin.write(0, &[9; 8]);
        let mut word = [0; 8];
        w.space.read((AT + 1) * 4096, &mut word).unwrap();
        assert_eq!(word, [9; 8]);
    });
}

beside_pagers![
    a_move_against_a_fault,
    a_move_against_a_store_to_a_tail,
    a_move_against_a_write_by_the_handle,
    a_move_against_a_cut,
    a_move_against_a_discard,
    a_move_against_a_read,
    a_move_against_a_pin_of_a_tail,
    a_move_against_a_fill,
    a_move_against_half_a_fill,
    a_move_against_the_end_of_the_object,
    a_move_against_a_hole_in_the_least_size,
    a_move_of_a_part_against_a_fault,
    a_move_of_a_part_against_a_store_to_it,
    a_move_of_a_part_against_a_discard,
    a_move_of_a_part_against_a_pin,
    a_failure_against_a_fault,
    a_failure_against_a_hole_beside_it,
    a_failure_against_a_pin,
];
