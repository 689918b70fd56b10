//! Checks of the invariants of `docs/invariants.md` that can be checked at rest. Our tests run
//! [`Vm::check`] after every operation. The core itself never calls it.
//!
//! A port may run it in debug builds. It also finds errors of the port: a shootdown that returns
//! too early, or a foreign write to a frame, breaks an invariant.
//!
//! At rest means: no operation and no fault is in progress on any CPU. The checks take no section, and read the words of tables and
//! free frames; beside a CPU that clears or copies to one of them this would be a race, so the caller promises that there is none.
#![allow(unsafe_code)] // the promises are the caller's

use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{BlockId, Order, PageRange, Pfn, Rights, Vpn};
use crate::frame::mem_sections::frames_of;
use crate::frame::{Class, FrameKind};
use crate::machine::{CpuId, Machine};
use crate::space::AddressSpace;
use crate::space::Vm;
use crate::space::vma::{ObjectId, Vma, VmaFlags};
use crate::table::format::{Entry, Format, span_of};
use crate::table::take::{self, Next};
use core::ops::ControlFlow;

mod ages;
pub(crate) mod broken;
mod folios;
mod huge;
#[cfg(any(test, softfault_sync))]
mod in_test;
mod members;
mod pools;
mod swap;
mod zero;

pub use crate::space::tree::TreeFault;
pub use broken::{Broken, Counter};

