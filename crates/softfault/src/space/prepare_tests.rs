//! I28: what a program's own tree has is used before a call is refused.

use crate::account::Event;
use crate::frame::Fill;
use crate::linux::Prot;
use crate::testing::{FIXED_PRIVATE, RW, be, vm_of};
use crate::tunables::Tunables;

const AT: u64 = 1 << 30;

/// Replaced nodes wait for the next grace period, since another CPU may read them.
#[test]
fn no_change_is_refused_while_nodes_are_deferred() {
    let vm = vm_of(2, 1024, Tunables::default()).unwrap();
    let space = vm.new_space().unwrap();
    be(1);
    let active = space.activate();
    be(0);
    (0..40).for_each(|i| {
        _ = space.mmap(AT + 2 * i * 4096, 4096, if i % 2 == 0 { Prot::READ } else { RW }, FIXED_PRIVATE).unwrap()
    });
    let nr_deferred = space.tree(&space.sole_writer()).nr_deferred();
    assert!(nr_deferred > 20, "{nr_deferred} nodes are deferred");
    while vm.obtain(Fill::Raw).is_ok() {}
    let nr_graces = vm.event(Event::Grace);
    let nr_more = (40..).take_while(|i| space.mmap(AT + 2 * i * 4096, 4096, RW, FIXED_PRIVATE).is_ok()).count();
    assert!(nr_more > 5, "refused after {nr_more} mappings");
    assert_eq!(space.tree(&space.sole_writer()).nr_deferred(), 0);
    assert!(vm.event(Event::Grace) > nr_graces, "nodes came back although another CPU may read them");
    be(1);
    drop(active);
    be(0);
}
