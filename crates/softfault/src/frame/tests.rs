//! The allocator against a set of frame numbers.

use super::last_resort::ATTEMPTS_BEFORE_FREEZE;
use super::want::Search;
use super::want::{Content, Fill};
use super::{FrameKind, FreeBatch, OutOfFrames};
use crate::addr::{BlockId, Order, Pfn};
use crate::check::Broken;
use crate::cpu::ATTENTION_THIEF;
use crate::machine::CpuId;
use crate::mem;
use crate::space::Vm;
use crate::sync::{Ordering, Word};
use crate::testing::{Plain, be, on_relax, vm, vm_of};
use crate::tunables::Tunables;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::vec::Vec;

const NR_FRAMES: u64 = 4096;

pub(super) fn is_zero(vm: &Vm<Plain>, pfn: Pfn) -> bool {
    let words: &[Word; 512] = mem::view(&vm.machine, pfn, 0);
    words.iter().all(|w| w.get() == 0)
}

pub(super) fn soil(vm: &Vm<Plain>, pfn: Pfn) {
    let words: &[Word; 512] = mem::view(&vm.machine, pfn, 0);
    words[usize::from(pfn.0 as u16) % 512].set(!0);
}

/// Marks frames that were taken, as the tests of whole spaces would find them.
fn mark(vm: &Vm<Plain>, first: Pfn, order: Order, kind: FrameKind) {
    (0..order.nr_pages() as u32).for_each(|i| vm.frames.desc(Pfn(first.0 + i)).assign(kind, 0, 0, 0));
}

fn give_back(vm: &Vm<Plain>, first: Pfn, order: Order) {
    let mut batch = FreeBatch::new(vm);
    (0..order.nr_pages() as u32).for_each(|i| batch.add(Pfn(first.0 + i)));
}

#[test]
fn every_frame_is_given_once_and_comes_back() {
    let vm = vm(NR_FRAMES, Tunables::default());
    let before = vm.vmstat().nr_free_pages;
    let mut taken = Vec::new();
    while let Ok(pfn) = vm.obtain(Fill::Zeroed) {
        assert!(is_zero(&vm, pfn));
        soil(&vm, pfn);
        mark(&vm, pfn, Order::BASE, FrameKind::Meta);
        taken.push(pfn);
    }
    assert_eq!(taken.len() as u64, before);
    taken.sort();
    taken.dedup();
    assert_eq!(taken.len() as u64, before, "I12: a frame was given twice");
    assert_eq!(vm.vmstat().nr_free_pages, 0);
    taken.iter().for_each(|pfn| vm.give_back(*pfn, Fill::Raw));
    assert_eq!(vm.vmstat().nr_free_pages, before);
    let again = vm.obtain(Fill::Zeroed).unwrap();
    assert!(is_zero(&vm, again), "I20: a dirty frame was given as zero");
}

#[test]
fn random_orders_against_a_map() {
    let vm = vm(NR_FRAMES, Tunables { zero_batch: 7, ..Tunables::default() });
    let before = vm.vmstat().nr_free_pages;
    let mut live: BTreeMap<u32, Order> = BTreeMap::new();
    let mut state = 1u64;
    let mut random = |n: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 33) % n
    };
    for _ in 0..20_000 {
        if random(2) == 0 {
            let order = Order([0, 0, 0, 2, 3, 5, 6, 7, 8, 8][random(10) as usize]);
            let fill = if random(2) == 0 { Fill::Zeroed } else { Fill::Raw };
            let found = if order == Order::BASE { vm.obtain(fill) } else { vm.obtain_batch(order, 0) };
            let Ok(first) = found else { continue };
            assert!(u64::from(first.0).is_multiple_of(order.nr_pages()), "aligned to its size");
            let below = live.range(..=first.0).next_back().map_or(0, |(p, o)| p + o.nr_pages() as u32);
            let above = live.range(first.0..).next().map_or(u32::MAX, |(p, _)| *p);
            assert!(below <= first.0 && first.0 + order.nr_pages() as u32 <= above, "I12: overlaps");
            if fill == Fill::Zeroed {
                assert!((0..order.nr_pages() as u32).all(|i| is_zero(&vm, Pfn(first.0 + i))), "I20");
            }
            mark(&vm, first, order, FrameKind::Meta);
            soil(&vm, first);
            live.insert(first.0, order);
        } else if let Some((first, order)) = live.range(random(NR_FRAMES) as u32..).next().map(|(p, o)| (*p, *o)) {
            live.remove(&first);
            give_back(&vm, Pfn(first), order);
        }
    }
    for (first, order) in live {
        give_back(&vm, Pfn(first), order);
    }
    assert_eq!(vm.vmstat().nr_free_pages, before);
    vm.check_in_test(&[], &mut std::vec![0; NR_FRAMES as usize]).unwrap();
}

