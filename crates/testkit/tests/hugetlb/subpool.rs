//! Subpools: the files of one hugetlbfs, with a largest size and a smallest one.

use super::*;
use softfault::{HugetlbSubpool, SubpoolLimits};
use softfault_host::Hosted;

pub type Subpool<'vm> = HugetlbSubpool<'vm, Hosted>;

fn limits(most: Option<u64>, least: u64) -> SubpoolLimits {
    SubpoolLimits::default().with_most(most).with_least(least)
}

pub fn subpool<'vm>(w: &World<'vm>, most: Option<u64>, least: u64) -> Subpool<'vm> {
    w.vm.new_hugetlb_subpool(Order::PMD, limits(most, least)).unwrap()
}

#[test]
fn h11_a_subpool_has_its_most_and_no_more() {
    with_pool(1, 4, |w| {
        let few = subpool(w, Some(2), 0);
        let (one, two) = (few.new_object(4 * HUGE).unwrap(), few.new_object(4 * HUGE).unwrap());
        assert_eq!((few.order(), few.limits(), few.nr_used()), (Order::PMD, limits(Some(2), 0), 0));
        assert_eq!(map(w, AT, 3, &one, 0, MapFlags::empty()), Err(MmapError::SubpoolFull));
        assert_eq!((free(w), few.nr_used(), MmapError::SubpoolFull.errno()), ((4, 0), 0, Errno::ENOMEM));
        map(w, AT, 1, &one, 0, MapFlags::empty()).unwrap();
        map(w, AT + 8 * HUGE, 4, &two, 0, NORESERVE).unwrap();
        assert_eq!((free(w), few.nr_used()), ((4, 1), 1));
        touch(w.space, AT + 8 * HUGE).unwrap();
        assert_eq!(touch(w.space, AT + 9 * HUGE), Err(FaultError::SubpoolFull), "one is promised to the other file");
        assert_eq!(two.write(HUGE, b"x"), Err(ObjectWriteError::SubpoolFull));
        assert_eq!(two.reserve(0..1024), Err(HugetlbError::SubpoolFull));
        assert_eq!((free(w), few.nr_used()), ((3, 1), 2));
        touch(w.space, AT).unwrap();
        assert_eq!((free(w), few.nr_used()), ((2, 0), 2));
        check(w.vm, &[w.space]);
        two.discard(0..512);
        assert_eq!((free(w), few.nr_used()), ((3, 0), 1));
        touch(w.space, AT + 9 * HUGE).unwrap();
        // Others have all of the pool.
        let other = object(w, 2);
        map(w, AT + 16 * HUGE, 2, &other, 0, MapFlags::empty()).unwrap();
        one.set_size_bytes(0);
        assert_eq!((free(w), few.nr_used()), ((3, 2), 1));
        // The mapping and its page outlive all handles.
        drop((one, two, few));
        check(w.vm, &[w.space]);
        assert_eq!(bytes(w.space, AT + 9 * HUGE), [0]);
    });
}

#[test]
fn h11_the_least_of_a_subpool_is_promised() {
    with_pool(1, 4, |w| {
        assert_eq!(w.vm.new_hugetlb_subpool(Order::PMD, limits(None, 5)).err(), Some(HugetlbError::NoHugePages));
        assert_eq!(w.vm.new_hugetlb_subpool(Order::PMD, limits(Some(1), 2)).err(), Some(HugetlbError::LeastAboveMost));
        assert_eq!(w.vm.new_hugetlb_subpool(Order(3), limits(None, 0)).err(), Some(HugetlbError::NoPool));
        let much = subpool(w, None, 2);
        assert_eq!(free(w), (4, 2));
        let (one, other) = (much.new_object(4 * HUGE).unwrap(), object(w, 4));
        assert_eq!(much.new_object(5).err(), Some(HugetlbError::SizeUnaligned));
        assert_eq!(map(w, AT, 3, &other, 0, MapFlags::empty()), Err(MmapError::NoHugePages));
        map(w, AT, 2, &other, 0, MapFlags::empty()).unwrap();
        // Promised once: to the subpool, then to the mapping, then there.
        map(w, AT + 8 * HUGE, 4, &one, 0, NORESERVE).unwrap();
        one.reserve(0..512).unwrap();
        assert_eq!((free(w), much.nr_used()), ((4, 4), 1));
        touch(w.space, AT + 8 * HUGE).unwrap();
        touch(w.space, AT + 9 * HUGE).unwrap();
        assert_eq!((free(w), much.nr_used()), ((2, 2), 2));
        assert_eq!(touch(w.space, AT + 10 * HUGE), Err(FaultError::NoHugePage), "beyond the least it asks the pool");
        check(w.vm, &[w.space]);
        one.write(5, b"x").unwrap();
        one.discard(0..512);
        assert_eq!(free(w), (3, 3), "it is the subpool's again");
        assert_eq!(map(w, AT + 2 * HUGE, 1, &other, 2, MapFlags::empty()), Err(MmapError::NoHugePages));
        other.set_size_bytes(0);
        (0..4).for_each(|n| touch(w.space, AT + (8 + n) * HUGE).unwrap());
        assert_eq!((free(w), much.nr_used()), ((0, 0), 4));
        assert!((0..4).all(|n| bytes(w.space, AT + (8 + n) * HUGE + 5) == [0]), "no old bytes");
        one.set_size_bytes(HUGE);
        assert_eq!(free(w), (3, 1));
        check(w.vm, &[w.space]);
        drop(much);
        assert_eq!(free(w), (3, 1), "a file of it is there");
        w.space.munmap(AT + 8 * HUGE, 4 * HUGE).unwrap();
        drop(one);
        assert_eq!(free(w), (4, 0));
    });
}

