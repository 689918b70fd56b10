//! Blocks of classes: which block a frame comes from, and what the block says then.

use super::class::Class;
use super::desc::FrameKind;
use super::want::{Content, Fill};
use crate::addr::{BLOCK_FRAMES, BlockId, Order, Pfn};
use crate::check::Broken;
use crate::machine::CpuId;
use crate::space::Vm;
use crate::testing::{Plain, be, vm_of};
use crate::tunables::Tunables;
use std::vec::Vec;

const NR_BLOCKS: u32 = 8;
const MARKED: [(Fill, Class); 3] =
    [(Fill::Shared, Class::Shared), (Fill::Pinned, Class::Pinned), (Fill::Fixed, Class::Fixed)];

fn vm(nr_cpus: usize) -> Vm<Plain> {
    be(0);
    vm_of(nr_cpus, u64::from(NR_BLOCKS) * BLOCK_FRAMES, Tunables::default()).unwrap()
}

fn block_of(pfn: Pfn) -> BlockId {
    BlockId::of(pfn)
}

fn classes(vm: &Vm<Plain>) -> Vec<Class> {
    vm.frames.blocks.names().iter().map(|b| vm.frames.blocks.at(b).class()).collect()
}

/// Takes the frames of the block that are free but for so many.
fn leave(vm: &Vm<Plain>, b: BlockId, nr_free: u64) {
    let block = vm.frames.blocks.at(b);
    let mut nr = block.nr_free().saturating_sub(nr_free);
    for w in 0..8 {
        nr -= u64::from(block.claim_some(w, nr.min(64)).0.count_ones());
    }
}

#[test]
fn each_class_has_blocks_of_its_own() {
    let vm = vm(1);
    let page = block_of(vm.obtain(Fill::Raw).unwrap());
    let blocks: Vec<BlockId> = MARKED.iter().map(|(fill, _)| block_of(vm.obtain(*fill).unwrap())).collect();
    for (nr, (b, (_, class))) in blocks.iter().zip(MARKED).enumerate() {
        assert_eq!(vm.frames.blocks.at(*b).class(), class);
        assert!(*b != page && !blocks[..nr].contains(b), "{blocks:?}");
    }
    assert_eq!(vm.frames.blocks.at(page).class(), Class::Movable);
    assert!(classes(&vm).iter().filter(|class| **class == Class::Movable).count() >= 5);
    // The next ones come from there, too.
    for (i, (fill, _)) in MARKED.iter().enumerate() {
        for _ in 0..100 {
            assert_eq!(block_of(vm.obtain(*fill).unwrap()), blocks[i]);
        }
    }
}

#[test]
fn a_block_that_is_wholly_free_has_no_class() {
    let vm = vm(1);
    for (fill, class) in MARKED {
        let pfn = vm.obtain(fill).unwrap();
        let block = vm.frames.blocks.at(block_of(pfn));
        if class == Class::Fixed {
            // That of the metadata is never free.
            continue;
        }
        vm.steal_caches();
        assert_eq!(block.class(), class);
        vm.release_one(pfn, Content::Unknown);
        assert_eq!(block.class(), Class::Movable);
    }
}

/// The block has room for 32 and more in each case, so that any could be taken over.
#[test]
fn a_class_takes_over_the_block_with_many_free_frames() {
    for (fill, class) in MARKED {
        let vm = vm(1);
        let blocks = &vm.frames.blocks;
        let movable = || blocks.names().iter().filter(|b| blocks.at(*b).class() == Class::Movable);
        let roomy = movable().next().unwrap();
        blocks.names().iter().filter(|b| *b != roomy).for_each(|b| leave(&vm, b, 40));
        leave(&vm, roomy, 300);
        // Those of metadata have none left.
        let fixed = blocks.names().iter().filter(|b| blocks.at(*b).class() == Class::Fixed);
        fixed.for_each(|b| leave(&vm, b, 0));
        assert_eq!(block_of(vm.obtain(fill).unwrap()), roomy, "{class:?}");
        assert_eq!(blocks.at(roomy).class(), class);
    }
}

/// It lies beyond the neighbourhood of the CPU, where all blocks have room for 32.
#[test]
fn a_class_takes_over_a_far_block_with_many_free_frames() {
    for (fill, class) in [(Fill::Shared, Class::Shared), (Fill::Fixed, Class::Fixed)] {
        be(0);
        let vm = vm_of(4, 1024 * BLOCK_FRAMES, Tunables::default()).unwrap();
        let blocks = &vm.frames.blocks;
        let (home, nearby) = (vm.home_range(), vm.this_cpu_data().locality.blocks());
        let is_far = |b: &BlockId| !home.iter().chain(nearby.iter()).any(|near| near == *b);
        let far = blocks.names().iter().filter(is_far).find(|b| blocks.at(*b).class() == Class::Movable).unwrap();
        blocks.names().iter().filter(|b| *b != far).for_each(|b| leave(&vm, b, 40));
        leave(&vm, far, 300);
        let fixed = blocks.names().iter().filter(|b| blocks.at(*b).class() == Class::Fixed);
        fixed.for_each(|b| leave(&vm, b, 0));
        assert_eq!(block_of(vm.obtain(fill).unwrap()), far, "{class:?}");
    }
}

