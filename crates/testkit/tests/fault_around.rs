//! Fault-around: which neighbours of a page of an object a read fault maps, and which it skips.
#![deny(unsafe_code)]

mod common;

use common::objects::{EXTRA, MAP, Object, bytes, map, touch, whole};
use common::*;
use softfault::policy::around::{AroundOrder, FaultAround, Neighbours};
use softfault::policy::folio::FolioOrders;
use softfault::{Access, Advice, CpuId, Event, FaultError, Machine, Order, Tunables, Vm};
use softfault_testkit::formats::Tested;
use softfault_testkit::random::Random;
use std::ops::Range;
use std::sync::atomic::Ordering::SeqCst;

/// At the beginning of a leaf table, whatever the format.
const AT: u64 = 0x20_0000_0000;
/// Pages of a leaf table.
const TABLE: u64 = 512;

/// A world whose read faults have a window of 2^order pages.
fn with_window(order: u8, nr_cpus: usize, test: impl Fn(&World<'_>)) {
    in_each_setup(nr_cpus, 32 << 20, |w| {
        w.vm.set_fault_around(FaultAround::Fixed(AroundOrder::new(order).unwrap()));
        test(w);
    });
}

/// An object whose pages are all there; byte 0 of each says which it is.
fn full<'vm>(w: &World<'vm>, nr_pages: u64) -> Object<'vm> {
    let object = w.vm.new_shared_object(nr_pages * PAGE).unwrap();
    (0..nr_pages).for_each(|page| object.write(page * PAGE, &[byte_of(page)]).unwrap());
    object
}

fn byte_of(page: u64) -> u8 {
    (page % 250) as u8 + 1
}

fn read(space: &Space<'_>, page: u64) -> Result<(), FaultError> {
    space.handle_fault(AT + page * PAGE, Access::Read).map(drop)
}

fn is_mapped(space: &Space<'_>, page: u64) -> bool {
    space.page_state(AT + page * PAGE).is_some()
}

/// Pages of all mappings that are present, were used, were written.
fn used(space: &Space<'_>) -> (u64, u64, u64) {
    let mut sum = (0, 0, 0);
    space.smaps(&mut |entry| {
        sum = (sum.0 + entry.rss_pages, sum.1 + entry.referenced_pages, sum.2 + entry.dirty_pages);
    });
    sum
}

/// Pages that are mapped, from `AT` on.
fn mapped(space: &Space<'_>, among: Range<u64>) -> Vec<u64> {
    among.filter(|page| is_mapped(space, *page)).collect()
}

fn pages(range: Range<u64>) -> Vec<u64> {
    range.collect()
}

/// A9: a VMA from page 5, a fault at page 7, order 4.
#[test]
fn a9_the_window_begins_with_the_vma() {
    with_window(4, 1, |w| {
        let object = full(w, 64);
        map(w.space, AT + 5 * PAGE, 50, &object, 3);
        read(w.space, 7).unwrap();
        assert_eq!(mapped(w.space, 0..64), pages(5..21));
        assert_eq!((w.rss().shmem, w.vm.vmstat().get(Event::MapAround)), (16, 15));
        for page in 5..21 {
            assert_eq!(bytes(w.space, AT + page * PAGE), [byte_of(page - 5 + 3)]);
        }
        // The rest of an aligned window, part of which is mapped.
        read(w.space, 21).unwrap();
        assert_eq!(mapped(w.space, 0..64), pages(5..32));
        read(w.space, 54).unwrap();
        assert_eq!(mapped(w.space, 32..64), pages(48..55), "the VMA ends at page 55");
    });
}

/// A3: both ends of a leaf table, of the object, and windows of all sizes.
#[test]
fn a3_the_window_stays_in_the_leaf_table_and_in_the_object() {
    in_setup(Setup::PLAIN, 1, 64 << 20, |w| {
        let object = full(w, 3 * TABLE);
        for order in 0..=9 {
            w.vm.set_fault_around(FaultAround::Fixed(AroundOrder::new(order).unwrap()));
            let window = (1u64 << order).min(TABLE);
            for page in [TABLE - 1, TABLE, 2 * TABLE - 1, 2 * TABLE, 3 * TABLE - 3] {
                map(w.space, AT + 2 * PAGE, 3 * TABLE, &object, 0);
                read(w.space, page).unwrap();
                let first = (page / window * window).max(2);
                let expected = pages(first..(first + window).min((page / TABLE + 1) * TABLE));
                assert_eq!(mapped(w.space, 0..3 * TABLE + 2), expected, "order {order}, page {page}");
                // The window may show pages of two nodes of the object's tree.
                for page in expected {
                    assert_eq!(bytes(w.space, AT + page * PAGE), [byte_of(page - 2)]);
                }
                w.space.munmap(AT, (3 * TABLE + 2) * PAGE).unwrap();
            }
        }
        w.vm.set_fault_around(FaultAround::DEFAULT);
        map(w.space, AT, 3 * TABLE + 64, &object, 0);
        object.set_size_bytes(21 * PAGE - 5);
        read(w.space, 20).unwrap();
        assert_eq!(mapped(w.space, 0..64), pages(16..21), "the object ends in page 20");
        assert_eq!(read(w.space, 21), Err(FaultError::BeyondObject));
    });
}

