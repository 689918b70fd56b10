//! Moving pages of objects to other frames, some at a time.
//!
//! ```text
//! keep     the object of each frame; its slot is marked as moving     source/keep.rs
//! grace    of all CPUs: whoever had found a page has made its entry, or has not
//! unmap    every entry of the pages, in every space                   rmap/object.rs
//! is a pin left?                                                      else: as it was
//! copy ─▶ descriptor of the new frame ─▶ slot, which is not marked any more
//! ```
//! Pins come through entries only, and none is left after the removal: so they are final, and
//! nobody writes while the page is copied (I22, I27). Who wants the page meanwhile waits.
//! Programs fault again, locked pages included: any number of entries may map a page, so they
//! are not remembered.
//!
//! A page whose memory failed goes in the same way, to no frame: its slot says so.
//!
//! A mover waits for sections, shootdowns, `Busy` entries and subscribers, and for no other
//! mover: it gives up a page that is marked. It owns no entry when it begins, and marks all
//! pages before it waits for anything, so that one grace period does for all of them.
//!
//! Locks on entry: none, no section. Takes those of the objects' shards.

use super::MigrateRefusal;
use super::moves::{MOVES_MAX, Move};
use crate::account::Event;
use crate::addr::{BlockId, ObjectPages, Pfn};
use crate::frame::{Class, FrameKind};
use crate::machine::Machine;
use crate::mem;
use crate::notify::notice::Why;
use crate::pace;
use crate::source::keep::KeptObject;
use crate::space::Vm;

/// A page that is marked as moving. Has to be ended.
struct Moving<'a, 'vm, M: Machine> {
    this: Move,
    object: &'a KeptObject<'vm, M>,
    page: u64,
}

impl<M: Machine> Moving<'_, '_, M> {
    fn place(&self) -> (u64, u64) {
        (self.object.id.0, self.page)
    }
}

/// Pages of objects that are to move.
pub(super) struct ObjectMoves<'vm, M: Machine> {
    vm: &'vm Vm<M>,
    /// Mappings of an object that may be visited for its pages.
    nr_mappings_max: u64,
    moves: [Move; MOVES_MAX],
    nr: usize,
}

