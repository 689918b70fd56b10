//! I12, I14: pages are discarded from a live object while other CPUs fault on them, read or write them by
//! the handle, or remove the last mapping.

use common::{Modelled, RW, World, beside_pagers, explore, run};
use softfault_modelled::MapFlags;
use softfault_modelled::{Access, FaultError, FaultLocking, ObjectPart, SharedObject};

type Object = SharedObject<'static, Modelled>;

const FIXED_SHARED: MapFlags = MapFlags::SHARED.union(MapFlags::FIXED);

/// A page of an object, mapped at page 4 and written, but not touched through the
/// mapping; page 0 is private.
fn world() -> (World, &'static Object) {
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    w.touch(0);
    let object: &'static Object = Box::leak(Box::new(w.vm.new_shared_object(4096).unwrap()));
    let part = ObjectPart::new(object);
    w.space.mmap_object(4 * 4096, 4096, RW, FIXED_SHARED, part).unwrap();
    object.write(0, &[7; 8]).unwrap();
    (w, object)
}

fn fault(w: World) {
    let active = w.space.activate();
    match w.space.handle_fault(4 * 4096, Access::Write) {
        Ok(_) | Err(FaultError::BeyondObject) => {}
        Err(other) => panic!("{other}"),
    }
    drop(active);
}

/// The fault maps the page before it goes, or the one that comes after it.
#[test]
fn a_fault_against_a_discard() {
    explore(2, || {
        let (w, object) = world();
        run(vec![Box::new(move || fault(w)), Box::new(move || object.discard(0..1))]);
        w.check(&[]);
        assert_eq!(w.space.rss_pages().shmem, object.nr_resident_pages());
    });
}

/// The page is there, or the fault has a frame for it.
#[test]
fn a_fault_against_a_smaller_size() {
    for is_there in [true, false] {
        explore(2, move || {
            let (w, object) = world();
            if !is_there {
                object.discard(0..1);
            }
            run(vec![Box::new(move || fault(w)), Box::new(move || object.set_size_bytes(0))]);
            assert_eq!(object.nr_resident_pages(), 0, "nobody puts a page in beyond the size");
            assert_eq!(w.space.rss_pages().shmem, 0);
            w.check(&[]);
        });
    }
}

/// Two ends of one frame: its object gives it up while its last entry goes.
#[test]
fn an_unmapping_against_a_discard() {
    explore(2, || {
        let (w, object) = world();
        fault(w);
        let nr_free = w.vm.vmstat().nr_free_pages;
        let unmap = move || {
            let active = w.space.activate();
            w.space.munmap(4 * 4096, 4096).unwrap();
            drop(active);
        };
        run(vec![Box::new(unmap), Box::new(move || object.discard(0..1))]);
        w.check(&[]);
        assert!(w.vm.vmstat().nr_free_pages > nr_free);
    });
}

/// The embedder reads while the frame goes and is used again at once.
#[test]
fn a_read_against_a_discard() {
    explore(2, || {
        let (w, object) = world();
        let read = move || {
            let mut word = [0; 8];
            assert_eq!(object.read(0, &mut word), 8);
            assert!(word == [7; 8] || word == [0; 8], "{word:?}");
        };
        run(vec![Box::new(read), Box::new(move || object.discard(0..1))]);
        w.check(&[]);
    });
}

/// The same, and the next owner of the frame writes to it.
#[test]
fn a_read_against_a_discard_and_a_first_touch() {
    explore(2, || {
        let (w, object) = world();
        w.map(1, 1);
        let read = move || {
            let mut word = [0; 8];
            assert_eq!(object.read(0, &mut word), 8);
            assert!(word == [7; 8] || word == [0; 8], "{word:?}");
        };
        let reuse = move || {
            object.discard(0..1);
            w.space.write(4096, &[9; 8]).unwrap();
        };
        run(vec![Box::new(read), Box::new(reuse)]);
        w.check(&[]);
    });
}

/// A write is in the object or in what was discarded; its page is one of them.
#[test]
fn a_write_against_a_discard() {
    explore(2, || {
        let (w, object) = world();
        run(vec![Box::new(move || object.write(0, &[9; 8]).unwrap()), Box::new(move || object.discard(0..1))]);
        let mut word = [0; 8];
        object.read(0, &mut word);
        assert!(word == [9; 8] || word == [0; 8], "{word:?}");
        w.check(&[]);
    });
}

#[test]
fn a_write_against_a_smaller_size() {
    explore(2, || {
        let (w, object) = world();
        object.discard(0..1);
        run(vec![Box::new(move || object.write(0, &[9; 8]).unwrap()), Box::new(move || object.set_size_bytes(0))]);
        assert_eq!(object.nr_resident_pages(), 0, "nobody puts a page in beyond the size");
        w.check(&[]);
    });
}

/// The frame that the slower one had for a new top is a node of zeroes again.
#[test]
fn two_writes_raise_one_top() {
    explore(2, || {
        let w = World::new(FaultLocking::Lockfree, 0, 1);
        let object: &'static Object = Box::leak(Box::new(w.vm.new_shared_object(2000 * 4096).unwrap()));
        let write = move |page: u64| object.write(page * 4096, &[1; 8]).unwrap();
        write(0);
        run(vec![Box::new(move || write(513)), Box::new(move || write(1027))]);
        assert_eq!(object.nr_resident_pages(), 3);
        assert_eq!(object.next_resident(514..2000), Some(1027));
        w.check(&[]);
    });
}

/// Two who put in the first page each, at different heights of the tree.
#[test]
fn two_writes_raise_the_tree() {
    explore(2, || {
        let w = World::new(FaultLocking::Lockfree, 0, 1);
        let object: &'static Object = Box::leak(Box::new(w.vm.new_shared_object(600 * 4096).unwrap()));
        let write = move |page: u64| object.write(page * 4096, &[page as u8 + 1; 8]).unwrap();
        run(vec![Box::new(move || write(0)), Box::new(move || write(599))]);
        for page in [0, 599u64] {
            let mut word = [0; 8];
            object.read(page * 4096, &mut word);
            assert_eq!(word, [page as u8 + 1; 8]);
        }
        assert_eq!(object.nr_resident_pages(), 2);
        w.check(&[]);
    });
}

beside_pagers![
    a_fault_against_a_discard,
    a_fault_against_a_smaller_size,
    an_unmapping_against_a_discard,
    a_read_against_a_discard,
    a_read_against_a_discard_and_a_first_touch,
    a_write_against_a_discard,
    a_write_against_a_smaller_size,
    two_writes_raise_one_top,
    two_writes_raise_the_tree
];
