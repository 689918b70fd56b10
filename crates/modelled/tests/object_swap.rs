//! I22, I48, I52: a page of an object is swapped out and in while another CPU uses the page, discards it,
//! or ends the object.
//!
//! Ways to fail: the page has two frames, or two CPUs read it; a store is lost, or a discarded page comes
//! back; a frame, slot or object is freed while it is used, or never; a waiter is not woken.

use common::objects::byte;
use common::pager;
use common::{
    Modelled, RW, World, be, beside_pagers, explore, let_others_run_in_shootdowns_of, let_parks_block, let_reads_fail,
};
use common::{run, use_swap};
use softfault_modelled::{Access, Advice, MlockFlags, SharedObject, SwapRefusal, Term};
use softfault_modelled::{AddressSpace, Event, FaultError, FaultLocking, MapFlags, MigrateRefusal, ObjectPart, Pfn};

type Object = SharedObject<'static, Modelled>;
type Space = AddressSpace<'static, Modelled>;

const FIXED_SHARED: MapFlags = MapFlags::SHARED.union(MapFlags::FIXED);
/// Where the object's page is mapped.
const AT: u64 = 4 * 4096;

fn map(space: &Space, object: &Object) {
    space.mmap_object(AT, 4096, RW, FIXED_SHARED, ObjectPart::new(object)).unwrap();
}

/// An object of one page, mapped, full of 7, and touched: its frame.
fn page(w: World) -> (Object, Pfn) {
    w.touch(0);
    let object = w.vm.new_shared_object(4096).unwrap();
    map(w.space, &object);
    object.write(0, &[7; 4096]).unwrap();
    w.space.handle_fault(AT, Access::Read).unwrap();
    let pfn = w.space.translate_at_rest(AT).unwrap().pfn;
    (object, pfn)
}

/// The same, of an object that lasts.
fn world(writes_fail: bool) -> (World, &'static Object, Pfn) {
    use_swap(writes_fail);
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    let (object, pfn) = page(w);
    (w, Box::leak(Box::new(object)), pfn)
}

/// The first byte and the last.
fn content(object: &Object) -> [u8; 2] {
    [0, 4095].map(|at| byte(object, at))
}

fn byte_at(space: &Space) -> u8 {
    let mut byte = [0];
    space.read(AT, &mut byte).unwrap();
    byte[0]
}

/// Pages are read as often as they went out, but those that are out.
fn nr_reads_too_many(w: World, object: &Object) -> u64 {
    let nr_out = object.nr_swapped_pages() + w.space.rss_pages().swap;
    w.vm.event(Event::Pswpin) + nr_out - w.vm.event(Event::Pswpout)
}