impl<M: Machine> Vm<M> {
    /// Checks everything. `spaces` are all address spaces there are; `counts`
    /// has an element for each frame of `nr_frames` and for each slot of the swap area, any value. It is for tests and debug builds.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    ///
    /// # Safety
    ///
    /// At rest: until it returns no other thread calls a method of this `Vm`, of its spaces or of its objects, no program runs in
    /// one of the spaces, and none of its memory is stored to.
    pub unsafe fn check(&self, spaces: &[&AddressSpace<'_, M>], counts: &mut [u32]) -> Result<(), Broken> {
        if counts.len() < self.nr_frames() as usize + self.swap.nr_slots() as usize {
            return Err(Broken::BadCall("counts: should have an element per frame and per slot of the swap area"));
        }
        // Their frames have numbers of another machine (I63).
        if spaces.iter().any(|space| !core::ptr::eq(space.vm, self)) {
            return Err(Broken::BadCall("spaces: should be spaces of this Vm"));
        }
        self.call();
        counts.fill(0);
        self.check_sections()?;
        for space in spaces {
            space.check_tree()?;
            space.check_entries(counts)?;
            space.check_tables(counts)?;
            space.check_members()?;
            if !space.data.notify.is_at_rest() {
                return Err(Broken::LeftTelling(space.frame));
            }
            let (nr_refs, nr_listed) = self.family_counts(space.founder());
            let nr_members = spaces.iter().filter(|other| other.family == space.family).count() as u64;
            Counter::Members.check(nr_refs, nr_members)?;
            Counter::Members.check(nr_listed, nr_members)?;
        }
        self.count_swapped_pages(counts)?;
        self.check_pools(spaces)?;
        self.check_frames(counts)?;
        self.check_swap(counts)?;
        self.check_ages()?;
        self.check_summaries()?;
        Counter::Reserve.check(self.nr_reserve_pages(), self.frames.nr_in_reserve())?;
        self.check_objects(spaces, counts)?;
        self.check_zero()
    }

    /// I8.
    fn check_sections(&self) -> Result<(), Broken> {
        let ids = (0..self.machine.nr_cpus()).map(|id| CpuId(id as u16));
        match ids.into_iter().find(|id| !self.cpu(*id).slot.get().is_multiple_of(2)) {
            Some(id) => Err(Broken::InSection(id)),
            None => Ok(()),
        }
    }

    /// I12, I14, I23, I46, I52: every frame is free or used, never both; counts are true.
    fn check_frames(&self, counts: &[u32]) -> Result<(), Broken> {
        let mut nr_pins = 0;
        for pfn in self.frames.numbers() {
            let p = pfn.0;
            let state = self.frames.desc(pfn).state();
            nr_pins += state.pins();
            if let Some(result) = self.check_in_folio(pfn, counts) {
                result?;
                continue;
            }
            if self.frames.is_tail(pfn) {
                self.check_tail(pfn)?;
                continue;
            }
            if self.is_free_in_pool(pfn) {
                self.check_free_in_pool(pfn)?;
                continue;
            }
            let free = self.is_free(pfn);
            let used = !matches!(state.kind(), FrameKind::Free);
            if free && state.pins() > 0 {
                return Err(Broken::FreePinned(pfn));
            }
            if free && state.0 != 0 {
                return Err(Broken::FreeInUse(pfn));
            }
            if free == used {
                return Err(Broken::Lost(pfn));
            }
            if state.kind() == FrameKind::Anon && state.nr_maps() != huge::nr_small(counts[p as usize]) {
                return Err(Broken::WrongCount(pfn));
            }
            if state.kind() == FrameKind::Anon && state.pins() > 0 && state.nr_maps() > 1 {
                return Err(Broken::SharedPinned(pfn));
            }
            if state.kind() == FrameKind::Reserved && self.frames.is_lost_of_descs(pfn) {
                return Err(Broken::Descs(pfn));
            }
            // Of other classes the block says no more than that frames were taken for them.
            let is_fixed = matches!(state.kind(), FrameKind::Table | FrameKind::Meta);
            if is_fixed && self.frames.blocks.at(BlockId::of(pfn)).class() != Class::Fixed {
                return Err(Broken::Unmarked(pfn));
            }
            if state.kind() == FrameKind::Shared {
                let is_small = state.order() < Order::PMD && !self.frames.desc(pfn).is_foreign();
                if is_small && !self.frames.blocks.may_have_files(BlockId::of(pfn)) {
                    return Err(Broken::Unmarked(pfn));
                }
                self.check_tails_of(pfn)?;
                if !state.is_at_rest() && !self.is_being_filled(pfn) && !self.may_be_under_write(pfn) {
                    return Err(Broken::LeftLocked(pfn));
                }
            }
            // A page without entries and pins, or a table that no entry names: leaked.
            let nr_named = match state.kind() {
                FrameKind::Anon => state.nr_maps() + state.pins(),
                FrameKind::Table => u64::from(counts[p as usize]),
                FrameKind::Swap => u64::from(self.is_in_its_slot(pfn)),
                _ => 1,
            };
            if nr_named == 0 {
                return Err(Broken::Lost(pfn));
            }
        }
        let stat = self.vmstat();
        let nr_held = stat.get(Event::PinAcquired).wrapping_sub(stat.get(Event::PinReleased));
        Counter::Pins.check(nr_held, nr_pins)
    }

    /// I40: searches skip no block that offers something. I41: block groups count their frames. I43:
    /// CPUs count theirs. I50, I51: descriptors and blocks that exist are found, and nobody has
    /// written the block that stands for holes.
    pub(crate) fn check_summaries(&self) -> Result<(), Broken> {
        let blocks = &self.frames.blocks;
        let told = |b: &BlockId| blocks.at(*b).is_told();
        if let Some(b) = blocks.names().iter().find(|b| !told(b)) {
            return Err(Broken::Untold(b.first_frame()));
        }
        if let Some(b) = self.frames.uncounted(&self.cpus) {
            return Err(Broken::Uncounted(b.first_frame()));
        }
        if let Some(section) = self.frames.wrong_section() {
            return Err(Broken::Section(Pfn(frames_of(section).0 as u32)));
        }
        if let Some(cpu) = self.wrong_home() {
            return Err(Broken::Home(cpu));
        }
        if let Some(pfn) = blocks.there().find_map(|b| self.frames.wrong_descs(b)) {
            return Err(Broken::Descs(pfn));
        }
        if !blocks.are_holes_unwritten() {
            return Err(Broken::HoleInUse);
        }
        Counter::Free.check(self.nr_free_as_counted(), self.frames.nr_free_in_blocks())
    }

    /// Whether the frame's bit is clear or it is in a frame cache.
    fn is_free(&self, pfn: Pfn) -> bool {
        let (word, bit) = (pfn.0 / 64 % 8, pfn.0 % 64);
        let in_block = self.frames.blocks.at(BlockId::of(pfn)).free_word(word as usize) & 1 << bit != 0;
        let base = u64::from(pfn.0) & !63;
        let in_cache = (0..self.machine.nr_cpus()).any(|id| {
            let cpu = self.cpu(CpuId(id as u16));
            cpu.frame_caches().iter().any(|g| g.base.get() == base && g.mask.get() & 1 << bit != 0)
        });
        in_block || in_cache
    }
}

impl<M: Machine> AddressSpace<'_, M> {
    /// I18, I29.
    fn check_tree(&self) -> Result<(), Broken> {
        let writer = &self.sole_writer();
        self.tree(writer).check_at_rest(&[]).map_err(Broken::Tree)?;
        let mut nr_pages = 0;
        let mut moving = None;
        let _ = self.tree(writer).for_each(Self::user_range(), &mut |vma| {
            nr_pages += vma.range.nr_pages();
            moving = moving.or(vma.is_moving().then_some(vma.range.start));
            ControlFlow::Continue(())
        });
        if let Some(start) = moving {
            return Err(Broken::LeftMoving(start.addr()));
        }
        Counter::MappedPages.check(self.nr_mapped_pages(), nr_pages)
    }

