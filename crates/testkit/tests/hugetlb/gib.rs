//! Pages of 1 GiB: one entry of level 2 each, shared or private, with all that pages of 2 MiB have. Memory that is never stored
//! to is not there, so most of these tests store to few pages, and copy a page where nothing else shows it.

use super::common::objects::{Object, bytes, touch, whole};
use super::common::*;
use super::of_both_sizes::refusals_to_cut;
use super::{AT, HUGE};
use softfault::{Access, Errno, FaultError, MapFlags, MlockFlags, MmapError, Order, Term};
use softfault_testkit::formats::Tested;

pub const GIB: u64 = 1 << 30;
pub const NR: u64 = 1 << 18;
const SHARED: MapFlags = MapFlags::SHARED;
const OF_GIB: MapFlags = MapFlags::ANONYMOUS.union(MapFlags::HUGETLB).union(MapFlags::HUGE_1GB).union(FIXED);
const ANON: MapFlags = SHARED.union(OF_GIB);
pub const OWN: MapFlags = MapFlags::PRIVATE.union(OF_GIB);
pub const TO: u64 = AT + 8 * GIB;

/// Free and reserved pages.
pub fn free(w: &World<'_>) -> (u64, u64) {
    let counts = w.vm.hugetlb_counts(Order::PUD).unwrap();
    (counts.free, counts.reserved)
}

pub fn order_at(space: &Space<'_>, at: u64) -> Option<Order> {
    space.page_state(at).map(|state| state.order)
}

pub fn file<'vm>(w: &World<'vm>, nr: u64) -> Object<'vm> {
    w.vm.new_hugetlb_object(nr * GIB, Order::PUD).unwrap()
}

pub fn map(w: &World<'_>, at: u64, nr: u64, of: &Object<'_>, more: MapFlags) -> Result<u64, MmapError> {
    w.space.mmap_object(at, nr * GIB, RW, FIXED | more, whole(of))
}

