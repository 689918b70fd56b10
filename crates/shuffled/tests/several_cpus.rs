//! Long random schedules of whole programs on several CPUs, with store buffers and
//! TLBs that go stale. Loom's small models cannot reach these.
//!
//! Each CPU has its own part of one address space and knows what it wrote there. All
//! CPUs share tables, counts, frames and the tree. One more CPU is
//! a pager, which swaps their pages out, and whose memory fails now and then. After each
//! schedule every invariant is checked.

use common::{FIXED_PRIVATE, NR_SLOTS, Shuffled, access, run, shuffled, vm};
use shuttle::rand::Rng;
use softfault_shuffled::table::format::X86_64;
use softfault_shuffled::{AddressSpace, Event, FaultError, FaultLocking, Tunables, Vm};
use softfault_shuffled::{Advice, Prot};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const NR_FRAMES: u64 = 1024;
const NR_CPUS: usize = 3;
const PAGES: u64 = 6;

const BASE: u64 = 0x4000_0000;
/// Pages that the pager looks at in a schedule.
const NR_PAGED: usize = 12;

type Machine = Shuffled<X86_64>;
type Space = AddressSpace<'static, Machine>;

/// Makes an access for a program, which maps a page anew if its memory has failed.
fn touch(vm: &'static Vm<Machine>, space: &Space, at: u64, store: Option<u64>, wrote: &mut u64) {
    match access(space, vm, at, store) {
        Ok(seen) => {
            *wrote = store.unwrap_or(*wrote);
            assert_eq!(seen, *wrote, "{at:#x}");
        }
        Err(error) => {
            assert_eq!(error, FaultError::Poisoned);
            space.madvise(at, 4096, Advice::DontNeed).unwrap();
            *wrote = 0;
        }
    }
}

/// Swaps out pages of all parts, and lets some frames fail.
fn page_out(vm: &'static Vm<Machine>, space: &Space) {
    let mut rng = shuttle::rand::thread_rng();
    for i in 0..NR_PAGED {
        let page = rng.gen_range(0..NR_CPUS as u64 * PAGES);
        let Some(there) = space.translate_at_rest(BASE + page * 4096) else { continue };
        match i % 6 {
            5 => _ = vm.poison_frame(there.pfn),
            _ => _ = vm.swap_out_frame(there.pfn),
        }
    }
}

/// Runs one CPU in its part of the space: each value that it reads must be the one that
/// it wrote last.
fn play(vm: &'static Vm<Machine>, space: &Space, cpu: u16, nr_ops: usize) {
    let active = space.activate();
    let mut rng = shuttle::rand::thread_rng();
    let base = BASE + u64::from(cpu) * PAGES * 4096;
    let mut wrote = [0u64; PAGES as usize];
    let mut child: Option<(Space, [u64; PAGES as usize])> = None;
    space.mmap(base, PAGES * 4096, Prot::READ | Prot::WRITE, FIXED_PRIVATE).unwrap();
    for step in 0..nr_ops as u64 {
        let page = rng.gen_range(0..PAGES);
        let at = base + page * 4096;
        match rng.gen_range(0..12) {
            0..=3 => {
                let value = step * 100 + page + 1;
                touch(vm, space, at, Some(value), &mut wrote[page as usize]);
            }
            4..=6 => touch(vm, space, at, None, &mut wrote[page as usize]),
            7 => {
                space.madvise(at, 4096, Advice::DontNeed).unwrap();
                wrote[page as usize] = 0;
            }
            8 => {
                space.munmap(at, 4096).unwrap();
                assert_eq!(access(space, vm, at, None), Err(FaultError::NotMapped), "mapped after munmap");
                space.mmap(at, 4096, Prot::READ | Prot::WRITE, FIXED_PRIVATE).unwrap();
                wrote[page as usize] = 0;
            }
            9 => {
                space.mprotect(at, 4096, Prot::READ).unwrap();
                assert_eq!(access(space, vm, at, Some(7)), Err(FaultError::NoRights), "written after mprotect");
                touch(vm, space, at, None, &mut wrote[page as usize]);
                space.mprotect(at, 4096, Prot::READ | Prot::WRITE).unwrap();
            }
            10 => child = Some((space.fork().unwrap(), wrote)),
            _ => {
                if let Some((child, then)) = &child {
                    let mut bytes = [0; 8];
                    let read = child.read(at, &mut bytes);
                    if let Err(error) = read {
                        assert_eq!(error.fault, FaultError::Poisoned);
                        continue;
                    }
                    assert_eq!(u64::from_ne_bytes(bytes), then[page as usize], "F5: the child saw a later write");
                }
            }
        }
    }
    drop(child);
    drop(active);
}

fn schedule(fault_locking: FaultLocking) {
    let tunables = Tunables::default().with_fault_locking(fault_locking).with_zero_batch(4).with_deferred_nodes_max(8);
    let vm = vm(NR_CPUS + 1, NR_FRAMES, tunables);
    let before = vm.vmstat().nr_free_pages;
    let space: Arc<Space> = Arc::new(vm.new_space().unwrap());
    let actor = |cpu: u16| -> Box<dyn FnOnce() + Send> {
        let space = space.clone();
        Box::new(move || play(vm, &space, cpu, 12))
    };
    let pager = {
        let space = space.clone();
        Box::new(move || page_out(vm, &space))
    };
    let programs = (0..NR_CPUS as u16).map(actor);
    run(NR_CPUS + 1, programs.chain([pager as Box<dyn FnOnce() + Send>]).collect());
    let mut counts = vec![0; NR_FRAMES as usize + NR_SLOTS];
    vm.check_in_test(&[&space], &mut counts).unwrap();
    drop(space);
    vm.check_in_test(&[], &mut counts).unwrap();
    assert_eq!(vm.vmstat().nr_free_pages + vm.event(Event::FramesPoisoned), before);
    NR_GONE[0].fetch_add(vm.event(Event::Pswpin), Ordering::Relaxed);
    NR_GONE[1].fetch_add(vm.event(Event::FramesPoisoned), Ordering::Relaxed);
}

/// Pages that came back from the swap area, and frames that have failed.
static NR_GONE: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

fn play_all(fault_locking: FaultLocking, schedules: usize) {
    shuffled(schedules, move || schedule(fault_locking));
    let nr_gone = [0, 1].map(|i| NR_GONE[i].load(Ordering::Relaxed));
    assert!(nr_gone.iter().all(|nr| *nr > 4), "pages came back, frames failed: {nr_gone:?}");
}

#[test]
fn lockfree() {
    play_all(FaultLocking::Lockfree, 2000);
}

#[test]
fn fastpath2004() {
    play_all(FaultLocking::Fastpath2004, 400);
}

#[test]
fn split() {
    play_all(FaultLocking::Split, 400);
}

#[test]
fn global() {
    play_all(FaultLocking::Global, 400);
}
