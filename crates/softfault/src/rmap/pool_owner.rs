//! Takes a page of a pool from those who show it without a reservation, for its owner (`frame/pool_page.rs`).
//!
//! ```text
//! store    the owner's entry is Busy; the pool has no page ─▶ nothing is owned: a space with subscribers is told
//!          ─▶ the owner's entry is Busy again; the pool has no page
//! take     up to 16 entries of others ─▶ Busy ─▶ shootdown, grace ─▶ each: the page has one entry less ─▶ lost; and again
//! then     alone? the owner's entry has the write right    else: it is what it was, and the fault begins again
//! ```
//! The owner's entry is `Busy`, and counted, from before the first other one is taken: no thread of the owner unmaps, moves or shares
//! the page meanwhile, and no other entry is the last. So if every other entry can be taken, the store is made. The walk waits for nobody:
//! an entry that another operation owns for a moment, or of a second space with subscribers, is left, and the fault
//! waits with nothing owned, and begins again. What was taken by then stays lost, though another thread of the owner may now unmap the
//! page, or a page of the pool may come for the copy. Put back, it would have to be taken again: children that touch the page all the
//! time would keep their parent waiting without end.
//!
//! MADV_DONTNEED of the owner leaves a claim. If the pool has no page for it, the others lose this one at once: the
//! owner's next touch is not refused. Where subscribers would have to be told, which cannot be under the writer lock, the place has no
//! claim instead, and gets one when it is touched, if the pool has a page then.
//!
//! A place that has lost its page says so (`Poison`), and a touch of it is refused: an empty one would show zeroes where there
//! were bytes.
//!
//! | failure | what prevents it | seen by |
//! | --- | --- | --- |
//! | another process sees what the owner has stored since | a shootdown and a grace period of each space before its entry is given up | `a_child_reads_while_its_parent_takes` |
//! | all others lose the page although nobody stores: another thread has unmapped it meanwhile | the owner's entry is `Busy`, which removals wait for, until no other entry is left to take | `an_owner_takes_while_it_is_unmapped` |
//! | an owner that drops the page waits for a child that ends, and that, by way of `resize`, for the owner | the end of a space leaves the family after such pages (`space/exit.rs`) | `a_drop_takes_from_a_child_that_ends_while_a_hole_is_made` |
//! | a child that forks, moves or copies keeps an entry through which it reads what the owner stores | the owner stores only if it is alone, and takes again otherwise | `a_child_forks_while_its_parent_takes`, `a_child_moves_while_its_parent_takes` |
//!
//! Locks on entry: none, no section; the caller may own an entry. Takes the family's.

use super::TakenEntry;
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{PageRange, Pfn};
use crate::frame::Claim;
use crate::machine::Machine;
use crate::notify::notice::Why;
use crate::notify::tell::Invalidation;
use crate::pace::Steps;
use crate::rmap::TakeEnded;
use crate::source::slot::PageFrame;
use crate::space::{AddressSpace, SpaceVisit, Vm};
use crate::table::format::Entry;

/// Entries that are taken together.
const NR_TOGETHER: usize = 16;

/// A space with subscribers, which have been told that it loses the page. Fields are dropped in this order: the end is told
/// while the space is visited.
pub(crate) struct OtherTold<'vm, M: Machine> {
    change: Invalidation<'vm, M>,
    pages: PageRange,
    visit: SpaceVisit<'vm, M>,
}

/// The owner of a page has found the pool empty, and may take the page from others.
pub(crate) struct MayTake<'vm, M: Machine> {
    told: Option<OtherTold<'vm, M>>,
}

impl<'vm, M: Machine> MayTake<'vm, M> {
    /// No page of a space with subscribers.
    const UNTOLD: Self = MayTake { told: None };

    /// Tells the subscribers of one other space that shows the page, if there is one. With nothing owned: the page may be any
    /// other by now, and then they are told in vain.
    pub(crate) fn from_others(owner: &AddressSpace<'vm, M>, page: PageFrame) -> Self {
        let (vm, mut found) = (owner.vm, None);
        // Without a limit of time there is no end but that.
        let _ = vm.rmap_find_subscribed(page, &mut Steps::unbounded(), &mut |visit, pages| {
            let is_other = !visit.is_to(owner.frame);
            if is_other {
                found = Some((visit, pages));
            }
            !is_other
        });
        let told =
            found.map(|(visit, pages)| OtherTold { change: visit.space().invalidate(pages, Why::Unmap), pages, visit });
        MayTake { told }
    }

    fn is_told(&self, space: Pfn, at: crate::addr::Vpn) -> bool {
        self.told
            .as_ref()
            .is_some_and(|told| told.change.was_told() && told.visit.is_to(space) && told.pages.contains(at))
    }
}

impl<M: Machine> Vm<M> {
    /// Takes all other entries of the page, whose owner's entry the caller owns.
    ///
    /// # Errors
    ///
    /// [`TakeEnded::Subscribed`]: subscribers of a space have to be told first. What was taken until then is lost to others.
    pub(crate) fn take_from_others(&self, page: PageFrame, how: &MayTake<'_, M>) -> Result<(), TakeEnded> {
        loop {
            let (mut entries, mut nr) = ([None; NR_TOGETHER], 0);
            let ended = self.rmap_take(
                page,
                NR_TOGETHER as u64,
                &mut Steps::unbounded(),
                &|space, at| how.is_told(space, at),
                &mut |entry| {
                    entries[nr] = Some(entry);
                    nr += 1;
                },
            );
            self.shoot_down_taken(nr, &|i| entries[i].as_ref());
            entries.iter().flatten().for_each(|entry| self.lose_page(page, entry));
            self.count(Event::HugePageTaken, nr as u64);
            if ended.is_err() || nr < NR_TOGETHER {
                return ended;
            }
        }
    }

    /// Does so, and waits for entries that others own for a moment, until the page is the caller's alone. `false` if subscribers
    /// would have to be told; others have lost the page then only if these came meanwhile.
    pub(crate) fn take_page_for_place(&self, first: Pfn) -> bool {
        let page = PageFrame { pfn: first, order: self.pool_of_page(first).order() };
        // First: nobody should lose the page for a claim that does not come.
        let mut has_subscribed = false;
        let _ = self.rmap_find_subscribed(page, &mut Steps::unbounded(), &mut |_, _| {
            has_subscribed = true;
            false
        });
        if has_subscribed {
            return false;
        }
        while self.take_from_others(page, &MayTake::UNTOLD).is_ok() {
            let state = self.frames.desc(first).state();
            if state.nr_maps() == 1 && !state.is_copied() {
                return true;
            }
            self.machine.relax();
        }
        false
    }

    fn lose_page(&self, page: PageFrame, entry: &TakenEntry<'_, M>) {
        // The owner's entry is counted: this one is not the last.
        let dropped = self.drop_pool_page(page.pfn, Claim::Nothing);
        debug_assert!(dropped.is_ok(), "no claim is asked for");
        // Before the entry is given up: the space may end afterwards.
        self.borrow_space(entry.space).charge(Rss::Anon, -(page.order.nr_pages() as i64));
        entry.slot.resolve(Entry::Poison);
    }
}
