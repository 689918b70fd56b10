//! Creation of a [`Vm`]: checks the machine's frames, lays out the metadata, assembles the
//! components, and gives `Vm` the functions of its `Reclaim`. It is in the top layer because these
//! belong to `compact` and `shrink`; the type is in `space/vm.rs`.

use crate::addr::{BlockId, Pfn};
use crate::base::{Base, HugeWords, nr_mutexes};
use crate::frame::mem_sections::{frames_of, range_of};
use crate::frame::{Ages, BLOCK_WORDS, Class, Content, FrameKind, Frames, Memory, Pool, Reserve, Watch, word_base};
use crate::links::Links;
use crate::machine::{FrameRange, MAX_CPUS, Machine};
use crate::mem::LinearMap;
use crate::policy::share;
use crate::space::Vm;
use crate::space::vm::Reclaim;
use crate::swap::area::SwapArea;
use crate::sync::Word;
use crate::tunables::Tunables;
use crate::tunables::huge::HugeMode;
use layout::Layout;
use refusal::{check_linear, check_nodes, nr_blocks_of, nr_cpus_of, nr_usable, span_at_most, span_of, watermarks_of};

mod home_blocks;
mod layout;
mod refusal;

pub use refusal::NewVmError;

impl<M: Machine> Vm<M> {
    /// Takes over the machine's frames. Lays the metadata out in the first range
    /// that has room for it: 32 bytes a frame, 384 bytes per 2 MiB, some lines per CPU, 16 bytes a
    /// slot of the swap area.
    ///
    /// # Errors
    ///
    /// See [`NewVmError`]. No frame was touched then, and [`Machine::begin`] not called.
    pub fn new(mut machine: M, tunables: Tunables) -> Result<Vm<M>, NewVmError> {
        let nr_cpus = nr_cpus_of(&machine)?;
        let mode = if tunables.thp_off { HugeMode::Off } else { HugeMode::Knobs };
        let huge = HugeWords::new(&tunables.thp, mode).map_err(NewVmError::BadKnobs)?;
        let nr_frames = span_of(machine.frames())?.max(span_at_most(&machine));
        check_nodes(&machine)?;
        let nr_of = layout::Lengths {
            cpus: nr_cpus,
            swap_slots: machine.nr_swap_slots() as usize,
            hugetlb_mutexes: nr_mutexes(&tunables, nr_cpus),
        };
        let layout = Layout::of(machine.frames(), nr_frames, nr_of)?;
        let nr_usable = nr_usable(machine.frames(), &layout.meta);
        let marks = watermarks_of(&tunables, nr_usable)?;
        check_linear(&machine)?;
        // All checks are done; from here on frames are written.
        let content = Content::zero_if(machine.begin());
        if content == Content::Unknown {
            layout.zero_metadata(&machine);
        }
        let (descs, blocks) = layout.sections(&machine, content);
        let deferred = layout.deferred(&descs);
        let (reserve, pressure) = Reserve::new(if tunables.keep_min { marks.min_pages } else { 0 });
        let frames = Frames {
            nr_cluster: share::cluster(nr_blocks_of(machine.frames()), nr_cpus as u64),
            descs,
            blocks,
            map: LinearMap::of(&machine),
            zero: layout.zero(),
            huge_zero: Word::new(0),
            marked_cpus: [const { Word::new(0) }; MAX_CPUS / 64],
            counted: [const { Word::new(0) }; MAX_CPUS / 64],
            next_robbed: Word::new(0),
            nr_undone: Word::new(0),
            next_run: Word::new(0),
            nr_emptied: Word::new(0),
            turns: Word::new(0),
            nr_turns_over: Word::new(0),
            freeze: Word::new(0),
            is_low: Word::new(0),
            pools: [const { Pool::new() }; 2],
            gathering: Word::new(0),
            watch: Watch::new(&marks),
            reserve,
            ages: Ages::new(),
            deferred,
            leading: Word::new(0),
            resizes: Word::new(0),
            emptying: Word::new(0),
            #[cfg(any(test, feature = "hooks"))]
            injection: crate::frame::Injection::off(),
        };
        let cpus = layout.cpus(&machine);
        frames.init(machine.frames(), content, &layout.meta);
        let nr_there = nr_usable - frames.deferred.nr_pages();
        debug_assert_eq!(nr_there, frames.nr_free_in_blocks(), "what watermarks are a share of");
        let nr_total_pages = nr_usable;
        while frames.set_aside(&pressure, u64::MAX) {}
        frames.look_at_all();
        frames.deal_out(&machine, &cpus);
        let hugetlb_mutexes = layout.hugetlb_mutexes(&machine);
        let swap = SwapArea::new(layout.swap_slots(&machine));
        let base = Base::new(machine, cpus, hugetlb_mutexes, swap, tunables, huge);
        Ok(Vm::over(
            Links::new(Memory::new(base, frames, nr_total_pages)),
            Reclaim {
                shrink: |vm, nr_blocks, nr_frames, shortage| match vm.drop_clean_until(nr_blocks, nr_frames, shortage) {
                    0 => vm.shrink_until(nr_blocks, nr_frames),
                    nr_freed => nr_freed,
                },
                write_dirty: Vm::write_dirty,
                compact: |vm, effort, budget| vm.compact_as_far_as(effort, budget).ok(),
                empty_one_more: Vm::empty_one_more,
                set_apart: Vm::set_apart,
                empty_gib: Vm::empty_gib,
                page_out: Vm::page_out,
                take_page: Vm::take_page_for_place,
                poison: Vm::poison_found,
            },
            pressure,
        ))
    }

