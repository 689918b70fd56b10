//! Removes all entries of a private page, for memory failure, swapping out, and moves of a pool's page.
//!
//! ```text
//! all entries of the frame ─▶ Busy        rmap/take.rs
//!                            subscribers are told before, and at the end: announce.rs
//! shootdown of each space, one grace period
//! are these all entries? is no pin left?  else: as it was
//! ```
//! As for a move (`migrate.rs`): anything that could raise the map count or the pin count needs one
//! of these entries, and the taker owns all of them. So both counts are final when they are read
//! then, and nobody reads or writes the page (I27). The entries then name no frame, and the taker
//! owns the frame alone.
//!
//! Locks on entry: none, no section. While entries are `Busy`, this waits for shootdowns and
//! sections only.

use super::MigrateRefusal;
use super::announce::Announcement;
use super::moves::{MAPS_MAX, Movable};
use super::refusal::NotWithdrawn;
use crate::account::rss::Rss;
use crate::addr::{Order, Pfn, Vpn};
use crate::frame::FrameKind;
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::pace::Steps;
use crate::rmap::{TakeEnded, TakenEntry};
use crate::source::slot::PageFrame;
use crate::space::Vm;
use crate::space::vma::VmaFlags;
use crate::table::format::{Entry, Leaf};

/// A frame all of whose entries the caller owns; its counts are final. The entries are restored on drop,
/// unless [`replace_with`](Withdrawn::replace_with) or [`move_to`](Withdrawn::move_to) is called.
pub(super) struct Withdrawn<'vm, M: Machine> {
    vm: &'vm Vm<M>,
    entries: [Option<TakenEntry<'vm, M>>; MAPS_MAX as usize],
    nr_entries: usize,
    /// Dropping it tells the end, after the entries were restored.
    announced: Option<Announcement<'vm, M>>,
}

/// Who is told before entries are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tell {
    Subscribers,
    /// A page with subscribers is refused.
    Nobody,
}

impl<M: Machine> Vm<M> {
    /// Takes all entries of a private frame. Subscribers are told `why`, if they may be.
    ///
    /// # Errors
    ///
    /// [`NotWithdrawn`]; nothing has changed then.
    pub(super) fn withdraw_entries(&self, pfn: Pfn, why: Why, tell: Tell) -> Result<Withdrawn<'_, M>, NotWithdrawn> {
        if let Movable::OfObject { .. } = self.check_movable(pfn)? {
            return Err(NotWithdrawn::OfObject);
        }
        Ok(self.withdraw_private(PageFrame { pfn, order: Order::BASE }, why, tell)?)
    }

    /// Does so with a private page of one frame, or with one of a pool that has that size.
    pub(super) fn withdraw_private(
        &self,
        page: PageFrame,
        why: Why,
        tell: Tell,
    ) -> Result<Withdrawn<'_, M>, MigrateRefusal> {
        let taken = match self.take_entries(page, None) {
            Err(MigrateRefusal::Subscribed) if tell == Tell::Subscribers => {
                let announced = Announcement::of_page(self, page, why)?;
                self.take_entries(page, Some(announced)).map_err(MigrateRefusal::once_told)?
            }
            taken => taken?,
        };
        self.shoot_down_taken(taken.nr_entries, &|i| taken.entries[i].as_ref());
        let state = self.frames.desc(page.pfn).state();
        if state.pins() > 0 {
            return Err(MigrateRefusal::Pinned);
        }
        // A fault that copies the page has given its entry up.
        if state.nr_maps() != taken.nr_entries as u64 || state.is_copied() {
            return Err(MigrateRefusal::Raced);
        }
        Ok(taken)
    }

    /// Returns how many entries there are to take. Advisory; no entry of another size is taken.
    pub(super) fn nr_entries_to_take(&self, page: PageFrame) -> Result<u64, MigrateRefusal> {
        if page.order == Order::BASE {
            let Movable::Private(nr_maps) = self.check_movable(page.pfn)? else { return Err(MigrateRefusal::Raced) };
            return Ok(nr_maps);
        }
        let state = self.state_of(page.pfn).ok_or(MigrateRefusal::Raced)?;
        match state.nr_maps() {
            _ if state.kind() != FrameKind::Anon => Err(MigrateRefusal::Raced),
            0 => Err(MigrateRefusal::Raced),
            nr if nr > MAPS_MAX => Err(MigrateRefusal::TooManyMaps),
            nr => Ok(nr),
        }
    }

    /// Takes the frame's entries. Entries of spaces with subscribers only if these were told.
    fn take_entries<'vm>(
        &'vm self,
        page: PageFrame,
        announced: Option<Announcement<'vm, M>>,
    ) -> Result<Withdrawn<'vm, M>, MigrateRefusal> {
        let nr_maps = self.nr_entries_to_take(page)?;
        let mut taken = Withdrawn { vm: self, entries: [None; MAPS_MAX as usize], nr_entries: 0, announced };
        let (entries, nr, announced) = (&mut taken.entries, &mut taken.nr_entries, &taken.announced);
        let is_told = |space: Pfn, vpn: Vpn| announced.as_ref().is_some_and(|announced| announced.is_told(space, vpn));
        let walked = self.rmap_take(page, nr_maps, &mut Steps::unbounded(), &is_told, &mut |entry| {
            entries[*nr] = Some(entry);
            *nr += 1;
        });
        match walked {
            Err(TakeEnded::OutOfSteps) => Err(MigrateRefusal::WalkTooLong),
            Err(TakeEnded::Subscribed) => Err(MigrateRefusal::Subscribed),
            Ok(()) if (taken.nr_entries as u64) < nr_maps => Err(MigrateRefusal::Raced),
            Ok(()) => Ok(taken),
        }
    }
}

