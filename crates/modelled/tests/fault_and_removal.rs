//! F3, F4, F8: faults against operations that take memory or rights away.

use common::{FIXED_PRIVATE, READ, RW, World, be, beside_pagers, explore, run};
use softfault_modelled::{Access, FaultError, FaultLocking};
use softfault_modelled::{Advice, MremapFlags};

/// Succeeds, or is refused for what the other CPU does.
fn fault(w: World, access: Access) {
    match w.space.handle_fault(0, access) {
        Ok(_) | Err(FaultError::NotMapped | FaultError::NoRights | FaultError::Guard) => {}
        Err(other) => panic!("{other}"),
    }
}

fn fault_against(access: Access, op: impl Fn(World) + Sync + Send + Copy + 'static) {
    explore(2, move || {
        let w = World::new(FaultLocking::Lockfree, 0, 4);
        w.touch(1);
        let fault = move || {
            let active = w.space.activate();
            fault(w, access);
            drop(active);
        };
        run(vec![Box::new(fault), Box::new(move || op(w))]);
        w.check(&[]);
        hint_agrees_with_tree(w, access);
    });
}

/// The removal is complete. CPU 1 faulted before or during it and still has its
/// hint; CPU 2 ran the removal and never faulted. Both get the same answer.
fn hint_agrees_with_tree(w: World, access: Access) {
    be(1);
    let by_hint = w.space.handle_fault(0, access).map(|_| ());
    w.check(&[]);
    be(2);
    let by_tree = w.space.handle_fault(0, access).map(|_| ());
    be(0);
    assert_eq!(by_hint, by_tree, "the hint of CPU 1 outlives the removal");
}

/// The leaf table stays: another VMA's page is in it.
#[test]
fn f3_munmap_of_a_page() {
    fault_against(Access::Write, |w| w.space.munmap(0, 4096).unwrap());
}

/// F8: the table is freed, too, and its frame may be used again.
#[test]
fn f8_munmap_of_everything() {
    fault_against(Access::Write, |w| w.space.munmap(0, 4 * 4096).unwrap());
}

/// F4: the VMA that the fault found is replaced by another at the same place.
#[test]
fn f4_the_mapping_is_replaced() {
    fault_against(Access::Write, |w| {
        w.space.munmap(0, 4096).unwrap();
        w.space.mmap(0, 4096, READ, FIXED_PRIVATE).unwrap();
    });
}

#[test]
fn f3_mprotect_to_fewer_rights() {
    fault_against(Access::Write, |w| w.space.mprotect(0, 4096, READ).unwrap());
}

#[test]
fn f3_mprotect_and_back() {
    fault_against(Access::Write, |w| {
        w.space.mprotect(0, 4096, READ).unwrap();
        w.space.mprotect(0, 4096, RW).unwrap();
    });
}

#[test]
fn f3_dontneed() {
    fault_against(Access::Write, |w| w.space.madvise(0, 4096, Advice::DontNeed).unwrap());
}

#[test]
fn f3_dontneed_of_a_whole_table() {
    fault_against(Access::Write, |w| w.space.madvise(0, 4 * 4096, Advice::DontNeed).unwrap());
}

#[test]
fn f3_mremap() {
    fault_against(Access::Write, |w| {
        // 1 + 2: may move, to a fixed place.
        w.space.mremap(0, 4096, 4096, MremapFlags::MAYMOVE | MremapFlags::FIXED, 8 * 4096).unwrap();
    });
}

#[test]
fn f3_guard() {
    fault_against(Access::Write, |w| w.space.madvise(0, 4096, Advice::GuardInstall).unwrap());
}

/// A read fault leaves the zero frame, which carries no count.
#[test]
fn f3_munmap_of_a_page_being_read() {
    fault_against(Access::Read, |w| w.space.munmap(0, 4096).unwrap());
}

/// A CPU that does not run the space faults on it: F7 against F3.
#[test]
fn f7_remote_fault_and_munmap() {
    explore(2, || {
        let w = World::new(FaultLocking::Lockfree, 0, 4);
        w.touch(1);
        let fault = move || fault(w, Access::Write);
        run(vec![Box::new(fault), Box::new(move || w.space.munmap(0, 4096).unwrap())]);
        w.check(&[]);
    });
}

beside_pagers![
    f3_munmap_of_a_page,
    f8_munmap_of_everything,
    f4_the_mapping_is_replaced,
    f3_mprotect_to_fewer_rights,
    f3_mprotect_and_back,
    f3_dontneed,
    f3_dontneed_of_a_whole_table,
    f3_mremap,
    f3_guard,
    f3_munmap_of_a_page_being_read,
    f7_remote_fault_and_munmap
];
