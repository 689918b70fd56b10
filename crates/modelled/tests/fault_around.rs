//! I22: a read fault maps a neighbour of its page while another CPU discards, moves or maps the neighbour,
//! or removes its entry, table or mapping.

use common::{Modelled, World, beside_pagers, explore, pager, run};
use softfault_modelled::policy::around::FaultAround;
use softfault_modelled::policy::folio::FolioOrders;
use softfault_modelled::{
    Access, Advice, FaultError, FaultLocking, MapFlags, ObjectPart, Order, Pfn, Prot, SharedObject,
};

type Object = SharedObject<'static, Modelled>;

const RW: Prot = Prot::READ.union(Prot::WRITE);
/// The first page of a leaf table; the neighbour is the next one.
const AT: u64 = 4;

/// An object of two pages, written, mapped at page 4, of which no entry was ever made. Their table is there.
fn untouched() -> (World, &'static Object) {
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    w.touch(0);
    let object: &'static Object = Box::leak(Box::new(w.vm.new_shared_object(2 * 4096).unwrap()));
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    w.space.mmap_object(AT * 4096, 2 * 4096, RW, flags, ObjectPart::new(object)).unwrap();
    object.write(0, &[6; 8]).unwrap();
    object.write(4096, &[7; 8]).unwrap();
    // The same table, of a page behind the two.
    w.map(AT + 2, 1);
    w.touch(AT + 2);
    w.vm.set_fault_around(FaultAround::DEFAULT);
    (w, object)
}

/// The same, with the neighbour's frame, which had an entry.
fn world() -> (World, &'static Object, Pfn) {
    let (w, object) = untouched();
    w.touch(AT + 1);
    let pfn = w.space.translate_at_rest((AT + 1) * 4096).unwrap().pfn;
    w.space.madvise((AT + 1) * 4096, 4096, Advice::DontNeed).unwrap();
    (w, object, pfn)
}

fn read(w: World) {
    let active = w.space.activate();
    match w.space.handle_fault(AT * 4096, Access::Read) {
        Ok(_) | Err(FaultError::BeyondObject | FaultError::NotMapped | FaultError::NoRights) => {}
        Err(other) => panic!("{other}"),
    }
    drop(active);
}

