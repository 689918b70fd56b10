//! A tree of members that needs no memory: a binary tree by key, a heap by the random
//! priority of each member.
//!
//! A member is in two trees: that of a shard, ordered by page, in which each member has the span of the
//! pages in its subtree, and that of its space, ordered by identity. The depth is about 2 ln(members):
//! programs choose the keys, but not the priorities.
//!
//! Locks on entry: the one that guards the tree.

use super::node::{Children, Identity, MemberData, MemberId};
use crate::addr::ObjectPages;
use crate::machine::{Machine, Tick};
use crate::sync::Word;
use core::marker::PhantomData;

/// One of the two trees of a member: the order of members, and the place of their children.
pub(crate) trait Order {
    type Key: Ord + Copy;
    fn key(id: MemberId, member: &MemberData) -> Self::Key;
    fn children(member: &MemberData) -> &Children;
    /// Updates a member after its children or their subtrees have changed.
    fn refresh<M: Machine>(machine: &M, member: &MemberData);
}

/// The tree of a shard. Keys never change, so that a walk can continue after a key.
pub(crate) struct ByPage;

/// The tree of a space.
pub(crate) struct ByIdentity;

impl Order for ByPage {
    type Key = (u64, MemberId);
    fn key(id: MemberId, member: &MemberData) -> Self::Key {
        (member.joined_at.get(), id)
    }
    fn children(member: &MemberData) -> &Children {
        &member.in_shard
    }
    fn refresh<M: Machine>(machine: &M, member: &MemberData) {
        let (mut first, mut end) = (member.first.get(), member.end.get());
        for child in [&member.in_shard.left, &member.in_shard.right] {
            if let Some(child) = MemberId(child.get()).some() {
                let child = child.data(machine);
                first = first.min(child.min_first.get());
                end = end.max(child.max_end.get());
            }
        }
        member.min_first.set(first);
        member.max_end.set(end);
    }
}

impl Order for ByIdentity {
    type Key = Identity;
    fn key(_: MemberId, member: &MemberData) -> Identity {
        member.identity()
    }
    fn children(member: &MemberData) -> &Children {
        &member.in_space
    }
    fn refresh<M: Machine>(_: &M, _: &MemberData) {}
}

/// One of the trees.
pub(crate) struct Treap<'a, M: Machine, O: Order> {
    machine: &'a M,
    root: &'a Word,
    order: PhantomData<O>,
}

fn meets(start: u64, end: u64, pages: ObjectPages) -> bool {
    start < pages.end && pages.start < end
}

impl<'a, M: Machine, O: Order> Treap<'a, M, O> {
    pub(crate) fn new(machine: &'a M, root: &'a Word) -> Self {
        Treap { machine, root, order: PhantomData }
    }

