//! Whatever block a policy names, nothing is lost and nobody else's frame is taken.

use super::*;
use crate::addr::Access;
use crate::frame::{Class, Kind};
use crate::linux::MapFlags;
use crate::policy::compact::CompactBudget;
use crate::policy::huge::Enabled;
use crate::space::AddressSpace;
use crate::space::ops::ObjectPart;
use crate::testing::{FIXED_PRIVATE, Plain, RW, vm};
use crate::tunables::Tunables;

fn empty(vm: &Vm<Plain>, b: BlockId) -> Result<HugeFrame, CompactRefusal> {
    Attempt::new(vm, &CompactBudget::BACKGROUND).empty(b)
}

fn in_the_way(refusal: MigrateRefusal) -> Result<HugeFrame, CompactRefusal> {
    Err(CompactRefusal::InTheWay(refusal))
}

#[test]
fn hostile_plans() {
    let vm = vm(4096, Tunables::default());
    let before = vm.vmstat().nr_free_pages;
    assert_eq!(empty(&vm, BlockId(8)), in_the_way(MigrateRefusal::Raced), "no such block");
    assert_eq!(empty(&vm, BlockId(u32::MAX)), in_the_way(MigrateRefusal::Raced));
    assert_eq!(empty(&vm, BlockId(0)), in_the_way(MigrateRefusal::Reserved), "the metadata");
    let huge = vm.obtain_huge().unwrap();
    let b = BlockId::of(huge.first);
    assert_eq!(empty(&vm, b), in_the_way(MigrateRefusal::HugePage), "somebody's huge frame");
    vm.give_back_huge(huge.first, crate::frame::Content::Unknown);
    assert!(vm.frames.blocks.at(BlockId(3)).reserve(1));
    assert_eq!(empty(&vm, BlockId(3)), in_the_way(MigrateRefusal::Raced), "a CPU's own");
    vm.frames.blocks.at(BlockId(3)).unreserve(1);
    // A block that is free is no worse than one that has to be emptied.
    let made = empty(&vm, BlockId(3)).unwrap();
    assert_eq!(made.first, BlockId(3).first_frame());
    vm.give_back_huge(made.first, made.content);
    assert_eq!(vm.vmstat().nr_free_pages, before);
    assert_eq!(vm.frames.blocks.at(BlockId(3)).owner(), 0);
}

/// Writes 40 pages, and gives the block that they lie in. No CPU has reserved it.
fn fill_block(vm: &Vm<Plain>, space: &AddressSpace<'_, Plain>) -> BlockId {
    space.mmap(1 << 30, 64 << 12, RW, FIXED_PRIVATE).unwrap();
    (0..40).for_each(|page| _ = space.handle_fault((1 << 30) + (page << 12), Access::Write).unwrap());
    let b = block_of(space, 0);
    vm.steal_caches();
    vm.frames.blocks.at(b).unreserve(1);
    b
}

fn block_of(space: &AddressSpace<'_, Plain>, page: u64) -> BlockId {
    let pfn = space.translate_at_rest((1 << 30) + (page << 12)).unwrap().pfn;
    BlockId::of(pfn)
}

/// The block that all pages lie in, with nowhere else to go, and then with.
#[test]
fn without_room_elsewhere_everything_is_put_back() {
    let mut vm = vm(4096, Tunables::default());
    vm.reclaim.shrink = |_, _, _, _| panic!("compaction reclaims nothing");
    {
        let space = vm.new_space().unwrap();
        let b = fill_block(&vm, &space);
        vm.frames.is_low.set(1);
        // All other blocks are wholly free, or have frames that stay.
        let kept = vm.claim_rest(BlockId(0), vm.hold()).unwrap();
        assert_eq!(empty(&vm, b), in_the_way(MigrateRefusal::NoTarget));
        drop(kept);
        assert_eq!(vm.frames.is_low.swap(0, Ordering::Relaxed), 1, "left to others");
        assert_eq!(block_of(&space, 39), b);
        let made = empty(&vm, b).unwrap();
        assert!((0..40).all(|page| block_of(&space, page) != b));
        vm.give_back_huge(made.first, made.content);
        vm.check_in_test(&[&space], &mut std::vec![0; 4096]).unwrap();
    }
    vm.check_in_test(&[], &mut std::vec![0; 4096]).unwrap();
}

/// All free frames lie in blocks with tables: those in full blocks of pages can go there.
#[test]
fn a_full_block_is_emptied_into_blocks_of_tables() {
    let mut tunables = Tunables::default();
    tunables.thp.enabled = Enabled::Never;
    let vm = vm(4096, tunables);
    let space = vm.new_space().unwrap();
    space.mmap(1 << 30, 2048 << 12, RW, FIXED_PRIVATE).unwrap();
    (0..1100).for_each(|page| _ = space.handle_fault((1 << 30) + (page << 12), Access::Write).unwrap());
    vm.steal_caches();
    let mut nr_full = 0;
    for block in vm.frames.blocks.names().iter().map(|b| vm.frames.blocks.at(b)) {
        block.unreserve(1);
        if block.nr_free() == 0 {
            nr_full += 1;
            continue;
        }
        // A table in each, so that none is wholly free.
        let is_free = |w: &usize| block.claim_exact(*w, 1).is_some();
        vm.count_taken((0..BLOCK_WORDS).find(is_free).map_or(0, |_| 1));
        block.mark(Class::Fixed);
    }
    assert!(nr_full > 0, "the blocks of the pages");
    let made = Attempt::new(&vm, &CompactBudget::BACKGROUND).run().unwrap();
    assert!((0..1100).all(|page| block_of(&space, page) != BlockId::of(made.first)));
    vm.give_back_huge(made.first, made.content);
}