    /// Ends the subsystem and returns the machine, which can serve another one.
    /// The borrow checker guarantees that no address space is in use.
    pub fn into_machine(self) -> M {
        self.into_links().into_memory().into_base().machine
    }
}

impl Frames {
    /// Frees what is in the ranges and not metadata; the rest is reserved. Of a section that is
    /// all memory, and zero, nothing is written or read.
    fn init(&self, ranges: &[FrameRange], content: Content, meta: &FrameRange) {
        let mut from = 0;
        while let Some(section) = self.descs.next_piece(from) {
            from = section + 1;
            let (first, end) = frames_of(section);
            let is_all_in = |r: &FrameRange| u64::from(r.first.0) <= first && end <= r.end();
            let has_other = first == 0 || (u64::from(meta.first.0) < end && first < meta.end());
            if content == Content::Unknown || has_other || !ranges.iter().any(is_all_in) {
                range_of(&self.blocks.data, section).iter().for_each(|b| self.init_block(b, ranges, content, meta));
            }
        }
        self.desc(self.zero).assign(FrameKind::Zero, 0, 0, 0);
    }

    fn init_block(&self, b: BlockId, ranges: &[FrameRange], content: Content, meta: &FrameRange) {
        let usable = |frame: u64| ranges.iter().any(|r| r.holds(frame)) && !meta.holds(frame);
        for w in 0..BLOCK_WORDS {
            let base = word_base(b, w);
            let mut mask = free_mask(ranges, meta, base, &usable);
            if base == 0 {
                // 0 means "none" where a frame is named in a word.
                mask &= !1;
            }
            self.blocks.at(b).init(w, !mask, content);
            if mask != !0 {
                // It cannot be emptied any more.
                self.blocks.at(b).mark(Class::Fixed);
            }
            for i in (0..64).filter(|i| mask & 1 << i == 0 && base + i < self.descs.len() as u64) {
                self.desc(Pfn((base + i) as u32)).assign(FrameKind::Reserved, 0, 0, 0);
            }
        }
        self.blocks.at(b).tell_of_init();
    }
}

/// Which of the 64 frames from `base` are usable. Whole words are the rule, so
/// their ends are looked at first.
fn free_mask(ranges: &[FrameRange], meta: &FrameRange, base: u64, usable: &dyn Fn(u64) -> bool) -> u64 {
    let inside = |r: &FrameRange| u64::from(r.first.0) <= base && base + 64 <= r.end();
    let clear = meta.end() <= base || base + 64 <= u64::from(meta.first.0);
    if clear && ranges.iter().any(inside) {
        return !0;
    }
    (0..64).filter(|i| usable(base + i)).fold(0, |mask, i| mask | 1 << i)
}

#[cfg(test)]
mod migration_tests;
#[cfg(test)]
mod tests;
