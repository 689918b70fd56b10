//! Whatever allocation, read or write of a file fails in an operation: nothing is lost or left over, and the operation
//! succeeds when it is tried again.
#![deny(unsafe_code)]

mod common;

use common::files::{TestFile, content as byte_of, file};
use common::objects::{EXTRA, Object, map, orders, whole};
use common::storage::{Writes, storage};
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::{
    Access, Advice, CpuId, Event, MapFlags, MlockFlags, MremapFlags, MsyncFlags, Term, WriteBackError, WriteError,
};
use std::thread;

const NR_PAGES: u64 = 16;
/// Where operations map the file once more, and where they move its private mapping.
const THIRD: u64 = 0x38_0000_0000;
const MOVED: u64 = 0x3c_0000_0000;
/// The byte in private copies that are there before, and the byte that operations store.
const COPY: u8 = 0xc1;
const STORED: u8 = 0xee;
/// Pages with copies.
const COPIED: [u64; 2] = [1, 9];
/// More reads than any operation makes.
const MOST_READS: u64 = 10;

/// A space that maps the file shared at `BASE` and privately at `EXTRA`.
struct Stage<'a, 'vm> {
    w: &'a World<'vm>,
    space: Space<'vm>,
    object: &'a Object<'vm>,
}

/// Whether it did all that it should.
type Operation = (&'static str, fn(&Stage<'_, '_>) -> bool);

const OPERATIONS: &[Operation] = &[
    ("a read", |s| s.space.handle_fault(BASE + 5 * PAGE, Access::Read).is_ok()),
    ("a store", |s| s.space.write(BASE + 6 * PAGE, &[STORED]).is_ok()),
    ("a private read", |s| s.space.handle_fault(EXTRA + 5 * PAGE, Access::Read).is_ok()),
    ("a private store", |s| s.space.write(EXTRA + 6 * PAGE, &[STORED]).is_ok()),
    ("a private store to what is mapped", |s| {
        s.space.handle_fault(EXTRA + 2 * PAGE, Access::Read).is_ok()
            && s.space.write(EXTRA + 2 * PAGE, &[STORED]).is_ok()
    }),
    ("a read by the handle", |s| {
        let mut bytes = [0; NR_PAGES as usize * PAGE as usize];
        s.object.read(0, &mut bytes) == bytes.len()
    }),
    ("a write by the handle", |s| {
        let stored = |page: u64| s.object.write(page * PAGE, &[STORED]).is_ok();
        stored(3) && stored(12)
    }),
    ("zeroes", |s| s.object.zero(4 * PAGE + 8..6 * PAGE + 16).is_ok()),
    ("a pin", |s| s.space.pin_page_mut(BASE + 7 * PAGE, Term::Short).map(|pin| pin.write(0, &[STORED])).is_ok()),
    ("a private pin", |s| s.space.pin_page(EXTRA + 7 * PAGE, Term::Long).is_ok()),
    ("MADV_POPULATE_READ", |s| s.space.madvise(BASE, NR_PAGES * PAGE, Advice::PopulateRead).is_ok()),
    ("MADV_POPULATE_WRITE", |s| s.space.madvise(EXTRA, NR_PAGES * PAGE, Advice::PopulateWrite).is_ok()),
    ("mlock", |s| s.space.mlock(EXTRA + 4 * PAGE, 4 * PAGE, MlockFlags::empty()).is_ok()),
    ("a mapping", |s| {
        let flags = MapFlags::PRIVATE | FIXED | MapFlags::POPULATE;
        s.space.mmap_object(THIRD, NR_PAGES * PAGE, RW, flags, whole(s.object)).is_ok()
    }),
    ("fork", |s| {
        let Ok(child) = s.space.fork() else { return false };
        let mut byte = [0];
        child.read(EXTRA + PAGE, &mut byte).is_ok() && byte == [COPY] && child.write(EXTRA + PAGE, &[0x33]).is_ok()
    }),
    ("mremap", |s| {
        let flags = MremapFlags::MAYMOVE | MremapFlags::FIXED;
        let (len, there) = (NR_PAGES * PAGE, |at| s.space.vma(at).is_some());
        // Back again: the comparison looks there. A refused call has moved nothing.
        let moved = there(MOVED) || s.space.mremap(EXTRA, len, len, flags, MOVED).is_ok();
        moved && s.space.mremap(MOVED, len, len, flags, EXTRA).is_ok()
    }),
    ("mprotect", |s| {
        s.space.mprotect(EXTRA + 8 * PAGE, 4 * PAGE, READ).is_ok()
            && s.space.mprotect(EXTRA, NR_PAGES * PAGE, RW).is_ok()
    }),
    ("a hole", |s| {
        s.object.discard(3..6);
        true
    }),
    ("a smaller size", |s| {
        s.object.set_size_bytes(4 * PAGE + 100);
        true
    }),
    ("a drop", |s| {
        s.w.vm.drop_clean(u64::MAX);
        true
    }),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fails {
    /// All allocations after so many.
    Allocations(u64),
    /// The read after so many.
    Read(u64),
}

fn fail(s: &Stage<'_, '_>, file: &TestFile, what: Option<Fails>) {
    let (allocations, read) = match what {
        Some(Fails::Allocations(k)) => (Some(k), None),
        Some(Fails::Read(k)) => (None, Some(k)),
        None => (None, None),
    };
    s.w.vm.fail_allocation(allocations);
    file.set_failing(read);
}

/// Each page shows what the file has, what was stored, or its copy.
fn look(s: &Stage<'_, '_>, label: &str) {
    for page in 0..NR_PAGES {
        let (mut shared, mut private) = ([0], [0]);
        s.space.read(BASE + page * PAGE, &mut shared).unwrap();
        s.space.read(EXTRA + page * PAGE, &mut private).unwrap();
        // A hole is zero in a folio that stays whole. Zeroes are stored behind the first byte of a page, save of a whole one.
        let may_be_zero = page == 5 || label.contains("hole") && (3..6).contains(&page);
        let is_of_file = |byte: u8| byte == byte_of(page, 0) || byte == STORED || may_be_zero && byte == 0;
        assert!(is_of_file(shared[0]), "{label}: page {page} shows {shared:?}");
        let has_copy = COPIED.contains(&page) && !label.contains("size");
        let is_right =
            if has_copy { [COPY, STORED].contains(&private[0]) } else { is_of_file(private[0]) || private[0] == COPY };
        assert!(is_right, "{label}: page {page} shows {private:?} privately");
    }
}

/// Whether the operation was refused.
fn is_refused(w: &World<'_>, sizes: FolioOrders, (name, operation): Operation, fails: Fails) -> bool {
    let label = format!("{name}, {sizes:?}, {fails:?}");
    let nr_free = w.vm.vmstat().nr_free_pages;
    let done = {
        let (file, object) = file(w, NR_PAGES * PAGE, sizes);
        let s = Stage { w, space: w.vm.new_space().unwrap(), object: &object };
        let map = |at, kind| s.space.mmap_object(at, NR_PAGES * PAGE, RW, kind | FIXED, whole(&object)).unwrap();
        map(BASE, MapFlags::SHARED);
        map(EXTRA, MapFlags::PRIVATE);
        s.space.handle_fault(BASE, Access::Read).unwrap();
        COPIED.iter().for_each(|page| s.space.write(EXTRA + page * PAGE, &[COPY]).unwrap());
        fail(&s, &file, Some(fails));
        let done = operation(&s);
        fail(&s, &file, None);
        check(w.vm, &[w.space, &s.space]);
        assert!(done || operation(&s), "{label}: is refused again");
        object.set_size_bytes(NR_PAGES * PAGE);
        if s.space.vma(MOVED).is_some() {
            let (len, flags) = (NR_PAGES * PAGE, MremapFlags::MAYMOVE | MremapFlags::FIXED);
            s.space.mremap(MOVED, len, len, flags, EXTRA).unwrap();
        }
        look(&s, &label);
        check(w.vm, &[w.space, &s.space]);
        done
    };
    assert_eq!(w.vm.vmstat().nr_free_pages, nr_free, "{label}: frames are lost");
    !done
}

#[test]
fn whatever_fails_in_an_operation_on_a_file() {
    in_setup(Setup::PLAIN, 1, 8 << 20, |w| {
        let (mut nr_allocations, mut nr_reads) = (0, 0);
        for sizes in [FolioOrders::BASE, orders(0, 3), orders(2, 2)] {
            for operation in OPERATIONS {
                let refused = |fails| is_refused(w, sizes, *operation, fails);
                nr_allocations += (0..80).take_while(|k| refused(Fails::Allocations(*k))).count();
                nr_reads += (0..MOST_READS).filter(|k| refused(Fails::Read(*k))).count();
            }
        }
        assert!(nr_allocations > 60 && nr_reads > 30, "{nr_allocations} allocations and {nr_reads} reads failed");
    });
}

/// Whether all that it wrote has reached the file.
type WriteOperation = fn(&Stage<'_, '_>) -> bool;

const WRITES: &[WriteOperation] = &[
    |s| s.object.write_back(0..NR_PAGES).is_ok(),
    |s| s.space.msync(BASE, NR_PAGES * PAGE, MsyncFlags::SYNC).is_ok(),
    |s| (0..NR_PAGES).all(|page| s.object.write_back(page..page + 1).is_ok()),
];

/// Whether a write failed. The stored bytes are shown in any case, and are in the file after the next attempt.
fn is_write_refused(w: &World<'_>, sizes: FolioOrders, operation: WriteOperation, k: u64) -> bool {
    const STORED_TO: [u64; 6] = [0, 1, 6, 9, 10, NR_PAGES - 1];
    let (storage, object) = storage(w, NR_PAGES * PAGE, sizes);
    let s = Stage { w, space: w.vm.new_space().unwrap(), object: &object };
    s.space.mmap_object(BASE, NR_PAGES * PAGE, RW, MapFlags::SHARED | FIXED, whole(&object)).unwrap();
    STORED_TO.iter().for_each(|page| s.space.write(BASE + page * PAGE, &[STORED]).unwrap());
    storage.set_failing(Some(k));
    let before = w.vm.event(Event::FileWriteFailed);
    let done = operation(&s);
    assert_eq!(done, w.vm.event(Event::FileWriteFailed) == before, "{sizes:?}, {k}: the caller is told");
    storage.set_failing(None);
    check(w.vm, &[w.space, &s.space]);
    let is_in_file = |page: &u64| storage.byte(page * PAGE) == STORED;
    assert!(done == STORED_TO.iter().all(is_in_file), "{sizes:?}, {k}: what failed is in the file");
    let is_dirty = |page: &u64| object.object_page_state(*page).unwrap().dirty;
    assert!(STORED_TO.iter().all(|page| is_in_file(page) || is_dirty(page)), "{sizes:?}, {k}: stores are forgotten");
    assert!(operation(&s) && STORED_TO.iter().all(is_in_file), "{sizes:?}, {k}: it fails again");
    // Dropped pages are read from there.
    w.vm.drop_clean(u64::MAX);
    for page in 0..NR_PAGES {
        let mut byte = [0];
        s.space.read(BASE + page * PAGE, &mut byte).unwrap();
        assert_eq!(byte, [if STORED_TO.contains(&page) { STORED } else { 1 }], "{sizes:?}, {k}: page {page}");
    }
    !done
}

#[test]
fn whichever_write_fails() {
    in_setup(Setup::PLAIN, 1, 8 << 20, |w| {
        for sizes in [FolioOrders::BASE, orders(0, 3), orders(2, 2)] {
            let nr_free = w.vm.vmstat().nr_free_pages;
            for operation in WRITES {
                let nr = (0..NR_PAGES).take_while(|k| is_write_refused(w, sizes, *operation, *k)).count();
                assert!(nr >= 3, "{sizes:?}: {nr} writes failed");
            }
            assert_eq!(w.vm.vmstat().nr_free_pages, nr_free, "{sizes:?}: frames are lost");
        }
    });
}

/// Also if another caller was told first: its own stores are not in the file.
#[test]
fn who_waits_for_a_write_is_told_of_its_error() {
    in_each_setup(3, 16 << 20, |w| {
        let (storage, object) = storage(w, 4 * PAGE, FolioOrders::BASE);
        map(w.space, BASE, 4, &object, 0);
        w.space.write(BASE + PAGE, &[2]).unwrap();
        storage.set(Writes::Stay);
        thread::scope(|scope| {
            let write_back = |cpu| {
                let _cpu = w.vm.machine().bind(CpuId(cpu)).unwrap();
                object.write_back(1..2)
            };
            let both = [1, 2].map(|cpu| scope.spawn(move || write_back(cpu)));
            wait_until(|| storage.nr_kept() == 1 && w.vm.event(Event::Waited) > 1);
            storage.end_one(w.vm, Err(WriteError));
            both.into_iter().for_each(|one| assert_eq!(one.join().unwrap(), Err(WriteBackError::NotWritten)));
        });
        assert_eq!(object.write_back(0..1), Ok(()), "told already");
        storage.set(Writes::End);
        assert_eq!((object.write_back(0..4), storage.byte(PAGE)), (Ok(()), 2));
    });
}