#[test]
fn caches_of_others_are_used_before_an_allocation_fails() {
    let vm = vm(1024, Tunables::default());
    let order = Order(6);
    let single = vm.obtain(Fill::Zeroed).unwrap();
    mark(&vm, single, Order::BASE, FrameKind::Meta);
    // 63 frames of the first word are in the frame cache now; blocks alone could give
    // fewer runs than there are.
    let mut nr = 1;
    while vm.obtain(Fill::Raw).is_ok() {
        nr += 1;
    }
    assert_eq!(nr, vm.vmstat().nr_total_pages);
    assert_eq!(vm.obtain_batch(order, 0), Err(OutOfFrames::Block(order)));
}

#[test]
fn aged_memory_gives_what_is_left() {
    let vm = vm(NR_FRAMES, Tunables::default());
    let before = vm.vmstat().nr_free_pages;
    let taken = vm.age(4, 7);
    let left = vm.vmstat().nr_free_pages;
    assert_eq!(before - taken, left);
    assert!(left > before / 32 && left < before / 8, "about 4 of 64: {left} of {before}");
    assert_eq!((0..left).filter(|_| vm.obtain(Fill::Raw).is_ok()).count() as u64, left);
}

#[test]
fn an_injected_failure_is_the_one_that_was_asked_for() {
    let vm = vm(1024, Tunables::default());
    vm.fail_allocation(Some(2));
    assert!(vm.obtain(Fill::Zeroed).is_ok());
    assert!(vm.obtain(Fill::Raw).is_ok());
    assert_eq!(vm.obtain(Fill::Zeroed), Err(OutOfFrames::Frame));
    assert_eq!(vm.obtain(Fill::Zeroed), Err(OutOfFrames::Frame), "and all after it");
    vm.fail_allocation(None);
    assert!(vm.obtain(Fill::Zeroed).is_ok());
}

/// Blocks count as one allocation each, and a refused one takes nothing.
#[test]
fn an_injected_failure_stops_blocks_too() {
    let vm = vm(1024, Tunables::default());
    let before = vm.vmstat().nr_free_pages;
    for order in [Order(3), Order(6)] {
        vm.fail_allocation(Some(1));
        let first = vm.obtain_batch(order, 0).unwrap();
        assert_eq!(vm.obtain_batch(order, 0), Err(OutOfFrames::Block(order)));
        assert_eq!(vm.vmstat().nr_free_pages, before - order.nr_pages());
        vm.fail_allocation(None);
        give_back(&vm, first, order);
        assert_eq!(vm.vmstat().nr_free_pages, before);
    }
}

#[test]
fn a_table_that_no_entry_names_is_noticed() {
    let vm = vm(1024, Tunables::default());
    let mut counts = std::vec![0; 1024];
    assert_eq!(vm.check_in_test(&[], &mut counts), Ok(()));
    let pfn = vm.obtain(Fill::Fixed).unwrap();
    mark(&vm, pfn, Order::BASE, FrameKind::Table);
    assert_eq!(vm.check_in_test(&[], &mut counts), Err(Broken::Lost(pfn)));
}

/// I28: another CPU has the last free frames, and they come back while an allocation looks for them.
#[test]
fn held_frames_are_waited_for() {
    let vm = vm(1024, Tunables::default());
    let claimed = vm.claim_rest(BlockId(1), vm.hold()).unwrap();
    assert_eq!(claimed.nr_ours(), 512);
    while vm.vmstat().nr_free_pages > 0 {
        vm.obtain(Fill::Raw).unwrap();
    }
    let nr_relaxed = &vm.machine.nr_relaxed;
    let before = nr_relaxed.get();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while nr_relaxed.get() < before + 3 {
                std::thread::yield_now();
            }
            drop(claimed);
        });
        let found = vm.obtain(Fill::Raw);
        // Lets the other go on if nobody waited.
        nr_relaxed.set(before + 3);
        assert!(found.is_ok(), "I28: refused while frames were held");
    });
    assert!(vm.obtain(Fill::Raw).is_ok());
}

