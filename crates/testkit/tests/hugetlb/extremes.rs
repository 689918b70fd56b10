//! Numbers at the ends of what can be said, in each call that takes a range, a page, an offset or a size: no call panics, and
//! nothing is lost.

use super::*;
use common::objects::orders;
use softfault::{Access, ObjectPart, SubpoolLimits};

/// Pages: around one page of each size, around 2^63 bytes, and the last numbers.
const PAGES: [u64; 12] = [
    0,
    1,
    511,
    513,
    (1 << 18) + 1,
    (1 << 51) - 512,
    (1 << 51) - 1,
    1 << 51,
    (1 << 52) + 1,
    u64::MAX - 511,
    u64::MAX - 1,
    u64::MAX,
];
const SIZES: [u64; 6] = [0, HUGE, 2 * HUGE + 12345, (1 << 63) - HUGE, 1 << 63, 0u64.wrapping_sub(HUGE)];

/// All calls of a handle that take numbers.
fn call_all(w: &World<'_>, object: &Object<'_>) {
    for start in PAGES {
        for end in PAGES {
            _ = object.reserve(start..end);
            object.discard(start..end);
            _ = object.next_resident(start..end);
            _ = object.next_poisoned(start..end);
            if end.saturating_sub(start) < 2048 {
                _ = object.allocate(start..end);
                _ = object.extend(start..end);
                assert!(object.size_bytes() <= i64::MAX as u64);
            }
        }
        for at in [start, start.wrapping_mul(PAGE), start.wrapping_mul(PAGE).wrapping_sub(1)] {
            _ = object.write(at, b"xy");
            _ = object.read(at, &mut [0; 3]);
            _ = object.zero(at..at.saturating_add(5000));
        }
        for flags in [MapFlags::SHARED, MapFlags::PRIVATE] {
            let part = ObjectPart::new(object).with_offset_bytes(start.wrapping_mul(PAGE));
            if let Ok(at) = w.space.mmap_object(0, HUGE, RW, flags, part) {
                _ = w.space.handle_fault(at, Access::Write);
                w.space.munmap(at, HUGE).unwrap();
            }
        }
    }
}

#[test]
fn ends_of_ranges_and_sizes() {
    in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
        pool(w, 2);
        for order in [Order::PMD, Order::PUD] {
            for overcommit in [0, 1, u64::MAX] {
                w.vm.set_nr_overcommit_hugepages(order, overcommit).unwrap();
                for size in SIZES {
                    let Ok(file) = w.vm.new_hugetlb_object(size, order) else { continue };
                    call_all(w, &file);
                    SIZES.iter().for_each(|size| file.set_size_bytes(*size));
                    call_all(w, &file);
                    drop(file);
                    check(w.vm, &[w.space]);
                }
            }
            w.vm.set_nr_overcommit_hugepages(order, 0).unwrap();
        }
        assert_eq!((counts(w).nr, free(w)), (2, (2, 0)));
        pool(w, 0);
    });
}

/// The same of objects that have no pool.
#[test]
fn ends_of_ranges_of_other_objects() {
    in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
        for (least, most) in [(0, 0), (0, 9), (2, 4), (0, 18)] {
            for size in SIZES {
                let object = w.vm.new_shared_object_of(size, orders(least, most)).unwrap();
                call_all(w, &object);
                SIZES.iter().for_each(|size| object.set_size_bytes(*size));
                drop(object);
                check(w.vm, &[w.space]);
            }
        }
    });
}

#[test]
fn sizes_of_pools_and_subpools() {
    in_setup(Setup::PLAIN, 1, 32 << 20, |w| {
        for order in [Order::PMD, Order::PUD] {
            for nr in [u64::MAX, 1 << 32, (1 << 32) - 1, 100] {
                assert!(w.vm.new_hugetlb_subpool(order, SubpoolLimits::default().with_least(nr)).is_err());
                let most = SubpoolLimits::default().with_most(Some(nr));
                let few = w.vm.new_hugetlb_subpool(order, most).unwrap();
                let file = few.new_object(2 << 30).unwrap();
                assert!(file.reserve(0..1024).is_err() && file.allocate(0..1024).is_err());
                w.vm.set_nr_hugepages(order, nr).unwrap();
                _ = w.vm.demote_hugepages(nr);
                check(w.vm, &[w.space]);
                w.vm.set_nr_hugepages(order, 0).unwrap();
            }
        }
        pool(w, 0);
        assert_eq!((counts(w).nr, free(w)), (0, (0, 0)));
    });
}
