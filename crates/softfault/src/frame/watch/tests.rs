//! The count of free memory is within its bound, and reclaim begins and ends where the
//! watermarks say.

use super::BLOCK_GROUPS_PER_SAMPLE;
use crate::addr::{BLOCK_FRAMES, BlockId, Order};
use crate::frame::{BLOCK_WORDS, Content, Kind, word_base};
use crate::linux::Advice;
use crate::machine::{CpuId, Machine};
use crate::policy::huge::Enabled;
use crate::space::Vm;
use crate::testing::{FIXED_PRIVATE, Plain, RW, be, vm, vm_of};
use crate::tunables::Tunables;
use crate::tunables::huge::{HugeKnobs, KhugepagedKnobs};
use std::vec::Vec;

const AT: u64 = 1 << 30;
const HUGE: u64 = 2 << 20;

pub(super) fn tunables() -> Tunables {
    let khugepaged = KhugepagedKnobs { max_ptes_none: 100, ..HugeKnobs::DEFAULT.khugepaged };
    let thp = HugeKnobs { enabled: Enabled::Always, khugepaged, ..HugeKnobs::DEFAULT };
    Tunables { thp, ..Tunables::default() }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ z >> 27
}

/// Takes all free frames but about `free_of_64` in 64 of the blocks that `chance` picks.
fn take_some(vm: &Vm<Plain>, seed: &mut u64, taken: &mut Vec<(u64, u64)>) {
    let (nr_of_4, density) = (splitmix(seed) % 5, splitmix(seed) % 64);
    for b in vm.frames.blocks.names().iter().filter(|b| u64::from(b.0) % 4 < nr_of_4) {
        for w in 0..BLOCK_WORDS {
            let block = vm.frames.blocks.at(b);
            let want = (0..64).filter(|_| splitmix(seed) % 64 < density).fold(0, |bits, i| bits | 1 << i);
            let mask = want & block.free_word(w);
            if mask != 0 && block.claim_exact(w, mask).is_some() {
                taken.push((word_base(b, w), mask));
            }
        }
    }
}

fn give_some(vm: &Vm<Plain>, seed: &mut u64, taken: &mut Vec<(u64, u64)>) {
    for _ in 0..splitmix(seed) as usize % (taken.len() + 1) {
        let i = splitmix(seed) as usize % taken.len();
        let (base, mask) = taken.swap_remove(i);
        vm.release_word(base, mask, Content::Unknown);
    }
}

/// I41, in memory of few blocks, of few block groups, and of many.
#[test]
fn what_is_seen_of_free_memory_is_within_its_bound() {
    for (nr_cpus, nr_blocks) in [(1, 8), (1, 9), (8, 64), (16, 128), (100, 110)] {
        let vm = vm_of(nr_cpus, nr_blocks * BLOCK_FRAMES, tunables()).unwrap();
        let nr_looks = vm.frames.blocks.summary.nr_block_groups().div_ceil(BLOCK_GROUPS_PER_SAMPLE);
        assert_eq!(nr_looks > 1, nr_blocks > 64, "block groups are looked at in turn where there are many");
        let (mut seed, mut taken) = (nr_blocks, Vec::new());
        for round in 0..40 {
            take_some(&vm, &mut seed, &mut taken);
            give_some(&vm, &mut seed, &mut taken);
            assert_eq!(vm.frames.uncounted(&vm.cpus), None);
            let seen = (0..nr_looks).map(|_| vm.frames.sample()).last().unwrap();
            let exact = vm.frames.nr_free_in_blocks();
            let is_within = if nr_blocks <= 8 { seen == exact } else { 2 * seen <= 3 * exact && 3 * exact <= 4 * seen };
            assert!(is_within, "{nr_blocks} blocks, round {round}: {seen} seen, {exact} free");
        }
    }
}

pub(super) fn claim_all(vm: &Vm<Plain>, b: BlockId) {
    (0..BLOCK_WORDS).for_each(|w| _ = vm.frames.blocks.at(b).claim_some(w, 64));
}

/// The sum as it is, without the block groups that have changed since they were looked at.
pub(super) fn noted(vm: &Vm<Plain>) -> u64 {
    vm.frames.watch.nr_used.get()
}

