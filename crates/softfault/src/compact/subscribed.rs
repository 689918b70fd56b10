//! Moves private pages of spaces with subscribers, in batches.
//!
//! ```text
//! find ─▶ tell Start        announce.rs
//! take ─▶ copy ─▶ resolve   migrate.rs
//! tell End
//! ```
//! No entry may be owned while subscribers are told. So such pages are postponed until the entries
//! of all other pages of the batch are resolved.
//!
//! Locks on entry: none, no section, no entry owned.

use super::MigrateRefusal;
use super::announce::{Announcement, NotAnnounced};
use super::migrate::Migration;
use super::moves::{MOVES_MAX, Move, Moves};
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::pace::Steps;
use crate::space::Vm;
use core::iter::Peekable;

/// Called with the result of a move: see [`Migration::finish`].
type Done<'a> = dyn FnMut(Move, Result<(), MigrateRefusal>) + 'a;

/// Pages that will move once their subscribers have been told.
pub(super) struct SubscribedMoves<'vm, M: Machine> {
    vm: &'vm Vm<M>,
    /// Nothing is done to these yet.
    pub(super) waiting: Moves,
}

impl<'vm, M: Machine> SubscribedMoves<'vm, M> {
    pub(super) fn new(vm: &'vm Vm<M>) -> Self {
        SubscribedMoves { vm, waiting: Moves::new() }
    }

    /// Moves the pages and reports the result of each, as [`Migration::finish`] does. Walks spend
    /// the `steps`. `migration` must be empty.
    pub(super) fn run(&mut self, migration: &mut Migration<'vm, M>, steps: &mut Steps, done: &mut Done<'_>) {
        let mut rest = self.waiting.take().peekable();
        while rest.peek().is_some() {
            self.run_some(&mut rest, migration, steps, done);
        }
    }

    /// Moves as many pages as fit into one announcement, at least one.
    fn run_some(
        &self,
        rest: &mut Peekable<impl Iterator<Item = Move>>,
        migration: &mut Migration<'vm, M>,
        steps: &mut Steps,
        done: &mut Done<'_>,
    ) {
        let mut announced = Announcement::new(self.vm, Why::Migrate);
        let (mut found, mut nr_found) = ([None; MOVES_MAX], 0);
        while let Some(this) = rest.peek().copied() {
            match announced.find(this.page(), steps) {
                Ok(()) => {
                    found[nr_found] = Some(this);
                    nr_found += 1;
                }
                Err(NotAnnounced::Full) => break,
                Err(NotAnnounced::Stays(refusal)) => done(this, Err(refusal)),
            }
            rest.next();
        }
        announced.tell();
        for this in found.into_iter().flatten() {
            if migration.is_full() {
                migration.finish(done);
            }
            if let Err(refusal) = migration.add(this, steps, &|space, vpn| announced.is_told(space, vpn)) {
                done(this, Err(refusal.once_told()));
            }
        }
        migration.finish(done);
    }
}
