//! Drops private copies of an object's pages that lie beyond its new end, or in a hole of an object of a pool, in every space that
//! maps it privately.
//!
//! ```text
//! for each member     visit its space: it stays
//!   VMA               by the tree, in the section in which entries are taken: a private frame does
//!                     not say whose copy it is
//!   take              up to 64 entries: copies ─▶ Busy; swapped out or failed ones ─▶ none
//!   ...               shootdown, grace
//!   settle            Busy ─▶ none; the frame loses a map
//! ```
//! The caller of a smaller size has published it and waited for sections, so that no fault makes a copy there any
//! more. Beside a hole faults may: each place is visited once, so such a copy goes or stays. munmap(2)
//! publishes its tree first and takes entries when all sections that found the old one
//! have ended: an entry that is taken while the VMA is found is still of that VMA. An entry that
//! another operation owns is waited for, as in `object.rs`. No copy moves meanwhile: mremap(2) holds
//! `resize`, as the caller does, and fork(2) looks whether the size has become smaller (I54).
//!
//! Locks on entry: `resize` of the object, no section. Takes the locks of its shards.

use super::object::is_owned;
use super::pool_copies::{LookedAt, PoolCopy};
use crate::account::Event;
use crate::account::rss::Rss;
use crate::addr::{ObjectPages, PageRange, Pfn, SwapSlot, Vpn};
use crate::frame::{Fill, FrameKind};
use crate::machine::{Flush, Machine, Tick};
use crate::notify::notice::Why;
use crate::notify::tell::Invalidation;
use crate::pace;
use crate::section::InSection;
use crate::source::members::MembersCursor;
use crate::space::pools::has_claims;
use crate::space::vma::{ObjectId, Vma};
use crate::space::{AddressSpace, Visit, Vm};
use crate::table::entry::Slot;
use crate::table::format::{Entry, Format, span_of};
use crate::table::walk::{self, Walk};

/// Entries that one section looks at.
const PAGES_PER_SECTION: usize = 64;

/// The mapping of an entry that was taken.
#[derive(Clone, Copy)]
enum Copy {
    /// A frame; the entry is `Busy`, in this leaf table.
    Frame(Pfn, Vpn),
    Swapped(SwapSlot),
}

/// The entries that one section has taken.
struct Taken {
    copies: [Option<Copy>; PAGES_PER_SECTION],
    nr: usize,
    table: Pfn,
}

/// How a look at some pages ended.
enum Looked<'a, F: Format> {
    /// A page of a pool, whose entry is `Busy`; the next look begins there.
    OfPool(PoolCopy<'a, F>, Vpn),
    /// The next look begins here.
    Next(Vpn),
    /// The first entry, or a table above it, belongs to another operation for a moment.
    Owned,
    /// Subscribers have to be told before entries are taken.
    Tell,
}

/// The pages of one member.
struct Drops<'a, 'vm, M: Machine> {
    space: &'a AddressSpace<'vm, M>,
    object: ObjectId,
    displacement: u64,
    range: PageRange,
    whose: Whose,
}

/// The mappings whose copies a walk drops.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Those that do not reserve.
    WithoutClaims,
    /// Those that do.
    WithClaims,
    All,
}

impl<M: Machine> Vm<M> {
    /// Drops every private copy of these pages. Visits each place once.
    pub(crate) fn drop_copies(&self, id: ObjectId, pages: ObjectPages) {
        if self.object_pool(id).is_none() {
            return self.drop_copies_of(id, pages, Whose::All);
        }
        // The owner of a page last: its place keeps a claim, which is the page when nobody else has it any more.
        self.drop_copies_of(id, pages, Whose::WithoutClaims);
        self.drop_copies_of(id, pages, Whose::WithClaims);
    }

    fn drop_copies_of(&self, id: ObjectId, pages: ObjectPages, whose: Whose) {
        let mut at = MembersCursor::default();
        while let Some(visit) = self.visit_next(id, pages, &mut at) {
            self.drop_from_member(&visit, id, pages, whose);
        }
    }

    fn drop_from_member(&self, visit: &Visit<'_, M>, object: ObjectId, pages: ObjectPages, whose: Whose) {
        let space = visit.space();
        let pages = visit.pages_of(pages);
        let displacement = visit.identity.displacement;
        let place = |page: u64| Vpn(page.wrapping_add(displacement));
        let range = PageRange::new(place(pages.start), place(pages.end));
        Drops { space: &space, object, displacement, range, whose }.run();
    }
}

