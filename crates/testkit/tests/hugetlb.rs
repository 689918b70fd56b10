//! Pools of huge pages: what they count, who gets the last page, and what comes back.
#![deny(unsafe_code)]

#[path = "hugetlb/allocate.rs"]
mod allocate;
mod common;
#[path = "hugetlb/demote.rs"]
mod demote;
#[path = "hugetlb/descs.rs"]
mod descs;
#[path = "hugetlb/entries.rs"]
mod entries;
#[path = "hugetlb/extremes.rs"]
mod extremes;
#[path = "hugetlb/gib.rs"]
mod gib;
#[path = "hugetlb/gib_private.rs"]
mod gib_private;
#[path = "hugetlb/holes.rs"]
mod holes;
#[path = "hugetlb/locks.rs"]
mod locks;
#[path = "hugetlb/moves.rs"]
mod moves;
#[path = "hugetlb/nodes.rs"]
mod nodes;
#[path = "hugetlb/of_both_sizes.rs"]
mod of_both_sizes;
#[path = "hugetlb/private.rs"]
mod private;
#[path = "hugetlb/private_file.rs"]
mod private_file;
#[path = "hugetlb/private_file_races.rs"]
mod private_file_races;
#[path = "hugetlb/remap_onto.rs"]
mod remap_onto;
#[path = "hugetlb/subpool.rs"]
mod subpool;
#[path = "hugetlb/surplus.rs"]
mod surplus;
#[path = "hugetlb/taken.rs"]
mod taken;
#[path = "hugetlb/unchanged.rs"]
mod unchanged;
#[path = "hugetlb/within.rs"]
mod within;

use common::objects::{Object, bytes, touch, whole};
use common::*;
use softfault::{
    CpuId, Errno, FaultError, HugetlbCounts, HugetlbError, MapFlags, MmapError, MremapFlags, ObjectWriteError, Order,
    TailDescsRefusal, Vm,
};
use softfault_testkit::formats::Tested;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

const AT: u64 = 0x20_0000_0000;
const HUGE: u64 = 512 * PAGE;
const SHARED: MapFlags = MapFlags::SHARED;
const ANON: MapFlags = SHARED.union(MapFlags::ANONYMOUS).union(MapFlags::HUGETLB);
const NORESERVE: MapFlags = MapFlags::NORESERVE;

fn counts(w: &World<'_>) -> HugetlbCounts {
    w.vm.hugetlb_counts(Order::PMD).unwrap()
}

/// Free and reserved pages.
fn free(w: &World<'_>) -> (u64, u64) {
    (counts(w).free, counts(w).reserved)
}

fn pool(w: &World<'_>, nr: u64) {
    assert_eq!(w.vm.set_nr_hugepages(Order::PMD, nr), Ok(nr));
}

fn object<'vm>(w: &World<'vm>, nr: u64) -> Object<'vm> {
    w.vm.new_hugetlb_object(nr * HUGE, Order::PMD).unwrap()
}

fn map(w: &World<'_>, at: u64, nr: u64, of: &Object<'_>, first: u64, more: MapFlags) -> Result<u64, MmapError>
where
{
    let part = whole(of).with_offset_bytes(first * HUGE);
    w.space.mmap_object(at, nr * HUGE, RW, SHARED | FIXED | more, part)
}

