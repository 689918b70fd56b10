//! The side of operations that change entries.
//!
//! Under the writer lock the number of subscriptions does not change. Without it (in a fault, or a
//! migration through rmap) a caller reads the number in the section in which it takes the entry. If
//! there are subscribers that it has not told, it tells them and starts over, or gives up: see
//! `space/ops/subscribe.rs`. Before it tells it counts itself and looks at the number once more,
//! since `unsubscribe` waits for those who count only.

use super::NotifyLine;
use super::notice::{Notice, Why};
use crate::account::Event;
use crate::addr::PageRange;
use crate::base::Base;
use crate::cpu::ATTENTION_TELLING;
use crate::machine::{Machine, SpaceTag, ask};
use crate::sync::{self, Ordering, Word};

/// One more that is over, and was never in progress.
pub(crate) const ONE_IS_OVER: u64 = 1 << 24;
/// One more that is over, one fewer in progress.
const OVER: u64 = ONE_IS_OVER - 1;

pub(crate) const fn is_under_way(changes: u64) -> bool {
    changes & (ONE_IS_OVER - 1) != 0
}

/// A change in progress. Its end is told when it is dropped, which has to be after the shootdown.
#[must_use]
pub(crate) struct Invalidation<'a, M: Machine> {
    base: &'a Base<M>,
    /// Nobody was told where this is `None`.
    space: Option<Told<'a>>,
    range: PageRange,
    why: Why,
}

/// This CPU is in [`Machine::notify`], in which it stays the same (I2).
struct Telling<'a>(&'a Word);

impl<'a> Telling<'a> {
    fn begin(attention: &'a Word) -> Telling<'a> {
        // A thief may set its own bit meanwhile.
        attention.fetch_or(ATTENTION_TELLING, Ordering::Relaxed);
        Telling(attention)
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.0.fetch_and(!ATTENTION_TELLING, Ordering::Relaxed);
    }
}

/// A change of which subscribers have been told everything when this is dropped.
struct Untold<'a>(&'a NotifyLine);

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        self.0.nr_untold.fetch_sub(1, Ordering::Release);
    }
}

/// Ends a change whose start was not told.
struct Undo<'a>(Untold<'a>);

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        self.0.0.changes.fetch_add(OVER, Ordering::AcqRel);
    }
}

/// A space, as notices name it.
#[derive(Clone, Copy)]
pub(crate) struct Told<'a> {
    pub(crate) line: &'a NotifyLine,
    pub(crate) tag: SpaceTag,
}

impl NotifyLine {
    /// Whether there are subscribers to tell.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.nr_subscribers.load(Ordering::Acquire) != 0
    }

    /// Whether no change is in progress, and none has to be told to its end (I24).
    pub(crate) fn is_at_rest(&self) -> bool {
        !is_under_way(self.changes.load(Ordering::Acquire)) && self.nr_untold.load(Ordering::Acquire) == 0
    }
}

impl<M: Machine> Base<M> {
    /// Tells the start of a change, before entries of the range change: outside sections, with no
    /// entry owned or locked. The space has to stay until the end is told.
    #[inline]
    pub(crate) fn invalidate<'a>(&'a self, space: Told<'a>, range: PageRange, why: Why) -> Invalidation<'a, M> {
        let told = !range.is_empty() && space.line.has_any() && self.tell_start(space, range, why);
        Invalidation { base: self, space: told.then_some(space), range, why }
    }

    /// Whether there was a subscriber to tell.
    #[cold]
    pub(crate) fn tell_start(&self, space: Told<'_>, range: PageRange, why: Why) -> bool {
        space.line.nr_untold.fetch_add(1, Ordering::AcqRel);
        space.line.changes.fetch_add(1, Ordering::AcqRel);
        let undo = Undo(Untold(space.line));
        // A subscriber without a lock maps first and looks at the count afterwards; the
        // last one goes first and looks at those who have not told yet.
        sync::fence();
        if !space.line.has_any() {
            return false;
        }
        self.count(Event::NotifyStart, 1);
        self.tell_machine(space.tag, &Notice::Start { range, why });
        core::mem::forget(undo);
        true
    }

    #[cold]
    pub(crate) fn tell_end(&self, space: Told<'_>, range: PageRange, why: Why) {
        let _untold = Untold(space.line);
        space.line.changes.fetch_add(OVER, Ordering::AcqRel);
        self.tell_machine(space.tag, &Notice::End { range, why });
    }

    /// Calls the machine, with a mark on this CPU that makes calls back panic where
    /// they could wait.
    pub(crate) fn tell_machine(&self, space: SpaceTag, notice: &Notice) -> bool {
        self.assert_outside();
        let telling = Telling::begin(&self.cpu(self.machine.this_cpu()).attention);
        let answer = ask::notify(&self.machine, space, notice);
        drop(telling);
        answer
    }
}

impl<M: Machine> Invalidation<'_, M> {
    /// Whether there was a subscriber to tell.
    pub(crate) fn was_told(&self) -> bool {
        self.space.is_some()
    }
}

impl<M: Machine> Drop for Invalidation<'_, M> {
    #[inline]
    fn drop(&mut self) {
        if let Some(space) = self.space {
            self.base.tell_end(space, self.range, self.why);
        }
    }
}
