//! I43: what the CPUs have counted is what the bitmaps say, however frames come and go.

use super::super::{Content, Fill, FreeBatch};
use crate::addr::{Access, BLOCK_FRAMES, BlockId, Order, Pfn};
use crate::check::{Broken, Counter};
use crate::machine::CpuId;
use crate::policy::compact::CompactBudget;
use crate::space::Vm;
use crate::testing::{FIXED_PRIVATE, Plain, RW, be, vm_of};
use crate::tunables::Tunables;

use std::vec::Vec;

const NR_CPUS: usize = 3;
const AT: u64 = 1 << 30;

fn machine() -> Vm<Plain> {
    be(0);
    vm_of(NR_CPUS, 16 * BLOCK_FRAMES, Tunables::default()).unwrap()
}

fn is_counted(vm: &Vm<Plain>) {
    assert_eq!(vm.check_summaries(), Ok(()));
    assert_eq!(vm.nr_free_as_counted(), vm.frames.nr_free_in_blocks(), "I43");
}

/// Takes on one CPU, gives back on another, and looks after each step.
fn there_and_back<T>(vm: &Vm<Plain>, nr: u64, take: impl Fn() -> T, give: impl Fn(T)) {
    for (taker, giver) in [(0, 0), (0, 1), (2, 0)] {
        let before = vm.nr_free_pages();
        be(taker);
        let taken = take();
        is_counted(vm);
        assert_eq!(vm.nr_free_pages(), before - nr);
        be(giver);
        give(taken);
        is_counted(vm);
        assert_eq!(vm.nr_free_pages(), before);
    }
    be(0);
}

#[test]
fn each_size_is_counted() {
    let vm = machine();
    assert_eq!(vm.nr_free_pages(), vm.nr_total_pages.get());
    for fill in [Fill::Raw, Fill::Zeroed, Fill::Fixed] {
        there_and_back(&vm, 1, || vm.obtain(fill).unwrap(), |pfn| vm.give_back(pfn, Fill::Raw));
        // Into the frame cache of a CPU, or to the block if it is not of that frame cache.
        there_and_back(&vm, 1, || vm.obtain(Fill::Fixed).unwrap(), |pfn| vm.give_back(pfn, Fill::Fixed));
    }
    for order in [Order(2), Order(4), Order(7), Order(8)] {
        let run = || vm.obtain_batch(order, 0).unwrap();
        there_and_back(&vm, order.nr_pages(), run, |first| vm.release_run(first, order.nr_pages(), Content::Unknown));
        there_and_back(&vm, order.nr_pages(), run, |first| {
            let mut batch = FreeBatch::new(&vm);
            (0..order.nr_pages() as u32).for_each(|i| batch.add(Pfn(first.0 + i)));
        });
    }
    let whole = || vm.obtain_huge().unwrap();
    there_and_back(&vm, BLOCK_FRAMES, whole, |huge| vm.give_back_huge(huge.first, Content::Unknown));
    vm.steal_caches();
    is_counted(&vm);
    assert_eq!(vm.frames.nr_free_in_blocks(), vm.nr_total_pages.get(), "nothing is in frame caches");
    assert!(vm.cpus.iter().all(|cpu| cpu.batches.nr_taken.get() != 0), "single words say more or less than nothing");
}

#[test]
fn who_holds_frames_for_a_while_counts_them() {
    let vm = machine();
    let before = vm.nr_free_pages();
    assert_eq!(vm.zero_ahead(2), 0, "all of it is zero");
    let claimed = vm.claim_rest(BlockId(3), vm.hold()).unwrap();
    is_counted(&vm);
    assert_eq!(vm.nr_free_pages(), before - BLOCK_FRAMES);
    drop(claimed);
    is_counted(&vm);
    // A frame that becomes free while the rest of its block is claimed.
    let first = BlockId(3).first_frame();
    vm.frames.blocks.at(BlockId(3)).claim_exact(0, 1).unwrap();
    vm.count_taken(1);
    let mut claimed = vm.claim_rest(BlockId(3), vm.hold()).unwrap();
    vm.release_one(first, Content::Unknown);
    assert!(claimed.claim_one(first));
    is_counted(&vm);
    let Ok(huge) = claimed.into_huge() else { panic!("all of it is claimed") };
    is_counted(&vm);
    vm.give_back_huge(huge.first, Content::Unknown);
    is_counted(&vm);
    assert_eq!(vm.zero_ahead(16), 1);
    is_counted(&vm);
    assert_eq!(vm.nr_free_pages(), before);
}

/// Pages move from block to block: frames of both are claimed, and one is given up.
#[test]
fn compaction_counts_both_blocks() {
    let vm = machine();
    let before = vm.nr_free_pages();
    let space = vm.new_space().unwrap();
    space.mmap(AT, 64 << 12, RW, FIXED_PRIVATE).unwrap();
    for page in 0..40 {
        be(page as u16 % NR_CPUS as u16);
        space.handle_fault(AT + (page << 12), Access::Write).unwrap();
    }
    be(1);
    vm.steal_caches();
    let nr_free = vm.nr_free_pages();
    let whole: Vec<_> = core::iter::from_fn(|| vm.obtain_huge().ok()).collect();
    let made = vm.compact_step(&CompactBudget::BACKGROUND);
    is_counted(&vm);
    assert!(made.is_ok(), "{made:?}");
    be(2);
    whole.iter().for_each(|huge| vm.give_back_huge(huge.first, Content::Unknown));
    is_counted(&vm);
    assert_eq!(vm.nr_free_pages(), nr_free);
    drop(space);
    is_counted(&vm);
    assert_eq!(vm.nr_free_pages(), before);
}

#[test]
fn a_count_that_is_wrong_is_noticed() {
    let vm = machine();
    let there = vm.nr_total_pages.get();
    vm.cpu(CpuId(1)).batches.nr_taken.add_owned(1);
    let wrong = Broken::Miscounted { what: Counter::Free, counted: there - 1, there };
    assert_eq!(vm.check_summaries(), Err(wrong));
    // As a look may find it that comes between a claim and a release on two CPUs.
    vm.cpu(CpuId(1)).batches.nr_taken.set(there + 5);
    assert_eq!(vm.vmstat().nr_free_pages, 0, "and no number from below zero");
}