/// The first window comes with the table; a later one is looked for.
#[test]
fn a_second_window_in_a_new_table() {
    with_window(6, 1, |w| {
        map(w.space, AT, TABLE, &full(w, TABLE), 0);
        for (page, end) in [(0, 64), (100, 128)] {
            read(w.space, page).unwrap();
            assert_eq!(mapped(w.space, 0..TABLE), pages(0..end));
        }
    });
}

/// A1, A2: what is missing is skipped, also where it is the page of the fault: that is made as ever.
#[test]
fn a2_pages_that_are_missing_are_not_made() {
    with_window(4, 1, |w| {
        let object = w.vm.new_shared_object(32 * PAGE).unwrap();
        for page in [1, 2, 9] {
            object.write(page * PAGE, &[7]).unwrap();
        }
        map(w.space, AT, 32, &object, 0);
        read(w.space, 4).unwrap();
        assert_eq!(mapped(w.space, 0..32), [1, 2, 4, 9]);
        assert_eq!(object.nr_resident_pages(), 4);
        object.discard(2..3);
        assert_eq!(mapped(w.space, 0..32), [1, 4, 9]);
        read(w.space, 20).unwrap();
        assert_eq!((mapped(w.space, 16..32), object.nr_resident_pages()), (vec![20], 4));
        // Behind a folio.
        let orders = FolioOrders::new(Order(3), Order(3)).unwrap();
        let object = w.vm.new_shared_object_of(32 * PAGE, orders).unwrap();
        object.write(0, &[7]).unwrap();
        map(w.space, AT + 64 * PAGE, 32, &object, 0);
        read(w.space, 65).unwrap();
        assert_eq!((mapped(w.space, 64..96), object.nr_resident_pages()), (pages(64..72), 8));
    });
}

/// A1: entries that are not empty stay what they are, and pages whose memory failed are skipped.
#[test]
fn a1_what_is_there_stays_and_what_failed_is_skipped() {
    let vm = &Setup::PLAIN.vm(1, 32 << 20);
    let cpu = &vm.machine().bind(CpuId(0)).unwrap();
    let space = &vm.new_space().unwrap();
    let object = full(&World { vm, cpu, space }, 16);
    map(space, AT, 16, &object, 0);
    touch(space, AT + 3 * PAGE).unwrap();
    let failed = space.translate_at_rest(AT + 3 * PAGE).unwrap().pfn;
    touch(space, AT + 8 * PAGE).unwrap();
    space.mprotect(AT + 10 * PAGE, 2 * PAGE, READ).unwrap();
    assert_eq!(vm.poison_frame(failed), Ok(0), "no entry says so: the object does");
    read(space, 0).unwrap();
    let all_but_one: Vec<u64> = (0..10).filter(|page| *page != 3).collect();
    assert_eq!(mapped(space, 0..16), all_but_one, "page 10 begins another VMA");
    assert_eq!(used(space).2, 1, "a page that was written stays dirty");
    assert_eq!(read(space, 3), Err(FaultError::Poisoned));
    assert_eq!(space.rss_pages().shmem, 9);
    check(vm, &[space]);
}

/// A4: a folio that reaches beyond the end of the object.
#[test]
fn a4_pages_beyond_the_end_are_not_mapped() {
    with_window(9, 1, |w| {
        let orders = FolioOrders::new(Order(3), Order(3)).unwrap();
        let object = w.vm.new_shared_object_of(5 * PAGE, orders).unwrap();
        map(w.space, AT, 8, &object, 0);
        read(w.space, 1).unwrap();
        assert_eq!(mapped(w.space, 0..8), pages(0..5));
        assert_eq!(object.nr_resident_pages(), 8);
        assert_eq!(read(w.space, 5), Err(FaultError::BeyondObject));
    });
}

/// A5: only the page of the fault was used.
#[test]
fn a5_neighbours_are_mapped_old_and_clean() {
    with_window(4, 1, |w| {
        let object = full(w, 16);
        map(w.space, AT, 16, &object, 0);
        read(w.space, 6).unwrap();
        let (rss, used, dirty) = used(w.space);
        assert_eq!((rss, used, dirty), (16, if w.vm.machine().marks_entries() { 1 } else { 16 }, 0));
    });
}

