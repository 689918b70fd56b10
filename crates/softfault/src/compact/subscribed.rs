//! Moving private pages of spaces with subscribers, some at a time.
//!
//! ```text
//! find ─▶ tell Start        announce.rs
//! take ─▶ copy ─▶ resolve   migrate.rs
//! tell End
//! ```
//! No entry is owned while subscribers are told. So such pages are put aside, while others are
//! taken, until the entries of these are resolved.
//!
//! Locks on entry: none, no section, no entry owned.

use super::MigrateRefusal;
use super::announce::{Announcement, NotAnnounced};
use super::migrate::Migration;
use super::moves::{MOVES_MAX, Move};
use crate::addr::Pfn;
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::space::Vm;

/// What becomes of a move: see [`Migration::finish`].
type Done<'a> = dyn FnMut(Move, Result<(), MigrateRefusal>) + 'a;

/// Pages that are to move once their subscribers have been told.
pub(super) struct SubscribedMoves<'vm, M: Machine> {
    vm: &'vm Vm<M>,
    moves: [Move; MOVES_MAX],
    nr: usize,
}

impl<'vm, M: Machine> SubscribedMoves<'vm, M> {
    pub(super) fn new(vm: &'vm Vm<M>) -> Self {
        SubscribedMoves { vm, moves: [Move { from: Pfn(0), to: Pfn(0) }; MOVES_MAX], nr: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.nr == MOVES_MAX
    }

    /// One more that is to move; nothing is done to it yet. The batch is not full.
    pub(super) fn add(&mut self, this: Move) {
        self.moves[self.nr] = this;
        self.nr += 1;
    }

    /// Forgets them, and says what is not going to move.
    pub(super) fn abandon(&mut self, not_moved: &mut dyn FnMut(Move)) {
        self.moves[..self.nr].iter().for_each(|this| not_moved(*this));
        self.nr = 0;
    }

    /// Moves them, with walks that end at `deadline_ns`, and says of each what came of it, as
    /// [`Migration::finish`] does. `migration` is empty.
    pub(super) fn run(&mut self, migration: &mut Migration<'vm, M>, deadline_ns: u64, done: &mut Done<'_>) {
        let nr = core::mem::take(&mut self.nr);
        let mut rest = &self.moves[..nr];
        while !rest.is_empty() {
            rest = self.run_some(rest, migration, deadline_ns, done);
        }
    }

    /// Moves those of which one announcement has room to tell, at least one. Gives the others.
    fn run_some<'a>(
        &self,
        moves: &'a [Move],
        migration: &mut Migration<'vm, M>,
        deadline_ns: u64,
        done: &mut Done<'_>,
    ) -> &'a [Move] {
        let mut announced = Announcement::new(self.vm, Why::Migrate);
        let (mut found, mut nr_found, mut nr_seen) = ([None; MOVES_MAX], 0, 0);
        for this in moves {
            match announced.find(this.from, deadline_ns) {
                Ok(()) => {
                    found[nr_found] = Some(*this);
                    nr_found += 1;
                }
                Err(NotAnnounced::Full) => break,
                Err(NotAnnounced::Stays(refusal)) => done(*this, Err(refusal)),
            }
            nr_seen += 1;
        }
        announced.tell();
        for this in found.into_iter().flatten() {
            if migration.is_full() {
                migration.finish(done);
            }
            if let Err(refusal) = migration.add(this, deadline_ns, &|space, vpn| announced.is_told(space, vpn)) {
                done(this, Err(refusal.once_told()));
            }
        }
        migration.finish(done);
        &moves[nr_seen..]
    }
}
