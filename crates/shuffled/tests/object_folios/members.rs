//! Spaces begin and cease to map parts of an object, while its pages leave it and move.
//!
//! Ways to fail: an entry is made whose member the walk has passed; a member leaves, or its space ends, under the walk; a
//! walk goes on after a member that has left, or in another shard, and misses one that was there all along.
//!
//! A remover writes to each page a number that grows, and takes the page out before it writes the next one. So a program
//! that shows an older number than the last that was taken out has an entry that the remover missed.

use super::*;
use softfault_shuffled::{FaultError, MremapFlags};

const NR_FRAMES: u64 = 768;
const NR_CPUS: usize = 4;
const NR_PAGES: u64 = 12;
const NR_SCHEDULES: usize = 300;
const AT: u64 = 0x4000_0000;
/// Mappings of one space: each in a place of its own, across two leaf tables.
const NR_PLACES: u64 = 4;
const PLACE: u64 = (2 << 20) - 6 * 4096;

/// For each page the number that the remover is about to write: it took all smaller ones out.
type Floors = Arc<[AtomicU64; NR_PAGES as usize]>;

#[derive(Clone)]
struct World {
    vm: &'static Vm<Machine>,
    object: Arc<Object>,
    /// A space in which two threads run.
    space: Arc<Space>,
    floors: Floors,
}

fn world() -> World {
    be(0);
    let vm = vm(NR_CPUS, NR_FRAMES, Tunables::default().with_zero_batch(4));
    let orders = FolioOrders::new(Order::BASE, Order(2)).unwrap();
    let object = Arc::new(vm.new_shared_object_of(NR_PAGES * 4096, orders).unwrap());
    let space = Arc::new(vm.new_space().unwrap());
    World { vm, object, space, floors: Arc::new([const { AtomicU64::new(0) }; NR_PAGES as usize]) }
}

fn value(page: u64, number: u64) -> u64 {
    page << 32 | number
}

/// Loads through the program's own access what is mapped there, if there is something.
fn look(w: &World, space: &Space, at: u64) {
    let floors = w.floors.each_ref().map(|floor| floor.load(Relaxed));
    match access(space, w.vm, at, None) {
        Ok(0) | Err(FaultError::NotMapped) => {}
        Ok(seen) => {
            let page = seen >> 32;
            let is_its = page < NR_PAGES && seen >= value(page, floors[page as usize]);
            assert!(is_its, "{at:#x}: {seen:#x} of what is gone up to {floors:?}");
        }
        Err(other) => panic!("{other}"),
    }
}

/// A page at one of the places where programs map some.
fn any_place() -> u64 {
    let mut rng = shuttle::rand::thread_rng();
    AT + rng.gen_range(0..=NR_PLACES) * PLACE + rng.gen_range(0..NR_PAGES) * 4096
}

/// Maps a part of the object somewhere, looks at it, moves, widens or unmaps it, and looks again.
fn map_somewhere(w: &World, space: &Space) {
    let mut rng = shuttle::rand::thread_rng();
    let first = rng.gen_range(0..NR_PAGES - 1);
    let nr_pages = rng.gen_range(1..NR_PAGES - first);
    let at = AT + rng.gen_range(0..NR_PLACES) * PLACE;
    let part = ObjectPart::new(&*w.object).with_offset_bytes(first * 4096);
    space.mmap_object(at, nr_pages * 4096, RW, FIXED_SHARED, part).unwrap();
    let page = rng.gen_range(0..nr_pages) * 4096;
    look(w, space, at + page);
    let bytes = nr_pages * 4096;
    match rng.gen_range(0..4) {
        0 => space.munmap(at, rng.gen_range(1..=nr_pages) * 4096).unwrap(),
        1 => {
            let (to, flags) = (AT + NR_PLACES * PLACE, MremapFlags::MAYMOVE.union(MremapFlags::FIXED));
            // An old size of 0 maps the pages a second time.
            space.mremap(at, if rng.gen_bool(0.5) { bytes } else { 0 }, bytes, flags, to).unwrap();
            look(w, space, to + page);
        }
        2 => {
            // In place, unless there is something behind it.
            let is_larger = space.mremap(at, bytes, bytes + 4096, MremapFlags::empty(), 0).is_ok();
            if is_larger {
                look(w, space, at + bytes);
            }
        }
        _ => {}
    }
    look(w, space, at + page);
}

