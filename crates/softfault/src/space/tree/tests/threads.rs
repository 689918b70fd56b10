//! Readers in threads while a writer works.

use super::super::{Direction, GapRequest, Retired, Tree, Txn};
use super::*;
use crate::sync::{Ordering, Word};
use std::thread;

const NR_READERS: usize = 3;
const NR_PAGES: u64 = 3_000;

/// A section of its simplest kind: odd while inside, full barriers.
#[derive(Default)]
struct Slot(Word);

impl Slot {
    fn enter(&self) -> Inside<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Inside(self)
    }
    fn wait(&self) {
        let seen = self.0.load(Ordering::SeqCst);
        while seen % 2 == 1 && self.0.load(Ordering::SeqCst) == seen {
            thread::yield_now();
        }
    }
}

/// Ends the readers also when the writer panics.
struct Done<'a>(&'a Word);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(1, Ordering::Release);
    }
}

struct Inside<'a>(&'a Slot);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Pages 0, 100, 200, ... are always mapped, by VMAs that come and go around
/// them: the writer replaces those in one transaction.
///
/// ```text
///   A**B*CC*D**   page 0 is A's, page 100 in C's or D's, never in no one's
/// ```
fn write<'a>(tree: Tree<'a, Arena>, nr_txns: u64, mut retire: impl FnMut(Retired<'a, Arena>)) {
    let mut rng = Rng(5);
    let mut map = Map::new();
    let arena = tree.machine;
    for step in 0..nr_txns {
        let mut txn = Txn::begin(tree);
        for _ in 0..=rng.below(3) {
            let start = rng.below(NR_PAGES);
            let range = PageRange::new(Vpn(start), Vpn(start + 1 + rng.below(3)));
            while let Some(old) = overlapping(&map, range) {
                txn.remove(old.range.start, &mut arena.source()).unwrap();
                map.remove(&old.range.start.0);
                // A page that is always mapped gets its VMA back.
                for page in (0..NR_PAGES).step_by(100).filter(|p| old.range.contains(Vpn(*p))) {
                    if !range.contains(Vpn(page)) {
                        let new = vma(page, page + 1, step % 16);
                        txn.insert(new, &mut arena.source()).unwrap();
                        map.insert(page, new);
                    }
                }
            }
            if rng.below(1_000) < 700 || (start..range.end.0).any(|p| p % 100 == 0) {
                let new = vma(range.start.0, range.end.0, step % 16);
                txn.insert(new, &mut arena.source()).unwrap();
                map.insert(start, new);
            }
        }
        match rng.below(8) {
            0 => {
                // Has never been, and neither has its map.
                drop(txn);
                map = contents(tree.snapshot()).into_iter().map(|v| (v.range.start.0, v)).collect();
            }
            _ => retire(txn.publish()),
        }
    }
    assert_same(tree.snapshot(), &map);
}

fn start(tree: Tree<'_, Arena>) {
    let mut txn = Txn::begin(tree);
    for page in (0..NR_PAGES).step_by(100) {
        txn.insert(vma(page, page + 1, 0), &mut tree.machine.source()).unwrap();
    }
    txn.publish().free();
}

fn read_once(tree: Tree<'_, Arena>, rng: &mut Rng) {
    let page = Vpn(rng.below(NR_PAGES / 100) * 100);
    let found = tree.lookup(page).expect("a page that is always mapped").vma;
    assert!(found.range.contains(page));
    assert_whole(&found);
    let vpn = Vpn(rng.below(NR_PAGES));
    if let Some(found) = tree.next(vpn) {
        assert!(found.vma.range.end > vpn);
        assert_whole(&found.vma);
    }
    if rng.one_in(64) {
        let mut end = 0;
        let _ = tree.for_each(ALL, &mut |vma| {
            assert!(vma.range.start.0 >= end);
            assert_whole(&vma);
            end = vma.range.end.0;
            ControlFlow::Continue(())
        });
        assert_eq!(tree.snapshot().check_nodes().map(|_| ()), Ok(()));
    }
}

#[test]
fn readers_see_whole_versions() {
    let (arena, root) = ground(4_000);
    let tree = Tree::new(&arena, &root);
    start(tree);
    let slots: [Slot; NR_READERS] = Default::default();
    let done = Word::new(0);
    thread::scope(|scope| {
        for (i, slot) in slots.iter().enumerate() {
            let done = &done;
            scope.spawn(move || {
                let mut rng = Rng(i as u64);
                while done.load(Ordering::Acquire) == 0 {
                    let _inside = slot.enter();
                    read_once(tree, &mut rng);
                }
            });
        }
        let _done = Done(&done);
        // One grace period for many: with more threads than cores it takes as
        // long as the scheduler leaves a reader inside.
        let mut pending = None;
        write(tree, 6_000, |retired| {
            keep(&mut pending, retired);
            if pending.as_ref().is_some_and(|p| p.nr_nodes() > 100) {
                slots.iter().for_each(Slot::wait);
                pending.take().into_iter().for_each(Retired::free);
            }
        });
        slots.iter().for_each(Slot::wait);
        pending.into_iter().for_each(Retired::free);
    });
    assert_eq!(tree.check_at_rest(&[]), Ok(()));
}

/// Nodes are reused under the readers' feet: any answer will do, but each ends,
/// and none looks at a frame that is not the tree's (the arena would say so).
#[test]
fn readers_outside_sections_come_to_no_harm() {
    let (arena, root) = ground(4_000);
    let tree = Tree::new(&arena, &root);
    start(tree);
    let done = Word::new(0);
    thread::scope(|scope| {
        for i in 0..NR_READERS as u64 {
            let done = &done;
            scope.spawn(move || {
                let mut rng = Rng(i);
                let mut stale = tree.snapshot();
                while done.load(Ordering::Acquire) == 0 {
                    if rng.one_in(50) {
                        stale = tree.snapshot();
                    }
                    let vpn = Vpn(rng.below(NR_PAGES));
                    let _ = (stale.lookup(vpn), stale.next(vpn), stale.prev(vpn));
                    let _ = stale.for_each(ALL, &mut |_| ControlFlow::Continue(()));
                    let direction = if rng.one_in(2) { Direction::TopDown } else { Direction::BottomUp };
                    let _ = stale.find_gap(&GapRequest::new(ALL, 1 + rng.below(99), direction));
                }
            });
        }
        let _done = Done(&done);
        write(tree, 8_000, Retired::free);
    });
    assert_eq!(tree.check_at_rest(&[]), Ok(()));
}

/// Retired nodes may come back from another thread while the writer takes nodes.
#[test]
fn nodes_come_back_without_the_lock() {
    let (arena, root) = ground(4_000);
    let tree = Tree::new(&arena, &root);
    start(tree);
    let (send, receive) = std::sync::mpsc::sync_channel::<Retired<'_, Arena>>(100);
    thread::scope(|scope| {
        scope.spawn(move || receive.into_iter().for_each(Retired::free));
        write(tree, 8_000, |retired| send.send(retired).unwrap());
        drop(send);
    });
    assert_eq!(tree.check_at_rest(&[]), Ok(()));
}