    /// I9, I13, I16 for each entry; counts mappings on the way. I21.
    fn check_entries(&self, counts: &mut [u32]) -> Result<(), Broken> {
        let mut result = Ok(());
        let (mut nr_anon, mut nr_shmem, mut nr_huge, mut nr_swapped) = (0, 0, 0, 0);
        let writer = &self.sole_writer();
        self.for_each_entry(writer, Self::user_range(), &mut |vpn, slot| {
            let vma = self.tree(writer).lookup(vpn).map(|f| f.vma);
            result = match slot.observe().entry {
                Entry::Leaf(leaf) if slot.level > 0 => {
                    let nr = span_of::<M::Format>(slot.level);
                    self.check_huge((vpn, slot.level), leaf, vma, counts).map(|what| match what {
                        Some(Rss::Huge) => nr_huge += nr,
                        Some(Rss::Anon) => nr_anon += nr,
                        Some(_) => nr_shmem += nr,
                        None => {}
                    })
                }
                Entry::Leaf(leaf) => {
                    let kind = self.vm.frames.head_desc(leaf.pfn).state().kind();
                    nr_anon += u64::from(kind == FrameKind::Anon);
                    nr_shmem += u64::from(kind == FrameKind::Shared);
                    counts[leaf.pfn.0 as usize] += 1;
                    self.check_leaf(vpn, vma, leaf.pfn, leaf.rights, kind).and_then(|()| match (kind, vma) {
                        (FrameKind::Shared, Some(vma)) => self.check_object_leaf(vpn, vma, leaf.pfn),
                        _ => Ok(()),
                    })
                }
                Entry::Guard if vma.is_some_and(|v| v.flags.contains(VmaFlags::MAYGUARD)) => Ok(()),
                Entry::Guard => Err(Broken::OutsideVma(vpn.addr())),
                Entry::Poison if vma.is_some_and(|v| self.may_be_lost(&v, vpn)) => Ok(()),
                Entry::Poison => Err(Broken::OutsideVma(vpn.addr())),
                Entry::Swap(of) if vma.is_some_and(|v| v.is_private() && !self.is_past_object(&v, vpn)) => {
                    nr_swapped += 1;
                    self.vm.count_slot(of, counts)
                }
                Entry::Swap(_) => Err(Broken::OutsideVma(vpn.addr())),
                _ => Err(Broken::LeftOwned(vpn.addr())),
            };
            if result.is_ok() { Next::GoOn } else { Next::Stop }
        });
        result?;
        let rss = self.rss_pages();
        Counter::Anon.check(rss.anon, nr_anon + nr_huge)?;
        Counter::AnonHuge.check(rss.anon_huge, nr_huge)?;
        Counter::Swap.check(rss.swap, nr_swapped)?;
        Counter::Shmem.check(rss.shmem, nr_shmem)
    }

