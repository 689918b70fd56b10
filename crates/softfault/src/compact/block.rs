//! Frees one block: chooses it, and moves its pages out.
//!
//! ```text
//! blocks with the most free frames ─▶ their descriptors ─▶ policy ─▶ one block
//! claim its free frames ─▶ move the others to frames of other blocks ─▶ huge frame
//! ```
//! The block is not isolated while it is emptied: its frames may be freed, allocated again, or
//! pinned. A page that cannot be moved ends the attempt, and claimed frames are freed. Pages that
//! have moved by then stay, so the next attempt has less to do.
//!
//! Locks on entry: none, no section.

use super::attempt::Attempt;
use super::batch::Batch;
use super::candidates::{Candidates, NR_CANDIDATES};
use super::moves::{Movable, Move, nobody_is_told};
use super::target::{STEPS_PER_QUESTION, Targets};
use super::{CompactRefusal, MigrateRefusal};
use crate::account::Event;
use crate::addr::{BLOCK_FRAMES, BlockId, BlockRange, Order, Pfn};
use crate::frame::{BLOCK_WORDS, ClaimedBlock, HugeFrame, Kind};
use crate::machine::Machine;
use crate::policy::compact::{self, CompactPlan, CompactQuestion};
use crate::space::Vm;
use crate::sync::Ordering;

/// Passes over one block: an entry that another operation owned may be free in the next one.
const NR_PASSES: u32 = 3;

impl<'vm, M: Machine> Attempt<'vm, M> {
    pub(super) fn run(mut self) -> Result<HugeFrame, CompactRefusal> {
        if Vm::<M>::NR_SUB_FRAMES != BLOCK_FRAMES {
            return Err(CompactRefusal::NoBlock);
        }
        let start = self.vm.frames.blocks.around(self.vm.compact.cursor.get());
        let all = self.vm.frames.blocks.names();
        let parts = [BlockRange { start, ..all }, BlockRange { end: start, ..all }];
        loop {
            for part in parts {
                if let Some(huge) = self.try_blocks(part)? {
                    return Ok(huge);
                }
            }
            // Reservations of idle CPUs end, and blocks whose pins are gone become candidates.
            let may_steal = !self.stole;
            if may_steal {
                self.steal_caches();
            }
            if !self.forget_pins()? && !may_steal {
                break;
            }
        }
        let mut full = self.gather_full();
        self.try_candidates(&mut full)?.ok_or(self.refusal)
    }

    /// Tries one window after another, until a block is free or the budget is used up.
    fn try_blocks(&mut self, mut rest: BlockRange) -> Result<Option<HugeFrame>, CompactRefusal> {
        while rest.start < rest.end {
            if self.left.nr_blocks == 0 {
                return Err(self.refusal);
            }
            self.check_budget()?;
            if self.takes_free
                && let Some(huge) = self.claim_free()
            {
                return Ok(Some(huge));
            }
            let mut window = self.gather(rest);
            if window.nr > 0 {
                if let Some(huge) = self.try_candidates(&mut window)? {
                    return Ok(Some(huge));
                }
                continue;
            }
            self.move_on(window.end);
            rest.start = window.end;
            self.left.nr_blocks -= window.nr_looks;
        }
        Ok(None)
    }

    /// Claims a block that has become wholly free.
    fn claim_free(&self) -> Option<HugeFrame> {
        let frames = &self.vm.frames;
        let all = frames.blocks.names();
        let mut free = frames.blocks.offering(Kind::Empty, all, all.start).take(NR_CANDIDATES);
        if frames.is_last_resort_active() { None } else { free.find_map(|b| self.vm.claim_whole(b)) }
    }

