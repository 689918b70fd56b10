//! The walk and the TLB together, on tables made by hand.

use crate::config::{HostedConfig, Mode};
use crate::testing::{BOTH_MODES, Bench, RO, RW, leaf};
use softfault::addr::{PageRange, Pfn, Rights, Vpn};
use softfault::machine::{CpuId, Flush};
use softfault::table::format::{Entry, Leaf};

const PAGE: u64 = 0x12345;
const ADDR: u64 = PAGE << 12;

fn accessed_dirty(entry: Entry) -> (bool, bool) {
    match entry {
        Entry::Leaf(leaf) | Entry::LockedLeaf(leaf) => (leaf.accessed, leaf.dirty),
        other => panic!("no leaf: {other:?}"),
    }
}

#[test]
fn a_translation_stays_until_it_is_shot_down() {
    for mode in BOTH_MODES {
        let bench = Bench::small(1, mode);
        let cpu = bench.machine.bind(CpuId(0)).unwrap();
        let (old, new) = (bench.frame(), bench.frame());
        bench.poke(old, 1);
        bench.poke(new, 2);
        bench.set(PAGE, 0, leaf(old, RO));
        assert_eq!(bench.load(&cpu, ADDR), Ok(1));
        bench.set(PAGE, 0, leaf(new, RO));
        assert_eq!(bench.load(&cpu, ADDR), Ok(1), "stale, as hardware is");
        bench.shoot(PAGE + 1);
        assert_eq!(bench.load(&cpu, ADDR), Ok(1), "another page was shot down");
        bench.shoot(PAGE);
        assert_eq!(bench.load(&cpu, ADDR), Ok(2));
        bench.set(PAGE, 0, Entry::None);
        assert_eq!(bench.load(&cpu, ADDR), Ok(2));
        bench.shoot_what(Flush::Space);
        assert_eq!(bench.load(&cpu, ADDR).unwrap_err().addr, ADDR);
    }
}

#[test]
fn accessed_and_dirty_are_set_when_hardware_sets_them() {
    let bench = Bench::small(1, Mode::Interrupt);
    let cpu = bench.machine.bind(CpuId(0)).unwrap();
    bench.set(PAGE, 0, leaf(bench.frame(), RW));
    bench.load(&cpu, ADDR).unwrap();
    assert_eq!(accessed_dirty(bench.get(PAGE, 0)), (true, false));
    bench.store(&cpu, ADDR, 7).unwrap();
    assert_eq!(accessed_dirty(bench.get(PAGE, 0)), (true, true), "cached clean: the store walks");
    // The TLB knows that it is dirty, so a cleared bit stays cleared.
    bench.set(PAGE, 0, leaf(Pfn(5), RW));
    bench.store(&cpu, ADDR, 8).unwrap();
    assert_eq!(accessed_dirty(bench.get(PAGE, 0)), (false, false));
}

#[test]
fn software_marks_are_left_to_software() {
    let config = HostedConfig { software_ad_bits: true, ..HostedConfig::default() };
    let bench = Bench::new(config);
    let cpu = bench.machine.bind(CpuId(0)).unwrap();
    let entry = |accessed, dirty| Entry::Leaf(Leaf { pfn: Pfn(512), rights: RW, accessed, dirty });
    for level in [0, 1] {
        // A page of another 2 MiB for each level.
        let page = PAGE + 512 * u64::from(level);
        bench.set(page, level, entry(false, true));
        assert!(bench.load(&cpu, page << 12).is_err(), "not accessed");
        assert!(bench.store(&cpu, page << 12, 1).is_err(), "not accessed");
        assert_eq!(bench.get(page, level), entry(false, true));
        bench.set(page, level, entry(true, false));
        assert!(bench.load(&cpu, page << 12).is_ok());
        assert!(bench.store(&cpu, page << 12, 1).is_err(), "clean, and cached so");
        assert_eq!(bench.get(page, level), entry(true, false));
        bench.set(page, level, entry(true, true));
        assert!(bench.store(&cpu, page << 12, 1).is_ok());
    }
}

#[test]
fn a_store_that_finds_the_entry_gone_faults() {
    let bench = Bench::small(1, Mode::Interrupt);
    let cpu = bench.machine.bind(CpuId(0)).unwrap();
    bench.set(PAGE, 0, leaf(bench.frame(), RW));
    bench.load(&cpu, ADDR).unwrap();
    bench.set(PAGE, 0, Entry::Busy);
    assert!(bench.load(&cpu, ADDR).is_ok(), "the stale translation serves loads");
    assert!(bench.store(&cpu, ADDR, 1).is_err(), "but the dirty bit has no entry to go to");
    assert_eq!(bench.get(PAGE, 0), Entry::Busy);
}

