//! I44: a CPU that removes a page from an object finds every entry of the page, while spaces begin to map
//! it, fork, move their mapping, or end.

use common::objects::map;
use common::{Modelled, RW, World, beside_pagers, explore, run, use_cpus};
use softfault_modelled::{Access, AddressSpace, FaultError, FaultLocking, ObjectPart, SharedObject};
use softfault_modelled::{MapFlags, MremapFlags};

type Object = SharedObject<'static, Modelled>;
type Space = AddressSpace<'static, Modelled>;

const FIXED_SHARED: MapFlags = MapFlags::SHARED.union(MapFlags::FIXED);
const MOVE: MremapFlags = MremapFlags::MAYMOVE.union(MremapFlags::FIXED);
/// Where the object's page is mapped, and where it is moved to: with tables.
const AT: u64 = 4;
const TO: u64 = 8;

/// An object of one page, which is there; nobody maps it.
fn world() -> (World, &'static Object) {
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    w.touch(0);
    let object: &'static Object = Box::leak(Box::new(w.vm.new_shared_object(4096).unwrap()));
    object.write(0, &[7; 8]).unwrap();
    (w, object)
}

/// A touch; there may be no mapping.
fn touch(space: &Space, page: u64) {
    let active = space.activate();
    let done = space.handle_fault(page * 4096, Access::Write);
    // Before a panic, which ends the model: two at once would end the process.
    drop(active);
    match done {
        Ok(_) | Err(FaultError::NotMapped) => {}
        Err(other) => panic!("{other}"),
    }
}

fn discard(object: &'static Object) -> Box<dyn FnOnce() + Send> {
    Box::new(move || object.discard(0..1))
}

/// The space joins before its mapping can be touched.
#[test]
fn a_first_mapping_against_a_discard() {
    use_cpus(4);
    explore(1, || {
        let (w, object) = world();
        // The table is there.
        w.map(AT + 1, 1);
        w.touch(AT + 1);
        // Not as a CPU that runs the space: fewer steps.
        let touch = move || match w.space.handle_fault(AT * 4096, Access::Read) {
            Ok(_) | Err(FaultError::NotMapped) => {}
            Err(other) => panic!("{other}"),
        };
        // In this order one preemption of the first is enough.
        run(vec![Box::new(move || map(w.space, AT, object)), Box::new(touch), discard(object)]);
        w.check(&[]);
        assert!(w.space.rss_pages().shmem <= object.nr_resident_pages());
    });
}

/// Unmaps the only page of the object against a discard of it. With `has_neighbour` a private
/// page is mapped behind it, so that the leaf table stays.
fn unmap_against_a_discard(has_neighbour: bool) {
    explore(2, move || {
        let (w, object) = world();
        map(w.space, AT, object);
        if has_neighbour {
            w.map(AT + 1, 1);
        }
        touch(w.space, AT);
        if has_neighbour {
            touch(w.space, AT + 1);
        }
        let unmap = move || w.space.munmap(AT * 4096, 4096).unwrap();
        run(vec![Box::new(unmap), discard(object)]);
        w.check(&[]);
        assert_eq!((w.space.rss_pages().shmem, object.nr_resident_pages()), (0, 0));
    });
}

/// The mapping that goes is the only one of the object; its table goes, too.
#[test]
fn an_unmapping_against_a_discard() {
    unmap_against_a_discard(false);
}

/// The same of one page of a table, which stays: the entry is the remover's for a while.
#[test]
fn an_unmapping_of_one_page_against_a_discard() {
    unmap_against_a_discard(true);
}

/// The mapping lies in two tables. The discard has an entry of the first one, and finds that the unmapping has taken the second one: who
/// waits for that entry.
#[test]
fn an_unmapping_of_two_tables_against_a_discard() {
    explore(1, || {
        let w = World::new(FaultLocking::Lockfree, 0, 1);
        w.touch(0);
        let object: &'static Object = Box::leak(Box::new(w.vm.new_shared_object(8 * 4096).unwrap()));
        w.space.mmap_object(AT * 4096, 8 * 4096, RW, FIXED_SHARED, ObjectPart::new(object)).unwrap();
        [AT, AT + 4].iter().for_each(|page| touch(w.space, *page));
        let unmap = move || w.space.munmap(AT * 4096, 8 * 4096).unwrap();
        run(vec![Box::new(move || object.discard(0..8)), Box::new(unmap)]);
        w.check(&[]);
        assert_eq!((w.space.rss_pages().shmem, object.nr_resident_pages()), (0, 0));
    });
}

/// The end removes the entries, or the discard does; the space is there meanwhile.
#[test]
fn the_end_of_a_space_against_a_discard() {
    explore(2, || {
        let (w, object) = world();
        let other = w.vm.new_space().unwrap();
        map(&other, AT, object);
        touch(&other, AT);
        let nr_free = w.vm.vmstat().nr_free_pages;
        run(vec![Box::new(move || drop(other)), discard(object)]);
        w.check(&[]);
        assert!(w.vm.vmstat().nr_free_pages > nr_free + 2);
    });
}

