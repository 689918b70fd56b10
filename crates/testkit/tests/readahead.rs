//! Read-ahead: which pages of a file are read where one is missing, and how many faults that leaves.
#![deny(unsafe_code)]

mod common;

use common::files::{Reads, TestFile, content as byte_of, file};
use common::objects::{Object, bytes, content, map, orders, read, read_on};
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::{Access, Advice, CpuId, Event, FaultError, FileFill, FillError, Filling, MadviseError, Tunables, Vm};
use softfault_host::{HostFile, HostFill};
use softfault_testkit::formats::Tested;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::thread;

/// At the beginning of a leaf table.
const AT: u64 = 0x20_0000_0000;

/// A machine with read-ahead, and a file of so many pages that is mapped at `AT`.
fn with_file(nr_pages: u64, sizes: FolioOrders, test: impl Fn(&World<'_>, &TestFile, &Object<'_>)) {
    let hosted = Hosted::with_format(Format::config().with_nr_cpus(2).with_arena_bytes(64 << 20)).unwrap();
    let vm = Vm::new(hosted, Tunables::default()).unwrap();
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    let w = World { vm: &vm, cpu: &cpu, space: &space };
    let (file, object): (Arc<TestFile>, _) = file(&w, nr_pages * PAGE, sizes);
    map(&space, AT, nr_pages, &object, 0);
    test(&w, &file, &object);
    check(&vm, &[&space]);
}

/// Reads a byte of each page, with a fault where there is no entry; the number of faults.
fn read_all(w: &World<'_>, pages: std::ops::Range<u64>) -> u64 {
    read_in(w.space, pages)
}

fn read_in(space: &Space<'_>, pages: std::ops::Range<u64>) -> u64 {
    let mut nr_faults = 0;
    for page in pages {
        if space.page_state(AT + page * PAGE).is_none() {
            space.handle_fault(AT + page * PAGE, Access::Read).unwrap();
            nr_faults += 1;
        }
        assert_eq!(bytes(space, AT + page * PAGE), [byte_of(page, 0)]);
    }
    nr_faults
}

/// The share of a GiB that fits: 32 MiB in 32 faults, and some at the beginning while the window grows.
#[test]
fn a_cold_file_read_in_sequence_takes_one_fault_for_each_large_folio() {
    with_file(8192, orders(0, 8), |w, file, _| {
        let nr_faults = read_all(w, 0..8192);
        assert!(nr_faults <= 32 + 18, "{nr_faults} faults");
        assert_eq!((w.rss().major_faults, w.vm.event(Event::FileRead)), (35 - 1, 8192));
        let log = file.log();
        assert_eq!(log[..4], [(0, 4), (4, 4), (8, 8), (16, 16)], "windows of 4 and 28 pages");
        assert!(log[12..].iter().all(|read| *read == (read.0, 256)), "{log:?}");
    });
}

#[test]
fn small_folios_are_read_ahead_as_well() {
    with_file(1024, FolioOrders::BASE, |w, file, _| {
        read_all(w, 0..1024);
        assert_eq!((w.rss().major_faults, file.log().len()), (6, 1024));
    });
}

#[test]
fn advice_decides() {
    with_file(1024, orders(0, 8), |w, file, object| {
        w.space.madvise(AT, 1024 * PAGE, Advice::Random).unwrap();
        w.space.handle_fault(AT + 8 * PAGE, Access::Read).unwrap();
        assert_eq!(file.log(), [(8, 1)]);
        w.space.madvise(AT, 1024 * PAGE, Advice::Sequential).unwrap();
        w.space.handle_fault(AT + 512 * PAGE, Access::Read).unwrap();
        assert_eq!(file.log(), [(512, 256)]);
        assert_eq!(object.nr_resident_pages(), 257);
    });
}

/// A page that cannot be read ahead causes no error.
#[test]
fn an_error_ahead_is_nobodys() {
    with_file(64, FolioOrders::BASE, |w, file, object| {
        file.set_failing_from(2);
        w.space.handle_fault(AT, Access::Read).unwrap();
        assert_eq!((object.nr_resident_pages(), w.vm.event(Event::RefusedNotRead)), (2, 0));
        assert!(w.space.handle_fault(AT + 2 * PAGE, Access::Read).is_err());
        file.set_failing_from(u64::MAX);
        read_all(w, 0..64);
    });
}

/// A machine that answers later is asked for all of a window before anybody sleeps.
#[test]
fn reads_under_way_are_all_of_a_window() {
    with_file(64, FolioOrders::BASE, |w, file, object| {
        file.set(Reads::Stay);
        std::thread::scope(|scope| {
            let (vm, space) = (w.vm, w.space);
            scope.spawn(move || {
                let _cpu = vm.machine().bind(CpuId(1)).unwrap();
                space.handle_fault(AT, Access::Read).unwrap();
            });
            wait_until(|| file.nr_kept() == 4);
            (0..4).for_each(|_| file.end_one(w.vm, Ok(())));
        });
        assert_eq!((object.nr_resident_pages(), w.rss().major_faults), (4, 1));
    });
}