#[test]
fn only_present_entries_are_followed() {
    let bench = Bench::small(1, Mode::Interrupt);
    let cpu = bench.machine.bind(CpuId(0)).unwrap();
    let frame = bench.frame();
    for entry in
        [Entry::None, Entry::Busy, Entry::LockedNone, Entry::Guard, Entry::Poison, leaf(frame, Rights::empty())]
    {
        for level in [0, 1] {
            // A page of another 2 MiB for each level.
            let page = PAGE + 512 * u64::from(level);
            bench.set(page, level, entry);
            assert!(bench.load(&cpu, page << 12).is_err(), "{entry:?} at level {level}");
            assert_eq!(bench.get(page, level), entry);
        }
    }
    bench.set(PAGE, 0, Entry::LockedLeaf(Leaf { pfn: frame, rights: RW, accessed: false, dirty: false }));
    bench.store(&cpu, ADDR, 3).unwrap();
    let marked = Entry::LockedLeaf(Leaf { pfn: frame, rights: RW, accessed: true, dirty: true });
    assert_eq!(bench.get(PAGE, 0), marked, "the lock bit is not hardware's");
}

#[test]
fn a_huge_leaf_translates_all_its_pages() {
    let bench = Bench::small(1, Mode::Interrupt);
    let cpu = bench.machine.bind(CpuId(0)).unwrap();
    bench.set(PAGE, 1, leaf(Pfn(512), RW));
    let first = PAGE & !511;
    for i in [0, 1, 255, 511] {
        bench.poke(Pfn(512 + i), 100 + u64::from(i));
        assert_eq!(bench.load(&cpu, (first + u64::from(i)) << 12), Ok(100 + u64::from(i)));
    }
    assert_eq!(bench.machine.stats(CpuId(0)).unwrap().walks, 1, "one translation serves all");
    bench.set(PAGE, 1, Entry::Busy);
    bench.shoot(first + 400);
    assert!(bench.load(&cpu, first << 12).is_err(), "one page's flush takes the whole");
}

#[test]
fn accessed_and_dirty_of_a_huge_page_are_in_its_own_entry() {
    let bench = Bench::small(1, Mode::Interrupt);
    let cpu = bench.machine.bind(CpuId(0)).unwrap();
    let first = PAGE & !511;
    bench.set(PAGE, 1, leaf(Pfn(512), RW));
    bench.load(&cpu, (first + 3) << 12).unwrap();
    assert_eq!(accessed_dirty(bench.get(PAGE, 1)), (true, false));
    bench.store(&cpu, (first + 500) << 12, 1).unwrap();
    assert_eq!(accessed_dirty(bench.get(PAGE, 1)), (true, true), "one bit for all of it");
    // Known to be dirty, so that no page of it walks again.
    bench.set(PAGE, 1, leaf(Pfn(512), RW));
    bench.store(&cpu, first << 12, 1).unwrap();
    assert_eq!(accessed_dirty(bench.get(PAGE, 1)), (false, false));
    assert_eq!(bench.machine.stats(CpuId(0)).unwrap().walks, 2);
}

#[test]
fn a_store_that_finds_the_huge_entry_gone_faults() {
    let bench = Bench::small(1, Mode::Interrupt);
    let cpu = bench.machine.bind(CpuId(0)).unwrap();
    bench.set(PAGE, 1, leaf(Pfn(512), RW));
    bench.load(&cpu, ADDR).unwrap();
    bench.set(PAGE, 1, Entry::Busy);
    assert!(bench.load(&cpu, ADDR).is_ok(), "stale");
    assert!(bench.store(&cpu, ADDR, 1).is_err(), "a split has begun");
    assert_eq!(bench.get(PAGE, 1), Entry::Busy);
}

#[test]
fn a_huge_leaf_obeys_rights_and_its_lock_bit_is_not_hardwares() {
    let bench = Bench::small(1, Mode::Interrupt);
    let cpu = bench.machine.bind(CpuId(0)).unwrap();
    bench.set(PAGE, 1, leaf(Pfn(512), RO));
    assert!(bench.load(&cpu, ADDR).is_ok());
    assert!(bench.store(&cpu, ADDR, 1).is_err());
    let locked = |accessed, dirty| Entry::LockedLeaf(Leaf { pfn: Pfn(512), rights: RW, accessed, dirty });
    bench.set(PAGE, 1, locked(false, false));
    bench.store(&cpu, ADDR, 1).unwrap();
    assert_eq!(bench.get(PAGE, 1), locked(true, true));
    bench.set(PAGE, 1, leaf(Pfn(512), Rights::empty()));
    bench.shoot(PAGE);
    assert!(bench.load(&cpu, ADDR).is_err(), "kept, not present");
}