    fn check_leaf(&self, vpn: Vpn, vma: Option<Vma>, pfn: Pfn, rights: Rights, kind: FrameKind) -> Result<(), Broken> {
        let Some(vma) = vma else { return Err(Broken::OutsideVma(vpn.addr())) };
        let allowed = vma.flags.rights();
        let readable = if allowed.is_empty() { allowed } else { allowed | Rights::READ };
        if !(rights - readable).is_empty() {
            return Err(Broken::TooManyRights(vpn.addr()));
        }
        let (state, of_head) = (self.vm.frames.desc(pfn).state(), self.vm.frames.head_desc(pfn).state());
        match kind {
            FrameKind::Anon if rights.contains(Rights::WRITE) && state.nr_maps() != 1 => {
                Err(Broken::SharedWritable(vpn.addr()))
            }
            FrameKind::Zero if rights.contains(Rights::WRITE) => Err(Broken::SharedWritable(vpn.addr())),
            FrameKind::Shared if vma.is_private() && rights.contains(Rights::WRITE) => {
                Err(Broken::SharedWritable(vpn.addr()))
            }
            // I56: stores to clean pages of files are noted first.
            FrameKind::Shared
                if vma.flags.contains(VmaFlags::TRACKED) && rights.contains(Rights::WRITE) && !of_head.is_dirty() =>
            {
                Err(Broken::CleanWritable(vpn.addr()))
            }
            // I54: a mapping of an object shows its pages, or copies of them.
            FrameKind::Zero if vma.object != ObjectId::NONE => Err(Broken::NotInObject(vpn.addr())),
            FrameKind::Anon if !vma.is_private() || self.is_past_object(&vma, vpn) => {
                Err(Broken::NotInObject(vpn.addr()))
            }
            FrameKind::Anon | FrameKind::Shared | FrameKind::Zero => Ok(()),
            _ => Err(Broken::BadFrame(pfn)),
        }
    }

    /// Whether the page may be lost. A place of a pool says so beyond the end, too: it has no claim (I59).
    fn may_be_lost(&self, vma: &Vma, vpn: Vpn) -> bool {
        vma.is_private() && (!self.is_past_object(vma, vpn) || self.is_private_of_pool(vma))
    }

    /// Whether the page lies beyond the end of the object that the VMA maps.
    pub(super) fn is_past_object(&self, vma: &Vma, vpn: Vpn) -> bool {
        vma.object != ObjectId::NONE && vma.pgoff_of(vpn) >= self.vm.object_nr_pages(vma.object)
    }

    /// I14: the object of the VMA has the frame at the page's place, and knows that it is mapped.
    fn check_object_leaf(&self, vpn: Vpn, vma: Vma, pfn: Pfn) -> Result<(), Broken> {
        let head = self.vm.frames.head_of_named(pfn);
        let desc = self.vm.frames.desc(head);
        if desc.is_foreign() {
            let is_its = self.vm.foreign_page(vma.object, vma.pgoff_of(vpn)).is_some_and(|frame| frame.pfn == pfn);
            return if is_its { Ok(()) } else { Err(Broken::NotInObject(vpn.addr())) };
        }
        let page = desc.index.get() + u64::from(pfn.0 - head.0);
        let is_its = (desc.owner.get(), page) == (vma.object.0, vma.pgoff_of(vpn));
        let is_there = is_its && desc.state().was_mapped() && self.vm.is_in_its_object(head);
        if is_there { Ok(()) } else { Err(Broken::NotInObject(vpn.addr())) }
    }

    /// I19: every table spans a page of some VMA; I21 for their number. Counts the
    /// entries that name each table.
    fn check_tables(&self, counts: &mut [u32]) -> Result<(), Broken> {
        let mut nr = 0;
        counts[self.root.0 as usize] += 1;
        self.check_table(self.root, M::Format::LEVELS - 1, Vpn(0), &mut nr, counts)?;
        Counter::Tables.check(self.rss_pages().tables, nr)
    }

    fn check_table(&self, table: Pfn, level: u8, base: Vpn, nr: &mut u64, counts: &mut [u32]) -> Result<(), Broken> {
        if level == 0 {
            return Ok(());
        }
        if level == 1 {
            *nr += self.check_twin(table, base, counts)?;
        }
        let mut below = Ok(());
        take::for_each_table(&self.vm.machine, table, level, base, &mut |child, span: PageRange| {
            *nr += 1;
            counts[child.0 as usize] += 1;
            let vma =
                self.tree(&self.sole_writer()).next(span.start).map(|f| f.vma).filter(|v| v.range.overlaps(&span));
            // I58: pages of a pool have entries, not tables.
            let is_of_use = |vma: &Vma| self.vm.nr_pages_per_page(vma) < span.nr_pages();
            below = if !vma.as_ref().is_some_and(is_of_use) {
                Err(Broken::UselessTable(span.start.addr()))
            } else if self.vm.frames.desc(child).state().kind() != FrameKind::Table {
                Err(Broken::BadFrame(child))
            } else {
                self.check_table(child, level - 1, span.start, nr, counts)
            };
            below.is_ok()
        });
        below
    }
}
