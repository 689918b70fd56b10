//! A section of memory comes or goes while another CPU takes its frames, gives them back, or names them by number.
//!
//! Ways to fail: a section goes with a frame in use, of which the machine makes something else; a frame is given out
//! before its section is laid out; a descriptor of a section that went is written by the CPU that had its last frame; a
//! CPU is refused frames that a removal has for a moment.
//!
//! A section is one block here. A refill against a removal that succeeds is left to random schedules
//! (`crates/shuffled/tests/resize.rs`): the search may find each of the block's words as it was before the claim, or
//! after it, which are too many schedules.

use common::{Modelled, SECTION, World, be, beside_pagers, explore, pager, run, use_section, use_swap};
use softfault_modelled::{Access, Advice, FaultError, Pfn, RemoveMemoryRefusal, SharedObject};
use std::sync::{Arc, Mutex};

/// The CPU that has the section as its home, and another one.
const NEAR: u16 = 1;
const FAR: u16 = 2;
/// The models' page. Its table is there, since page 0 is.
const PAGE: u64 = 1;
/// Frames of a word of the block's bitmap.
const NR_IN_WORD: u64 = 64;

type Object = SharedObject<'static, Modelled>;
type Removed = Arc<Mutex<Option<bool>>>;

/// Tables come first: they would come from the end of the section, which would never go.
fn world() -> World {
    use_section();
    World::written()
}

fn with_section() -> World {
    let w = world();
    w.vm.add_memory(SECTION).unwrap();
    w
}

/// The same with the page in it.
fn with_page() -> (World, Pfn) {
    let w = with_section();
    be(NEAR);
    w.touch(PAGE);
    be(0);
    let pfn = w.space.translate_at_rest(PAGE * 4096).unwrap().pfn;
    assert!(pfn >= SECTION.first);
    (w, pfn)
}

fn new_object(w: World) -> &'static Object {
    Box::leak(Box::new(w.vm.new_shared_object(1024 * 4096).unwrap()))
}

/// Writes pages from that one on, until no frame is left but so many.
fn fill(w: World, object: &Object, first: u64, nr_left: u64) {
    be(FAR);
    let pages = (first..).take_while(|_| w.vm.vmstat().nr_free_pages > nr_left);
    pages.for_each(|page| object.write(page * 4096, &[1]).unwrap());
    be(0);
    assert_eq!(w.vm.vmstat().nr_free_pages, nr_left);
}

/// Touches the page, if there is a frame for it.
fn touch(w: World) {
    match w.space.handle_fault(PAGE * 4096, Access::Write) {
        Ok(_) | Err(FaultError::OutOfFrames) => {}
        Err(other) => panic!("{other:?}"),
    }
}

/// Names frames of the section that are nobody's page.
fn name(w: World) {
    for pfn in [SECTION.first, Pfn(SECTION.first.0 + 511)] {
        assert!(w.vm.migrate_frame(pfn).is_err(), "{pfn:?}");
    }
}

/// Removes the section, and says whether it went.
fn remove(w: World) -> (Removed, Box<dyn FnOnce() + Send>) {
    let removed = Removed::default();
    let result = removed.clone();
    (removed, Box::new(move || *result.lock().unwrap() = Some(w.vm.remove_memory(SECTION).is_ok())))
}

/// A section that went is not there, and all of one that stayed is free once the page is.
fn check(w: World, removed: &Removed) {
    w.check(&[]);
    if pager::here().is_none() {
        w.space.munmap(PAGE * 4096, 4096).unwrap();
        let has_gone = removed.lock().unwrap().unwrap();
        let expected = if has_gone { Err(RemoveMemoryRefusal::NotThere) } else { Ok(()) };
        assert_eq!(w.vm.remove_memory(SECTION), expected);
        w.check(&[]);
    }
}

/// The only page of the section ends.
#[test]
fn an_end_of_a_page_against_a_removal() {
    explore(2, || {
        let (w, _) = with_page();
        let (removed, remove) = remove(w);
        run(vec![Box::new(move || w.space.madvise(PAGE * 4096, 4096, Advice::DontNeed).unwrap()), remove]);
        check(w, &removed);
    });
}

/// The only page of the section leaves its frame, which the caller names by number.
#[test]
fn a_page_that_leaves_against_a_removal() {
    use_swap(false);
    explore(2, || {
        let (w, pfn) = with_page();
        w.space.write(PAGE * 4096, &[7]).unwrap();
        let (removed, remove) = remove(w);
        run(vec![Box::new(move || w.vm.swap_out_frame(pfn).map(drop).unwrap()), remove]);
        let mut byte = [0];
        w.space.read(PAGE * 4096, &mut byte).unwrap();
        assert_eq!(byte, [7]);
        check(w, &removed);
    });
}

#[test]
fn numbers_against_an_addition() {
    explore(2, || {
        let w = world();
        run(vec![Box::new(move || name(w)), Box::new(move || w.vm.add_memory(SECTION).unwrap())]);
        w.check(&[]);
    });
}

/// No frames are left but those that come.
#[test]
fn a_refill_against_a_section_that_comes_back() {
    explore(2, || {
        let w = with_section();
        w.vm.remove_memory(SECTION).unwrap();
        fill(w, new_object(w), 0, 0);
        run(vec![Box::new(move || touch(w)), Box::new(move || w.vm.add_memory(SECTION).unwrap())]);
        w.check(&[]);
        let there = w.space.translate_at_rest(PAGE * 4096);
        assert!(there.is_none_or(|there| there.pfn >= SECTION.first), "{there:?}");
    });
}

/// I28: no frames are left but the first of the section. The removal claims them, finds others in use, and gives
/// them back. No fault is refused meanwhile.
#[test]
fn a_refill_against_a_refused_removal() {
    // One preemption: with two it takes minutes.
    explore(1, || {
        let w = world();
        let object = new_object(w);
        // Their nodes, which stay.
        (0..NR_IN_WORD / 2).for_each(|page| object.write(2 * page * 4096, &[1]).unwrap());
        object.discard(0..NR_IN_WORD);
        w.vm.add_memory(SECTION).unwrap();
        be(NEAR);
        (0..NR_IN_WORD).for_each(|page| object.write(page * 4096, &[1]).unwrap());
        fill(w, object, NR_IN_WORD, 0);
        object.discard(0..NR_IN_WORD);
        assert_eq!(w.vm.vmstat().nr_free_pages, NR_IN_WORD);
        let fault = move || w.space.handle_fault(PAGE * 4096, Access::Write).map(drop);
        run(vec![
            Box::new(move || fault().expect("I28: refused while a removal had frames to give back")),
            Box::new(move || assert!(w.vm.remove_memory(SECTION).is_err())),
        ]);
        w.check(&[]);
    });
}

beside_pagers![an_end_of_a_page_against_a_removal, numbers_against_an_addition,];
