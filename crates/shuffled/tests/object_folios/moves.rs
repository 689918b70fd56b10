//! Folios of an object, of up to 32 KiB, that move, move in part, are split and cut, while programs store to their pages.
//! Loom has each pair of steps with folios of two pages (`folio_moves`); here are sizes, several folios, and more than two
//! CPUs.
//!
//! Ways to fail: a store goes to a frame that was copied before; a page that leaves takes the store of a neighbour with it,
//! or shows what it had; a mover and a remover of the same folio leave words of two sizes, or a mark.

use super::*;

const NR_FRAMES: u64 = 512;
const NR_CPUS: usize = 4;
/// Pages of the object: two folios of the largest size, and one of half of it at the end.
const NR_PAGES: u64 = 20;
const LARGEST: Order = Order(3);
const NR_SCHEDULES: usize = 300;
/// Where the space of each program maps the object; they begin at another place of a leaf table.
const AT: [u64; 2] = [0x4000_0000, 0x4010_3000];

/// Who uses a page: pages of one folio are several CPUs'.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    Program(usize),
    /// Its content is taken out and written by the handle.
    Handle,
    /// It stays as it was written at the beginning.
    Nobody,
}

fn use_of(page: u64) -> Use {
    match page % 4 {
        0 => Use::Program(0),
        1 => Use::Program(1),
        2 => Use::Handle,
        _ => Use::Nobody,
    }
}

fn pages_of(whose: Use) -> Vec<u64> {
    (0..NR_PAGES).filter(|page| use_of(*page) == whose).collect()
}

#[derive(Clone)]
struct World {
    vm: &'static Vm<Machine>,
    spaces: [Arc<Space>; 2],
    object: Arc<Object>,
}

fn world() -> World {
    be(0);
    let vm = vm(NR_CPUS, NR_FRAMES, Tunables::default().with_zero_batch(4));
    let orders = FolioOrders::new(Order::BASE, LARGEST).unwrap();
    let object = Arc::new(vm.new_shared_object_of(NR_PAGES * 4096, orders).unwrap());
    let spaces = AT.map(|at| {
        let space = vm.new_space().unwrap();
        space.mmap_object(at, NR_PAGES * 4096, RW, FIXED_SHARED, ObjectPart::new(&*object)).unwrap();
        Arc::new(space)
    });
    (0..NR_PAGES).for_each(|page| object.write(page * 4096, &page.to_ne_bytes()).unwrap());
    World { vm, spaces, object }
}

/// A program counts words of its pages up: no other CPU stores to them.
fn count_up(w: World, program: usize) -> Actor {
    Box::new(move || {
        let space = &w.spaces[program];
        let active = space.activate();
        let mut rng = shuttle::rand::thread_rng();
        let pages = pages_of(Use::Program(program));
        let mut values = pages.clone();
        for _ in 0..16 {
            let i = rng.gen_range(0..pages.len());
            let at = AT[program] + pages[i] * 4096;
            assert_eq!(access(space, w.vm, at, None), Ok(values[i]), "page {}", pages[i]);
            values[i] += 100;
            assert_eq!(access(space, w.vm, at, Some(values[i])), Ok(values[i]), "page {}", pages[i]);
        }
        drop(active);
        for (page, value) in pages.into_iter().zip(values) {
            assert_eq!(content(&w.object, page), value, "page {page}");
        }
    })
}

/// Moves folios by any of their frames, wholly or in part, splits them, and keeps them in place.
fn move_folios(w: World) -> Actor {
    Box::new(move || {
        let mut rng = shuttle::rand::thread_rng();
        for _ in 0..6 {
            let (which, page) = (rng.gen_range(0..2), rng.gen_range(0..NR_PAGES));
            let (space, at) = (&w.spaces[which], AT[which] + page * 4096);
            let Some(pfn) = frame_at(w.vm, space, at) else {
                // The next round finds it.
                _ = space.read(at, &mut [0]);
                continue;
            };
            match rng.gen_range(0..6) {
                0..=2 => _ = w.vm.migrate_frame(pfn),
                3 => {
                    w.vm.fail_runs(Some(Order(rng.gen_range(1..=LARGEST.0))));
                    _ = w.vm.migrate_frame(pfn);
                    w.vm.fail_runs(None);
                }
                4 => _ = w.vm.swap_out_frame(pfn),
                _ => {
                    let pin = space.pin_page(at, Term::Short).unwrap();
                    assert!(w.vm.migrate_frame(pin.pfn()).is_err(), "a pinned page has moved");
                }
            }
        }
    })
}

/// Takes pages out of folios and writes them anew.
fn cut(w: World) -> Actor {
    Box::new(move || {
        let mut rng = shuttle::rand::thread_rng();
        let pages = pages_of(Use::Handle);
        let mut values = pages.clone();
        for step in 0..6 {
            let i = rng.gen_range(0..pages.len());
            assert_eq!(content(&w.object, pages[i]), values[i], "page {}", pages[i]);
            w.object.discard(pages[i]..pages[i] + 1);
            assert_eq!(content(&w.object, pages[i]), 0, "page {} has left", pages[i]);
            values[i] = 1000 + step;
            w.object.write(pages[i] * 4096, &values[i].to_ne_bytes()).unwrap();
        }
        for (page, value) in pages.into_iter().zip(values) {
            assert_eq!(content(&w.object, page), value, "page {page}");
        }
    })
}

const SEEN: [Event; 4] = [Event::PgmigrateSuccess, Event::FolioMovedInPart, Event::FoliosSplit, Event::PgmigrateFail];

fn schedule(nr_seen: &[AtomicU64; SEEN.len()]) {
    let w = world();
    let before = w.vm.vmstat().nr_free_pages;
    run(NR_CPUS, vec![count_up(w.clone(), 0), count_up(w.clone(), 1), move_folios(w.clone()), cut(w.clone())]);
    be(0);
    for page in pages_of(Use::Nobody) {
        assert_eq!(content(&w.object, page), page);
    }
    let counts = &mut vec![0; NR_FRAMES as usize + NR_SLOTS];
    w.vm.check_in_test(&[&w.spaces[0], &w.spaces[1]], counts).unwrap();
    add_seen(nr_seen, SEEN, w.vm);
    let World { vm, spaces, object } = w;
    object.discard(0..NR_PAGES);
    assert_eq!((object.nr_resident_pages(), object.nr_swapped_pages()), (0, 0));
    drop(spaces);
    drop(object);
    vm.check_in_test(&[], counts).unwrap();
    assert!(vm.vmstat().nr_free_pages > before + NR_PAGES, "frames are lost");
}

#[test]
fn stores_against_moves_and_cuts() {
    let nr_seen = Arc::new([const { AtomicU64::new(0) }; SEEN.len()]);
    let seen = Arc::clone(&nr_seen);
    shuffled(NR_SCHEDULES, move || schedule(&seen));
    assert_all_seen(&nr_seen, SEEN);
}
