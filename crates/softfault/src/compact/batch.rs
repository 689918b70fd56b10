//! Batches: pages of one block that move together, each kind in its own way.
//!
//! Locks on entry: none, no section. The batch owns entries of private pages from when they are
//! added until it is finished or abandoned.

use super::MigrateRefusal;
use super::migrate::Migration;
use super::moves::Move;
use super::object::ObjectMoves;
use super::subscribed::SubscribedMoves;
use crate::machine::Machine;
use crate::pace::Steps;
use crate::space::Vm;

/// Pages that move together.
pub(super) struct Batch<'vm, M: Machine> {
    pub(super) private: Migration<'vm, M>,
    pub(super) subscribed: SubscribedMoves<'vm, M>,
    pub(super) objects: ObjectMoves<'vm, M>,
}

impl<'vm, M: Machine> Batch<'vm, M> {
    /// An empty batch. Objects with more than `nr_mappings_max` mappings are refused.
    pub(super) fn new(vm: &'vm Vm<M>, nr_mappings_max: u64) -> Self {
        Batch {
            private: Migration::new(vm),
            subscribed: SubscribedMoves::new(vm),
            objects: ObjectMoves::new(vm, nr_mappings_max),
        }
    }

    /// Whether there may be no room for one more page.
    pub(super) fn is_full(&self) -> bool {
        self.private.is_full() || self.subscribed.waiting.is_full() || self.objects.waiting.is_full()
    }

    /// Restores all entries, and calls `not_moved` with each move.
    pub(super) fn abandon(&mut self, not_moved: &mut dyn FnMut(Move)) {
        self.private.abandon(not_moved);
        self.subscribed.waiting.take().chain(self.objects.waiting.take()).for_each(not_moved);
    }

    /// Moves all pages and reports the result of each, as [`Migration::finish`] does. Walks, and visits of
    /// the mappings of objects, spend the `steps`.
    pub(super) fn finish(&mut self, steps: &mut Steps, done: &mut dyn FnMut(Move, Result<(), MigrateRefusal>)) {
        self.private.finish(done);
        // These need that no entry is owned.
        self.subscribed.run(&mut self.private, steps, done);
        self.objects.run(steps, done);
    }
}
