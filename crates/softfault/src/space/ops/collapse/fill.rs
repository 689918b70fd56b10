//! Fills the huge page from the pages of a detached table, and publishes it.
//!
//! Locks on entry: none, no section. The caller owns the entry of level 1, which is `Busy`.

use super::Detached;
use super::scan::Survey;
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{Pfn, Rights};
use crate::frame::{Content, FrameKind, FreeBatch};
use crate::machine::Machine;
use crate::mem::{self, SourceFailed};
use crate::pace;
use crate::policy::collapse::{CollapseLimits, CollapseRefusal};
use crate::space::AddressSpace;
use crate::space::Vm;
use crate::table::format::{Entry, Leaf};
use crate::table::pmd;

impl<M: Machine> AddressSpace<'_, M> {
    /// Fills the huge mapping and publishes it. Only owners of single entries could still change the
    /// table, and `verdict` refuses a table with such entries.
    pub(super) fn fill(&self, detached: &mut Detached<'_, M>, limits: &CollapseLimits) -> Result<(), CollapseRefusal> {
        let survey = self.survey(detached.table);
        pace::answer(&self.vm.machine);
        self.verdict(&survey, limits)?;
        let first = match survey.in_place {
            Some(first) => {
                self.recheck(detached)?;
                self.rejoin(detached, first)?
            }
            None => {
                let first = self.copy_together(detached)?;
                self.recheck(detached)?;
                detached.new.frame = None;
                self.count_down_pages(detached.table, first);
                let index = detached.vma.index_of(detached.pmd.base);
                self.vm.frames.folio(first).assign(FrameKind::Anon, self.family, index);
                first
            }
        };
        self.publish_collapsed(detached, first, &survey);
        Ok(())
    }

    /// Copies the pages into the huge frame and returns its first frame. No translation and no
    /// section refers to the old frames.
    fn copy_together(&self, detached: &mut Detached<'_, M>) -> Result<Pfn, CollapseRefusal> {
        let vm = self.vm;
        // There is no huge frame if the pages were in place at the first check. They no longer are.
        let new = detached.new.frame.as_mut().ok_or(CollapseRefusal::Changed)?;
        let before = core::mem::replace(&mut new.content, Content::Unknown);
        let first = new.first;
        for (i, slot) in self.entries_of(detached.table) {
            let to = Pfn(first.0 + i);
            match slot.observe().entry {
                Entry::Leaf(leaf) if leaf.pfn != vm.frames.zero => {
                    mem::copy_frame(&vm.machine, to, leaf.pfn)
                        .map_err(|SourceFailed(_)| CollapseRefusal::SourceFailed)?;
                }
                _ if before == Content::Unknown => mem::zero_frames(&vm.machine, to, 1),
                _ => {}
            }
            vm.machine.relax();
            self.recheck(detached)?;
        }
        Ok(first)
    }

    /// Lowers the map counts of the old frames and gives the copies their ages. Nothing can fail from
    /// here on.
    fn count_down_pages(&self, table: Pfn, first: Pfn) {
        let vm = self.vm;
        let mut batch = FreeBatch::new(vm);
        let mut nr_old = 0;
        for (i, slot) in self.entries_of(table) {
            if let Entry::Leaf(leaf) = slot.observe().entry
                && leaf.pfn != vm.frames.zero
            {
                nr_old += 1;
                vm.frames.carry_age(leaf.pfn, Pfn(first.0 + i));
                if vm.frames.desc(leaf.pfn).map_drop() {
                    batch.add(leaf.pfn);
                }
            }
        }
        drop(batch);
        pace::answer(&vm.machine);
        self.charge(Rss::Anon, Vm::<M>::NR_SUB_FRAMES as i64 - nr_old);
        vm.count(Event::ThpCollapseAlloc, 1);
    }

    /// Makes the block one folio again and clears the descriptors of its frames. The pages are in
    /// their block in order, and only this space maps them.
    fn rejoin(&self, detached: &Detached<'_, M>, first: Pfn) -> Result<Pfn, CollapseRefusal> {
        let folio = self.vm.frames.folio(first);
        if !folio.reserve(first) {
            return Err(CollapseRefusal::Busy);
        }
        for (_, slot) in self.entries_of(detached.table) {
            if let Entry::Leaf(leaf) = slot.observe().entry {
                self.vm.frames.desc(leaf.pfn).clear();
            }
        }
        pace::answer(&self.vm.machine);
        folio.assign(FrameKind::Anon, self.family, detached.vma.index_of(detached.pmd.base));
        Ok(first)
    }

    /// Deposits the leaf table and publishes the entry. An operation may take the entry as soon as
    /// it is published, and the table of level 1 with it.
    fn publish_collapsed(&self, detached: &Detached<'_, M>, first: Pfn, survey: &Survey) {
        let Detached { pmd, table, vma, .. } = detached;
        mem::zero_frames(&self.vm.machine, *table, 1);
        pmd::deposit::<M>(&self.vm.machine, &self.vm.frames, pmd.table, pmd.base, *table);
        let allowed = vma.flags.rights();
        let rights = if allowed.is_empty() { allowed } else { allowed | Rights::READ };
        let leaf = Leaf { pfn: first, rights, accessed: survey.accessed, dirty: survey.dirty };
        self.charge(Rss::Huge, Vm::<M>::NR_SUB_FRAMES as i64);
        pmd.slot.resolve(Entry::Leaf(leaf));
        self.vm.count(Event::Collapsed, 1);
    }
}