/// I28: another CPU had the last frame while this one looked, gave it back, and lost its mark to
/// the search that came after.
#[test]
fn a_hold_that_lost_its_mark_is_not_passed_over() {
    let vm = vm_of(2, 1024, Tunables::default()).unwrap();
    let mut last = None;
    while let Ok(pfn) = vm.obtain(Fill::Raw) {
        last = Some(pfn);
    }
    vm.release_one(last.unwrap(), Content::Unknown);
    let mut nr_attempts = 0;
    let found = vm.last_resort().attempt(0, &mut |search| {
        let held = vm.hold();
        nr_attempts += 1;
        if nr_attempts > 1 || search != Search::Everywhere {
            return vm.try_obtain(Fill::Raw, search);
        }
        be(1);
        let theirs = vm.hold();
        assert!(
            vm.frames.blocks.at(BlockId::of(last.unwrap())).claim_some(last.unwrap().0 as usize / 64 % 8, 64).0 != 0
        );
        be(0);
        let none = vm.try_obtain(Fill::Raw, Search::Blocks);
        assert_eq!(none, Err(OutOfFrames::Frame));
        be(1);
        vm.release_one(last.unwrap(), Content::Unknown);
        drop(theirs);
        be(0);
        assert!(!vm.steal_in_last_resort());
        held.in_vain();
        none
    });
    assert_eq!(found, Ok(last.unwrap()), "I28: refused, though a frame was held meanwhile");
}

/// Only the owner of the turn takes marks away.
#[test]
fn a_thief_outside_a_last_resort_leaves_marks() {
    let vm = vm_of(2, 1024, Tunables::default()).unwrap();
    be(1);
    vm.obtain(Fill::Raw).unwrap();
    be(0);
    assert!(vm.steal_caches());
    assert!(vm.frames.is_marked(CpuId(1)), "I28: a holder there would be out of sight for a moment");
    let turn = vm.last_resort();
    let _ = turn.holders();
    assert!(!vm.steal_in_last_resort());
    assert!(!vm.frames.is_marked(CpuId(1)), "each refusal would visit it");
    be(1);
    let held = vm.hold();
    be(0);
    let _ = turn.holders();
    vm.steal_in_last_resort();
    assert!(vm.frames.is_marked(CpuId(1)), "I28: it holds frames");
    drop(held);
}

/// A refusal on one CPU after one on another takes one attempt, as if the CPUs had never had frames.
#[test]
fn a_refusal_takes_one_attempt_on_each_cpu() {
    let vm = vm_of(4, 1024, Tunables::default()).unwrap();
    while vm.obtain(Fill::Raw).is_ok() {}
    for cpu in [1, 2, 3, 1, 0, 2] {
        be(cpu);
        let mut nr_attempts = 0;
        let refused = vm.last_resort().attempt(0, &mut |search| {
            nr_attempts += 1;
            let held = vm.hold();
            let found = vm.try_obtain(Fill::Raw, search);
            held.in_vain();
            found
        });
        assert_eq!((refused, nr_attempts), (Err(OutOfFrames::Frame), 1), "on CPU {cpu}");
    }
    be(0);
}

/// A thief outside a last-resort turn empties a few CPUs' caches, and others the next time.
#[test]
fn compaction_robs_some_cpus_at_a_time() {
    let nr_cpus = 40;
    let vm = vm_of(nr_cpus, 512 * 64, Tunables::default()).unwrap();
    for cpu in 0..nr_cpus as u16 {
        be(cpu);
        vm.obtain(Fill::Raw).unwrap();
    }
    be(0);
    let nr_full = || (0..nr_cpus).filter(|id| vm.cpu(CpuId(*id as u16)).nr_in_caches() > 0).count();
    for left in [24, 8, 0] {
        vm.steal_some_caches();
        assert_eq!(nr_full(), left);
    }
}

/// I28: in each attempt a hold of another CPU ends, until the others are asked to stand back.
#[test]
fn a_refusal_takes_a_bounded_number_of_attempts() {
    let vm = vm(1024, Tunables::default());
    let mut nr_attempts = 0;
    let refused = vm.surely::<()>(&mut |_| {
        nr_attempts += 1;
        assert!(nr_attempts < 1000, "I28: a refusal that others put off for ever");
        if !vm.frames.is_frozen() {
            drop(vm.hold());
        }
        Err(OutOfFrames::Frame)
    });
    assert_eq!(refused, Err(OutOfFrames::Frame));
    // One before the turn, and one during a freeze.
    assert_eq!(nr_attempts, 1 + ATTEMPTS_BEFORE_FREEZE + 1);
    assert!(!vm.frames.is_frozen() && !vm.frames.is_last_resort_active());
    assert!(vm.obtain(Fill::Raw).is_ok());
}