impl<'vm, M: Machine> ObjectMoves<'vm, M> {
    pub(super) fn new(vm: &'vm Vm<M>, nr_mappings_max: u64) -> Self {
        ObjectMoves { vm, nr_mappings_max, moves: [Move { from: Pfn(0), to: Pfn(0) }; MOVES_MAX], nr: 0 }
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

    /// Moves them, and says of each what came of it. Where it has moved, `from` is
    /// the caller's alone afterwards, else `to` is still.
    pub(super) fn run(&mut self, done: &mut dyn FnMut(Move, Result<(), MigrateRefusal>)) {
        let vm = self.vm;
        let mut done = |this, result: Result<(), MigrateRefusal>| {
            vm.count(if result.is_ok() { Event::PgmigrateSuccess } else { Event::PgmigrateFail }, 1);
            done(this, result);
        };
        // Dropped at the very end: the last reference frees an object, and nobody waits for that
        // at a page that is marked.
        let mut kept: [Option<KeptObject<'vm, M>>; MOVES_MAX] = [const { None }; MOVES_MAX];
        let mut moving: [Option<Moving<'_, 'vm, M>>; MOVES_MAX] = [const { None }; MOVES_MAX];
        let mut nr_moving = 0;
        for (this, kept) in self.moves[..core::mem::take(&mut self.nr)].iter().zip(&mut kept) {
            match vm.begin_object_move(*this, self.nr_mappings_max, kept) {
                Ok(begun) => {
                    moving[nr_moving] = Some(begun);
                    nr_moving += 1;
                }
                Err(refusal) => done(*this, Err(refusal)),
            }
        }
        if nr_moving == 0 {
            return;
        }
        vm.grace_everywhere();
        vm.unmap_moving(&mut moving[..nr_moving], Why::Migrate);
        for moving in moving.iter().flatten() {
            pace::answer(&vm.machine);
            let result = vm.finish_object_move(moving);
            done(moving.this, result);
        }
    }
}

impl<M: Machine> Vm<M> {
    /// Keeps the object by `kept`, whatever comes of it.
    fn begin_object_move<'a, 'vm>(
        &'vm self,
        this: Move,
        nr_mappings_max: u64,
        kept: &'a mut Option<KeptObject<'vm, M>>,
    ) -> Result<Moving<'a, 'vm, M>, MigrateRefusal> {
        let (object, page) = self.object_of(this.from).ok_or(MigrateRefusal::Raced)?;
        let object = &*kept.insert(object);
        if self.object(object.id).nr_members.get() > nr_mappings_max {
            return Err(MigrateRefusal::TooManyMaps);
        }
        if !self.object_begin_move(object, page, this.from) {
            return Err(MigrateRefusal::Raced);
        }
        Ok(Moving { this, object, page })
    }

    /// Removes the entries of all of them: of pages that follow one another in one pass over
    /// the spaces.
    fn unmap_moving(&self, moving: &mut [Option<Moving<'_, '_, M>>], why: Why) {
        moving.sort_unstable_by_key(|moving| moving.as_ref().map(Moving::place));
        let mut rest = moving.iter().flatten().peekable();
        while let Some(first) = rest.next() {
            let mut pages = ObjectPages { start: first.page, end: first.page + 1 };
            let mut was_mapped = self.was_mapped(first);
            while let Some(next) = rest.next_if(|next| next.place() == (first.object.id.0, pages.end)) {
                pages.end += 1;
                was_mapped |= self.was_mapped(next);
            }
            if was_mapped {
                self.unmap_object_pages(first.object.id, pages, why);
            }
        }
    }

    /// Whether an entry may map the page. Exact after the grace period.
    fn was_mapped(&self, moving: &Moving<'_, '_, M>) -> bool {
        self.frames.desc(moving.this.from).state().was_mapped()
    }

    /// No entry is left. Where the object has ended meanwhile its pages go with the caller's
    /// reference.
    fn finish_object_move(&self, moving: &Moving<'_, '_, M>) -> Result<(), MigrateRefusal> {
        let Move { from, to } = moving.this;
        let old = self.frames.desc(from);
        let is_pinned = old.state().pins() > 0;
        if !is_pinned {
            mem::copy_frame(&self.machine, to, from);
            self.frames.desc(to).assign_moved(old);
            self.frames.carry_age(from, to);
            self.frames.blocks.at(BlockId::of(to)).raise(Class::Shared);
        }
        self.object_end_move(moving.object, moving.page, if is_pinned { from } else { to });
        if is_pinned {
            return Err(MigrateRefusal::Pinned);
        }
        old.clear();
        Ok(())
    }

    /// Takes the page out of its frame, whose memory has failed, and the frame out of use. Its slot
    /// says so from now on.
    pub(super) fn poison_object_page(&self, pfn: Pfn) -> Result<(), MigrateRefusal> {
        let mut kept = None;
        let this = Move { from: pfn, to: pfn };
        let mut moving = [Some(self.begin_object_move(this, u64::MAX, &mut kept)?)];
        self.grace_everywhere();
        self.unmap_moving(&mut moving, Why::Poison);
        let [Some(moving)] = &moving else { return Ok(()) };
        let desc = self.frames.desc(pfn);
        if desc.state().pins() > 0 {
            self.object_end_move(moving.object, moving.page, pfn);
            return Err(MigrateRefusal::Pinned);
        }
        // Before the slot, after which nobody keeps the frame.
        desc.assign(FrameKind::Reserved, 0, 0, 0);
        self.object_end_poisoned(moving.object, moving.page);
        Ok(())
    }
}
