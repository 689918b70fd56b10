//! Private pages of 1 GiB of a pool: copies against holes, sizes, munmap(2), fork(2) and stores on other CPUs, also when the pool
//! has no page left. `hugetlb_private` and `hugetlb_copies` have some of these with pages of 2 MiB.
//!
//! Ways to fail: an owner of a claim is refused; a copy has bytes of a page that has gone, or of a later store; an entry of
//! level 2 that a fault owns is passed over, and names a page that is free.

use common::calls::access_once;
use common::{RW, Shuffled, access, run, shuffled, vm_of_pages_of_1_gib, word_at};
use shuttle::rand::Rng;
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{AddressSpace, Advice, Event, FaultError, MapFlags, ObjectPart, Order, SharedObject, Vm};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const GIB: u64 = 1 << 30;
const NR: u64 = 1 << 18;
const AT: u64 = 4 * GIB;
/// In the last small page of a page.
const LAST: u64 = GIB - 4096;
/// Words that stay as they are, but for CPUs that want the memory.
const KEPT: [u64; 2] = [24, LAST + 24];
const ELSEWHERE: u64 = 8 * GIB;
const PRIVATE: MapFlags = MapFlags::PRIVATE.union(MapFlags::FIXED);
const ANON: MapFlags = PRIVATE.union(MapFlags::ANONYMOUS).union(MapFlags::HUGETLB).union(MapFlags::HUGE_1GB);
const SCHEDULES: usize = 48;
/// One schedule in so many is checked as a whole: that takes ten times as long as the schedule.
const CHECKED_ONE_IN: u32 = 16;

type Machine = Shuffled<X86_64>;
type Space = AddressSpace<'static, Machine>;
type Object = SharedObject<'static, Machine>;
type Pool = &'static Vm<Machine>;

fn new_space(vm: Pool) -> &'static Space {
    Box::leak(Box::new(vm.new_space().unwrap()))
}

/// A file of one page with 7 at both ends, and a private mapping of it, which shows the page or not.
fn file(vm: Pool, space: &Space) -> &'static Object {
    let object: &Object = Box::leak(Box::new(vm.new_hugetlb_object(GIB, Order::PUD).unwrap()));
    space.mmap_object(AT, GIB, RW, PRIVATE, ObjectPart::new(object)).unwrap();
    // Not through an entry, so that nothing says that the page was mapped.
    [8, LAST + 8].iter().for_each(|at| object.write(*at, &7_u64.to_le_bytes()).unwrap());
    if shuttle::rand::thread_rng().gen_bool(0.5) {
        assert_eq!(word_at(space, AT + 8), 7);
    }
    object
}

/// A private page with 7 at both ends.
fn private(vm: Pool, space: &Space) {
    space.mmap(AT, GIB, RW, ANON).unwrap();
    [8, LAST + 8].iter().chain(&KEPT).for_each(|at| space.write(AT + at, &7_u64.to_le_bytes()).unwrap());
    assert_eq!(space.page_state(AT).map(|state| state.order), Some(Order::PUD));
    assert_eq!(vm.hugetlb_counts(Order::PMD).unwrap().nr, 0);
}

/// The pool of 1 GiB: its pages, those that are free, and those that are promised.
fn free(vm: Pool) -> (u64, u64, u64) {
    let counts = vm.hugetlb_counts(Order::PUD).unwrap();
    (counts.nr, counts.free, counts.reserved)
}

fn check(vm: Pool, spaces: &[&Space], nr: u64) {
    if shuttle::rand::thread_rng().gen_ratio(1, CHECKED_ONE_IN) {
        vm.check_in_test(spaces, &mut vec![0; ((nr + 1) * NR) as usize + common::NR_SLOTS]).unwrap();
    }
}

/// A store, as a CPU that runs the space for that long.
fn store(vm: Pool, space: &'static Space, at: u64, value: u64) -> Result<u64, FaultError> {
    access_once(vm, space, at, Some(value))
}

fn load(vm: Pool, space: &'static Space, at: u64) -> Result<u64, FaultError> {
    access_once(vm, space, at, None)
}

/// A CPU that wants memory: it stores to a page of another mapping, without a reservation, at the places that others read.
fn want(vm: Pool, space: &'static Space) -> Box<dyn FnOnce() + Send> {
    space.mmap(ELSEWHERE, GIB, RW, ANON | MapFlags::NORESERVE).unwrap();
    Box::new(move || {
        for at in [8, LAST + 8] {
            let wanted = store(vm, space, ELSEWHERE + at, 5);
            assert!(matches!(wanted, Ok(_) | Err(FaultError::NoHugePage)), "{wanted:?}");
        }
    })
}

