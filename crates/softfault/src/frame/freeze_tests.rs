//! I28: another CPU is about to be refused and has asked for a freeze. Until its turn is
//! over nobody becomes a holder. One attempt ends, whatever others do.

use super::OutOfFrames;
use super::want::Fill;
use super::want::Search;
use crate::addr::{Access, Pfn};
use crate::linux::{Advice, MapFlags, MremapFlags};
use crate::machine::CpuId;
use crate::policy::huge::{Defrag, Enabled};
use crate::space::AddressSpace;
use crate::space::Vm;
use crate::sync::Ordering;
use crate::table::reserve::TableReserve;
use crate::testing::{FIXED_PRIVATE, Plain, RW, be, on_enter, on_relax, vm, vm_of};
use crate::tunables::Tunables;
use crate::tunables::huge::HugeKnobs;
use std::boxed::Box;
use std::cell::Cell;
use std::rc::Rc;
use std::vec::Vec;

const HUGE: u64 = 2 << 20;
const AT: u64 = 0x10_0000_0000;
const COLLAPSE: Advice = Advice::Collapse;
const GUARD_INSTALL: Advice = Advice::GuardInstall;

/// Turns of a wait after which the other CPU's turn ends: more than an operation has
/// that waits for nobody.
pub(super) const MANY: u64 = 1000;

pub(super) fn held(vm: &Vm<Plain>) -> u64 {
    vm.cpus.iter().fold(0, |sum, cpu| sum.wrapping_add(cpu.held.get()))
}

pub(super) fn set_freeze(vm: &'static Vm<Plain>) {
    vm.frames.turns.fetch_add(1, Ordering::Relaxed);
    vm.frames.freeze.store(1, Ordering::Relaxed);
}

pub(super) fn end_freeze(vm: &'static Vm<Plain>) {
    vm.frames.freeze.store(0, Ordering::Relaxed);
    vm.frames.nr_turns_over.fetch_add(1, Ordering::Release);
}

/// Whether `call` waited for the end of the other CPU's turn. No hold began or ended
/// before.
fn waits_in_a_freeze(thp: HugeKnobs, call: impl Fn(&'static Vm<Plain>, &AddressSpace<'static, Plain>)) -> bool {
    let vm: &'static Vm<Plain> = Box::leak(Box::new(vm(8192, Tunables { thp, ..Tunables::default() })));
    let space = vm.new_space().unwrap();
    space.mmap(AT, 200 * HUGE, RW, FIXED_PRIVATE).unwrap();
    space.handle_fault(AT, Access::Read).unwrap();
    // Nodes enough for any call.
    (0..60).for_each(|i| _ = space.mmap(4 * AT + 2 * i * HUGE, HUGE, RW, FIXED_PRIVATE).unwrap());
    space.munmap(4 * AT, 120 * HUGE).unwrap();
    vm.steal_caches();
    set_freeze(vm);
    let before = held(vm);
    let nr_waits = Rc::new(Cell::new(0));
    let counted = nr_waits.clone();
    on_relax(move || {
        counted.set(counted.get() + 1);
        if counted.get() == MANY {
            assert_eq!(held(vm), before, "I28: holds frames, or did, though a last-resort allocation wants a freeze");
            end_freeze(vm);
        }
    });
    call(vm, &space);
    on_relax(|| ());
    let waited = nr_waits.get() >= MANY;
    if !waited {
        assert_eq!(held(vm), before, "I28: a hold although a last-resort allocation wants a freeze");
        end_freeze(vm);
    }
    waited
}

const SMALL_PAGES: HugeKnobs = HugeKnobs { enabled: Enabled::Never, ..HugeKnobs::DEFAULT };
/// A call that needs frames.
type Call = fn(&'static Vm<Plain>, &AddressSpace<'static, Plain>);

const HUGE_PAGES: HugeKnobs = HugeKnobs { enabled: Enabled::Always, defrag: Defrag::Always, ..HugeKnobs::DEFAULT };

