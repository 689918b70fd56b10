//! Folios of objects are split where they are: a page of one fails, goes to the swap area, or moves without frames
//! for the whole. The others keep their frames and what was written, and programs notice nothing.
#![deny(unsafe_code)]

mod common;

use common::objects::{Object, bytes, content, faulted_frame, map, object, orders};
use common::*;
use softfault::policy::huge::Enabled;
use softfault::{
    Access, CpuId, Event, FaultError, HugeKnobs, MigrateRefusal, MlockFlags, Order, Pfn, PoisonRefusal, SwapRefusal,
    Term, Tunables, Vm,
};
use softfault_testkit::formats::Tested;
use softfault_testkit::random::Random;

const AT: u64 = 0x20_0000_0000;
const BLOCK: u64 = 512;
/// Pages of 1 GiB.
const GIB: u64 = 1 << 18;
const SLOTS: u64 = 64;

/// A machine of that size with a swap area. `nr_lost` frames are to be out of use afterwards.
fn in_machine(arena_bytes: u64, nr_lost: u64, test: impl Fn(&World<'_>)) {
    let config = Format::config().with_nr_cpus(1).with_arena_bytes(arena_bytes).with_swap_bytes(SLOTS * PAGE);
    let thp = HugeKnobs::DEFAULT.with_enabled(Enabled::Never);
    let hosted = Hosted::with_format(config.with_strict_bbm(true)).unwrap();
    let vm = &Vm::new(hosted, Tunables::default().with_thp(thp)).unwrap();
    let cpu = &vm.machine().bind(CpuId(0)).unwrap();
    let before = vm.vmstat().nr_free_pages;
    {
        let space = &vm.new_space().unwrap();
        test(&World { vm, cpu, space });
        check(vm, &[space]);
    }
    check(vm, &[]);
    assert_eq!(vm.vmstat().nr_free_pages, before - nr_lost);
    assert_eq!(vm.machine().violations(), (0, None));
}

/// One GiB that is whole and zero, and one with the metadata.
fn in_gib(nr_lost: u64, test: impl Fn(&World<'_>)) {
    in_machine(2 << 30, nr_lost, test);
}

fn frame(space: &Space<'_>, page: u64) -> Pfn {
    faulted_frame(space, AT + page * PAGE)
}

fn order_of(object: &Object<'_>, page: u64) -> u8 {
    object.object_page_state(page).unwrap().order.0
}

/// First pages of blocks, their neighbours, and both ends.
fn some(order: u8) -> Vec<u64> {
    let nr = 1 << order;
    let all = [0, 1, 2, 3, 511, 512, 513, 77 * BLOCK, 77 * BLOCK + 5, nr / 2, nr - BLOCK.min(nr), nr - 1];
    all.into_iter().filter(|page| *page < nr).collect()
}

/// Each of some pages says what number it has; one folio of that order, mapped.
fn numbered<'vm>(w: &World<'vm>, least: u8, order: u8) -> Object<'vm> {
    let nr = 1 << order;
    let object = object(w, nr, orders(least, order));
    map(w.space, AT, nr, &object, 0);
    some(order).iter().for_each(|page| w.space.write(AT + page * PAGE, &(page + 3).to_le_bytes()).unwrap());
    assert_eq!(order_of(&object, nr - 1), order);
    object
}

fn assert_numbered(w: &World<'_>, object: &Object<'_>, pages: &[u64]) {
    for page in pages {
        assert_eq!(bytes(w.space, AT + page * PAGE), (page + 3).to_le_bytes(), "page {page}");
        assert_eq!(content(object, page * PAGE), (page + 3).to_le_bytes(), "page {page}");
    }
}

/// The size of what is beside a part: as large as can be, 2 MiB at most.
fn order_beside(part: u64, page: u64) -> u8 {
    ((part ^ page).ilog2() as u8).min(9)
}