/// The page is being swapped out while another CPU does something.
fn going_out(
    writes_fail: bool,
    preemptions: usize,
    other: impl Fn(World, &'static Object) + Sync + Send + Copy + 'static,
    after: [u8; 2],
) {
    let_parks_block();
    explore(preemptions, move || {
        let (w, object, pfn) = world(writes_fail);
        be(0);
        run(vec![Box::new(move || _ = w.vm.swap_out_frame(pfn)), Box::new(move || other(w, object))]);
        w.check(&[]);
        assert_eq!(content(object), after);
        w.check(&[]);
    });
}

/// It was swapped out; then two CPUs do something.
fn swapped_out(
    preemptions: usize,
    first: impl Fn(World, &'static Object) + Sync + Send + Copy + 'static,
    second: impl Fn(World, &'static Object) + Sync + Send + Copy + 'static,
    after: impl Fn(World, &'static Object) + Sync + Send + Copy + 'static,
) {
    let_parks_block();
    explore(preemptions, move || {
        let (w, object, pfn) = world(false);
        be(0);
        assert_eq!(w.vm.swap_out_frame(pfn), Ok(0));
        run(vec![Box::new(move || first(w, object)), Box::new(move || second(w, object))]);
        w.check(&[]);
        after(w, object);
        w.check(&[]);
    });
}

#[test]
fn out_against_a_fault() {
    for writes_fail in [false, true] {
        going_out(writes_fail, 1, |w, _| assert_eq!(byte_at(w.space), 7), [7, 7]);
    }
}

#[test]
fn out_against_a_store() {
    going_out(false, 1, |w, _| w.space.write(AT, &[9]).unwrap(), [9, 7]);
}

#[test]
fn out_against_the_handle() {
    going_out(false, 1, |_, object| assert_eq!(content(object), [7, 7]), [7, 7]);
    going_out(false, 1, |_, object| object.write(0, &[9]).unwrap(), [9, 7]);
}

/// The pin is held to the end: the page is its frame then.
#[test]
fn out_against_a_pin() {
    explore(1, || {
        let (w, object, pfn) = world(false);
        be(0);
        let held = std::sync::Arc::new(std::sync::Mutex::new(None));
        let pinned = held.clone();
        let pin = move || *pinned.lock().unwrap() = Some(w.space.pin_page_mut(AT, Term::Short).unwrap());
        run(vec![Box::new(move || _ = w.vm.swap_out_frame(pfn)), Box::new(pin)]);
        w.check(&[]);
        let held = held.lock().unwrap().take().unwrap();
        held.write(0, &[9]);
        assert_eq!(content(object), [9, 7], "it went out under a pin");
        assert_eq!(w.vm.swap_out_frame(held.pfn()), Err(SwapRefusal::Stays(MigrateRefusal::Pinned)));
    });
}

/// In either order: a page that is locked is there at the end.
#[test]
fn out_against_mlock() {
    let_others_run_in_shootdowns_of(1);
    let_parks_block();
    explore(1, || {
        let (w, object, pfn) = world(false);
        be(0);
        let lock = move || {
            let locked = w.space.mlock(AT, 4096, MlockFlags::empty());
            assert!(locked.is_ok() || !pager::has_failed(object, 0), "Poisoned");
            locked.unwrap();
        };
        run(vec![Box::new(move || _ = w.vm.swap_out_frame(pfn)), Box::new(lock)]);
        w.check(&[]);
        assert_eq!(object.nr_swapped_pages(), 0, "it went after it was locked");
        assert_eq!(content(object), [7, 7]);
    });
}

#[test]
fn out_against_a_move() {
    going_out(false, 1, |w, _| _ = w.space.translate_at_rest(AT).map(|there| w.vm.migrate_frame(there.pfn)), [7, 7]);
}

#[test]
fn out_against_out() {
    going_out(false, 1, |w, _| _ = w.space.translate_at_rest(AT).map(|there| w.vm.swap_out_frame(there.pfn)), [7, 7]);
}

/// A page that is taken out while it is written does not come back, and frame and slot are freed.
#[test]
fn out_against_a_discard() {
    for writes_fail in [false, true] {
        going_out(writes_fail, 1, |_, object| object.discard(0..1), [0, 0]);
    }
}

#[test]
fn out_against_a_smaller_size() {
    let cut = |_: World, object: &Object| {
        object.set_size_bytes(10);
        object.set_size_bytes(4096);
    };
    going_out(false, 1, cut, [7, 0]);
}

#[test]
fn out_against_an_unmapping() {
    going_out(false, 1, |w, _| w.space.munmap(AT, 4096).unwrap(), [7, 7]);
}

/// One reads, the other waits for that, or finds it done.
#[test]
fn two_faults_bring_one_page() {
    let_parks_block();
    explore(2, || {
        let (w, object, pfn) = world(false);
        be(0);
        let other: &'static Space = Box::leak(Box::new(w.vm.new_space().unwrap()));
        map(other, object);
        // Tables are there.
        other.handle_fault(AT, Access::Read).unwrap();
        assert_eq!(w.vm.swap_out_frame(pfn), Ok(0));
        run(vec![Box::new(move || assert_eq!(byte_at(w.space), 7)), Box::new(move || assert_eq!(byte_at(other), 7))]);
        w.check(&[other]);
        assert_eq!(nr_reads_too_many(w, object), 0, "once for everybody");
        let frames = [w.space, other].map(|space| {
            space.handle_fault(AT, Access::Read).unwrap();
            space.translate_at_rest(AT).unwrap().pfn
        });
        assert_eq!(frames[0], frames[1]);
    });
}

#[test]
fn in_against_a_write_by_the_handle() {
    swapped_out(
        1,
        |w, _| assert!([7, 9].contains(&byte_at(w.space))),
        |_, object| object.write(0, &[9]).unwrap(),
        |w, object| {
            assert_eq!((content(object), nr_reads_too_many(w, object)), ([9, 7], 0));
        },
    );
}

/// A read that fails is everybody's own, and the page is there for the next one.
#[test]
fn a_read_that_fails_against_a_fault() {
    let fault = |w: World, _: &Object| {
        let_reads_fail(true);
        assert_eq!(w.space.handle_fault(AT, Access::Read), Err(FaultError::NotRead));
    };
    swapped_out(1, fault, fault, |_, object| {
        assert_eq!(object.read(0, &mut [0]), 0);
        let_reads_fail(false);
        assert_eq!(content(object), [7, 7]);
    });
}

/// A page that is taken out while it is read does not come back.
#[test]
fn in_against_a_discard() {
    swapped_out(
        1,
        |w, _| assert!([7, 0].contains(&byte_at(w.space))),
        |_, object| {
            object.discard(0..1);
            assert_eq!(content(object), [0, 0]);
        },
        |_, object| assert_eq!(content(object), [0, 0]),
    );
}

#[test]
fn in_against_a_smaller_size() {
    swapped_out(
        1,
        |w, _| assert_eq!(byte_at(w.space), 7),
        |_, object| {
            object.set_size_bytes(10);
            object.set_size_bytes(4096);
        },
        |_, object| assert_eq!(content(object), [7, 0]),
    );
}

/// The page goes out again while another CPU wants it.
#[test]
fn in_against_out() {
    swapped_out(
        1,
        |w, _| assert_eq!(byte_at(w.space), 7),
        |w, object| {
            assert_eq!(content(object), [7, 7]);
            if let Some(there) = w.space.translate_at_rest(AT) {
                _ = w.vm.swap_out_frame(there.pfn);
            }
        },
        |_, object| assert_eq!(content(object), [7, 7]),
    );
}

/// A fault wants a private page that was swapped out, whose slot becomes that of the object's page: the machine reads
/// no slot that it writes.
#[test]
fn out_against_a_late_reader() {
    explore(1, || {
        let (w, object, pfn) = world(false);
        be(0);
        w.space.write(0, &[3]).unwrap();
        let private = w.space.translate_at_rest(0).unwrap().pfn;
        assert_eq!(w.vm.swap_out_frame(private), Ok(1));
        let reader = move || {
            let mut byte = [1];
            w.space.read(0, &mut byte).unwrap();
            assert!([3, 0].contains(&byte[0]));
        };
        let other = move || {
            w.space.madvise(0, 4096, Advice::DontNeed).unwrap();
            assert_eq!(w.vm.swap_out_frame(pfn), Ok(0));
        };
        run(vec![Box::new(reader), Box::new(other)]);
        w.check(&[]);
        assert_eq!(content(object), [7, 7]);
    });
}

/// The last mapping is removed after the handle was dropped, and another object gets the header's frame at
/// once. The CPU that swaps the page still has a reference to its object.
fn ends_against(is_out: bool, other: impl Fn(World, Pfn) + Sync + Send + Copy + 'static) {
    explore(1, move || {
        use_swap(false);
        let w = World::new(FaultLocking::Lockfree, 0, 1);
        let (object, pfn) = page(w);
        be(0);
        drop(object);
        if is_out {
            assert_eq!(w.vm.swap_out_frame(pfn), Ok(0));
        }
        let end = move || {
            w.space.munmap(AT, 4096).unwrap();
            let object: &'static _ = Box::leak(Box::new(w.vm.new_shared_object(4096).unwrap()));
            assert_eq!(object.nr_mapped_pages(), 0);
        };
        run(vec![Box::new(move || other(w, pfn)), Box::new(end)]);
        w.check(&[]);
    });
}

#[test]
fn in_against_the_end_of_the_object() {
    ends_against(true, |w, _| match w.space.handle_fault(AT, Access::Read) {
        Ok(_) | Err(FaultError::NotMapped) => {}
        Err(error) => panic!("{error}"),
    });
}

#[test]
fn out_against_the_end_of_the_object() {
    ends_against(false, |w, pfn| _ = w.vm.swap_out_frame(pfn));
}

beside_pagers![
    out_against_a_fault,
    out_against_a_store,
    out_against_the_handle,
    out_against_a_pin,
    out_against_mlock,
    out_against_a_move,
    out_against_out,
    out_against_a_discard,
    out_against_a_smaller_size,
    out_against_an_unmapping,
    two_faults_bring_one_page,
    in_against_a_write_by_the_handle,
    a_read_that_fails_against_a_fault,
    in_against_a_discard,
    in_against_a_smaller_size,
    in_against_out,
    in_against_the_end_of_the_object,
    out_against_the_end_of_the_object,
];
