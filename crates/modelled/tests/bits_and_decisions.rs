//! F11, and copy-on-write decisions on a page that only one space still maps: in both another CPU changes
//! the entry between the read and the change. Also the resident count that two faults share.

use common::pager;
use common::{World, beside_pagers, explore, run};
use softfault_modelled::{Access, AddressSpace, FaultDone, FaultLocking};
use softfault_modelled::{Advice, MremapFlags, Prot};
use std::sync::{Arc, Mutex};

const RWX: Prot = Prot::READ.union(Prot::WRITE).union(Prot::EXEC);

/// A page that is no longer shared and not writable: a write may reuse it, unless a second fork
/// comes in between.
#[test]
fn f5_reuse_against_fork() {
    explore(2, || {
        let w = World::new(FaultLocking::Lockfree, 0, 2);
        w.touch(0);
        drop(w.space.fork().unwrap());
        let child: Arc<Mutex<Option<AddressSpace<'static, common::Modelled>>>> = Arc::default();
        let slot = child.clone();
        run(vec![
            Box::new(move || {
                w.space.handle_fault(0, Access::Write).unwrap();
            }),
            Box::new(move || *slot.lock().unwrap() = Some(w.space.fork().unwrap())),
        ]);
        let child = child.lock().unwrap().take().unwrap();
        w.check(&[&child]);
        drop(child);
        w.check(&[]);
    });
}

/// A store to a clean page while its entry changes; afterwards the page is dirty
/// wherever the store went through.
fn store_against(op: impl Fn(World) + Sync + Send + Copy + 'static) {
    access_against(|w| w.space.write(0, &[1]).is_ok(), op);
}

/// The same, for the fault of hardware without accessed and dirty bits.
fn fault_against(op: impl Fn(World) + Sync + Send + Copy + 'static) {
    access_against(|w| w.space.handle_fault(0, Access::Write).is_ok(), op);
}

fn access_against(
    access: impl Fn(World) -> bool + Sync + Send + Copy + 'static,
    op: impl Fn(World) + Sync + Send + Copy + 'static,
) {
    explore(2, move || {
        let w = World::new(FaultLocking::Lockfree, 0, 2);
        w.touch(0);
        w.space.madvise(0, 4096, Advice::Free).unwrap();
        let stored = Arc::new(Mutex::new(false));
        let result = stored.clone();
        let store = move || {
            let active = w.space.activate();
            *result.lock().unwrap() = access(w);
            drop(active);
        };
        run(vec![Box::new(store), Box::new(move || op(w))]);
        w.check(&[]);
        let (mut nr_dirty, mut nr_accessed) = (0, 0);
        w.space.smaps(&mut |entry| {
            nr_dirty += entry.dirty_pages;
            nr_accessed += entry.referenced_pages;
        });
        let expected = u64::from(*stored.lock().unwrap());
        assert!(nr_dirty >= expected && nr_accessed >= expected, "F11: a bit is lost");
    });
}

#[test]
fn f11_more_rights() {
    store_against(|w| w.space.mprotect(0, 4096, RWX).unwrap());
}

#[test]
fn f11_a_move() {
    store_against(|w| {
        w.space.mremap(0, 4096, 4096, MremapFlags::MAYMOVE | MremapFlags::FIXED, 8 * 4096).unwrap();
    });
}

#[test]
fn f11_fork() {
    store_against(|w| drop(w.space.fork().unwrap()));
}

#[test]
fn f11_a_fault_that_marks_against_more_rights() {
    fault_against(|w| w.space.mprotect(0, 4096, RWX).unwrap());
}

#[test]
fn f11_a_fault_that_marks_against_a_move() {
    fault_against(|w| {
        w.space.mremap(0, 4096, 4096, MremapFlags::MAYMOVE | MremapFlags::FIXED, 8 * 4096).unwrap();
    });
}

#[test]
fn f11_a_fault_that_marks_against_fork() {
    fault_against(|w| drop(w.space.fork().unwrap()));
}

/// A load finds the zero page old, and a store replaces it. The store waits for no section, so setting the
/// accessed bit must not bring the zero page back.
#[test]
fn f11_a_fault_that_marks_against_a_store() {
    explore(2, || {
        let w = World::new(FaultLocking::Lockfree, 0, 2);
        assert_eq!(w.space.handle_fault(0, Access::Read), Ok(FaultDone::ZeroFrame));
        w.space.madvise(0, 4096, Advice::Free).unwrap();
        let fault = |access| move || _ = w.space.handle_fault(0, access).unwrap();
        run(vec![Box::new(fault(Access::Read)), Box::new(fault(Access::Write))]);
        w.check(&[]);
        assert_eq!(w.space.rss_pages().anon, 1);
    });
}

/// Under `global` two faults on two pages add to one count, with plain stores.
#[test]
fn f1_global_counts_both() {
    explore(2, || {
        let w = World::new(FaultLocking::Global, 0, 3);
        w.touch(2);
        let fault = |page: u64| move || _ = w.space.handle_fault(page * 4096, Access::Write).unwrap();
        run(vec![Box::new(fault(0)), Box::new(fault(1))]);
        w.check(&[]);
        assert_eq!(w.space.rss_pages().anon + pager::nr_lost(), 3);
    });
}

beside_pagers![
    f5_reuse_against_fork,
    f11_more_rights,
    f11_a_move,
    f11_fork,
    f11_a_fault_that_marks_against_more_rights,
    f11_a_fault_that_marks_against_a_move,
    f11_a_fault_that_marks_against_fork,
    f11_a_fault_that_marks_against_a_store,
    f1_global_counts_both
];
