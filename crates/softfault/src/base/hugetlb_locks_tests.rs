//! How many mutexes, and which one.

use super::*;
use crate::addr::Order;
use crate::policy::folio::around;
use std::vec;

fn table(mutexes: Option<u64>, nr_cpus: usize) -> usize {
    nr_mutexes(&Tunables::default().with_hugetlb_locking(HugetlbLocking::Table).with_hugetlb_mutexes(mutexes), nr_cpus)
}

#[test]
fn the_number_of_mutexes() {
    assert_eq!([1, 2, 3, 64, 512].map(|nr_cpus| table(None, nr_cpus)), [1, 4, 8, 128, 1024], "as in 2013");
    assert_eq!([0, 1, 5, 1 << 20, u64::MAX].map(|nr| table(Some(nr), 2)), [1, 1, 8, MOST_MUTEXES, MOST_MUTEXES]);
    let of = |locking| nr_mutexes(&Tunables::default().with_hugetlb_locking(locking).with_hugetlb_mutexes(Some(8)), 4);
    assert_eq!([of(HugetlbLocking::One), of(HugetlbLocking::Lockfree)], [1, 0]);
}

/// H10: consecutive pages are spread evenly: within 20 % up to 32 mutexes. Above, the sum of squares is as chance
/// gives it: with so many degrees of freedom, five standard deviations from its mean.
#[test]
fn h10_consecutive_pages_are_spread() {
    const NR: u64 = 10_000;
    for object in [1, 77, 4242, 1 << 20, 0xffff_fff0] {
        for nr_mutexes in (0..=12).map(|log| 1usize << log) {
            let mut counts = vec![0u64; nr_mutexes];
            (0..NR).for_each(|index| counts[place_of(object, index, nr_mutexes)] += 1);
            let even = NR as f64 / nr_mutexes as f64;
            if nr_mutexes <= 32 {
                let most = counts.iter().map(|nr| (*nr as f64 / even - 1.0).abs()).fold(0.0, f64::max);
                assert!(most <= 0.2, "{object} {nr_mutexes}: {most}");
                continue;
            }
            let chi_square: f64 = counts.iter().map(|nr| (*nr as f64 - even) * (*nr as f64 - even) / even).sum();
            let freedom = (nr_mutexes - 1) as f64;
            let far = (chi_square - freedom) * (chi_square - freedom);
            assert!(far <= 25.0 * 2.0 * freedom, "{object} {nr_mutexes}: {chi_square}");
        }
    }
}

/// H10: the key is the huge page; and each half of both words counts.
#[test]
fn h10_one_huge_page_has_one_mutex() {
    for order in [Order::PMD, Order::PUD] {
        let key = |page: u64| place_of(5, around(page, order).start / order.nr_pages(), 1024);
        let nr = order.nr_pages();
        for huge in [0, 1, 12_345] {
            for offset in [1, nr / 2, nr - 1] {
                assert_eq!(key(huge * nr + offset), key(huge * nr));
            }
        }
    }
    let same = |object, index| place_of(object, index, 1 << 20) == place_of(3, 9, 1 << 20);
    assert!(!same(4, 9) && !same(3, 10) && !same(3 | 1 << 40, 9) && !same(3, 9 | 1 << 40));
}
