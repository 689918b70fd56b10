//! I22, I30: a page of an object moves to another frame while another CPU uses the page, discards it, or
//! ends the object.

use common::objects::{content, map, mover};
use common::{Modelled, RW, World, beside_pagers, explore, run};
use softfault_modelled::{Access, AddressSpace, FaultError, FaultLocking, ObjectPart, Pfn, SharedObject};
use softfault_modelled::{MapFlags, Term};
use std::sync::{Arc, Mutex};

type Object = SharedObject<'static, Modelled>;
type Space = AddressSpace<'static, Modelled>;
type Actor = Box<dyn FnOnce() + Send>;

const FIXED_SHARED: MapFlags = MapFlags::SHARED.union(MapFlags::FIXED);
/// Where the object's page is mapped.
const AT: u64 = 4;

/// An object of one page, mapped, written and touched: its frame.
fn page(w: World) -> (Object, Pfn) {
    w.touch(0);
    let object = w.vm.new_shared_object(4096).unwrap();
    map(w.space, AT, &object);
    object.write(0, &[7; 8]).unwrap();
    w.touch(AT);
    let pfn = w.space.translate_at_rest(AT * 4096).unwrap().pfn;
    (object, pfn)
}

/// The same, of an object that lasts.
fn world() -> (World, &'static Object, Pfn) {
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    let (object, pfn) = page(w);
    (w, Box::leak(Box::new(object)), pfn)
}