#[test]
fn huge_and_small_leaves_live_beside_each_other() {
    let bench = Bench::small(1, Mode::Interrupt);
    let cpu = bench.machine.bind(CpuId(0)).unwrap();
    let (huge, small) = (PAGE & !511, (PAGE & !511) + 512);
    bench.set(huge, 1, leaf(Pfn(512), RO));
    bench.set(small, 0, leaf(Pfn(1024), RO));
    bench.poke(Pfn(512), 1);
    bench.poke(Pfn(1024), 2);
    let both = || (bench.load(&cpu, huge << 12).ok(), bench.load(&cpu, small << 12).ok());
    assert_eq!(both(), (Some(1), Some(2)));
    bench.set(huge, 1, Entry::None);
    bench.set(small, 0, Entry::None);
    bench.shoot_what(Flush::Pages(PageRange::new(Vpn(small - 1), Vpn(small))));
    assert_eq!(both(), (None, Some(2)), "the last page of the huge one");
    bench.set(huge, 1, leaf(Pfn(512), RO));
    assert_eq!(both(), (Some(1), Some(2)));
    bench.set(huge, 1, Entry::None);
    bench.shoot_what(Flush::Pages(PageRange::new(Vpn(small), Vpn(small + 512))));
    assert_eq!(bench.load(&cpu, small << 12).ok(), None);
    assert_eq!(bench.load(&cpu, huge << 12), Ok(1), "its neighbour's flush is not its own");
}

#[test]
fn a_leaf_of_a_gibibyte_translates_all_its_pages() {
    let bench = Bench::small(1, Mode::Interrupt);
    let cpu = bench.machine.bind(CpuId(0)).unwrap();
    bench.set(0, 2, leaf(Pfn(0), RO));
    for frame in [600, 5000] {
        bench.poke(Pfn(frame), u64::from(frame));
        assert_eq!(bench.load(&cpu, u64::from(frame) << 12), Ok(u64::from(frame)));
    }
    let stats = bench.machine.tlb_stats(CpuId(0)).unwrap();
    assert_eq!((stats.misses, stats.loads), (1, 2));
}

#[test]
#[should_panic(expected = "machine check")]
fn a_huge_leaf_over_frames_that_are_not_aligned_is_a_machine_check() {
    let bench = Bench::small(1, Mode::Interrupt);
    let cpu = bench.machine.bind(CpuId(0)).unwrap();
    bench.set(PAGE, 1, leaf(Pfn(513), RO));
    let _ = bench.load(&cpu, ADDR);
}

#[test]
fn more_rights_are_noticed_after_one_spurious_fault() {
    let bench = Bench::small(1, Mode::Interrupt);
    let cpu = bench.machine.bind(CpuId(0)).unwrap();
    let frame = bench.frame();
    bench.set(PAGE, 0, leaf(frame, RO));
    bench.load(&cpu, ADDR).unwrap();
    bench.set(PAGE, 0, leaf(frame, RW));
    assert!(bench.store(&cpu, ADDR, 1).is_err(), "from the stale entry");
    assert!(bench.store(&cpu, ADDR, 1).is_ok(), "which is gone now");
}

#[test]
fn leaf_tables_stay_cached_until_the_space_is_flushed() {
    let bench = Bench::small(1, Mode::Interrupt);
    let cpu = bench.machine.bind(CpuId(0)).unwrap();
    bench.set(PAGE, 0, leaf(bench.frame(), RO));
    bench.load(&cpu, ADDR).unwrap();
    // The table is taken out, its entries stay.
    bench.set(PAGE, 1, Entry::Busy);
    let all = PageRange::new(Vpn(PAGE & !511), Vpn((PAGE & !511) + 512));
    bench.shoot_what(Flush::Pages(all));
    assert!(bench.load(&cpu, ADDR).is_ok(), "through the cached table pointer");
    bench.shoot_what(Flush::Space);
    assert!(bench.load(&cpu, ADDR).is_err());
}

#[test]
fn what_is_not_user_memory_faults() {
    let bench = Bench::small(1, Mode::Interrupt);
    let cpu = bench.machine.bind(CpuId(0)).unwrap();
    for addr in [u64::MAX - 7, 1 << 63, 0x0000_8000_0000_0000, 0x0000_7fff_ffff_f000, 0xffff_8000_0000_0000] {
        assert!(bench.load(&cpu, addr).is_err(), "{addr:#x}");
    }
}

#[test]
#[should_panic(expected = "machine check")]
fn a_frame_that_does_not_exist_is_a_machine_check() {
    let bench = Bench::small(1, Mode::Interrupt);
    let cpu = bench.machine.bind(CpuId(0)).unwrap();
    bench.set(PAGE, 0, leaf(Pfn(u32::MAX), RO));
    let _ = bench.load(&cpu, ADDR);
}

#[test]
fn a_panic_in_an_access_closes_its_section() {
    let bench = Bench::small(2, Mode::Interrupt);
    bench.set(PAGE, 0, leaf(Pfn(u32::MAX), RO));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let cpu = bench.machine.bind(CpuId(1)).unwrap();
            let _ = bench.load(&cpu, ADDR);
        });
        assert!(other.join().is_err());
    });
    let _cpu = bench.machine.bind(CpuId(0)).unwrap();
    // Would wait for ever for an access that never ends.
    bench.shoot(PAGE);
    assert!(bench.machine.bind(CpuId(1)).is_err(), "this thread is bound");
}
