//! The owner of a reservation takes a shared page from its children, while these read, store, fork, move, drop or end.

use common::calls::access_once;
use common::{RW, Shuffled, access, free, run, shuffled, vm};
use shuttle::rand::Rng;
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{
    Access, AddressSpace, Advice, Event, FaultError, MapFlags, MremapFlags, ObjectPart, Order, Term, Tunables, Vm,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const NR_FRAMES: u64 = 1536;
const AT: u64 = 0x4000_0000;
const HUGE: u64 = 512 * 4096;
const TO: u64 = AT + 8 * HUGE;
const ANON: MapFlags = MapFlags::PRIVATE.union(MapFlags::FIXED).union(MapFlags::ANONYMOUS).union(MapFlags::HUGETLB);
const SCHEDULES: usize = 300;

type Machine = Shuffled<X86_64>;
type Space = AddressSpace<'static, Machine>;
type Pool = &'static Vm<Machine>;
type Born = Arc<Mutex<Option<&'static Space>>>;
type Actor = Box<dyn FnOnce() + Send>;

fn by(vm: Pool, space: &'static Space, at: u64, value: Option<u64>) -> Result<u64, FaultError> {
    access_once(vm, space, at, value)
}

/// A pool of one page, which the parent owns and the child shows, with 7 in its first word and 0 in the second.
fn shared(nr_cpus: usize) -> (Pool, &'static Space, &'static Space) {
    let vm = vm(nr_cpus, NR_FRAMES, Tunables::default());
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 1), Ok(1));
    let parent: &'static Space = Box::leak(Box::new(vm.new_space().unwrap()));
    parent.mmap(AT, HUGE, RW, ANON).unwrap();
    parent.write(AT, &7_u64.to_ne_bytes()).unwrap();
    let child: &'static Space = Box::leak(Box::new(parent.fork().unwrap()));
    (vm, parent, child)
}

fn check(vm: Pool, spaces: &[&Space]) {
    vm.check_in_test(spaces, &mut vec![0; NR_FRAMES as usize + common::NR_SLOTS]).unwrap();
}

/// The page is the pool's again when these are unmapped.
fn end(vm: Pool, spaces: &[&Space]) {
    spaces.iter().for_each(|space| space.munmap(AT, 16 * HUGE).unwrap());
    assert_eq!(free(vm), (1, 1, 0));
}

/// Checks that a child sees its page as it was, or has lost it.
fn may_be(seen: Result<u64, FaultError>, value: u64) {
    assert!(seen == Ok(value) || seen == Err(FaultError::Taken), "{seen:?}");
}

/// The child reads by one translation, or by several: never what the parent has stored since.
#[test]
fn a_child_reads_while_its_parent_takes() {
    let seen = Arc::new([const { AtomicU64::new(0) }; 2]);
    let told = Arc::clone(&seen);
    shuffled(SCHEDULES, move || {
        let (vm, parent, child) = shared(2);
        let told = Arc::clone(&told);
        let stores = move || {
            assert_eq!(by(vm, parent, AT + 8, Some(9)), Ok(9));
            assert_eq!([AT, AT + 8].map(|at| by(vm, parent, at, None)), [Ok(7), Ok(9)]);
        };
        let reads = move || {
            let active = child.activate();
            for _ in 0..6 {
                may_be(access(child, vm, AT + 8, None), 0);
            }
            let last = access(child, vm, AT, None);
            drop(active);
            may_be(last, 7);
            told[usize::from(last.is_err())].fetch_add(1, Relaxed);
        };
        run(2, vec![Box::new(stores), Box::new(reads)]);
        check(vm, &[parent, child]);
        assert_eq!((by(vm, child, AT, None), vm.vmstat().get(Event::HugePageTaken)), (Err(FaultError::Taken), 1));
        end(vm, &[parent, child]);
    });
    assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
}

/// Both store: the child is refused, or has the page alone after its parent has unmapped it. The parent's store is not refused.
#[test]
fn a_child_stores_while_its_parent_takes() {
    shuffled(SCHEDULES, || {
        let (vm, parent, child) = shared(3);
        let second: &'static Space = Box::leak(Box::new(parent.fork().unwrap()));
        let unmaps = shuttle::rand::thread_rng().gen_bool(0.3);
        let stores = move || match by(vm, parent, AT + 8, Some(9)) {
            Ok(9) => {}
            other => assert!(unmaps && other == Err(FaultError::NotMapped), "{other:?}"),
        };
        let childs = move || {
            for _ in 0..3 {
                let stored = by(vm, child, AT + 16, Some(5));
                assert!(
                    unmaps && stored == Ok(5) || matches!(stored, Err(FaultError::NoHugePage | FaultError::Taken)),
                    "{stored:?}"
                );
            }
        };
        let third = move || {
            if unmaps {
                parent.munmap(AT, HUGE).unwrap();
            } else {
                assert_eq!(by(vm, parent, AT, None), Ok(7));
            }
        };
        run(3, vec![Box::new(stores), Box::new(childs), Box::new(third)]);
        check(vm, &[parent, child, second]);
        may_be(by(vm, child, AT, None), 7);
        may_be(by(vm, second, AT, None), 7);
        end(vm, &[parent, child, second]);
    });
}