/// With a pool of so many pages, which is empty in the end.
fn with_pool(nr_cpus: usize, nr: u64, test: impl Fn(&World<'_>)) {
    in_each_setup(nr_cpus, 32 << 20, |w| {
        pool(w, nr);
        test(w);
        w.space.munmap(AT, 64 * HUGE).unwrap();
        // H9: nothing is lost, and nothing is promised.
        assert_eq!((counts(w).nr, free(w)), (nr, (nr, 0)));
        check(w.vm, &[w.space]);
        pool(w, 0);
    });
}

#[test]
fn a_mapping_reserves_and_a_fault_takes() {
    with_pool(1, 4, |w| {
        let shared = object(w, 3);
        assert_eq!(map(w, AT, 3, &shared, 0, NORESERVE), Ok(AT));
        assert_eq!(free(w), (4, 0), "MAP_NORESERVE");
        assert_eq!(map(w, AT + 4 * HUGE, 2, &shared, 0, MapFlags::empty()), Ok(AT + 4 * HUGE));
        assert_eq!(map(w, AT + 8 * HUGE, 3, &shared, 0, MapFlags::empty()), Ok(AT + 8 * HUGE));
        assert_eq!(free(w), (4, 3), "a page is reserved once");
        touch(w.space, AT + HUGE + 5).unwrap();
        assert_eq!(free(w), (3, 2), "with the reservation of another mapping");
        w.space.munmap(AT + 4 * HUGE, 2 * HUGE).unwrap();
        assert_eq!(free(w), (3, 2), "it is the object's");
        shared.write(2 * HUGE, b"x").unwrap();
        assert_eq!((free(w), bytes(w.space, AT + 10 * HUGE)), ((2, 1), [b'x']));
        check(w.vm, &[w.space]);
        shared.discard(0..1024);
        assert_eq!(free(w), (3, 1), "the page that was there; nobody has touched the other one");
        shared.set_size_bytes(0);
        assert_eq!(free(w), (4, 0));
    });
}

#[test]
fn what_cannot_be_reserved_is_refused_and_nothing_changes() {
    with_pool(1, 2, |w| {
        let shared = object(w, 8);
        assert_eq!(map(w, AT, 3, &shared, 0, MapFlags::empty()), Err(MmapError::NoHugePages));
        assert_eq!(MmapError::NoHugePages.errno(), Errno::ENOMEM);
        assert_eq!(free(w), (2, 0));
        map(w, AT, 8, &shared, 0, NORESERVE).unwrap();
        map(w, AT + 8 * HUGE, 1, &shared, 0, MapFlags::empty()).unwrap();
        touch(w.space, AT + HUGE).unwrap();
        assert_eq!(touch(w.space, AT + 2 * HUGE), Err(FaultError::NoHugePage), "the other one is promised");
        assert_eq!(shared.write(3 * HUGE, b"x"), Err(ObjectWriteError::NoHugePages));
        assert_eq!(touch(w.space, AT), Ok(()));
        assert_eq!(free(w), (0, 0));
        // Each step of the preparation may be refused its frame.
        shared.discard(0..8 * 512);
        let far = w.vm.new_hugetlb_object(1 << 50, Order::PMD).unwrap();
        for k in 0..6 {
            w.vm.fail_allocation(Some(k));
            let mapped = map(w, AT + 16 * HUGE, 1, &far, (1 << 28) + k * (1 << 9), MapFlags::empty());
            w.vm.fail_allocation(None);
            let nr = u64::from(mapped.is_ok());
            assert_eq!(free(w), (2, nr), "the {k}th");
            assert!(mapped.is_ok() || mapped.unwrap_err().errno() == Errno::ENOMEM);
            w.space.munmap(AT + 16 * HUGE, HUGE).unwrap();
            far.set_size_bytes(0);
            far.set_size_bytes(1 << 50);
            check(w.vm, &[w.space]);
        }
    });
}

/// The object ends with its mapping, and its reservations with it.
#[test]
fn anonymous_mappings() {
    with_pool(1, 3, |w| {
        let at = w.space.mmap(0, 3 * HUGE - 5, RW, ANON).unwrap();
        assert_eq!(free(w), (3, 3), "the length is rounded up");
        touch(w.space, at + HUGE).unwrap();
        assert_eq!((free(w), bytes(w.space, at + HUGE)), ((2, 2), [0]));
        w.space.write(at + HUGE, &[7; 8]).unwrap();
        let child = w.space.fork().unwrap();
        assert_eq!(bytes(&child, at + HUGE), [7; 8]);
        child.write(at, &[8]).unwrap();
        assert_eq!((free(w), bytes(w.space, at)), ((1, 1), [8]));
        w.space.munmap(at, 3 * HUGE).unwrap();
        assert_eq!(free(w), (1, 1));
        drop(child);
        assert_eq!(free(w), (3, 0), "with the claim to a page that nobody touched");
        let dirty = w.space.mmap(AT, 3 * HUGE, RW, ANON | FIXED).unwrap();
        (0..3).for_each(|i| assert_eq!(bytes(w.space, dirty + i * HUGE), [0; 16], "no old bytes"));
    });
}

/// H6: a pool that gets smaller keeps what is used or promised, as surplus.
#[test]
fn h6_a_smaller_pool_keeps_its_promises() {
    with_pool(1, 4, |w| {
        let shared = object(w, 3);
        map(w, AT, 3, &shared, 0, MapFlags::empty()).unwrap();
        touch(w.space, AT).unwrap();
        assert_eq!(w.vm.set_nr_hugepages(Order::PMD, 0), Ok(0));
        assert_eq!((counts(w).nr, counts(w).surplus, free(w)), (3, 3, (2, 2)));
        (0..3).for_each(|i| touch(w.space, AT + i * HUGE).unwrap());
        drop(shared);
        w.space.munmap(AT, 2 * HUGE).unwrap();
        assert_eq!(counts(w).nr, 3, "a mapping of the object is left");
        w.space.munmap(AT, 3 * HUGE).unwrap();
        assert_eq!((counts(w).nr, counts(w).surplus, free(w)), (0, 0, (0, 0)));
        let most = w.vm.set_nr_hugepages(Order::PMD, u64::MAX).unwrap();
        assert!((8..16).contains(&most), "as many as there is memory for: {most}");
        pool(w, 4);
    });
}

/// Two CPUs store to the page of a pool of one, in turn with `own`.
fn race_for_one_page(more: MapFlags, own: impl Fn(&World<'_>, &Object<'_>, &Running<'_>)) {
    with_pool(3, 1, |w| {
        let shared = object(w, 1);
        map(w, AT, 1, &shared, 0, more).unwrap();
        let until_stopped = |offset: u64| {
            move |running: &Running<'_>, stop: &AtomicBool| {
                while !stop.load(Relaxed) {
                    running.store(AT + offset, &[1u8]).unwrap();
                }
            }
        };
        w.race(&[&until_stopped(5 * PAGE), &until_stopped(HUGE - 1)], |running| {
            (0..200).for_each(|_| own(w, &shared, running));
        });
        shared.discard(0..512);
        assert_eq!(free(w), (1, 0));
    });
}

/// All who want the last page get it: the same one.
#[test]
fn h1_the_last_page() {
    for more in [MapFlags::empty(), NORESERVE] {
        race_for_one_page(more, |_, shared, running| {
            running.store(AT, &[1u8]).unwrap();
            shared.discard(0..512);
            running.store(AT + 7, &[1u8]).unwrap();
        });
    }
}

/// A touch gets a page again, and the pool has one all the time.
#[test]
fn h3_a_hole_under_stores() {
    race_for_one_page(NORESERVE, |w, shared, _| {
        shared.discard(0..512);
        assert_eq!(counts(w).nr, 1);
        assert!(shared.nr_resident_pages() <= 512);
    });
}

/// H4 and H6: a file that shrinks and grows, and a pool that does, while others fault.
#[test]
fn h4_truncate_and_resize_against_faults() {
    with_pool(3, 3, |w| {
        let shared = object(w, 2);
        map(w, AT, 2, &shared, 0, MapFlags::empty()).unwrap();
        let toucher = |running: &Running<'_>, stop: &AtomicBool| {
            while !stop.load(Relaxed) {
                running.store(AT, &[1u8]).unwrap();
                match running.space().handle_fault(AT + HUGE + 9, softfault::Access::Write) {
                    Ok(_) | Err(FaultError::BeyondObject) => {}
                    other => panic!("{other:?}"),
                }
            }
        };
        w.race(&[&toucher, &toucher], |_| {
            for i in 0..100 {
                shared.set_size_bytes(HUGE);
                assert!(shared.nr_resident_pages() <= 512);
                w.vm.set_nr_hugepages(Order::PMD, 2 + i % 3).unwrap();
                shared.set_size_bytes(2 * HUGE);
                let now = counts(w);
                // Nobody else sets the size: pages beyond it are surplus, at every moment.
                assert_eq!(now.nr - now.surplus, 2 + i % 3, "{now:?}");
            }
        });
        pool(w, 3);
    });
}

