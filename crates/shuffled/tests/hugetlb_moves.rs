//! Pages of a pool that move while others use them: an object's, private ones and free ones; and a page that changes its size.
//!
//! Ways to fail: a store goes to the page that was left; a CPU reads what is not the page's any more, through its TLB; a fork, a
//! copy or a pin that began before holds the old page; the pool loses a page or a claim.

use common::{RW, Shuffled, access, run, shuffled, vm_of_fresh_memory, vm_of_pages_of_1_gib, walk, word_at};
use shuttle::rand::Rng;
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{
    AddressSpace, Advice, Event, FaultError, MapFlags, MigrateRefusal, ObjectPart, Order, Pfn, SharedObject, Term,
    Tunables, Vm,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const AT: u64 = 0x4000_0000;
const HUGE: u64 = 512 * 4096;
const GIB: u64 = 1 << 30;
const PRIVATE: MapFlags = MapFlags::PRIVATE.union(MapFlags::FIXED);
const ANON: MapFlags = PRIVATE.union(MapFlags::ANONYMOUS).union(MapFlags::HUGETLB);
const SHARED: MapFlags = MapFlags::SHARED.union(MapFlags::FIXED);
const SCHEDULES: usize = 250;

type Machine = Shuffled<X86_64>;
type Space = AddressSpace<'static, Machine>;
type Object = SharedObject<'static, Machine>;
type Pool = &'static Vm<Machine>;

/// A pool of so many pages, and memory for two more.
fn world(nr_cpus: usize, nr: u64) -> (Pool, &'static Space, u64) {
    world_with(nr_cpus, nr, 2)
}

fn world_with(nr_cpus: usize, nr: u64, nr_spare: u64) -> (Pool, &'static Space, u64) {
    let nr_frames = (nr + 1 + nr_spare) * 512;
    let vm: Pool = vm_of_fresh_memory(nr_cpus, nr_frames, Tunables::default());
    assert_eq!(vm.set_nr_hugepages(Order::PMD, nr), Ok(nr));
    (vm, Box::leak(Box::new(vm.new_space().unwrap())), nr_frames)
}

fn file(vm: Pool) -> &'static Object {
    Box::leak(Box::new(vm.new_hugetlb_object(HUGE, Order::PMD).unwrap()))
}

fn check(vm: Pool, spaces: &[&Space], nr_frames: u64) {
    vm.check_in_test(spaces, &mut vec![0; nr_frames as usize + common::NR_SLOTS]).unwrap();
}

/// A store and a load, as a CPU that runs the space for that long.
fn store(vm: Pool, space: &'static Space, at: u64, value: u64) -> Result<u64, FaultError> {
    let active = space.activate();
    let now = access(space, vm, at, Some(value)).and_then(|_| access(space, vm, at, None));
    drop(active);
    now
}

fn page_at(vm: Pool, space: &Space, at: u64) -> Pfn {
    walk(space, vm, at).expect("it was touched").pfn
}

/// Some refusals of a move under use, and how often there was none.
#[derive(Default)]
struct Moves([AtomicU64; 2]);

impl Moves {
    fn note(&self, result: Result<Pfn, MigrateRefusal>) {
        let is_expected = result.is_ok()
            || matches!(result, Err(MigrateRefusal::Raced | MigrateRefusal::NotInUse | MigrateRefusal::Pinned));
        assert!(is_expected, "{result:?}");
        self.0[usize::from(result.is_err())].fetch_add(1, Relaxed);
    }

    /// Both ends were seen.
    fn assert_both(&self) {
        assert!(self.0.iter().all(|nr| nr.load(Relaxed) > 0), "{:?}", self.0);
    }
}

fn counts(vm: Pool) -> (u64, u64, u64) {
    common::free(vm)
}