/// The page alone goes out; what is beside it are the largest folios that there can be, in their frames.
#[test]
fn a_page_of_a_folio_goes_out() {
    for (order, nr_nodes) in [(1, 0), (5, 0), (9, 1), (18, 2)] {
        in_machine(if order < 18 { 16 << 20 } else { 2 << 30 }, 0, |w| {
            let object = numbered(w, 0, order);
            let pages = some(order);
            let frames: Vec<Pfn> = pages.iter().map(|page| frame(w.space, *page)).collect();
            let nr_free = w.vm.vmstat().nr_free_pages;
            let first = pages[pages.len() / 2];
            for (i, page) in [first, first ^ 1].into_iter().enumerate() {
                assert_eq!(w.vm.swap_out_frame(Pfn(frames[0].0 + page as u32)), Ok(0));
                check(w.vm, &[w.space]);
                assert_eq!(
                    (object.nr_swapped_pages(), object.nr_resident_pages()),
                    (i as u64 + 1, (1 << order) - 1 - i as u64)
                );
            }
            assert_eq!((w.vm.event(Event::FoliosSplit), w.vm.event(Event::Pswpout)), (1, 2), "the other is alone");
            assert_eq!(w.vm.vmstat().nr_free_pages, nr_free + 2 - nr_nodes);
            for (page, frame) in pages.iter().zip(&frames).filter(|(page, _)| **page | 1 != first | 1) {
                assert_eq!(order_of(&object, *page), order_beside(first, *page), "page {page}");
                let state = object.object_page_state(*page).unwrap();
                assert!(state.dirty && state.referenced);
                assert_eq!(faulted_frame(w.space, AT + page * PAGE), *frame, "nothing is copied");
            }
            assert_numbered(w, &object, &pages);
            frame(w.space, first ^ 1);
            assert_eq!((object.nr_swapped_pages(), object.nr_resident_pages()), (0, 1 << order));
            check(w.vm, &[w.space]);
            w.space.munmap(AT, PAGE << order).unwrap();
        });
    }
}

/// The page is lost, and those that make up the least size with it; the others stay in their frames.
#[test]
fn a_page_of_a_folio_fails() {
    for (least, order) in [(0, 9), (3, 9), (9, 9), (0, 18), (3, 18), (9, 18), (18, 18)] {
        in_machine(if order < 18 { 16 << 20 } else { 2 << 30 }, 1, |w| {
            let object = numbered(w, least, order);
            let (nr, nr_lost, pages) = (1 << order, 1 << least, some(order));
            let frames: Vec<Pfn> = pages.iter().map(|page| frame(w.space, *page)).collect();
            let nr_free = w.vm.vmstat().nr_free_pages;
            let bad = if order == 9 { 301 } else { 77 * BLOCK + 5 };
            let lost = bad / nr_lost * nr_lost..(bad / nr_lost + 1) * nr_lost;
            assert_eq!(w.vm.poison_frame(Pfn(frames[0].0 + bad as u32)), Ok(0));
            check(w.vm, &[w.space]);
            let nr_nodes = u64::from(order / 9 - least / 9);
            assert_eq!(w.vm.vmstat().nr_free_pages, nr_free + nr_lost - 1 - nr_nodes);
            assert_eq!(object.nr_resident_pages(), nr - nr_lost);
            assert_eq!(w.vm.event(Event::FoliosSplit), u64::from(order > least));
            assert_eq!((object.next_poisoned(0..nr), object.next_poisoned(lost.end..nr)), (Some(lost.start), None));
            assert_eq!(object.next_poisoned(lost.end - 1..nr), Some(lost.end - 1));
            for page in [lost.start, bad, lost.end - 1] {
                assert_eq!(w.space.handle_fault(AT + page * PAGE, Access::Read), Err(FaultError::Poisoned));
                assert!(object.write(page * PAGE, b"x").is_err() && object.read(page * PAGE, &mut [0]) == 0);
            }
            let kept: Vec<u64> = pages.iter().copied().filter(|page| !lost.contains(page)).collect();
            for (page, frame) in pages.iter().zip(&frames).filter(|(page, _)| kept.contains(page)) {
                assert_eq!(order_of(&object, *page), order_beside(bad, *page));
                assert_eq!(faulted_frame(w.space, AT + page * PAGE), *frame);
            }
            assert_numbered(w, &object, &kept);
            // Only together are they healed.
            if least > 0 {
                object.discard(lost.start + 1..lost.end);
                assert_eq!(object.next_poisoned(0..nr), Some(lost.start));
            }
            object.discard(lost.clone());
            check(w.vm, &[w.space]);
            if least < 18 {
                w.space.write(AT + bad * PAGE, b"n").unwrap();
                assert_eq!(content(&object, bad * PAGE), *b"n\0");
            }
            assert_eq!(object.next_poisoned(0..nr), None);
            assert_numbered(w, &object, &kept);
            w.space.munmap(AT, nr * PAGE).unwrap();
        });
    }
}

