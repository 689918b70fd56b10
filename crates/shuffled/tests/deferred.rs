//! Sections that are laid out late, where memory is not zero: by CPUs that find no frame, by an idle one, and while
//! memory is counted, another section comes and goes, and a CPU tries to remove a section that is not memory yet.
//!
//! Ways to fail: a section is laid out twice, or with the metadata of another; an allocation is refused though a section
//! is still to come; a frame of it is given out before it is laid out, or counted twice; the holes lead past one of
//! two sections that come at the same time.

use common::{FIXED_PRIVATE, RW, Shuffled, run, shuffled, vm_that_is_not_zero};
use softfault_shuffled::addr::Pfn;
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{AddMemoryRefusal, AddressSpace, FrameRange, Order, RemoveMemoryRefusal, Tunables, Vm};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const NR_SCHEDULES: usize = 8;
const SECTION_FRAMES: u64 = 32_768;
/// The machine begins with 16 sections. Of the other three some hold metadata.
const NR_SECTIONS: u64 = 19;
const BASE: u64 = 0x4000_0000;
const NR_PAGES: u64 = 8;

type Machine = Shuffled<X86_64>;
type Space = AddressSpace<'static, Machine>;

/// How often a removal found that a section is not there yet; how often the one that is added went, and stayed since a
/// frame was in use.
static NR_REFUSED: AtomicU64 = AtomicU64::new(0);
static NR_GONE: AtomicU64 = AtomicU64::new(0);
static NR_IN_USE: AtomicU64 = AtomicU64::new(0);

/// The sections that come late, and one whose frames are all in use: they stay.
const LATE: FrameRange =
    FrameRange { first: Pfn((SECTION_FRAMES * (NR_SECTIONS - 3)) as u32), nr_frames: 3 * SECTION_FRAMES };

/// The section that is added and removed. Below it is a hole.
const ADDED: FrameRange =
    FrameRange { first: Pfn((SECTION_FRAMES * (NR_SECTIONS + 1)) as u32), nr_frames: SECTION_FRAMES };
/// A bound above the number of frames in caches, some of which may be counted twice while they are stolen.
const NR_IN_CACHES: u64 = 1024;

/// Touches pages. None is refused: there is a section for them.
fn touch(space: &Space, first: u64) {
    for page in first..first + NR_PAGES {
        let at = BASE + page * 4096;
        space.write(at, &page.to_le_bytes()).unwrap();
        let mut bytes = [0xee; 4096];
        space.read(at, &mut bytes).unwrap();
        assert_eq!((u64::from_le_bytes(bytes[..8].try_into().unwrap()), bytes[8..].iter().max()), (page, Some(&0)));
    }
}

/// Counts memory and tries to remove a section. Used frames are not freed, so there are never more free frames than at first and in the added
/// section.
fn remove_and_count(vm: &'static Vm<Machine>, nr_most: u64, is_added: &AtomicU64) {
    for _ in 0..3 {
        let nr_free = vm.vmstat().nr_free_pages;
        let nr_added = is_added.load(Ordering::Relaxed) * SECTION_FRAMES;
        assert!(nr_free <= nr_most + nr_added + NR_IN_CACHES, "{nr_free}: counted twice");
        match vm.remove_memory(LATE) {
            Err(RemoveMemoryRefusal::NotThere) => _ = NR_REFUSED.fetch_add(1, Ordering::Relaxed),
            // All of them have come.
            Err(RemoveMemoryRefusal::InUse | RemoveMemoryRefusal::LastResort) => {}
            other => panic!("{other:?}"),
        }
        shuttle::thread::yield_now();
    }
}

/// Adds and removes a section. Passes over blocks find it, or the holes before it.
fn come_and_go(vm: &'static Vm<Machine>, is_added: &AtomicU64) {
    for _ in 0..2 {
        is_added.store(1, Ordering::Relaxed);
        match vm.add_memory(ADDED) {
            Ok(()) => assert_eq!(vm.add_memory(ADDED), Err(AddMemoryRefusal::AlreadyThere)),
            other => assert_eq!(other, Err(AddMemoryRefusal::AlreadyThere)),
        }
        _ = vm.advance_generation(8);
        assert!([LATE, ADDED].iter().all(|range| vm.migrate_frame(Pfn(range.first.0 + 9)).is_err()));
        match vm.remove_memory(ADDED) {
            Ok(()) => _ = NR_GONE.fetch_add(1, Ordering::Relaxed),
            Err(RemoveMemoryRefusal::InUse | RemoveMemoryRefusal::LastResort) => {
                _ = NR_IN_USE.fetch_add(1, Ordering::Relaxed);
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

fn schedule() {
    let tunables = Tunables::default().with_zero_batch(4);
    let vm = vm_that_is_not_zero(6, NR_SECTIONS * SECTION_FRAMES, (NR_SECTIONS + 2) * SECTION_FRAMES, tunables);
    let space: Arc<Space> = Arc::new(vm.new_space().unwrap());
    space.mmap(BASE, 2 * NR_PAGES * 4096, RW, FIXED_PRIVATE).unwrap();
    let before = vm.vmstat().nr_free_pages;
    vm.take_all();
    let nr_later = vm.vmstat().nr_free_pages;
    assert!(nr_later >= SECTION_FRAMES && nr_later < before, "{nr_later} of {before}");
    let [first, second] = [(); 2].map(|()| space.clone());
    let is_added = Arc::new(AtomicU64::new(0));
    let is_added_too = is_added.clone();
    run(
        6,
        vec![
            Box::new(move || touch(&first, 0)),
            Box::new(move || touch(&second, NR_PAGES)),
            Box::new(move || while vm.initialise_section() {}),
            Box::new(move || while vm.initialise_section() {}),
            Box::new(move || remove_and_count(vm, nr_later, &is_added)),
            Box::new(move || come_and_go(vm, &is_added_too)),
        ],
    );
    while vm.initialise_section() {}
    vm.check_summaries_at_rest().unwrap();
    drop(space);
    vm.empty_caches();
    assert!(matches!(vm.remove_memory(ADDED), Ok(()) | Err(RemoveMemoryRefusal::NotThere)), "all of it is free");
    vm.check_summaries_at_rest().unwrap();
    // Taken frames stay taken, but for a few that the space had before, and the metadata of the added section.
    let nr_free = vm.vmstat().nr_free_pages;
    let nr_metadata = 33 * SECTION_FRAMES / 4096;
    assert!(nr_free + nr_metadata + 8 >= nr_later, "frames of sections that came late are lost");
    assert!(nr_free + nr_metadata < nr_later + 16, "{nr_free} of {nr_later}: some are counted twice");
    assert_eq!(vm.fragmentation(Order::PMD).nr_free, nr_free, "all sections have come");
}

#[test]
fn sections_come_once_and_in_time() {
    shuffled(NR_SCHEDULES, schedule);
    let nr = [&NR_REFUSED, &NR_GONE].map(|nr| nr.load(Ordering::Relaxed));
    // Few schedules may have no refusal.
    assert!(nr[0] + nr[1] > 0, "refused, gone: {nr:?}; in use {NR_IN_USE:?}");
}