/// H3, H4: a store copies the file's page while a hole or a smaller size takes it. The copy is the page as a whole, until the
/// hole removes it, or nothing of it; beyond the end there is none.
#[test]
fn a_copy_against_a_hole_and_a_size() {
    let seen = Arc::new([const { AtomicU64::new(0) }; 3]);
    let told = Arc::clone(&seen);
    shuffled(SCHEDULES, move || {
        let vm = vm_of_pages_of_1_gib(3, 2);
        let space = new_space(vm);
        let object = file(vm, space);
        let wants = want(vm, space);
        let is_hole = shuttle::rand::thread_rng().gen_bool(0.5);
        let told = Arc::clone(&told);
        let copy = move || match store(vm, space, AT, 9) {
            Ok(_) => {
                let [first, last, again] = [8, LAST + 8, 8].map(|at| load(vm, space, AT + at));
                if is_hole {
                    assert!(matches!((first, again), (Ok(0), Ok(0)) | (Ok(7), Ok(0 | 7))), "{first:?} {again:?}");
                    assert!(last == first || last == again, "{first:?} {last:?} {again:?}");
                }
                told[usize::from(first == Ok(0))].fetch_add(1, Relaxed);
            }
            Err(error) => {
                assert!(!is_hole && error == FaultError::BeyondObject, "{error:?}");
                told[2].fetch_add(1, Relaxed);
            }
        };
        let take = move || if is_hole { object.discard(0..NR) } else { object.set_size_bytes(0) };
        run(3, vec![Box::new(copy), Box::new(take), wants]);
        if is_hole {
            assert_eq!([8, LAST + 8].map(|at| word_at(space, AT + at)), [0, 0], "of before the hole");
        }
        check(vm, &[space], 2);
        space.munmap(ELSEWHERE, GIB).unwrap();
        assert_eq!(free(vm), if is_hole { (2, 1, 0) } else { (2, 2, 1) });
        space.munmap(AT, GIB).unwrap();
        assert_eq!(free(vm), (2, 2, 0));
    });
    assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
}

/// A store copies, or touches first, while munmap(2) takes the mapping: its page and its claim are the pool's again.
#[test]
fn a_copy_against_munmap() {
    let seen = Arc::new([const { AtomicU64::new(0) }; 2]);
    let told = Arc::clone(&seen);
    shuffled(SCHEDULES, move || {
        let vm = vm_of_pages_of_1_gib(3, 2);
        let space = new_space(vm);
        let kind = shuttle::rand::thread_rng().gen_range(0..3);
        let mut child = None;
        match kind {
            0 => _ = file(vm, space),
            1 => private(vm, space),
            _ => {
                private(vm, space);
                let born: &'static Space = Box::leak(Box::new(space.fork().unwrap()));
                child = Some(born);
            }
        }
        let wants = want(vm, child.unwrap_or(space));
        let told = Arc::clone(&told);
        let copy = move || {
            let stored = store(vm, space, AT, 9).map(drop);
            assert!(matches!(stored, Ok(()) | Err(FaultError::NotMapped)), "{stored:?}");
            told[usize::from(stored.is_err())].fetch_add(1, Relaxed);
        };
        run(3, vec![Box::new(copy), Box::new(move || space.munmap(AT, GIB).unwrap()), wants]);
        let spaces: Vec<&Space> = [space].into_iter().chain(child).collect();
        check(vm, &spaces, 2);
        assert_eq!((space.page_state(AT), space.rss_pages().shmem), (None, 0));
        if let Some(child) = child {
            // Another mapping may have the page that the copy needed.
            let shown = [8, LAST + 8].map(|at| load(vm, child, AT + at));
            assert!(shown == [Ok(7); 2] || shown == [Err(FaultError::Taken); 2], "{shown:?}");
            child.munmap(AT, GIB).unwrap();
        }
        child.unwrap_or(space).munmap(ELSEWHERE, GIB).unwrap();
        assert_eq!(free(vm), (2, 2 - u64::from(kind == 0), 0));
    });
    assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
}

