//! Random transactions, published, dropped and in two steps, against a
//! `BTreeMap`; and that a version stays as it was.

use super::super::layout::{INNER_MAX, Inner};
use super::super::{NodeId, Retired, Tree, TwoStep, Txn};
use super::*;

/// The pages that the VMAs lie in: room for about a thousand, three levels.
const NR_PAGES: u64 = 6_000;

/// One random edit of both; insertions `grow` times in 16.
fn edit(txn: &mut Txn<'_, Arena>, map: &mut Map, rng: &mut Rng, arena: &Arena, grow: u64) {
    let start = rng.below(NR_PAGES);
    let range = PageRange::new(Vpn(start), Vpn(start + 1 + rng.below(5)));
    let old = overlapping(map, range);
    let salt = rng.below(4);
    match old {
        None if rng.below(16) < grow => {
            let new = vma(range.start.0, range.end.0, salt);
            txn.insert(new, &mut arena.source()).unwrap();
            map.insert(start, new);
        }
        None => assert_eq!(txn.remove(range.start, &mut arena.source()), Ok(None)),
        Some(old) if rng.one_in(4) => {
            // AAA*BB: another extent of A, the hole included, B untouched.
            let low = map.range(..old.range.start.0).next_back().map_or(0, |(_, v)| v.range.end.0);
            let high = map.range(old.range.end.0..).next().map_or(NR_PAGES + 9, |(_, v)| v.range.start.0);
            let start = low + rng.below(high - low);
            let new = vma(start, start + 1 + rng.below(high - start), salt);
            assert_eq!(txn.replace(old.range.start, new, &mut arena.source()), Ok(Some(old)));
            map.remove(&old.range.start.0);
            map.insert(start, new);
        }
        Some(old) if rng.below(16) >= grow => {
            assert_eq!(txn.remove(old.range.start, &mut arena.source()), Ok(Some(old)));
            map.remove(&old.range.start.0);
        }
        Some(_) => {}
    }
    assert_eq!(txn.nr_in_tree(), map.len() as u64);
}

fn assert_answers(tree: Tree<'_, Arena>, map: &Map, rng: &mut Rng) {
    for _ in 0..30 {
        let vpn = Vpn(rng.below(NR_PAGES + 20));
        let next = map.values().find(|v| v.range.end > vpn).copied();
        let prev = map.values().rfind(|v| v.range.start < vpn).copied();
        let here = next.filter(|v| v.range.contains(vpn));
        assert_eq!(tree.lookup(vpn).map(|f| f.vma), here);
        assert_eq!(tree.next(vpn).map(|f| f.vma), next);
        assert_eq!(tree.prev(vpn).map(|f| f.vma), prev);
        let range = PageRange::new(vpn, Vpn(vpn.0 + rng.below(200)));
        let inside: Vec<Vma> = map.values().filter(|v| v.range.overlaps(&range)).copied().collect();
        let mut seen = Vec::new();
        let _ = tree.for_each(range, &mut |v| (seen.push(v), ControlFlow::Continue(())).1);
        assert_eq!(seen, inside);
        let index = next.map_or(0, |vma| vma.index + rng.below(vma.range.nr_pages()));
        assert_eq!(displaced::find_all(tree, index).0, displaced::by_hand(map, index));
    }
}

#[test]
fn random_transactions_do_what_a_map_does() {
    let (arena, root) = ground(4_000);
    let tree = Tree::new(&arena, &root);
    let mut rng = Rng(1);
    let mut map = Map::new();
    let mut pending: Option<Retired<'_, Arena>> = None;
    let mut highest = 0;
    for step in 0..2_800_u64 {
        // Four tides, from empty to full and back.
        let grow = if (step / 400) % 2 == 0 { 14 } else { 1 };
        let mut after = map.clone();
        let mut txn = Txn::begin(tree);
        for _ in 0..=rng.below(6) {
            edit(&mut txn, &mut after, &mut rng, &arena, grow);
        }
        assert_same(txn.view(), &after);
        assert_same(tree.snapshot(), &map);
        match rng.below(8) {
            0 => drop(txn),
            1 => map = in_two_steps(txn, tree, &mut pending, map, after, &mut rng, &arena),
            _ => {
                map = after;
                keep(&mut pending, txn.publish());
            }
        }
        assert_same(tree.snapshot(), &map);
        let retired: Vec<&Retired<'_, Arena>> = pending.iter().collect();
        assert_eq!(tree.check_at_rest(&retired), Ok(()), "step {step}");
        if rng.one_in(5)
            && let Some(retired) = pending.take()
        {
            retired.free();
            assert_eq!(tree.check_at_rest(&[]), Ok(()), "step {step}");
        }
        if rng.one_in(16) {
            assert_answers(tree, &map, &mut rng);
        }
        highest = highest.max(map.len());
    }
    assert!(highest > 700, "the tides were too low to have three levels: {highest}");
}