/// Frames that a CPU takes are counted at its next look, wherever its blocks are: no round of looks has
/// to pass.
#[test]
fn a_look_takes_the_block_groups_that_the_cpu_was_in() {
    let vm = vm_of(2, 1024 * BLOCK_FRAMES, tunables()).unwrap();
    assert!(vm.frames.has_sum());
    be(1);
    let cpu = vm.cpu(CpuId(1));
    let before = noted(&vm);
    cpu.samples_after.set(4);
    // In a block group each. The last one is full by the time of the look.
    for b in [900, 500, 100].map(BlockId) {
        vm.begun(b);
        claim_all(&vm, b);
    }
    assert_eq!((noted(&vm), cpu.unseen.get()), (before, 2 * BLOCK_FRAMES), "two were left");
    cpu.samples_after.set(1);
    vm.begun(BlockId(100));
    assert_eq!((noted(&vm), cpu.unseen.get()), (before + 3 * BLOCK_FRAMES, 0));
    assert_eq!(vm.frames.uncounted(&vm.cpus), None);
    be(0);
}

/// Frames that others gave back are counted though nobody begins a block there.
#[test]
fn looks_take_block_groups_at_random() {
    let vm = vm_of(128, 128 * BLOCK_FRAMES, tunables()).unwrap();
    let huge: Vec<_> = core::iter::from_fn(|| vm.claim_whole(BlockId(127))).collect();
    vm.frames.look_at_all();
    let before = noted(&vm);
    huge.iter().for_each(|huge| vm.give_back_huge(huge.first, huge.content));
    let cpu = vm.cpu(CpuId(0));
    let is_seen = |i: u32| {
        cpu.samples_after.set(1);
        vm.begun(BlockId(10 + i % 90));
        noted(&vm) == before - BLOCK_FRAMES
    };
    assert!((0..10_000).any(is_seen));
}

/// Each CPU looks so rarely that the shared words are hardly ever written while much is free.
#[test]
fn looks_are_rare_while_much_is_free() {
    let vm = vm_of(16, 512 * BLOCK_FRAMES, tunables()).unwrap();
    let after = &vm.cpu(vm.machine.this_cpu()).samples_after;
    vm.begun(BlockId(0));
    let nr_blocks = after.get() + 1;
    assert!((8..=16).contains(&nr_blocks), "{nr_blocks} of 512 blocks, from the first");
    for left in (1..nr_blocks - 1).rev().chain([nr_blocks]) {
        vm.begun(BlockId(0));
        assert_eq!(after.get(), left);
    }
    assert_eq!(vm.frames.watch.cursor.get(), 0, "no round of looks");
}

/// With Linux's default of `max_ptes_none` no huge page is split for its zeroes.
#[test]
fn nobody_looks_where_nobody_would_react() {
    let vm = vm_of(16, 128 * BLOCK_FRAMES, Tunables::default()).unwrap();
    (0..100).for_each(|b| vm.begun(BlockId(b)));
    assert_eq!(vm.frames.watch.cursor.get(), 0);
    assert_eq!(vm.frames.watch.phase.get(), 1, "all CPUs read it, and the first one writes it");
}

/// Between the watermarks memory is as short as it was.
#[test]
fn memory_is_short_from_low_until_high() {
    let vm = vm(4096, tunables());
    let marks = vm.watermarks();
    assert!(marks.min_pages > 64 && marks.low_pages < marks.high_pages, "{marks:?}");
    let mut taken: Vec<u32> = Vec::new();
    // Frames one by one, so that any number can be free.
    let mut set_free = |nr_free: u64| {
        while vm.frames.nr_free_in_blocks() > nr_free {
            let blocks = &vm.frames.blocks;
            let b = blocks.names().iter().find(|b| blocks.at(*b).nr_free() > 0).unwrap();
            let w = (0..BLOCK_WORDS).find(|w| blocks.at(b).free_word(*w) != 0).unwrap();
            let (mask, _) = blocks.at(b).claim_some(w, 1);
            taken.push((word_base(b, w) + u64::from(mask.trailing_zeros())) as u32);
        }
        while vm.frames.nr_free_in_blocks() < nr_free {
            vm.release_one(crate::addr::Pfn(taken.pop().unwrap()), Content::Unknown);
        }
        vm.cpu(CpuId(0)).samples_after.set(1);
        vm.begun(BlockId(0));
        vm.frames.is_low.swap(0, crate::sync::Ordering::Relaxed) != 0
    };
    let (low, high) = (marks.low_pages, marks.high_pages);
    let steps = [
        (high, false),
        (low, false),
        (low - 1, true),
        (marks.min_pages, true),
        (low, true),
        (high - 1, true),
        (high, false),
        (high - 1, false),
        (low, false),
        (low - 1, true),
    ];
    for (i, (nr_free, is_low)) in steps.into_iter().enumerate() {
        assert_eq!(set_free(nr_free), is_low, "step {i}: {nr_free} free of {marks:?}");
    }
}