    /// Advances the start of the next attempt to `end`: all blocks before it were tried without success.
    fn move_on(&self, end: BlockId) {
        let nr_blocks = self.vm.frames.blocks.nr();
        self.vm.compact.cursor.set(u64::from(end.0) % nr_blocks);
        if u64::from(end.0) == nr_blocks {
            // All of memory was tried: a new round begins, in which every block is a candidate again.
            self.vm.compact.round.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Empties the candidates in the policy's order, until one is free.
    fn try_candidates(&mut self, found: &mut Candidates) -> Result<Option<HugeFrame>, CompactRefusal> {
        for i in 0..found.nr {
            self.check_budget()?;
            found.blocks[i] = self.summarize(found.numbers[i])?;
        }
        loop {
            let (blocks, nr_free) = (&found.blocks[..found.nr], found.nr_free);
            let question = CompactQuestion { blocks, nr_free, nr_migrated: self.left.nr_migrated };
            let CompactPlan::Empty(i) = compact::cheapest(&question) else { break };
            match self.empty(found.numbers[i]) {
                Ok(huge) => return Ok(Some(huge)),
                Err(refusal @ (CompactRefusal::OverBudget | CompactRefusal::LastResort)) => return Err(refusal),
                Err(refusal) => self.refusal = refusal,
            }
            found.blocks[i].is_tried = true;
        }
        found.numbers[..found.nr].iter().for_each(|b| self.pass_over(*b));
        Ok(None)
    }

    /// Records that this block was tried without success in this round.
    fn pass_over(&self, b: BlockId) {
        self.vm.frames.blocks.at(b).folio.passed_over.set(self.vm.compact.round.get() + 1);
    }

    /// Empties the block. Checks each of its frames again, since the policy only decides which block to
    /// try.
    pub(super) fn empty(&mut self, b: BlockId) -> Result<HugeFrame, CompactRefusal> {
        let raced = CompactRefusal::InTheWay(MigrateRefusal::Raced);
        let mut claimed = self.vm.claim_rest(b, self.vm.hold()).ok_or(raced)?;
        let nr_claimed = claimed.nr_ours();
        self.vm.count(Event::CompactIsolated, nr_claimed);
        let mut targets = Targets::new(self.vm, b, nr_claimed);
        let mut result = Ok(());
        for _ in 0..NR_PASSES {
            result = self.move_out(&mut claimed, &mut targets);
            let again = matches!(
                result,
                Err(CompactRefusal::InTheWay(MigrateRefusal::Raced | MigrateRefusal::NotInUse)) | Ok(())
            );
            if !again || claimed.nr_ours() == BLOCK_FRAMES {
                break;
            }
            self.check_budget()?;
        }
        self.vm.count(Event::CompactIsolated, targets.nr_claimed);
        drop(targets);
        match claimed.into_huge() {
            Ok(huge) => Ok(huge),
            Err(_) => Err(result.err().unwrap_or(raced)),
        }
    }

    /// Makes one pass over the frames that are not claimed. A frame that cannot move ends it.
    fn move_out(
        &mut self,
        claimed: &mut ClaimedBlock<'_, M>,
        targets: &mut Targets<'_, M>,
    ) -> Result<(), CompactRefusal> {
        claimed.claim_more();
        let mut batch = Batch::new(self.vm, self.left.nr_mappings);
        let result = self.move_each(&mut batch, claimed, targets);
        batch.abandon(&mut |this| targets.put_back(this));
        result
    }

    fn move_each(
        &mut self,
        batch: &mut Batch<'vm, M>,
        claimed: &mut ClaimedBlock<'_, M>,
        targets: &mut Targets<'_, M>,
    ) -> Result<(), CompactRefusal> {
        let mut result = Ok(());
        // Frames before this one belong to a folio that is being moved.
        let mut next = Pfn(0);
        for w in 0..BLOCK_WORDS {
            let rest = claimed.rest(w);
            for pfn in rest {
                if pfn < next {
                    continue;
                }
                if batch.is_full() {
                    result = result.and(self.finish(batch, claimed, targets));
                }
                self.check_budget()?;
                self.spend_scan(1)?;
                match self.begin(pfn, batch, targets) {
                    Ok(order) => next = Pfn(pfn.0 + order.nr_pages() as u32),
                    Err(_) if claimed.claim_one(pfn) => {}
                    Err(CompactRefusal::InTheWay(refusal @ (MigrateRefusal::Raced | MigrateRefusal::NotInUse))) => {
                        result = Err(Self::refuse(self.vm, refusal));
                    }
                    Err(CompactRefusal::InTheWay(refusal)) => return Err(Self::refuse(self.vm, refusal)),
                    Err(refusal) => return Err(refusal),
                }
            }
        }
        result.and(self.finish(batch, claimed, targets))
    }

    /// Adds a frame to the batch, if there is a target. The entries of a private page are taken at once.
    /// Pages of objects, and pages whose subscribers have to be told, wait until the batch is finished.
    /// A folio of an object is added with its head. Returns the order.
    fn begin(
        &mut self,
        from: Pfn,
        batch: &mut Batch<'vm, M>,
        targets: &mut Targets<'_, M>,
    ) -> Result<Order, CompactRefusal> {
        let kind = self.check_movable(from).map_err(CompactRefusal::InTheWay)?;
        let order = match kind {
            // The head was visited before, and was not part of this folio then.
            Movable::OfObject { head, .. } if head != from => {
                return Err(CompactRefusal::InTheWay(MigrateRefusal::Raced));
            }
            Movable::OfObject { order, .. } => order,
            Movable::Private(_) => Order::BASE,
        };
        let nr_pages = order.nr_pages();
        self.left.nr_migrated = self.left.nr_migrated.checked_sub(nr_pages).ok_or(CompactRefusal::OverBudget)?;
        let Some(to) = targets.next(order, &mut || self.may_search(STEPS_PER_QUESTION)) else {
            self.check_budget()?;
            return Err(CompactRefusal::InTheWay(MigrateRefusal::NoTarget));
        };
        self.vm.count(Event::CompactIsolated, nr_pages);
        let this = Move { from, to, order };
        if let Movable::OfObject { .. } = kind {
            batch.objects.waiting.add(this);
            return Ok(order);
        }
        match batch.private.add(this, &mut self.steps, &nobody_is_told) {
            Ok(()) => Ok(order),
            Err(MigrateRefusal::Subscribed) if self.left.moves_subscribed => {
                batch.subscribed.waiting.add(this);
                Ok(order)
            }
            Err(refusal) => {
                targets.put_back(this);
                Err(match refusal {
                    MigrateRefusal::WalkTooLong => CompactRefusal::OverBudget,
                    refusal => CompactRefusal::InTheWay(refusal),
                })
            }
        }
    }

    fn finish(
        &mut self,
        batch: &mut Batch<'vm, M>,
        claimed: &mut ClaimedBlock<'_, M>,
        targets: &mut Targets<'_, M>,
    ) -> Result<(), CompactRefusal> {
        let mut refused = None;
        let mut done = |this: Move, moved| match moved {
            Ok(()) => this.old_frames().for_each(|pfn| claimed.add(pfn)),
            Err(refusal) => {
                targets.put_back(this);
                refused = Some(Self::refuse(self.vm, refusal));
            }
        };
        batch.finish(&mut self.steps, &mut done);
        refused.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
#[path = "block_tests.rs"]
mod tests;
