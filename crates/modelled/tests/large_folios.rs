//! I45: a folio of 2 MiB is one word of an object's tree. A node takes its place when it is cut.

mod common;

use common::{Modelled, RW, World, explore, run, use_whole_block};
use softfault_modelled::policy::folio::FolioOrders;
use softfault_modelled::{Access, Discipline, MapFlags, ObjectPart, Order, SharedObject};

type Object = SharedObject<'static, Modelled>;

/// Where the first two pages of the object are mapped.
const AT: u64 = 4;
const LARGE: u64 = 512;

/// An object whose pages are of 2 MiB where there are frames, which is once; its top node is there.
fn world() -> (World, &'static Object) {
    use_whole_block();
    let w = World::new(Discipline::Lockfree, 0, 1);
    let orders = FolioOrders::new(Order(0), Order(9)).unwrap();
    let object: &'static Object = Box::leak(Box::new(w.vm.new_shared_object_of(LARGE * 4096, orders).unwrap()));
    // Before small pages come from the same block.
    object.write(0, &[1; 8]).unwrap();
    assert_eq!(object.nr_resident_pages(), LARGE);
    w.touch(0);
    let flags = MapFlags::SHARED.union(MapFlags::FIXED);
    w.space.mmap_object(AT * 4096, 2 * 4096, RW, flags, ObjectPart::new(object)).unwrap();
    w.map(AT + 2, 1);
    w.touch(AT + 2);
    (w, object)
}

fn fault(w: World, page: u64) {
    w.space.handle_fault((AT + page) * 4096, Access::Read).unwrap();
}

fn word(object: &Object, page: u64) -> [u8; 8] {
    let mut word = [0xee; 8];
    object.read(page * 4096, &mut word);
    word
}

/// Whoever looks the page up finds the folio, waits, or finds the part.
#[test]
fn a_fault_against_a_cut() {
    explore(2, || {
        let (w, object) = world();
        object.write(0, &[7; 8]).unwrap();
        let look = move || {
            fault(w, 0);
            let mut word = [0; 8];
            w.space.read(AT * 4096, &mut word).unwrap();
            assert_eq!(word, [7; 8]);
        };
        run(vec![Box::new(look), Box::new(move || object.discard(1..LARGE))]);
        assert_eq!((word(object, 0), word(object, 1), object.nr_resident_pages()), ([7; 8], [0; 8], 1));
        w.check(&[]);
    });
}

/// A folio comes while a part of its place is discarded: whole, and zero there.
#[test]
fn a_fill_against_a_discard_of_a_part() {
    explore(2, || {
        let (w, object) = world();
        object.discard(0..LARGE);
        let write = move || object.write(4096, &[7; 8]).unwrap();
        run(vec![Box::new(write), Box::new(move || object.discard(0..1))]);
        assert_eq!((word(object, 0), word(object, 1)), ([0; 8], [7; 8]));
        w.check(&[]);
    });
}
