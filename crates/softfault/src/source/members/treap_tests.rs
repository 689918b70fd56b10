//! The tree of a shard against a list: whatever joins, widens and leaves, a walk finds what
//! shows its pages, in order, and goes on after any of them.

use super::*;
use crate::addr::Pfn;
use crate::testing::{Plain, vm_of};
use crate::tunables::Tunables;
use std::vec::Vec;

struct Shard<'a> {
    machine: &'a Plain,
    root: Word,
    frame: Pfn,
    there: Vec<(MemberId, u64, u64)>,
    random: u64,
}

impl Shard<'_> {
    fn tree(&self) -> Treap<'_, Plain, ByPage> {
        Treap::new(self.machine, &self.root)
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) % below
    }

    fn join(&mut self) {
        let slot = (1..31).find(|slot| self.there.iter().all(|(id, ..)| *id != MemberId::new(self.frame, *slot)));
        let Some(id) = slot.map(|slot| MemberId::new(self.frame, slot)) else { return };
        let first = self.random(40);
        let end = first + 1 + self.random(8);
        let member = id.data(self.machine);
        member.joined_at.set(first);
        member.first.set(first);
        member.end.set(end);
        member.draw(id, self.random);
        self.tree().insert(id);
        self.there.push((id, first, end));
    }

    fn widen(&mut self) {
        if self.there.is_empty() {
            return;
        }
        let (i, less, more) = (self.random(self.there.len() as u64) as usize, self.random(3), self.random(3));
        let (id, first, end) = &mut self.there[i];
        (*first, *end) = (first.saturating_sub(less), *end + more);
        let (id, first, end) = (*id, *first, *end);
        id.data(self.machine).first.set(first);
        id.data(self.machine).end.set(end);
        self.tree().changed(id);
    }

    fn leave(&mut self) {
        if !self.there.is_empty() {
            let i = self.random(self.there.len() as u64) as usize;
            let (id, ..) = self.there.swap_remove(i);
            self.tree().remove(id);
        }
    }

    /// A walk over some pages finds exactly the members that show them.
    fn check(&mut self) {
        let start = self.random(50);
        let pages = ObjectPages { start, end: start + 1 + self.random(4) };
        let (mut found, mut after) = (Vec::new(), None);
        while let Some(id) = self.tree().next(pages, after) {
            found.push(id);
            after = Some(self.tree().key(id));
        }
        let mut wanted: Vec<_> = self.there.iter().filter(|(_, f, e)| meets(*f, *e, pages)).map(|m| m.0).collect();
        wanted.sort_by_key(|id| self.tree().key(*id));
        assert_eq!(found, wanted, "{pages:?} of {:?}", self.there);
    }
}

#[test]
fn a_walk_finds_what_a_list_finds() {
    let vm = vm_of(1, 512, Tunables::default()).unwrap();
    let mut shard = Shard { machine: &vm.machine, root: Word::new(0), frame: Pfn(500), there: Vec::new(), random: 1 };
    for _ in 0..20_000 {
        match shard.random(8) {
            0..3 => shard.join(),
            3..5 => shard.leave(),
            5 => shard.widen(),
            _ => shard.check(),
        }
    }
    while !shard.there.is_empty() {
        shard.leave();
        shard.check();
    }
    assert_eq!(shard.root.get(), 0);
}

/// Levels of the tree.
fn depth(machine: &Plain, id: MemberId) -> u32 {
    let below = |word: &Word| MemberId(word.get()).some().map_or(0, |id| depth(machine, id));
    let children = &id.data(machine).in_shard;
    1 + below(&children.left).max(below(&children.right))
}

/// Members join in the order of their pages, and of their places: neither makes the tree a list.
#[test]
fn the_depth_is_logarithmic() {
    let vm = vm_of(1, 512, Tunables::default()).unwrap();
    let root = Word::new(0);
    let tree = Treap::<_, ByPage>::new(&vm.machine, &root);
    for i in 0..3_100u64 {
        let id = MemberId::new(Pfn(400 + (i / 31) as u32), 1 + i % 31);
        id.data(&vm.machine).joined_at.set(i);
        id.data(&vm.machine).first.set(i);
        id.data(&vm.machine).end.set(i + 1);
        id.data(&vm.machine).draw(id, vm.machine.random());
        tree.insert(id);
    }
    let depth = depth(&vm.machine, MemberId(root.get()));
    assert!(depth <= 40, "3,100 members in {depth} levels; 2 ln n is 16");
    let page = ObjectPages { start: 3_000, end: 3_001 };
    assert_eq!(tree.next(page, None).map(|id| id.data(&vm.machine).first.get()), Some(3_000));
}

/// A program that knows how places are numbered, and chooses its pages by that, makes no list.
#[test]
fn the_depth_is_logarithmic_whatever_keys_are_chosen() {
    let vm = vm_of(1, 512, Tunables::default()).unwrap();
    let (root, mut ids) = (Word::new(0), Vec::new());
    for i in 0..3_100u64 {
        ids.push(MemberId::new(Pfn(400 + (i / 31) as u32), 1 + i % 31));
    }
    ids.sort_by_key(|id| id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for (i, id) in (0..).zip(ids) {
        id.data(&vm.machine).joined_at.set(i);
        id.data(&vm.machine).first.set(i);
        id.data(&vm.machine).end.set(i + 1);
        id.data(&vm.machine).draw(id, vm.machine.random());
        Treap::<_, ByPage>::new(&vm.machine, &root).insert(id);
    }
    assert!(depth(&vm.machine, MemberId(root.get())) <= 40);
}
