//! Frames for classes that compaction does not move freely: tables and nodes, pages with long-term pins,
//! pages of objects.
//!
//! Each class has blocks of its own, so that the others can be emptied when a huge frame is needed.
//! This is advisory, like reservations: a class that finds no block of its own takes over one with
//! many free frames, then takes frames from other classes, and then from blocks of private pages.
//! The block's state records it in each case.
//!
//! Tables and pages of objects come from the CPU's home blocks, or from its neighbourhood where
//! memory is small (`policy/share.rs`). Long-term pins are rare, and each takes a shootdown anyway,
//! so all CPUs use the same blocks for them.
//!
//! Locks on entry: none, no section. The caller is counted as a holder.

use super::Memory;
use super::class::Class;
use super::search::Claim;
use super::summary::Kind;
use crate::addr::{BlockId, OptBlock};
use crate::machine::Machine;
use crate::pace::Pace;

/// Frames that stay in a block for a class until the CPU has another one, at least: as many as tables
/// take at once at first.
const LAST_FRAMES: u64 = 8;

impl<M: Machine> Memory<M> {
    /// Claims frames of the block that the CPU used last for the class, of another such block of
    /// its home blocks, of one of its neighbourhood, of a new one there; then of any such block. From the end, since
    /// pages are taken from the start. The last frames of the CPU's block wait until it has
    /// another: all levels would be told that there is none, and then that there is one.
    ///
    /// A new block is one with many free frames, so that it serves for long: half of it or more
    /// before a CPU looks beyond its neighbourhood.
    pub(super) fn claim_marked(&self, class: Class, most: u64, pace: &mut Pace<'_, M>) -> Option<Claim> {
        let blocks = &self.frames.blocks;
        let (home_range, all, kind) = (self.home_range(), blocks.names(), class.kind());
        let nearby = if class == Class::Pinned { all } else { self.this_cpu_data().locality.blocks() };
        let own = self.this_cpu_data().last_block(class).and_then(|word| OptBlock::from_word(word.get()).get());
        let own = own.filter(|b| blocks.at(*b).class() == class);
        let near = [(home_range, kind), (nearby, kind), (home_range, Kind::Run8), (nearby, Kind::Run8)];
        let far = [(all, kind), (all, Kind::Run8), (home_range, Kind::Room), (nearby, Kind::Room), (all, Kind::Room)];
        let last = [(home_range, Kind::Spare), (nearby, Kind::Spare), (all, Kind::Spare)];
        let far = far.into_iter().chain(class.lenders().map(|kind| (all, kind))).chain(last);
        let others = |(some, kind)| blocks.offering_last(kind, some).filter(move |b| Some(*b) != own);
        let (near, far) = (near.into_iter().flat_map(others), far.flat_map(others));
        // Nor is the last block that is wholly free begun for a few frames' sake.
        let leaves_some = own.is_some_and(|b| blocks.at(b).nr_free() <= most.max(LAST_FRAMES))
            && blocks.offering(Kind::Whole, all, all.start).nth(1).is_some();
        let first = own.filter(|_| !leaves_some);
        let found = first.into_iter().chain(near).chain(own).chain(far).find_map(|b| {
            pace.step();
            self.claim_marked_of(b, most, class)
        });
        found.or_else(|| self.give_up_own(most, class))
    }

    fn claim_marked_of(&self, b: BlockId, most: u64, class: Class) -> Option<Claim> {
        let claim = self.frames.claim_marked_in(b, most, class)?;
        if let Some(last) = self.this_cpu_data().last_block(class)
            && self.frames.blocks.at(b).nr_free() > LAST_FRAMES
        {
            last.set(OptBlock::some(b).to_word());
        }
        Some(claim)
    }

    /// Gives this CPU's block to the class, all of it and for all CPUs, so that each CPU does not spoil
    /// its own. Called if CPUs refill from every block with some free frames.
    fn give_up_own(&self, most: u64, class: Class) -> Option<Claim> {
        let cpu = self.this_cpu_data();
        let b = OptBlock::from_word(cpu.block.get()).get()?;
        let block = self.frames.blocks.at(b);
        if block.nr_free() == 0 {
            return None;
        }
        block.mark(class);
        block.unreserve(cpu.locality.tag());
        cpu.block.set(0);
        self.claim_marked_of(b, most, class)
    }
}
