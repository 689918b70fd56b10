//! A8: which failures of reads refuse a fault: those of a read of its page that began with the fault or later.
//!
//! Ways to fail: the failure of another page is taken for one of this page, which had failed long before; a read fails late
//! whose page was taken out before; a fault is not told (`files.rs`: `a_late_failure_against_another_fault`).

use common::files::{self, Reads};
use common::{Modelled, RW, World, be, beside_pagers, explore, let_parks_block, run};
use softfault_modelled::policy::folio::FolioOrders;
use softfault_modelled::{
    Access, Advice, FaultDone, FaultError, FaultLocking, FileId, FillError, MapFlags, ObjectPart, SharedObject,
};
use std::cell::Cell;

const PAGE: u64 = 4096;
/// Where the object is mapped.
const AT: u64 = 4;

/// A file of two pages, mapped; table and node are there, and no page.
fn world() -> (World, &'static SharedObject<'static, Modelled>) {
    let w = World::new(FaultLocking::Lockfree, 0, 1);
    w.touch(0);
    let object = Box::leak(Box::new(w.vm.new_file_object(2 * PAGE, FolioOrders::BASE, FileId(0)).unwrap()));
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    w.space.mmap_object(AT * PAGE, 2 * PAGE, RW, flags, ObjectPart::new(object)).unwrap();
    fault(w, 0).unwrap();
    object.discard(0..2);
    files::reset();
    be(0);
    (w, object)
}

fn fault(w: World, page: u64) -> Result<FaultDone, FaultError> {
    w.space.handle_fault((AT + page) * PAGE, Access::Read)
}

/// A fault on page 1 whose read ends well; the page is taken out before the fault finds it, and is read again. No read of it fails
/// that began with the fault, so the fault is not refused, whatever the other CPU does besides.
fn is_not_refused(w: World, others: impl Fn() + Send + 'static) {
    std::thread_local! {
        static IS_DONE: Cell<bool> = const { Cell::new(false) };
    }
    IS_DONE.set(false);
    be(0);
    let read = move || {
        let done = fault(w, 1);
        IS_DONE.set(true);
        assert!(done.is_ok(), "{done:?}");
    };
    let others = move || {
        others();
        while !IS_DONE.get() {
            files::end_kept(w.vm, Ok(()));
            loom::thread::yield_now();
        }
    };
    run(vec![Box::new(read), Box::new(others)]);
    w.check(&[]);
}

/// A page that could not be read long ago is read well, and then another page fails.
#[test]
fn a_failure_of_another_page_is_not_told() {
    let_parks_block();
    explore(2, || {
        let (w, object) = world();
        files::set_reads(Reads::Fail);
        assert_eq!(fault(w, 1), Err(FaultError::NotRead));
        files::set_reads(Reads::FailOrStayFrom(1));
        is_not_refused(w, move || {
            files::wait_until_kept();
            assert!(files::end_kept(w.vm, Ok(())));
            object.discard(1..2);
            assert_eq!(fault(w, 0), Err(FaultError::NotRead));
        });
    });
}

/// A read of a page fails after the page was taken out, while it is read again.
#[test]
fn a_failure_of_what_was_taken_out_is_not_told() {
    let_parks_block();
    explore(1, || {
        let (w, object) = world();
        files::set_reads(Reads::StayFrom(1));
        w.space.madvise((AT + 1) * PAGE, PAGE, Advice::WillNeed).unwrap();
        object.discard(1..2);
        is_not_refused(w, move || {
            while files::frames_kept().len() < 2 {
                loom::thread::yield_now();
            }
            assert!(files::end_kept(w.vm, Err(FillError)) && files::end_kept(w.vm, Ok(())));
            object.discard(1..2);
        });
    });
}

beside_pagers![a_failure_of_another_page_is_not_told, a_failure_of_what_was_taken_out_is_not_told];