/// H7, and what else makes no sense.
#[test]
fn h7_bad_input() {
    with_pool(1, 1, |w| {
        let bad = |result: Result<u64, MmapError>, errno: Errno| assert_eq!(result.unwrap_err().errno(), errno);
        for order in [0, 8, 10, 17, 19, 255] {
            assert_eq!(w.vm.set_nr_hugepages(Order(order), 1), Err(HugetlbError::NoPool));
            assert_eq!(w.vm.set_nr_overcommit_hugepages(Order(order), 1), Err(HugetlbError::NoPool));
            assert_eq!(w.vm.hugetlb_counts(Order(order)).unwrap_err(), HugetlbError::NoPool);
            assert_eq!(w.vm.new_hugetlb_object(0, Order(order)).unwrap_err(), HugetlbError::NoPool);
        }
        assert_eq!(w.vm.new_hugetlb_object(HUGE + 1, Order::PMD).unwrap_err().errno(), Errno::EINVAL);
        let shared = w.vm.new_hugetlb_object(1 << 62, Order::PMD).unwrap();
        bad(map(w, AT, 1 << 42, &shared, 0, MapFlags::empty()), Errno::ENOMEM);
        bad(map(w, AT, 1, &shared, (1 << 42) - 1, MapFlags::empty()), Errno::EOVERFLOW);
        bad(map(w, AT + PAGE, 1, &shared, 0, MapFlags::empty()), Errno::EINVAL);
        let part = || whole(&shared);
        bad(w.space.mmap_object(AT, PAGE, RW, SHARED | FIXED, part()), Errno::EINVAL);
        bad(w.space.mmap_object(AT, HUGE, RW, SHARED | FIXED, part().with_offset_bytes(PAGE)), Errno::EINVAL);
        bad(w.space.mmap(0, 0, RW, ANON), Errno::EINVAL);
        bad(w.space.mmap(0, u64::MAX, RW, ANON), Errno::EINVAL);
        bad(w.space.mmap(0, HUGE.wrapping_neg(), RW, ANON), Errno::ENOMEM);
        bad(w.space.mmap(0, HUGE, RW, ANON | MapFlags::from_linux(20 << 26)), Errno::EINVAL);
        bad(w.space.mmap(0, 2 * HUGE, RW, ANON), Errno::ENOMEM);
        bad(w.space.mmap(0, HUGE, RW, ANON | MapFlags::HUGE_1GB), Errno::ENOMEM);
        assert_eq!(free(w), (1, 0));
        map(w, AT, 1, &shared, 1 << 40, MapFlags::empty()).unwrap();
        let grown = w.space.mremap(AT, HUGE, 2 * HUGE, MremapFlags::MAYMOVE, 0);
        assert_eq!(grown.unwrap_err().errno(), Errno::EINVAL);
        touch(w.space, AT).unwrap();
        let frame = frame_of(w.space, AT);
        assert_eq!(shared.free_tail_descs(1 << 49), Err(TailDescsRefusal::InPool));
        assert!(w.vm.poison_frame(frame).is_err());
    });
}