/// I20: one frame that is not zero, in whichever word of the block, and the huge
/// frame is not taken for zero: by a fault, nor by compaction.
#[test]
fn a_huge_frame_is_zero_if_all_of_it_is() {
    let vm = vm(2048, Tunables::default());
    let block = vm.frames.blocks.at(BlockId(2));
    for w in 0..8 {
        let claim = |content: Content| {
            let Ok(huge) = vm.claim_rest(BlockId(2), vm.hold()).unwrap().into_huge() else { panic!("it is free") };
            assert_eq!(huge.content, content, "claimed by word {w}");
            vm.give_back_huge(huge.first, Content::Zero);
            if content == Content::Unknown {
                block.claim_exact(w, 1 << (w * 5)).unwrap();
                vm.release_one(Pfn(1024 + w as u32 * 69), Content::Unknown);
            }
            let huge = vm.claim_whole(BlockId(2)).unwrap();
            assert_eq!(huge.content, content, "word {w}");
            huge.first
        };
        vm.give_back_huge(claim(Content::Zero), Content::Zero);
        let bit = 1 << (w * 5);
        block.claim_exact(w, bit).unwrap();
        let pfn = Pfn(1024 + w as u32 * 64 + w as u32 * 5);
        soil(&vm, pfn);
        vm.release_one(pfn, Content::Unknown);
        assert_eq!(vm.check_free_in_test(), Ok(()), "its dirty bit is set");
        let first = claim(Content::Unknown);
        // A false claim that it is zero is found.
        vm.give_back_huge(first, Content::Zero);
        assert_eq!(vm.check_free_in_test(), Err(Broken::NotZero(pfn)));
        mem::zero_frames(&vm.machine, pfn, 1);
        assert_eq!(vm.check_free_in_test(), Ok(()));
    }
}

/// I10: while a thief has the frame caches in its hands, a frame goes back into the blocks.
#[test]
fn a_cache_gets_nothing_while_a_thief_has_it() {
    let vm = vm(1024, Tunables::default());
    let [one, two] = [(); 2].map(|()| vm.obtain(Fill::Zeroed).unwrap());
    let cpu = vm.cpus.at(0);
    let nr_in_cache = || cpu.zeroed.mask.get().count_ones();
    let before = nr_in_cache();
    cpu.attention.fetch_or(ATTENTION_THIEF, Ordering::SeqCst);
    vm.give_back(one, Fill::Zeroed);
    assert_eq!(nr_in_cache(), before, "I10: the thief is about to empty it");
    cpu.attention.fetch_and(!ATTENTION_THIEF, Ordering::SeqCst);
    vm.give_back(two, Fill::Zeroed);
    assert_eq!(nr_in_cache(), before + 1, "of the frame cache's block, and nobody is there");
}

/// I10: a refill that has claimed its frames waits until the thief has gone.
#[test]
fn a_refill_waits_for_the_thief() {
    let vm: &'static Vm<Plain> = Box::leak(Box::new(vm(1024, Tunables::default())));
    let cpu = vm.cpus.at(0);
    cpu.attention.fetch_or(ATTENTION_THIEF, Ordering::SeqCst);
    on_relax(move || {
        assert_eq!(cpu.zeroed.mask.get(), 0, "I10: the thief is about to empty it");
        cpu.attention.fetch_and(!ATTENTION_THIEF, Ordering::SeqCst);
    });
    vm.refill(Fill::Zeroed, Search::Blocks).unwrap();
    on_relax(|| ());
    assert_ne!(cpu.zeroed.mask.get(), 0);
    assert_eq!(cpu.attention.get() & ATTENTION_THIEF, 0, "I10: it did not wait");
}

/// I2: after an answer the search may go on on a CPU that has a block.
#[test]
fn a_cpu_reserves_no_second_block() {
    let vm = vm(4096, Tunables::default());
    let [one, two] = [BlockId(3), BlockId(4)];
    assert!(vm.reserve_here(one) && vm.reserve_here(two), "the search is over");
    let is_reserved = |b: BlockId| vm.frames.blocks.at(b).owner() != 0;
    assert_eq!([one, two].map(is_reserved), [true, false]);
}
