//! Calls that begin or end within a page of a pool, of both sizes.

use super::common::objects::{bytes, whole};
use super::common::*;
use super::{AT, HUGE, gib};
use softfault::{MapFlags, Order};

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
        assert_eq!(size.free(w), (2, 1));
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
