//! I45: a folio of 2 MiB is one word of an object's tree. A node takes its place when it is cut.

use common::objects::assert_word;
use common::pager;
use common::{Modelled, RW, World, beside_pagers, explore, run, use_swap, use_three_whole_blocks, use_whole_block};
use softfault_modelled::policy::folio::FolioOrders;
use softfault_modelled::{Access, FaultLocking, MapFlags, ObjectPart, Order, Pfn, SharedObject, Term};
use std::sync::{Arc, Mutex};

type Object = SharedObject<'static, Modelled>;

/// Where the first two pages of the object are mapped.
const AT: u64 = 4;
const LARGE: u64 = 512;

/// An object whose pages are of 2 MiB where there are frames, which is once; its top node is there.
fn world() -> (World, &'static Object) {
    use_whole_block();
    world_of_blocks()
}

fn world_of_blocks() -> (World, &'static Object) {
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    let orders = FolioOrders::new(Order(0), Order(9)).unwrap();
    let object: &'static Object = Box::leak(Box::new(w.vm.new_shared_object_of(LARGE * 4096, orders).unwrap()));
    // Before small pages come from the same block.
    object.write(0, &[1; 8]).unwrap();
    assert_eq!(object.nr_resident_pages(), LARGE);
    w.touch(0);
    let flags = MapFlags::SHARED.union(MapFlags::FIXED);
    w.space.mmap_object(AT * 4096, 2 * 4096, RW, flags, ObjectPart::new(object)).unwrap();
    w.map(AT + 2, 1);
    w.touch(AT + 2);
    pager::take_up_to(AT + 1);
    (w, object)
}

fn fault(w: World, page: u64) {
    w.space.handle_fault((AT + page) * 4096, Access::Read).unwrap();
}

fn assert_words(object: &Object, expected: [u8; 2]) {
    expected.iter().zip(0..).for_each(|(byte, page)| assert_word(object, page, *byte));
}

/// A lookup of the page finds the folio, waits, or finds the part.
#[test]
fn a_fault_against_a_cut() {
    explore(2, || {
        let (w, object) = world();
        object.write(0, &[7; 8]).unwrap();
        let look = move || {
            fault(w, 0);
            let mut word = [0; 8];
            w.space.read(AT * 4096, &mut word).unwrap();
            assert_eq!(word, [7; 8]);
        };
        run(vec![Box::new(look), Box::new(move || object.discard(1..LARGE))]);
        assert_word(object, 0, 7);
        assert_word(object, 1, 0);
        assert_eq!(pager::nr_had(object, 2), 1);
        w.check(&[]);
    });
}

/// A folio comes while a part of its place is discarded: whole, and zero there.
#[test]
fn a_fill_against_a_discard_of_a_part() {
    explore(2, || {
        let (w, object) = world();
        object.discard(0..LARGE);
        let write = move || object.write(4096, &[7; 8]).unwrap();
        run(vec![Box::new(write), Box::new(move || object.discard(0..1))]);
        assert_word(object, 0, 0);
        assert_word(object, 1, 7);
        w.check(&[]);
    });
}

/// Only one block is whole. A fault that finds the place claimed waits, and puts no small page there.
#[test]
fn two_who_want_a_page_bring_one_folio() {
    explore(2, || {
        let (w, object) = world();
        object.discard(0..LARGE);
        let store = move || w.space.write(AT * 4096, &[9; 8]).unwrap();
        run(vec![Box::new(store), Box::new(move || object.write(4096, &[7; 8]).unwrap())]);
        assert_words(object, [9, 7]);
        assert_eq!(object.nr_resident_pages(), LARGE);
        w.check(&[]);
    });
}

/// The object becomes smaller while a folio is zeroed that would not lie in it any more.
#[test]
fn a_fill_against_a_smaller_size() {
    explore(2, || {
        let (w, object) = world();
        object.discard(0..LARGE);
        let write = move || object.write(4096, &[7; 8]).unwrap();
        run(vec![Box::new(write), Box::new(move || object.set_size_bytes((LARGE - 1) * 4096))]);
        assert_word(object, 1, 7);
        assert!(object.nr_resident_pages() < LARGE, "a page is beyond the end");
        w.check(&[]);
    });
}

