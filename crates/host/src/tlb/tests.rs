//! The TLB alone.

use super::{Tlb, Translation};
use softfault::addr::{PageRange, Pfn, Rights, Vpn};
use softfault::machine::Flush;
use std::collections::HashMap;

fn small(page: u64, pfn: u32) -> Translation {
    Translation { page: Vpn(page), order: 0, pfn: Pfn(pfn), rights: Rights::READ, dirty: false }
}

fn fill(tlb: &Tlb, space_id: u64, found: Translation) {
    tlb.fill(space_id, found, tlb.invalidations());
}

#[test]
fn what_is_filled_is_found_in_its_space_only() {
    let tlb = Tlb::new(64);
    let all =
        Translation { page: Vpn(0x7_ffff_fffe), order: 0, pfn: Pfn(u32::MAX), rights: Rights::all(), dirty: true };
    fill(&tlb, 9, all);
    assert_eq!(tlb.lookup(9, all.page), Some(all));
    assert_eq!(tlb.lookup(8, all.page), None);
    assert_eq!(tlb.lookup(9, Vpn(all.page.0 + 1)), None);
    fill(&tlb, 9, Translation { dirty: false, pfn: Pfn(3), ..all });
    assert_eq!(tlb.lookup(9, all.page).unwrap().pfn, Pfn(3), "a refill replaces");
    assert_eq!(tlb.live(9).count(), 1);
}

#[test]
fn it_forgets_when_full_and_never_lies() {
    let tlb = Tlb::new(64);
    let mut truth = HashMap::new();
    for i in 0..4096u64 {
        let (space, page) = (i % 3, i * 7 % 501);
        truth.insert((space, page), i as u32);
        fill(&tlb, space, small(page, i as u32));
        let found = tlb.lookup(space, Vpn(page)).expect("the newest is never the victim");
        assert_eq!(found.pfn, Pfn(i as u32));
    }
    let mut hits = 0;
    for (&(space, page), &pfn) in &truth {
        if let Some(found) = tlb.lookup(space, Vpn(page)) {
            assert_eq!(found.pfn, Pfn(pfn));
            hits += 1;
        }
    }
    assert!((1..=64).contains(&hits), "{hits} of {} in 64 entries", truth.len());
}

#[test]
fn flushes_take_what_they_name() {
    let tlb = Tlb::new(1024);
    let huge = Translation { page: Vpn(1024), order: 9, pfn: Pfn(512), rights: Rights::READ, dirty: false };
    let refill = || {
        (0..100).for_each(|page| fill(&tlb, 1, small(page, page as u32)));
        fill(&tlb, 1, huge);
        fill(&tlb, 2, small(5, 5));
    };
    let pages = |a, b| Flush::Pages(PageRange::new(Vpn(a), Vpn(b)));
    let have = |page| tlb.lookup(1, Vpn(page)).is_some();
    refill();
    tlb.invalidate(1, pages(10, 12));
    assert!(have(9) && !have(10) && !have(11) && have(12) && have(1100));
    refill();
    tlb.invalidate(1, pages(10, 90));
    assert!(have(9) && !have(10) && !have(89) && have(90) && have(1100));
    tlb.invalidate(1, pages(1535, 1536));
    assert!(!have(1024) && !have(1100), "a huge translation goes with any of its pages");
    refill();
    tlb.invalidate(1, pages(0, 1025));
    assert!(!have(1024) && !have(50));
    refill();
    tlb.invalidate(1, Flush::Space);
    assert_eq!(tlb.live(1).count(), 0);
    assert!(tlb.lookup(2, Vpn(5)).is_some(), "another space's");
    tlb.invalidate_all();
    assert!(tlb.lookup(2, Vpn(5)).is_none());
}

fn huge(page: u64, pfn: u32) -> Translation {
    Translation { order: 9, ..small(page, pfn) }
}

#[test]
fn both_sizes_share_1536_entries() {
    let tlb = Tlb::new(1536);
    let nr_live = || tlb.live(1).count();
    // As a strided pass fills it: hashing leaves some sets short, none long.
    (0..1536).for_each(|page| fill(&tlb, 1, small(page, page as u32)));
    assert!((1400..=1536).contains(&nr_live()), "{} of 1536 sequential pages stay", nr_live());
    (0..4096).for_each(|page| fill(&tlb, 1, small(page, page as u32)));
    assert_eq!(nr_live(), 1536, "full, and not one more");
    for i in 0..4096u64 {
        fill(&tlb, 1, huge(1 << 20 | i << 9, 512 * i as u32));
        assert!(tlb.lookup(1, Vpn((1 << 20 | i << 9) + 511)).is_some(), "the newest is never the victim");
    }
    assert_eq!(nr_live(), 1536);
    let orders = |order| tlb.live(1).filter(|t| t.order == order).count();
    assert!(orders(9) > 1400, "huge ones have taken the place of small ones: {} and {}", orders(9), orders(0));
}

#[test]
fn a_range_takes_every_huge_translation_that_it_touches() {
    let tlb = Tlb::new(1536);
    // Ranges that are probed page by page, and longer ones.
    for nr in [1, 2, 32, 33, 513, 1024] {
        for start in [511, 512, 513, 1000, 1023, 1024] {
            (0..8).for_each(|i| fill(&tlb, 1, huge(i * 512, 512 * i as u32)));
            (0..8).for_each(|i| fill(&tlb, 2, huge(i * 512, 512 * i as u32)));
            let range = PageRange::new(Vpn(start), Vpn(start + nr));
            tlb.invalidate(1, Flush::Pages(range));
            for i in 0..8 {
                let touched = i * 512 < start + nr && start < (i + 1) * 512;
                assert_eq!(tlb.lookup(1, Vpn(i * 512 + 77)).is_none(), touched, "{i} after {range:?}");
                assert!(tlb.lookup(2, Vpn(i * 512 + 77)).is_some(), "another space's");
            }
        }
    }
}

#[test]
fn a_fill_that_an_invalidation_overtook_is_dropped() {
    let tlb = Tlb::new(64);
    let before = tlb.invalidations();
    tlb.invalidate(1, Flush::Pages(PageRange::new(Vpn(4), Vpn(5))));
    tlb.fill(1, small(4, 4), before);
    assert_eq!(tlb.lookup(1, Vpn(4)), None);
}