/// Seals `txn`, edits on, and drops both, or publishes one or both.
fn in_two_steps<'a>(
    txn: Txn<'a, Arena>,
    tree: Tree<'a, Arena>,
    pending: &mut Option<Retired<'a, Arena>>,
    before: Map,
    middle: Map,
    rng: &mut Rng,
    arena: &Arena,
) -> Map {
    let mut after = middle.clone();
    let mut both = txn.seal();
    for _ in 0..rng.below(6) {
        edit(both.second(), &mut after, rng, arena, 8);
    }
    assert_same(both.first(), &middle);
    assert_same(both.second().view(), &after);
    if rng.one_in(3) {
        return before;
    }
    if rng.one_in(2) {
        return on_trial(both, tree, pending, before, after, rng);
    }
    let (retired, rest) = both.publish_first();
    keep(pending, retired);
    assert_same(tree.snapshot(), &middle);
    assert_same(rest.view(), &after);
    if rng.one_in(3) {
        return middle;
    }
    keep(pending, rest.publish());
    after
}

/// Publishes the first of two versions, and then the second or again the one
/// before. Neither has an arena to ask.
fn on_trial<'a>(
    both: TwoStep<'a, Arena>,
    tree: Tree<'a, Arena>,
    pending: &mut Option<Retired<'a, Arena>>,
    before: Map,
    after: Map,
    rng: &mut Rng,
) -> Map {
    let middle = contents(both.first());
    let trial = both.publish_trial();
    assert_eq!(contents(tree.snapshot()), middle);
    let (retired, map) = if rng.one_in(2) { (trial.roll_back(), before) } else { (trial.publish_second(), after) };
    keep(pending, retired);
    map
}

#[test]
fn a_version_stays_as_it_was() {
    let (arena, root) = ground(4_000);
    let tree = Tree::new(&arena, &root);
    let mut map = fill(tree, 500);
    let old = tree.snapshot();
    let before = contents(old);
    let held = tree.lookup(Vpn(10)).unwrap();
    held.refs.set(3);
    let mut rng = Rng(2);
    let mut pending = None;
    for _ in 0..300 {
        let mut txn = Txn::begin(tree);
        edit(&mut txn, &mut map, &mut rng, &arena, 8);
        keep(&mut pending, txn.publish());
        assert_eq!(contents(old), before);
    }
    assert_ne!(contents(tree.snapshot()), before);
    assert_eq!(held.refs.get(), 3);
    pending.unwrap().free();
    assert_eq!(tree.check_at_rest(&[]), Ok(()));
}

fn for_each_refs(tree: Tree<'_, Arena>, f: impl Fn(&crate::sync::Word)) {
    contents(tree.snapshot()).iter().for_each(|vma| f(tree.lookup(vma.range.start).unwrap().refs));
}

#[test]
fn a_copy_counts_its_own_references() {
    let (arena, root) = ground(20);
    let tree = Tree::new(&arena, &root);
    fill(tree, 5);
    let old = tree.lookup(Vpn(12)).unwrap();
    old.refs.set(7);
    let mut txn = Txn::begin(tree);
    txn.remove(Vpn(10), &mut arena.source()).unwrap();
    let retired = txn.publish();
    let new = tree.lookup(Vpn(12)).unwrap();
    assert_eq!((old.vma, old.refs.get(), new.vma, new.refs.get()), (new.vma, 7, old.vma, 0));
    // Also in a node that was another's before.
    retired.free();
    for salt in 0..9 {
        for_each_refs(tree, |refs| refs.set(7));
        let mut txn = Txn::begin(tree);
        txn.replace(Vpn(14), vma(14, 15, salt), &mut arena.source()).unwrap();
        txn.publish().free();
        for_each_refs(tree, |refs| assert_eq!(refs.get(), 0));
    }
}

#[test]
fn zeroes_are_an_empty_tree() {
    let (arena, root) = ground(1);
    let tree = Tree::new(&arena, &root);
    assert!(tree.snapshot().root.is_none() && tree.lookup(Vpn(0)).is_none() && tree.prev(Vpn(9)).is_none());
    assert_eq!(tree.check_at_rest(&[]), Ok(()));
    let mut txn = Txn::begin(tree);
    txn.insert(vma(5, 6, 0), &mut arena.source()).unwrap();
    assert_eq!(txn.remove(Vpn(5), &mut arena.source()), Ok(Some(vma(5, 6, 0))));
    assert!(txn.publish().nr_nodes() == 0 && tree.snapshot().root.is_none());
    assert_eq!(tree.check_at_rest(&[]), Ok(()));
}

/// A reader that outstays its section may take a leaf for the inner node that it
/// was: it finds no child there.
#[test]
fn a_leaf_names_no_children() {
    let (arena, root) = ground(2);
    let tree = Tree::new(&arena, &root);
    fill(tree, 20);
    let as_inner = tree.view::<Inner>(tree.snapshot().root);
    assert!((0..INNER_MAX).all(|i| as_inner.child(i) == NodeId::NONE));
    assert!(as_inner.child.iter().any(|word| word.get() != 0));
}

/// However wrong a node is, a walk through it ends.
#[test]
fn a_circle_is_left() {
    let (arena, root) = ground(4);
    let tree = Tree::new(&arena, &root);
    fill(tree, 30);
    let top = tree.snapshot().root;
    let inner = tree.view::<Inner>(top);
    (0..2).for_each(|i| inner.child[i].set(top.to_child_word()));
    assert!(tree.lookup(Vpn(12)).is_none() && tree.prev(Vpn(12)).is_none());
    assert_eq!(contents(tree.snapshot()), []);
    assert!(tree.check_at_rest(&[]).is_err());
}
