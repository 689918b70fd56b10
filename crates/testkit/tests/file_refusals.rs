//! No caller is refused while folios of files can be dropped, or written and dropped, anywhere in memory.
#![deny(unsafe_code)]

mod common;

use common::objects::{EXTRA, map};
use common::storage::{Writes, storage};
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::policy::huge::Enabled;
use softfault::{CpuId, Event, HugeKnobs, StorageId, Tunables, Vm};
use softfault_testkit::formats::Tested;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

const ALL: std::ops::Range<u64> = 0..u64::MAX;
const BASE_ORDERS: FolioOrders = FolioOrders::BASE;
const ARENA_PAGES: u64 = 2048;
const BLOCKED: u64 = BASE + (1 << 30);

fn store(w: &World<'_>, page: u64, byte: u8) {
    w.space.write(BASE + page * PAGE, &[byte]).unwrap();
}

/// Writes that fail, or stay under way, are no progress: the caller is refused soon, and what is dirty is kept.
#[test]
fn a_storage_that_takes_nothing_refuses_soon() {
    for writes in [Writes::Fail, Writes::Stay] {
        in_setup(Setup::PLAIN, 1, ARENA_PAGES * PAGE, |w| {
            let (storage, object) = storage(w, ARENA_PAGES * PAGE, BASE_ORDERS);
            map(w.space, BASE, ARENA_PAGES, &object, 0);
            storage.set(writes);
            let nr_waits = std::sync::Arc::new(AtomicU64::new(0));
            let hook = nr_waits.clone();
            assert!(w.vm.machine().on_wait(Box::new(move || _ = hook.fetch_add(1, SeqCst))).is_ok());
            let nr_stored = (0..ARENA_PAGES).take_while(|page| w.space.write(BASE + page * PAGE, &[9]).is_ok()).count();
            assert!(nr_stored > ARENA_PAGES as usize / 2, "{nr_stored}");
            assert!(nr_waits.load(SeqCst) < 100_000, "{nr_waits:?}");
            let nr_writes = storage.log().len() + storage.nr_kept();
            // Those that stay are begun once each, and noted twice here.
            assert!((1..=2 * ARENA_PAGES as usize).contains(&nr_writes), "{nr_writes}");
            (0..storage.nr_kept()).for_each(|_| storage.end_one(w.vm, Ok(())));
            storage.set(Writes::End);
            // The error of failed writes is told once.
            let _error = object.write_back(ALL);
            assert_eq!(object.write_back(ALL), Ok(()));
            (0..nr_stored as u64).for_each(|page| assert_eq!(storage.byte(page * PAGE), 9, "page {page}"));
            w.space.munmap(BASE, ARENA_PAGES * PAGE).unwrap();
        });
    }
}

/// Frames of a machine whose callers search two of its sixteen blocks at a time.
const WIDE_PAGES: u64 = 16 * 512;

fn in_narrow_windows(nr_cpus: usize, test: impl Fn(&World<'_>)) {
    let config = Format::config().with_nr_cpus(nr_cpus).with_arena_bytes(WIDE_PAGES * PAGE);
    let thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Never);
    let tunables = Tunables::default().with_readahead_bytes(0).with_thp(thp).with_shrink_blocks_direct(2);
    let vm = Vm::new(softfault_host::Hosted::with_format(config).unwrap(), tunables).unwrap();
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    test(&World { vm: &vm, cpu: &cpu, space: &space });
    check(&vm, &[&space]);
}

/// A private page for each frame that is left, and for those of the folios that are dropped.
fn fill(w: &World<'_>, meanwhile: impl Fn()) {
    w.space.mmap(EXTRA, WIDE_PAGES * PAGE, RW, PRIVATE | FIXED).unwrap();
    let is_refused = |page: &u64| {
        if page.is_multiple_of(16) {
            meanwhile();
        }
        w.space.write(EXTRA + page * PAGE, &[1]).is_err()
    };
    assert!((0..WIDE_PAGES).any(|page| is_refused(&page)));
}

/// Dirty pages that cannot be written hide none that can: of a storage that fails, or does not answer, or of many that fail; and
/// pages that stay, since a program locks them, do not count against their storage.
#[test]
fn dirty_pages_that_stay_hide_no_others() {
    const NR_DIRTY: u64 = 600;
    for (writes, nr_files) in [(Writes::Fail, 1), (Writes::Stay, 1), (Writes::Fail, 100), (Writes::End, 1)] {
        in_setup(Setup::PLAIN, 1, ARENA_PAGES * PAGE, |w| {
            let nr_each = NR_DIRTY / nr_files;
            let bad: Vec<_> = (0..nr_files).map(|_| storage(w, nr_each * PAGE, BASE_ORDERS)).collect();
            let good = storage(w, NR_DIRTY * PAGE, BASE_ORDERS);
            for (i, (storage, object)) in bad.iter().enumerate() {
                let at = i as u64 * nr_each;
                map(w.space, BASE + at * PAGE, nr_each, object, 0);
                (at..at + nr_each).for_each(|page| store(w, page, 9));
                storage.set(writes);
                // Of the case in which the writes end: the same storage as that of the good one.
                storage.device.set(StorageId(if writes == Writes::End { 7 } else { 100 + i as u64 })).unwrap();
            }
            if writes == Writes::End {
                w.space.mlock(BASE, NR_DIRTY * PAGE, softfault::MlockFlags::empty()).unwrap();
            }
            good.0.device.set(StorageId(7)).unwrap();
            map(w.space, BLOCKED, NR_DIRTY, &good.1, 0);
            (0..NR_DIRTY).for_each(|page| w.space.write(BLOCKED + page * PAGE, &[9]).unwrap());
            fill(w, || {
                // The program stores to the locked pages all the time.
                if writes == Writes::End {
                    (0..NR_DIRTY).for_each(|page| store(w, page, 8));
                }
            });
            // A round does not ask a storage that fails for each of its pages.
            let nr_writes: usize = bad.iter().map(|(storage, _)| storage.log().len()).sum();
            assert!(writes != Writes::Fail || nr_writes < 3 * NR_DIRTY as usize, "{nr_files} files: {nr_writes}");
            let nr_dropped = w.vm.event(Event::FileDropped);
            assert!(nr_dropped > NR_DIRTY - 8, "{writes:?}, {nr_files} files: {nr_dropped}");
            (0..NR_DIRTY).for_each(|page| assert_eq!(good.0.byte(page * PAGE), 9, "page {page}"));
            for (storage, object) in &bad {
                (0..storage.nr_kept()).for_each(|_| storage.end_one(w.vm, Ok(())));
                storage.set(Writes::End);
                let _error = object.write_back(ALL);
            }
            w.space.munmap(EXTRA, WIDE_PAGES * PAGE).unwrap();
        });
    }
}