/// Pages that are mostly zeroes, in small and in huge pages, until memory is short.
fn fill(advice: Option<Advice>) -> bool {
    let vm = vm(4096, Tunables { shrink_blocks: 0, watermark_scale_factor: 1000, ..tunables() });
    let space = vm.new_space().unwrap();
    space.mmap(AT, 16 * HUGE, RW, FIXED_PRIVATE).unwrap();
    if let Some(advice) = advice {
        space.madvise(AT, 16 * HUGE, advice).unwrap();
    }
    let step = if advice.is_some() { 4096 } else { HUGE };
    let is_short = || vm.frames.watch.is_short.get() != 0;
    let written = (0..16 * HUGE / step).take_while(|i| !is_short() && space.write(AT + i * step, &[1]).is_ok()).count();
    let nr_free = vm.nr_free_pages();
    assert!(is_short() || nr_free > vm.watermarks().low_pages / 2, "{written} written, {nr_free} free");
    is_short()
}

#[test]
fn faults_of_all_sizes_see_that_memory_is_short() {
    assert!(fill(Some(Advice::NoHugePage)), "small pages");
    assert!(fill(None), "huge pages");
}

/// Without a refill: a block as a whole, or as runs.
#[test]
fn a_block_is_begun_by_whoever_claims_a_part_or_all_of_it() {
    let claims: [fn(&Vm<Plain>) -> bool; 2] =
        [|vm| vm.obtain_huge().is_ok(), |vm| vm.obtain_batch(Order(4), 0).is_ok()];
    for (i, claim) in claims.into_iter().enumerate() {
        let vm = vm(4096, Tunables { watermark_scale_factor: 3000, ..tunables() });
        let whole = vm.frames.blocks.offering_last(Kind::Whole, vm.frames.blocks.names()).take(6);
        whole.for_each(|b| assert!(vm.claim_whole(b).is_some()));
        assert_eq!((vm.frames.watch.is_short.get(), vm.frames.is_low.get()), (0, 0));
        assert!(claim(&vm));
        assert_eq!((vm.frames.watch.is_short.get(), vm.frames.is_low.get()), (1, 1), "claim {i}");
    }
}

/// One block at a time, on and on, until `high`: not only to where it began, and no further.
#[test]
fn reclaim_goes_on_until_high() {
    let tunables = Tunables { shrink_blocks: 1, watermark_scale_factor: 2000, ..tunables() };
    let vm = vm(20 * BLOCK_FRAMES, tunables);
    let marks = vm.watermarks();
    let space = vm.new_space().unwrap();
    space.mmap(AT, 64 * HUGE, RW, FIXED_PRIVATE).unwrap();
    let nr_free = || vm.frames.nr_free_in_blocks();
    let mut nr_huge = 0;
    while nr_free() >= marks.low_pages {
        space.write(AT + nr_huge * HUGE, &[1]).unwrap();
        nr_huge += 1;
    }
    assert_eq!(space.rss_pages().anon_huge / 512, nr_huge, "nothing is split before memory is short");
    // Small pages, of which a refill brings 64, in turns of a slow path each.
    let small = AT + 40 * HUGE;
    space.madvise(small, HUGE, Advice::NoHugePage).unwrap();
    for page in 0..512 {
        vm.cpu(CpuId(0)).samples_after.set(1);
        vm.steal_caches();
        space.write(small + page * 4096, &[1]).unwrap();
    }
    let nr_split = nr_huge - space.rss_pages().anon_huge / 512;
    assert!(nr_free() + 64 >= marks.high_pages * 2 / 3, "{} free of {marks:?}, {nr_split} split", nr_free());
    assert!(nr_split < nr_huge && nr_free() < marks.high_pages * 4 / 3 + 1024, "{nr_split} of {nr_huge} split");
    assert_eq!((vm.frames.watch.is_short.get(), vm.frames.is_low.get()), (0, 0));
}
