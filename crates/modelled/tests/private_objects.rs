//! I54: private copies of an object's pages, against an operation that takes the source page out of the object,
//! moves it or swaps it out, and against a smaller size, which drops copies.
//!
//! Ways to fail: a copy is made of a frame that has become another page's; a copy stays beyond the end, or
//! goes from a mapping that is not the object's; two copies of one page, of which one is lost.

use common::objects::byte;
use common::pager;
use common::{FIXED_PRIVATE, Modelled, RW, World, beside_pagers, explore, run, use_swap};
use softfault_modelled::{Access, Advice, MapFlags, MremapFlags};
use softfault_modelled::{AddressSpace, FaultError, FaultLocking, ObjectPart, Pfn, SharedObject};
use std::sync::{Arc, Mutex};

type Object = SharedObject<'static, Modelled>;
type Space = AddressSpace<'static, Modelled>;
type Actor = Box<dyn FnOnce() + Send>;

const FIXED_COPY: MapFlags = MapFlags::PRIVATE.union(MapFlags::FIXED);
/// Where the object's page is mapped privately, and where it moves.
const AT: u64 = 4;
const TO: u64 = 8;
const MOVE: MremapFlags = MremapFlags::MAYMOVE.union(MremapFlags::FIXED);

fn map(space: &Space, page: u64, object: &Object) {
    space.mmap_object(page * 4096, 4096, RW, FIXED_COPY, ObjectPart::new(object)).unwrap();
}

/// An object of one page, full of 7, and mapped privately; the page is shown or not. And its frame.
fn world(is_shown: bool) -> (World, &'static Object, Pfn) {
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    w.touch(0);
    let object: &'static Object = Box::leak(Box::new(w.vm.new_shared_object(4096).unwrap()));
    map(w.space, AT, object);
    object.write(0, &[7; 4096]).unwrap();
    // The table is there in any case.
    w.space.handle_fault(AT * 4096, Access::Read).unwrap();
    let pfn = frame_of(w);
    if !is_shown {
        w.space.madvise(AT * 4096, 4096, Advice::DontNeed).unwrap();
    }
    (w, object, pfn)
}

/// The same with a copy in place, full of 9, and its frame.
fn world_with_copy() -> (World, &'static Object, Pfn) {
    let (w, object, _) = world(true);
    w.space.write(AT * 4096, &[9; 4096]).unwrap();
    (w, object, frame_of(w))
}

fn frame_of(w: World) -> Pfn {
    w.space.translate_at_rest(AT * 4096).unwrap().pfn
}

/// A store of the program's, which copies the page.
fn store(w: World, byte: u64) -> Actor {
    Box::new(move || {
        let active = w.space.activate();
        match w.space.write(AT * 4096 + byte, &[9]) {
            Ok(()) => {}
            Err(error) if error.fault == FaultError::BeyondObject => {}
            Err(other) => panic!("{other}"),
        }
        drop(active);
    })
}

/// The first byte of a page of a space, and the last.
fn ends(space: &Space, page: u64) -> [u8; 2] {
    [0, 4095].map(|at| {
        let mut byte = [0];
        space.read(page * 4096 + at, &mut byte).unwrap();
        byte[0]
    })
}

/// Private pages of the space, those that have failed since included.
fn nr_private(w: World) -> u64 {
    w.space.rss_pages().anon + w.space.rss_pages().swap + pager::nr_lost()
}