/// H5: a store copies a page that a first child shares, or the file's page, while fork(2) makes a second one. Each has a page, and
/// nothing that another one stored later.
#[test]
fn a_copy_against_a_fork() {
    let seen = Arc::new([const { AtomicU64::new(0) }; 2]);
    let told = Arc::clone(&seen);
    shuffled(SCHEDULES, move || {
        let vm = vm_of_pages_of_1_gib(2, 3);
        let parent = new_space(vm);
        let is_file = shuttle::rand::thread_rng().gen_bool(0.5);
        let mut spaces = vec![parent];
        if is_file {
            file(vm, parent);
        } else {
            private(vm, parent);
            spaces.push(Box::leak(Box::new(parent.fork().unwrap())));
        }
        let born: Arc<Mutex<Option<&'static Space>>> = Arc::default();
        let bear = Arc::clone(&born);
        let copy = move || {
            assert_eq!(store(vm, parent, AT + 8, 9), Ok(9));
            assert_eq!(store(vm, parent, AT + LAST + 8, 9), Ok(9));
        };
        let fork = move || *bear.lock().unwrap() = Some(Box::leak(Box::new(parent.fork().unwrap())));
        run(2, vec![Box::new(copy), Box::new(fork)]);
        let child: &'static Space = born.lock().unwrap().take().unwrap();
        spaces.push(child);
        check(vm, &spaces, 3);
        let ends = |space: &'static Space| [8, LAST + 8].map(|at| word_at(space, AT + at));
        let [first, last] = ends(child);
        assert!(matches!((first, last), (7, 7) | (9, 7 | 9)), "{first} {last}");
        told[usize::from(first == 9)].fetch_add(1, Relaxed);
        assert_eq!(ends(parent), [9, 9]);
        for space in &spaces[1..] {
            let before = ends(space);
            assert_eq!(store(vm, space, AT + 16, 3), Ok(3));
            assert_eq!(ends(space), before);
        }
        assert_eq!(ends(parent), [9, 9]);
        check(vm, &spaces, 3);
        spaces.iter().for_each(|space| space.munmap(AT, GIB).unwrap());
        assert_eq!(free(vm), (3, 3 - u64::from(is_file), 0));
    });
    assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
}

/// Two CPUs of a program that have read a page store to it at once: it is copied once, and each sees both stores.
#[test]
fn two_stores_to_one_page() {
    shuffled(SCHEDULES, || {
        let vm = vm_of_pages_of_1_gib(2, 2);
        let space = new_space(vm);
        let mut spaces = vec![space];
        if shuttle::rand::thread_rng().gen_bool(0.5) {
            file(vm, space);
        } else {
            private(vm, space);
            spaces.push(Box::leak(Box::new(space.fork().unwrap())));
        }
        let (nr_read, nr_stored) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let storer = |own: u64, other: u64| -> Box<dyn FnOnce() + Send> {
            let (nr_read, nr_stored) = (Arc::clone(&nr_read), Arc::clone(&nr_stored));
            let meet = |nr: &AtomicU64| {
                nr.fetch_add(1, Relaxed);
                while nr.load(Relaxed) < 2 {
                    shuttle::thread::yield_now();
                }
            };
            Box::new(move || {
                let active = space.activate();
                assert_eq!([own, other].map(|at| access(space, vm, AT + at, None)), [Ok(7); 2]);
                meet(&nr_read);
                assert_eq!(access(space, vm, AT + own, Some(9)), Ok(9));
                // Its store is in memory.
                softfault_shuffled::sync::fence();
                meet(&nr_stored);
                assert_eq!([own, other].map(|at| access(space, vm, AT + at, None)), [Ok(9); 2]);
                drop(active);
            })
        };
        run(2, vec![storer(8, LAST + 8), storer(LAST + 8, 8)]);
        check(vm, &spaces, 2);
        assert_eq!((vm.vmstat().get(Event::CowBreak), free(vm)), (1, (2, 0, 0)));
        if let Some(child) = spaces.get(1) {
            assert_eq!([8, LAST + 8].map(|at| word_at(child, AT + at)), [7, 7]);
        }
        spaces.iter().for_each(|space| space.munmap(AT, GIB).unwrap());
        let is_file = spaces.len() == 1;
        assert_eq!(free(vm), (2, 2 - u64::from(is_file), 0));
    });
}

