//! Memory that is emptied and goes, with pages of all kinds in it, while programs run.
#![deny(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod frames;
mod gib;
mod races;
mod reserve;

use common::{
    BASE, FIXED, PAGE, PRIVATE, Patience, RW, SECTION, Setup, Space, StopAtEnd, World, check, in_setup, section,
};
use softfault::policy::folio::FolioOrders;
use softfault::policy::huge::Enabled;
use softfault::{
    AddMemoryRefusal, AddressSpace, Advice, CpuId, Event, HugeKnobs, HugetlbCounts, MapFlags, MigrateRefusal,
    ObjectPart, OfflineRefusal, Order, Pfn, RemoveMemoryRefusal, SharedObject, Term, Tunables, Vm,
};
use softfault_host::{Hosted, HostedConfig};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const HUGE: u64 = 512 * PAGE;
// One table of level 1 has them all.
const HUGES: u64 = BASE + (64 << 20) - (512 << 10);
const FILE: u64 = HUGES + (128 << 20);
const POOL: u64 = HUGES + (256 << 20);
const POOL_FILE: u64 = HUGES + (320 << 20);
const HUGETLB: MapFlags = PRIVATE.union(FIXED).union(MapFlags::HUGETLB);

fn vm(nr_cpus: usize) -> Vm<Hosted> {
    let config = HostedConfig::default().with_arena_bytes(24 << 20).with_spare_bytes((384 - 24) << 20);
    Vm::new(Hosted::new(config.with_nr_cpus(nr_cpus)).unwrap(), Tunables::default()).unwrap()
}

fn in_range(pfn: Pfn) -> bool {
    u64::from(pfn.0) / SECTION == 1
}

/// Frames of the section that pages of the space are in, by looks at some of its pages.
fn nr_in_range(space: &Space<'_>, at: u64, nr_pages: u64) -> usize {
    let found = (0..nr_pages).filter_map(|page| space.translate_at_rest(at + page * PAGE));
    found.filter(|there| in_range(there.pfn)).count()
}

struct Filled<'vm> {
    space: Space<'vm>,
    child: Space<'vm>,
    object: SharedObject<'vm, Hosted>,
    folios: SharedObject<'vm, Hosted>,
}

const NR_SMALL: u64 = 2000;
const NR_FOLIOS: u64 = 1200;
/// Frames that stay free in the memory of the beginning, for tables and nodes.
const NR_LEFT: u64 = 200;
const NR_HUGE: u64 = 3;
const NR_POOL: u64 = 4;
/// Frames for the tables and nodes of huge pages and folios that are split.
const NR_NODES: u64 = 8;

/// Pages of all kinds in the section: small ones, huge ones, pages of objects in folios of all sizes, those of a pool, in use and free;
/// some of them with two entries. Other memory is full, but for tables and nodes. The metadata of another section is there.
fn fill(vm: &Vm<Hosted>) -> Filled<'_> {
    vm.set_huge_knobs(&HugeKnobs::DEFAULT.with_enabled(Enabled::Always)).unwrap();
    [2, 1].iter().for_each(|nr| assert_eq!(vm.add_memory(section(*nr)), Ok(())));
    [1, 2].iter().for_each(|nr| assert_eq!(vm.remove_memory(section(*nr)), Ok(())));
    let space: Space<'_> = vm.new_space().unwrap();
    space.mmap(BASE, NR_SMALL * PAGE, RW, PRIVATE | FIXED).unwrap();
    space.madvise(BASE, NR_SMALL * PAGE, Advice::NoHugePage).unwrap();
    space.mmap(HUGES, NR_HUGE * HUGE, RW, PRIVATE | FIXED).unwrap();
    let folios = vm.new_shared_object_of(NR_FOLIOS * PAGE, FolioOrders::new(Order::BASE, Order::PMD).unwrap()).unwrap();
    let flags = MapFlags::SHARED | FIXED;
    space.mmap_object(FILE, NR_FOLIOS * PAGE, RW, flags, ObjectPart::new(&folios)).unwrap();
    // Tables and nodes come before the section does.
    let small = (0..NR_SMALL).step_by(256).map(|page| BASE + page * PAGE);
    small.for_each(|at| space.write(at, &[1]).unwrap());
    space.write(FILE, &[1]).unwrap();
    let ballast = vm.new_shared_object(1 << 30).unwrap();
    let nr_ballast = vm.vmstat().nr_free_pages - NR_LEFT;
    (0..nr_ballast).for_each(|page| ballast.write(page * PAGE, &[1]).unwrap());
    assert_eq!(vm.add_memory(section(1)), Ok(()));
    assert_eq!(vm.set_nr_hugepages(Order::PMD, NR_POOL), Ok(NR_POOL));
    let object = vm.new_hugetlb_object(HUGE, Order::PMD).unwrap();
    space.mmap_object(POOL_FILE, HUGE, RW, flags, ObjectPart::new(&object)).unwrap();
    space.mmap(POOL, HUGE, RW, HUGETLB).unwrap();
    for (at, nr) in ALL {
        (0..nr).for_each(|page| space.write(at + page * PAGE, &word(at, page)).unwrap());
    }
    let child = space.fork().unwrap();
    drop(ballast);
    Filled { space, child, object, folios }
}