/// A CPU stores to a page of a file, another one by a mapping that has not shown it yet, a third one writes by the handle, takes the
/// page out or makes the file shorter, and it moves.
#[test]
fn a_page_of_a_file() {
    let moves = Arc::new(Moves::default());
    let told = Arc::clone(&moves);
    shuffled(SCHEDULES, move || {
        let (vm, space, nr_frames) = world(4, 2);
        let object = file(vm);
        space.mmap_object(AT, HUGE, RW, SHARED, ObjectPart::new(object)).unwrap();
        space.write(AT + 16, &7_u64.to_ne_bytes()).unwrap();
        let other: &'static Space = Box::leak(Box::new(vm.new_space().unwrap()));
        other.mmap_object(AT, HUGE, RW, SHARED, ObjectPart::new(object)).unwrap();
        let page = page_at(vm, space, AT);
        let end = shuttle::rand::thread_rng().gen_range(0..3);
        let told = Arc::clone(&told);
        let storer = |space: &'static Space, at: u64| {
            Box::new(move || match store(vm, space, AT + at, 9) {
                Ok(now) => assert!(now == 9 || (end > 0 && now == 0), "{now}"),
                Err(error) => assert!(end == 2 && error == FaultError::BeyondObject, "{error:?}"),
            })
        };
        let take = move || match end {
            0 => (3..9).for_each(|i| object.write(8 * i, &i.to_ne_bytes()).unwrap()),
            1 => object.discard(0..512),
            _ => object.set_size_bytes(0),
        };
        let moves = move || told.note(vm.migrate_frame(Pfn(page.0 + 5)));
        run(4, vec![storer(space, 0), storer(other, 8 * 4096), Box::new(take), Box::new(moves)]);
        check(vm, &[space, other], nr_frames);
        if end == 0 {
            assert_eq!([0, 8 * 4096, 16].map(|at| word_at(space, AT + at)), [9, 9, 7]);
            (3..9).for_each(|i| assert_eq!(word_at(other, AT + 8 * i), i));
        }
        object.discard(0..512);
        assert_eq!(counts(vm), (2, 2, 0));
    });
    moves.assert_both();
}

/// A private page with one entry, or with two, while both programs store, fork and drop. Then the page that was left is another
/// program's.
#[test]
fn a_private_page() {
    let moves = Arc::new(Moves::default());
    let told = Arc::clone(&moves);
    shuffled(SCHEDULES, move || {
        let (vm, parent, nr_frames) = world_with(3, 3, 1);
        parent.mmap(AT, HUGE, RW, ANON).unwrap();
        [0, 8, 4096].iter().for_each(|at| parent.write(AT + at, &7_u64.to_ne_bytes()).unwrap());
        let child: Option<&'static Space> = shuttle::rand::thread_rng()
            .gen_bool(0.5)
            .then(|| -> &'static Space { Box::leak(Box::new(parent.fork().unwrap())) });
        let page = page_at(vm, parent, AT);
        let end = shuttle::rand::thread_rng().gen_range(0..3);
        let (told, born) = (Arc::clone(&told), Arc::new(Mutex::new(None)));
        let bear = Arc::clone(&born);
        let other = move || match (child, end) {
            (Some(child), 0) => assert_eq!(store(vm, child, AT + 8, 3), Ok(3)),
            (Some(child), 1) => child.madvise(AT, HUGE, Advice::DontNeed).unwrap(),
            (Some(child), _) => child.munmap(AT, HUGE).unwrap(),
            (None, 0) => {
                let child: &'static Space = Box::leak(Box::new(parent.fork().unwrap()));
                assert_eq!(word_at(child, AT + 4096), 7);
                *bear.lock().unwrap() = Some(child);
            }
            (None, 1) => parent.mprotect(AT, HUGE, RW).unwrap(),
            (None, _) => assert_eq!(word_at(parent, AT + 4096), 7),
        };
        // By one translation, or by several.
        let storer = move || {
            let active = parent.activate();
            for value in 1..=9 {
                access(parent, vm, AT + 3 * 4096, Some(value)).unwrap();
            }
            assert_eq!(access(parent, vm, AT, Some(9)), Ok(9));
            assert_eq!(access(parent, vm, AT + 3 * 4096, None), Ok(9));
            drop(active);
        };
        let stranger: &'static Space = Box::leak(Box::new(vm.new_space().unwrap()));
        stranger.mmap(AT, HUGE, RW, ANON | MapFlags::NORESERVE).unwrap();
        let moves = move || {
            let moved = vm.migrate_frame(Pfn(page.0 + 5));
            told.note(moved);
            if moved.is_ok() && vm.set_nr_hugepages(Order::PMD, 4) == Ok(4) {
                _ = [0, 8, 4096, 3 * 4096].map(|at| store(vm, stranger, AT + at, 5));
            }
        };
        run(3, vec![Box::new(storer), Box::new(other), Box::new(moves)]);
        let born: Option<&'static Space> = born.lock().unwrap().take();
        let spaces: Vec<&Space> = [Some(parent), child, born, Some(stranger)].into_iter().flatten().collect();
        check(vm, &spaces, nr_frames);
        assert_eq!([0, 8, 4096, 3 * 4096].map(|at| word_at(parent, AT + at)), [9, 7, 7, 9]);
        if let (Some(child), 0) = (child, end) {
            assert_eq!([0, 8, 4096].map(|at| word_at(child, AT + at)), [7, 3, 7]);
        }
        spaces.iter().for_each(|space| space.munmap(AT, HUGE).unwrap());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 3), Ok(3));
        assert_eq!(counts(vm), (3, 3, 0));
    });
    moves.assert_both();
}