/// Where reads end later, the next window of a stream is under way before the stream comes to it: it finds no page missing
/// once windows are full. Random reads begin nothing early.
#[test]
fn a_stream_finds_what_was_begun_early() {
    for sizes in [FolioOrders::BASE, orders(0, 8)] {
        with_file(4096, sizes, |w, file, object| {
            file.set(Reads::Stay);
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let (vm, space, is_over) = (w.vm, w.space, &is_over);
                scope.spawn(move || {
                    let _cpu = vm.machine().bind(CpuId(1)).unwrap();
                    read_in(space, 0..4096);
                    is_over.store(true, Release);
                });
                while !is_over.load(Acquire) {
                    if file.nr_kept() > 0 {
                        file.end_one(w.vm, Ok(()));
                    }
                    std::thread::yield_now();
                }
            });
            assert_eq!((w.rss().major_faults, object.nr_resident_pages()), (4, 4096));
            object.discard(1024..4096);
            w.space.madvise(AT, 4096 * PAGE, Advice::DontNeed).unwrap();
            w.space.madvise(AT, 4096 * PAGE, Advice::Random).unwrap();
            w.space.handle_fault(AT + 1020 * PAGE, Access::Read).unwrap();
            assert_eq!((file.nr_kept(), object.nr_resident_pages()), (0, 1024), "by advice");
        });
    }
}

/// Reads begin, also where the tree has no node yet; nothing is mapped, and what cannot be read is nobody's error.
#[test]
fn advice_begins_reads() {
    for sizes in [FolioOrders::BASE, orders(0, 8)] {
        with_file(1024, sizes, |w, file, object| {
            w.space.madvise(AT + 256 * PAGE, 700 * PAGE, Advice::WillNeed).unwrap();
            assert_eq!((object.nr_resident_pages(), w.rss().major_faults), (700, 0));
            assert!((0..1024).all(|page| w.space.page_state(AT + page * PAGE).is_none()));
            assert_eq!(file.log().iter().map(|read| read.1).sum::<u64>(), 700, "each page once");
            assert_eq!(w.space.madvise(AT, 2048 * PAGE, Advice::WillNeed), Err(MadviseError::NotMapped));
            assert_eq!(object.nr_resident_pages(), 1024, "all that is mapped");
            read_all(w, 0..1024);
            object.discard(0..1024);
            file.set_failing_from(0);
            w.space.madvise(AT, 1024 * PAGE, Advice::WillNeed).unwrap();
            assert_eq!((object.nr_resident_pages(), w.vm.event(Event::RefusedNotRead)), (0, 0));
        });
    }
}

/// Reads that stay under way are waited for by nobody.
#[test]
fn advice_waits_for_no_read() {
    with_file(64, FolioOrders::BASE, |w, file, object| {
        file.set(Reads::Stay);
        w.space.madvise(AT, 64 * PAGE, Advice::WillNeed).unwrap();
        assert_eq!((object.nr_swapped_pages(), file.nr_kept()), (64, 64), "in transit");
        (0..64).for_each(|_| file.end_one(w.vm, Ok(())));
        read_all(w, 0..64);
    });
}

/// A cold file of 1 GiB on disk, through the hosted machine: the figure of docs/files.md.
#[test]
#[ignore = "1.3 GB of memory"]
fn a_cold_gib_is_read_in_one_fault_for_each_mib() {
    let path = std::env::temp_dir().join(format!("softfault-gib-{}", std::process::id()));
    let file = std::fs::File::create_new(&path).unwrap();
    file.set_len(1 << 30).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let hosted = Hosted::with_format(Format::config().with_nr_cpus(1).with_arena_bytes(5 << 28)).unwrap();
    let vm = Vm::new(hosted, Tunables::default()).unwrap();
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    let w = World { vm: &vm, cpu: &cpu, space: &space };
    let id = vm.machine().add_file(Arc::new(file));
    let object = vm.new_file_object(1 << 30, orders(0, 8), id).unwrap();
    map(&space, AT, 1 << 18, &object, 0);
    let running = cpu.enter(&space).unwrap();
    (0..1 << 18).for_each(|page| running.load(AT + page * PAGE, &mut [0]).unwrap());
    let (minor, major) = (w.rss().minor_faults, w.rss().major_faults);
    println!("1 GiB: {} faults, {major} of them major", minor + major);
    assert!(minor + major <= 1042, "{minor} + {major}");
}