/// With a pool of so many pages, which is empty in the end.
pub fn with_pool(nr_cpus: usize, nr: u64, test: impl Fn(&World<'_>)) {
    in_setup(Setup::PLAIN, nr_cpus, (nr + 1) << 30, |w| {
        assert_eq!(w.vm.set_nr_hugepages(Order::PUD, nr), Ok(nr));
        test(w);
        w.space.munmap(AT, 16 * GIB).unwrap();
        let counts = w.vm.hugetlb_counts(Order::PUD).unwrap();
        assert_eq!((counts.nr, counts.free, counts.reserved), (nr, nr, 0), "H9");
        check(w.vm, &[w.space]);
        assert_eq!(w.vm.set_nr_hugepages(Order::PUD, 0), Ok(0));
    });
}

#[test]
fn a_page_is_one_entry() {
    for flags in [ANON, OWN] {
        with_pool(1, 2, |w| {
            let at = w.space.mmap(AT, 2 * GIB, RW, flags).unwrap();
            touch(w.space, at + 700 * HUGE / 2 + 5 * PAGE).unwrap();
            let rss = w.space.rss_pages();
            assert_eq!((rss.shmem + rss.anon, rss.anon_huge, rss.tables), (NR, 0, 1), "one table below the root");
            assert_eq!(
                [at, at + GIB - 1, at + GIB].map(|at| order_at(w.space, at)),
                [Some(Order::PUD), Some(Order::PUD), None]
            );
            check(w.vm, &[w.space]);
            // No table, no deposit: the second page needs no frame at all.
            w.vm.fail_allocation(Some(0));
            w.space.handle_fault(at + 2 * GIB - 1, Access::Read).unwrap();
            w.vm.fail_allocation(None);
            let running = w.cpu.enter(w.space).unwrap();
            running.store(at + GIB + 600 * HUGE / 2 + 7, &[9u8]).unwrap();
            drop(running);
            assert_eq!(bytes(w.space, at + GIB + 600 * HUGE / 2 + 6), [0, 9, 0]);
            let mut smaps = Vec::new();
            w.space.smaps(&mut |entry| smaps.push((entry.rss_pages, entry.anon_pages, entry.anon_huge_pages)));
            assert_eq!(smaps, [(2 * NR, w.space.rss_pages().anon, 0)]);
            let mut resident = Vec::new();
            w.space.mincore(at + PAGE, 2 * GIB - PAGE, &mut |nr, is_in| resident.push((nr, is_in))).unwrap();
            assert_eq!(resident, [(2 * NR - 1, true)]);
            assert_eq!((w.space.test_and_clear_young(at + GIB, PAGE), w.space.test_young(at, 2 * GIB)), (NR, NR));
            assert_eq!((w.space.age_pages(at, 2).nr_young, w.space.test_young(at, 2 * GIB)), (NR, 0));
            check(w.vm, &[w.space]);
            // A shared page is the object's, which the other one keeps.
            let nr_freed = u64::from(flags == OWN);
            assert_eq!((w.space.munmap(at + GIB, GIB), free(w)), (Ok(()), (nr_freed, 0)));
        });
    }
}

/// A first touch may be refused the tables above, and then keeps nothing.
#[test]
fn each_frame_of_a_fault_may_be_refused() {
    for flags in [ANON, OWN] {
        with_pool(1, 1, |w| {
            w.space.mmap(AT, GIB, RW, flags).unwrap();
            let nr_refused = (0..)
                .take_while(|k| {
                    w.vm.fail_allocation(Some(*k));
                    let touched = touch(w.space, AT + GIB - 1);
                    w.vm.fail_allocation(None);
                    check(w.vm, &[w.space]);
                    assert!(touched.is_ok() || (touched, free(w)) == (Err(FaultError::OutOfFrames), (1, 1)), "{k}");
                    touched.is_err()
                })
                .count();
            assert_ne!(nr_refused, 0);
        });
    }
}

/// Tables of what was mapped before are gone, of both levels: or the page would be 512 entries.
#[test]
fn what_was_mapped_before_leaves_no_table() {
    with_pool(1, 1, |w| {
        for flags in [ANON, OWN] {
            w.space.mmap(AT - GIB, 3 * GIB, RW, PRIVATE | FIXED).unwrap();
            for at in [AT - PAGE, AT, AT + GIB / 2, AT + GIB] {
                touch(w.space, at).unwrap();
            }
            w.space.mmap(AT, GIB, RW, flags).unwrap();
            check(w.vm, &[w.space]);
            touch(w.space, AT + PAGE).unwrap();
            assert_eq!(
                [AT - PAGE, AT, AT + GIB].map(|at| order_at(w.space, at)),
                [Order::BASE, Order::PUD, Order::BASE].map(Some)
            );
            w.space.munmap(AT - GIB, GIB).unwrap();
            w.space.munmap(AT + GIB, GIB).unwrap();
            check(w.vm, &[w.space]);
            w.space.mmap(AT, GIB, RW, PRIVATE | FIXED).unwrap();
            assert_eq!((free(w), touch(w.space, AT), order_at(w.space, AT)), ((1, 0), Ok(()), Some(Order::BASE)));
            // The rest of the range of a hole is no table, either.
            w.space.mmap(AT + HUGE, HUGE, RW, SHARED | MapFlags::ANONYMOUS | FIXED).unwrap();
            touch(w.space, AT + HUGE).unwrap();
            for at in [AT + HUGE, AT + 2 * HUGE, AT] {
                w.space.munmap(at, HUGE).unwrap();
            }
            w.space.munmap(AT + 2 * HUGE, GIB - 2 * HUGE).unwrap();
            check(w.vm, &[w.space]);
        }
    });
}

/// Calls that would cut a page are refused, also at its 2 MiB.
#[test]
fn pages_are_not_cut() {
    for flags in [ANON, OWN] {
        with_pool(1, 2, |w| {
            let space = w.space;
            space.mmap(AT, 2 * GIB, RW, flags).unwrap();
            touch(space, AT).unwrap();
            touch(space, AT + GIB).unwrap();
            for (from, len) in [(AT, HUGE), (AT + HUGE, 2 * GIB - HUGE), (AT + GIB, GIB / 2), (AT + HUGE, HUGE)] {
                let refused = refusals_to_cut(space, from, len, (GIB, TO));
                assert_eq!(refused, [Errno::EINVAL; 7], "{from:#x} {len:#x}");
            }
            assert_eq!(space.madvise(AT + HUGE, GIB, DONTNEED).unwrap_err().errno(), Errno::EINVAL);
            assert_eq!((space.madvise(AT, GIB + HUGE, DONTNEED), order_at(space, AT)), (Ok(()), None));
            assert_eq!(order_at(space, AT + GIB), Some(Order::PUD), "the end is rounded down");
            let aside = space.mremap(AT, GIB, GIB, MAYMOVE | MREMAP_FIXED, TO + HUGE);
            assert_eq!(aside.unwrap_err().errno(), Errno::EINVAL);
            space.mlock(AT + PAGE, HUGE, MlockFlags::empty()).unwrap();
            assert_eq!((space.nr_locked_pages(), order_at(space, AT)), (0, Some(Order::PUD)));
            assert_eq!((space.mprotect(AT, GIB, READ), touch(space, AT)), (Ok(()), Err(FaultError::NoRights)));
            assert_eq!((space.mprotect(AT, GIB, RW), touch(space, AT + GIB - 1)), (Ok(()), Ok(())));
            check(w.vm, &[space]);
        });
    }
}

/// A page that leaves its object takes its entries with it, in every space; one with a pin stays until that goes.
#[test]
fn a_page_leaves_with_its_entries() {
    with_pool(1, 2, |w| {
        let (shared, other) = (file(w, 2), w.vm.new_space().unwrap());
        map(w, AT, 2, &shared, SHARED).unwrap();
        other.mmap_object(TO, 2 * GIB, RW, SHARED | FIXED, whole(&shared)).unwrap();
        w.space.write(AT + GIB + 3, &[7]).unwrap();
        assert_eq!((bytes(&other, TO + GIB + 3), order_at(&other, TO + GIB)), ([7], Some(Order::PUD)));
        let pin = w.space.pin_page_mut(AT + GIB + 900 * HUGE / 2, Term::Short).unwrap();
        assert_eq!(pin.order(), Order::PUD);
        check(w.vm, &[w.space, &other]);
        shared.discard(NR..2 * NR);
        assert_eq!((w.space.rss_pages().shmem, other.rss_pages().shmem, order_at(w.space, AT + GIB)), (0, 0, None));
        assert_eq!(free(w).0, 1, "the pin has it");
        drop(pin);
        assert_eq!((free(w).0, bytes(&other, TO + GIB + 3)), (2, [0]));
        check(w.vm, &[w.space, &other]);
    });
}

/// H7: a processor that has no such entries maps no such pages; files of them can be read and written.
#[test]
fn h7_no_entries_of_that_size() {
    let config = Format::config().with_arena_bytes(2 << 30).with_top_leaf(1);
    let vm = softfault::Vm::new(Hosted::with_format(config).unwrap(), softfault::Tunables::default()).unwrap();
    let _cpu = vm.machine().bind(softfault::CpuId(0)).unwrap();
    let space = vm.new_space().unwrap();
    assert_eq!(vm.set_nr_hugepages(Order::PUD, 1), Ok(1));
    let file = vm.new_hugetlb_object(GIB, Order::PUD).unwrap();
    for kind in [SHARED, MapFlags::PRIVATE] {
        assert_eq!(space.mmap(AT, GIB, RW, kind | OF_GIB), Err(MmapError::NoEntriesOfSize));
        assert_eq!(space.mmap_object(AT, GIB, RW, kind | FIXED, whole(&file)), Err(MmapError::NoEntriesOfSize));
    }
    assert_eq!((MmapError::NoEntriesOfSize.errno(), space.nr_vmas()), (Errno::EINVAL, 0));
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 1), Ok(1));
    let at = space.mmap(0, HUGE, RW, SHARED | MapFlags::ANONYMOUS | MapFlags::HUGETLB).unwrap();
    assert_eq!((touch(&space, at), order_at(&space, at), file.write(5, b"x")), (Ok(()), Some(Order::PMD), Ok(())));
    check(&vm, &[&space]);
}
