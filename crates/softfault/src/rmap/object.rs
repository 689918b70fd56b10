//! Removes the entries of an object's pages, in every space that has any.
//!
//! ```text
//! for each member   visit its space: it stays
//!   take            each entry of these pages ─▶ Busy, 64 pages in a section; its accessed and
//!                   dirty are noted in the frame's state
//!   ...             shootdown, grace
//!   settle          Busy ─▶ none
//! ```
//! No new entry of the pages can come: the caller has marked them and waited for sections. So after
//! a member was visited, none is there. The walk reads the page tables, not the VMAs, because
//! munmap(2) publishes a tree without a VMA before it takes the entries. If another operation owns
//! an entry or a table, the walk waits for it outside sections, with nothing owned and no notice
//! open. It finishes the entries before it first, so a program that keeps some entry owned does not
//! stop the walk. Entries of pages that were added to the object meanwhile are removed, too.
//!
//! Write-back goes the same way, and takes the write right alone: such an entry needs no `Busy`.
//!
//! Locks on entry: none, no section. Takes the locks of the object's shards.

use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{ObjectPages, PageRange, Pfn, Rights, Vpn};
use crate::frame::FrameKind;
use crate::machine::{Flush, Machine, Tick};
use crate::notify::notice::Why;
use crate::notify::tell::Invalidation;
use crate::pace;
use crate::section::InSection;
use crate::source::members::{Identity, MembersCursor};
use crate::space::vma::ObjectId;
use crate::space::{AddressSpace, Visit, Vm};
use crate::table::entry::Slot;
use crate::table::format::{Entry, Format, index_of, span_of};
use crate::table::place::PmdSlot;
use crate::table::walk::{self, Walk};

/// Pages that one section looks at.
const PAGES_PER_SECTION: u64 = 64;
/// Sections between two shootdowns. A guess: more would keep programs waiting.
const CHUNKS_MAX: usize = 16;

/// Entries of a table that are `Busy` and ours.
#[derive(Clone, Copy)]
struct Chunk {
    table: Pfn,
    /// Of the table: above 0 it is one entry.
    level: u8,
    first: Vpn,
    taken: u64,
}

impl Chunk {
    /// The entries that were taken, and the pages that each of them covers.
    fn entries<'a, M: Machine>(&self, machine: &'a M) -> impl Iterator<Item = (Slot<'a, M::Format>, u64)> {
        let &Chunk { table, level, first, taken } = self;
        let nr = span_of::<M::Format>(level);
        (0..PAGES_PER_SECTION).filter(move |i| taken & 1 << i != 0).map(move |i| {
            let index = index_of::<M::Format>(first.0 + i * nr, level);
            (Slot::new(walk::entry(machine, table, index), level), nr)
        })
    }

    /// Behind the last page that it may cover.
    fn end<F: Format>(&self) -> Vpn {
        Vpn(self.first.0 + PAGES_PER_SECTION.max(span_of::<F>(self.level)))
    }
}

/// How a look at some pages ended.
enum Chunked {
    /// The entries that were taken, perhaps none; the next look begins here.
    Taken(Chunk, Vpn),
    /// There is no table up to here.
    Hole(Vpn),
    /// The first entry, or a table above it, belongs to another operation for a moment.
    Owned,
    /// Subscribers have to be told before entries are taken.
    Tell,
}

/// The change to the entries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// They go.
    Remove(Why),
    /// They lose the write right and dirty.
    Protect,
}

impl Change {
    fn why(self) -> Why {
        match self {
            Change::Remove(why) => why,
            Change::Protect => Why::Clean,
        }
    }
}

/// The removal from one space.
struct Removal<'a, 'vm, M: Machine> {
    space: &'a AddressSpace<'vm, M>,
    member: Identity,
    range: PageRange,
    change: Change,
    told: Option<Invalidation<'vm, M>>,
    chunks: [Chunk; CHUNKS_MAX],
    nr_chunks: usize,
}