impl<M: Machine> Withdrawn<'_, M> {
    /// Number of entries.
    pub(super) fn nr_entries(&self) -> u64 {
        self.nr_entries as u64
    }

    /// Whether a mapping of the page is locked. Called after the grace period: an mlock that found the page
    /// present before its entry was taken has published its VMA by then. A later mlock waits for the
    /// entry, and swaps the page in.
    pub(super) fn any_is_locked(&self) -> bool {
        self.entries.iter().flatten().any(|entry| {
            let space = self.vm.borrow_space(entry.space);
            let section = space.section();
            let found = space.tree_in(section.inside()).lookup(entry.vpn);
            found.is_some_and(|found| found.vma.flags.contains(VmaFlags::LOCKED))
        })
    }

    /// Replaces all entries with `to`, which refers to no frame. `counted` is the counter that each adds to
    /// from now on. The caller has given the frame a new owner before.
    pub(super) fn replace_with(mut self, to: Entry, counted: Option<Rss>) {
        for place in &mut self.entries {
            let Some(entry) = place.take() else { continue };
            // Before the entry is resolved: the space may end afterwards.
            let space = self.vm.borrow_space(entry.space);
            space.charge(Rss::Anon, -1);
            counted.iter().for_each(|what| space.charge(*what, 1));
            entry.slot.resolve(to);
        }
    }
}

impl<M: Machine> Withdrawn<'_, M> {
    /// All entries name `to` from now on, with the rights and flags that they had. The caller has copied the page, and the
    /// descriptor.
    pub(super) fn move_to(mut self, to: Pfn) {
        for entry in self.entries.iter_mut().filter_map(Option::take) {
            entry.slot.resolve(Entry::Leaf(Leaf { pfn: to, ..entry.old }));
        }
    }
}

impl<M: Machine> Drop for Withdrawn<'_, M> {
    fn drop(&mut self) {
        self.entries.iter_mut().filter_map(Option::take).for_each(|entry| entry.put_back());
    }
}