/// A private mapping copies the file's page while that moves: the copy is the page's bytes.
#[test]
fn a_page_that_is_copied() {
    let moves = Arc::new(Moves::default());
    let told = Arc::clone(&moves);
    shuffled(SCHEDULES, move || {
        let (vm, space, nr_frames) = world(2, 2);
        let object = file(vm);
        object.write(8, &7_u64.to_ne_bytes()).unwrap();
        object.write(HUGE - 8, &7_u64.to_ne_bytes()).unwrap();
        space.mmap_object(AT, HUGE, RW, PRIVATE, ObjectPart::new(object)).unwrap();
        let shows = shuttle::rand::thread_rng().gen_bool(0.5);
        let other: &'static Space = Box::leak(Box::new(vm.new_space().unwrap()));
        other.mmap_object(AT, HUGE, RW, SHARED, ObjectPart::new(object)).unwrap();
        assert_eq!(word_at(other, AT + 8), 7);
        if shows {
            assert_eq!(word_at(space, AT + 8), 7);
        }
        let page = page_at(vm, other, AT);
        let told = Arc::clone(&told);
        let copy = move || {
            assert_eq!(store(vm, space, AT, 9), Ok(9));
            assert_eq!([8, HUGE - 8].map(|at| word_at(space, AT + at)), [7, 7]);
        };
        run(2, vec![Box::new(copy), Box::new(move || told.note(vm.migrate_frame(page)))]);
        check(vm, &[space, other], nr_frames);
        assert_eq!([8, HUGE - 8].map(|at| word_at(other, AT + at)), [7, 7]);
        [space, other].iter().for_each(|space| space.munmap(AT, HUGE).unwrap());
        object.discard(0..512);
        assert_eq!(counts(vm), (2, 2, 0));
    });
    assert!(moves.0[0].load(Relaxed) > 0);
}

/// A pin is taken, written through and dropped: the page stays under it, and nothing that it wrote is lost.
#[test]
fn a_page_that_is_pinned() {
    let moves = Arc::new(Moves::default());
    let told = Arc::clone(&moves);
    shuffled(2 * SCHEDULES, move || {
        let (vm, space, nr_frames) = world(3, 1);
        let object = file(vm);
        let is_file = shuttle::rand::thread_rng().gen_bool(0.5);
        if is_file {
            space.mmap_object(AT, HUGE, RW, SHARED, ObjectPart::new(object)).unwrap();
        } else {
            space.mmap(AT, HUGE, RW, ANON).unwrap();
        }
        space.write(AT, &7_u64.to_ne_bytes()).unwrap();
        let page = page_at(vm, space, AT);
        let told = Arc::clone(&told);
        let pin = move || {
            let pin = space.pin_page_mut(AT + 3 * 4096, Term::Short).unwrap();
            pin.write(8, &9_u64.to_ne_bytes());
            let mut now = [0; 8];
            pin.read(8, &mut now);
            assert_eq!(u64::from_ne_bytes(now), 9);
        };
        let moves = move || told.note(vm.migrate_frame(page));
        let storer = move || assert_eq!(store(vm, space, AT + 16, 5), Ok(5));
        run(3, vec![Box::new(pin), Box::new(moves), Box::new(storer)]);
        check(vm, &[space], nr_frames);
        assert_eq!([0, 3 * 4096 + 8, 16].map(|at| word_at(space, AT + at)), [7, 9, 5]);
        space.munmap(AT, HUGE).unwrap();
        object.discard(0..512);
        assert_eq!(counts(vm), (1, 1, 0));
    });
    moves.assert_both();
}

/// Two CPUs move one page, and a third one stores.
#[test]
fn two_moves_of_one_page() {
    let moves = Arc::new(Moves::default());
    let told = Arc::clone(&moves);
    shuffled(SCHEDULES, move || {
        let (vm, space, nr_frames) = world(3, 1);
        let object = file(vm);
        if shuttle::rand::thread_rng().gen_bool(0.5) {
            space.mmap_object(AT, HUGE, RW, SHARED, ObjectPart::new(object)).unwrap();
        } else {
            space.mmap(AT, HUGE, RW, ANON).unwrap();
        }
        space.write(AT + 8, &7_u64.to_ne_bytes()).unwrap();
        let page = page_at(vm, space, AT);
        let mover = || -> Box<dyn FnOnce() + Send> {
            let told = Arc::clone(&told);
            Box::new(move || told.note(vm.migrate_frame(page)))
        };
        run(3, vec![mover(), mover(), Box::new(move || assert_eq!(store(vm, space, AT, 9), Ok(9)))]);
        check(vm, &[space], nr_frames);
        assert_eq!([0, 8].map(|at| word_at(space, AT + at)), [9, 7]);
        assert_eq!(vm.vmstat().get(Event::PgmigrateSuccess) % 512, 0);
        space.munmap(AT, HUGE).unwrap();
        object.discard(0..512);
        assert_eq!(counts(vm), (1, 1, 0));
    });
    moves.assert_both();
}