/// H5: the pool has two pages. Parent and child store to the one that they share, or the child ends, and a third mapping wants a
/// page. The parent is never refused: it copies, has the page alone, or takes it from the child.
#[test]
fn a_parent_and_a_child_store_and_the_pool_is_empty() {
    let seen = Arc::new([const { AtomicU64::new(0) }; 3]);
    let told = Arc::clone(&seen);
    shuffled(2 * SCHEDULES, move || {
        let vm = vm_of_pages_of_1_gib(3, 2);
        let parent = new_space(vm);
        private(vm, parent);
        let child: &'static Space = Box::leak(Box::new(parent.fork().unwrap()));
        assert_eq!(free(vm), (2, 1, 0));
        let how = shuttle::rand::thread_rng().gen_range(0..3);
        let third = new_space(vm);
        third.mmap(ELSEWHERE, GIB, RW, ANON | MapFlags::NORESERVE).unwrap();
        let told = Arc::clone(&told);
        let parents = move || {
            assert_eq!([8, LAST + 8].map(|at| store(vm, parent, AT + at, 8)), [Ok(8); 2]);
        };
        let childs = move || match how {
            0 => {
                let stored = store(vm, child, AT + 16, 9);
                assert!(matches!(stored, Ok(9) | Err(FaultError::NoHugePage | FaultError::Taken)), "{stored:?}");
                for shown in [8, LAST + 8].map(|at| load(vm, child, AT + at)) {
                    assert!(shown == Ok(7) || stored.is_err() && shown == Err(FaultError::Taken), "{shown:?}");
                }
            }
            1 => child.munmap(AT, GIB).unwrap(),
            // Without a reservation its place has no claim.
            _ => child.madvise(AT, GIB, Advice::DontNeed).unwrap(),
        };
        let wants = move || {
            let wanted = store(vm, third, ELSEWHERE + KEPT[1], 5).map(drop);
            assert!(matches!(wanted, Ok(()) | Err(FaultError::NoHugePage)), "{wanted:?}");
            told[if how == 0 { 0 } else { 1 + usize::from(wanted.is_ok()) }].fetch_add(1, Relaxed);
        };
        run(3, vec![Box::new(parents), Box::new(childs), Box::new(wants)]);
        check(vm, &[parent, child, third], 2);
        assert_eq!([8, LAST + 8].map(|at| word_at(parent, AT + at)), [8; 2]);
        assert_eq!(KEPT.map(|at| word_at(parent, AT + at)), [7; 2]);
        if how == 0 {
            let is_taken = vm.vmstat().get(Event::HugePageTaken) > 0;
            assert_eq!(is_taken, load(vm, child, AT) == Err(FaultError::Taken));
        }
        assert_eq!(third.munmap(ELSEWHERE, GIB), Ok(()));
        [parent, child].iter().for_each(|space| space.munmap(AT, GIB).unwrap());
        assert_eq!(free(vm), (2, 2, 0));
    });
    assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
}

/// H5: the pool has one page. The parent stores while fork(2) shares it with the child, which sees the page as it was at one moment,
/// until the parent takes it.
#[test]
fn a_parent_stores_while_its_child_comes_and_reads() {
    let seen = Arc::new([const { AtomicU64::new(0) }; 2]);
    let told = Arc::clone(&seen);
    shuffled(SCHEDULES, move || {
        let vm = vm_of_pages_of_1_gib(2, 1);
        let parent = new_space(vm);
        private(vm, parent);
        let (born, told): (Arc<Mutex<Option<&'static Space>>>, _) = (Arc::default(), Arc::clone(&told));
        let (bear, forked) = (Arc::clone(&born), Arc::new(AtomicBool::new(false)));
        let (is_forked, last_value) = (Arc::clone(&forked), Arc::new(AtomicU64::new(0)));
        let stored = Arc::clone(&last_value);
        let stores = move || {
            let (mut value, mut nr_more) = (7, 3);
            while nr_more > 0 {
                value += 1;
                nr_more -= u64::from(is_forked.load(Relaxed));
                assert_eq!([8, LAST + 8].map(|at| store(vm, parent, AT + at, value)), [Ok(value); 2]);
            }
            stored.store(value, Relaxed);
        };
        let fork = move || {
            let child: &'static Space = Box::leak(Box::new(parent.fork().unwrap()));
            forked.store(true, Relaxed);
            let shown = [8, LAST + 8, 8, LAST + 8].map(|at| load(vm, child, AT + at));
            let is_taken = |shown: &Result<u64, FaultError>| *shown == Err(FaultError::Taken);
            let first = shown.iter().position(is_taken).unwrap_or(4);
            assert!(shown[first..].iter().all(is_taken), "{shown:?}");
            if let [Ok(first), Ok(last), ..] = shown {
                assert!(first == last || first == last + 1, "{shown:?}");
            }
            assert!(first < 3 || shown[0] == shown[2]);
            assert!(first < 4 || shown[1] == shown[3]);
            told[usize::from(first < 4)].fetch_add(1, Relaxed);
            *bear.lock().unwrap() = Some(child);
        };
        run(2, vec![Box::new(stores), Box::new(fork)]);
        let child = born.lock().unwrap().take().unwrap();
        check(vm, &[parent, child], 1);
        let last = (word_at(parent, AT + LAST + 8), vm.vmstat().get(Event::CowBreak), free(vm));
        assert_eq!(last, (last_value.load(Relaxed), 0, (1, 0, 0)));
        assert_eq!(load(vm, child, AT), Err(FaultError::Taken));
        parent.munmap(AT, GIB).unwrap();
        assert_eq!((load(vm, child, AT), free(vm)), (Err(FaultError::Taken), (1, 1, 0)));
        child.munmap(AT, GIB).unwrap();
        assert_eq!(free(vm), (1, 1, 0));
    });
    assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
}