/// A5, tunable: all were used, as on Linux for x86-64.
#[test]
fn a5_neighbours_may_be_mapped_young() {
    let hosted = Hosted::with_format(Format::config().with_arena_bytes(32 << 20)).unwrap();
    let vm = Vm::new(hosted, Tunables::default().with_neighbours(Neighbours::Young)).unwrap();
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    let w = World { vm: &vm, cpu: &cpu, space: &space };
    let object = full(&w, 16);
    map(&space, AT, 16, &object, 0);
    read(&space, 6).unwrap();
    assert_eq!(used(&space), (16, 16, 0));
    check(&vm, &[&space]);
}

/// A window of a large part of a table that is not there yet is mapped with the table: the same pages, entries and counts.
#[test]
fn a_new_table_has_what_an_old_one_gets() {
    for has_table in [true, false] {
        with_window(9, 1, |w| {
            let object = w.vm.new_shared_object(TABLE * PAGE).unwrap();
            let is_there = |page: &u64| page % 3 != 1;
            (0..TABLE).filter(is_there).for_each(|page| object.write(page * PAGE, &[byte_of(page)]).unwrap());
            map(w.space, AT, TABLE - 5, &object, 0);
            if has_table {
                touch(w.space, AT + 2 * PAGE).unwrap();
                assert_eq!(mapped(w.space, 0..TABLE - 5), [2], "a write maps its page alone");
                w.space.madvise(AT, (TABLE - 5) * PAGE, Advice::DontNeed).unwrap();
            }
            read(w.space, 300).unwrap();
            let there: Vec<u64> = (0..TABLE - 5).filter(is_there).collect();
            assert_eq!(mapped(w.space, 0..TABLE - 5), there);
            assert_eq!(
                (w.space.rss_pages().shmem, w.vm.event(Event::MapAround)),
                (there.len() as u64, there.len() as u64 - 1)
            );
            there.iter().for_each(|page| assert_eq!(bytes(w.space, AT + page * PAGE), [byte_of(*page)]));
        });
    }
}

/// A7: a write maps its own page; so does a read where accesses are expected anywhere, or the knob is off.
#[test]
fn a7_no_neighbours_for_writes_and_random_access() {
    with_window(4, 1, |w| {
        let object = full(w, 32);
        map(w.space, AT, 32, &object, 0);
        touch(w.space, AT + 3 * PAGE).unwrap();
        assert_eq!(mapped(w.space, 0..32), [3]);
        w.space.madvise(AT, 32 * PAGE, Advice::Random).unwrap();
        read(w.space, 5).unwrap();
        assert_eq!(mapped(w.space, 0..32), [3, 5]);
        w.space.madvise(AT, 32 * PAGE, Advice::Normal).unwrap();
        w.vm.set_fault_around(FaultAround::OFF);
        read(w.space, 20).unwrap();
        assert_eq!(mapped(w.space, 0..32), [3, 5, 20]);
    });
}

/// Neighbours have the rights of the VMA, no more.
#[test]
fn neighbours_have_the_rights_of_the_vma() {
    with_window(4, 1, |w| {
        let object = full(w, 16);
        let part = whole(&object).with_may_write(false);
        assert_eq!(w.space.mmap_object(AT, 16 * PAGE, READ, MAP | FIXED, part), Ok(AT));
        read(w.space, 0).unwrap();
        assert_eq!(w.space.write(AT + 5 * PAGE, &[1]).map_err(|_| ()), Err(()));
        map(w.space, EXTRA, 16, &object, 0);
        w.space.handle_fault(EXTRA, Access::Read).unwrap();
        w.space.write(EXTRA + 5 * PAGE, &[200]).unwrap();
        assert_eq!(bytes(w.space, AT + 5 * PAGE), [200]);
        assert_eq!(used(w.space).2, 1);
    });
}

/// Faults of a pass over `nr_pages` pages in that order.
fn faults_of(w: &World<'_>, around: FaultAround, order: &[u64]) -> u64 {
    w.vm.set_fault_around(around);
    let before = w.vm.vmstat().get(Event::Fault);
    for page in order {
        if !is_mapped(w.space, *page) {
            read(w.space, *page).unwrap();
        }
    }
    let nr_faults = w.vm.vmstat().get(Event::Fault) - before;
    assert_eq!(w.space.madvise(AT, order.len() as u64 * PAGE, DONTNEED), Ok(()));
    nr_faults
}

