//! Values that compute: numbers at the ends of their ranges overflow nowhere.

use super::*;
use softfault::clear::ClearOrder;
use softfault::policy::around::{AroundOrder, FaultAround};
use softfault::policy::huge::Orders;
use softfault::policy::watermark::{Watermarks, blocks_to_next_sample};
use softfault::sync::Word;
use softfault::{MAX_CPUS, PageRange, Vpn};

const ORDERS: [u8; 8] = [0, 1, 9, 18, 19, 63, 64, u8::MAX];

#[test]
fn sets_and_ranges() {
    let mut set = call("CpuSet::from_words", || CpuSet::from_words([u64::MAX; MAX_CPUS / 64]));
    for cpu in [MAX_CPUS as u16, u16::MAX - 1, u16::MAX].map(CpuId) {
        call("CpuSet::contains", || assert!(!set.contains(cpu)));
        call("CpuSet::remove", || set.remove(cpu));
        call("CpuSet::is_only", || assert!(!set.is_only(cpu)));
        assert!(call("CpuSet::insert", || panics(|| set.insert(cpu))).contains("should be below"));
    }
    call("CpuSet::iter", || assert_eq!(set.iter().count(), MAX_CPUS));
    call("CpuSet::is_empty", || assert!(!set.is_empty()));
    call("CpuSet::first", || assert!(panics(|| _ = CpuSet::first(usize::MAX)).contains("should be below")));
    pairs("PageRange::new", |a, b| {
        let range = PageRange::new(Vpn(a), Vpn(b));
        assert!(!call("PageRange::is_empty", || range.is_empty()) || range.nr_pages() == 0);
        // Its fields are public: it may be inverted.
        let other = PageRange { start: Vpn(b), end: Vpn(a) };
        call("PageRange::nr_pages", || assert_eq!(other.nr_pages(), a.saturating_sub(b)));
        call("PageRange::intersect", || assert!(range.intersect(&other).nr_pages() <= range.nr_pages()));
        call("PageRange::overlaps", || assert!(!range.overlaps(&other) || range == other));
        call("PageRange::contains", || assert!(!range.contains(Vpn(b))));
        call("PageRange::sized", || assert_eq!(PageRange::sized(Vpn(a), b).is_none(), a.checked_add(b).is_none()));
        call("Orders::fitting", || Orders::default().fitting(range));
    });
    for order in ORDERS.map(Order) {
        call("Orders::contains", || assert!(!Orders::default().contains(order)));
        call("Orders::below", || assert!(Orders::default().below(order).is_empty()));
        call("Order::nr_pages", || assert!(order.nr_pages() > 0));
        call("FolioOrders::new", || ORDERS.map(|most| FolioOrders::new(order, Order(most)).is_ok()));
        call("HugeKnobs::size", || HugeKnobs::DEFAULT.size(order));
        call("HugeKnobs::set_size", || {
            let mut knobs = HugeKnobs::DEFAULT;
            knobs.set_size(order, softfault::policy::huge::SizeEnabled::Never)
        })
        .unwrap_or_default();
        call("AroundOrder::new", || AroundOrder::new(order.0).map(|order| order.bytes()));
    }
    each("FaultAround::from_bytes", |bytes| _ = FaultAround::from_bytes(bytes));
    each("Vpn::of", |addr| assert_eq!(call("Vpn::addr", || Vpn::of(addr).addr()), addr & !(PAGE - 1)));
    let word = Word::new(0);
    each("Word::add_owned", |n| word.add_owned(n));
}

#[test]
fn policies() {
    pairs("Watermarks::of", |nr_pages, kbytes| {
        for factor in NUMBERS {
            let marks = Watermarks::of(nr_pages, Some(kbytes), factor);
            assert!(marks.min_pages <= marks.low_pages && marks.low_pages <= marks.high_pages, "{marks:?}");
        }
    });
    pairs("watermark::blocks_to_next_sample", |nr_free, high| {
        NUMBERS.into_iter().for_each(|nr_cpus| assert!(blocks_to_next_sample(nr_free, high, nr_cpus) > 0));
    });
    pairs("ClearOrder::plan", |nr, hint| {
        for order in ClearOrder::ALL {
            let plan = order.plan(nr, Some(hint));
            call("Plan::target", || assert!(plan.target() < nr.max(1)));
            call("Plan::near", || plan.near());
            call("Plan::nr_streaming", || assert!(plan.nr_streaming() <= nr));
            plan.take(4)
                .for_each(|run| assert!(call("Run::indices", || run.indices().take(9).all(|index| index < nr))));
        }
    });
}
