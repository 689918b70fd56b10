//! Every allocation fails once.

use super::super::{OutOfNodes, Tree, Txn, pool};
use super::*;

/// An edit of the tree and of the model; `Err` leaves both alone.
type Edit = fn(&mut Txn<'_, Arena>, &mut Map, &mut dyn FnMut() -> Option<crate::addr::Pfn>) -> Result<(), OutOfNodes>;

/// `insert` in the middle, at both ends, `remove` and `replace`.
const EDITS: [Edit; 5] = [
    |txn, map, alloc| put(txn, map, vma(31, 32, 1), alloc),
    |txn, map, alloc| put(txn, map, vma(1, 2, 1), alloc),
    |txn, map, alloc| put(txn, map, vma(90_000, 90_001, 1), alloc),
    |txn, map, alloc| {
        if txn.remove(Vpn(10), alloc)?.is_some() {
            map.remove(&10);
        }
        Ok(())
    },
    |txn, map, alloc| {
        let new = vma(12, 13, 2);
        if txn.replace(Vpn(12), new, alloc)?.is_some() {
            map.insert(12, new);
        }
        Ok(())
    },
];

fn put(
    txn: &mut Txn<'_, Arena>,
    map: &mut Map,
    vma: Vma,
    alloc: &mut dyn FnMut() -> Option<crate::addr::Pfn>,
) -> Result<(), OutOfNodes> {
    if overlapping(map, vma.range).is_some() {
        return Ok(());
    }
    txn.insert(vma, alloc)?;
    map.insert(vma.range.start.0, vma);
    Ok(())
}

/// Runs all edits in one transaction over `nr_vmas`, the `k`-th allocation
/// failing; says whether one did.
fn run(nr_vmas: u64, k: u64, publish: bool) -> bool {
    let (arena, root) = ground(500);
    let tree = Tree::new(&arena, &root);
    let before = fill(tree, nr_vmas);
    // Nothing spare, so that edits have to ask.
    let spare: Vec<_> = (0..root.pool.nr_free.get()).map(|_| pool::alloc(tree, u64::MAX, 0)).collect();
    let mut map = before.clone();
    let mut nr_calls = 0;
    let mut failed = false;
    let mut alloc = || {
        nr_calls += 1;
        failed |= nr_calls == k;
        if nr_calls == k { None } else { arena.alloc() }
    };
    let mut txn = Txn::begin(tree);
    for edit in EDITS {
        let _ = edit(&mut txn, &mut map, &mut alloc);
        assert_same(txn.view(), &map);
    }
    if publish {
        let retired = txn.publish();
        retired.free();
        assert_same(tree.snapshot(), &map);
    } else {
        drop(txn);
        assert_same(tree.snapshot(), &before);
    }
    spare.into_iter().for_each(|id| pool::give(tree, id));
    assert_eq!(tree.check_at_rest(&[]), Ok(()));
    failed
}

#[test]
fn an_edit_happens_whole_or_not_at_all() {
    // Empty; a full leaf; one more than that; a full root above full leaves.
    for nr_vmas in [0, 1, 20, 21, 40, 300, 341, 6_000] {
        for publish in [false, true] {
            let nr_failed = (1..).take_while(|k| run(nr_vmas, *k, publish)).count();
            assert!(nr_failed > 0, "no allocation to fail with {nr_vmas}");
        }
    }
}

/// Nodes that were free before stay, in whichever order nodes were given back since.
#[test]
fn a_pool_shrinks_to_its_mark() {
    for (nr_vmas, nr_more) in [(0, 3), (50, 30), (50, 400), (1_000, 90)] {
        let (arena, root) = ground(500);
        let tree = Tree::new(&arena, &root);
        let before = fill(tree, nr_vmas);
        let pool = &root.pool;
        let (mark, nr_free, nr_frames) = (tree.pool_mark(), pool.nr_free.get(), pool.nr_frames.get());
        let (mut txn, mut map) = (Txn::begin(tree), before.clone());
        (0..nr_more).for_each(|i| {
            put(&mut txn, &mut map, vma(90_000 + 2 * i, 90_001 + 2 * i, 1), &mut arena.source()).unwrap()
        });
        drop(txn);
        let mut gone = Vec::new();
        assert!(pool.nr_frames.get() > nr_frames, "nothing to give back");
        let nr_added = pool.nr_frames.get() - nr_frames;
        tree.shrink_pool(mark, &mut |pfn| gone.push(pfn));
        gone.sort_unstable_by_key(|pfn| pfn.0);
        gone.dedup();
        assert_eq!((gone.len() as u64, pool.nr_frames.get(), pool.nr_free.get()), (nr_added, nr_frames, nr_free));
        assert_same(tree.snapshot(), &before);
        assert_eq!(tree.check_at_rest(&[]), Ok(()));
        let left: Vec<_> = (0..nr_free).map(|_| pool::alloc(tree, 1, 0)).collect();
        assert!(left.iter().all(|id| !gone.contains(&id.pfn())), "a node in a frame that was given back");
        assert_eq!(pool.free.get(), 0, "more nodes than are counted");
        left.into_iter().for_each(|id| pool::give(tree, id));
        tree.shrink_pool(mark, &mut |_| panic!("nothing has come since"));
    }
}

/// An edit that took more nodes than it has reserved would stop the test. Each
/// starts with another number of free nodes, so that a frame's four do not hide
/// one too few.
#[test]
fn no_edit_allocates_more_than_it_reserves() {
    let (arena, root) = ground(10_000);
    let tree = Tree::new(&arena, &root);
    let mut map = fill(tree, 1_500);
    let mut rng = Rng(6);
    let mut spare = Vec::new();
    let mut edit = |map: &mut Map, what: fn(&mut Txn<'_, Arena>, &mut Map, u64, &Arena), start: u64, left: u64| {
        while root.pool.nr_free.get() > left {
            spare.push(pool::alloc(tree, u64::MAX, 0));
        }
        let mut txn = Txn::begin(tree);
        what(&mut txn, map, start, &arena);
        txn.publish().free();
        assert_same(tree.snapshot(), map);
    };
    for _ in 0..1_500 {
        let start = *map.range(rng.below(3_000)..).next().or(map.first_key_value()).unwrap().0;
        let replace = |txn: &mut Txn<'_, Arena>, map: &mut Map, start, arena: &Arena| {
            map.insert(start, vma(start, start + 1, 5));
            txn.replace(Vpn(start), map[&start], &mut arena.source()).unwrap();
        };
        edit(&mut map, replace, start, rng.below(8));
        let remove = |txn: &mut Txn<'_, Arena>, map: &mut Map, start, arena: &Arena| {
            assert_eq!(txn.remove(Vpn(start), &mut arena.source()).unwrap(), map.remove(&start));
        };
        edit(&mut map, remove, start, rng.below(8));
    }
    assert!(map.is_empty());
    for start in (0..900).map(|i| i * 7 % 900 * 2) {
        let insert = |txn: &mut Txn<'_, Arena>, map: &mut Map, start, arena: &Arena| {
            put(txn, map, vma(start, start + 1, 0), &mut arena.source()).unwrap();
        };
        edit(&mut map, insert, start, rng.below(8));
    }
}

#[test]
fn with_no_frame_at_all_nothing_changes() {
    let (arena, root) = ground(0);
    let tree = Tree::new(&arena, &root);
    let mut txn = Txn::begin(tree);
    assert_eq!(txn.insert(vma(1, 2, 0), &mut arena.source()), Err(OutOfNodes));
    assert!(txn.view().root.is_none() && txn.nr_in_tree() == 0);
    drop(txn);
    assert_eq!(tree.check_at_rest(&[]), Ok(()));
}
