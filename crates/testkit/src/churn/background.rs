//! Steps that change no page's content, and may be refused: collapses, compaction, looks
//! without a lock, other knobs. Also memory that fails.

use super::{BASE, HUGE_PAGES, NR_STRETCHES, Root, Worker};
use crate::hosted;
use crate::op::{KnobBits, PAGE};
use softfault::policy::compact::CompactBudget;
use softfault::policy::huge::Defrag;
use softfault::table::format::Format;
use softfault::{Advice, Order, Pfn};
use softfault_host::Running;
use std::sync::atomic::Ordering::Relaxed;

impl<F: Format> Worker<'_, '_, F> {
    /// Asks for a huge page anywhere, or lets the daemon look; it may refuse.
    pub(super) fn collapse(&mut self, running: &Running<'_, F>) {
        let at = BASE + self.random.below(NR_STRETCHES) * HUGE_PAGES * PAGE;
        if self.random.chance(70) {
            self.try_collapse(running, at);
        } else {
            running.space().khugepaged_scan(at, 512 * (1 + self.random.below(4)));
        }
    }

    pub(super) fn try_collapse(&self, running: &Running<'_, F>, at: u64) {
        let _ = running.space().madvise(at, HUGE_PAGES * PAGE, Advice::Collapse);
    }

    /// Looks that take no lock and whose answer nobody knows.
    pub(super) fn walk_about(running: &Running<'_, F>) {
        let _ = running.space().mincore(BASE, NR_STRETCHES * HUGE_PAGES * PAGE, &mut |_, _| {});
        let _ = running.space().rss_pages();
    }

    /// Empties a block, if one can be: pages of all spaces move.
    pub(super) fn compact(&mut self) {
        let vm = self.world.vm;
        let _ = vm.compact_step(&CompactBudget::BACKGROUND);
        for _ in 0..self.random.below(100) {
            let _ = vm.migrate_frame(Pfn(1 + self.random.below(vm.nr_frames() - 1) as u32));
        }
    }

    /// The memory of a page fails, or of what has its frame by now. Some refuse: a part of a huge page, a pinned one.
    pub(super) fn fail_one(&mut self, root: &Root<'_, F>) {
        for _ in 0..8 {
            let at = BASE + self.random.below(NR_STRETCHES * HUGE_PAGES) * PAGE;
            let there = root.space.translate_at_rest(at).filter(|there| there.order == Order::BASE);
            if let Some(Ok(nr_entries)) = there.map(|there| self.world.vm.poison_frame(there.pfn)) {
                self.world.nr_failed.fetch_add(nr_entries, Relaxed);
                break;
            }
        }
    }

    pub(super) fn turn_knobs(&mut self) {
        let enabled = self.random.pick(&[0, 0, 0, 0, 1, 2]);
        let bits = enabled | self.random.below(KnobBits::COUNT / 4) << 2;
        let defrag = self.random.pick(Defrag::ALL);
        let mut knobs = hosted::knobs(KnobBits(bits)).with_defrag(defrag);
        knobs.khugepaged.max_ptes_none = self.random.pick(&[511, 400, 255, 64]);
        let _ = self.world.vm.set_huge_knobs(&knobs);
    }
}
