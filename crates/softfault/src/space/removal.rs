//! Removal of pages: the one path from a range to freed frames.
//!
//! Locks on entry: the writer lock, no section.

use super::AddressSpace;
use super::lock::Writer;
use super::tree::{Retired, Snapshot};
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{Pfn, SwapSlot, Vpn};
use crate::frame::{Claim, DescCursor, FrameKind, FreeBatch, NoClaim};
use crate::machine::{Flush, Machine};
use crate::notify::notice::Why;
use crate::space::Vm;
use crate::table::format::{Entry, Leaf};
use crate::table::pmd;
use crate::table::take::{self, Harvest, Met, Removal};
use core::ops::ControlFlow;

/// Frees what a removal gathers.
struct Sink<'a, M: Machine> {
    vm: &'a Vm<M>,
    batch: FreeBatch<'a, M>,
    /// Descriptors of frames that entries named, so their memory sections exist.
    descs: DescCursor<'a>,
    /// The count of emptied blocks when this began.
    nr_emptied: u64,
    nr_anon: u64,
    nr_huge: u64,
    nr_shmem: u64,
    nr_zero: u64,
    nr_tables: u64,
    nr_swapped: u64,
    /// Whether the places of a pool's private pages keep a claim to one.
    then: Claim,
}

impl<M: Machine> Sink<'_, M> {
    /// A page of a pool has no deposit. The object's slot owns its own.
    fn of_pool(&mut self, leaf: Leaf) -> Entry {
        let nr_pages = self.vm.pool_of_page(leaf.pfn).order().nr_pages();
        if self.vm.frames.desc(leaf.pfn).state().kind() != FrameKind::Anon {
            self.nr_shmem += nr_pages;
            self.vm.frames.note_removed(&leaf);
            return Entry::None;
        }
        self.nr_anon += nr_pages;
        if self.vm.drop_page_of_place(leaf.pfn, self.then) { Entry::None } else { Entry::Poison }
    }
}

impl<M: Machine> Vm<M> {
    /// Drops a private page of a pool, whose entry the caller owns. A place that keeps a claim has it to the page itself if the
    /// pool has no other: then others lose it. `false` if that cannot be, and the place has no claim.
    pub(crate) fn drop_page_of_place(&self, first: Pfn, then: Claim) -> bool {
        let drop = |then| self.drop_pool_page(first, then);
        match drop(then) {
            Ok(has_claim) => has_claim,
            Err(NoClaim) if (self.reclaim.take_page)(self, first) => drop(then).unwrap_or(false),
            Err(NoClaim) => {
                let dropped = drop(Claim::Nothing);
                debug_assert!(dropped.is_ok(), "no claim is asked for");
                false
            }
        }
    }
}

impl<M: Machine> Harvest for Sink<'_, M> {
    #[inline]
    fn leaf(&mut self, leaf: Leaf) {
        let desc = self.descs.at(leaf.pfn);
        match desc.state().kind() {
            FrameKind::Anon => {
                self.nr_anon += 1;
                if desc.map_drop() {
                    self.batch.add_described(leaf.pfn, desc);
                }
            }
            // The latter of a tail.
            FrameKind::Shared | FrameKind::Free => {
                self.nr_shmem += 1;
                // The object's slot owns the frame until the last entry is gone.
                self.vm.frames.note_removed(&leaf);
            }
            _ => self.nr_zero += 1,
        }
    }
    fn huge(&mut self, leaf: Leaf, table: Pfn, base: Vpn) -> Entry {
        let vm = self.vm;
        if vm.is_huge_zero(leaf.pfn) {
            self.nr_zero += 1;
        } else if vm.frames.is_of_pool(leaf.pfn) {
            return self.of_pool(leaf);
        } else {
            self.nr_huge += Vm::<M>::NR_SUB_FRAMES;
            vm.folio_map_drop(leaf.pfn, &mut self.batch);
        }
        if let Some(deposit) = pmd::withdraw(&vm.machine, &vm.frames, table, base) {
            self.table(deposit);
        }
        Entry::None
    }
    fn swapped(&mut self, slot: SwapSlot) {
        self.nr_swapped += 1;
        self.vm.swap_drop(slot);
    }
    fn table(&mut self, table: Pfn) {
        let twin = if self.vm.frames.is_level_1(table) { self.vm.frames.withdraw_twin(table) } else { None };
        for table in [Some(table), twin].into_iter().flatten() {
            self.nr_tables += 1;
            self.batch.add(table);
        }
    }
}

