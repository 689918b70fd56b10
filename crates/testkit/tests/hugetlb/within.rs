//! Calls that begin or end within a page of a pool, of both sizes.

use super::common::objects::{EXTRA, bytes, whole};
use super::common::*;
use super::of_both_sizes::told_ranges;
use super::{AT, HUGE, gib};
use softfault::{MapFlags, Order, PageRange, Vpn};

/// One size of pages.
struct Size {
    bytes: u64,
    order: Order,
    /// Of a private mapping.
    own: MapFlags,
}

impl Size {
    /// Free and reserved pages.
    fn free(&self, w: &World<'_>) -> (u64, u64) {
        let counts = w.vm.hugetlb_counts(self.order).unwrap();
        (counts.free, counts.reserved)
    }
}

/// With a pool of so many pages of 2 MiB, and of 1 GiB.
fn with_each_size(nr: u64, test: impl Fn(&World<'_>, &Size)) {
    let own = PRIVATE | FIXED | MapFlags::ANONYMOUS | MapFlags::HUGETLB;
    super::with_pool(1, nr, |w| test(w, &Size { bytes: HUGE, order: Order::PMD, own }));
    gib::with_pool(1, nr, |w| test(w, &Size { bytes: gib::GIB, order: Order::PUD, own: gib::OWN }));
}

/// The mapping may only be read: a first touch, a page that is there, one that fork(2) shared, and one that shows the object.
#[test]
fn a_forced_store_within_a_page() {
    with_each_size(3, |w, size| {
        let (first, last) = (AT + 5 * PAGE + 8, AT + size.bytes - 8);
        w.space.mmap(AT, size.bytes, READ, size.own).unwrap();
        for at in [first, last] {
            w.space.write_forced(at, &[1; 8]).unwrap();
            assert_eq!((bytes(w.space, at), size.free(w)), ([1; 8], (2, 0)));
        }
        let child = w.space.fork().unwrap();
        assert_eq!(size.free(w), (2, 0));
        child.write_forced(first, &[2]).unwrap();
        assert_eq!((bytes(&child, first), bytes(w.space, first), size.free(w)), ([2, 1], [1, 1], (1, 0)));
        w.space.write_forced(last, &[3]).unwrap();
        assert_eq!((bytes(w.space, last), bytes(&child, last), size.free(w)), ([3, 1], [1, 1], (1, 0)));
        check(w.vm, &[w.space, &child]);
        drop(child);
        w.space.munmap(AT, size.bytes).unwrap();
        let file = w.vm.new_hugetlb_object(size.bytes, size.order).unwrap();
        file.write(last - AT, &[4; 8]).unwrap();
        w.space.mmap_object(AT, size.bytes, READ, PRIVATE | FIXED, whole(&file)).unwrap();
        assert_eq!((bytes(w.space, last), size.free(w)), ([4; 8], (2, 1)));
        w.space.write_forced(last, &[5]).unwrap();
        let mut now = [0; 2];
        file.read(last - AT, &mut now);
        assert_eq!((bytes(w.space, last), now, size.free(w)), ([5, 4], [4, 4], (1, 0)));
        check(w.vm, &[w.space]);
        w.space.mmap_object(AT, size.bytes, READ, MapFlags::SHARED | FIXED, whole(&file)).unwrap();
        assert_eq!(bytes(w.space, last), [4; 8]);
        w.space.write_forced(last, &[6]).unwrap_err();
        w.space.mmap_object(AT, size.bytes, RW, MapFlags::SHARED | FIXED, whole(&file)).unwrap();
        w.space.write_forced(last, &[7]).unwrap();
        file.read(last - AT, &mut now);
        assert_eq!((bytes(w.space, last), now), ([7, 4], [7, 4]));
    });
}

/// Counts the part from there on, and no entry is split; also where the place has lost its page, and beyond the first 2 MiB.
#[test]
fn a_report_that_begins_within_a_page() {
    with_each_size(2, |w, size| {
        let nr = size.bytes / PAGE;
        let shared = (size.own - MapFlags::PRIVATE) | MapFlags::SHARED;
        for flags in [size.own, shared] {
            w.space.mmap(AT, 2 * size.bytes, RW, flags).unwrap();
            [AT, AT + size.bytes].iter().for_each(|at| w.space.write(*at, &[1]).unwrap());
            for (first, rss) in [(3, 2 * nr - 3), (nr - 1, nr + 1), (nr + 5, nr - 5), (2 * nr - 1, 1)] {
                let report = w.space.next_smaps(AT + first * PAGE).unwrap();
                let anon = if flags == size.own { rss } else { 0 };
                assert_eq!((report.vma.range.nr_pages(), report.page_order), (2 * nr - first, size.order));
                assert_eq!((report.rss_pages, report.anon_pages, report.dirty_pages), (rss, anon, rss), "{first}");
            }
            check(w.vm, &[w.space]);
            w.space.munmap(AT, 2 * size.bytes).unwrap();
        }
        w.space.mmap(AT, 2 * size.bytes, RW, size.own).unwrap();
        [AT, AT + size.bytes].iter().for_each(|at| w.space.write(*at, &[1]).unwrap());
        let child = w.space.fork().unwrap();
        assert_eq!(child.next_smaps(AT + PAGE).unwrap().rss_pages, 2 * nr - 1, "shared");
        [AT, AT + size.bytes].iter().for_each(|at| w.space.write(*at, &[2]).unwrap());
        assert_eq!(child.next_smaps(AT + PAGE).unwrap().rss_pages, 0, "lost pages");
    });
}

/// The mappings change while a report is under way: it goes on within a page.
#[test]
fn a_report_goes_on_within_a_page() {
    with_each_size(1, |w, size| {
        w.space.mmap(AT, PAGE, RW, PRIVATE | FIXED).unwrap();
        let mut seen = Vec::new();
        w.space.smaps(&mut |entry| {
            seen.push((entry.vma.range.start.addr(), entry.rss_pages));
            if seen.len() == 1 {
                w.space.mmap(AT, size.bytes, RW, size.own).unwrap();
                w.space.write(AT, &[1]).unwrap();
            }
        });
        assert_eq!(seen, [(AT, 0), (AT + PAGE, size.bytes / PAGE - 1)]);
        check(w.vm, &[w.space]);
    });
}

/// The pages of a pool are counted where `rss_pages` counts them: own copies as private pages.
#[test]
fn resident_pages_of_pools_are_of_two_kinds() {
    with_each_size(1, |w, size| {
        let nr = size.bytes / PAGE;
        let resident = || {
            let (rss, of_pools) = (w.rss(), w.space.hugetlb_rss_pages());
            assert!(rss.anon >= of_pools.anon && rss.shmem >= of_pools.shmem);
            (of_pools.anon, of_pools.shmem, rss.anon - of_pools.anon, rss.shmem - of_pools.shmem)
        };
        w.map(EXTRA, 2, RW);
        w.space.write(EXTRA, &[1]).unwrap();
        w.space.mmap(AT, size.bytes, RW, size.own).unwrap();
        assert_eq!(resident(), (0, 0, 1, 0));
        w.space.write(AT, &[1]).unwrap();
        assert_eq!(resident(), (nr, 0, 1, 0));
        w.space.munmap(AT, size.bytes).unwrap();
        w.space.mmap(AT, size.bytes, RW, SHARED | size.own.difference(MapFlags::PRIVATE)).unwrap();
        w.space.write(AT, &[1]).unwrap();
        assert_eq!(resident(), (0, nr, 1, 0));
    });
}

/// Subscribers are told of all that goes.
#[test]
fn a_part_that_was_touched_is_told_as_a_whole() {
    with_each_size(2, |w, size| {
        let nr = size.bytes / PAGE;
        let told = told_ranges(w);
        let file = w.vm.new_hugetlb_object(2 * size.bytes, size.order).unwrap();
        w.space.mmap_object(AT, 2 * size.bytes, RW, MapFlags::SHARED | FIXED, whole(&file)).unwrap();
        let subscription = w.space.subscribe();
        for (part, first, nr_told) in [(3..8, 0, 1), (nr - 1..nr, 0, 1), (nr + 4..nr + 5, 1, 1), (nr - 1..nr + 1, 0, 2)]
        {
            [AT, AT + size.bytes].iter().for_each(|at| w.space.write(*at, &[1]).unwrap());
            told.lock().unwrap().clear();
            let mut runs = Vec::new();
            file.touched(part.clone(), &mut |run| runs.push(run));
            assert_eq!(runs, std::slice::from_ref(&part));
            let whole = PageRange::sized(Vpn(AT / PAGE + first * nr), nr_told * nr).unwrap();
            let told = told.lock().unwrap();
            let ends = (told.first().map(|range| range.start), told.last().map(|range| range.end));
            assert_eq!(ends, (Some(whole.start), Some(whole.end)), "{part:?} {told:?}");
        }
        drop(subscription);
        check(w.vm, &[w.space]);
    });
}