impl<M: Machine> Vm<M> {
    /// Removes every entry of the pages, which are barred: no new one can come (I44).
    pub(crate) fn unmap_object_pages(&self, id: ObjectId, pages: ObjectPages, why: Why) {
        self.change_entries(id, pages, Change::Remove(why));
    }

    /// Takes the write right and dirty from every entry of the pages. Entries that come meanwhile may have both: the fault that makes
    /// one has noted that the page is dirty, after the caller's grace period.
    pub(crate) fn protect_object_pages(&self, id: ObjectId, pages: ObjectPages) {
        self.change_entries(id, pages, Change::Protect);
    }

    fn change_entries(&self, id: ObjectId, pages: ObjectPages, change: Change) {
        let mut at = MembersCursor::default();
        while let Some(visit) = self.visit_next(id, pages, &mut at) {
            self.change_in_member(&visit, pages, change);
        }
    }

    /// Removes the entries of the pages in one space.
    pub(crate) fn unmap_from_member(&self, visit: &Visit<'_, M>, pages: ObjectPages, why: Why) {
        self.change_in_member(visit, pages, Change::Remove(why));
    }

    fn change_in_member(&self, visit: &Visit<'_, M>, pages: ObjectPages, change: Change) {
        let space = visit.space();
        let range = visit.places_of(pages);
        let nothing = Chunk { table: Pfn(0), level: 0, first: Vpn(0), taken: 0 };
        let chunks = [nothing; CHUNKS_MAX];
        Removal { space: &space, member: visit.identity, range, change, told: None, chunks, nr_chunks: 0 }.run();
    }
}

impl<M: Machine> Removal<'_, '_, M> {
    fn run(mut self) {
        let mut at = self.range.start;
        while at < self.range.end {
            pace::answer(&self.space.vm.machine);
            match self.take_chunk(at) {
                Chunked::Taken(chunk, next) => {
                    self.add(chunk);
                    at = next;
                }
                Chunked::Hole(next) => at = next,
                Chunked::Owned => {
                    // Its owner may wait for our entries, or for whom we have told.
                    self.flush();
                    self.told = None;
                    while is_owned(self.space, at) {
                        self.space.vm.machine.relax();
                    }
                }
                Chunked::Tell => {
                    self.flush();
                    self.told = None;
                    self.told = Some(self.space.invalidate(self.range, self.change.why()));
                }
            }
        }
        self.flush();
    }

    fn add(&mut self, chunk: Chunk) {
        if chunk.taken != 0 {
            self.chunks[self.nr_chunks] = chunk;
            self.nr_chunks += 1;
        }
        if self.nr_chunks == CHUNKS_MAX {
            self.flush();
        }
    }

    /// Takes the entries of some pages, in one section.
    fn take_chunk(&self, at: Vpn) -> Chunked {
        let section = self.space.section();
        let inside = section.inside();
        if self.space.has_subscribers() && !self.told.as_ref().is_some_and(Invalidation::was_told) {
            return Chunked::Tell;
        }
        let root = self.space.data.root_in(inside);
        let table = match walk::leaf_table(&self.space.vm.machine, root, at, inside) {
            Ok(table) => table,
            Err(Walk::Owned | Walk::Leaf(_)) => return Chunked::Owned,
            Err(Walk::Huge(pmd)) => return self.take_huge(inside, pmd),
            Err(Walk::Hole(place)) => {
                return Chunked::Hole(Vpn(place.base.0 + span_of::<M::Format>(place.slot.level)));
            }
        };
        let span = span_of::<M::Format>(1).min(PAGES_PER_SECTION);
        let next = Vpn((at.0 / span + 1) * span).min(self.range.end);
        let mut chunk = Chunk { table, level: 0, first: at, taken: 0 };
        for vpn in at.0..next.0 {
            self.space.vm.machine.tick(Tick::Step);
            match self.take(inside, walk::leaf_slot::<M>(&self.space.vm.machine, table, Vpn(vpn)), Vpn(vpn)) {
                Some(true) => chunk.taken |= 1 << (vpn - at.0),
                Some(false) => {}
                // No new entry of the object can come to the places before it.
                None if vpn > at.0 => return Chunked::Taken(chunk, Vpn(vpn)),
                None => return Chunked::Owned,
            }
        }
        Chunked::Taken(chunk, next)
    }

