//! Moves a mapping: one commit that cannot fail, after a final count of tables.
//!
//! ```text
//! prepare    two versions of the tree: the source *moving*; the target in place
//! mark       publish the first, wait: faults in the source wait from now on
//! reserve    tables for all entries of the source
//!              refused ─▶ publish the version before again; nothing has changed
//! carry      the source's entries to the target                      carry.rs
//! commit     publish the second, free the source's tables
//! ```
//! Faults add tables to the source. So the tables are counted when no fault can add any more: all
//! sections that found the source unmarked have ended (I29). Owners of `Busy` entries continue
//! meanwhile. They change what an entry maps, or split a huge mapping, and the count has room for
//! that.
//!
//! A fault waits with nothing held and outside sections, as it does for an entry
//! that is `Busy`. Accesses that need no fault (by the program, pins, lookups)
//! continue until their entry is taken.
//!
//! Neighbours: `remap` checks the call, `carry` moves the entries. Locks on entry:
//! the writer lock.

use super::carry::{Carries, MoveRange, Source};
use crate::addr::PageRange;
use crate::frame::OutOfFrames;
use crate::lock::lock_word;
use crate::machine::{LockKind, Machine};
use crate::notify::notice::Why;
use crate::space::AddressSpace;
use crate::space::edit::{Nodes, TwoEdits};
use crate::space::lock::Writer;
use crate::space::reclaim::frame_refusal;
use crate::space::vma::{ObjectId, Vma, VmaFlags};
use crate::table::reserve::TableReserve;
use crate::table::take::{Guards, Removal};

/// Why a mapping did not move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MoveRefused {
    TooManyVmas,
    OutOfFrames(OutOfFrames),
}

frame_refusal!(MoveRefused);

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Moves the pages `old` of the VMA to `new`, which is a hole.
    ///
    /// # Errors
    ///
    /// [`MoveRefused`]; tree, entries and counts are as before then.
    pub(super) fn move_mapping(
        &self,
        writer: &Writer<'_, M>,
        vma: &Vma,
        old: PageRange,
        new: PageRange,
        source: Source,
    ) -> Result<(), MoveRefused> {
        // Private pages keep the index of their first mapping, so that rmap finds them; shared
        // pages keep their place in the object.
        let moved = vma.shown_at(new, old.start);
        if old.is_empty() {
            return self.duplicate(writer, moved);
        }
        // Entries of an object's pages come from faults only (I44).
        let carries = match vma.object {
            ObjectId::NONE => Carries::All,
            _ if vma.is_private() => Carries::Copies,
            _ => Carries::Guards,
        };
        // A smaller size drops private copies by a walk over mappings, under `resize`. None may come
        // from a place that the walk has not reached to one that it has passed (I54).
        let resize = (carries == Carries::Copies).then(|| &self.vm.object(vma.object).resize);
        let _resize = resize.map(|word| lock_word(LockKind::ObjectResize, word, &self.vm.machine));
        let m = MoveRange { old, new, source, carries };
        let edits = self.prepare(writer, &mut |nodes| self.prepare_move(writer, vma, &m, moved, nodes))?;
        let trial = edits.publish_trial();
        self.wait_for_readers();
        // Subscribers are told while no frames are held (I28).
        let told = (m.carries != Carries::Guards).then(|| self.invalidate(m.old, Why::Move));
        let mut reserve = TableReserve::new(self.vm);
        if let Err(refused) = reserve.add(self.count_tables(writer, &m)) {
            self.free_retired(writer, trial.roll_back());
            return Err(refused.into());
        }
        self.vm.object_get(&moved, new.nr_pages());
        self.join_members(writer, &moved);
        self.carry_entries(writer, &m, reserve);
        drop(told);
        let retired = trial.publish_second();
        if source == Source::Unmapped {
            let removal = Removal { range: old, free_inside: self.hole_around(writer, old), guards: Guards::Remove };
            self.remove_pages(writer, &removal, Why::Move);
            self.put_object_pages(writer, vma, old.nr_pages());
        }
        let nr_less = if source == Source::Unmapped { old.nr_pages() } else { 0 };
        self.data.limits.nr_mapped_pages.add_owned(new.nr_pages().wrapping_sub(nr_less));
        self.free_retired(writer, retired);
        Ok(())
    }

    /// Prepares both versions of the tree, with every node that they need.
    fn prepare_move<'a>(
        &'a self,
        writer: &'a Writer<'_, M>,
        vma: &Vma,
        m: &MoveRange,
        moved: Vma,
        nodes: Nodes<'_, M>,
    ) -> Result<TwoEdits<'a, 'vm, M>, MoveRefused> {
        let mut edit = self.edit(writer);
        edit.with(nodes).rewrite(m.old, &mut |v| Vma { flags: v.flags.moving(), ..*v })?;
        let mut edits = edit.seal();
        if m.source == Source::Unmapped {
            edits.second(nodes).carve(m.old)?;
        } else {
            // As Linux: the moved pages are locked; the VMA of the source no longer is.
            let is_locked = vma.flags.contains(VmaFlags::LOCKED);
            let no_lock = VmaFlags::LOCKED | VmaFlags::ONFAULT;
            let flags = if is_locked { vma.flags - no_lock } else { vma.flags };
            edits.second(nodes).rewrite(vma.range, &mut |v| Vma { flags, ..*v })?;
        }
        edits.second(nodes).place(moved)?;
        self.reserve_member_for(writer, &moved, nodes)?;
        if self.exceeds_map_count(writer, edits.nr_vmas_then()) {
            return Err(MoveRefused::TooManyVmas);
        }
        Ok(edits)
    }

    /// Maps pages of an object a second time, for an old size of 0. Nothing moves.
    fn duplicate(&self, writer: &Writer<'_, M>, copy: Vma) -> Result<(), MoveRefused> {
        let edit = self.prepare(writer, &mut |nodes| {
            let mut edit = self.edit(writer);
            edit.with(nodes).place(copy)?;
            self.reserve_member_for(writer, &copy, nodes)?;
            if self.exceeds_map_count(writer, edit.nr_vmas_then()) {
                return Err(MoveRefused::TooManyVmas);
            }
            Ok(edit)
        })?;
        self.vm.object_get(&copy, copy.range.nr_pages());
        self.join_members(writer, &copy);
        let retired = edit.publish();
        self.data.limits.nr_mapped_pages.add_owned(copy.range.nr_pages());
        self.free_retired(writer, retired);
        Ok(())
    }
}
