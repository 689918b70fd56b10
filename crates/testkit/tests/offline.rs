//! Memory that is emptied and goes, with pages of all kinds in it, while programs run.
#![deny(unsafe_code)]

mod common;

use common::{BASE, FIXED, PAGE, PRIVATE, RW, SECTION, Setup, Space, World, check, in_setup, section};
use softfault::policy::folio::FolioOrders;
use softfault::policy::huge::Enabled;
use softfault::{
    AddMemoryRefusal, AddressSpace, CpuId, Event, HugeKnobs, HugetlbCounts, MapFlags, MigrateRefusal, ObjectPart,
    OfflineRefusal, Order, Pfn, RemoveMemoryRefusal, SharedObject, Term, Tunables, Vm,
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
    space.madvise(BASE, NR_SMALL * PAGE, softfault::Advice::NoHugePage).unwrap();
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

/// Programs store and load, fork and unmap; a section is emptied and comes again; two CPUs want the same one to go.
#[test]
fn sections_go_under_programs() {
    let vm = vm(4);
    let _cpu = vm.machine().bind(CpuId(0)).unwrap();
    vm.add_memory(section(1)).unwrap();
    vm.add_memory(section(2)).unwrap();
    assert_eq!(vm.set_nr_hugepages(Order::PMD, 4), Ok(4));
    let is_over = AtomicBool::new(false);
    let (vm, is_over) = (&vm, &is_over);
    thread::scope(|scope| {
        for id in 1..3 {
            scope.spawn(move || {
                let cpu = vm.machine().bind(CpuId(id)).unwrap();
                let mut round = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    let space: Space<'_> = vm.new_space().unwrap();
                    space.mmap(BASE, 1500 * PAGE, RW, PRIVATE | FIXED).unwrap();
                    space.mmap(POOL, HUGE, RW, HUGETLB).unwrap();
                    let running = cpu.enter(&space).unwrap();
                    for at in (0..1500).map(|page| BASE + page * PAGE).chain((0..512).map(|page| POOL + page * PAGE)) {
                        running.store(at, &(at ^ round).to_le_bytes()).unwrap();
                    }
                    let child = space.fork().unwrap();
                    for at in (0..512).map(|page| POOL + page * PAGE).chain((0..1500).map(|page| BASE + page * PAGE)) {
                        let mut bytes = [0; 8];
                        running.load(at, &mut bytes).unwrap();
                        assert_eq!(u64::from_le_bytes(bytes), at ^ round);
                        running.store(at, &(at ^ !round).to_le_bytes()).unwrap();
                    }
                    drop(running);
                    for at in [BASE + 7 * PAGE, POOL + 9 * PAGE] {
                        let mut bytes = [0; 8];
                        child.read(at, &mut bytes).unwrap();
                        assert_eq!(u64::from_le_bytes(bytes), at ^ round);
                    }
                    round += 1;
                }
            });
        }
        let offline = |nr: u64| match vm.offline_memory(section(nr)) {
            Ok(()) => true,
            Err(OfflineRefusal::InTheWay(..) | OfflineRefusal::Memory(RemoveMemoryRefusal::NotThere)) => false,
            Err(other) => panic!("{other:?}"),
        };
        scope.spawn(move || {
            let _cpu = vm.machine().bind(CpuId(3)).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                offline(2);
            }
        });
        let mut nr_gone = 0;
        for round in 0.. {
            nr_gone += u64::from(offline(1 + round % 2));
            for nr in [1, 2] {
                match vm.add_memory(section(nr)) {
                    Ok(()) | Err(AddMemoryRefusal::AlreadyThere | AddMemoryRefusal::NoMetadata) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
            if (nr_gone >= 4 && round >= 12) || round == 200 {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(nr_gone > 0, "nothing has gone");
    });
    check(vm, &[]);
    assert_eq!((counts(vm).nr, counts(vm).free, counts(vm).reserved), (4, 4, 0));
    assert_eq!(vm.machine().violations(), (0, None));
}

/// A page of 1 GiB finds no free one: pages move out of its way, those of a pool among them, unless one is pinned.
#[test]
fn pages_leave_1_gib_for_one_of_its_size() {
    in_setup(Setup::PLAIN, 1, 3 << 30, |w: &World<'_>| {
        let fill =
            |nr: u64, at: u64| (0..nr).for_each(|page| w.space.write(at + page * HUGE, &word(at, page)).unwrap());
        w.vm.set_huge_knobs(&HugeKnobs::DEFAULT.with_enabled(Enabled::Always)).unwrap();
        // All of it is huge pages, of which few stay.
        let nr = w.vm.vmstat().nr_free_pages / 512 - 8;
        w.space.mmap(POOL, nr * HUGE, RW, PRIVATE | FIXED).unwrap();
        fill(nr, POOL);
        let stays = |page: u64| page % 100 == 7;
        (0..nr).filter(|page| !stays(*page)).for_each(|page| w.space.munmap(POOL + page * HUGE, HUGE).unwrap());
        assert_eq!(w.vm.set_nr_hugepages(Order::PMD, 40), Ok(40));
        w.space.mmap(BASE & !(HUGE - 1), 20 * HUGE, RW, HUGETLB).unwrap();
        fill(20, BASE & !(HUGE - 1));
        let pins: Vec<_> = (0..nr)
            .filter(|page| stays(*page))
            .map(|page| w.space.pin_page(POOL + page * HUGE + 5 * PAGE, Term::Short).unwrap())
            .collect();
        let nr_moved = w.vm.event(Event::PgmigrateSuccess);
        assert_eq!(w.vm.set_nr_hugepages(Order::PUD, 1), Ok(0), "a pinned page in each");
        assert_eq!(w.vm.event(Event::PgmigrateSuccess), nr_moved, "and nothing moves in vain");
        drop(pins);
        let before = counts(w.vm);
        assert_eq!(w.vm.set_nr_hugepages(Order::PUD, 1), Ok(1));
        assert_eq!(counts(w.vm), before);
        check(w.vm, &[w.space]);
        for (at, page) in
            (0..nr).filter(|page| stays(*page)).map(|page| (POOL, page)).chain((0..20).map(|p| (BASE & !(HUGE - 1), p)))
        {
            let mut bytes = [0; 8];
            w.space.read(at + page * HUGE, &mut bytes).unwrap();
            assert_eq!(bytes, word(at, page));
        }
        w.space.munmap(POOL, nr * HUGE).unwrap();
        w.space.munmap(BASE & !(HUGE - 1), 20 * HUGE).unwrap();
        assert_eq!(w.vm.set_nr_hugepages(Order::PUD, 0), Ok(0));
        assert_eq!(w.vm.set_nr_hugepages(Order::PMD, 0), Ok(0));
    });
}

/// A section with pages of 1 GiB: they move out of all of their sections.
#[test]
fn a_page_of_1_gib_leaves_its_sections() {
    in_setup(Setup::PLAIN, 1, 3 << 30, |w: &World<'_>| {
        assert_eq!(w.vm.set_nr_hugepages(Order::PUD, 1), Ok(1));
        let at = w.space.mmap(0, 1 << 30, RW, PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_1GB).unwrap();
        w.space.write(at + (1 << 29), b"g").unwrap();
        let first = w.space.translate_at_rest(at).unwrap().pfn;
        let nr = u64::from(first.0) / SECTION + 3;
        assert_eq!(w.vm.offline_memory(section(nr)), Ok(()));
        let mut byte = [0];
        w.space.read(at + (1 << 29), &mut byte).unwrap();
        assert_eq!((byte, w.space.translate_at_rest(at).unwrap().pfn == first), (*b"g", false));
        check(w.vm, &[w.space]);
        assert_eq!(w.vm.add_memory(section(nr)), Ok(()));
        w.space.munmap(at, 1 << 30).unwrap();
        assert_eq!(w.vm.set_nr_hugepages(Order::PUD, 0), Ok(0));
    });
}
