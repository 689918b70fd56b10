//! Resident counts of an address space: a line for each CPU that faults in it.
//!
//! The lines of the first CPUs are in the frame of the space. Each further 64 CPUs share a frame of
//! lines, which is added when one of them has been through the slow half of a fault. Until then,
//! and while memory is short, such a CPU counts by read-modify-writes in a shared line. So a space
//! needs no adjacent frames, whatever the number of CPUs, and none for CPUs that never run it.
//!
//! Locks on entry: none.

use super::{AddressSpace, RSS_OFFSET, SpaceData};
use crate::account::rss::{Rss, RssLine, RssPages};
use crate::addr::{OptPfn, PAGE_SIZE, Pfn};
use crate::frame::{Fill, FrameKind, MetaUse};
use crate::machine::{CpuId, MAX_CPUS, Machine, Tick};
use crate::mem::{self, FrameArray};
use crate::sync::{Ordering, Word};

/// CPUs whose lines are in the frame of the space.
const NR_INLINE: usize = (PAGE_SIZE as usize - RSS_OFFSET) / size_of::<RssLine>();
/// Lines in a frame.
const NR_IN_FRAME: usize = PAGE_SIZE as usize / size_of::<RssLine>();
/// Frames that the CPUs may need.
const NR_FRAMES: usize = (MAX_CPUS - NR_INLINE).div_ceil(NR_IN_FRAME);

/// Where the lines of further CPUs are. Read by their faults.
#[repr(C, align(64))]
pub(crate) struct RssFrames {
    /// Each an [`OptPfn`].
    words: [Word; NR_FRAMES],
}
const _: () = assert!(size_of::<RssFrames>() == 64);

impl SpaceData {
    /// The frames of lines that exist.
    pub(super) fn rss_frames(&self) -> impl Iterator<Item = Pfn> {
        self.rss_frames.words.iter().filter_map(|word| OptPfn::from_word(word.load(Ordering::Acquire)).get())
    }
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    /// The lines in the frame of the space.
    pub(super) fn inline_lines(machine: &M, frame: Pfn) -> FrameArray<RssLine> {
        FrameArray::over(machine, frame, RSS_OFFSET, NR_INLINE)
    }

    /// The line in which `cpu` counts now.
    #[inline(always)]
    pub(crate) fn rss_line(&self, cpu: CpuId) -> &RssLine {
        let i = usize::from(cpu.0);
        self.rss.get(i).unwrap_or_else(|| self.far_line(i - NR_INLINE))
    }

    #[inline(never)]
    fn far_line(&self, i: usize) -> &RssLine {
        match OptPfn::from_word(self.data.rss_frames.words[i / NR_IN_FRAME].load(Ordering::Acquire)).get() {
            Some(frame) => mem::view(&self.vm.machine, frame, i % NR_IN_FRAME * size_of::<RssLine>()),
            None => &self.data.rss_shared,
        }
    }

    /// Adds the frame of lines that this CPU lacks, if one is free. Called with nothing held;
    /// afterwards the caller may run on another CPU.
    pub(crate) fn add_rss_frame(&self) {
        let (vm, id) = (self.vm, self.vm.machine.this_cpu());
        let Some(i) = usize::from(id.0).checked_sub(NR_INLINE) else { return };
        let word = &self.data.rss_frames.words[i / NR_IN_FRAME];
        if word.load(Ordering::Relaxed) != OptPfn::NONE.to_word() {
            return;
        }
        // Optional, so it must not delay a last-resort allocation (I28).
        let Some(held) = vm.hold_unless_last_resort() else { return };
        let Ok(frame) = vm.source().frame(Fill::Fixed) else { return held.in_vain() };
        vm.frames.desc(frame).assign(FrameKind::Meta, 0, u64::from(self.frame.0), MetaUse::Rss as u64);
        let [none, some] = [OptPfn::NONE, OptPfn::some(frame)].map(OptPfn::to_word);
        if word.compare_exchange(none, some, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            vm.give_back(frame, Fill::Fixed);
        }
    }

    /// Charges on the calling CPU; for operations.
    pub(crate) fn charge(&self, what: Rss, n: i64) {
        self.rss_line(self.vm.machine.this_cpu()).add(what, n as u64);
    }

    /// Resident pages. Exact at rest, never below zero.
    pub fn rss_pages(&self) -> RssPages {
        self.vm.call_anywhere();
        let mut sums = [0u64; 7];
        let mut add = |line: &RssLine| {
            self.vm.machine.tick(Tick::Step);
            sums.iter_mut().zip(&line.counts).for_each(|(sum, word)| *sum = sum.wrapping_add(word.get()));
        };
        self.rss.iter().take(self.vm.machine.nr_cpus()).for_each(&mut add);
        for frame in self.data.rss_frames() {
            let lines: &[RssLine; NR_IN_FRAME] = mem::view(&self.vm.machine, frame, 0);
            lines.iter().for_each(&mut add);
        }
        add(&self.data.rss_shared);
        sums[Rss::Anon as usize] = sums[Rss::Anon as usize].wrapping_add(self.data.global.rss_anon.get());
        let at_rest = |what: Rss| (sums[what as usize] as i64).max(0) as u64;
        RssPages {
            anon: at_rest(Rss::Anon),
            shmem: at_rest(Rss::Shmem),
            tables: at_rest(Rss::Tables),
            minor_faults: at_rest(Rss::MinorFaults),
            anon_huge: at_rest(Rss::Huge),
            swap: at_rest(Rss::Swap),
            major_faults: at_rest(Rss::MajorFaults),
        }
    }
}

#[cfg(test)]
#[path = "rss_tests.rs"]
mod tests;