/// The folios that a caller has written are those that it drops, also where it looks at a small part of memory.
#[test]
fn a_window_smaller_than_memory_is_enough() {
    in_narrow_windows(1, |w| {
        let nr_pages = 3 * WIDE_PAGES;
        let (storage, object) = storage(w, nr_pages * PAGE, BASE_ORDERS);
        map(w.space, BASE, nr_pages, &object, 0);
        (0..nr_pages).for_each(|page| store(w, page, page as u8 | 1));
        assert_eq!((w.vm.event(Event::RefusedOutOfFrames), object.write_back(ALL)), (0, Ok(())));
        (0..nr_pages).for_each(|page| assert_eq!(storage.byte(page * PAGE), page as u8 | 1, "page {page}"));
    });
}

/// The only folios lie in blocks that the last search has passed, and in those that it has not reached.
#[test]
fn what_can_be_dropped_is_found_anywhere() {
    const NR_DIRTY: u64 = 1000;
    for nr_before in [0, WIDE_PAGES / 2, WIDE_PAGES - 2 * NR_DIRTY] {
        in_narrow_windows(1, |w| {
            let (_storage, object) = storage(w, NR_DIRTY * PAGE, BASE_ORDERS);
            w.space.mmap(BLOCKED, WIDE_PAGES * PAGE, RW, PRIVATE | FIXED).unwrap();
            (0..nr_before).for_each(|page| w.space.write(BLOCKED + page * PAGE, &[1]).unwrap());
            map(w.space, BASE, NR_DIRTY, &object, 0);
            (0..NR_DIRTY).for_each(|page| store(w, page, 9));
            fill(w, || ());
            assert!(w.vm.event(Event::FileDropped) > NR_DIRTY - 8, "{}", w.vm.event(Event::FileDropped));
        });
    }
}

/// Writes end after their calls: the folios are sought where they were.
#[test]
fn what_was_under_way_is_dropped() {
    in_narrow_windows(2, |w| {
        let (storage, object) = storage(w, WIDE_PAGES * PAGE, BASE_ORDERS);
        map(w.space, BASE, WIDE_PAGES, &object, 0);
        storage.set(Writes::Stay);
        // As many as the caller begins before it waits: it has dropped nothing by then.
        const NR_BEGUN: usize = 512;
        let ends = storage.clone();
        let wait = move || {
            while ends.nr_kept() >= NR_BEGUN {
                thread::yield_now();
            }
        };
        assert!(w.vm.machine().on_wait(Box::new(wait)).is_ok());
        let is_over = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _cpu = w.vm.machine().bind(CpuId(1)).unwrap();
                while is_over.load(SeqCst) == 0 {
                    match storage.nr_kept() {
                        NR_BEGUN.. => (0..storage.nr_kept()).for_each(|_| storage.end_one(w.vm, Ok(()))),
                        _ => thread::yield_now(),
                    }
                }
            });
            let page = (0..WIDE_PAGES).find(|page| {
                store(w, *page, 9);
                w.vm.event(Event::FileWritten) > 0
            });
            is_over.store(1, SeqCst);
            assert!(page.is_some());
        });
        assert!(w.vm.event(Event::FileWritten) < 1024, "{}", w.vm.event(Event::FileWritten));
        storage.set(Writes::End);
    });
}

/// Each takes the pages that the other one has written, and none is refused while the storage answers.
#[test]
fn programs_store_to_one_storage_and_none_is_refused() {
    const NR_CPUS: u64 = 4;
    in_narrow_windows(NR_CPUS as usize, |w| {
        let nr_pages = 2 * WIDE_PAGES;
        let (storage, object) = storage(w, nr_pages * PAGE, BASE_ORDERS);
        map(w.space, BASE, nr_pages, &object, 0);
        let stores = |space: &Space<'_>, cpu: u64| {
            for page in (cpu..nr_pages).step_by(NR_CPUS as usize) {
                space.write(BASE + page * PAGE, &[page as u8 | 1]).unwrap();
            }
        };
        thread::scope(|scope| {
            for cpu in 1..NR_CPUS {
                let (vm, space, stores) = (w.vm, w.space, &stores);
                scope.spawn(move || {
                    let _cpu = vm.machine().bind(CpuId(cpu as u16)).unwrap();
                    stores(space, cpu);
                });
            }
            stores(w.space, 0);
        });
        assert_eq!((w.vm.event(Event::RefusedOutOfFrames), object.write_back(ALL)), (0, Ok(())));
        (0..nr_pages).for_each(|page| assert_eq!(storage.byte(page * PAGE), page as u8 | 1, "page {page}"));
    });
}
