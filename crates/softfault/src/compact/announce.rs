//! Notices to subscribers before and after private pages are taken.
//!
//! ```text
//! find   entries of the pages in spaces with subscribers: each space is visited, so that it stays
//! tell   Start, with no entry owned and no lock held
//! ...    the caller takes the entries, by a walk of its own, and resolves them
//! drop   End, then the visit
//! ```
//! A space without subscribers at the first walk may have one when its entry is taken, and a page
//! may have moved to another address by then. Subscribers were not told of such an entry. So the
//! caller checks [`is_told`](Announcement::is_told) in the section in which it takes the entry, and
//! gives up if it was not told of.
//!
//! Locks on entry: none, no section, no entry owned. The first walk takes family locks.

use super::MigrateRefusal;
use super::moves::MAPS_MAX;
use crate::addr::{PageRange, Pfn, Vpn};
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::notify::tell::Invalidation;
use crate::pace::{self, Steps};
use crate::rmap::TakeEnded;
use crate::source::slot::PageFrame;
use crate::space::{SpaceVisit, Vm};

/// Most ranges that are announced together: the largest number of entries of one page, so that there
/// is room for any single page.
const STRETCHES_MAX: usize = MAPS_MAX as usize;

/// Adjacent pages of one space. Fields are dropped in this order: the end is told while the space is
/// visited.
struct Stretch<'vm, M: Machine> {
    change: Option<Invalidation<'vm, M>>,
    range: PageRange,
    visit: SpaceVisit<'vm, M>,
}

/// The pages that subscribers are told of. Dropping it tells the end, so it is dropped after the last
/// entry was resolved.
pub(super) struct Announcement<'vm, M: Machine> {
    vm: &'vm Vm<M>,
    why: Why,
    stretches: [Option<Stretch<'vm, M>>; STRETCHES_MAX],
    nr: usize,
}

/// Why a page is not announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotAnnounced {
    /// There is no room for its entries.
    Full,
    /// The page cannot be moved.
    Stays(MigrateRefusal),
}

/// Entries of one page in spaces with subscribers.
struct Places<'vm, M: Machine> {
    places: [Option<(SpaceVisit<'vm, M>, PageRange)>; STRETCHES_MAX],
    nr: usize,
    are_more: bool,
}

impl<'vm, M: Machine> Places<'vm, M> {
    /// Adds an entry. Returns `false` if there is no room, which ends the walk.
    fn add(&mut self, visit: SpaceVisit<'vm, M>, pages: PageRange) -> bool {
        self.are_more = self.nr == STRETCHES_MAX;
        if self.are_more {
            return false;
        }
        self.places[self.nr] = Some((visit, pages));
        self.nr += 1;
        true
    }
}

impl<'vm, M: Machine> Announcement<'vm, M> {
    pub(super) fn new(vm: &'vm Vm<M>, why: Why) -> Self {
        Announcement { vm, why, stretches: [const { None }; STRETCHES_MAX], nr: 0 }
    }

    /// Announces one private page: finds its spaces and tells them.
    ///
    /// # Errors
    ///
    /// [`MigrateRefusal`]; nobody was told then.
    pub(super) fn of_page(vm: &'vm Vm<M>, page: PageFrame, why: Why) -> Result<Self, MigrateRefusal> {
        let mut announced = Announcement::new(vm, why);
        match announced.find(page, &mut Steps::unbounded()) {
            Ok(()) => announced.tell(),
            Err(NotAnnounced::Full) => return Err(MigrateRefusal::TooManyMaps),
            Err(NotAnnounced::Stays(refusal)) => return Err(refusal),
        }
        Ok(announced)
    }

    /// Finds the spaces to tell of a private page, within the `steps`. Tells nobody yet.
    ///
    /// # Errors
    ///
    /// [`NotAnnounced`]; pages that were found before are kept.
    pub(super) fn find(&mut self, page: PageFrame, steps: &mut Steps) -> Result<(), NotAnnounced> {
        let mut found = Places { places: [const { None }; STRETCHES_MAX], nr: 0, are_more: false };
        let walked = self.vm.rmap_find_subscribed(page, steps, &mut |visit, pages| found.add(visit, pages));
        if walked == Err(TakeEnded::OutOfSteps) {
            return Err(NotAnnounced::Stays(MigrateRefusal::WalkTooLong));
        }
        if found.are_more {
            return Err(NotAnnounced::Stays(MigrateRefusal::TooManyMaps));
        }
        if self.nr + found.nr > STRETCHES_MAX {
            return Err(NotAnnounced::Full);
        }
        found.places.into_iter().flatten().for_each(|(visit, pages)| self.add(visit, pages));
        Ok(())
    }

    fn add(&mut self, visit: SpaceVisit<'vm, M>, page: PageRange) {
        for stretch in self.stretches.iter_mut().flatten().filter(|stretch| stretch.visit.is_to_same(&visit)) {
            if page.start <= stretch.range.end && stretch.range.start <= page.end {
                let (start, end) = (stretch.range.start.min(page.start), stretch.range.end.max(page.end));
                stretch.range = PageRange::new(start, end);
                return;
            }
        }
        self.stretches[self.nr] = Some(Stretch { change: None, range: page, visit });
        self.nr += 1;
    }

    /// Tells the start for all pages that were found.
    pub(super) fn tell(&mut self) {
        for stretch in self.stretches.iter_mut().flatten() {
            pace::answer(&self.vm.machine);
            stretch.change = Some(stretch.visit.space().invalidate(stretch.range, self.why));
        }
    }

    /// Whether the space's subscribers have been told of the page.
    pub(super) fn is_told(&self, space: Pfn, vpn: Vpn) -> bool {
        let is_of = |stretch: &&Stretch<'vm, M>| stretch.visit.is_to(space) && stretch.range.contains(vpn);
        let mut changes = self.stretches.iter().flatten().filter(is_of).filter_map(|stretch| stretch.change.as_ref());
        changes.any(Invalidation::was_told)
    }
}

#[cfg(test)]
#[path = "announce_tests.rs"]
mod tests;
