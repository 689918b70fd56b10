//! The pools of huge pages: `/sys/kernel/mm/hugepages`, and the two numbers of the default size in `/proc/sys/vm`, with
//! Linux's names, permissions and errors. The numbers are the subsystem's; nothing is kept here.
//!
//! In `/proc/sys/vm` `nr_hugepages` is the size that was set, in `/sys` the size with surplus pages, as on Linux.

use super::fixed::{Fixed, What, default_pool, dir, pool, stat};
use super::setting::PoolKnob;
use crate::linux::errno::{self, Errno};
use crate::linux::number;
use crate::port::mm;
use softfault::{HugetlbError, Order};

fn set_nr(order: Order, nr: u64) -> Result<(), HugetlbError> {
    mm::vm().set_nr_hugepages(order, nr).map(drop)
}

fn set_overcommit(order: Order, nr: u64) -> Result<(), HugetlbError> {
    mm::vm().set_nr_overcommit_hugepages(order, nr)
}

static SIZE: PoolKnob = PoolKnob { get: |counts| counts.nr, set: set_nr };
static SET_SIZE: PoolKnob = PoolKnob { get: |counts| counts.nr - counts.surplus, set: set_nr };
static OVERCOMMIT: PoolKnob = PoolKnob { get: |counts| counts.overcommit, set: set_overcommit };

pub(super) const NR_HUGEPAGES: Fixed = default_pool("nr_hugepages", &SET_SIZE);
/// Linux takes pages from the nodes of the caller's memory policy: all are on the one node.
pub(super) const NR_HUGEPAGES_MEMPOLICY: Fixed = default_pool("nr_hugepages_mempolicy", &SET_SIZE);
pub(super) const NR_OVERCOMMIT_HUGEPAGES: Fixed = default_pool("nr_overcommit_hugepages", &OVERCOMMIT);

/// `hugepages-<n>kB/`.
const fn names(order: Order) -> [Fixed; 6] {
    [
        pool("nr_hugepages", order, &SIZE),
        pool("nr_hugepages_mempolicy", order, &SIZE),
        pool("nr_overcommit_hugepages", order, &OVERCOMMIT),
        stat("free_hugepages", order, |order| mm::huge_counts(order).free),
        stat("resv_hugepages", order, |order| mm::huge_counts(order).reserved),
        stat("surplus_hugepages", order, |order| mm::huge_counts(order).surplus),
    ]
}

static OF_SMALLEST: [Fixed; 6] = names(Order::PMD);

/// The knob `demote`, for pages of 1 GiB only: so many of them become pages of 2 MiB, the only smaller size.
static DEMOTE: PoolKnob = PoolKnob { get: |_| 0, set: |_, nr| mm::vm().demote_hugepages(nr).map(drop) };

const DEMOTE_FILES: [Fixed; 2] = [
    Fixed { name: "demote", what: What::Action(Order::PUD, &DEMOTE) },
    Fixed { name: "demote_size", what: What::Choice("2048kB\n", set_demote_size) },
];

/// A size, as an option has it: the one that there is.
fn set_demote_size(text: &[u8]) -> errno::Result<()> {
    let is_known = number::size(text).and_then(mm::huge_order_of) == Some(Order::PMD);
    if is_known { Ok(()) } else { Err(Errno::EINVAL) }
}

static OF_LARGEST: [Fixed; 8] = {
    let [nr, of_policy, overcommit, free, reserved, surplus] = names(Order::PUD);
    let [demote, demote_size] = DEMOTE_FILES;
    [nr, of_policy, overcommit, free, reserved, surplus, demote, demote_size]
};

/// `/sys/kernel/mm/hugepages/`.
pub(super) static NAMES: [Fixed; 2] = [dir("hugepages-2048kB", &OF_SMALLEST), dir("hugepages-1048576kB", &OF_LARGEST)];

/// `hugepages-<n>kB/` of the one node, in which there are fewer.
const fn names_of_node(order: Order) -> [Fixed; 3] {
    [
        pool("nr_hugepages", order, &SIZE),
        stat("free_hugepages", order, |order| mm::huge_counts(order).free),
        stat("surplus_hugepages", order, |order| mm::huge_counts(order).surplus),
    ]
}

static OF_SMALLEST_OF_NODE: [Fixed; 3] = names_of_node(Order::PMD);

static OF_LARGEST_OF_NODE: [Fixed; 5] = {
    let [nr, free, surplus] = names_of_node(Order::PUD);
    let [demote, demote_size] = DEMOTE_FILES;
    [nr, free, surplus, demote, demote_size]
};

/// `/sys/devices/system/node/node0/hugepages/`.
pub(super) static OF_NODE: [Fixed; 2] =
    [dir("hugepages-2048kB", &OF_SMALLEST_OF_NODE), dir("hugepages-1048576kB", &OF_LARGEST_OF_NODE)];
