//! Clearing and copying large pages, in the orders of [`policy::clear`].
//!
//! One mechanism for both: the runs of the plan are cut into pieces, with a call of
//! [`Machine::relax`] after at most 64 frames. So nothing here may be called inside a section (I8).
//! The caller owns the target frames alone (I6) until this returns; non-temporal stores have
//! completed by then.
//!
//! [`calibrate()`] measures the best order, once for a machine and each page size. The
//! [`Vm`](crate::Vm) stores it.

mod batch;
mod calibrate;
mod near;
mod scratch;

pub use crate::mem::ways::Ways;
pub use crate::policy::clear::{ClearOrder, Plan, Run, WARM_RADIUS};
pub use crate::policy::zero::{BatchPlan, BatchPlans, ZeroCost, Zeroing};
pub(crate) use batch::zero_batch;
pub use calibrate::{ClearTable, calibrate};
use near::Near;
pub use scratch::Scratch;

use crate::addr::{Order, Pfn};
use crate::base::Base;
use crate::machine::Machine;
use crate::mem::{self, SourceFailed, stream, ways};
use crate::policy;
use crate::policy::zero::{BATCHES, class_of};

/// Most frames that are cleared or copied in one piece, between two calls of
/// [`Machine::relax`]. One string instruction over 4 KiB runs at half the speed
/// of one over 64 KiB; above 256 KiB, some 6 microseconds, nothing is gained.
pub const CHUNK_FRAMES: u64 = 64;
/// Most frames that are streamed in one piece, before the next lines are prefetched: those of eight frames
/// are about as many as a CPU waits for at once.
const STREAMED_FRAMES: u64 = 8;

/// A sub-page of the source cannot be read: copying stopped there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Poisoned {
    /// Its index.
    pub index: u64,
}

impl core::fmt::Display for Poisoned {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "sub-page {} of the source: should be readable memory, and is poisoned", self.index)
    }
}
impl core::error::Error for Poisoned {}

/// The ways to zero the near and the far part of a large page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct By {
    pub(crate) ways: Ways,
    pub(crate) near: Zeroing,
    pub(crate) far: Zeroing,
}

/// Fills the 2^order frames from `first` with zeroes; `hint` is the index of the one that is needed
/// first, if that is known. The frames are owned by the caller alone (I6).
pub(crate) fn clear_folio<M: Machine>(
    machine: &M,
    first: Pfn,
    order: Order,
    hint: Option<u64>,
    how: ClearOrder,
    by: By,
) {
    // Nothing can fail, and the compiler knows it.
    let Ok(()) =
        in_pieces(machine, first, how.plan(order.nr_pages(), hint), |piece| -> Result<(), core::convert::Infallible> {
            let at = Pfn(first.0 + piece.start as u32);
            let way = if piece.is_streaming { by.far } else { by.near };
            ways::zero_frames(machine, by.ways, way, at, piece.count);
            Ok(())
        });
}

/// Copies the 2^order frames from `from` to those from `to`; `hint` as for
/// [`clear_folio`]. `check` is called for each sub-page right before it is read.
///
/// # Errors
///
/// The error of `check`, or that of the machine's copy. A part of the copy has been written then; nothing is
/// written after it.
pub(crate) fn copy_folio<M: Machine>(
    machine: &M,
    to: Pfn,
    from: Pfn,
    order: Order,
    hint: Option<u64>,
    how: ClearOrder,
    check: &mut impl FnMut(u64) -> Result<(), Poisoned>,
) -> Result<(), Poisoned> {
    in_pieces(machine, to, how.plan(order.nr_pages(), hint), |piece| {
        piece.indices().try_for_each(&mut *check)?;
        let at = |base: Pfn| Pfn(base.0 + piece.start as u32);
        let copied = if piece.is_streaming {
            stream::copy_frames(machine, at(to), at(from), piece.count)
        } else {
            mem::copy_frames(machine, at(to), at(from), piece.count)
        };
        copied.map_err(|SourceFailed(pfn)| Poisoned { index: u64::from(pfn.0 - from.0) })
    })
}