/// One CPU reads page 4, another does something to page 5.
fn around_against(other: impl Fn(World, &'static Object, Pfn) + Sync + Send + Copy + 'static) {
    explore(2, move || {
        let (w, object, pfn) = world();
        run(vec![Box::new(move || read(w)), Box::new(move || other(w, object, pfn))]);
        w.check(&[]);
        assert!(w.space.rss_pages().shmem <= 2);
    });
}

/// The neighbour's frame is freed and reused at once.
#[test]
fn a1_around_against_a_discard() {
    explore(2, || {
        let (w, object) = untouched();
        let discard = move || {
            object.discard(1..2);
            w.space.write(0, &[9; 8]).unwrap();
        };
        run(vec![Box::new(move || read(w)), Box::new(discard)]);
        w.check(&[]);
        assert_eq!(object.nr_resident_pages(), 1);
    });
}

/// A6.
#[test]
fn a6_around_against_a_smaller_size() {
    explore(2, || {
        let (w, object, _) = world();
        run(vec![Box::new(move || read(w)), Box::new(move || object.set_size_bytes(4096))]);
        assert_eq!((object.nr_resident_pages(), w.space.rss_pages().shmem), (1, 1));
        w.check(&[]);
    });
}

/// Both make the neighbour's entry; it counts once, and the store is not lost.
#[test]
fn around_against_a_fault_on_the_neighbour() {
    explore(2, || {
        let (w, object, _) = world();
        let write = move || w.space.write((AT + 1) * 4096, &[8; 8]).unwrap();
        run(vec![Box::new(move || read(w)), Box::new(write)]);
        let mut word = [0; 8];
        object.read(4096, &mut word);
        assert_eq!((word, w.space.rss_pages().shmem), ([8; 8], 2));
        w.check(&[]);
    });
}

/// A store through the neighbour's entry is in the old frame before it is copied, or in the new one.
#[test]
fn a1_around_against_a_move() {
    explore(2, || {
        let (w, object, pfn) = world();
        run(vec![Box::new(move || read(w)), Box::new(move || _ = w.vm.migrate_frame(pfn))]);
        w.check(&[]);
        w.space.write((AT + 1) * 4096, &[8; 8]).unwrap();
        let mut word = [0; 8];
        object.read(4096, &mut word);
        assert_eq!(word, [8; 8]);
    });
}

#[test]
fn around_against_an_unmapping() {
    around_against(|w, _, _| w.space.munmap((AT + 1) * 4096, 4096).unwrap());
}

/// The table goes with the mapping.
#[test]
fn around_against_the_end_of_the_mapping() {
    around_against(|w, _, _| w.space.munmap(AT * 4096, 2 * 4096).unwrap());
}

/// No entry has a right afterwards that its mapping has not.
#[test]
fn around_against_a_loss_of_rights() {
    around_against(|w, _, _| w.space.mprotect((AT + 1) * 4096, 4096, Prot::READ).unwrap());
}

/// An object of two pages in folios of that order, which are there, mapped at page 4 without a leaf table: a read fault
/// makes the neighbour's entry before it installs the table.
fn without_table(order: u8) -> (World, &'static Object) {
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    w.touch(0);
    let orders = FolioOrders::new(Order(order), Order(order)).unwrap();
    let object: &'static Object = Box::leak(Box::new(w.vm.new_shared_object_of(2 * 4096, orders).unwrap()));
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    w.space.mmap_object(AT * 4096, 2 * 4096, RW, flags, ObjectPart::new(object)).unwrap();
    object.write(0, &[6; 8]).unwrap();
    object.write(4096, &[7; 8]).unwrap();
    w.vm.set_fault_around(FaultAround::DEFAULT);
    (w, object)
}

/// One CPU reads page 4 and installs the table, another does something; then so many pages are in memory, at least.
fn new_table_against(other: impl Fn(World, &'static Object) + Sync + Send + Copy + 'static, nr_pages: u64) {
    for order in [0, 1] {
        explore(2, move || {
            let (w, object) = without_table(order);
            run(vec![Box::new(move || read(w)), Box::new(move || other(w, object))]);
            w.check(&[]);
            assert!(pager::nr_had(object, 2) >= nr_pages && w.space.rss_pages().shmem <= 2);
            let is_mapped = w.space.translate_at_rest((AT + 1) * 4096).is_some();
            assert!(!is_mapped || object.size_bytes() > 4096, "beyond the end");
        });
    }
}

#[test]
fn a1_a_new_table_against_a_discard() {
    new_table_against(|_, object| object.discard(1..2), 1);
}

/// A6.
#[test]
fn a6_a_new_table_against_a_smaller_size() {
    new_table_against(|_, object| object.set_size_bytes(4096), 1);
}

#[test]
fn a_new_table_against_the_end_of_the_mapping() {
    new_table_against(|w, _| w.space.munmap(AT * 4096, 2 * 4096).unwrap(), 2);
}

/// The loser's table is empty, and becomes that of other pages.
#[test]
fn two_new_tables() {
    explore(1, || {
        let (w, _) = without_table(1);
        w.map(8, 4);
        let other = move || {
            w.space.handle_fault((AT + 1) * 4096, Access::Read).unwrap();
            w.space.handle_fault(8 * 4096, Access::Write).unwrap();
        };
        run(vec![Box::new(move || read(w)), Box::new(other)]);
        w.check(&[]);
        assert_eq!(w.space.rss_pages().shmem, 2);
        assert_eq!([9, 10, 11].map(|page| w.space.translate_at_rest(page * 4096)), [None; 3]);
    });
}

/// The frame is known by another mapping of it.
#[test]
fn a1_a_new_table_against_a_move() {
    for order in [0, 1] {
        explore(1, move || {
            let (w, object) = without_table(order);
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            w.space.mmap_object(8 * 4096, 2 * 4096, RW, flags, ObjectPart::new(object)).unwrap();
            w.touch(8);
            let pfn = w.space.translate_at_rest(8 * 4096).unwrap().pfn;
            run(vec![Box::new(move || read(w)), Box::new(move || _ = w.vm.migrate_frame(pfn))]);
            w.check(&[]);
            w.space.write((AT + 1) * 4096, &[8; 8]).unwrap();
            let mut word = [0; 8];
            object.read(4096, &mut word);
            assert_eq!(word, [8; 8]);
        });
    }
}

beside_pagers![
    a1_around_against_a_discard,
    a6_around_against_a_smaller_size,
    around_against_a_fault_on_the_neighbour,
    a1_around_against_a_move,
    around_against_an_unmapping,
    around_against_the_end_of_the_mapping,
    around_against_a_loss_of_rights,
    a1_a_new_table_against_a_discard,
    a_new_table_against_the_end_of_the_mapping,
];
