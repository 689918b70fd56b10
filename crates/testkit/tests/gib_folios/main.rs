//! Folios of objects of 1 GiB: how they come, are cut, and go. The memory behind them is zero and mostly never
//! touched, so that a test takes a fraction of a second.
#![deny(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod tails;

use common::objects::{Object, bytes, content, map, touch};
use common::*;
use softfault::policy::folio::FolioOrders;
use softfault::{
    CpuId, FaultError, FrameRange, MigrateRefusal, Notice, ObjectWriteError, Order, Pfn, TailDescsRefusal, Term,
    Tunables, Vm,
};
use softfault_testkit::formats::Tested;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

const AT: u64 = 0x20_0000_0000;
/// Pages of a folio, and of one of its blocks.
const NR: u64 = 1 << 18;
const BLOCK: u64 = 512;
/// First pages of blocks, their neighbours, and both ends.
const SOME: [u64; 8] = [0, 1, 511, 512, 513, 77 * BLOCK, NR - BLOCK, NR - 1];

fn section(nr: u64) -> FrameRange {
    FrameRange { first: Pfn((nr << 15) as u32), nr_frames: 1 << 15 }
}

/// One GiB that is whole and zero, and one with the metadata.
fn in_gib(test: impl Fn(&World<'_>)) {
    let config = Format::config().with_nr_cpus(1).with_arena_bytes(2 << 30).with_tlb_entries(64);
    in_vm(&Vm::new(Hosted::with_format(config).unwrap(), Tunables::default()).unwrap(), test);
}

/// Six GiB that are not zero. The home blocks of four CPUs begin in the first four, so that nobody takes small frames
/// in the last ones.
fn in_six_gib(test: impl Fn(&World<'_>)) {
    let config = Format::config().with_nr_cpus(4).with_arena_bytes(6 << 30).with_tlb_entries(64);
    in_vm(&Vm::new(Hosted::with_format(config.with_zeroed(false)).unwrap(), Tunables::default()).unwrap(), test);
}

/// Afterwards everything has to be back.
fn in_vm(vm: &Vm<Hosted>, test: impl Fn(&World<'_>)) {
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let before = vm.vmstat().nr_free_pages;
    {
        let space = vm.new_space().unwrap();
        test(&World { vm, cpu: &cpu, space: &space });
        check(vm, &[&space]);
    }
    check(vm, &[]);
    assert_eq!(vm.vmstat().nr_free_pages, before, "frames were lost or freed twice");
    assert_eq!(vm.machine().violations(), (0, None));
}

fn object<'vm>(w: &World<'vm>, nr_pages: u64, least: u8, most: u8) -> Object<'vm> {
    let orders = FolioOrders::new(Order(least), Order(most)).unwrap();
    w.vm.new_shared_object_of(nr_pages * PAGE, orders).unwrap()
}

/// By a fault or by the handle, anywhere in it; each page finds its frame and the one that speaks for it.
#[test]
fn a_gib_is_one_word() {
    in_gib(|w| {
        let object = object(w, 2 * NR, 0, 18);
        map(w.space, AT, 2 * NR, &object, 0);
        let before = nr_free(w);
        touch(w.space, AT + (NR + 77 * BLOCK) * PAGE).unwrap();
        let nr_tables = w.space.rss_pages().tables;
        assert_eq!(object.nr_resident_pages(), NR);
        assert!((NR + 1..=NR + 1 + nr_tables).contains(&(before - nr_free(w))), "a node, and tables");
        assert_eq!(object.next_resident(0..u64::MAX), Some(NR));
        for page in SOME {
            object.write((NR + page) * PAGE, &page.to_le_bytes()).unwrap();
            assert_eq!(bytes(w.space, AT + (NR + page) * PAGE), page.to_le_bytes());
        }
        let first = w.space.translate_at_rest(AT + NR * PAGE).unwrap().pfn;
        assert_eq!(u64::from(first.0) % NR, 0);
        for page in SOME {
            let frame = w.space.translate_at_rest(AT + (NR + page) * PAGE).unwrap().pfn;
            assert_eq!(u64::from(frame.0 - first.0), page);
        }
        assert_eq!(object.free_tail_descs(0), Err(TailDescsRefusal::NoFolio));
        check(w.vm, &[w.space]);
        w.space.munmap(AT, 2 * NR * PAGE).unwrap();
        drop(object);
        assert!(nr_free(w) >= before);
    });
}

/// The rest of it stays what it was. Nodes are what a cut takes, before anything is done: where there are none it
/// stays whole, and is zero where it should have gone.
#[test]
fn a_hole_cuts_it() {
    in_gib(|w| {
        let object = object(w, NR, 0, 18);
        map(w.space, AT, NR, &object, 0);
        SOME.iter().for_each(|page| object.write(page * PAGE, &page.to_be_bytes()).unwrap());
        SOME.iter().for_each(|page| touch(w.space, AT + page * PAGE).unwrap());
        let hole = 77 * BLOCK - 3..80 * BLOCK + 9;
        let is_right = || {
            for page in SOME {
                let expected = if hole.contains(&page) { 0 } else { page };
                assert_eq!(content(&object, page * PAGE), expected.to_be_bytes(), "{page}");
                assert_eq!(bytes(w.space, AT + page * PAGE), expected.to_be_bytes(), "{page}");
            }
        };
        let before = nr_free(w);
        for k in 0..3 {
            w.vm.fail_allocation(Some(k));
            object.discard(hole.clone());
            w.vm.fail_allocation(None);
            assert_eq!((object.nr_resident_pages(), nr_free(w)), (NR, before), "{k}");
            check(w.vm, &[w.space]);
        }
        is_right();
        object.discard(hole.clone());
        let nr = hole.end - hole.start;
        assert_eq!(object.nr_resident_pages(), NR - nr);
        assert_eq!(nr_free(w), before + nr - 3, "a node in its place, and one at each end");
        check(w.vm, &[w.space]);
        SOME.iter().filter(|page| !hole.contains(page)).for_each(|page| {
            assert_eq!(content(&object, page * PAGE), page.to_be_bytes());
        });
        // Freed pages come again, in pages of 2 MiB at most; the others are cut as before.
        touch(w.space, AT + 78 * BLOCK * PAGE).unwrap();
        assert_eq!(object.nr_resident_pages(), NR - nr + BLOCK);
        is_right();
        object.discard(0..NR);
        assert_eq!(object.nr_resident_pages(), 0);
        w.space.munmap(AT, NR * PAGE).unwrap();
    });
}

/// Whole, though it is larger than what leaves at once; an end of the object or of a range within it cuts it.
#[test]
fn it_leaves_whole() {
    in_gib(|w| {
        let object = object(w, NR + BLOCK, 0, 18);
        map(w.space, AT, NR + BLOCK, &object, 0);
        touch(w.space, AT).unwrap();
        touch(w.space, AT + NR * PAGE).unwrap();
        SOME.iter().for_each(|page| object.write(page * PAGE, &[9; 8]).unwrap());
        let before = nr_free(w);
        w.vm.fail_allocation(Some(0));
        object.discard(0..NR);
        w.vm.fail_allocation(None);
        assert_eq!((object.nr_resident_pages(), nr_free(w)), (BLOCK, before + NR));
        check(w.vm, &[w.space]);
        object.write(5 * PAGE, &[7; 8]).unwrap();
        assert_eq!(object.nr_resident_pages(), NR + BLOCK);
        SOME.iter().for_each(|page| assert_eq!(content(&object, page * PAGE), [0; 8], "the same frames"));
        object.set_size_bytes((BLOCK * 300 + 1) * PAGE);
        assert_eq!(object.nr_resident_pages(), 300 * BLOCK + 1);
        assert_eq!(content(&object, 5 * PAGE), [7; 8]);
        assert_eq!(touch(w.space, AT + NR * PAGE), Err(FaultError::BeyondObject));
        check(w.vm, &[w.space]);
        object.set_size_bytes(0);
        assert_eq!(object.nr_resident_pages(), 0);
        w.space.munmap(AT, (NR + BLOCK) * PAGE).unwrap();
    });
}

/// A pin of any page keeps all of it, and the last one gives it back.
#[test]
fn a_pin_keeps_it_whole() {
    in_gib(|w| {
        let object = object(w, NR, 0, 18);
        map(w.space, AT, NR, &object, 0);
        let [long, short] = [Term::Long, Term::Short].map(|term| w.space.pin_page_mut(AT + 77 * BLOCK * PAGE, term));
        let (long, short) = (long.unwrap(), short.unwrap());
        let before = nr_free(w);
        object.discard(5..9);
        assert_eq!((object.nr_resident_pages(), nr_free(w)), (NR, before));
        object.discard(0..NR);
        assert_eq!((object.nr_resident_pages(), nr_free(w)), (0, before));
        check(w.vm, &[w.space]);
        short.write(0, &[1; 8]);
        drop(short);
        assert_eq!(nr_free(w), before);
        drop(long);
        assert_eq!(nr_free(w), before + NR);
        w.space.munmap(AT, NR * PAGE).unwrap();
    });
}

/// No such memory, a hole in the only one, an object that is too small: a smaller page, or a refusal with a name.
#[test]
fn what_there_is_no_room_for_is_smaller_or_refused() {
    in_gib(|w| {
        assert_eq!(w.vm.remove_memory(section(11)), Ok(()));
        let [any, gib] = [0, 18].map(|least| object(w, NR, least, 18));
        map(w.space, AT, NR, &gib, 0);
        assert_eq!(touch(w.space, AT), Err(FaultError::OutOfFrames));
        let refused = gib.write(PAGE, &[1]);
        assert!(matches!(refused, Err(ObjectWriteError::OutOfFrames(_))), "{refused:?}");
        any.write(PAGE, &[1]).unwrap();
        assert_eq!((gib.nr_resident_pages(), any.nr_resident_pages()), (0, BLOCK));
        drop(any);
        check(w.vm, &[w.space]);
        assert_eq!(w.vm.add_memory(section(11)), Ok(()));
        // The least size may reach beyond the end; others may not.
        let small = object(w, NR - 1, 0, 18);
        small.write(0, &[1]).unwrap();
        assert_eq!(small.nr_resident_pages(), BLOCK);
        drop(small);
        gib.set_size_bytes((NR - 10) * PAGE);
        touch(w.space, AT).unwrap();
        assert_eq!(gib.nr_resident_pages(), NR);
        let second = object(w, NR, 18, 18);
        assert!(second.write(0, &[1]).is_err());
        gib.set_size_bytes(NR * PAGE);
        gib.write((NR - 1) * PAGE, &[1]).unwrap();
        // A part of the least size stays, and is zero.
        gib.discard(NR - 9..NR);
        assert_eq!((gib.nr_resident_pages(), content(&gib, (NR - 1) * PAGE)), (NR, [0]));
        check(w.vm, &[w.space]);
        w.space.munmap(AT, NR * PAGE).unwrap();
    });
}

/// Whatever allocation fails on the way to it, nothing is kept.
#[test]
fn the_kth_allocation_of_a_fill_fails() {
    in_gib(|w| {
        let gib = object(w, 1 << 30, 18, 18);
        map(w.space, AT, 2 * NR, &gib, NR * 600);
        for k in 0.. {
            let before = (nr_free(w), gib.nr_resident_pages());
            w.vm.fail_allocation(Some(k));
            let touched = touch(w.space, AT + 3 * PAGE);
            w.vm.fail_allocation(None);
            check(w.vm, &[w.space]);
            if touched.is_ok() {
                assert!(k >= 2, "a table, a node and the page");
                break;
            }
            // Folios that came so far stay: then the next one is refused.
            w.vm.fail_allocation(Some(0));
            assert_eq!(touch(w.space, AT + 3 * PAGE), Err(FaultError::OutOfFrames));
            w.vm.fail_allocation(None);
            assert_eq!((touched, gib.nr_resident_pages()), (Err(FaultError::OutOfFrames), 0));
            assert!(before.0 - nr_free(w) < 8, "tables and nodes that came");
        }
        w.space.munmap(AT, 2 * NR * PAGE).unwrap();
    });
}

/// Two faults and the handle want the same page, while a part of it is discarded, or the object becomes smaller. One
/// folio comes, and what is written stays.
#[test]
fn several_want_it_at_once() {
    type Change = fn(&Object<'_>);
    let changes: [Change; 4] = [
        |_| (),
        |object| object.discard(300 * BLOCK..310 * BLOCK),
        |object| object.set_size_bytes((NR - 3) * PAGE),
        |object| (0..20).for_each(|i| object.discard(300 * BLOCK + i..302 * BLOCK + i)),
    ];
    in_six_gib(|w| {
        for (round, change) in changes.into_iter().enumerate() {
            let object = object(w, NR, 0, 18);
            map(w.space, AT, NR, &object, 0);
            let store = |running: &Running<'_>, page: u64| {
                running.store(AT + page * PAGE, &page.to_le_bytes()).unwrap();
            };
            let first = |running: &Running<'_>, _: &AtomicBool| store(running, 100 * BLOCK);
            let second = |running: &Running<'_>, _: &AtomicBool| store(running, 200 * BLOCK);
            let is_written = AtomicBool::new(false);
            let write = |_: &Running<'_>, _: &AtomicBool| {
                object.write(7 * PAGE, &[7; 8]).unwrap();
                is_written.store(true, Ordering::SeqCst);
            };
            w.race(&[&first, &second, &write], |_| {
                change(&object);
                wait_until(|| is_written.load(Ordering::SeqCst));
            });
            for page in [100 * BLOCK, 200 * BLOCK] {
                assert_eq!(bytes(w.space, AT + page * PAGE), page.to_le_bytes(), "round {round}");
            }
            assert_eq!(content(&object, 7 * PAGE), [7; 8]);
            assert!(round > 0 || object.nr_resident_pages() == NR, "small pages were taken in its place");
            check(w.vm, &[w.space]);
            w.space.munmap(AT, NR * PAGE).unwrap();
        }
    });
}