/// Programs that map some parts, fork, and end.
fn come_and_go(w: World) -> Actor {
    Box::new(move || {
        for _ in 0..2 {
            let space = w.vm.new_space().unwrap();
            let active = space.activate();
            (0..2).for_each(|_| map_somewhere(&w, &space));
            let child = space.fork().unwrap();
            drop(active);
            // A CPU runs one space; the parent ends first.
            drop(space);
            let active = child.activate();
            (0..4).for_each(|_| look(&w, &child, any_place()));
            drop(active);
        }
    })
}

/// A thread that changes the mappings of a space in which another one looks at them.
fn change_mappings(w: World) -> Actor {
    Box::new(move || {
        let active = w.space.activate();
        (0..5).for_each(|_| map_somewhere(&w, &w.space));
        drop(active);
    })
}

/// Takes pages out, and writes the next numbers.
fn remove(w: World) -> Actor {
    Box::new(move || {
        let mut rng = shuttle::rand::thread_rng();
        for number in 1..8 {
            let first = rng.gen_range(0..NR_PAGES);
            let end = NR_PAGES.min(first + rng.gen_range(1..5));
            w.object.discard(first..end);
            for page in first..end {
                w.floors[page as usize].store(number, Relaxed);
                assert_eq!(content(&w.object, page), 0, "page {page} has left");
                w.object.write(page * 4096, &value(page, number).to_ne_bytes()).unwrap();
            }
        }
    })
}

/// Looks at the mappings of the other thread, and moves what they show.
fn look_and_move(w: World) -> Actor {
    Box::new(move || {
        let active = w.space.activate();
        for _ in 0..10 {
            let at = any_place();
            look(&w, &w.space, at);
            if shuttle::rand::thread_rng().gen_bool(0.5)
                && let Some(pfn) = frame_at(w.vm, &w.space, at)
            {
                _ = w.vm.migrate_frame(pfn);
            }
        }
        drop(active);
    })
}

const SEEN: [Event; 2] = [Event::PgmigrateSuccess, Event::PgmigrateFail];

fn schedule(nr_seen: &[AtomicU64; SEEN.len()]) {
    let w = world();
    let before = w.vm.vmstat().nr_free_pages;
    run(NR_CPUS, vec![come_and_go(w.clone()), change_mappings(w.clone()), look_and_move(w.clone()), remove(w.clone())]);
    be(0);
    for page in 0..NR_PAGES {
        let number = w.floors[page as usize].load(Relaxed);
        let expected = if number == 0 { 0 } else { value(page, number) };
        assert_eq!(content(&w.object, page), expected, "page {page}");
    }
    let counts = &mut vec![0; NR_FRAMES as usize + NR_SLOTS];
    w.vm.check_in_test(&[&w.space], counts).unwrap();
    add_seen(nr_seen, SEEN, w.vm);
    let World { vm, object, space, .. } = w;
    object.discard(0..NR_PAGES);
    assert_eq!((object.nr_resident_pages(), space.rss_pages().shmem), (0, 0));
    drop(space);
    drop(object);
    vm.check_in_test(&[], counts).unwrap();
    assert!(vm.vmstat().nr_free_pages > before, "frames are lost");
}

#[test]
fn mappings_come_and_go_while_pages_leave() {
    let nr_seen = Arc::new([const { AtomicU64::new(0) }; SEEN.len()]);
    let seen = Arc::clone(&nr_seen);
    shuffled(NR_SCHEDULES, move || schedule(&seen));
    assert_all_seen(&nr_seen, SEEN);
}