/// Pages of a block that have moved when so many steps were spent.
fn nr_moved_in(nr_steps: u64) -> (Result<(), CompactRefusal>, u64) {
    let vm = vm(4096, Tunables::default());
    let space = vm.new_space().unwrap();
    let b = fill_block(&vm, &space);
    let made = Attempt::new(&vm, &CompactBudget { nr_steps, ..CompactBudget::BACKGROUND }).empty(b);
    let nr_moved = (0..40).filter(|page| block_of(&space, *page) != b).count() as u64;
    let result = made.map(|huge| vm.give_back_huge(huge.first, huge.content));
    vm.check_in_test(&[&space], &mut std::vec![0; 4096]).unwrap();
    (result, nr_moved)
}

/// Others make more steps than the attempt may wait for: it ends, and does not try the next block. As many are no obstacle.
#[test]
fn steps_of_others_are_spent() {
    let vm = vm(4096, Tunables::default());
    let mut attempt = Attempt::new(&vm, &CompactBudget { nr_steps: 10, ..CompactBudget::BACKGROUND });
    assert_eq!((attempt.steps.wait_for(10).is_ok(), attempt.check_budget()), (true, Ok(())));
    assert_eq!((attempt.steps.wait_for(1).is_ok(), attempt.check_budget()), (false, Err(CompactRefusal::OverBudget)));
}

/// A batch is 16 pages, and each costs a step of the walk for its entry.
#[test]
fn steps_are_spent_for_each_page() {
    let mut worst = 0;
    for nr_steps in 0..40 {
        let (result, nr_moved) = nr_moved_in(nr_steps);
        assert_eq!(result, Err(CompactRefusal::OverBudget), "{nr_steps}");
        assert!(nr_moved <= nr_steps, "{nr_moved} pages moved with {nr_steps} steps");
        worst = worst.max(nr_moved);
    }
    assert!(worst >= 16, "a batch that is full is finished before the steps are spent");
    assert_eq!(nr_moved_in(1000), (Ok(()), 40));
}

/// The CPU runs now and then: each look at the clock finds it a second later.
#[test]
fn a_loaded_machine_compacts_as_an_idle_one() {
    for clock_step in [0, 1_000_000_000] {
        let vm = vm(4096, Tunables::default());
        let space = vm.new_space().unwrap();
        let b = fill_block(&vm, &space);
        vm.machine().clock_step.set(clock_step);
        let made = Attempt::new(&vm, &CompactBudget::FAULT).empty(b).unwrap();
        vm.give_back_huge(made.first, made.content);
        vm.check_in_test(&[&space], &mut std::vec![0; 4096]).unwrap();
    }
}

/// An object costs a step for each mapping, each time that its pages are unmapped.
#[test]
fn mappings_of_an_object_cost_steps() {
    let made_with = |nr_steps: u64| {
        let vm = vm(8192, Tunables::default());
        let space = vm.new_space().unwrap();
        let object = vm.new_shared_object(48 << 12).unwrap();
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let at = |i: u64| (1 << 30) + (i << 24);
        (0..100).for_each(|i| {
            space.mmap_object(at(i), 48 << 12, RW, flags, ObjectPart::new(&object)).unwrap();
        });
        (0..48).for_each(|page| _ = space.handle_fault(at(0) + (page << 12), Access::Write).unwrap());
        let b = block_of(&space, 0);
        vm.steal_caches();
        vm.frames.blocks.at(b).unreserve(1);
        let mut attempt = Attempt::new(&vm, &CompactBudget { nr_steps, ..CompactBudget::BACKGROUND });
        let made = attempt.empty(b).map(|huge| vm.give_back_huge(huge.first, huge.content));
        vm.check_in_test(&[&space], &mut std::vec![0; 8192]).unwrap();
        // A move of an object's page leaves no entry.
        (0..48).for_each(|page| _ = space.handle_fault(at(0) + (page << 12), Access::Read).unwrap());
        (made, (0..48).filter(|page| block_of(&space, *page) != b).count())
    };
    assert_eq!(made_with(300), (Ok(()), 48));
    assert_eq!(made_with(150), (Err(CompactRefusal::OverBudget), 32), "the last batch exceeds what is left");
}