/// One of 1 GiB moves in parts of 2 MiB, or less where there is no block; one of the least size stays.
#[test]
fn a_gib_moves_in_parts() {
    in_gib(0, |w| {
        for (least, most_there, size) in [(0, None, 9), (9, None, 9), (0, Some(4), 3), (18, None, 18)] {
            let object = numbered(w, least, 18);
            let before = frame(w.space, 0);
            let page = 77 * BLOCK + 5;
            let nr_free = w.vm.vmstat().nr_free_pages;
            w.vm.fail_runs(most_there.map(Order));
            let moved = w.vm.migrate_frame(Pfn(before.0 + page as u32));
            w.vm.fail_runs(None);
            check(w.vm, &[w.space]);
            let nr_nodes = if size == 18 { 0 } else { 2 - u64::from(size) / 9 };
            assert_eq!(w.vm.vmstat().nr_free_pages, nr_free - nr_nodes);
            if least == 18 {
                assert_eq!(moved, Err(MigrateRefusal::CannotSplit));
            } else {
                assert_eq!(frame(w.space, page), moved.unwrap());
                for other in some(18) {
                    let has_moved = frame(w.space, other).0 != before.0 + other as u32;
                    assert_eq!(has_moved, other >> size == page >> size, "page {other}");
                    assert_eq!(order_of(&object, other), if has_moved { size } else { order_beside(page, other) });
                }
            }
            assert_numbered(w, &object, &some(18));
            w.space.munmap(AT, GIB * PAGE).unwrap();
        }
        assert_eq!(w.vm.event(Event::FolioMovedInPart), 3);
        assert_eq!(w.vm.event(Event::MigrateRefusedCannotSplit), 1);
    });
}

/// Whatever allocation fails, nothing has changed. Descriptors of tails come back before anything else is done.
#[test]
fn the_kth_allocation_of_a_split_fails() {
    in_gib(0, |w| {
        for (order, nr_nodes, nr_descs) in [(9, 1, 0), (18, 2, 0), (9, 1, 3), (18, 2, 2047)] {
            let object = numbered(w, 0, order);
            let (page, nr) = ((1 << order) - 7, 1 << order);
            let pfn = frame(w.space, page);
            if nr_descs > 0 {
                assert_eq!(object.free_tail_descs(page), Ok(nr_descs));
            }
            let free = w.vm.vmstat().nr_free_pages;
            let refused = MigrateRefusal::NoTarget;
            // Descriptors that have come back stay.
            let ks = (0..nr_nodes).map(|k| k + nr_descs).rev().chain([nr_descs / 2]);
            for k in ks {
                let mut expected = free;
                for fails in [0, 1] {
                    w.vm.fail_allocation(Some(k));
                    if fails == 0 {
                        assert_eq!(w.vm.swap_out_frame(pfn), Err(SwapRefusal::Stays(refused)), "{k}");
                    } else {
                        assert_eq!(w.vm.poison_frame(pfn), Err(PoisonRefusal::Stays(refused)), "{k}");
                    }
                    w.vm.fail_allocation(None);
                    assert_eq!(order_of(&object, page), order);
                    let now = w.vm.vmstat().nr_free_pages;
                    expected -= if k >= nr_descs && nr_descs > 0 && expected == free { nr_descs } else { 0 };
                    assert_eq!(now, expected, "{k}");
                    if nr_descs > 0 && now != free {
                        assert_eq!(object.free_tail_descs(page), Ok(nr_descs));
                        expected = free;
                    }
                }
            }
            check(w.vm, &[w.space]);
            assert_eq!(w.vm.swap_out_frame(pfn), Ok(0));
            assert_eq!(w.vm.vmstat().nr_free_pages, free + 1 - nr_nodes - nr_descs);
            check(w.vm, &[w.space]);
            assert_numbered(w, &object, &some(order));
            w.space.munmap(AT, nr * PAGE).unwrap();
        }
    });
}

