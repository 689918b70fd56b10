//! The members of an object, that is, its mappings, in shards.
//!
//! ```text
//! object ─▶ shard: lock, tree of members ordered by page
//!                     member: space, displacement, pages      node.rs, treap.rs
//! ```
//! A member joins before its first VMA is published, and leaves when the last entry of the last one
//! has been removed, shot down and harvested (I44). Only faults make entries of an object's page.
//! So a remover that makes new entries impossible, waits for all sections and then visits the
//! members finds every entry.
//!
//! A space chooses its shard by a hash of its number, so that programs that map the same
//! library do not wait for one lock.
//!
//! Locks on entry: none, no section. Takes the lock of a shard, under which no other lock is taken.

mod node;
mod treap;

pub(crate) use node::{Identity, MemberData, MemberId, SLOTS_PER_FRAME};
pub(crate) use treap::{ByIdentity, Treap};

use crate::addr::{ObjectPages, Pfn};
use crate::hash::mix;
use crate::links::Links;
use crate::lock::Spin;
use crate::machine::{LockKind, Machine};
use crate::space::vma::ObjectId;
use crate::sync::{Ordering, Word};
use treap::ByPage;

/// Number of shards of an object. Each has a cache line in the object's frame.
pub(crate) const NR_SHARDS: usize = 16;

/// Some of an object's members.
#[repr(C, align(64))]
pub(crate) struct Shard {
    lock: Word,
    /// The member on top, 0 for none.
    root: Word,
    pad: [Word; 6],
}

/// The position of a walk over an object's members.
#[derive(Clone, Copy, Default)]
pub(crate) struct MembersCursor {
    shard: usize,
    after: Option<(u64, MemberId)>,
}

impl<M: Machine> Links<M> {
    fn shard_of(&self, member: &MemberData) -> &Shard {
        let shards = &self.object(ObjectId(member.object.get())).shards;
        &shards[mix(member.space.get()) as usize % NR_SHARDS]
    }

    fn in_shard<'a>(&'a self, shard: &'a Shard) -> Treap<'a, M, ByPage> {
        Treap::new(&self.machine, &shard.root)
    }

    /// Adds a member whose identity is set, with these pages. The space has the object.
    pub(crate) fn join_object(&self, id: MemberId, pages: ObjectPages) {
        let member = id.data(&self.machine);
        member.joined_at.set(pages.start);
        member.first.set(pages.start);
        member.end.set(pages.end);
        let shard = self.shard_of(member);
        self.object(ObjectId(member.object.get())).nr_members.fetch_add(1, Ordering::Relaxed);
        let _lock = Spin::lock(LockKind::Shard, &shard.lock, &self.machine);
        self.in_shard(shard).insert(id);
    }

    /// Extends the pages of a member.
    pub(crate) fn widen_member(&self, id: MemberId, pages: ObjectPages) {
        let member = id.data(&self.machine);
        let shard = self.shard_of(member);
        let _lock = Spin::lock(LockKind::Shard, &shard.lock, &self.machine);
        member.first.set(member.first.get().min(pages.start));
        member.end.set(member.end.get().max(pages.end));
        self.in_shard(shard).changed(id);
    }

    /// Removes a member, which has no entry left. The caller keeps the object.
    pub(crate) fn leave_object(&self, id: MemberId) {
        let member = id.data(&self.machine);
        self.object(ObjectId(member.object.get())).nr_members.fetch_sub(1, Ordering::Relaxed);
        let shard = self.shard_of(member);
        let _lock = Spin::lock(LockKind::Shard, &shard.lock, &self.machine);
        self.in_shard(shard).remove(id);
    }

    /// Whether the trees of the object are in order. At rest.
    pub(crate) fn are_members_sound(&self, object: ObjectId) -> bool {
        self.object(object).shards.iter().all(|shard| self.in_shard(shard).is_sound())
    }

    /// Whether the member is in its shard. At rest.
    pub(crate) fn is_in_shard(&self, id: MemberId) -> bool {
        let member = id.data(&self.machine);
        self.in_shard(self.shard_of(member)).member_at((member.joined_at.get(), id)) == Some(id)
    }

    /// Finds the next member that maps any of these pages, and calls `visit` with it under the lock of
    /// its shard: until the lock is dropped, the space cannot end.
    pub(crate) fn next_member<T>(
        &self,
        object: ObjectId,
        pages: ObjectPages,
        at: &mut MembersCursor,
        visit: impl FnOnce(Pfn, &MemberData) -> T,
    ) -> Option<T> {
        let shards = &self.object(object).shards;
        while let Some(shard) = shards.get(at.shard) {
            // Members that joined before the caller's grace period are found.
            if shard.root.load(Ordering::Acquire) != 0 {
                let _lock = Spin::lock(LockKind::Shard, &shard.lock, &self.machine);
                let tree = self.in_shard(shard);
                if let Some(id) = tree.next(pages, at.after) {
                    let member = id.data(&self.machine);
                    at.after = Some((member.joined_at.get(), id));
                    return Some(visit(Pfn(member.space.get() as u32), member));
                }
            }
            *at = MembersCursor { shard: at.shard + 1, after: None };
        }
        None
    }
}