/// One CPU moves the page, another does something with it.
fn move_against(other: impl Fn(World, &'static Object) + Sync + Send + Copy + 'static, word: [u8; 8]) {
    move_against_long(2, other, word);
}

/// The same with so many preemptions.
fn move_against_long(
    preemptions: usize,
    other: impl Fn(World, &'static Object) + Sync + Send + Copy + 'static,
    word: [u8; 8],
) {
    explore(preemptions, move || {
        let (w, object, pfn) = world();
        run(vec![mover(w, pfn), Box::new(move || other(w, object))]);
        w.check(&[]);
        assert_eq!(content(object, 0), word);
    });
}

/// The entry goes while it is looked at, or comes while the slot is marked.
#[test]
fn a_move_against_a_fault() {
    let fault = |w: World, _: &Object| _ = w.space.handle_fault(AT * 4096, Access::Write).unwrap();
    move_against(fault, [7; 8]);
}

/// A store is in the frame that is copied, or comes to the new one.
#[test]
fn a_move_against_a_store() {
    move_against(|w, _| w.space.write(AT * 4096, &[9; 8]).unwrap(), [9; 8]);
}

#[test]
fn a_move_against_a_write_by_the_handle() {
    move_against(|_, object| object.write(0, &[9; 8]).unwrap(), [9; 8]);
}

/// The store comes through the entry of another space, which the walk has to visit.
#[test]
fn a_move_against_a_store_through_another_mapping() {
    explore(2, || {
        let (w, object, pfn) = world();
        let other: &'static Space = Box::leak(Box::new(w.vm.new_space().unwrap()));
        map(other, AT, object);
        other.handle_fault(AT * 4096, Access::Write).unwrap();
        run(vec![mover(w, pfn), Box::new(|| other.write(AT * 4096, &[9; 8]).unwrap())]);
        w.check(&[other]);
        assert_eq!(content(object, 0), [9; 8]);
    });
}

/// One of the two has marked the slot first, and the other finds its mark.
#[test]
fn a_move_against_a_discard() {
    let discard = |w: World, object: &'static Object| {
        object.discard(0..1);
        w.touch(AT);
    };
    move_against_long(1, discard, [0; 8]);
}

#[test]
fn a_move_against_an_unmapping() {
    move_against_long(1, |w, _| w.space.munmap(AT * 4096, 4096).unwrap(), [7; 8]);
}

/// The frame that the page had is wanted at once.
#[test]
fn a_move_against_a_read() {
    explore(2, || {
        let (w, object, pfn) = world();
        let reuse = move || {
            if w.vm.migrate_frame(pfn).is_ok() {
                let scratch = w.vm.new_shared_object(4096).unwrap();
                scratch.write(0, &[5; 8]).unwrap();
            }
        };
        run(vec![Box::new(reuse), Box::new(|| assert_eq!(content(object, 0), [7; 8]))]);
        w.check(&[]);
    });
}

/// A page that is pinned stays, whenever the pin came.
#[test]
fn a_move_against_a_pin() {
    explore(2, || {
        let (w, object, pfn) = world();
        let held = Arc::new(Mutex::new(None));
        let pinned = held.clone();
        let pin = move || match w.space.pin_page_mut(AT * 4096, Term::Short) {
            Ok(pin) => *pinned.lock().unwrap() = Some(pin),
            Err(error) => panic!("{error}"),
        };
        run(vec![mover(w, pfn), Box::new(pin)]);
        w.check(&[]);
        let held = held.lock().unwrap().take().unwrap();
        held.write(0, &[9; 8]);
        assert_eq!(content(object, 0), [9; 8], "moved away under a pin");
        assert!(w.vm.migrate_frame(held.pfn()).is_err());
        drop(held);
        w.check(&[]);
    });
}

#[test]
fn a_move_against_a_move() {
    explore(1, || {
        let (w, object, pfn) = world();
        run(vec![mover(w, pfn), mover(w, pfn)]);
        w.check(&[]);
        assert_eq!(content(object, 0), [7; 8]);
    });
}

/// The last mapping is removed after the handle was dropped, and another object gets the header's frame at
/// once. The mover still has a reference to the object, or finds that it has ended.
#[test]
fn a_move_against_the_end_of_the_object() {
    explore(1, || {
        let w = World::new(FaultLocking::Lockfree, 0, 1);
        let (object, pfn) = page(w);
        drop(object);
        let end = move || {
            w.space.munmap(AT * 4096, 4096).unwrap();
            let object: &'static _ = Box::leak(Box::new(w.vm.new_shared_object(4096).unwrap()));
            assert_eq!(object.nr_mapped_pages(), 0);
        };
        run(vec![mover(w, pfn), Box::new(end)]);
        w.check(&[]);
    });
}

/// The space ends while its entries are taken.
#[test]
fn a_move_against_the_end_of_a_space() {
    explore(1, || {
        let (w, object, pfn) = world();
        let other = w.vm.new_space().unwrap();
        map(&other, AT, object);
        other.handle_fault(AT * 4096, Access::Write).unwrap();
        w.space.munmap(AT * 4096, 4096).unwrap();
        run(vec![mover(w, pfn), Box::new(move || drop(other))]);
        w.check(&[]);
        assert_eq!(content(object, 0), [7; 8]);
    });
}

/// Without an entry: the page is the handle's alone.
#[test]
fn a_move_against_a_first_mapping() {
    explore(1, || {
        let (w, object, pfn) = world();
        w.space.munmap(AT * 4096, 4096).unwrap();
        let first = move || {
            map(w.space, AT, object);
            match w.space.handle_fault(AT * 4096, Access::Write) {
                Ok(_) => w.space.write(AT * 4096, &[9; 8]).unwrap(),
                Err(FaultError::NotMapped) => unreachable!("mapped before"),
                Err(other) => panic!("{other}"),
            }
        };
        run(vec![mover(w, pfn), Box::new(first)]);
        w.check(&[]);
        assert_eq!(content(object, 0), [9; 8]);
    });
}

/// A page comes after the others were marked as leaving, and moves: it is none of those.
#[test]
fn a_move_of_a_new_page_against_a_discard() {
    explore(1, || {
        let w = World::new(FaultLocking::Lockfree, 0, 1);
        w.touch(0);
        let object: &'static Object = Box::leak(Box::new(w.vm.new_shared_object(2 * 4096).unwrap()));
        let part = ObjectPart::new(object);
        w.space.mmap_object(AT * 4096, 2 * 4096, RW, FIXED_SHARED, part).unwrap();
        object.write(0, &[7; 8]).unwrap();
        let new = move || {
            w.space.write((AT + 1) * 4096, &[8; 8]).unwrap();
            if let Some(there) = w.space.translate_at_rest((AT + 1) * 4096) {
                let _ = w.vm.migrate_frame(there.pfn);
            }
        };
        run(vec![Box::new(new), Box::new(move || object.discard(0..2))]);
        w.check(&[]);
        let mut word = [0; 8];
        object.read(4096, &mut word);
        assert!(word == [8; 8] || word == [0; 8], "{word:?}");
    });
}

/// The memory of the page fails. A CPU that reaches it is told, or has it before.
fn poison_against(other: impl Fn(World, &'static Object) + Sync + Send + Copy + 'static) {
    explore(2, move || {
        let (w, object, pfn) = world();
        let poison: Actor = Box::new(move || {
            let _ = w.vm.poison_frame(pfn);
        });
        run(vec![poison, Box::new(move || other(w, object))]);
        w.check(&[]);
    });
}

#[test]
fn a_failure_against_a_fault() {
    poison_against(|w, object| match w.space.handle_fault(AT * 4096, Access::Write) {
        Ok(_) => {}
        Err(FaultError::Poisoned) => assert_eq!(object.next_poisoned(0..1), Some(0)),
        Err(error) => panic!("{error}"),
    });
}

#[test]
fn a_failure_against_a_pin() {
    poison_against(|w, object| {
        if let Ok(pin) = w.space.pin_page_mut(AT * 4096, Term::Short) {
            assert_eq!(object.next_poisoned(0..1), None, "a page that is pinned has failed");
            assert_eq!(w.vm.poison_frame(pin.pfn()).ok(), None, "a pinned frame is in use");
        }
    });
}

/// The page has left the object then, whichever came first. A new one may get the frame before it
/// fails.
#[test]
fn a_failure_against_a_discard() {
    poison_against(|w, object| {
        object.discard(0..1);
        assert_eq!(object.next_poisoned(0..1), None);
        match w.space.handle_fault(AT * 4096, Access::Read) {
            // It may fail once more, in the same frame, before it is read.
            Ok(_) => {
                let mut word = [0; 8];
                let nr = object.read(0, &mut word);
                assert_eq!(word, [0; 8]);
                assert!(nr == 8 || object.next_poisoned(0..1) == Some(0));
            }
            Err(error) => assert_eq!((error, object.next_poisoned(0..1)), (FaultError::Poisoned, Some(0))),
        }
    });
}

beside_pagers![
    a_move_against_a_fault,
    a_move_against_a_store,
    a_move_against_a_write_by_the_handle,
    a_move_against_a_store_through_another_mapping,
    a_move_against_a_discard,
    a_move_against_an_unmapping,
    a_move_against_a_read,
    a_move_against_a_pin,
    a_move_against_a_move,
    a_move_against_the_end_of_the_object,
    a_move_against_the_end_of_a_space,
    a_move_against_a_first_mapping,
    a_move_of_a_new_page_against_a_discard,
    a_failure_against_a_fault,
    a_failure_against_a_pin,
    a_failure_against_a_discard
];