/// Sparse files are refused at once: no nodes are made for pages that no pool has.
#[test]
fn h7_more_pages_than_a_pool_can_have() {
    with_pool(1, 2, |w| {
        let before = w.vm.vmstat().nr_free_pages;
        let far = w.vm.new_hugetlb_object(u64::MAX / HUGE * HUGE, Order::PMD).unwrap();
        assert_eq!(map(w, AT, 1 << 14, &far, 0, MapFlags::empty()), Err(MmapError::NoHugePages));
        assert_eq!(far.reserve(0..u64::MAX), Err(HugetlbError::NoHugePages));
        assert_eq!((before - w.vm.vmstat().nr_free_pages, free(w)), (1, (2, 0)), "the object alone");
        // The last bytes that an offset can express.
        let end = far.size_bytes();
        assert_eq!(far.reserve((end - 1) / PAGE..u64::MAX), Ok(()));
        far.write(end - 9, &[7; 9]).unwrap();
        let mut last = [0; 2];
        assert_eq!((far.read(end - 2, &mut last), last, free(w)), (2, [7; 2], (1, 0)));
        far.set_size_bytes(end - HUGE);
        assert_eq!(free(w), (2, 0));
        check(w.vm, &[w.space]);
    });
}

/// The one page of 1 GiB, which is free, becomes 512 of 2 MiB, or stays what it is.
fn demote(vm: &Vm<Hosted>, space: &Space<'_>) {
    let of = |order| vm.hugetlb_counts(order).unwrap();
    let promised = space.mmap(0, 1 << 30, RW, ANON | MapFlags::HUGE_1GB).unwrap();
    assert_eq!((vm.demote_hugepages(1), of(Order::PMD).nr), (Ok(0), 0), "it is promised");
    space.munmap(promised, 1 << 30).unwrap();
    let before = vm.vmstat().nr_free_pages;
    for k in [0, 510] {
        vm.fail_allocation(Some(k));
        assert_eq!(vm.demote_hugepages(1).unwrap_err().errno(), Errno::ENOMEM);
        vm.fail_allocation(None);
        assert_eq!((of(Order::PUD).free, of(Order::PMD).nr, vm.vmstat().nr_free_pages), (1, 0, before));
        check(vm, &[space]);
    }
    assert_eq!(vm.demote_hugepages(3), Ok(1), "as many as there are");
    assert_eq!((of(Order::PUD).nr, of(Order::PMD).nr, of(Order::PMD).free), (0, 512, 512));
    assert_eq!(before - vm.vmstat().nr_free_pages, 511, "4 KiB of descriptors for each");
    check(vm, &[space]);
    let at = space.mmap(0, HUGE, RW, ANON).unwrap();
    touch(space, at + 7 * PAGE).unwrap();
    check(vm, &[space]);
    space.munmap(at, HUGE).unwrap();
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 0), Ok(0));
    check(vm, &[space]);
}

