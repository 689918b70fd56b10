//! Moves private pages to other frames, in batches.
//!
//! ```text
//! all entries of each frame ─▶ Busy        rmap/take.rs
//! shootdown of each space, one grace period for all of them
//! are these all entries? is no pin left?   else: as it was
//! copy ─▶ descriptor of the new frame ─▶ each entry to the new frame
//! ```
//! After the grace period there is no translation, no access and no section that had seen one of
//! the entries. Anything else that could raise the map count or the pin count needs one of these
//! entries, and the mover owns all of them. So both counts are final when they are read then, and
//! nobody writes while the page is copied (I27). If an entry was not found, the count is too high,
//! and all entries are restored.
//!
//! Entries keep rights, accessed and dirty. While entries are `Busy`, the mover waits for
//! shootdowns and sections only.
//!
//! Pages of a space with subscribers are skipped unless these were told: see `subscribed.rs`.
//!
//! Locks on entry: none, no section.

use super::MigrateRefusal;
use super::moves::{MAPS_MAX, MOVES_MAX, Movable, Move};
use crate::account::Event;
use crate::addr::{Pfn, Vpn};
use crate::frame::FrameKind;
use crate::machine::Machine;
use crate::mem;
use crate::pace::Steps;
use crate::rmap::{TakeEnded, TakenEntry};
use crate::space::Vm;
use crate::table::format::{Entry, Leaf};

/// Entries of all moves of a batch.
const ENTRIES_MAX: usize = 32;

/// Pages that are being moved. Dropped before it is finished or abandoned, it restores the entries,
/// but the target frames are lost.
pub(super) struct Migration<'vm, M: Machine> {
    vm: &'vm Vm<M>,
    moves: [Move; MOVES_MAX],
    nr_moves: usize,
    /// Each with the number of its move.
    entries: [Option<(u8, TakenEntry<'vm, M>)>; ENTRIES_MAX],
    nr_entries: usize,
}

impl<'vm, M: Machine> Migration<'vm, M> {
    pub(super) fn new(vm: &'vm Vm<M>) -> Self {
        Migration { vm, moves: [Move::NOTHING; MOVES_MAX], nr_moves: 0, entries: [None; ENTRIES_MAX], nr_entries: 0 }
    }

    /// Whether there may be no room for one more frame.
    pub(super) fn is_full(&self) -> bool {
        self.nr_moves == MOVES_MAX || self.nr_entries + MAPS_MAX as usize > ENTRIES_MAX
    }

    /// Takes the entries of a frame that is to move, within the `steps`. `is_told` as for
    /// `rmap_take`. The batch is not full.
    pub(super) fn add(
        &mut self,
        this: Move,
        steps: &mut Steps,
        is_told: &dyn Fn(Pfn, Vpn) -> bool,
    ) -> Result<(), MigrateRefusal> {
        let Movable::Private(nr_maps) = self.vm.check_movable(this.from)? else { return Err(MigrateRefusal::Raced) };
        let before = self.nr_entries;
        let number = self.nr_moves as u8;
        let (entries, nr) = (&mut self.entries, &mut self.nr_entries);
        let walked = self.vm.rmap_take(this.page(), nr_maps, steps, is_told, &mut |entry| {
            entries[*nr] = Some((number, entry));
            *nr += 1;
        });
        let nr_found = (self.nr_entries - before) as u64;
        let refused = match walked {
            Err(TakeEnded::OutOfSteps) => Some(MigrateRefusal::WalkTooLong),
            Err(TakeEnded::Subscribed) => Some(MigrateRefusal::Subscribed),
            Ok(()) if nr_found < nr_maps => Some(MigrateRefusal::Raced),
            Ok(()) => None,
        };
        if let Some(refusal) = refused {
            self.put_back_from(before);
            return Err(refusal);
        }
        self.moves[self.nr_moves] = this;
        self.nr_moves += 1;
        Ok(())
    }

    fn put_back_from(&mut self, first: usize) {
        for place in &mut self.entries[first..self.nr_entries] {
            if let Some((_, entry)) = place.take() {
                entry.put_back();
            }
        }
        self.nr_entries = first;
    }

    /// Moves the pages and reports the result of each. If a page has moved, the caller alone owns `from`
    /// afterwards; otherwise it still owns `to`.
    pub(super) fn finish(&mut self, done: &mut dyn FnMut(Move, Result<(), MigrateRefusal>)) {
        self.shoot_down_and_wait();
        for number in 0..self.nr_moves {
            let this = self.moves[number];
            let result = self.finish_one(number as u8, this);
            let event = if result.is_ok() { Event::PgmigrateSuccess } else { Event::PgmigrateFail };
            self.vm.count(event, 1);
            done(this, result);
        }
        (self.nr_moves, self.nr_entries) = (0, 0);
    }

    /// Restores all entries, and calls `not_moved` with each move.
    pub(super) fn abandon(&mut self, not_moved: &mut dyn FnMut(Move)) {
        self.put_back_from(0);
        self.moves[..self.nr_moves].iter().for_each(|this| not_moved(*this));
        self.nr_moves = 0;
    }

    fn entries_of(&mut self, number: u8) -> impl Iterator<Item = &mut Option<(u8, TakenEntry<'vm, M>)>> {
        self.entries.iter_mut().filter(move |place| place.is_some_and(|(of, _)| of == number))
    }

    fn finish_one(&mut self, number: u8, this: Move) -> Result<(), MigrateRefusal> {
        let vm = self.vm;
        let (from, to) = (vm.frames.desc(this.from), vm.frames.desc(this.to));
        let nr_entries = self.entries_of(number).count() as u64;
        let state = from.state();
        debug_assert!(state.kind() == FrameKind::Anon, "I14: entries keep their frame what it is");
        let refused = if state.pins() > 0 {
            Some(MigrateRefusal::Pinned)
        } else if state.nr_maps() != nr_entries {
            Some(MigrateRefusal::Raced)
        } else {
            mem::copy_frame(&vm.machine, this.to, this.from).err().map(MigrateRefusal::from)
        };
        if refused.is_none() {
            to.assign(FrameKind::Anon, nr_entries, from.owner.get(), from.index.get());
            vm.frames.carry_age(this.from, this.to);
        }
        let now_at = if refused.is_none() { this.to } else { this.from };
        for place in self.entries_of(number) {
            if let Some((_, entry)) = place.take() {
                entry.slot.resolve(Entry::Leaf(Leaf { pfn: now_at, ..entry.old }));
            }
        }
        match refused {
            Some(refusal) => Err(refusal),
            None => {
                from.clear();
                Ok(())
            }
        }
    }

    fn shoot_down_and_wait(&self) {
        let entry_at = |i: usize| self.entries[i].as_ref().map(|(_, entry)| entry);
        self.vm.shoot_down_taken(self.nr_entries, &entry_at);
    }
}

impl<M: Machine> Drop for Migration<'_, M> {
    fn drop(&mut self) {
        self.put_back_from(0);
    }
}