/// A world in which the folio can move, as its second page is mapped; the page's frame.
fn world_to_move() -> (World, &'static Object, Pfn) {
    use_three_whole_blocks();
    let (w, object) = world_of_blocks();
    object.write(0, &[7; 8]).unwrap();
    object.write(4096, &[8; 8]).unwrap();
    fault(w, 1);
    let pfn = w.space.translate_at_rest((AT + 1) * 4096).unwrap().pfn;
    (w, object, pfn)
}

/// One CPU moves the folio by its second frame, another does something with it.
fn move_against(
    preemptions: usize,
    other: impl Fn(World, &'static Object) + Sync + Send + Copy + 'static,
    expected: [u8; 2],
) {
    explore(preemptions, move || {
        let (w, object, pfn) = world_to_move();
        let mover = move || _ = w.vm.migrate_frame(pfn);
        run(vec![Box::new(mover), Box::new(move || other(w, object))]);
        w.check(&[]);
        assert_words(object, expected);
    });
}

#[test]
fn a_large_folio_moves() {
    explore(0, || {
        let (w, object, pfn) = world_to_move();
        let moved = w.vm.migrate_frame(pfn).unwrap();
        fault(w, 1);
        assert_eq!(w.space.translate_at_rest((AT + 1) * 4096).unwrap().pfn, moved);
        assert_words(object, [7, 8]);
        w.check(&[]);
    });
}

/// The page that has no entry yet gets one, of the old folio or of the new one.
#[test]
fn a_move_against_a_fault() {
    move_against(2, |w, _| w.space.write(AT * 4096, &[9; 8]).unwrap(), [9, 8]);
}

#[test]
fn a_move_against_a_store_to_a_tail() {
    move_against(2, |w, _| w.space.write((AT + 1) * 4096, &[9; 8]).unwrap(), [7, 9]);
}

/// The word becomes a node, or stays one word in another block.
#[test]
fn a_move_against_a_cut() {
    move_against(1, |_, object| object.discard(1..LARGE), [7, 0]);
}

/// Its tails lose their descriptors before it is marked, or afterwards: in the block that it fills then.
#[test]
#[ignore = "four seconds, for a mutant: `-- --ignored`"]
fn a_move_against_the_end_of_descriptors() {
    move_against(1, |_, object| assert_eq!(object.free_tail_descs(0), Ok(3)), [7, 8]);
}

/// The mover of a folio without tail descriptors restores them, and so does another CPU.
#[test]
fn a_move_against_the_return_of_descriptors() {
    explore(0, || {
        let (w, object, pfn) = world_to_move();
        object.free_tail_descs(0).unwrap();
        let nr_total = w.vm.vmstat().nr_total_pages;
        let mover = move || _ = w.vm.migrate_frame(pfn);
        run(vec![Box::new(mover), Box::new(move || _ = object.restore_tail_descs(0))]);
        w.check(&[]);
        assert_eq!(nr_total - w.vm.vmstat().nr_total_pages, 3, "brought back once");
        assert_words(object, [7, 8]);
    });
}

/// A pin of a tail keeps the folio where it is, whenever it came.
#[test]
fn a_move_against_a_pin_of_a_tail() {
    explore(1, || {
        let (w, object, pfn) = world_to_move();
        let held = Arc::new(Mutex::new(None));
        let pinned = held.clone();
        let pin = move || match w.space.pin_page_mut((AT + 1) * 4096, Term::Short) {
            Ok(pin) => *pinned.lock().unwrap() = Some(pin),
            Err(error) => panic!("{error}"),
        };
        let mover = move || _ = w.vm.migrate_frame(pfn);
        run(vec![Box::new(mover), Box::new(pin)]);
        w.check(&[]);
        let held = held.lock().unwrap().take().unwrap();
        held.write(0, &[9; 8]);
        assert_words(object, [7, 9]);
        assert!(w.vm.migrate_frame(held.pfn()).is_err());
        drop(held);
        w.check(&[]);
    });
}

/// The word becomes a node, of which one part lies elsewhere.
fn part_against(
    preemptions: usize,
    other: impl Fn(World, &'static Object) + Sync + Send + Copy + 'static,
    expected: [u8; 2],
) {
    explore(preemptions, move || {
        let (w, object, pfn) = world_to_move();
        let mover = move || {
            w.vm.fail_runs(Some(Order::PMD));
            _ = w.vm.migrate_frame(pfn);
        };
        run(vec![Box::new(mover), Box::new(move || other(w, object))]);
        w.check(&[]);
        assert_words(object, expected);
    });
}

#[test]
fn a_move_of_a_part_against_a_fault() {
    part_against(1, |w, _| w.space.write(AT * 4096, &[9; 8]).unwrap(), [9, 8]);
}

#[test]
fn a_move_of_a_part_against_a_cut() {
    part_against(0, |_, object| object.discard(1..LARGE), [7, 0]);
}

/// One CPU splits the folio by its second page, another does something with it.
fn split_against(
    preemptions: usize,
    split: impl Fn(World, Pfn) + Sync + Send + Copy + 'static,
    other: impl Fn(World, &'static Object) + Sync + Send + Copy + 'static,
    expected: [u8; 2],
) {
    use_swap(false);
    explore(preemptions, move || {
        let (w, object, pfn) = world_to_move();
        run(vec![Box::new(move || split(w, pfn)), Box::new(move || other(w, object))]);
        w.check(&[]);
        assert_words(object, expected);
    });
}

fn goes_out(w: World, pfn: Pfn) {
    _ = w.vm.swap_out_frame(pfn);
}

fn fails(w: World, pfn: Pfn) {
    _ = w.vm.poison_frame(pfn);
}

/// A page without an entry gets one, of the folio or of the part that stays.
#[test]
fn a_split_against_a_fault() {
    split_against(1, goes_out, |w, _| w.space.write(AT * 4096, &[9; 8]).unwrap(), [9, 8]);
}

/// The first of the two makes the word a node.
#[test]
fn a_split_against_a_cut() {
    split_against(0, goes_out, |_, object| object.discard(2..LARGE), [7, 8]);
}

/// The remover takes or passes over the remaining pages and those that come in place of others.
#[test]
fn a_failure_against_a_cut() {
    split_against(0, fails, |_, object| object.discard(1..LARGE), [7, 0]);
}

/// A pin of another page keeps it whole, whenever it came.
#[test]
fn a_split_against_a_pin() {
    use_swap(false);
    explore(1, || {
        let (w, object, pfn) = world_to_move();
        let held = Arc::new(Mutex::new(None));
        let pinned = held.clone();
        let pin = move || match w.space.pin_page_mut(AT * 4096, Term::Short) {
            Ok(pin) => *pinned.lock().unwrap() = Some(pin),
            Err(error) => panic!("{error}"),
        };
        run(vec![Box::new(move || goes_out(w, pfn)), Box::new(pin)]);
        w.check(&[]);
        let held = held.lock().unwrap().take().unwrap();
        held.write(0, &[9; 8]);
        assert_words(object, [9, 8]);
        assert!(w.vm.migrate_frame(held.pfn()).is_err());
        drop(held);
        w.check(&[]);
    });
}

beside_pagers![
    a_fault_against_a_cut,
    a_fill_against_a_discard_of_a_part,
    a_move_against_a_fault,
    a_move_against_a_store_to_a_tail,
    a_move_against_a_cut,
    a_move_against_the_return_of_descriptors,
    a_move_against_a_pin_of_a_tail,
    a_move_of_a_part_against_a_fault,
    a_move_of_a_part_against_a_cut,
    a_split_against_a_pin,
];