fn word(at: u64, page: u64) -> [u8; 8] {
    (at ^ page << 20 ^ 0x55).to_le_bytes()
}

const ALL: [(u64, u64); 5] =
    [(BASE, NR_SMALL), (HUGES, NR_HUGE * 512), (FILE, NR_FOLIOS), (POOL_FILE, 512), (POOL, 512)];

impl Filled<'_> {
    fn assert_bytes(&self) {
        for space in [&self.space, &self.child] {
            for (at, nr) in ALL {
                for page in 0..nr {
                    let mut bytes = [0; 8];
                    space.read(at + page * PAGE, &mut bytes).unwrap();
                    assert_eq!(bytes, word(at, page), "{at:#x}, page {page}");
                }
            }
        }
        assert_eq!((self.object.nr_resident_pages(), self.folios.nr_resident_pages()), (512, NR_FOLIOS));
    }
}

fn counts(vm: &Vm<Hosted>) -> HugetlbCounts {
    vm.hugetlb_counts(Order::PMD).unwrap()
}

/// All pages leave the section, which may come again.
#[test]
fn all_kinds_of_pages_move() {
    let vm = vm(1);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let filled = fill(&vm);
    let before = (counts(&vm), vm.vmstat().nr_total_pages);
    let nr_there = ALL.map(|(at, nr)| nr_in_range(&filled.space, at, nr));
    assert!(nr_there.iter().all(|nr| *nr > 0), "each kind is in the section: {nr_there:?}");
    assert_eq!(vm.remove_memory(section(1)), Err(RemoveMemoryRefusal::InUse));
    assert_eq!(vm.add_memory(section(2)), Ok(()));
    check(&vm, &[&filled.space, &filled.child]);
    assert_eq!(vm.offline_memory(section(1)), Ok(()));
    check(&vm, &[&filled.space, &filled.child]);
    assert_eq!(ALL.map(|(at, nr)| nr_in_range(&filled.space, at, nr)), [0; 5]);
    filled.assert_bytes();
    assert_eq!((counts(&vm), vm.vmstat().nr_total_pages), (before.0, before.1));
    assert_eq!(
        (vm.event(Event::MemoryRemoved), vm.offline_memory(section(1))),
        (3, Err(OfflineRefusal::Memory(RemoveMemoryRefusal::NotThere)))
    );
    assert_eq!(vm.add_memory(section(1)), Ok(()));
    filled.assert_bytes();
    check(&vm, &[&filled.space, &filled.child]);
    drop(filled);
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 0), Ok(0));
    check(&vm, &[]);
}