/// All blocks have a few free frames: those of private pages are spoiled last.
#[test]
fn classes_lend_each_other_frames_before_pages_do() {
    let vm = vm(1);
    let blocks = &vm.frames.blocks;
    blocks.names().iter().for_each(|b| leave(&vm, b, 8));
    let fixed = blocks.names().iter().find(|b| blocks.at(*b).class() == Class::Fixed).unwrap();
    for fill in [Fill::Shared, Fill::Pinned] {
        assert_eq!(block_of(vm.obtain(fill).unwrap()), fixed, "{fill:?}");
        assert_eq!(blocks.at(fixed).class(), Class::Fixed, "the strongest mark");
        vm.steal_caches();
    }
    // Tables want all of them, and more: the block that they fall back into says so.
    leave(&vm, fixed, 0);
    let spoiled = block_of(vm.obtain(Fill::Shared).unwrap());
    assert_eq!(blocks.at(spoiled).class(), Class::Shared);
    vm.steal_caches();
    assert_eq!(block_of(vm.obtain(Fill::Fixed).unwrap()), spoiled, "not another block of pages");
    assert_eq!(blocks.at(spoiled).class(), Class::Fixed);
}

/// Pages of objects are spread over neighbourhoods as tables are; pins are too few for that.
#[test]
fn all_cpus_take_pins_from_the_same_block() {
    let vm = vm_of(4, 1024 * BLOCK_FRAMES, Tunables::default()).unwrap();
    let of = |fill: Fill, id: u16| {
        be(id);
        block_of(vm.obtain(fill).unwrap())
    };
    let pinned: Vec<BlockId> = (0..4).map(|id| of(Fill::Pinned, id)).collect();
    assert!(pinned.iter().all(|b| *b == pinned[0]), "{pinned:?}");
    let shared: Vec<BlockId> = (0..4).map(|id| of(Fill::Shared, id)).collect();
    assert!((1..4).all(|id| shared[id] != shared[id - 1]), "{shared:?}");
    assert!((0..4).all(|id| vm.cpu(CpuId(id)).home_range().contains(shared[usize::from(id)])), "near the CPU");
    be(0);
}

#[test]
fn a_thief_empties_the_caches_of_all_classes() {
    let vm = vm(1);
    let before = vm.frames.nr_free_in_blocks();
    let taken: Vec<Pfn> = MARKED.iter().map(|(fill, _)| vm.obtain(*fill).unwrap()).collect();
    assert!(vm.cpu(CpuId(0)).nr_in_caches() > 0);
    assert!(vm.steal_caches());
    assert_eq!(vm.cpu(CpuId(0)).nr_in_caches(), 0);
    assert_eq!(vm.frames.nr_free_in_blocks() + taken.len() as u64, before);
}

/// So that a frame that comes back unused is in the frame cache of its class.
#[test]
fn unused_frames_go_back_to_their_class() {
    let vm = vm(1);
    for (fill, class) in MARKED {
        let pfn = vm.obtain(fill).unwrap();
        let nr = || vm.cpu(CpuId(0)).frame_cache(fill).mask.get().count_ones();
        let before = nr();
        vm.give_back(pfn, fill);
        let goes_to_cache = class != Class::Pinned;
        assert_eq!(nr() - before, u32::from(goes_to_cache), "{class:?}");
    }
}

/// I46: compaction would look at it without success.
#[test]
fn a_table_in_a_block_that_does_not_say_so_is_noticed() {
    let vm = vm(1);
    let mut counts = std::vec![0; vm.nr_frames() as usize];
    let pfn = vm.obtain(Fill::Zeroed).unwrap();
    vm.frames.desc(pfn).assign(FrameKind::Table, 0, 0, 0);
    assert_eq!(vm.check_in_test(&[], &mut counts), Err(Broken::Unmarked(pfn)));
    vm.frames.blocks.at(block_of(pfn)).mark(Class::Fixed);
    assert_eq!(vm.check_in_test(&[], &mut counts), Err(Broken::Lost(pfn)));
}

/// I46: whatever block a page of an object moves to says that it has one.
#[test]
fn a_page_of_an_object_marks_the_block_that_it_moves_to() {
    let vm = vm(1);
    let private = vm.obtain(Fill::Zeroed).unwrap();
    let object = vm.new_shared_object(4096).unwrap();
    object.write(0, &[1]).unwrap();
    let frames = (0..vm.nr_frames() as u32).map(Pfn);
    let from = frames.into_iter().find(|pfn| vm.frames.desc(*pfn).state().kind() == FrameKind::Shared).unwrap();
    let to = vm.migrate_frame(from).unwrap();
    assert_eq!(block_of(to), block_of(private));
    assert_eq!(vm.frames.blocks.at(block_of(to)).class(), Class::Shared);
    vm.give_back(private, Fill::Zeroed);
}

/// Compaction claims the frames of a block one after another, so it is never wholly free meanwhile.
#[test]
fn a_block_that_was_emptied_is_of_no_class() {
    let vm = vm(1);
    let block = vm.frames.blocks.at(BlockId(2));
    let first = BlockId(2).first_frame();
    block.claim_exact(0, 1).unwrap();
    block.mark(Class::Shared);
    let mut claimed = vm.claim_rest(BlockId(2), vm.hold()).unwrap();
    claimed.add(first);
    let Ok(huge) = claimed.into_huge() else { panic!("all of it is claimed") };
    assert_eq!(block.class(), Class::Movable);
    vm.give_back_huge(huge.first, Content::Unknown);
}

/// A fault that brought a batch of private pages may find that its place shows an object now.
#[test]
fn a_folio_marks_the_block_of_a_private_batch() {
    for reads in [false, true] {
        let vm = vm(1);
        let first = vm.obtain_batch(Order(4), 0).unwrap();
        let block = vm.frames.blocks.at(block_of(first));
        assert_eq!(block.class(), Class::Movable);
        if reads {
            vm.make_folio_to_read(first, Order(4), 0, 0);
        } else {
            vm.make_folio(first, Order(4), 0, 0);
        }
        assert_eq!(block.class(), Class::Shared);
    }
}