#[test]
fn faults_of_passes_in_order_and_in_none() {
    in_setup(Setup::PLAIN, 1, 64 << 20, |w| {
        let nr_pages = 4096;
        let object = full(w, nr_pages);
        map(w.space, AT, nr_pages, &object, 0);
        let up: Vec<u64> = pages(0..nr_pages);
        let down: Vec<u64> = up.iter().rev().copied().collect();
        let mut mixed = up.clone();
        let mut random = Random::new(14);
        (1..mixed.len()).rev().for_each(|i| mixed.swap(i, random.below(i as u64 + 1) as usize));
        let fixed = |order| FaultAround::Fixed(AroundOrder::new(order).unwrap());
        for passes in [&up, &down, &mixed] {
            assert_eq!(faults_of(w, fixed(0), passes), nr_pages);
            assert_eq!(faults_of(w, fixed(4), passes), nr_pages / 16);
        }
        let window = TABLE;
        for passes in [&up, &down] {
            assert_eq!(faults_of(w, fixed(9), passes), nr_pages / window);
            let adaptive = faults_of(w, FaultAround::Adaptive, passes);
            assert!(adaptive <= nr_pages / window + 4, "{adaptive} faults");
        }
        let adaptive = faults_of(w, FaultAround::Adaptive, &mixed);
        assert!(adaptive <= nr_pages / 8 + 2, "{adaptive} faults");
    });
}

/// One touch in each leaf table maps no neighbours after the first.
#[test]
fn adaptive_windows_of_sparse_touches_are_empty() {
    in_setup(Setup::PLAIN, 1, 64 << 20, |w| {
        let object = full(w, 8 * TABLE);
        map(w.space, AT, 8 * TABLE, &object, 0);
        w.vm.set_fault_around(FaultAround::Adaptive);
        (0..8).for_each(|i| read(w.space, i * TABLE + 7).unwrap());
        assert_eq!(w.vm.vmstat().get(Event::MapAround), 15);
    });
}

/// A page that is mapped alone is the last window, too: a fault beside it maps more.
#[test]
fn a_stream_begins_after_touches_far_apart() {
    in_setup(Setup::PLAIN, 1, 64 << 20, |w| {
        let object = full(w, 3 * TABLE);
        map(w.space, AT, 3 * TABLE, &object, 0);
        w.vm.set_fault_around(FaultAround::Adaptive);
        (0..3).for_each(|i| read(w.space, i * TABLE + 100).unwrap());
        assert_eq!(mapped(w.space, TABLE..3 * TABLE), [TABLE + 100, 2 * TABLE + 100]);
        read(w.space, 2 * TABLE + 101).unwrap();
        assert_eq!(mapped(w.space, 2 * TABLE..3 * TABLE), pages(2 * TABLE + 100..2 * TABLE + 104));
    });
}

/// The window of one process does not apply to another one that has a mapping at the same address.
#[test]
fn adaptive_windows_begin_anew_in_each_space() {
    in_setup(Setup::PLAIN, 1, 64 << 20, |w| {
        let object = full(w, 2 * TABLE);
        let other = w.vm.new_space().unwrap();
        [w.space, &other].iter().for_each(|space| map(space, AT, 2 * TABLE, &object, 0));
        w.vm.set_fault_around(FaultAround::Adaptive);
        [7, TABLE + 7].iter().for_each(|page| read(w.space, *page).unwrap());
        assert_eq!(w.rss().shmem, 16 + 1);
        read(&other, 100).unwrap();
        assert_eq!(other.rss_pages().shmem, 16);
    });
}

/// A6: no mapping beyond a new end survives, and no page that left the object is seen.
#[test]
fn a6_truncation_against_fault_around() {
    const NR: u64 = 64;
    with_window(5, 3, |w| {
        let object = &full(w, NR);
        map(w.space, AT, NR, object, 0);
        let reader: Actor<'_> = &|running, stop| {
            let mut random = Random::new(6);
            while !stop.load(SeqCst) {
                let page = random.below(NR);
                let mut byte = [0];
                match running.load(AT + page * PAGE, &mut byte) {
                    Ok(()) => assert!(byte[0] == 0 || byte[0] == byte_of(page), "page {page} shows {byte:?}"),
                    Err(fault) => assert_eq!(fault.cause, FaultError::BeyondObject),
                }
            }
        };
        w.race(&[reader, reader], |_| {
            let mut random = Random::new(7);
            for _ in 0..if IS_FULL { 100 } else { 20 } {
                let end = random.below(NR);
                object.set_size_bytes(end * PAGE);
                assert_eq!(mapped(w.space, end..NR), [0; 0]);
                object.set_size_bytes(NR * PAGE);
                (end..NR).for_each(|page| object.write(page * PAGE, &[byte_of(page)]).unwrap());
            }
        });
    });
}

#[test]
fn the_knob_has_a_default_and_changes() {
    let tunables = Tunables::default();
    assert_eq!(tunables.fault_around, FaultAround::DEFAULT);
    in_setup(Setup::PLAIN, 1, 16 << 20, |w| {
        assert_eq!(w.vm.fault_around(), FaultAround::DEFAULT);
        w.vm.set_fault_around(FaultAround::Adaptive);
        assert_eq!(w.vm.fault_around(), FaultAround::Adaptive);
    });
}