/// A page that does not move is named, and the memory is as it was: all that was free is.
#[test]
fn what_stays_is_named() {
    let vm = vm(1);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let filled = fill(&vm);
    let page = (0..NR_SMALL).rev().map(|page| BASE + page * PAGE).find(|at| nr_in_range(&filled.space, *at, 1) == 1);
    let pin = filled.space.pin_page(page.unwrap(), Term::Short).unwrap();
    let nr_free = vm.vmstat().nr_free_pages;
    let refused = vm.offline_memory(section(1));
    assert!(matches!(refused, Err(OfflineRefusal::InTheWay(_, MigrateRefusal::NoTarget))), "no memory for the rest");
    check(&vm, &[&filled.space, &filled.child]);
    assert!(vm.vmstat().nr_free_pages + NR_NODES >= nr_free);
    vm.add_memory(section(2)).unwrap();
    let (nr_free, nr_pinned) = (vm.vmstat().nr_free_pages, vm.event(Event::MigrateRefusedPinned));
    let refused = vm.offline_memory(section(1));
    assert_eq!(refused, Err(OfflineRefusal::InTheWay(pin.pfn(), MigrateRefusal::Pinned)));
    assert!(refused.unwrap_err().to_string().contains("pinned"));
    assert_eq!(vm.event(Event::MigrateRefusedPinned) - nr_pinned, 8, "it may end: there is another look in each pass");
    check(&vm, &[&filled.space, &filled.child]);
    assert!(vm.vmstat().nr_free_pages + NR_NODES >= nr_free);
    filled.assert_bytes();
    drop(pin);
    // Tables, and whatever comes to a machine that has no other memory.
    let others: Vec<AddressSpace<'_, Hosted>> = (0..8).map(|_| vm.new_space().unwrap()).collect();
    let gone = vm.offline_memory(section(1));
    assert!(matches!(gone, Ok(()) | Err(OfflineRefusal::InTheWay(_, MigrateRefusal::Meta | MigrateRefusal::Table))));
    drop(others);
    check(&vm, &[&filled.space, &filled.child]);
    filled.assert_bytes();
    assert_eq!(vm.event(Event::MemoryRemoved), 2 + u64::from(gone.is_ok()));
}

/// Bad input by name, counted, and nothing has changed.
#[test]
fn bad_ranges() {
    let vm = vm(1);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    vm.add_memory(section(1)).unwrap();
    let nr_free = vm.vmstat().nr_free_pages;
    let of = |first: u64, nr_frames: u64| softfault::FrameRange { first: Pfn(first as u32), nr_frames };
    for (range, refusal) in [
        (of(SECTION, 0), RemoveMemoryRefusal::NotSections),
        (of(SECTION + 1, SECTION), RemoveMemoryRefusal::NotSections),
        (of(SECTION, SECTION - 1), RemoveMemoryRefusal::NotSections),
        (of(2 * SECTION, SECTION), RemoveMemoryRefusal::NotThere),
        (of(SECTION, 2 * SECTION), RemoveMemoryRefusal::NotThere),
        (of(1 << 31, SECTION), RemoveMemoryRefusal::NotThere),
    ] {
        let before = vm.event(refusal.event());
        assert_eq!(vm.offline_memory(range), Err(OfflineRefusal::Memory(refusal)), "{range:?}");
        assert_eq!((vm.event(refusal.event()), vm.vmstat().nr_free_pages), (before + 1, nr_free));
    }
    assert_eq!(vm.offline_memory(section(1)), Ok(()));
    assert_eq!(vm.add_memory(section(1)), Ok(()));
    assert_eq!(vm.remove_memory(section(1)), Ok(()));
}

/// Each frame that a move wants is refused once: the memory stays, or goes, and nothing is lost.
#[test]
fn each_frame_may_be_refused() {
    let vm = vm(1);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    let filled = fill(&vm);
    vm.add_memory(section(2)).unwrap();
    for k in [0, 1, 2, 3, 10, 100, 1000, 2000, 3000, 4000] {
        let nr_free = vm.vmstat().nr_free_pages;
        vm.fail_allocation(Some(k));
        let gone = vm.offline_memory(section(1));
        vm.fail_allocation(None);
        check(&vm, &[&filled.space, &filled.child]);
        filled.assert_bytes();
        match gone {
            Ok(()) => assert!(k > 0),
            Err(refusal) => {
                assert!(matches!(refusal, OfflineRefusal::InTheWay(_, MigrateRefusal::NoTarget)), "{refusal:?}");
                assert!(vm.vmstat().nr_free_pages + NR_NODES >= nr_free);
            }
        }
        match vm.add_memory(section(1)) {
            Ok(()) => assert!(gone.is_ok()),
            Err(refusal) => assert_eq!((refusal, gone.is_err()), (AddMemoryRefusal::AlreadyThere, true)),
        }
    }
}
