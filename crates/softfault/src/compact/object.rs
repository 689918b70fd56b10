//! Moves folios of objects, of one page or more, to other frames, in batches.
//!
//! ```text
//! keep     the object of each; the slots of its pages are marked      source/keep.rs
//! grace    of all CPUs: every fault that had found a page unmarked has ended
//! unmap    every entry of the pages, in every space                   rmap/object.rs
//! is a pin left? the head counts them                                 else: as it was
//! copy                                                                its memory failed: as it was
//!      ─▶ tails and head of the new folio ─▶ slots, which are not marked any more
//! ```
//! Pins are taken through entries only, and the removal leaves none. So the pin count is final, and
//! nobody writes while the page is copied (I22, I27). Faults on the page meanwhile wait. Programs
//! fault again afterwards, also on locked pages: any number of entries may map a page, so the mover
//! does not record them.
//!
//! A folio of 2 MiB moves as any: it has one word, and its target is a whole block. Compaction, which makes
//! blocks, leaves it. One of 1 GiB is split first (`part.rs`).
//!
//! A page whose memory failed is removed in the same way, and its slot becomes POISONED (`split.rs`).
//!
//! A mover waits for sections, shootdowns, `Busy` entries and subscribers, but not for another
//! mover: it gives up a page that is marked. It owns no entry when it begins, and it marks all
//! pages before it waits, so one grace period is enough for all of them.
//!
//! Locks on entry: none, no section. Takes the locks of the objects' shards.

use super::MigrateRefusal;
use super::moves::{MOVES_MAX, Move, Moves};
use crate::account::Event;
use crate::addr::{BlockId, ObjectPages, Order, Pfn};
use crate::frame::PoolId;
use crate::machine::Machine;
use crate::mem;
use crate::notify::notice::Why;
use crate::pace::{self, Pace, Steps};
use crate::source::keep::KeptObject;
use crate::source::slot::PageFrame;
use crate::space::Vm;

/// A folio that is marked as moving; `page` is its first page. The caller has to end the move.
pub(super) struct Moving<'a, 'vm, M: Machine> {
    this: Move,
    object: &'a KeptObject<'vm, M>,
    page: u64,
}

impl<M: Machine> Moving<'_, '_, M> {
    fn place(&self) -> (u64, u64) {
        (self.object.id.0, self.page)
    }

    fn end(&self) -> u64 {
        self.page + self.this.order.nr_pages()
    }

    /// The pages' place if they are in the folio with that head.
    fn in_folio(&self, head: Pfn) -> PageFrame {
        PageFrame { pfn: head, order: self.this.order }
    }
}

/// Pages of objects that will move together.
pub(super) struct ObjectMoves<'vm, M: Machine> {
    vm: &'vm Vm<M>,
    /// Mappings of an object that may be visited for its pages.
    nr_mappings_max: u64,
    /// Nothing has been done to these yet.
    pub(super) waiting: Moves,
}

impl<'vm, M: Machine> ObjectMoves<'vm, M> {
    pub(super) fn new(vm: &'vm Vm<M>, nr_mappings_max: u64) -> Self {
        ObjectMoves { vm, nr_mappings_max, waiting: Moves::new() }
    }

    /// Moves them and returns the result of each. If one has moved, the caller owns `from` alone
    /// afterwards, else still `to`. Spends a step for each mapping that is visited, if need be more than are left.
    pub(super) fn run(&mut self, steps: &mut Steps, done: &mut dyn FnMut(Move, Result<(), MigrateRefusal>)) {
        let vm = self.vm;
        let mut done = |this: Move, result: Result<(), MigrateRefusal>| {
            let event = if result.is_ok() { Event::PgmigrateSuccess } else { Event::PgmigrateFail };
            vm.count(event, this.order.nr_pages());
            done(this, result);
        };
        // Dropped last: the last reference frees an object, which must not happen while a page is
        // marked and faults wait for it.
        let mut kept: [Option<KeptObject<'vm, M>>; MOVES_MAX] = [const { None }; MOVES_MAX];
        let mut moving: [Option<Moving<'_, 'vm, M>>; MOVES_MAX] = [const { None }; MOVES_MAX];
        let mut nr_moving = 0;
        for (this, kept) in self.waiting.take().zip(&mut kept) {
            match vm.begin_object_move(this, self.nr_mappings_max, kept) {
                Ok(begun) => {
                    moving[nr_moving] = Some(begun);
                    nr_moving += 1;
                }
                Err(refusal) => done(this, Err(refusal)),
            }
        }
        if nr_moving == 0 {
            return;
        }
        vm.grace_everywhere();
        let nr_visited = vm.unmap_moving(&mut moving[..nr_moving], Why::Migrate);
        _ = steps.spend(nr_visited);
        for moving in moving.iter().flatten() {
            pace::answer(&vm.machine);
            let result = vm.finish_object_move(moving);
            done(moving.this, result);
        }
    }
}

impl<M: Machine> Vm<M> {
    /// Marks the folio as moving. Stores a reference to the object in `kept`, also if this fails.
    fn begin_object_move<'a, 'vm>(
        &'vm self,
        this: Move,
        nr_mappings_max: u64,
        kept: &'a mut Option<KeptObject<'vm, M>>,
    ) -> Result<Moving<'a, 'vm, M>, MigrateRefusal> {
        let (object, page) = self.object_of(this.from).ok_or(MigrateRefusal::Raced)?;
        self.mark_as_moving(this, (kept.insert(object), page), nr_mappings_max)
    }

