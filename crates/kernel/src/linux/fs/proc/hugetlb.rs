//! The pools of huge pages: `/sys/kernel/mm/hugepages`, and the two numbers of the default size in `/proc/sys/vm`, with
//! Linux's names, permissions and errors. The numbers are the subsystem's; nothing is kept here.
//!
//! In `/proc/sys/vm` `nr_hugepages` is the size that was set, in `/sys` the size with surplus pages, as on Linux.

use super::fixed::{Fixed, What, dir};
use super::huge::stat;
use crate::linux::errno::{self, Errno};
use crate::port::mm;
use softfault::{HugetlbCounts, HugetlbError, Order};

/// A number of a pool that can be set.
pub struct PoolKnob {
    order: Order,
    get: fn(HugetlbCounts) -> u64,
    set: fn(Order, u64) -> Result<(), HugetlbError>,
}

impl PoolKnob {
    /// Its value.
    pub fn get(&self) -> u64 {
        (self.get)(mm::huge_counts(self.order))
    }
    /// Sets it to the number that `text` is. A pool gets as many pages as there is memory for.
    pub fn set(&self, text: &[u8]) -> errno::Result<()> {
        let text = core::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
        let nr = text.trim().parse().map_err(|_| Errno::EINVAL)?;
        (self.set)(self.order, nr).map_err(|error| error.errno())
    }
}

fn set_nr(order: Order, nr: u64) -> Result<(), HugetlbError> {
    mm::vm().set_nr_hugepages(order, nr).map(drop)
}

fn set_overcommit(order: Order, nr: u64) -> Result<(), HugetlbError> {
    mm::vm().set_nr_overcommit_hugepages(order, nr)
}

const fn knob(name: &'static str, knob: &'static PoolKnob) -> Fixed {
    Fixed { name, what: What::Pool(knob) }
}

static SET_SIZE: PoolKnob = PoolKnob { order: Order::PMD, get: |counts| counts.nr - counts.surplus, set: set_nr };
pub(super) const NR_HUGEPAGES: Fixed = knob("nr_hugepages", &SET_SIZE);
/// Linux takes pages from the nodes of the caller's memory policy: all are on the one node.
pub(super) const NR_HUGEPAGES_MEMPOLICY: Fixed = knob("nr_hugepages_mempolicy", &SET_SIZE);
pub(super) const NR_OVERCOMMIT_HUGEPAGES: Fixed = knob("nr_overcommit_hugepages", &SIZES[0].overcommit);

/// What can be set of each pool.
struct Size {
    nr: PoolKnob,
    overcommit: PoolKnob,
}

const fn size(order: Order) -> Size {
    Size {
        nr: PoolKnob { order, get: |counts| counts.nr, set: set_nr },
        overcommit: PoolKnob { order, get: |counts| counts.overcommit, set: set_overcommit },
    }
}

static SIZES: [Size; 2] = [size(Order::PMD), size(Order::PUD)];

/// `hugepages-<n>kB/`.
const fn names(order: Order, size: &'static Size) -> [Fixed; 6] {
    [
        knob("nr_hugepages", &size.nr),
        knob("nr_hugepages_mempolicy", &size.nr),
        knob("nr_overcommit_hugepages", &size.overcommit),
        stat("free_hugepages", order, |order| mm::huge_counts(order).free),
        stat("resv_hugepages", order, |order| mm::huge_counts(order).reserved),
        stat("surplus_hugepages", order, |order| mm::huge_counts(order).surplus),
    ]
}

static OF_SMALLEST: [Fixed; 6] = names(Order::PMD, &SIZES[0]);

/// The knob `demote`, for pages of 1 GiB only: so many of them become pages of 2 MiB, the only smaller size.
static DEMOTE: PoolKnob =
    PoolKnob { order: Order::PUD, get: |_| 0, set: |_, nr| mm::vm().demote_hugepages(nr).map(drop) };

static OF_LARGEST: [Fixed; 8] = {
    let [nr, of_policy, overcommit, free, reserved, surplus] = names(Order::PUD, &SIZES[1]);
    let demote = Fixed { name: "demote", what: What::Order(&DEMOTE) };
    let demote_size = Fixed { name: "demote_size", what: What::Line("2048kB\n") };
    [nr, of_policy, overcommit, free, reserved, surplus, demote, demote_size]
};

/// `/sys/kernel/mm/hugepages/`.
pub(super) static NAMES: [Fixed; 2] = [dir("hugepages-2048kB", &OF_SMALLEST), dir("hugepages-1048576kB", &OF_LARGEST)];

/// `hugepages-<n>kB/` of the one node, in which there are fewer.
const fn names_of_node(order: Order, size: &'static Size) -> [Fixed; 3] {
    [
        knob("nr_hugepages", &size.nr),
        stat("free_hugepages", order, |order| mm::huge_counts(order).free),
        stat("surplus_hugepages", order, |order| mm::huge_counts(order).surplus),
    ]
}

static OF_SIZE_OF_NODE: [[Fixed; 3]; 2] = [names_of_node(Order::PMD, &SIZES[0]), names_of_node(Order::PUD, &SIZES[1])];

/// `/sys/devices/system/node/node0/hugepages/`.
pub(super) static OF_NODE: [Fixed; 2] =
    [dir("hugepages-2048kB", &OF_SIZE_OF_NODE[0]), dir("hugepages-1048576kB", &OF_SIZE_OF_NODE[1])];