/// The child ends, drops, moves the page, or changes its rights.
#[test]
fn a_child_moves_while_its_parent_takes() {
    shuffled(SCHEDULES, || {
        let (vm, parent, child) = shared(2);
        let how = shuttle::rand::thread_rng().gen_range(0..4);
        let stores = move || {
            assert_eq!(by(vm, parent, AT + 8, Some(9)), Ok(9));
            assert_eq!(by(vm, parent, AT, None), Ok(7));
        };
        let childs = move || match how {
            0 => {
                let flags = MremapFlags::MAYMOVE | MremapFlags::FIXED;
                assert_eq!(child.mremap(AT, HUGE, HUGE, flags, TO), Ok(TO));
                may_be(by(vm, child, TO + 8, None), 0);
            }
            1 => child.munmap(AT, HUGE).unwrap(),
            2 => child.madvise(AT, HUGE, Advice::DontNeed).unwrap(),
            _ => {
                child.mprotect(AT, HUGE, common::READ).unwrap();
                may_be(by(vm, child, AT + 8, None), 0);
            }
        };
        run(2, vec![Box::new(stores), Box::new(childs)]);
        check(vm, &[parent, child]);
        assert_eq!([AT, AT + 8].map(|at| by(vm, parent, at, None)), [Ok(7), Ok(9)]);
        if how == 0 {
            assert_eq!(by(vm, child, TO, None), Err(FaultError::Taken));
        }
        end(vm, &[parent, child]);
    });
}