    /// Takes an entry above the leaf tables, which maps a page of a pool or a private folio.
    fn take_huge(&self, inside: InSection<'_>, pmd: PmdSlot<'_, M::Format>) -> Chunked {
        let Some(is_taken) = self.take(inside, pmd.slot, pmd.base) else { return Chunked::Owned };
        let level = pmd.slot.level;
        let chunk = Chunk { table: pmd.table, level, first: pmd.base, taken: u64::from(is_taken) };
        Chunked::Taken(chunk, pmd.span().end)
    }

    /// Takes one entry if it maps a page of the object; `None` if another operation owns it.
    fn take(&self, _inside: InSection<'_>, slot: Slot<'_, M::Format>, vpn: Vpn) -> Option<bool> {
        loop {
            let seen = slot.observe();
            let leaf = match seen.entry {
                Entry::Leaf(leaf) => leaf,
                Entry::None | Entry::Guard | Entry::Poison | Entry::Swap(_) | Entry::Table(_) => return Some(false),
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => return None,
            };
            let head = self.space.vm.frames.head_of_named(leaf.pfn);
            let desc = self.space.vm.frames.desc(head);
            let page = vpn.0.wrapping_sub(self.member.displacement);
            let is_its = if desc.is_foreign() {
                let foreign = self.space.vm.foreign_page(self.member.object, page);
                foreign.is_some_and(|frame| frame.pfn == leaf.pfn)
            } else {
                desc.state().kind() == FrameKind::Shared
                    && desc.owner.get() == self.member.object.0
                    && desc.index.get() + u64::from(leaf.pfn.0 - head.0) == page
            };
            if !is_its {
                return Some(false);
            }
            if self.change == Change::Protect {
                if !leaf.rights.contains(Rights::WRITE) && !leaf.dirty {
                    return Some(false);
                }
                if slot.write_protect(seen).is_ok() {
                    return Some(true);
                }
                continue;
            }
            if let Ok(leaf) = slot.take(seen) {
                // A store through a translation that is clean faults now.
                self.space.vm.frames.note_removed(&leaf);
                return Some(true);
            }
        }
    }

    /// Shoots down what was taken, and empties the entries.
    fn flush(&mut self) {
        let chunks = &self.chunks[..self.nr_chunks];
        let (Some(first), Some(last)) = (chunks.first(), chunks.last()) else { return };
        let flushed = PageRange::new(first.first, last.end::<M::Format>().min(self.range.end));
        self.space.shootdown_and_wait(Flush::Pages(flushed));
        if self.change == Change::Protect {
            self.nr_chunks = 0;
            return;
        }
        let mut nr = 0;
        for chunk in chunks {
            pace::answer(&self.space.vm.machine);
            for (slot, nr_pages) in chunk.entries(&self.space.vm.machine) {
                slot.resolve(Entry::None);
                nr += nr_pages as i64;
            }
        }
        self.space.charge(Rss::Shmem, -nr);
        self.space.vm.count(Event::Unmapped, nr as u64);
        self.nr_chunks = 0;
    }
}

/// Whether the entry of a page, or a table above it, belongs to another operation.
pub(super) fn is_owned<M: Machine>(space: &AddressSpace<'_, M>, vpn: Vpn) -> bool {
    let section = space.section();
    let inside = section.inside();
    match walk::walk(&space.vm.machine, space.data.root_in(inside), vpn, inside) {
        Walk::Owned => true,
        Walk::Hole(_) => false,
        Walk::Leaf(slot) | Walk::Huge(PmdSlot { slot, .. }) => {
            matches!(slot.observe().entry, Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_))
        }
    }
}
