//! fork(2): a copy of an address space that shares its frames.
//!
//! ```text
//! for each mapping   lock the entry, raise the count, write the child's entry
//!                    (plain: nobody can reach it), publish the parent's without
//!                    the write right, which drops the lock
//! then               one shootdown of the parent, before fork returns
//! ```
//! Faults of the parent's other threads continue during the fork. Each page of the child has a
//! content that it had during the fork, and no write after fork has returned shows in it (F5).
//!
//! The parent keeps a pinned page, and the child gets a copy (I23): the holder of the pin and the
//! parent still see each other's writes. A page whose map count is at its limit is copied, too.

mod child;
mod copies;
mod count;
mod held;
mod pools;
mod wanted;

use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{PageRange, Pfn, Rights, Vpn};
use crate::errno::op_error;
use crate::frame::{FrameDesc, MapsFull, OutOfFrames};
use crate::machine::{Flush, Machine, Tick};
use crate::space::AddressSpace;
use crate::space::Vm;
use crate::space::lock::Writer;
use crate::space::reclaim::frame_refusal;
use crate::space::vma::{Vma, VmaFlags};
use crate::table::entry::{Slot, Unread};
use crate::table::format::{Entry, Leaf, index_of};
use crate::table::place::PmdSlot;
use crate::table::pmd;
use crate::table::take::{self, Next, Part};
use crate::table::walk;
use child::Child;
use core::ops::ControlFlow;
use count::Count;
use wanted::{Wanted, wanted};

op_error! {
    /// Why fork(2) gave no child.
    ForkError {
        OutOfFrames(OutOfFrames): ENOMEM = "out of frames",
    }
}

frame_refusal!(ForkError);

