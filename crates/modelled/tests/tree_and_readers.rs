//! F6: a fault looks a VMA up while the tree changes around it. The version that it finds has
//! to be of one version: an end of one and rights of another are a mapping that
//! never was.

use common::{FIXED_PRIVATE, READ, RW, World, explore, run};
use softfault_modelled::{Access, FaultError, FaultLocking, Rights};
use softfault_modelled::{Advice, Prot};

/// Page 6 may be read and page 7 written, all the time; what comes and goes lies
/// below, in the same node of the tree, and moves their records in it.
fn lookup_against(op: impl Fn(World) + Sync + Send + Copy + 'static) {
    lookup_in(2, || World::new(FaultLocking::Lockfree, 7, 1), op);
}

fn lookup_in(
    preemptions: usize,
    world: impl Fn() -> World + Sync + Send + Copy + 'static,
    op: impl Fn(World) + Sync + Send + Copy + 'static,
) {
    explore(preemptions, move || {
        let w = world();
        w.space.mmap(6 * 4096, 4096, READ, FIXED_PRIVATE).unwrap();
        w.touch(7);
        w.space.madvise(7 * 4096, 4096, Advice::DontNeed).unwrap();
        let fault = move || {
            let active = w.space.activate();
            let written = w.space.handle_fault(7 * 4096, Access::Write);
            assert!(written.is_ok(), "F6: page 7 may be written: {written:?}");
            let refused = w.space.handle_fault(6 * 4096, Access::Write);
            assert_eq!(refused, Err(FaultError::NoRights), "F6: page 6 may not be written");
            drop(active);
        };
        run(vec![Box::new(fault), Box::new(move || op(w))]);
        w.check(&[]);
        assert_eq!(w.space.translate_at_rest(7 * 4096).map(|t| t.rights), Some(Rights::READ | Rights::WRITE));
    });
}

/// The second mmap(2) may not build its node where the fault is still reading the
/// one that the first replaced.
#[test]
fn f6_two_mappings_appear() {
    lookup_against(|w| {
        w.space.mmap(2 * 4096, 4096, Prot::NONE, FIXED_PRIVATE).unwrap();
        w.space.mmap(0, 4096, READ, FIXED_PRIVATE).unwrap();
    });
}

#[test]
fn f6_a_mapping_comes_and_goes() {
    lookup_against(|w| {
        w.space.mmap(2 * 4096, 4096, RW, FIXED_PRIVATE).unwrap();
        w.space.munmap(2 * 4096, 4096).unwrap();
    });
}

/// The second mmap(2) has as many nodes waiting as it may leave, and frees them. The
/// third one builds its node in one of these: no fault may still read it. One
/// preemption, of the fault between root and node, shows it.
#[test]
fn f6_deferred_nodes_are_freed_after_a_grace_period() {
    lookup_in(
        1,
        || World::deferring_at_most(2, 7, 1),
        |w| {
            for page in [4, 2, 0] {
                w.space.mmap(page * 4096, 4096, Prot::NONE, FIXED_PRIVATE).unwrap();
            }
        },
    );
}
