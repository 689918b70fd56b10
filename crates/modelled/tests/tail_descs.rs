//! I51: a lookup of a tail never reads the reused frame that had its descriptor.

use common::{Modelled, RW, World, beside_pagers, explore, run, use_swap, use_whole_block};
use softfault_modelled::policy::folio::FolioOrders;
use softfault_modelled::{
    Access, FaultLocking, MapFlags, MigrateRefusal, ObjectPart, Order, Pfn, SharedObject, SwapRefusal, Term,
};

type Object = SharedObject<'static, Modelled>;

/// Where a page of the folio is mapped, the page, and its frame: a tail.
const AT: u64 = 4;
const PAGE: u64 = 200;
const TAIL: Pfn = Pfn(512 + PAGE as u32);

/// An object that is one folio of 2 MiB.
fn world() -> (World, &'static Object) {
    use_whole_block();
    use_swap(false);
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    let orders = FolioOrders::new(Order::PMD, Order::PMD).unwrap();
    let object: &'static Object = Box::leak(Box::new(w.vm.new_shared_object_of(512 * 4096, orders).unwrap()));
    object.write(0, &[1; 8]).unwrap();
    assert_eq!(object.nr_resident_pages(), 512);
    // Frames that a pager takes.
    w.touch(0);
    (w, object)
}

fn free(w: World) -> Box<dyn FnOnce() + Send> {
    Box::new(move || w.vm.free_and_overwrite_tail_descs(Pfn(512), TAIL))
}

/// A number from outside: what compaction, poison and those who count ask about.
#[test]
fn a_look_up_by_number() {
    explore(2, || {
        let (w, _) = world();
        let look = move || assert_eq!(w.vm.swap_out_frame(TAIL), Err(SwapRefusal::Stays(MigrateRefusal::CannotSplit)));
        run(vec![free(w), Box::new(look)]);
        w.check(&[]);
    });
}

/// The holder of a pin knows the frame alone, and is in no section.
#[test]
fn the_last_pin_of_a_tail() {
    explore(2, || {
        let (w, object) = world();
        let flags = MapFlags::SHARED.union(MapFlags::FIXED);
        let part = ObjectPart::new(object).with_offset_bytes(PAGE * 4096);
        w.space.mmap_object(AT * 4096, 4096, RW, flags, part).unwrap();
        w.space.handle_fault(AT * 4096, Access::Read).unwrap();
        let pin = w.space.pin_page(AT * 4096, Term::Short).unwrap();
        assert_eq!(pin.pfn(), TAIL);
        w.space.munmap(AT * 4096, 4096).unwrap();
        run(vec![free(w), Box::new(move || drop(pin))]);
        w.check(&[]);
    });
}

/// Descriptors are restored during a lookup.
#[test]
fn a_look_up_while_they_come_back() {
    explore(2, || {
        let (w, object) = world();
        w.vm.free_and_overwrite_tail_descs(Pfn(512), TAIL);
        let look = move || assert_eq!(w.vm.swap_out_frame(TAIL), Err(SwapRefusal::Stays(MigrateRefusal::CannotSplit)));
        run(vec![Box::new(move || assert_eq!(object.restore_tail_descs(0), Ok(3))), Box::new(look)]);
        w.check(&[]);
    });
}

beside_pagers![a_look_up_by_number, the_last_pin_of_a_tail, a_look_up_while_they_come_back,];