/// A surplus page to which the subpool has a claim stays.
#[test]
fn h11_the_least_may_be_surplus_pages() {
    with_pool(1, 1, |w| {
        w.vm.set_nr_overcommit_hugepages(Order::PMD, 2).unwrap();
        let much = subpool(w, Some(3), 2);
        let now = counts(w);
        assert_eq!((now.nr, now.free, now.reserved, now.surplus), (2, 2, 2, 1));
        let one = much.new_object(3 * HUGE).unwrap();
        map(w, AT, 3, &one, 0, MapFlags::empty()).unwrap();
        (0..3).for_each(|n| touch(w.space, AT + n * HUGE).unwrap());
        let report = w.space.next_smaps(AT).unwrap();
        assert_eq!((report.page_order, report.rss_pages, w.space.hugetlb_rss_pages().shmem), (Order::PMD, 1536, 1536));
        assert_eq!((counts(w).nr, counts(w).surplus), (3, 2));
        one.discard(0..1536);
        let now = counts(w);
        assert_eq!((now.nr, now.free, now.reserved, now.surplus), (2, 2, 2, 1));
        check(w.vm, &[w.space]);
        w.space.munmap(AT, 3 * HUGE).unwrap();
        drop((one, much));
        assert_eq!((counts(w).nr, counts(w).surplus), (1, 0));
        w.vm.set_nr_overcommit_hugepages(Order::PMD, 0).unwrap();
    });
}

/// Each step of the preparation may be refused its frame.
#[test]
fn h11_a_refused_frame_leaves_no_subpool() {
    with_pool(1, 2, |w| {
        for k in 0..4 {
            w.vm.fail_allocation(Some(k));
            let made = w.vm.new_hugetlb_subpool(Order::PMD, limits(None, 1));
            let object = made.as_ref().ok().map(|made| made.new_object(HUGE));
            w.vm.fail_allocation(None);
            assert_eq!(free(w), (2, u64::from(made.is_ok())), "the {k}th");
            assert!(made.is_ok() || matches!(made, Err(HugetlbError::OutOfFrames(_))));
            assert!(object.is_none_or(|object| object.is_ok() || matches!(object, Err(HugetlbError::OutOfFrames(_)))));
            check(w.vm, &[w.space]);
            drop(made);
            assert_eq!(free(w), (2, 0));
        }
        assert!(w.vm.new_hugetlb_subpool(Order::PMD, limits(None, 3)).is_err());
        check(w.vm, &[w.space]);
    });
}

/// Two files of one page each, with room for two; the rest of the pool is another's. Nobody is ever refused.
#[test]
fn h11_nobody_is_refused_what_another_gives_back() {
    for (most, least) in [(Some(2), 0), (Some(2), 2), (None, 1), (Some(2), 1)] {
        with_pool(3, 3, |w| {
            let shared = subpool(w, most, least);
            let files = [shared.new_object(HUGE).unwrap(), shared.new_object(HUGE).unwrap()];
            let other = object(w, 1);
            for (n, file) in (0..).zip(files.iter().chain([&other])) {
                map(w, AT + n * HUGE, 1, file, 0, NORESERVE).unwrap();
            }
            let toucher = |n: usize| {
                let (file, at) = (&files[n], AT + n as u64 * HUGE);
                move |running: &Running<'_>, stop: &AtomicBool| {
                    while !stop.load(Relaxed) {
                        running.store(at, &[1u8]).unwrap();
                        file.discard(0..512);
                        file.reserve(0..512).unwrap();
                        file.set_size_bytes(0);
                        file.set_size_bytes(HUGE);
                    }
                }
            };
            w.race(&[&toucher(0), &toucher(1)], |running| {
                for _ in 0..200 {
                    running.store(AT + 2 * HUGE, &[1u8]).unwrap();
                    other.discard(0..512);
                    assert!(shared.nr_used() <= 2);
                }
            });
            files.iter().for_each(|file| file.set_size_bytes(0));
            assert_eq!((free(w), shared.nr_used()), ((3, least), 0));
        });
    }
}