/// A page of a pool is free and moves, while CPUs with a claim and without want it: both are served, and the pool has its
/// pages afterwards.
#[test]
fn a_free_page() {
    let moves = Arc::new(Moves::default());
    let told = Arc::clone(&moves);
    shuffled(2 * SCHEDULES, move || {
        let (vm, space, nr_frames) = world(3, 2);
        space.mmap(AT, HUGE, RW, ANON).unwrap();
        space.write(AT, &7_u64.to_ne_bytes()).unwrap();
        let page = page_at(vm, space, AT);
        space.madvise(AT, HUGE, Advice::DontNeed).unwrap();
        space.mmap(AT + 4 * HUGE, HUGE, RW, ANON | MapFlags::NORESERVE).unwrap();
        let told = Arc::clone(&told);
        let storer = |at: u64| Box::new(move || assert_eq!(store(vm, space, at, 9), Ok(9)));
        let moves = move || told.note(vm.migrate_frame(page));
        run(3, vec![storer(AT), storer(AT + 4 * HUGE), Box::new(moves)]);
        check(vm, &[space], nr_frames);
        assert_eq!([0, 8].map(|at| word_at(space, AT + at)), [9, 0]);
        [AT, AT + 4 * HUGE].iter().for_each(|at| space.munmap(*at, HUGE).unwrap());
        assert_eq!(counts(vm), (2, 2, 0));
    });
    moves.assert_both();
}

/// A page of 1 GiB becomes pages of 2 MiB after a CPU has looked for one of 1 GiB, and before it takes it: the CPU gets
/// the other page, and has no part of this one.
#[test]
fn a_page_that_becomes_smaller_while_it_is_wanted() {
    shuffled(40, move || {
        let vm: Pool = vm_of_pages_of_1_gib(3, 2);
        let space: &'static Space = Box::leak(Box::new(vm.new_space().unwrap()));
        space.mmap(4 * GIB, GIB, RW, ANON | MapFlags::HUGE_1GB).unwrap();
        space.mmap(AT, HUGE, RW, ANON | MapFlags::NORESERVE).unwrap();
        let want = move || assert_eq!(store(vm, space, 4 * GIB + 8, 9), Ok(9));
        let demote = move || {
            assert_eq!(vm.demote_hugepages(1), Ok(1));
            assert_eq!(store(vm, space, AT + 8, 5), Ok(5));
        };
        run(3, vec![Box::new(want), Box::new(demote)]);
        assert_eq!([4 * GIB + 8, AT + 8].map(|at| word_at(space, at)), [9, 5]);
        let large = vm.hugetlb_counts(Order::PUD).unwrap();
        assert_eq!((large.nr, large.free, counts(vm)), (1, 0, (512, 511, 0)));
        assert_ne!(page_at(vm, space, 4 * GIB).0 >> 18, page_at(vm, space, AT).0 >> 18);
        space.munmap(4 * GIB, GIB).unwrap();
        space.munmap(AT, HUGE).unwrap();
        assert_eq!((vm.hugetlb_counts(Order::PUD).unwrap().free, counts(vm)), (1, (512, 512, 0)));
    });
}

/// The pool has one page in use and one that is free, and there is no memory: a move stays refused, and a reservation is not.
#[test]
fn a_reservation_against_a_move() {
    shuffled(SCHEDULES, move || {
        let (vm, space, _) = world_with(2, 2, 0);
        space.mmap(AT, HUGE, RW, ANON).unwrap();
        space.write(AT, &7_u64.to_ne_bytes()).unwrap();
        let page = page_at(vm, space, AT);
        let other: &'static Space = Box::leak(Box::new(vm.new_space().unwrap()));
        let want = move || other.mmap(AT, HUGE, RW, ANON).map(drop).unwrap();
        let moves = move || assert_eq!(vm.migrate_frame(page), Err(MigrateRefusal::NoTarget));
        run(2, vec![Box::new(want), Box::new(moves)]);
    });
}
