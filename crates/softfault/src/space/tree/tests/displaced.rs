//! The search by page index against a look at every VMA.

use super::super::{Displaced, Tree, Txn};
use super::*;

/// All that the search finds, and how many calls it took.
pub(super) fn find_all(tree: Tree<'_, Arena>, index: u64) -> (Vec<Vma>, u32) {
    let (mut found, mut from, mut nr_calls) = (Vec::new(), Vpn(0), 0);
    loop {
        nr_calls += 1;
        match tree.snapshot().next_displaced(from, index) {
            Displaced::Found(vma) => {
                found.push(vma);
                from = vma.range.end;
            }
            Displaced::Cut(next) => {
                assert!(next > from, "a cut search gets on");
                from = next;
            }
            Displaced::End => return (found, nr_calls),
        }
    }
}

fn has(vma: &Vma, index: u64) -> bool {
    vma.is_private() && vma.index != vma.range.start.0 && vma.page_at(index).is_some()
}

pub(super) fn by_hand(map: &Map, index: u64) -> Vec<Vma> {
    map.values().filter(|vma| has(vma, index)).copied().collect()
}

/// As many VMAs as Linux allows, two pages each, VMA `i` first mapped as number
/// `order(i)`.
fn moved(arena: &Arena, root: &TreeRoot, nr_vmas: u64, order: impl Fn(u64) -> u64) {
    let tree = Tree::new(arena, root);
    let mut txn = Txn::begin(tree);
    for i in 0..nr_vmas {
        let index = 1_000_000 + 3 * order(i);
        let vma = Vma { flags: VmaFlags::WRITE, index, ..vma(10 + 3 * i, 12 + 3 * i, 0) };
        txn.append(vma, &mut arena.source()).unwrap();
    }
    txn.publish().free();
    assert_eq!(tree.check_at_rest(&[]), Ok(()));
}

#[test]
fn moves_that_keep_the_order_are_found_in_one_call() {
    const NR_VMAS: u64 = 65_530;
    let (arena, root) = ground(8_000);
    moved(&arena, &root, NR_VMAS, |i| i);
    for i in (0..NR_VMAS).step_by(97) {
        let (found, nr_calls) = find_all(Tree::new(&arena, &root), 1_000_001 + 3 * i);
        assert_eq!(found.iter().map(|vma| vma.range.start.0).collect::<Vec<_>>(), [10 + 3 * i]);
        assert_eq!(nr_calls, 2, "one call that finds, one that ends");
        assert!(find_all(Tree::new(&arena, &root), 1_000_002 + 3 * i).0.is_empty(), "between two");
    }
}

#[test]
fn moves_in_any_order_are_found() {
    const NR_VMAS: u64 = 20_000;
    let (arena, root) = ground(3_000);
    // 7,919 has no divisor in common with 20,000, so this is a permutation.
    moved(&arena, &root, NR_VMAS, |i| i * 7_919 % NR_VMAS);
    let mut nr_calls_in_all = 0;
    for i in (0..NR_VMAS).step_by(997) {
        let (found, nr_calls) = find_all(Tree::new(&arena, &root), 1_000_000 + 3 * (i * 7_919 % NR_VMAS));
        assert_eq!(found.iter().map(|vma| vma.range.start.0).collect::<Vec<_>>(), [10 + 3 * i]);
        nr_calls_in_all += nr_calls;
    }
    assert!(nr_calls_in_all > 10 * 21, "no call enters more nodes than a section may");
}

#[test]
fn vmas_that_were_never_moved_cost_nothing() {
    let (arena, root) = ground(3_000);
    let tree = Tree::new(&arena, &root);
    let mut txn = Txn::begin(tree);
    for i in 0..20_000 {
        // A shared mapping has no private pages, wherever it was first.
        let start = 10 + 3 * i;
        let (flags, index) = if i % 2 == 0 { (VmaFlags::WRITE, start) } else { (VmaFlags::SHARED, 7) };
        let vma = Vma { flags, index, ..vma(start, start + 2, 0) };
        txn.insert(vma, &mut arena.source()).unwrap();
    }
    txn.publish().free();
    assert_eq!(tree.check_at_rest(&[]), Ok(()));
    for index in [0, 7, 8, 10, 16, 9_999] {
        assert_eq!(find_all(tree, index), (Vec::new(), 1));
    }
}