/// The outcome of sharing one entry.
enum Shared {
    /// Nothing to share.
    Nothing,
    /// The child's entry, and the counter that it adds to.
    Entry(Unread, Option<Rss>),
    /// The child needs a copy, for this reason.
    Copied(Event),
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// Creates a child that shares every frame with this space, copy-on-write, except in mappings
    /// with `MADV_DONTFORK` or `MADV_WIPEONFORK`.
    ///
    /// # Errors
    ///
    /// [`ForkError`]; nothing is kept then. Entries of the parent may have lost their write right; the
    /// next write to such a page faults and gets it back without a copy.
    ///
    /// Source: fork(2), madvise(2).
    pub fn fork(&self) -> Result<AddressSpace<'vm, M>, ForkError> {
        self.vm.call();
        let mut how = Count::Tables;
        self.vm.with_reclaim(&mut || {
            let child = self.fork_once(how);
            // The count of tables was too low: the next attempt counts exactly.
            how = Count::Exactly;
            child
        })
    }

    fn fork_once(&self, how: Count) -> Result<AddressSpace<'vm, M>, ForkError> {
        let child = self.vm.new_space_parts(Some(self.family))?;
        self.vm.enlist(child.frame, child.founder());
        let writer = &self.write_lock();
        self.copy_limits(writer, &child);
        let mut write_protected = false;
        self.tell_of_fork(writer, &Self::tell_start);
        let copied = self.copy_to(writer, &mut Child::of(&child), how, &mut write_protected);
        if write_protected {
            // Also after a failure: with a stale writable translation over a write-protected
            // entry, threads would see two frames after the next copy.
            self.shootdown_and_wait(Flush::Space);
        }
        self.tell_of_fork(writer, &Self::tell_end);
        copied?;
        self.vm.count(Event::Fork, 1);
        Ok(child)
    }

    fn copy_to(
        &self,
        writer: &Writer<'_, M>,
        child: &mut Child<'_, 'vm, M>,
        how: Count,
        write_protected: &mut bool,
    ) -> Result<(), ForkError> {
        let nr_left_out = self.copy_vmas(writer, child)?;
        self.reserve_for_child(writer, how, nr_left_out, &mut child.reserve)?;
        Ok(self.copy_pages(writer, child, write_protected)?)
    }

    fn copy_limits(&self, writer: &Writer<'_, M>, child: &AddressSpace<'vm, M>) {
        self.assert_writer(writer);
        let (to, from) = (&child.data.limits, &self.data.limits);
        to.brk_start.set(from.brk_start.get());
        to.brk_end.set(from.brk_end.get());
        to.limit_as.set(from.limit_as.get());
        to.limit_data.set(from.limit_data.get());
        to.limit_memlock.set(from.limit_memlock.get());
        to.limit_stack.set(from.limit_stack.get());
        to.thp_disable.set(from.thp_disable.get());
        to.has_pools.set(from.has_pools.get());
    }

    /// Makes the child's tree; returns the number of pages in VMAs that are not copied. References to
    /// objects are taken at once: dropping the child puts the references of the VMAs in its tree.
    fn copy_vmas(&self, writer: &Writer<'_, M>, child: &Child<'_, 'vm, M>) -> Result<u64, ForkError> {
        self.assert_writer(writer);
        let Child { space: child, writer: sole, .. } = child;
        let (edit, nr_pages, nr_left_out) = child.prepare(sole, &mut |nodes| {
            let mut edit = child.edit(sole);
            let (mut nr_pages, mut nr_left_out, mut result) = (0, 0, Ok(()));
            let _ = self.tree(writer).for_each(Self::user_range(), &mut |vma| {
                if matches!(wanted(&vma), None | Some(Wanted::Guards)) {
                    nr_left_out += vma.range.nr_pages();
                }
                if vma.flags.contains(VmaFlags::DONTFORK) {
                    return ControlFlow::Continue(());
                }
                nr_pages += vma.range.nr_pages();
                let mut flags = vma.flags - VmaFlags::LOCKED - VmaFlags::ONFAULT;
                // Reservations of a private mapping of a pool stay the parent's.
                flags
                    .set(VmaFlags::NORESERVE, vma.flags.contains(VmaFlags::NORESERVE) || self.is_private_of_pool(&vma));
                result = edit.with(nodes).append(Vma { flags, ..vma });
                if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            result?;
            child.reserve_members(sole, self.nr_members(writer), nodes)?;
            Ok::<_, OutOfFrames>((edit, nr_pages, nr_left_out))
        })?;
        edit.publish().free();
        child.data.limits.nr_mapped_pages.set(nr_pages);
        let _ = child.tree(sole).for_each(Self::user_range(), &mut |vma| {
            self.vm.object_get(&vma, vma.range.nr_pages());
            child.join_members(sole, &vma);
            ControlFlow::Continue(())
        });
        Ok(nr_left_out)
    }

    fn copy_pages(
        &self,
        writer: &Writer<'_, M>,
        child: &mut Child<'_, 'vm, M>,
        write_protected: &mut bool,
    ) -> Result<(), OutOfFrames> {
        let mut result = Ok(());
        let _ = self.tree(writer).for_each(Self::user_range(), &mut |vma| {
            let Some(what) = wanted(&vma) else { return ControlFlow::Continue(()) };
            result = match what {
                Wanted::Copies => self.copy_private(writer, child, &vma, write_protected),
                Wanted::All | Wanted::Guards => self.copy_range(writer, child, vma.range, what, write_protected),
            };
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        result
    }

    fn copy_range(
        &self,
        writer: &Writer<'_, M>,
        child: &mut Child<'_, 'vm, M>,
        range: PageRange,
        what: Wanted,
        write_protected: &mut bool,
    ) -> Result<(), OutOfFrames> {
        let mut result = Ok(());
        take::for_each_part(&self.vm.machine, self.root, range, &mut |part| {
            let done = match part {
                Part::Table(table, pages) => {
                    self.copy_table(writer, child, table, pages, what, write_protected).map(|()| Next::GoOn)
                }
                Part::Huge(_) if what == Wanted::Guards => Ok(Next::GoOn),
                Part::Huge(pmd) => self.copy_huge(child, pmd, write_protected),
            };
            done.unwrap_or_else(|error| {
                result = Err(error);
                Next::Stop
            })
        });
        result
    }

    /// Copies a part of one leaf table. The child's table is installed before the first page is
    /// shared, so that the child's entry can be written at once.
    fn copy_table(
        &self,
        writer: &Writer<'_, M>,
        child: &mut Child<'_, 'vm, M>,
        table: Pfn,
        part: PageRange,
        what: Wanted,
        write_protected: &mut bool,
    ) -> Result<(), OutOfFrames> {
        let from = walk::entries(&self.vm.machine, table);
        let mut to = None;
        let (mut nr_anon, mut nr_swapped) = (0, 0);
        let mut result = Ok(());
        for vpn in (part.start.0..part.end.0).map(Vpn) {
            self.vm.machine.tick(Tick::Step);
            let i = index_of::<M::Format>(vpn.0, 0);
            let slot = Slot::new(&from[i], 0);
            let loaded = slot.load();
            if slot.is_none(loaded) || what == Wanted::Guards && slot.seen(loaded).entry != Entry::Guard {
                continue;
            }
            let copied = match to {
                Some(_) => Ok(()),
                None => child.leaf_table_for(vpn).map(|table| to = Some(table)),
            };
            let child_slot = || to.map(|to| Slot::<M::Format>::new(&to[i], 0));
            let counted = match copied.map(|()| self.share_entry(slot, loaded, what, write_protected)) {
                Ok(Shared::Nothing) => Ok(None),
                Ok(Shared::Entry(word, counted)) => {
                    child_slot().iter().for_each(|to| to.copy_private(word));
                    Ok(counted)
                }
                Ok(Shared::Copied(why)) => {
                    self.copy_for_child(writer, child, (slot, child_slot()), vpn, (why, what), write_protected)
                }
                Err(e) => Err(e),
            };
            match counted {
                Ok(None) => {}
                Ok(Some(Rss::Swap)) => nr_swapped += 1,
                Ok(Some(_)) => nr_anon += 1,
                Err(e) => {
                    result = Err(e);
                    break;
                }
            }
        }
        child.space.charge(Rss::Anon, nr_anon);
        if nr_swapped != 0 {
            child.space.charge(Rss::Swap, nr_swapped);
        }
        result
    }

    /// Raises the map count under the entry's lock and removes the write right.
    #[inline(always)]
    fn share_entry(
        &self,
        slot: Slot<'_, M::Format>,
        mut loaded: Unread,
        what: Wanted,
        write_protected: &mut bool,
    ) -> Shared {
        loop {
            let seen = slot.seen(loaded);
            match seen.entry {
                Entry::None | Entry::Table(_) => return Shared::Nothing,
                Entry::Guard | Entry::Poison => return Shared::Entry(loaded, None),
                // A fault may swap the page in meanwhile, and the slot may be reused for another
                // page. Once our entry is counted it is not: if the parent's entry still names the
                // slot then, both entries may.
                Entry::Swap(of) => {
                    if self.vm.swap.add_entry(of) {
                        if slot.is_still(seen) {
                            return Shared::Entry(loaded, Some(Rss::Swap));
                        }
                        self.vm.swap_drop(of);
                    }
                }
                Entry::Leaf(leaf) => {
                    if let Ok(leaf) = slot.lock_leaf(seen, leaf) {
                        if what == Wanted::Copies && self.is_of_object(leaf) {
                            slot.unlock(leaf);
                            return Shared::Nothing;
                        }
                        return self.share_locked(slot, leaf, self.vm.frames.desc(leaf.pfn), write_protected);
                    }
                }
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => self.vm.machine.relax(),
            }
            loaded = slot.load();
        }
    }

    /// Shares a huge mapping as it is, with one map count. The child's table and its deposit are
    /// allocated before the count is raised.
    fn copy_huge(
        &self,
        child: &mut Child<'_, 'vm, M>,
        pmd: PmdSlot<'_, M::Format>,
        write_protected: &mut bool,
    ) -> Result<Next, OutOfFrames> {
        let to = child.pmd_for(pmd.base)?;
        // Given back if the entry is no longer a huge mapping; counted as held until then.
        let (deposit, held) = child.new_table_held(0)?;
        loop {
            let seen = pmd.slot.observe();
            match seen.entry {
                Entry::Leaf(_) => {
                    let Ok(leaf) = pmd.slot.lock(seen) else { continue };
                    let of_zero = self.vm.is_huge_zero(leaf.pfn);
                    if !of_zero && self.vm.folio_has_pins(leaf.pfn) {
                        // Only the pinned pages have to be copied.
                        pmd.slot.unlock(leaf);
                        child.drop_table(deposit);
                        drop(held);
                        self.pmd_split(pmd);
                        return Ok(Next::Again);
                    }
                    let raised = of_zero || self.vm.folio_map_raise(leaf.pfn).is_ok();
                    let rights = if raised { leaf.rights - Rights::WRITE } else { leaf.rights };
                    *write_protected |= rights != leaf.rights;
                    let now = pmd.slot.unlock(Leaf { rights, ..leaf });
                    if !raised {
                        // Small pages have counts of their own.
                        child.drop_table(deposit);
                        drop(held);
                        self.pmd_split(pmd);
                        return Ok(Next::Again);
                    }
                    pmd::deposit::<M>(&self.vm.machine, &self.vm.frames, to.table, to.base, deposit);
                    to.slot.copy_private(now);
                    if !of_zero {
                        child.space.charge(Rss::Anon, Vm::<M>::NR_SUB_FRAMES as i64);
                        child.space.charge(Rss::Huge, Vm::<M>::NR_SUB_FRAMES as i64);
                    }
                    return Ok(Next::GoOn);
                }
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => self.vm.machine.relax(),
                Entry::Table(_) | Entry::None | Entry::Guard | Entry::Poison | Entry::Swap(_) => {
                    child.drop_table(deposit);
                    return Ok(Next::Again);
                }
            }
        }
    }

    /// Shares a page whose entry is locked. The raise of the map count returns the pin count of the
    /// same moment. The lock bit was set before: a pin that is not counted yet will find it (I23).
    #[inline(always)]
    fn share_locked(
        &self,
        slot: Slot<'_, M::Format>,
        leaf: Leaf,
        desc: &FrameDesc,
        write_protected: &mut bool,
    ) -> Shared {
        let is_zero = leaf.pfn == self.vm.frames.zero;
        let raised = if is_zero { Ok(false) } else { desc.map_raise().map(|before| before.pins() > 0) };
        let refused = match raised {
            Ok(false) => None,
            Ok(true) => {
                let freed = desc.map_drop();
                debug_assert!(!freed, "I14: the parent's entry names it still");
                Some(Event::ForkPinned)
            }
            Err(MapsFull) => Some(Event::ForkMapsFull),
        };
        let rights = if refused.is_none() { leaf.rights - Rights::WRITE } else { leaf.rights };
        let now = if rights != leaf.rights {
            *write_protected = true;
            slot.unlock(Leaf { rights, ..leaf })
        } else {
            slot.unlock_unchanged()
        };
        refused.map_or(Shared::Entry(now, (!is_zero).then_some(Rss::Anon)), Shared::Copied)
    }
}