#[test]
fn programs_wait_for_the_end_of_freeze() {
    let calls: [Call; 7] = [
        |_, space| _ = space.handle_fault(AT + 4096, Access::Write).unwrap(),
        |_, space| space.madvise(AT + HUGE, 100 * HUGE, GUARD_INSTALL).unwrap(),
        |_, space| space.madvise(AT + HUGE, 3 * HUGE, GUARD_INSTALL).unwrap(),
        |vm, _| drop(vm.new_space().unwrap()),
        |_, space| drop(space.fork().unwrap()),
        |_, space| _ = space.mmap(0, 4096, RW, MapFlags::SHARED | MapFlags::ANONYMOUS).unwrap(),
        |_, space| _ = space.mremap(AT, 2 * HUGE, 2 * HUGE, MremapFlags::MAYMOVE | MremapFlags::FIXED, 2 * AT).unwrap(),
    ];
    for (i, call) in calls.into_iter().enumerate() {
        assert!(waits_in_a_freeze(SMALL_PAGES, call), "call {i}");
    }
    // It takes no huge page, and waits for a small one.
    assert!(waits_in_a_freeze(HUGE_PAGES, |_, space| {
        _ = space.handle_fault(AT + 3 * HUGE, Access::Write).unwrap();
        assert_eq!(space.rss_pages().anon_huge, 0);
    }));
}

/// A CPU without a line for its resident counts can do without a frame of them.
#[test]
fn lines_of_counts_delay_nobody() {
    let vm: &'static Vm<Plain> = Box::leak(Box::new(vm_of(64, 8192, Tunables::default()).unwrap()));
    let space = vm.new_space().unwrap();
    be(40);
    set_freeze(vm);
    let before = held(vm);
    space.add_rss_frame();
    assert_eq!(held(vm), before, "I28: a hold although a last-resort allocation wants a freeze");
    end_freeze(vm);
    let mut taken = Vec::new();
    while let Ok(pfn) = vm.obtain(Fill::Raw) {
        taken.push(pfn);
    }
    let before = held(vm);
    space.add_rss_frame();
    assert_eq!(held(vm), before, "I28: a trace of a hold that had nothing");
    taken.iter().for_each(|pfn| vm.give_back(*pfn, Fill::Raw));
    space.add_rss_frame();
    assert_ne!(held(vm), before);
    be(0);
}

/// A freeze is asked for when the child has its own frames, and none of its tables.
#[test]
fn a_fork_begins_no_reserve_in_a_freeze() {
    let vm: &'static Vm<Plain> = Box::leak(Box::new(vm(1024, Tunables::default())));
    let mut reserve = TableReserve::new(vm);
    set_freeze(vm);
    let before = held(vm);
    assert!(!reserve.add_if_free(3));
    assert_eq!(held(vm), before, "I28: a hold although a last-resort allocation wants a freeze");
    assert!(reserve.add_if_free(0));
    end_freeze(vm);
    assert!(reserve.add_if_free(3));
    assert_ne!(held(vm), before);
}

#[test]
fn daemons_do_nothing_in_a_freeze() {
    assert!(!waits_in_a_freeze(SMALL_PAGES, |vm, _| {
        assert!(vm.compact_step(&vm.tunables.compact_background).is_err());
    }));
    assert!(!waits_in_a_freeze(SMALL_PAGES, |vm, _| assert_eq!(vm.zero_ahead(4), 0)));
    // The twin is an allocation like others.
    assert!(waits_in_a_freeze(SMALL_PAGES, |_, space| _ = space.madvise(AT, HUGE, COLLAPSE)));
}

/// A collapse that has its twin does without a huge frame.
#[test]
fn a_collapse_takes_no_huge_frame_from_a_last_resort() {
    let vm: &'static Vm<Plain> = Box::leak(Box::new(vm(8192, Tunables { thp: HUGE_PAGES, ..Tunables::default() })));
    let space = vm.new_space().unwrap();
    space.mmap(AT, 2 * HUGE, RW, FIXED_PRIVATE).unwrap();
    space.handle_fault(AT + HUGE, Access::Write).unwrap();
    assert_eq!(space.rss_pages().anon_huge, 512);
    vm.set_huge_knobs(&SMALL_PAGES).unwrap();
    space.handle_fault(AT, Access::Write).unwrap();
    set_freeze(vm);
    let before = held(vm);
    assert!(space.madvise(AT, HUGE, COLLAPSE).is_err());
    assert_eq!(held(vm), before);
    end_freeze(vm);
    assert_eq!(space.madvise(AT, HUGE, COLLAPSE), Ok(()));
}