impl<'vm, M: Machine> Drops<'_, 'vm, M> {
    fn run(&self) {
        let (mut at, mut told) = (self.range.start, None);
        while at < self.range.end {
            pace::answer(&self.space.vm.machine);
            let mut taken = Taken { copies: [None; PAGES_PER_SECTION], nr: 0, table: Pfn(0) };
            let looked = self.look(at, told.as_ref(), &mut taken);
            self.settle(&taken);
            match looked {
                Looked::OfPool(copy, next) => {
                    self.space.drop_copy_of_pool(copy);
                    at = next;
                }
                Looked::Next(next) => at = next,
                Looked::Owned => {
                    // Its owner may wait for whom we have told.
                    told = None;
                    while is_owned(self.space, at) {
                        self.space.vm.machine.relax();
                    }
                }
                Looked::Tell => {
                    drop(told);
                    told = Some(self.space.invalidate(PageRange::new(at, self.range.end), Why::Discard));
                }
            }
        }
    }

    /// Takes copies from `at` on, in one section.
    fn look(&self, at: Vpn, told: Option<&Invalidation<'_, M>>, taken: &mut Taken) -> Looked<'vm, M::Format> {
        let section = self.space.section();
        let inside = section.inside();
        let Some(vma) = self.space.tree_in(inside).next(at).map(|found| found.vma) else {
            return Looked::Next(self.range.end);
        };
        if !self.is_its(&vma) {
            return Looked::Next(vma.range.end);
        }
        let part = vma.range.intersect(&PageRange::new(at, self.range.end));
        if part.is_empty() || part.start > at {
            return Looked::Next(vma.range.start.min(self.range.end));
        }
        if self.space.has_subscribers() && !told.is_some_and(Invalidation::was_told) {
            return Looked::Tell;
        }
        let root = self.space.data.root_in(inside);
        taken.table = match walk::leaf_table(&self.space.vm.machine, root, at, inside) {
            Ok(table) => table,
            Err(Walk::Owned | Walk::Leaf(_)) => return Looked::Owned,
            Err(Walk::Huge(pmd)) if self.space.is_private_of_pool(&vma) => {
                let next = pmd.span().end;
                return match self.space.take_copy_of_pool(inside, pmd, &vma, self.range.start) {
                    LookedAt::Taken(copy) => Looked::OfPool(copy, next),
                    LookedAt::Other => Looked::Next(next),
                    LookedAt::Owned => Looked::Owned,
                };
            }
            Err(Walk::Hole(place) | Walk::Huge(place)) => {
                return Looked::Next(Vpn(place.base.0 + span_of::<M::Format>(place.slot.level)));
            }
        };
        let span = span_of::<M::Format>(1).min(PAGES_PER_SECTION as u64);
        let end = Vpn((at.0 / span + 1) * span).min(part.end);
        for vpn in (at.0..end.0).map(Vpn) {
            self.space.vm.machine.tick(Tick::Step);
            if !self.take(inside, vpn, taken) {
                return if vpn > at { Looked::Next(vpn) } else { Looked::Owned };
            }
        }
        Looked::Next(end)
    }

    /// Whether the VMA maps the object privately, as the member does, and its copies are to be dropped by this walk.
    fn is_its(&self, vma: &Vma) -> bool {
        let is_wanted = match self.whose {
            Whose::WithoutClaims => !has_claims(vma),
            Whose::WithClaims => has_claims(vma),
            Whose::All => true,
        };
        is_wanted
            && vma.object == self.object
            && vma.is_private()
            && vma.range.start.0.wrapping_sub(vma.pgoff) == self.displacement
    }

    /// Takes one entry if it stands for a copy; `false` if another operation owns it. Entries of the
    /// object's own pages were removed before.
    fn take(&self, _inside: InSection<'_>, vpn: Vpn, taken: &mut Taken) -> bool {
        let slot = self.slot(taken.table, vpn);
        loop {
            let seen = slot.observe();
            let copy = match seen.entry {
                Entry::None | Entry::Guard | Entry::Table(_) => return true,
                Entry::Busy | Entry::LockedNone | Entry::LockedLeaf(_) => return false,
                Entry::Leaf(leaf) => {
                    if self.space.vm.frames.head_desc(leaf.pfn).state().kind() != FrameKind::Anon {
                        return true;
                    }
                    let Ok(leaf) = slot.take(seen) else { continue };
                    Some(Copy::Frame(leaf.pfn, vpn))
                }
                Entry::Swap(of) => {
                    let Ok(()) = slot.replace(seen, Entry::None) else { continue };
                    Some(Copy::Swapped(of))
                }
                Entry::Poison => {
                    let Ok(()) = slot.replace(seen, Entry::None) else { continue };
                    None
                }
            };
            taken.copies[taken.nr] = copy;
            taken.nr += usize::from(copy.is_some());
            return true;
        }
    }

    /// Shoots down what was taken, empties the entries, and frees what nobody else has.
    fn settle(&self, taken: &Taken) {
        let copies = || taken.copies[..taken.nr].iter().flatten();
        let frames =
            || copies().filter_map(|copy| if let Copy::Frame(pfn, at) = copy { Some((*pfn, *at)) } else { None });
        let vm = self.space.vm;
        if let (Some((_, first)), Some((_, last))) = (frames().next(), frames().next_back()) {
            self.space.shootdown_and_wait(Flush::Pages(PageRange::new(first, Vpn(last.0 + 1))));
        }
        for (pfn, vpn) in frames() {
            self.slot(taken.table, vpn).resolve(Entry::None);
            if vm.frames.desc(pfn).map_drop() {
                vm.give_back(pfn, Fill::Raw);
            }
        }
        let nr_frames = frames().count() as i64;
        for copy in copies() {
            if let Copy::Swapped(of) = copy {
                vm.swap_drop(*of);
            }
        }
        let nr_swapped = taken.nr as i64 - nr_frames;
        if nr_frames != 0 {
            self.space.charge(Rss::Anon, -nr_frames);
            vm.count(Event::Unmapped, nr_frames as u64);
        }
        if nr_swapped != 0 {
            self.space.charge(Rss::Swap, -nr_swapped);
        }
    }

    fn slot(&self, table: Pfn, vpn: Vpn) -> Slot<'_, M::Format> {
        walk::leaf_slot::<M>(&self.space.vm.machine, table, vpn)
    }
}