/// A pin, a size that reaches beyond the end, a locked page: each by name, and the folio is what it was.
#[test]
fn what_is_not_split_stays_whole() {
    in_gib(0, |w| {
        for order in [4, 9, 18] {
            let object = numbered(w, 0, order);
            let nr = 1 << order;
            let pfn = frame(w.space, 3);
            let goes_out = |why| {
                assert_eq!(w.vm.swap_out_frame(pfn), Err(SwapRefusal::Stays(why)));
                assert_eq!(w.vm.poison_frame(pfn), Err(PoisonRefusal::Stays(why)));
                assert_eq!((order_of(&object, 3), frame(w.space, 3)), (order, pfn));
            };
            let pin = w.space.pin_page(AT + (nr - 1) * PAGE, Term::Short).unwrap();
            goes_out(MigrateRefusal::Pinned);
            object.set_size_bytes((nr - 2) * PAGE);
            drop(pin);
            goes_out(MigrateRefusal::CannotSplit);
            check(w.vm, &[w.space]);
            object.set_size_bytes(nr * PAGE);
            w.space.mlock(AT + 3 * PAGE, PAGE, MlockFlags::empty()).unwrap();
            assert_eq!(w.vm.swap_out_frame(pfn), Err(SwapRefusal::Locked));
            assert_eq!((order_of(&object, 3), w.space.translate_at_rest(AT + 3 * PAGE).unwrap().pfn), (order, pfn));
            w.space.munlock(AT + 3 * PAGE, PAGE).unwrap();
            assert_eq!(w.vm.swap_out_frame(pfn), Ok(0));
            w.space.munmap(AT, nr * PAGE).unwrap();
        }
        assert_eq!(w.vm.event(Event::FoliosSplit), 3);
    });
}

/// Random splits of all kinds, beside discards, sizes, pins and allocations that fail, against a list of what was
/// written.
#[test]
fn what_is_written_stays_whatever_is_split() {
    const NR: u64 = 3 * BLOCK;
    let mut nr_split = 0;
    for (least, most) in [(0, 9), (2, 9), (9, 9), (0, 6)] {
        for seed in 0..2 {
            let config = Format::config().with_nr_cpus(1).with_arena_bytes(24 << 20).with_swap_bytes(SLOTS * PAGE);
            let vm = &Vm::new(Hosted::with_format(config).unwrap(), Tunables::default()).unwrap();
            let _cpu = vm.machine().bind(CpuId(0)).unwrap();
            let space = &vm.new_space().unwrap();
            let mut random = Random::new(seed * 31 + u64::from(least));
            let object = vm.new_shared_object_of(NR * PAGE, orders(least, most)).unwrap();
            map(space, AT, NR, &object, 0);
            let mut written = vec![0; NR as usize];
            for step in 0..120 {
                let page = random.below(NR);
                _ = space.handle_fault(AT + page * PAGE, Access::Read);
                let there = space.translate_at_rest(AT + page * PAGE).map(|there| there.pfn);
                match (random.below(8), there) {
                    (0..=1, _) | (_, None) if space.write(AT + page * PAGE, &[step + 1]).is_ok() => {
                        written[page as usize] = step + 1;
                    }
                    (2, _) => {
                        let (nr, mut end) = (random.below(40), page);
                        while end < (page + nr).min(NR) {
                            written[end as usize] = 0;
                            end += 1;
                        }
                        object.discard(page..end);
                    }
                    (3..=4, Some(pfn)) => _ = vm.swap_out_frame(pfn),
                    (5, Some(pfn)) => {
                        vm.fail_runs(Some(Order(random.below(9) as u8 + 1)));
                        _ = vm.migrate_frame(pfn);
                        vm.fail_runs(None);
                    }
                    (6, Some(pfn)) if step % 8 == 0 => _ = vm.poison_frame(pfn),
                    (7, _) => vm.fail_allocation(Some(random.below(4))),
                    _ => {}
                }
                if random.below(3) == 0 {
                    vm.fail_allocation(None);
                }
                check(vm, &[space]);
            }
            vm.fail_allocation(None);
            for page in 0..NR {
                let (mut byte, expected) = ([0xee], written[page as usize]);
                let nr = object.read(page * PAGE, &mut byte);
                assert!(nr == 0 || byte == [expected], "page {page}: {byte:?}, not {expected}");
                assert!(nr == 1 || object.next_poisoned(page..page + 1).is_some());
            }
            nr_split += vm.event(Event::FoliosSplit);
        }
    }
    assert!(nr_split > 20, "{nr_split}");
}
