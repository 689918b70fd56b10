//! Descriptors of tails become free memory and come back, of a folio of an object and of a page of a pool, while pins,
//! walkers and numbers of frames lead to its tails.
//!
//! Ways to fail: a CPU that found a tail's descriptor in a section reads the new content of the frame; the end of a pin
//! reads it, in no section; a frame that is another's already gets the descriptors that come back.

use super::*;
use softfault_shuffled::{Access, Advice, Pfn};

const NR_FRAMES: u64 = 1536;
const NR_CPUS: usize = 4;
const NR_SCHEDULES: usize = 200;
const AT: u64 = 0x4000_0000;
const HUGE_PAGES: u64 = 512;
/// Pages of a program, for which the frames of descriptors are used.
const SMALL: u64 = 0x8000_0000;
const NR_SMALL: u64 = 6;
/// A page to which nobody stores, and one whose word a program counts up.
const READ: u64 = 300;
const STORED: u64 = 411;

#[derive(Clone)]
struct World {
    vm: &'static Vm<Machine>,
    object: Arc<Object>,
    space: Arc<Space>,
}

fn world(make: impl FnOnce(&'static Vm<Machine>) -> Object) -> World {
    be(0);
    // Frames are claimed one at a time, so that those of descriptors are used at once.
    let vm = vm(NR_CPUS, NR_FRAMES, Tunables::default().with_zero_batch(1));
    let object = Arc::new(make(vm));
    let space = Arc::new(vm.new_space().unwrap());
    space.mmap_object(AT, HUGE_PAGES * 4096, RW, FIXED_SHARED, ObjectPart::new(&*object)).unwrap();
    space.mmap(SMALL, NR_SMALL * 4096, RW, common::FIXED_PRIVATE).unwrap();
    object.write(READ * 4096, &7u64.to_ne_bytes()).unwrap();
    World { vm, object, space }
}

/// Stores what looks like a descriptor in use to frames that are obtained now, and gives them back.
fn use_frames(space: &Space) {
    for page in 0..NR_SMALL {
        space.write(SMALL + page * 4096, &[0xff; 4096]).unwrap();
    }
    space.madvise(SMALL, NR_SMALL * 4096, Advice::DontNeed).unwrap();
}

/// Frees the descriptors and restores them, again and again.
fn free_and_restore(w: World) -> Actor {
    Box::new(move || {
        for _ in 0..3 {
            if w.object.free_tail_descs(0).is_ok() {
                use_frames(&w.space);
                assert_eq!(w.object.restore_tail_descs(READ), Ok(3));
            }
        }
    })
}

/// The pool takes a page, whose descriptors become free memory, and gives it back.
fn grow_and_shrink(w: World) -> Actor {
    Box::new(move || {
        for _ in 0..3 {
            // The page of the object becomes a surplus one.
            assert_eq!(w.vm.set_nr_hugepages(Order::PMD, 0), Ok(0));
            w.object.discard(0..HUGE_PAGES);
            use_frames(&w.space);
            if w.vm.set_nr_hugepages(Order::PMD, 1) != Ok(1) {
                continue;
            }
            use_frames(&w.space);
        }
    })
}

/// Pins pages of the folio, and asks about frames by their numbers, also after the pin has gone. Frames of a page that its pool has
/// lost are memory of small pages, which may go.
fn pin_and_ask(w: World, is_kept: bool) -> Actor {
    Box::new(move || {
        let mut rng = shuttle::rand::thread_rng();
        let mut frame = None;
        for _ in 0..5 {
            let page = rng.gen_range(1..HUGE_PAGES);
            if let Ok(pin) = w.space.pin_page(AT + page * 4096, Term::Short) {
                assert!(w.vm.migrate_frame(pin.pfn()).is_err(), "a pinned page has moved");
                frame = Some(pin.pfn());
            }
            if let Some(Pfn(tail)) = frame {
                let other = tail - tail % HUGE_PAGES as u32 + rng.gen_range(1..HUGE_PAGES) as u32;
                let has_gone = w.vm.swap_out_frame(Pfn(other)).is_ok();
                assert!(!has_gone || !is_kept, "a part of a folio of the least size has gone");
            }
        }
    })
}

/// Looks at the object's page, and stores to it, through a walker.
fn walk_and_store(w: World, is_kept: bool) -> Actor {
    Box::new(move || {
        let active = w.space.activate();
        let walker = active.walker();
        let mut stored = 0u64;
        for _ in 0..6 {
            let mut word = [0; 8];
            if let Ok(walked) = walker.translate(AT + READ * 4096, Access::Read)
                && walker.load_through(&walked, 0, &mut word).is_ok()
            {
                assert!(u64::from_ne_bytes(word) == 7 || !is_kept);
            }
            let Ok(walked) = walker.translate(AT + STORED * 4096, Access::Write) else { continue };
            if walker.load_through(&walked, 0, &mut word).is_ok() {
                assert!(u64::from_ne_bytes(word) == stored || !is_kept, "a store was lost");
            }
            if walker.store_through(&walked, 0, &(stored + 1).to_ne_bytes()).is_ok() {
                stored += 1;
            }
        }
        assert!(content(&w.object, STORED) == stored || !is_kept);
        drop(active);
    })
}

fn finish(w: World) {
    be(0);
    let counts = &mut vec![0; NR_FRAMES as usize + NR_SLOTS];
    w.vm.check_in_test(&[&w.space], counts).unwrap();
    let World { vm, object, space } = w;
    drop(object);
    drop(space);
    vm.check_in_test(&[], counts).unwrap();
}

const SEEN: [Event; 2] = [Event::TailDescsFreed, Event::TailDescsRestored];

#[test]
fn look_ups_of_tails_of_a_folio() {
    let nr_seen = Arc::new([const { AtomicU64::new(0) }; SEEN.len()]);
    let seen = Arc::clone(&nr_seen);
    shuffled(NR_SCHEDULES, move || {
        let orders = FolioOrders::new(Order::PMD, Order::PMD).unwrap();
        let w = world(|vm| vm.new_shared_object_of(HUGE_PAGES * 4096, orders).unwrap());
        assert_eq!(w.object.nr_resident_pages(), HUGE_PAGES);
        run(NR_CPUS, vec![free_and_restore(w.clone()), pin_and_ask(w.clone(), true), walk_and_store(w.clone(), true)]);
        assert_eq!(content(&w.object, READ), 7);
        add_seen(&seen, SEEN, w.vm);
        finish(w);
    });
    assert_all_seen(&nr_seen, SEEN);
}

#[test]
fn look_ups_of_tails_of_a_page_of_a_pool() {
    shuffled(NR_SCHEDULES, || {
        let w = world(|vm| {
            assert_eq!(vm.set_nr_hugepages(Order::PMD, 1), Ok(1));
            vm.new_hugetlb_object(HUGE_PAGES * 4096, Order::PMD).unwrap()
        });
        run(NR_CPUS, vec![grow_and_shrink(w.clone()), pin_and_ask(w.clone(), false), walk_and_store(w.clone(), false)]);
        w.object.discard(0..HUGE_PAGES);
        _ = w.vm.set_nr_hugepages(Order::PMD, 0);
        finish(w);
    });
}