/// A freeze is asked for while a caller has the first of two frames.
#[test]
fn who_has_a_part_gives_it_back_for_freeze() {
    let vm: &'static Vm<Plain> = Box::leak(Box::new(vm(1024, Tunables::default())));
    let before = held(vm);
    let nr_tries = Cell::new(0);
    let nr_waits = Cell::new(0);
    on_relax(move || {
        nr_waits.set(nr_waits.get() + 1);
        if nr_waits.get() == MANY {
            assert_eq!(held(vm) & 0xffff, before & 0xffff, "I28: a holder that waits");
            end_freeze(vm);
        }
    });
    let (_, hold) = vm
        .obtain_all(&mut |source| {
            let first = source.frame(Fill::Raw)?;
            assert_eq!(held(vm) & 0xffff, 1 + (before & 0xffff), "I28: counted from the first frame on");
            nr_tries.set(nr_tries.get() + 1);
            if nr_tries.get() == 1 {
                set_freeze(vm);
            }
            let second = source.frame(Fill::Raw).inspect_err(|_| vm.give_back(first, Fill::Raw))?;
            Ok((first, second))
        })
        .unwrap();
    on_relax(|| ());
    drop(hold);
    assert_eq!(nr_tries.get(), 2);
}

// Another CPU may delay the freeze in each turn, but no attempt.

/// CPU 1 claims the last frame whenever it was stolen, and has it in its frame cache again.
#[test]
fn an_attempt_steals_once() {
    let vm: &'static Vm<Plain> = Box::leak(Box::new(vm_of(2, 1024, Tunables::default()).unwrap()));
    let frames: Vec<_> = core::iter::from_fn(|| vm.obtain(Fill::Raw).ok()).collect();
    let into_cache = |pfn: Pfn| {
        vm.frames.mark(CpuId(1));
        let old = vm.cpus.at(1).zeroed.replace(u64::from(pfn.0) & !63, 1 << (pfn.0 & 63));
        assert_eq!(old.1, 0);
    };
    vm.frames.desc(frames[5]).clear();
    into_cache(frames[5]);
    let nr_rounds = Rc::new(Cell::new(0));
    let counted = nr_rounds.clone();
    on_relax(move || {
        if vm.frames.is_frozen() || vm.thief.get() != 0 || vm.cpus.at(1).zeroed.peek().is_some() {
            return;
        }
        be(1);
        if let Ok(pfn) = vm.try_obtain(Fill::Raw, Search::Blocks) {
            into_cache(pfn);
            counted.set(counted.get() + 1);
        }
        be(0);
        assert!(counted.get() < 100, "I28: an attempt without an end");
    });
    assert!(vm.obtain(Fill::Raw).is_ok());
    on_relax(|| ());
    assert!(nr_rounds.get() > 1, "taken again {} times", nr_rounds.get());
}

/// A CPU that has claimed frames and lost them to a thief was a holder for all that others know,
/// though it fails: a last-resort allocation that looked meanwhile has to look again.
#[test]
fn a_claim_that_was_lost_leaves_its_trace() {
    let vm: &'static Vm<Plain> = Box::leak(Box::new(vm_of(1, 4096, Tunables::default()).unwrap()));
    let frames: Vec<_> = core::iter::from_fn(|| vm.obtain(Fill::Raw).ok()).collect();
    let cpu = vm.cpus.at(0);
    cpu.block.set(0);
    vm.frames.desc(frames[5]).clear();
    vm.release_one(frames[5], crate::frame::Content::Unknown);
    let nr_lost = Rc::new(Cell::new(0));
    let counted = nr_lost.clone();
    // A look at the frame cache, the refill's exchange, and a look once more: before the last
    // one a thief empties the frame cache.
    let nr_entered = Cell::new(0);
    on_enter(move || {
        nr_entered.set(nr_entered.get() + 1);
        if nr_entered.get() == 3 {
            counted.set(cpu.zeroed.replace(0, 0).1.count_ones());
        }
    });
    let nr_ended = held(vm) >> 16;
    let hold = vm.hold();
    assert_eq!(vm.try_obtain(Fill::Zeroed, Search::Blocks), Err(OutOfFrames::Frame));
    hold.in_vain();
    on_enter(|| ());
    assert_eq!(nr_lost.get(), 1, "nothing was claimed and lost");
    assert_eq!(held(vm) >> 16, nr_ended + 1, "I28: frames were out of sight, and nobody has held any");
}
