//! As many VMAs as Linux allows (`vm.max_map_count`), in several orders.

use super::super::{Tree, Txn};
use super::*;

const NR_VMAS: u64 = 65_530;

fn build_and_empty(order: impl Fn(u64) -> u64) {
    let (arena, root) = ground(8_000);
    let tree = Tree::new(&arena, &root);
    for i in 0..NR_VMAS {
        let start = 10 + 3 * order(i);
        let mut txn = Txn::begin(tree);
        txn.insert(vma(start, start + 2, 0), &mut arena.source()).unwrap();
        txn.publish().free();
    }
    assert_eq!(tree.check_at_rest(&[]), Ok(()));
    assert_eq!(tree.nr_in_tree(), NR_VMAS);
    let mut frames = std::collections::BTreeSet::new();
    tree.pool_frames(&mut |pfn| assert!(frames.insert(u64::from(pfn.0)), "{pfn:?} twice"));
    let nr_frames = arena.nr_given();
    assert!(frames.into_iter().eq(1..=nr_frames));
    // Half full at worst, when each insertion comes at one end.
    assert!(nr_frames <= NR_VMAS / 10 / 4 * 11 / 10, "{nr_frames} frames");
    for i in 0..NR_VMAS {
        let start = 10 + 3 * order(i);
        assert_eq!(tree.lookup(Vpn(start + 1)).unwrap().vma, vma(start, start + 2, 0));
        assert!(tree.lookup(Vpn(start + 2)).is_none());
    }
    for i in 0..NR_VMAS {
        let mut txn = Txn::begin(tree);
        assert!(txn.remove(Vpn(10 + 3 * order(NR_VMAS - 1 - i)), &mut arena.source()).unwrap().is_some());
        txn.publish().free();
        if i % 8_192 == 0 {
            assert_eq!(tree.check_at_rest(&[]), Ok(()));
        }
    }
    assert!(tree.snapshot().root.is_none());
    assert_eq!(tree.check_at_rest(&[]), Ok(()));
}

#[test]
fn upwards() {
    build_and_empty(|i| i);
}

#[test]
fn downwards() {
    build_and_empty(|i| NR_VMAS - 1 - i);
}

#[test]
fn anyhow() {
    // 7,919 has no divisor in common with 65,530, so this is a permutation.
    build_and_empty(|i| i * 7_919 % NR_VMAS);
}

#[test]
fn all_in_one_transaction() {
    let (arena, root) = ground(8_000);
    let tree = Tree::new(&arena, &root);
    let map = fill(tree, NR_VMAS);
    let mut txn = Txn::begin(tree);
    for start in map.keys().filter(|start| **start % 4 == 0) {
        txn.remove(Vpn(*start), &mut arena.source()).unwrap();
    }
    let given = arena.nr_given();
    drop(txn);
    assert_same(tree.snapshot(), &map);
    assert_eq!(tree.check_at_rest(&[]), Ok(()));
    // The nodes came back: the same again takes no frame.
    let mut txn = Txn::begin(tree);
    for start in map.keys().filter(|start| **start % 4 == 0) {
        txn.remove(Vpn(*start), &mut arena.source()).unwrap();
    }
    txn.publish().free();
    assert_eq!(arena.nr_given(), given);
    assert_eq!(tree.check_at_rest(&[]), Ok(()));
}

#[test]
fn one_behind_the_other() {
    let (arena, root) = ground(8_000);
    let tree = Tree::new(&arena, &root);
    let (mut map, mut rng, mut end) = (Map::new(), Rng(5), 0);
    // The first transaction begins with nothing, the others with nodes that are
    // not theirs.
    for _ in 0..8 {
        let mut txn = Txn::begin(tree);
        for _ in 0..700 {
            let start = end + rng.below(5);
            end = start + 1 + rng.below(3);
            txn.append(vma(start, end, 0), &mut arena.source()).unwrap();
            map.insert(start, vma(start, end, 0));
        }
        assert_eq!(txn.nr_in_tree(), map.len() as u64);
        txn.publish().free();
        assert_eq!(tree.check_at_rest(&[]), Ok(()));
        assert_same(tree.snapshot(), &map);
    }
}

/// Nodes of several transactions wait for one grace period.
#[test]
fn nodes_that_were_deferred_come_back_together() {
    let (arena, root) = ground(100);
    let tree = Tree::new(&arena, &root);
    fill(tree, 200);
    for nr_before in [0, 2, 4] {
        assert!(tree.nr_deferred() >= nr_before);
        let mut txn = Txn::begin(tree);
        assert!(txn.remove(Vpn(10 + 60 * nr_before), &mut arena.source()).unwrap().is_some());
        txn.publish().defer();
        assert_eq!(tree.check_at_rest(&[]), Ok(()));
    }
    let deferred = tree.claim_deferred();
    assert_eq!((deferred.nr_nodes() >= 6, tree.nr_deferred()), (true, 0));
    deferred.free();
    assert_eq!(tree.check_at_rest(&[]), Ok(()), "each node is free once");
}
