//! Which order of clearing serves best here: a measurement of a few milliseconds.
//!
//! What is timed is a clear and what follows it in a program: loads from the
//! target and the sub-pages after it, each waiting for the one before. Clearing
//! alone would always be won by whoever streams past the caches. A program that
//! goes on to write the whole page at once is served best by `forward`, and that
//! cannot be known at its first touch.

use super::{ClearOrder, Scratch, WARM_RADIUS};
use crate::addr::{Order, PAGE_SIZE, Pfn};
use crate::machine::Machine;
use crate::mem;
use crate::sync::Word;

const NR_ORDERS: usize = ClearOrder::ALL.len();
/// Sizes that are measured, up to 2 MiB; a larger page would take too long and
/// is all far part in any case.
const NR_SIZES: usize = Order::PMD.0 as usize + 1;
/// Samples of each order and size: enough for a median that one interrupt does
/// not move.
const NR_SAMPLES: usize = 5;
/// An order has to save one part in so many to be preferred to one before it in
/// [`ClearOrder::ALL`]: differences below are noise, and noise should not choose.
const LEAST_SAVED: u64 = 20;
const LINE_BYTES: usize = 64;

/// Nanoseconds for each order and size of page; a value, to be kept or shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClearTable {
    ns: [Option<[u64; NR_ORDERS]>; NR_SIZES],
}

impl ClearTable {
    /// Nanoseconds to clear a page of 2^order frames and load from it, for each of
    /// [`ClearOrder::ALL`]; what was not measured has none. Sizes above 2 MiB are
    /// taken to be like 2 MiB.
    pub fn ns(&self, order: Order) -> Option<[u64; NR_ORDERS]> {
        self.ns[usize::from(order.0).min(NR_SIZES - 1)]
    }

    /// The order that serves pages of this size best; of a size that was not
    /// measured, what serves the largest that was.
    pub fn best(&self, order: Order) -> Option<ClearOrder> {
        let ns = (0..=order.0.min(Order::PMD.0)).rev().find_map(|size| self.ns(Order(size)))?;
        let mut best = 0;
        for i in 1..NR_ORDERS {
            if ns[i] + ns[best] / LEAST_SAVED < ns[best] {
                best = i;
            }
        }
        Some(ClearOrder::ALL[best])
    }
}

/// Measures every order on pages of every size up to 2 MiB that `scratch` has
/// room for. The frames are zero afterwards where they were used. They should be several times what the caches hold: in less, every
/// page is warm before it is cleared, and stores past the caches look worse than
/// they are. Called with nothing held.
pub fn calibrate<M: Machine>(scratch: &mut Scratch<'_, M>) -> ClearTable {
    let mut table = ClearTable::default();
    let nr_frames = scratch.range().nr_frames;
    let mut walk = Walk { scratch, next: 0 };
    for size in 1..NR_SIZES {
        let order = Order(size as u8);
        if order.nr_pages() <= nr_frames {
            table.ns[size] = Some(measured(&mut walk, order));
        }
    }
    table
}

fn measured<M: Machine>(walk: &mut Walk<'_, '_, M>, order: Order) -> [u64; NR_ORDERS] {
    let mut samples = [[0; NR_SAMPLES]; NR_ORDERS];
    // The orders in turn, so that the machine's moods hit all of them alike.
    for sample in 0..NR_SAMPLES {
        for (how, samples) in ClearOrder::ALL.into_iter().zip(&mut samples) {
            let (at_start, in_middle) = (0, order.nr_pages() / 2);
            samples[sample] = walk.timed(order, at_start, how) + walk.timed(order, in_middle, how);
        }
    }
    samples.map(|mut samples| {
        samples.sort_unstable();
        samples[NR_SAMPLES / 2]
    })
}

/// Goes round the scratch frames, so that each page was last touched as long ago
/// as there are others.
struct Walk<'s, 'm, M: Machine> {
    scratch: &'s mut Scratch<'m, M>,
    next: u64,
}

impl<M: Machine> Walk<'_, '_, M> {
    /// Index of the next 2^order frames; there are as many.
    fn step(&mut self, order: Order) -> u64 {
        if self.next + order.nr_pages() > self.scratch.range().nr_frames {
            self.next = 0;
        }
        let at = self.next;
        self.next += order.nr_pages();
        at
    }

    fn timed(&mut self, order: Order, target: u64, how: ClearOrder) -> u64 {
        let (at, machine) = (self.step(order), self.scratch.machine());
        let begun = machine.now_ns();
        self.scratch.clear(at, order, Some(target), how);
        let first = u64::from(self.scratch.range().first.0) + at;
        let mut carried = 0;
        for index in target..(target + WARM_RADIUS + 1).min(order.nr_pages()) {
            for line in (0..PAGE_SIZE as usize).step_by(LINE_BYTES) {
                // What was loaded is zero, which the CPU has to wait for to know.
                let word: &Word = mem::view(machine, Pfn((first + index) as u32), line + carried);
                carried = word.get() as usize & (LINE_BYTES - 1);
            }
        }
        machine.now_ns().saturating_sub(begun)
    }
}

#[cfg(test)]
impl ClearTable {
    /// With these nanoseconds for one size.
    pub(super) fn with(mut self, order: Order, ns: [u64; NR_ORDERS]) -> ClearTable {
        self.ns[usize::from(order.0)] = Some(ns);
        self
    }
}
