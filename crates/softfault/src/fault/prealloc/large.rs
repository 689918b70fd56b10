//! Preallocated frames of larger orders: folios, batches, and huge frames with their tables.
//!
//! Locks on entry: none, no section, to obtain and to give back; inside a section to take.

use super::{Need, Prealloc, Twin};
use crate::account::Event;
use crate::account::sizes::SizeEvent;
use crate::addr::{Order, Pfn};
use crate::frame::{Content, Fill, HugeFrame, OutOfFrames};
use crate::machine::Machine;
use crate::policy::huge::{HugeAdvice, Orders};

/// Tables that a new huge mapping takes.
#[derive(Clone, Copy)]
pub(crate) struct HugeParts {
    pub(crate) deposit: Pfn,
    pub(crate) twin: Option<Pfn>,
}

/// The choices of the fault in its next turn.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    First,
    /// A place in an object may be claimed.
    MayClaim,
    /// A place may be claimed, and the fault holds the mutex of its page (`base/hugetlb_locks.rs`).
    HasMutex,
}

/// The preallocated frames of larger orders.
#[derive(Clone, Copy, Default)]
pub(super) struct Large {
    /// Orders that were refused.
    failed: u32,
    stage: Stage,
    /// Number of pages, including the fault's, that subscribers were told will change.
    nr_told: u32,
    batch: Option<(Pfn, Order)>,
    /// The batch came for an object: only its head's age is noted.
    is_folio: bool,
    huge: Option<HugeFrame>,
    deposit: Option<Pfn>,
    twin: Option<Pfn>,
}