/// A store against something that happens to the object's page, which is shown by an entry or not.
fn store_against(
    shown: &[bool],
    other: impl Fn(World, &'static Object, Pfn) + Sync + Send + Copy + 'static,
    after: impl Fn(World, &'static Object) + Sync + Send + Copy + 'static,
) {
    for &is_shown in shown {
        explore(1, move || {
            let (w, object, pfn) = world(is_shown);
            run(vec![store(w, 0), Box::new(move || other(w, object, pfn))]);
            w.check(&[]);
            after(w, object);
            w.check(&[]);
        });
    }
}

/// The copy has what the page had, or zeroes, and stays.
#[test]
fn a_copy_against_a_discard() {
    store_against(
        &[true, false],
        |_, object, _| object.discard(0..1),
        |w, object| {
            let [first, last] = ends(w.space, AT);
            assert!(first == 9 && (last == 7 || last == 0), "{first} {last}");
            assert_eq!(byte(object, 0), 0);
        },
    );
}

/// The page's old frame is somebody else's as soon as the move is over.
#[test]
fn a_copy_against_a_move() {
    store_against(
        &[true],
        |w, _, pfn| _ = w.vm.migrate_frame(pfn),
        |w, object| assert_eq!((ends(w.space, AT), byte(object, 0)), ([9, 7], 7)),
    );
}

#[test]
fn a_copy_against_a_swap_out() {
    use_swap(false);
    store_against(
        &[true],
        |w, _, pfn| _ = w.vm.swap_out_frame(pfn),
        |w, object| assert_eq!((ends(w.space, AT), byte(object, 0)), ([9, 7], 7)),
    );
}

/// Nobody has a copy beyond the end, also not of a page that the store put in itself.
#[test]
fn a_copy_against_a_smaller_size() {
    store_against(
        &[true, false],
        |_, object, _| object.set_size_bytes(0),
        |w, object| {
            assert_eq!((nr_private(w), w.space.rss_pages().shmem), (1, 0), "that of page 0");
            object.set_size_bytes(4096);
            assert_eq!(ends(w.space, AT), [0, 0]);
        },
    );
}

/// Both stores are in the one copy there is.
#[test]
fn two_stores_copy_one_page() {
    for is_shown in [true, false] {
        explore(1, move || {
            let (w, object, _) = world(is_shown);
            run(vec![store(w, 0), store(w, 4095)]);
            w.check(&[]);
            assert_eq!((ends(w.space, AT), byte(object, 0)), ([9, 9], 7));
            assert_eq!(nr_private(w), 2);
        });
    }
}

/// A smaller size while something is done to a copy. It is gone when the object is larger again.
fn cut_against(
    preemptions: usize,
    other: impl Fn(World, Pfn) + Sync + Send + Copy + 'static,
    after: impl Fn(World) + Sync + Send + Copy + 'static,
) {
    explore(preemptions, move || {
        let (w, object, pfn) = world_with_copy();
        run(vec![Box::new(move || other(w, pfn)), Box::new(|| object.set_size_bytes(0))]);
        w.check(&[]);
        object.set_size_bytes(4096);
        after(w);
    });
}

/// The child's entry comes to a place that the walk has passed, or the parent's goes first.
fn fork_against_a_smaller_size(preemptions: usize) {
    explore(preemptions, || {
        let (w, object, _) = world_with_copy();
        let child = Arc::new(Mutex::new(None));
        let place = child.clone();
        let fork = move || *place.lock().unwrap() = Some(w.space.fork().unwrap());
        run(vec![Box::new(fork), Box::new(|| object.set_size_bytes(0))]);
        let child = child.lock().unwrap().take().unwrap();
        w.check(&[&child]);
        object.set_size_bytes(4096);
        assert_eq!((ends(w.space, AT), ends(&child, AT)), ([0, 0], [0, 0]));
    });
}

#[test]
fn a_fork_against_a_smaller_size() {
    fork_against_a_smaller_size(0);
}

#[test]
#[ignore = "half a minute, for a mutant: `-- --ignored`"]
fn a_fork_is_preempted_beside_a_smaller_size() {
    fork_against_a_smaller_size(1);
}

/// The second smaller size comes while fork copies again, or waits for that.
#[test]
#[ignore = "some minutes, for a mutant: `-- --ignored`"]
fn a_fork_against_two_smaller_sizes() {
    explore(1, || {
        let (w, object, _) = world_with_copy();
        let child = Arc::new(Mutex::new(None));
        let place = child.clone();
        let fork = move || *place.lock().unwrap() = Some(w.space.fork().unwrap());
        let sizes = || [0, 4096, 0].iter().for_each(|bytes| object.set_size_bytes(*bytes));
        run(vec![Box::new(fork), Box::new(sizes)]);
        let child = child.lock().unwrap().take().unwrap();
        w.check(&[&child]);
        object.set_size_bytes(4096);
        assert_eq!((ends(w.space, AT), ends(&child, AT)), ([0, 0], [0, 0]));
    });
}

/// The copy moves from a place that the walk has not reached, if it may.
#[test]
fn a_move_against_a_smaller_size() {
    cut_against(
        1,
        |w, _| _ = w.space.mremap(AT * 4096, 4096, 4096, MOVE, TO * 4096).unwrap(),
        |w| assert_eq!(ends(w.space, TO), [0, 0]),
    );
}

/// Other memory in the place of the mapping keeps its pages.
#[test]
fn an_unmapping_against_a_smaller_size() {
    cut_against(
        1,
        |w, _| {
            let active = w.space.activate();
            w.space.mmap(AT * 4096, 4096, RW, FIXED_PRIVATE).unwrap();
            w.space.write(AT * 4096, &[5; 4096]).unwrap();
            drop(active);
        },
        |w| assert_eq!(ends(w.space, AT), [5, 5]),
    );
}

/// The copy is on its way to the swap area, or back.
#[test]
fn swapping_against_a_smaller_size() {
    use_swap(false);
    cut_against(
        0,
        |w, pfn| {
            _ = w.vm.swap_out_frame(pfn);
            _ = w.space.handle_fault(AT * 4096, Access::Read);
        },
        |w| assert_eq!(ends(w.space, AT), [0, 0]),
    );
}

beside_pagers![
    a_copy_against_a_discard,
    a_copy_against_a_smaller_size,
    two_stores_copy_one_page,
    a_fork_against_a_smaller_size,
    a_move_against_a_smaller_size,
    an_unmapping_against_a_smaller_size,
];