/// The child forks: its own child has what the child had, or has lost it, too.
#[test]
fn a_child_forks_while_its_parent_takes() {
    let seen = Arc::new([const { AtomicU64::new(0) }; 3]);
    let told = Arc::clone(&seen);
    shuffled(SCHEDULES, move || {
        let (vm, parent, child) = shared(2);
        let (born, told) = (Born::default(), Arc::clone(&told));
        let bear = Arc::clone(&born);
        let stores = move || {
            assert_eq!(by(vm, parent, AT + 8, Some(9)), Ok(9));
            assert_eq!(by(vm, parent, AT, None), Ok(7));
        };
        let forks = move || {
            let grandchild: &'static Space = Box::leak(Box::new(child.fork().unwrap()));
            may_be(by(vm, grandchild, AT + 8, None), 0);
            *bear.lock().unwrap() = Some(grandchild);
        };
        run(2, vec![Box::new(stores), Box::new(forks)]);
        let grandchild = born.lock().unwrap().take().unwrap();
        check(vm, &[parent, child, grandchild]);
        let lost = [child, grandchild].map(|space| by(vm, space, AT, None));
        assert_eq!(lost, [Err(FaultError::Taken); 2]);
        told[vm.vmstat().get(Event::HugePageTaken) as usize].fetch_add(1, Relaxed);
        end(vm, &[parent, child, grandchild]);
    });
    assert!(seen[1..].iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
}

/// Other threads of the owner unmap the page, drop it, fork, or take the write right away: two children, whose entries nobody else
/// owns, both lose the page, for a store that is made, or neither does.
#[test]
fn an_owner_takes_while_it_is_unmapped() {
    let seen = Arc::new([const { AtomicU64::new(0) }; 2]);
    let told = Arc::clone(&seen);
    shuffled(2 * SCHEDULES, move || {
        let (vm, parent, child) = shared(2);
        let second: &'static Space = Box::leak(Box::new(parent.fork().unwrap()));
        let how = shuttle::rand::thread_rng().gen_range(0..4);
        let (born, told, stored) =
            (Born::default(), Arc::clone(&told), Arc::new(Mutex::new(Err(FaultError::OutOfFrames))));
        let (bear, note) = (Arc::clone(&born), Arc::clone(&stored));
        let stores = move || *note.lock().unwrap() = parent.handle_fault(AT + 8, Access::Write);
        let other = move || match how {
            0 => parent.munmap(AT, HUGE).unwrap(),
            1 => parent.madvise(AT, HUGE, Advice::DontNeed).unwrap(),
            2 => *bear.lock().unwrap() = Some(Box::leak(Box::new(parent.fork().unwrap()))),
            _ => parent.mprotect(AT, HUGE, common::READ).unwrap(),
        };
        run(2, vec![Box::new(stores), Box::new(other)]);
        let born = born.lock().unwrap().take();
        let spaces: Vec<&Space> = [parent, child, second].into_iter().chain(born).collect();
        check(vm, &spaces);
        let (stored, seen) = (*stored.lock().unwrap(), by(vm, child, AT, None));
        may_be(seen, 7);
        assert_eq!(seen, by(vm, second, AT, None), "both, or neither");
        match how {
            0 => assert!(matches!(stored, Ok(_) | Err(FaultError::NotMapped)), "{stored:?}"),
            3 => assert!(matches!(stored, Ok(_) | Err(FaultError::NoRights)), "{stored:?}"),
            _ => assert!(stored.is_ok(), "{stored:?}"),
        }
        if how != 1 {
            assert_eq!(seen.is_err(), stored.is_ok(), "who may store takes");
        }
        told[usize::from(stored.is_ok())].fetch_add(1, Relaxed);
        end(vm, &spaces);
    });
    assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
}

/// The page moves to another frame, or is pinned by its owner, while it is taken.
#[test]
fn a_page_moves_while_it_is_taken() {
    shuffled(SCHEDULES, || {
        let (vm, parent, child) = shared(3);
        let page = parent.translate_at_rest(AT).unwrap().pfn;
        let stores = move || assert_eq!(by(vm, parent, AT + 8, Some(9)), Ok(9));
        let moves: Actor = Box::new(move || _ = vm.migrate_frame(page));
        let pins = move || {
            let pin = parent.pin_page(AT + 4096, Term::Short).unwrap();
            let mut word = [1; 8];
            pin.read(0, &mut word);
            assert_eq!(word, [0; 8]);
        };
        run(3, vec![Box::new(stores), moves, Box::new(pins)]);
        check(vm, &[parent, child]);
        assert_eq!(by(vm, child, AT, None), Err(FaultError::Taken));
        assert_eq!([AT, AT + 8].map(|at| by(vm, parent, at, None)), [Ok(7), Ok(9)]);
        end(vm, &[parent, child]);
    });
}

/// H2, H5: the owner drops the page, and touches it: the child is the one that loses.
#[test]
fn a_drop_takes_for_the_next_touch() {
    shuffled(SCHEDULES, || {
        let (vm, parent, child) = shared(2);
        let drops = move || {
            parent.madvise(AT, HUGE, Advice::DontNeed).unwrap();
            assert_eq!(by(vm, parent, AT, Some(3)), Ok(3));
        };
        let childs = move || {
            may_be(by(vm, child, AT, None), 7);
            let stored = by(vm, child, AT + 8, Some(5));
            assert!(matches!(stored, Err(FaultError::NoHugePage | FaultError::Taken)), "{stored:?}");
        };
        run(2, vec![Box::new(drops), Box::new(childs)]);
        check(vm, &[parent, child]);
        assert_eq!([by(vm, parent, AT, None), by(vm, child, AT, None)], [Ok(3), Err(FaultError::Taken)]);
        end(vm, &[parent, child]);
    });
}

/// A private mapping of a file: the child ends, which waits for a hole, which waits for the entry that the owner drops, who
/// takes the page from the child: it does so before the child waits.
#[test]
fn a_drop_takes_from_a_child_that_ends_while_a_hole_is_made() {
    shuffled(SCHEDULES, || {
        let vm = vm(3, NR_FRAMES, Tunables::default());
        assert_eq!(vm.set_nr_hugepages(Order::PMD, 2), Ok(2));
        let file: &'static _ = Box::leak(Box::new(vm.new_hugetlb_object(HUGE, Order::PMD).unwrap()));
        file.write(0, &6_u64.to_ne_bytes()).unwrap();
        let parent: &'static Space = Box::leak(Box::new(vm.new_space().unwrap()));
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        parent.mmap_object(AT, HUGE, RW, flags, ObjectPart::new(file)).unwrap();
        parent.write(AT, &7_u64.to_ne_bytes()).unwrap();
        let child = parent.fork().unwrap();
        let drops = move || {
            parent.madvise(AT, HUGE, Advice::DontNeed).unwrap();
            let seen = by(vm, parent, AT, None);
            assert!(seen == Ok(6) || seen == Ok(0), "{seen:?}");
        };
        run(3, vec![Box::new(drops), Box::new(move || drop(child)), Box::new(move || file.discard(0..512))]);
        check(vm, &[parent]);
        parent.munmap(AT, HUGE).unwrap();
        assert_eq!(free(vm), (2, 2, 0));
    });
}