impl<'vm, M: Machine> AddressSpace<'vm, M> {
    fn sink(&self, then: Claim) -> Sink<'vm, M> {
        let batch = FreeBatch::new(self.vm);
        let nr_emptied = self.vm.nr_blocks_emptied();
        let descs = DescCursor::over(&self.vm.frames);
        Sink {
            vm: self.vm,
            batch,
            descs,
            nr_emptied,
            nr_anon: 0,
            nr_huge: 0,
            nr_shmem: 0,
            nr_zero: 0,
            nr_tables: 0,
            nr_swapped: 0,
            then,
        }
    }

    /// Removes every mapping of the range. No section may still find a VMA there, unless faults may
    /// refill the range (madvise).
    pub(crate) fn remove_pages(&self, writer: &Writer<'_, M>, removal: &Removal, why: Why) {
        self.remove_pages_then(writer, removal, why, Claim::Nothing);
    }

    /// The same. `then` says whether the places of a pool's private pages keep a claim to one; their tables stay.
    pub(crate) fn remove_pages_then(&self, writer: &Writer<'_, M>, removal: &Removal, why: Why, then: Claim) {
        let machine = &self.vm.machine;
        // Above the user part the root has entries of the embedder.
        let removal = &Removal {
            range: removal.range.intersect(&Self::user_range()),
            free_inside: removal.free_inside.intersect(&Self::table_range()),
            ..*removal
        };
        let _told = self.invalidate(removal.range, why);
        let mut nr_swapped = 0;
        let taken = take::take(machine, self.root, removal, &mut |met| match met {
            Met::Reaching(pmd) => self.pmd_split(pmd),
            Met::Swapped(slot) => {
                nr_swapped += 1;
                self.vm.swap_drop(slot);
            }
        });
        if nr_swapped != 0 {
            self.charge(Rss::Swap, -nr_swapped);
        }
        if !taken.leaves && !taken.tables {
            return;
        }
        if taken.tables {
            // Per-CPU hints name leaf tables. Sections that still use them are waited for below.
            self.announce(writer);
        }
        // If tables are removed, the paging-structure caches have to be invalidated, too.
        self.shootdown_and_wait(if taken.tables { Flush::Space } else { Flush::Pages(removal.range) });
        let mut sink = self.sink(then);
        take::harvest(machine, self.root, removal, &mut sink);
        self.account_removal(sink);
    }

    /// Finishes a removal. `before` is the version that had the range; it can be read until
    /// `retired` is freed.
    pub(crate) fn finish_removal(
        &self,
        writer: &Writer<'_, M>,
        before: &Snapshot<'vm, M>,
        retired: Retired<'vm, M>,
        removal: &Removal,
    ) {
        let retired = self.with_deferred(writer, retired);
        self.wait_for_readers();
        self.end_claims_in(writer, before, removal.range);
        self.remove_pages(writer, removal, Why::Unmap);
        let _ = before.for_each(removal.range, &mut |vma| {
            self.put_object_pages(writer, &vma, vma.range.intersect(&removal.range).nr_pages());
            ControlFlow::Continue(())
        });
        retired.free();
    }

    /// Removes everything, at the end. No CPU runs the space and nobody can name it.
    pub(crate) fn remove_all(&self, writer: &Writer<'_, M>) {
        self.assert_writer(writer);
        let mut sink = self.sink(Claim::Nothing);
        take::empty_all(&self.vm.machine, self.root, &mut sink);
        sink.nr_tables -= 1; // the root, which was never counted
        self.account_removal(sink);
    }

    fn account_removal(&self, sink: Sink<'vm, M>) {
        let nr_anon = sink.nr_anon + sink.nr_huge;
        self.charge(Rss::Anon, -(nr_anon as i64));
        self.charge(Rss::Huge, -(sink.nr_huge as i64));
        self.charge(Rss::Shmem, -(sink.nr_shmem as i64));
        if sink.nr_swapped != 0 {
            self.charge(Rss::Swap, -(sink.nr_swapped as i64));
        }
        self.charge(Rss::Tables, -(sink.nr_tables as i64));
        self.vm.count(Event::Unmapped, nr_anon + sink.nr_shmem + sink.nr_zero);
        self.vm.count(Event::TableFree, sink.nr_tables);
        let nr_emptied = sink.nr_emptied;
        drop(sink);
        self.vm.tell_of_blocks(nr_emptied);
    }
}
