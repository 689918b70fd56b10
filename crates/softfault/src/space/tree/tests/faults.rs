//! The checker finds what is wrong.

use super::super::layout::{Inner, Leaf};
use super::super::node::State;
use super::super::slots::Slots;
use super::super::{NodeId, TreeFault, Txn};
use super::*;

/// Returns the checker's finding in a tree of two levels after `spoil` changed
/// the first leaf and the root.
fn spoilt(spoil: impl Fn(&Leaf, &Inner)) -> (TreeFault, NodeId, NodeId) {
    let (arena, root) = ground(8);
    let tree = Tree::new(&arena, &root);
    fill(tree, 30);
    assert_eq!(tree.check_at_rest(&[]), Ok(()));
    let top = tree.snapshot().root;
    let inner = tree.view::<Inner>(top);
    let below = inner.child(0);
    spoil(tree.view::<Leaf>(below), inner);
    (tree.check_at_rest(&[]).expect_err("a spoilt tree"), below, top)
}

#[test]
fn every_fault_is_found_where_it_is() {
    let (fault, leaf, _) = spoilt(|leaf, _| leaf.ends[2].set(14));
    assert_eq!(fault, TreeFault::Empty(leaf));
    let (fault, leaf, _) = spoilt(|leaf, _| leaf.ends[2].set(17));
    assert_eq!(fault, TreeFault::Order(leaf));
    let (fault, leaf, _) = spoilt(|leaf, _| leaf.truncate(2));
    assert_eq!(fault, TreeFault::Count(leaf));
    let (fault, leaf, _) = spoilt(|leaf, _| leaf.ends[19].set(1_000));
    assert_eq!(fault, TreeFault::Count(leaf));
    let (fault, leaf, _) = spoilt(|leaf, _| leaf.header.head.set(leaf.header.head.get() | 1 << 8));
    assert_eq!(fault, TreeFault::Level(leaf));
    let (fault, leaf, _) = spoilt(|leaf, _| leaf.header.set_state(State::Free, NodeId::NONE));
    assert_eq!(fault, TreeFault::State(leaf));
    let (fault, _, top) = spoilt(|_, inner| inner.max_gap[0].add_owned(1));
    assert_eq!(fault, TreeFault::Summary(top));
    let (fault, _, top) = spoilt(|_, inner| inner.child[1].set(0));
    assert_eq!(fault, TreeFault::Name(top));
}

#[test]
fn lost_nodes_and_wrong_sums_are_found() {
    let (arena, root) = ground(8);
    let tree = Tree::new(&arena, &root);
    fill(tree, 30);
    let mut txn = Txn::begin(tree);
    txn.remove(Vpn(10), &mut arena.source()).unwrap();
    let retired = txn.publish();
    assert_eq!(tree.check_at_rest(&[&retired]), Ok(()));
    assert_eq!(tree.check_at_rest(&[]), Err(TreeFault::Total));
    root.tally.nr_vmas.add_owned(1);
    assert_eq!(tree.check_at_rest(&[&retired]), Err(TreeFault::Tally));
    root.tally.nr_vmas.add_owned(1_u64.wrapping_neg());
    root.tally.nr_data_pages.add_owned(1);
    assert_eq!(tree.check_at_rest(&[&retired]), Err(TreeFault::Tally));
    root.tally.nr_data_pages.add_owned(1_u64.wrapping_neg());
    retired.free();
    assert_eq!(tree.check_at_rest(&[]), Ok(()));
}