/// Blocks that are visited in vain cost steps.
#[test]
fn the_search_for_a_target_costs_steps() {
    let vm = vm(512 * 600, Tunables::default());
    vm.hold_one_in_each_block(100, 7);
    let has_found = |nr_steps: u64| {
        let mut attempt = Attempt::new(&vm, &CompactBudget { nr_steps, ..CompactBudget::BACKGROUND });
        let mut may_search = || attempt.may_search(STEPS_PER_QUESTION);
        Targets::new(&vm, BlockId(1), 1).next(Order::BASE, &mut may_search).is_some()
    };
    assert!(has_found(STEPS_PER_QUESTION) && !has_found(STEPS_PER_QUESTION - 1));
}

/// No block is fuller than the one to be emptied, and there are many.
#[test]
fn the_search_for_a_target_can_be_ended() {
    let vm = vm(512 * 600, Tunables::default());
    vm.hold_one_in_each_block(100, 7);
    let search = |go_on: bool| {
        let mut nr_asked = 0;
        let found = Targets::new(&vm, BlockId(1), 1).next(Order::BASE, &mut || {
            nr_asked += 1;
            go_on
        });
        (found.is_some(), nr_asked)
    };
    assert_eq!(search(true), (true, 1), "a few looks for a fuller one, then any");
    assert_eq!(search(false), (false, 1));
}

/// Blocks that are wholly free are not even looked at, save by a pass that ends soon.
#[test]
fn free_blocks_are_no_targets() {
    let vm = vm(512 * 600, Tunables::default());
    let mut targets = Targets::new(&vm, BlockId(1), 1);
    // The frames of that block without metadata.
    while targets.next(Order::BASE, &mut || true).is_some() {}
    drop(targets);
    let mut nr_asked = 0;
    let found = Targets::new(&vm, BlockId(1), 1).next(Order::BASE, &mut || {
        nr_asked += 1;
        true
    });
    assert_eq!((found, nr_asked), (None, 1));
}

/// The trees take back the name of a block that does not offer the kind any more.
#[test]
fn names_that_are_out_of_date_are_taken_back() {
    let vm = vm(512 * 64, Tunables::default());
    let blocks = &vm.frames.blocks;
    let stale = [(Kind::Spare, BlockId(20)), (Kind::Fixed, BlockId(30))];
    stale.iter().for_each(|(kind, b)| blocks.summary.offer(*kind, *b));
    let mut targets = Targets::new(&vm, BlockId(1), 1);
    while let Some(pfn) = targets.next(Order::BASE, &mut || true) {
        assert!(stale.iter().all(|(_, b)| *b != BlockId::of(pfn)), "wholly free");
    }
    assert!(stale.iter().all(|(kind, b)| !blocks.summary.says(*kind, *b)));
}

/// The next attempt begins after the blocks that failed.
#[test]
fn an_attempt_looks_at_so_many_blocks_and_the_next_goes_on() {
    let vm = vm(512 * 600, Tunables::default());
    vm.hold_one_in_each_block(100, 7);
    let budget = CompactBudget { nr_blocks: 300, ..CompactBudget::BACKGROUND };
    let cursor = || {
        assert!(Attempt::new(&vm, &budget).run().is_err(), "none of them can be moved");
        vm.compact.cursor.get()
    };
    let [one, two] = [cursor(), cursor()];
    assert!((300..350).contains(&one), "{one}");
    assert!((1..50).contains(&two) && vm.compact.round.get() == 1, "around the end: {two}");
}

/// The only block that can be emptied, and room only where what stays is kept.
#[test]
fn room_in_blocks_that_cannot_be_emptied_counts() {
    let vm = vm(4096, Tunables::default());
    let space = vm.new_space().unwrap();
    let b = fill_block(&vm, &space);
    let kept: std::vec::Vec<HugeFrame> = core::iter::from_fn(|| vm.obtain_huge().ok()).collect();
    let made = Attempt::new(&vm, &CompactBudget::BACKGROUND).run().unwrap();
    assert_eq!(BlockId::of(made.first), b);
    kept.iter().chain([&made]).for_each(|huge| vm.give_back_huge(huge.first, huge.content));
    vm.check_in_test(&[&space], &mut std::vec![0; 4096]).unwrap();
}

/// An attempt holds frames. An allocation that waits for the last ones would wait for it to the end of its budget,
/// and it would take blocks for bad that it only may not empty now.
#[test]
fn an_attempt_ends_while_a_last_resort_runs() {
    let vm = vm(4096, Tunables::default());
    let space = vm.new_space().unwrap();
    let b = fill_block(&vm, &space);
    let turn = vm.last_resort();
    let attempt = || Attempt::new(&vm, &CompactBudget::BACKGROUND).run();
    assert!(matches!(attempt(), Err(CompactRefusal::LastResort)));
    assert_eq!(vm.compact_step(&CompactBudget::BACKGROUND), Err(CompactRefusal::LastResort));
    drop(turn);
    let passed_over = vm.frames.blocks.at(b).folio.passed_over.get();
    assert!(passed_over != vm.compact.round.get() + 1, "the block was passed over");
    let made = attempt().unwrap();
    vm.give_back_huge(made.first, made.content);
}