/// A pool of 1 GiB pages, in memory that is zero: nothing is cleared.
#[test]
fn pages_of_1_gib() {
    let config = Format::config().with_nr_cpus(1).with_arena_bytes(2 << 30).with_tlb_entries(64);
    let vm = softfault::Vm::new(Hosted::with_format(config).unwrap(), softfault::Tunables::default()).unwrap();
    let cpu = vm.machine().bind(CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    let before = vm.vmstat().nr_free_pages;
    assert_eq!(vm.set_nr_hugepages(Order::PUD, 5), Ok(1), "as many as there is memory for");
    assert_eq!(before - vm.vmstat().nr_free_pages, (1 << 18) - 2047, "4 KiB of descriptors stay");
    let of = || vm.hugetlb_counts(Order::PUD).unwrap();
    let at = space.mmap(0, 1 << 30, RW, ANON | MapFlags::HUGE_1GB).unwrap();
    assert_eq!((of().free, of().reserved), (1, 1));
    let running = cpu.enter(&space).unwrap();
    running.store(at + (700 << 20), &[7u8]).unwrap();
    drop(running);
    assert_eq!((of().free, bytes(&space, at + (700 << 20))), (0, [7, 0]));
    check(&vm, &[&space]);
    space.munmap(at, 1 << 30).unwrap();
    assert_eq!((of().nr, of().free, of().reserved), (1, 1, 0));
    let full = vm.vmstat().nr_free_pages;
    vm.fail_allocation(Some(2046));
    assert_eq!(vm.set_nr_hugepages(Order::PUD, 0).unwrap_err().errno(), Errno::ENOMEM);
    vm.fail_allocation(None);
    assert_eq!((of().nr, of().free, of().surplus), (1, 1, 0));
    check(&vm, &[&space]);
    assert_eq!(vm.set_nr_hugepages(Order::PUD, 0), Ok(0));
    assert_eq!(vm.vmstat().nr_free_pages - full, (1 << 18) - 2047);
    assert_eq!(vm.set_nr_hugepages(Order::PUD, 1), Ok(1));
    demote(&vm, &space);
    drop(space);
    check(&vm, &[]);
}
