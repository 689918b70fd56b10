//! A CPU that waits for an object's `resize` holds no frames: the holder of that lock may be waiting, for the
//! node of a cut, until nobody holds any (I28).

use crate::addr::Order;
use crate::lock::lock_word;
use crate::machine::{CpuId, LockKind};
use crate::policy::folio::FolioOrders;
use crate::source::handle::SharedObject;
use crate::space::Vm;
use crate::testing::{self, Plain};
use crate::tunables::Tunables;
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

type Object = SharedObject<'static, Plain>;

/// A machine with an object that is one folio of 2 MiB.
fn with_folio() -> (&'static Vm<Plain>, Object) {
    let vm: &'static Vm<Plain> = Box::leak(Box::new(testing::vm(4096, Tunables::default())));
    let orders = FolioOrders::new(Order::BASE, Order::PMD).unwrap();
    let object = vm.new_shared_object_of(512 * 4096, orders).unwrap();
    object.write(0, &[7; 8]).unwrap();
    assert_eq!(object.nr_resident_pages(), 512);
    (vm, object)
}

/// Makes the call while somebody has `resize` for some turns of its wait.
fn waits_with_nothing_held(what: &str, call: impl FnOnce(&'static Vm<Plain>, &Object)) {
    let (vm, object) = with_folio();
    object.free_tail_descs(0).unwrap();
    let lock =
        Rc::new(RefCell::new(Some(lock_word(LockKind::ObjectResize, &vm.object(object.id).resize, &vm.machine))));
    let nr_turns = Rc::new(Cell::new(0));
    let (locked, turns) = (lock.clone(), nr_turns.clone());
    testing::on_relax(move || {
        if locked.borrow().is_some() {
            turns.set(turns.get() + 1);
            assert_eq!(vm.cpu(CpuId(0)).held.get() & 0xffff, 0, "frames are held");
        }
        if turns.get() == 3 {
            locked.borrow_mut().take();
        }
    });
    call(vm, &object);
    assert!(lock.borrow().is_none() && nr_turns.get() == 3, "{what} has not waited");
}

#[test]
fn nobody_waits_for_resize_with_frames_held() {
    waits_with_nothing_held("restore", |_, object| assert_eq!(object.restore_tail_descs(0), Ok(3)));
    waits_with_nothing_held("a move", |vm, object| {
        let folio = vm.with_large_folio(object.id, 0, |folio| folio).unwrap();
        assert!(vm.migrate_frame(folio.head()).is_ok());
    });
    waits_with_nothing_held("a cut", |_, object| object.discard(1..512));
    waits_with_nothing_held("a smaller size", |_, object| object.set_size_bytes(4096));
    waits_with_nothing_held("free", |_, object| assert!(object.free_tail_descs(0).is_err()));
}