/// A device that has gone: each read fails, later, but before the reader looks. Another CPU ends them.
#[derive(Default)]
struct Gone {
    asked: Mutex<Option<FileFill>>,
    is_over: AtomicBool,
    /// Of the page that is wanted.
    nr_reads: AtomicU64,
}

impl HostFile for Gone {
    fn fill(&self, fill: HostFill<'_>) -> Filling {
        if fill.offset_bytes() == 0 {
            self.nr_reads.fetch_add(1, SeqCst);
        }
        *self.asked.lock().unwrap() = Some(fill.keep());
        wait_until(|| self.asked.lock().unwrap().is_none());
        Filling::UnderWay
    }
}

impl Gone {
    fn answer(&self, vm: &Vm<Hosted>) {
        let _cpu = vm.machine().bind(CpuId(1)).unwrap();
        while !self.is_over.load(SeqCst) {
            let mut asked = self.asked.lock().unwrap();
            // A reader that asks again and again gets the page in the end.
            let is_enough = self.nr_reads.load(SeqCst) > 50;
            if let Some(fill) = asked.take() {
                vm.filled(fill, if is_enough { Ok(()) } else { Err(FillError) }).unwrap();
            }
            drop(asked);
            thread::yield_now();
        }
    }
}

/// The failures of what is read ahead come after that of the page itself, each time. It is told all the same.
#[test]
fn a_failure_is_told_though_pages_ahead_fail_after_it() {
    with_file(1, FolioOrders::BASE, |w, _, _| {
        let device = Arc::new(Gone::default());
        let id = w.vm.machine().add_file(device.clone());
        let object = w.vm.new_file_object(64 * PAGE, FolioOrders::BASE, id).unwrap();
        map(w.space, BASE, 64, &object, 0);
        thread::scope(|scope| {
            scope.spawn(|| device.answer(w.vm));
            let results = [read(w.space, 0).err(), object.write(0, &[1]).err().map(|_| FaultError::NotRead)];
            device.is_over.store(true, SeqCst);
            assert_eq!(results, [Some(FaultError::NotRead); 2]);
        });
        assert!(w.vm.event(Event::FileReadFailed) > 4, "nothing was read ahead");
        assert!(device.nr_reads.load(SeqCst) <= 4, "once more for each call");
    });
}

/// However a read ends: at once, later, as the answer to another read, well or not, after its pages or its object have gone. The
/// check compares the count with what is in transit. Else read-ahead ends for ever, or takes all of memory.
#[test]
fn pages_under_way_are_counted() {
    in_setup(Setup::PLAIN, 2, 16 << 20, |w| {
        let (file, object) = file(w, 64 * PAGE, orders(0, 4));
        map(w.space, BASE, 64, &object, 0);
        let advise = |object: &Object<'_>, nr_pages| {
            file.set(Reads::Stay);
            map(w.space, BASE, 64, object, 0);
            w.space.madvise(BASE, nr_pages * PAGE, Advice::WillNeed).unwrap();
            check(w.vm, &[w.space]);
            assert_eq!(file.nr_kept(), 1);
        };
        let nr_ended = || w.vm.event(Event::FileRead) + w.vm.event(Event::FileReadFailed);
        for result in [Ok(()), Err(FillError)] {
            for is_taken_out in [false, true] {
                advise(&object, 16);
                if is_taken_out {
                    object.discard(0..16);
                }
                file.end_one(w.vm, result);
                check(w.vm, &[w.space]);
                object.discard(0..64);
            }
            file.set(if result.is_ok() { Reads::End } else { Reads::Fail });
            assert_eq!(read(w.space, 40).is_ok(), result.is_ok());
            check(w.vm, &[w.space]);
            object.discard(0..64);
            let id = w.vm.machine().add_file(file.clone());
            let another = w.vm.new_file_object(64 * PAGE, orders(0, 4), id).unwrap();
            advise(&another, 16);
            map(w.space, BASE, 64, &object, 0);
            drop(another);
            file.end_one(w.vm, result);
            check(w.vm, &[w.space]);
            // The second is of the same page, after the first was taken out: it waits for its own answer.
            for (nr_pages, page) in [(16, 40), (1, 0)] {
                advise(&object, nr_pages);
                object.discard(page..page + 1);
                let before = nr_ended();
                file.set(if result.is_ok() { Reads::EndAnother } else { Reads::FailAnother });
                thread::scope(|scope| {
                    let fault = scope.spawn(|| read_on(w.vm, w.space, 1, page));
                    wait_until(|| nr_ended() > before);
                    file.end_one(w.vm, Ok(()));
                    assert!(fault.join().unwrap().is_ok());
                });
                assert_eq!(content::<1>(&object, page * PAGE), [byte_of(page, 0)]);
                check(w.vm, &[w.space]);
                object.discard(0..64);
            }
        }
    });
}