    /// Marks a folio of an object without a pool as moving; `page` is its first page.
    pub(super) fn mark_as_moving<'a, 'vm>(
        &'vm self,
        this: Move,
        of: (&'a KeptObject<'vm, M>, u64),
        nr_mappings_max: u64,
    ) -> Result<Moving<'a, 'vm, M>, MigrateRefusal> {
        self.mark_page_of(None, this, of, nr_mappings_max)
    }

    /// Marks a page of an object as moving that has pages of that pool, or of none. An object that has a page in these frames by now
    /// may be another one than was looked at.
    pub(super) fn mark_page_of<'a, 'vm>(
        &'vm self,
        pool: Option<PoolId>,
        this: Move,
        (object, page): (&'a KeptObject<'vm, M>, u64),
        nr_mappings_max: u64,
    ) -> Result<Moving<'a, 'vm, M>, MigrateRefusal> {
        if self.object_pool(object.id) != pool {
            return Err(MigrateRefusal::Raced);
        }
        if self.object(object.id).nr_members.get() > nr_mappings_max {
            return Err(MigrateRefusal::TooManyMaps);
        }
        if !self.object_begin_move(object, page, PageFrame { pfn: this.from, order: this.order }) {
            return Err(MigrateRefusal::Raced);
        }
        Ok(Moving { this, object, page })
    }

    /// Removes the entries of all folios. Adjacent folios are removed in one pass over the spaces.
    /// Returns the number of mappings that were visited.
    pub(super) fn unmap_moving(&self, moving: &mut [Option<Moving<'_, '_, M>>], why: Why) -> u64 {
        moving.sort_unstable_by_key(|moving| moving.as_ref().map(Moving::place));
        let (mut rest, mut nr_visited) = (moving.iter().flatten().peekable(), 0);
        while let Some(first) = rest.next() {
            let mut pages = ObjectPages { start: first.page, end: first.end() };
            let mut was_mapped = self.was_mapped(first);
            while let Some(next) = rest.next_if(|next| next.place() == (first.object.id.0, pages.end)) {
                pages.end = next.end();
                was_mapped |= self.was_mapped(next);
            }
            if was_mapped {
                nr_visited += self.object(first.object.id).nr_members.get();
                self.unmap_object_pages(first.object.id, pages, why);
            }
        }
        nr_visited
    }

    /// Whether an entry may map the page. Exact after the grace period.
    fn was_mapped(&self, moving: &Moving<'_, '_, M>) -> bool {
        self.frames.desc(moving.this.from).state().was_mapped()
    }

    /// Copies the folio and ends the move; its entries were removed before. If the object has ended
    /// meanwhile, dropping the caller's reference frees the pages.
    fn finish_object_move(&self, moving: &Moving<'_, '_, M>) -> Result<(), MigrateRefusal> {
        let Move { from, to, order } = moving.this;
        let refused = self.why_it_stays(from, order).or_else(|| self.copy_pages(moving.this).err());
        if refused.is_none() {
            self.make_moved_folio(from, to, order);
            self.frames.carry_age(from, to);
        }
        self.object_end_move(moving.object, moving.page, moving.in_folio(if refused.is_none() { to } else { from }));
        match refused {
            Some(refusal) => Err(refusal),
            None => {
                self.end_folio(from, order);
                Ok(())
            }
        }
    }

    /// Returns the reason why the folio cannot move. The answer is final if the folio is marked and has no
    /// entry. If its tails lack descriptors now, they were freed before the folio was marked.
    pub(super) fn why_it_stays(&self, head: Pfn, order: Order) -> Option<MigrateRefusal> {
        let state = self.frames.desc(head).state();
        if state.pins() > 0 {
            return Some(MigrateRefusal::Pinned);
        }
        // Begun before the mark, perhaps over by now.
        if state.is_being_written() {
            return Some(MigrateRefusal::UnderWrite);
        }
        let lacks_tail_descs = order >= Order::PMD && self.frames.lacks_tail_descs(BlockId::of(head));
        lacks_tail_descs.then_some(MigrateRefusal::Raced)
    }

    /// Copies the pages of the folio. Answers other CPUs between two pages.
    pub(super) fn copy_pages(&self, Move { from, to, order }: Move) -> Result<(), MigrateRefusal> {
        let mut pace = Pace::new(&self.machine);
        for i in 0..order.nr_pages() as u32 {
            pace.page();
            mem::copy_frame(&self.machine, Pfn(to.0 + i), Pfn(from.0 + i))?;
        }
        Ok(())
    }
}