/// M1: a fault in a notice panics before it has claimed a place, for which others would wait for ever.
#[test]
fn a_call_in_a_notice_claims_no_place() {
    let vm: &'static Vm<Hosted> = Box::leak(Box::new(Setup::PLAIN.vm(1, 32 << 20)));
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space: &'static Space<'static> = Box::leak(Box::new(vm.new_space().unwrap()));
    let orders = FolioOrders::new(Order::BASE, Order::PMD).unwrap();
    let object = vm.new_shared_object_of(BLOCK * PAGE, orders).unwrap();
    map(space, AT, BLOCK, &object, 0);
    // Tables and nodes are there.
    touch(space, AT).unwrap();
    object.discard(0..BLOCK);
    space.mmap(BASE, PAGE, RW, PRIVATE | FIXED).unwrap();
    space.write(BASE, b"x").unwrap();
    let subscription = space.subscribe();
    let tell = |_, _: &Notice| {
        assert!(catch_unwind(AssertUnwindSafe(|| touch(space, AT))).is_err());
        false
    };
    assert!(vm.machine().on_notice(Box::new(tell)).is_ok());
    space.madvise(BASE, PAGE, DONTNEED).unwrap();
    touch(space, AT).unwrap();
    assert_eq!(object.nr_resident_pages(), BLOCK);
    space.unsubscribe(subscription).unwrap();
    check(vm, &[space]);
}