impl<M: Machine> Prealloc<'_, M> {
    /// Notes for the next turn that subscribers have been told of so many pages.
    pub(crate) fn set_told(&mut self, nr_pages: u64) {
        self.large_mut().nr_told = nr_pages as u32;
    }

    /// Whether subscribers were told of so many pages, so that their entry may be taken.
    pub(crate) fn has_told(&self, nr_pages: u64) -> bool {
        u64::from(self.large().nr_told) >= nr_pages
    }

    /// Allows the fault to claim a place in an object. Not in the first turn, after which the call of a subscriber panics.
    pub(super) fn let_claim(&mut self) {
        if self.large().stage == Stage::First {
            self.large_mut().stage = Stage::MayClaim;
        }
    }

    /// Whether the fault may claim a place.
    pub(crate) fn may_claim(&self) -> bool {
        self.large().stage != Stage::First
    }

    /// Notes for the next turn that the fault has a mutex.
    pub(crate) fn note_mutex(&mut self) {
        self.large_mut().stage = Stage::HasMutex;
    }

    /// Notes for the next turn that it has none.
    pub(crate) fn note_no_mutex(&mut self) {
        if self.large().stage == Stage::HasMutex {
            self.large_mut().stage = Stage::MayClaim;
        }
    }

    /// Whether it has.
    pub(crate) fn has_mutex(&self) -> bool {
        self.large().stage == Stage::HasMutex
    }

    /// The preallocation is empty when that is refused.
    #[inline(never)]
    pub(super) fn bring_folio(&mut self, order: Order, sub_page: u32, least: Order) -> Result<(), OutOfFrames> {
        self.give_back_all();
        let found = if order == least {
            Some(self.vm.obtain_folio(order, sub_page)?)
        } else {
            self.vm.obtain_folio_if_found(order, sub_page).ok()
        };
        match found {
            Some((first, held)) => {
                self.large_mut().batch = Some((first, order));
                self.held = Some(held);
                self.large_mut().is_folio = true;
            }
            None => self.give_up(order),
        }
        Ok(())
    }

    /// Puts it back into the preallocation, untouched.
    #[cold]
    pub(crate) fn keep_folio(&mut self, first: Pfn, order: Order) {
        self.hold();
        self.large_mut().batch = Some((first, order));
        self.large_mut().is_folio = true;
    }

    /// Obtains frames of a larger order. If they are refused, records the order and frees all
    /// larger frames: the fault continues with a smaller order, which may need them.
    #[inline(never)]
    pub(super) fn bring_large(&mut self, need: Need) {
        let order = if let Need::Batch { order, .. } = need { order } else { Order::PMD };
        if self.vm.frames.is_frozen() || self.hold_and_try_large(need).is_err() {
            self.give_back_large();
            // An order that seemed to be free and was not: searching blocks for the next one would
            // cost more than a small page.
            self.large_mut().failed |= u32::from(if order == Order::PMD { Orders::PMD.0 } else { Orders::MID.0 });
            self.vm.count_size(SizeEvent::AnonFaultFallback, order);
            if order == Order::PMD {
                self.vm.count(Event::ThpFaultFallback, 1);
            }
        }
    }

    fn hold_and_try_large(&mut self, need: Need) -> Result<(), OutOfFrames> {
        self.hold();
        match need {
            Need::Frame(_) | Need::Folio { .. } | Need::Place => Ok(()),
            Need::Batch { order, sub_page } => {
                // Another size fits since the last turn.
                self.give_back_batch();
                self.large_mut().batch = Some((self.vm.obtain_batch(order, sub_page)?, order));
                self.large_mut().is_folio = false;
                Ok(())
            }
            Need::Huge { sub_page, twin, advice } => {
                self.get_huge(sub_page, Content::Zero, advice)?;
                self.get_parts(twin)
            }
            // The tables first: the huge zero frame does not come back.
            Need::HugeZero { twin } => {
                self.get_parts(twin)?;
                self.vm.make_huge_zero()
            }
            Need::HugeCopy { sub_page, content, advice } => self.get_huge(sub_page, content, advice),
        }
    }

    fn get_huge(&mut self, sub_page: u32, content: Content, advice: HugeAdvice) -> Result<(), OutOfFrames> {
        let mut huge = match self.large().huge {
            Some(huge) => huge,
            None => self.vm.obtain_huge_for_fault(advice)?,
        };
        if content.is_zero() && !huge.content.is_zero() {
            self.vm.zero_huge(huge.first, Some(u64::from(sub_page)));
            huge.content = Content::Zero;
        }
        self.large_mut().huge = Some(huge);
        Ok(())
    }

    fn get_parts(&mut self, twin: Twin) -> Result<(), OutOfFrames> {
        if self.large().deposit.is_none() {
            self.large_mut().deposit = Some(self.vm.source().frame(Fill::Fixed)?);
        }
        if twin == Twin::Missing && self.large().twin.is_none() {
            self.large_mut().twin = Some(self.vm.source().frame(Fill::Fixed)?);
        }
        Ok(())
    }

    /// Orders that have not failed yet in this fault.
    pub(crate) fn untried(&self) -> Orders {
        Orders(!self.large().failed as u16)
    }

    /// The largest order for a page of an object that was not refused in this fault.
    pub(crate) fn most_there(&self) -> Order {
        let failed = self.large().failed | 1 << (Order::PUD.0 + 1);
        Order(failed.trailing_zeros().saturating_sub(1) as u8)
    }

    /// Makes this fault do without that order.
    pub(crate) fn give_up(&mut self, order: Order) {
        self.large_mut().failed |= 1 << order.0;
    }

    /// Whether it has adjacent frames of that order.
    pub(crate) fn has_batch(&self, order: Order) -> bool {
        self.large().batch.is_some_and(|(_, of)| of == order)
    }

    /// Adjacent frames of zeroes, if they are of that order.
    pub(crate) fn batch(&mut self, order: Order) -> Option<Pfn> {
        let (first, of) = self.large().batch?;
        if of != order {
            return None;
        }
        self.large_mut().batch = None;
        Some(first)
    }

    /// The same for private pages, of which each has an age of its own. The batch may have come for an object whose
    /// mapping was replaced between two turns.
    pub(crate) fn private_batch(&mut self, order: Order) -> Option<Pfn> {
        let first = self.batch(order)?;
        if self.large().is_folio {
            self.vm.frames.note_run_used(first, order.nr_pages());
        }
        Some(first)
    }

    /// A huge frame, of zeroes if it has to be.
    pub(crate) fn huge(&mut self, content: Content) -> Option<HugeFrame> {
        self.large_mut().huge.take_if(|huge| huge.content.is_zero() || !content.is_zero())
    }

    /// The same, of zeroes, and the tables of a new huge mapping; all or nothing.
    pub(crate) fn huge_with_parts(&mut self, twin: Twin) -> Option<(HugeFrame, HugeParts)> {
        self.large().huge.filter(|huge| huge.content.is_zero())?;
        let parts = self.parts(twin)?;
        self.huge(Content::Zero).map(|huge| (huge, parts))
    }

    /// The tables alone.
    pub(crate) fn parts(&mut self, twin: Twin) -> Option<HugeParts> {
        let deposit = self.large().deposit?;
        if twin == Twin::Missing && self.large().twin.is_none() {
            return None;
        }
        self.large_mut().deposit = None;
        let twin = if twin == Twin::Missing { self.large_mut().twin.take() } else { None };
        Some(HugeParts { deposit, twin })
    }

    /// Takes back what `huge` gave, untouched: as zero as it was then (I20).
    pub(crate) fn keep_huge(&mut self, huge: HugeFrame) {
        self.large_mut().huge = Some(huge);
    }

    pub(crate) fn keep_deposit(&mut self, pfn: Pfn) {
        self.large_mut().deposit = Some(pfn);
    }

    pub(crate) fn keep_twin(&mut self, pfn: Pfn) {
        self.vm.frames.desc(pfn).clear();
        self.large_mut().twin = Some(pfn);
    }

    fn give_back_batch(&mut self) {
        if let Some((first, order)) = self.large_mut().batch.take() {
            self.vm.release_run(first, order.nr_pages(), Content::Zero);
        }
    }

    pub(super) fn give_back_large(&mut self) {
        if self.kept.is_none() {
            return;
        }
        self.give_back_batch();
        if let Some(huge) = self.large_mut().huge.take() {
            self.vm.give_back_huge(huge.first, huge.content);
        }
        if let Some(pfn) = self.large_mut().deposit.take() {
            self.vm.give_back(pfn, Fill::Raw);
        }
        if let Some(pfn) = self.large_mut().twin.take() {
            self.vm.give_back(pfn, Fill::Fixed);
        }
    }
}