/// Calls `work` for pieces of the plan's runs, in order, until one fails. The frames
/// that are written begin at `to`.
fn in_pieces<M: Machine, E>(
    machine: &M,
    to: Pfn,
    plan: Plan,
    mut work: impl FnMut(Run) -> Result<(), E>,
) -> Result<(), E> {
    let mut near = Near::of(&plan);
    let mut nr_since = 0;
    let mut result = Ok(());
    for piece in plan.flat_map(pieces) {
        // Several single sub-pages between two calls of `relax`: one may cost as much as
        // clearing a sub-page.
        if nr_since + piece.count > CHUNK_FRAMES {
            machine.relax();
            nr_since = 0;
        }
        nr_since += piece.count;
        result = work(piece);
        if result.is_err() {
            break;
        }
        if piece.is_streaming {
            near.prefetch(machine, to, piece.count);
        }
    }
    stream::done();
    result
}

/// Cuts a run into pieces. A backward run becomes single sub-pages, since a piece is
/// always written forward.
fn pieces(run: Run) -> impl Iterator<Item = Run> {
    let step = match (run.is_backward, run.is_streaming) {
        (true, _) => 1,
        (false, true) => STREAMED_FRAMES,
        (false, false) => CHUNK_FRAMES,
    };
    (0..run.count.div_ceil(step)).map(move |i| {
        let offset = if run.is_backward { run.count - 1 - i } else { i * step };
        Run { start: run.start + offset, count: step.min(run.count - offset), ..run }
    })
}

/// Bits that the order for one size takes in `Vm::clear_orders`: 0 is not known,
/// else the place in [`ClearOrder::ALL`] + 1.
const BITS: u32 = 3;
const _: () = assert!(BITS * (Order::MAX.0 as u32 + 1) <= u64::BITS && ClearOrder::ALL.len() < 1 << BITS);

impl<M: Machine> Base<M> {
    /// The order in which a page of 2^order frames is cleared or copied: the
    /// tunable's, else the calibrated one, else the usual one.
    pub fn clear_order(&self, order: Order) -> ClearOrder {
        if let Some(how) = self.tunables.clear_order {
            return how;
        }
        let known = self.clear_orders.get() >> (BITS * u32::from(order.0.min(Order::MAX.0))) & ((1 << BITS) - 1);
        let known = (known as usize).checked_sub(1).and_then(|i| ClearOrder::ALL.get(i));
        known.copied().unwrap_or(policy::clear::usual(order))
    }

    /// The ways in which large pages are zeroed.
    pub(crate) fn clear_by(&self) -> By {
        let measured = || BatchPlans::from_word(self.batch_plans[class_of(CHUNK_FRAMES)].get()).of_large();
        let (near, far) = self.tunables.zeroing.map_or_else(measured, |way| (way, way));
        By { ways: self.ways, near, far }
    }

    /// Sets the best ways of zeroing in `table`. Single frames are zeroed for the write density that
    /// each CPU measures.
    pub fn set_zeroing(&self, table: &ClearTable) {
        for (word, nr_frames) in self.batch_plans.iter().zip(BATCHES) {
            word.set(table.batch(nr_frames).map_or(0, BatchPlans::to_word));
        }
    }

    /// Sets the best orders of clearing large pages in `table`.
    pub fn set_clear_orders(&self, table: &ClearTable) {
        let word = |order: u8| {
            let best = table.best(Order(order))?;
            let place = ClearOrder::ALL.iter().position(|how| *how == best)?;
            Some((place as u64 + 1) << (BITS * u32::from(order)))
        };
        self.clear_orders.set((0..=Order::MAX.0).filter_map(word).fold(0, |all, one| all | one));
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod zero_tests;