/// The member has left before the end, and a walk that found it may still be there.
#[test]
fn an_unmapping_and_the_end_against_a_discard() {
    explore(2, || {
        let (w, object) = world();
        let other = w.vm.new_space().unwrap();
        map(&other, AT, object);
        touch(&other, AT);
        let end = move || {
            other.munmap(AT * 4096, 4096).unwrap();
            drop(other);
        };
        run(vec![discard(object), Box::new(end)]);
        w.check(&[]);
    });
}

/// The child has the mapping and no entry; it finds the page, or the one after it.
#[test]
fn a_fork_against_a_discard() {
    explore(1, || {
        let (w, object) = world();
        map(w.space, AT, object);
        touch(w.space, AT);
        let child = std::sync::Arc::new(std::sync::Mutex::new(None));
        let place = child.clone();
        let fork = move || {
            let child = w.space.fork().unwrap();
            touch(&child, AT);
            *place.lock().unwrap() = Some(child);
        };
        run(vec![Box::new(fork), discard(object)]);
        let child = child.lock().unwrap().take().unwrap();
        w.check(&[&child]);
        assert_eq!(w.space.rss_pages().shmem, 0);
        assert_eq!(child.rss_pages().shmem, object.nr_resident_pages());
    });
}

/// No entry goes with the mapping: it would come to a place that the discard has passed.
#[test]
fn a_move_against_a_discard() {
    explore(2, || {
        let (w, object) = world();
        w.map(TO, 1);
        w.touch(TO);
        map(w.space, AT, object);
        touch(w.space, AT);
        let mover = move || {
            w.space.mremap(AT * 4096, 4096, 4096, MOVE, TO * 4096).unwrap();
            touch(w.space, TO);
        };
        run(vec![Box::new(mover), discard(object)]);
        w.check(&[]);
        assert_eq!(w.space.rss_pages().shmem, object.nr_resident_pages());
    });
}

/// Two spaces in one shard, of which one leaves while the walk is between them.
#[test]
fn a_walk_against_a_member_that_leaves() {
    explore(2, || {
        let (w, object) = world();
        let other: &'static Space = Box::leak(Box::new(w.vm.new_space().unwrap()));
        for space in [w.space, other] {
            map(space, AT, object);
            touch(space, AT);
        }
        run(vec![Box::new(move || w.space.munmap(AT * 4096, 4096).unwrap()), discard(object)]);
        w.check(&[other]);
        assert_eq!((other.rss_pages().shmem, object.nr_resident_pages()), (0, 0));
    });
}

/// One joins and touches the page while the walk is at another: it gets the page that leaves and loses it, or the next.
#[test]
fn a_walk_against_a_member_that_joins() {
    explore(2, || {
        let (w, object) = world();
        let other: &'static Space = Box::leak(Box::new(w.vm.new_space().unwrap()));
        // Its table is there.
        other.mmap((AT + 1) * 4096, 4096, RW, MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED).unwrap();
        touch(other, AT + 1);
        map(w.space, AT, object);
        touch(w.space, AT);
        let join = move || {
            map(other, AT, object);
            let done = other.handle_fault(AT * 4096, Access::Read);
            assert!(done.is_ok() || done == Err(FaultError::Poisoned));
        };
        run(vec![Box::new(join), discard(object)]);
        w.check(&[other]);
        assert_eq!((w.space.rss_pages().shmem, other.rss_pages().shmem), (0, object.nr_resident_pages()));
    });
}

/// The entry is locked for a moment, with the page in it.
#[test]
fn a_forced_write_against_a_discard() {
    explore(2, || {
        let (w, object) = world();
        map(w.space, AT, object);
        touch(w.space, AT);
        let write = move || {
            let active = w.space.activate();
            let done = w.space.write_forced(AT * 4096, &[9; 8]);
            drop(active);
            // Its memory may have failed.
            assert!(done.is_ok() || done.is_err_and(|error| error.fault == FaultError::Poisoned));
        };
        run(vec![discard(object), Box::new(write)]);
        w.check(&[]);
        assert_eq!(w.space.rss_pages().shmem, object.nr_resident_pages());
    });
}

/// Two removers in one space, in one table: each finds entries that the other owns.
#[test]
fn two_objects_lose_pages_in_one_table() {
    explore(2, || {
        let (w, object) = world();
        let other: &'static Object = Box::leak(Box::new(w.vm.new_shared_object(3 * 4096).unwrap()));
        // At one displacement, with the first object's page between the two.
        for page in [0, 2] {
            let part = ObjectPart::new(other).with_offset_bytes(page * 4096);
            w.space.mmap_object((AT + page) * 4096, 4096, RW, FIXED_SHARED, part).unwrap();
        }
        map(w.space, AT + 1, object);
        (0..3).for_each(|page| touch(w.space, AT + page));
        run(vec![discard(object), Box::new(move || other.discard(0..3))]);
        w.check(&[]);
        assert_eq!(w.space.rss_pages().shmem, 0);
    });
}

beside_pagers![
    a_first_mapping_against_a_discard,
    an_unmapping_against_a_discard,
    an_unmapping_of_one_page_against_a_discard,
    the_end_of_a_space_against_a_discard,
    an_unmapping_and_the_end_against_a_discard,
    a_fork_against_a_discard,
    a_move_against_a_discard,
    a_walk_against_a_member_that_leaves,
    a_walk_against_a_member_that_joins,
    a_forced_write_against_a_discard,
    two_objects_lose_pages_in_one_table
];
