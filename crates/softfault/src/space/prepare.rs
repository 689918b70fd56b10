//! The frames that a change of the VMA tree needs, all or none.
//!
//! Frames for nodes are added to the tree's pool one by one, as an edit needs more. An edit that is
//! refused keeps none. Otherwise two edits that need two frames each, while two are free, would
//! both be refused, and the frames would be unavailable until the space ends.
//!
//! Locks on entry: the writer lock; nothing held (I28).

use super::AddressSpace;
use super::edit::{Edit, Nodes};
use super::lock::Writer;
use super::members::MembersMark;
use super::reclaim::FrameRefusal;
use super::tree::{OutOfNodes, PoolMark};
use super::vma::Vma;
use crate::addr::PageRange;
use crate::frame::{Fill, OutOfFrames};
use crate::machine::Machine;

impl From<OutOfNodes> for OutOfFrames {
    /// An edit needs one frame of nodes after the other.
    fn from(_: OutOfNodes) -> OutOfFrames {
        OutOfFrames::Frame
    }
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Prepares a change, so that its commit needs no frame. `f` edits, and may take other frames
    /// from the same source. It is called up to three times and starts over each time: with the
    /// pool alone, as a holder, and in a last-resort turn. When it fails it gives back everything
    /// but nodes, and it publishes nothing.
    pub(crate) fn prepare<T, E: FrameRefusal>(
        &self,
        writer: &Writer<'_, M>,
        f: &mut dyn FnMut(Nodes<'_, M>) -> Result<T, E>,
    ) -> Result<T, E> {
        match f(None) {
            Err(e) if e.refused_frames().is_some() => self.prepare_with_frames(writer, f),
            done => done,
        }
    }

    /// Prepares that `f` replaces each part of a VMA in `range`, unless there would be `too_many`
    /// VMAs: more than allowed, and more than now.
    pub(crate) fn prepare_rewrite<'a, E: FrameRefusal + From<OutOfNodes> + Copy>(
        &'a self,
        writer: &'a Writer<'_, M>,
        range: PageRange,
        f: &mut dyn FnMut(&Vma) -> Vma,
        too_many: E,
    ) -> Result<Edit<'a, 'vm, M>, E> {
        self.prepare(writer, &mut |nodes| {
            let mut edit = self.edit(writer);
            edit.with(nodes).rewrite(range, f)?;
            if self.exceeds_map_count(writer, edit.nr_vmas_then()) { Err(too_many) } else { Ok(edit) }
        })
    }

    #[cold]
    fn prepare_with_frames<T, E: FrameRefusal>(
        &self,
        writer: &Writer<'_, M>,
        f: &mut dyn FnMut(Nodes<'_, M>) -> Result<T, E>,
    ) -> Result<T, E> {
        let before = (self.tree(writer).pool_mark(), self.members_mark(writer));
        let done = self.vm.obtain_all(&mut |source| {
            let result = f(Some(source));
            if result.is_err() {
                self.give_back_nodes(writer, before);
            }
            match result.as_ref().err().and_then(FrameRefusal::refused_frames) {
                Some(refused) => Err(refused),
                None => Ok(result),
            }
        });
        match done {
            Ok((done, _held)) => done,
            // It lacks the number of frames that it asked for.
            Err(refused) if self.end_deferral(writer) => {
                f(None).map_err(|e| if e.refused_frames().is_some() { E::of(refused) } else { e })
            }
            Err(refused) => Err(E::of(refused)),
        }
    }

    /// Waits for a grace period if replaced nodes were deferred to the next one, and frees them.
    /// Returns whether there were any.
    fn end_deferral(&self, writer: &Writer<'_, M>) -> bool {
        self.assert_writer(writer);
        let retired = self.tree(writer).claim_deferred();
        let found_any = retired.nr_nodes() > 0;
        if found_any {
            self.wait_for_readers();
        }
        retired.free();
        found_any
    }

    fn give_back_nodes(&self, writer: &Writer<'_, M>, before: (PoolMark, MembersMark)) {
        self.assert_writer(writer);
        self.tree(writer).shrink_pool(before.0, &mut |pfn| self.vm.give_back(pfn, Fill::Raw));
        self.shrink_members(writer, before.1);
    }
}

#[cfg(test)]
#[path = "prepare_tests.rs"]
mod tests;
