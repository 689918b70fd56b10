//! A pager swaps pages out while processes live, and memory fails now and then.
//!
//! A frame that has failed is never used again, and its block never a huge page: so few fail.

use super::process::Process;
use super::{Done, Mix};
use crate::random::Random;
use softfault::Vm;
use softfault_host::Hosted;

/// In so many of 1,000 turns the pager tries some page.
const PAGER_PERMILLE: u64 = 100;
/// In so many of 1,000 turns memory fails, until enough has.
const FAILURE_PERMILLE: u64 = 20;
/// One frame in so many blocks fails in all, and two at least.
const BLOCKS_PER_FAILURE: u32 = 128;

/// Pages, private ones and those of objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Private pages that were swapped out.
    pub nr_private_out: u64,
    /// Pages of objects that were.
    pub nr_object_out: u64,
    /// Private pages whose memory failed.
    pub nr_private_failed: u64,
    /// Pages of objects whose memory did.
    pub nr_object_failed: u64,
}

impl Counts {
    /// Events that should have happened, and have not.
    pub(super) fn missing(&self, mix: Mix) -> Done {
        let objects = [self.nr_object_out, self.nr_object_failed];
        let is_missing = self.nr_private_out == 0 || mix.objects_permille > 0 && objects.contains(&0);
        if is_missing {
            Err(format!("the pager, or failing memory, has reached too few pages: {self:?}"))
        } else {
            Ok(())
        }
    }
}

pub(super) struct Trouble {
    /// Its own, so that what processes do does not depend on what is refused here.
    random: Random,
    counts: Counts,
    nr_failures_left: u32,
}

impl Trouble {
    pub(super) fn new(seed: u64, nr_blocks: u32) -> Trouble {
        let nr_failures_left = (nr_blocks / BLOCKS_PER_FAILURE).max(2);
        Trouble { random: Random::new(seed ^ 0x7075_6b65), counts: Counts::default(), nr_failures_left }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Between two turns of the processes. Where there are objects, their pages fail first.
    pub(super) fn turn<'a, 'vm: 'a>(
        &mut self,
        vm: &Vm<Hosted>,
        processes: impl Iterator<Item = &'a Process<'vm>>,
        has_objects: bool,
    ) {
        let does_swap = self.random.below(1000) < PAGER_PERMILLE;
        let does_fail = self.nr_failures_left > 0 && self.random.below(1000) < FAILURE_PERMILLE;
        if !does_swap && !does_fail {
            return;
        }
        let processes: Vec<_> = processes.collect();
        if processes.is_empty() {
            return;
        }
        let process = processes[self.random.below(processes.len() as u64) as usize];
        let Some((pfn, is_of_object)) = process.any_frame(&mut self.random) else { return };
        let counts = &mut self.counts;
        let wants_object = has_objects && counts.nr_object_failed == 0;
        if does_fail && (is_of_object || !wants_object) && vm.poison_frame(pfn).is_ok() {
            self.nr_failures_left -= 1;
            *(if is_of_object { &mut counts.nr_object_failed } else { &mut counts.nr_private_failed }) += 1;
        } else if does_swap && vm.swap_out_frame(pfn).is_ok() {
            *(if is_of_object { &mut counts.nr_object_out } else { &mut counts.nr_private_out }) += 1;
        }
    }
}
