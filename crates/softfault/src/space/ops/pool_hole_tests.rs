//! A hole in an object of a pool: what waits for it, seen from within. The races are in `crates/shuffled`.

use crate::addr::{ObjectPages, Order};
use crate::linux::MapFlags;
use crate::source::handle::SharedObject;
use crate::source::slot::ObjectPage;
use crate::space::ops::ObjectPart;
use crate::space::{AddressSpace, Vm};
use crate::sync::Ordering;
use crate::testing::{Plain, RW, on_enter, on_relax, vm};
use crate::tunables::Tunables;
use core::ops::ControlFlow;
use std::boxed::Box;
use std::cell::Cell;
use std::rc::Rc;
use std::vec;

const AT: u64 = 1 << 30;
const HUGE: u64 = 2 << 20;
const NR: u64 = 512;

type Object = SharedObject<'static, Plain>;

/// A pool of four pages, an object of two, of which it has the second one, and a private mapping with a copy of the first one.
fn world() -> (&'static Vm<Plain>, &'static AddressSpace<'static, Plain>, &'static Object) {
    let vm: &Vm<Plain> = Box::leak(Box::new(vm(16 * NR, Tunables::default())));
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 4), Ok(4));
    let object: &Object = Box::leak(Box::new(vm.new_hugetlb_object(2 * HUGE, Order::PMD).unwrap()));
    let space: &AddressSpace<'_, Plain> = Box::leak(Box::new(vm.new_space().unwrap()));
    space.mmap_object(AT, 2 * HUGE, RW, MapFlags::PRIVATE | MapFlags::FIXED, ObjectPart::new(object)).unwrap();
    object.write(HUGE, b"x").unwrap();
    space.write(AT, b"y").unwrap();
    (vm, space, object)
}

/// Else one hole might begin after the other, and the fork sleeps with its frames and the parent's lock.
#[test]
fn a_fork_is_counted_before_it_sleeps_for_a_hole() {
    let (vm, space, object) = world();
    let data = vm.object(object.id);
    data.is_dropping.store(1, Ordering::Relaxed);
    let nr_copying = Rc::new(Cell::new(None));
    let seen = Rc::clone(&nr_copying);
    on_relax(move || {
        if data.is_dropping.load(Ordering::Relaxed) == 1 {
            seen.set(Some(data.nr_copying.load(Ordering::Relaxed)));
            data.is_dropping.store(0, Ordering::Relaxed);
        }
    });
    let child = space.fork().unwrap();
    on_relax(|| ());
    assert_eq!((nr_copying.get(), data.nr_copying.load(Ordering::Relaxed)), (Some(1), 0));
    vm.check_in_test(&[space, &child], &mut vec![0; 16 * NR as usize]).unwrap();
}

/// Faults wait for what is barred, and copies where the object has no page may be as many as the pool has pages.
#[test]
fn copies_of_what_is_missing_go_before_anything_is_barred() {
    let (vm, space, object) = world();
    let nr_seen = Rc::new(Cell::new(0));
    let seen = Rc::clone(&nr_seen);
    let id = object.id;
    on_enter(move || {
        let mut leaves = false;
        let second = ObjectPages { start: NR, end: 2 * NR };
        let _ = vm.for_each_page(id, second, &mut |_, slot| {
            leaves |= matches!(slot.page(), ObjectPage::Leaving(_));
            ControlFlow::Continue(())
        });
        if leaves {
            seen.set(seen.get() + 1);
            assert_eq!(space.rss_pages().anon, 0, "a fault on the second page waits for the first");
        }
    });
    object.discard(0..2 * NR);
    on_enter(|| ());
    assert!(nr_seen.get() > 0, "no section while the page leaves");
    vm.check_in_test(&[space], &mut vec![0; 16 * NR as usize]).unwrap();
}