    fn data(&self, id: MemberId) -> &'a MemberData {
        self.machine.tick(Tick::Step);
        id.data(self.machine)
    }

    fn key(&self, id: MemberId) -> O::Key {
        O::key(id, id.data(self.machine))
    }

    fn priority(&self, id: MemberId) -> u64 {
        id.data(self.machine).priority.get()
    }

    /// Inserts a member whose key and priority are set.
    pub(crate) fn insert(&self, id: MemberId) {
        let root = self.insert_below(MemberId(self.root.get()), id, self.key(id));
        self.root.set(root.0);
    }

    /// Removes a member of the tree.
    pub(crate) fn remove(&self, id: MemberId) {
        let root = self.remove_below(MemberId(self.root.get()), id, self.key(id));
        self.root.set(root.0);
    }

    /// Updates the spans of subtrees after a member has changed its pages.
    pub(crate) fn changed(&self, id: MemberId) {
        self.refresh_to(MemberId(self.root.get()), id, self.key(id));
    }

    /// Finds the member with the key.
    pub(crate) fn member_at(&self, key: O::Key) -> Option<MemberId> {
        let mut at = MemberId(self.root.get());
        while let Some(id) = at.some() {
            let here = self.key(id);
            if key == here {
                return Some(id);
            }
            let children = O::children(self.data(id));
            at = MemberId(if key < here { &children.left } else { &children.right }.get());
        }
        None
    }

    /// Calls `f` with each member, in order. At rest.
    pub(crate) fn for_each(&self, f: &mut dyn FnMut(MemberId)) {
        self.for_each_below(MemberId(self.root.get()), f);
    }

    fn for_each_below(&self, root: MemberId, f: &mut dyn FnMut(MemberId)) {
        if let Some(id) = root.some() {
            let children = O::children(id.data(self.machine));
            self.for_each_below(MemberId(children.left.get()), f);
            f(id);
            self.for_each_below(MemberId(children.right.get()), f);
        }
    }

    fn insert_below(&self, root: MemberId, id: MemberId, key: O::Key) -> MemberId {
        let new = O::children(id.data(self.machine));
        if root == MemberId::NONE || self.priority(id) > self.priority(root) {
            let (left, right) = self.split(root, key);
            new.left.set(left.0);
            new.right.set(right.0);
            O::refresh(self.machine, self.data(id));
            return id;
        }
        let children = O::children(self.data(root));
        let side = if key < self.key(root) { &children.left } else { &children.right };
        side.set(self.insert_below(MemberId(side.get()), id, key).0);
        O::refresh(self.machine, self.data(root));
        root
    }

    /// Splits a tree into the members below the key and those above.
    fn split(&self, root: MemberId, key: O::Key) -> (MemberId, MemberId) {
        if root == MemberId::NONE {
            return (MemberId::NONE, MemberId::NONE);
        }
        let children = O::children(self.data(root));
        let halves = if self.key(root) < key {
            let (low, high) = self.split(MemberId(children.right.get()), key);
            children.right.set(low.0);
            (root, high)
        } else {
            let (low, high) = self.split(MemberId(children.left.get()), key);
            children.left.set(high.0);
            (low, root)
        };
        O::refresh(self.machine, self.data(root));
        halves
    }

    fn remove_below(&self, root: MemberId, id: MemberId, key: O::Key) -> MemberId {
        debug_assert!(root != MemberId::NONE, "I44: a member that leaves is there");
        if root == MemberId::NONE {
            return root;
        }
        let children = O::children(self.data(root));
        if root == id {
            return self.merge(MemberId(children.left.get()), MemberId(children.right.get()));
        }
        let side = if key < self.key(root) { &children.left } else { &children.right };
        side.set(self.remove_below(MemberId(side.get()), id, key).0);
        O::refresh(self.machine, self.data(root));
        root
    }

    /// Joins two trees. All keys of the first are below all keys of the second.
    fn merge(&self, low: MemberId, high: MemberId) -> MemberId {
        if low == MemberId::NONE || high == MemberId::NONE {
            return if low == MemberId::NONE { high } else { low };
        }
        let top = if self.priority(low) > self.priority(high) { low } else { high };
        let children = O::children(self.data(top));
        if top == low {
            children.right.set(self.merge(MemberId(children.right.get()), high).0);
        } else {
            children.left.set(self.merge(low, MemberId(children.left.get())).0);
        }
        O::refresh(self.machine, self.data(top));
        top
    }

    fn refresh_to(&self, root: MemberId, id: MemberId, key: O::Key) {
        if root != id && root != MemberId::NONE {
            let children = O::children(self.data(root));
            let side = if key < self.key(root) { &children.left } else { &children.right };
            self.refresh_to(MemberId(side.get()), id, key);
        }
        if root != MemberId::NONE {
            O::refresh(self.machine, self.data(root));
        }
    }
}

impl<M: Machine> Treap<'_, M, ByPage> {
    /// Finds the first member that maps any of these pages, after the key if there is one.
    pub(crate) fn next(&self, pages: ObjectPages, after: Option<(u64, MemberId)>) -> Option<MemberId> {
        self.next_below(MemberId(self.root.get()), pages, after)
    }

    fn next_below(&self, root: MemberId, pages: ObjectPages, after: Option<(u64, MemberId)>) -> Option<MemberId> {
        let id = root.some()?;
        let member = self.data(id);
        if !meets(member.min_first.get(), member.max_end.get(), pages) {
            return None;
        }
        if after.is_none_or(|after| after < self.key(id)) {
            let found = self.next_below(MemberId(member.in_shard.left.get()), pages, after);
            if found.is_some() {
                return found;
            }
            if meets(member.first.get(), member.end.get(), pages) {
                return Some(id);
            }
        }
        self.next_below(MemberId(member.in_shard.right.get()), pages, after)
    }

    /// Whether members are in order and the spans of their subtrees are right. At rest.
    pub(crate) fn is_sound(&self) -> bool {
        let (mut before, mut is_sound) = (None, true);
        self.for_each(&mut |id| {
            let (member, key) = (id.data(self.machine), self.key(id));
            let told = (member.min_first.get(), member.max_end.get());
            ByPage::refresh(self.machine, member);
            is_sound &=
                before.is_none_or(|before| before < key) && told == (member.min_first.get(), member.max_end.get());
            before = Some(key);
        });
        is_sound
    }
}

#[cfg(test)]
#[path = "treap_tests.rs"]
mod tests;
