//! F5, F9: copy-on-write decisions against fork and against each other.

use common::pager::{self, Pager};
use common::{World, explore, let_others_run_in_shootdowns_of, models, run};
use softfault_modelled::{Access, AddressSpace, FaultError, FaultLocking};
use std::sync::{Arc, Mutex};

type Child = Arc<Mutex<Option<AddressSpace<'static, common::Modelled>>>>;

/// Fork by one CPU, an access by another; both spaces whole afterwards.
fn fork_against(access: impl Fn(World) + Sync + Send + Copy + 'static) {
    explore(2, move || {
        let w = World::new(FaultLocking::Lockfree, 0, 2);
        w.touch(0);
        let child: Child = Arc::default();
        let slot = child.clone();
        run(vec![Box::new(move || access(w)), Box::new(move || *slot.lock().unwrap() = Some(w.space.fork().unwrap()))]);
        let child = child.lock().unwrap().take().unwrap();
        w.check(&[&child]);
        drop(child);
        w.check(&[]);
    });
}

#[test]
fn f5_fork_and_first_touch() {
    fork_against(|w| {
        w.space.handle_fault(4096, Access::Write).unwrap();
    });
}

#[test]
fn f5_fork_and_write_fault() {
    fork_against(|w| {
        w.space.handle_fault(0, Access::Write).unwrap();
    });
}

/// Parent and child break one shared page at once: each ends with its own.
#[test]
fn cow_break_against_cow_break() {
    explore(2, || {
        let w = World::new(FaultLocking::Lockfree, 0, 1);
        w.touch(0);
        let child: &'static _ = Box::leak(Box::new(w.space.fork().unwrap()));
        run(vec![
            Box::new(move || {
                w.space.handle_fault(0, Access::Write).unwrap();
            }),
            Box::new(move || {
                child.handle_fault(0, Access::Write).unwrap();
            }),
        ]);
        w.check(&[child]);
        let frames = [w.space, child].map(|s| s.translate_at_rest(0).unwrap().pfn);
        assert_ne!(frames[0], frames[1], "I13: two spaces write one frame");
    });
}

/// The last sharer leaves while the other one decides whether it may keep.
#[test]
fn cow_break_against_munmap_of_the_other() {
    explore(2, || {
        let w = World::new(FaultLocking::Lockfree, 0, 1);
        w.touch(0);
        let child: &'static _ = Box::leak(Box::new(w.space.fork().unwrap()));
        run(vec![
            Box::new(move || {
                w.space.handle_fault(0, Access::Write).unwrap();
            }),
            Box::new(move || child.munmap(0, 4096).unwrap()),
        ]);
        w.check(&[child]);
    });
}

/// F9: the zero frame gives way to a private one.
#[test]
fn f9_two_writes_to_the_zero_frame() {
    explore(2, || {
        let w = World::new(FaultLocking::Lockfree, 0, 1);
        w.space.handle_fault(0, Access::Read).unwrap();
        let write = move || {
            w.space.handle_fault(0, Access::Write).unwrap();
        };
        run(vec![Box::new(write), Box::new(write)]);
        w.check(&[]);
        assert_eq!(w.space.rss_pages().anon, 1);
    });
}

/// F8, I9: the copy owns an entry of a table that the removal takes.
#[test]
fn f8_cow_break_against_munmap_of_everything() {
    let_others_run_in_shootdowns_of(1);
    explore(2, || {
        let w = World::new(FaultLocking::Lockfree, 0, 2);
        w.touch(0);
        let child: &'static _ = Box::leak(Box::new(w.space.fork().unwrap()));
        let write = move || {
            let active = w.space.activate();
            match w.space.handle_fault(0, Access::Write) {
                Ok(_) | Err(FaultError::NotMapped) => {}
                Err(other) => panic!("{other}"),
            }
            drop(active);
        };
        run(vec![Box::new(write), Box::new(move || w.space.munmap(0, 2 * 4096).unwrap())]);
        w.check(&[child]);
        assert_eq!(w.space.rss_pages().anon, 0);
    });
}

#[test]
fn beside_a_pager() {
    pager::beside_a_pager(
        Pager::SwapsOut,
        models![
            f5_fork_and_first_touch,
            f5_fork_and_write_fault,
            cow_break_against_cow_break,
            cow_break_against_munmap_of_the_other,
            f9_two_writes_to_the_zero_frame,
            f8_cow_break_against_munmap_of_everything,
        ],
    );
}

#[test]
fn where_memory_fails() {
    pager::beside_a_pager(
        Pager::Fails,
        models![
            f5_fork_and_first_touch,
            f5_fork_and_write_fault,
            cow_break_against_munmap_of_the_other,
            f9_two_writes_to_the_zero_frame,
            f8_cow_break_against_munmap_of_everything,
        ],
    );
}
