//! Memory that comes and goes, against a refill, a huge claim, and callers that name frames by number: compaction's
//! moves, a pin of a page, failures of memory.
//!
//! Ways to fail: a frame of a section is given out before the section is laid out; a section goes with a frame in use;
//! a CPU with an old view of a block of the section writes to memory that has another owner by then.

use common::{FIXED_PRIVATE, NR_SLOTS, RW, Shuffled, run, shuffled, vm_that_grows};
use shuttle::rand::Rng;
use softfault_shuffled::addr::{Access, Pfn};
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{
    AddMemoryRefusal, AddressSpace, Advice, Event, FaultError, FrameRange, OfflineRefusal, RemoveMemoryRefusal,
};
use softfault_shuffled::{Term, Tunables, Vm};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const NR_SCHEDULES: usize = 120;
const NR_FRAMES: u64 = 1024;
const MEM_SECTION_FRAMES: u64 = 32_768;
const SECTION: FrameRange = FrameRange { first: Pfn(MEM_SECTION_FRAMES as u32), nr_frames: MEM_SECTION_FRAMES };
const BASE: u64 = 0x4000_0000;
const HUGE: u64 = 2 << 20;
/// Small pages that one CPU touches: more than its caches have.
const NR_PAGES: u64 = 24;

type Machine = Shuffled<X86_64>;
type Space = AddressSpace<'static, Machine>;

/// How often a section went, and how often it stayed since a frame was in use.
static NR_GONE: AtomicU64 = AtomicU64::new(0);
static NR_IN_USE: AtomicU64 = AtomicU64::new(0);
static NR_BEGUN: AtomicU64 = AtomicU64::new(0);

/// Removes the section, if it is free, or empties it before.
fn remove(vm: &'static Vm<Machine>) -> Result<(), RemoveMemoryRefusal> {
    if shuttle::rand::thread_rng().gen_bool(0.5) {
        return vm.remove_memory(SECTION);
    }
    vm.offline_memory(SECTION).map_err(|refusal| match refusal {
        OfflineRefusal::InTheWay(..) => RemoveMemoryRefusal::InUse,
        OfflineRefusal::Memory(refusal) => {
            assert_ne!(refusal, RemoveMemoryRefusal::InUse);
            refusal
        }
        other => panic!("{other:?}"),
    })
}

fn come_and_go(vm: &'static Vm<Machine>) {
    match remove(vm) {
        Ok(()) => {
            NR_GONE.fetch_add(1, Ordering::Relaxed);
            assert_eq!(vm.remove_memory(SECTION), Err(RemoveMemoryRefusal::NotThere));
            assert_eq!(vm.add_memory(SECTION), Ok(()));
        }
        Err(RemoveMemoryRefusal::InUse | RemoveMemoryRefusal::LastResort) => {
            _ = NR_IN_USE.fetch_add(1, Ordering::Relaxed)
        }
        Err(other) => panic!("{other:?}"),
    }
    assert_eq!(vm.add_memory(SECTION), Err(AddMemoryRefusal::AlreadyThere));
}

fn write(space: &Space, at: u64, value: u64) {
    match space.write(at, &value.to_le_bytes()) {
        Ok(()) => {
            let mut bytes = [0; 8];
            match space.read(at, &mut bytes) {
                Ok(()) => assert_eq!(u64::from_le_bytes(bytes), value, "{at:#x}"),
                Err(error) => assert_eq!(error.fault, FaultError::Poisoned),
            }
        }
        Err(error) => assert!(matches!(error.fault, FaultError::Poisoned), "{error:?}"),
    }
}

/// Touches small pages and unmaps them.
fn touch_small(space: &Space) {
    for page in 0..NR_PAGES {
        write(space, BASE + page * 4096, page + 1);
    }
    space.madvise(BASE, NR_PAGES / 2 * 4096, Advice::DontNeed).unwrap();
}

/// Touches a huge page, if there is a block.
fn touch_huge(space: &Space) {
    let at = BASE + 2 * HUGE;
    space.madvise(at, HUGE, Advice::HugePage).unwrap();
    space.handle_fault(at, Access::Write).unwrap();
    write(space, at + 8 * 4096, 7);
}

/// Names frames by number, those of pages among them, which are pinned meanwhile or not.
fn name_frames(vm: &'static Vm<Machine>, space: &Space) {
    for page in 0..NR_PAGES {
        let at = BASE + page * 4096;
        let there = space.translate_at_rest(at).map(|there| there.pfn);
        match page % 4 {
            0 => {
                if let Ok(pin) = space.pin_page_mut(at, Term::Short) {
                    assert!(vm.migrate_frame(pin.pfn()).is_err(), "a pinned page has moved");
                }
            }
            1 => _ = there.map(|pfn| vm.migrate_frame(pfn)),
            2 if page == 6 => _ = there.map(|pfn| vm.poison_frame(pfn)),
            _ => _ = vm.migrate_frame(Pfn(SECTION.first.0 + page as u32 * 600)),
        }
    }
}

fn schedule() {
    let tunables = Tunables::default().with_zero_batch(4);
    let vm = vm_that_grows(4, NR_FRAMES, 2 * MEM_SECTION_FRAMES, tunables);
    let space: Arc<Space> = Arc::new(vm.new_space().unwrap());
    space.mmap(BASE, 4 * HUGE, RW, FIXED_PRIVATE).unwrap();
    space.madvise(BASE, HUGE, Advice::NoHugePage).unwrap();
    // The tables are there: they would come from the end of memory, which would never go.
    write(&space, BASE, 1);
    assert_eq!(vm.add_memory(SECTION), Ok(()));
    // A huge page finds a block in the section alone.
    let is_huge = NR_BEGUN.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
    let before = vm.vmstat().nr_free_pages;
    let [small, huge, named] = [(); 3].map(|()| space.clone());
    run(
        4,
        vec![
            Box::new(move || come_and_go(vm)),
            Box::new(move || touch_small(&small)),
            Box::new(move || {
                if is_huge {
                    touch_huge(&huge)
                }
            }),
            Box::new(move || name_frames(vm, &named)),
        ],
    );
    let mut counts = vec![0; vm.nr_frames() as usize + NR_SLOTS];
    vm.check_in_test(&[&space], &mut counts).unwrap();
    for page in NR_PAGES / 2..NR_PAGES {
        let mut bytes = [0; 8];
        match space.read(BASE + page * 4096, &mut bytes) {
            Ok(()) => assert_eq!(u64::from_le_bytes(bytes), page + 1),
            Err(error) => assert_eq!(error.fault, FaultError::Poisoned),
        }
    }
    drop(space);
    vm.check_in_test(&[], &mut counts).unwrap();
    let after = vm.vmstat().nr_free_pages + vm.event(Event::FramesPoisoned);
    assert!(after >= before, "{before} frames were free, and {after} are");
    if vm.event(Event::FramesPoisoned) == 0 {
        assert_eq!(vm.remove_memory(SECTION), Ok(()), "all of it is free");
        vm.check_in_test(&[], &mut counts).unwrap();
    }
}

#[test]
fn memory_comes_and_goes() {
    shuffled(NR_SCHEDULES, schedule);
    let nr = [&NR_GONE, &NR_IN_USE].map(|nr| nr.load(Ordering::Relaxed));
    assert!(nr.iter().all(|nr| *nr > 0), "sections that went, and that stayed: {nr:?}");
}
