//! Placement of mappings without a fixed address: top-down, as on Linux.

use super::AddressSpace;
use super::tree::{Direction, GapRequest, Snapshot};
use super::vma::VmaFlags;
use crate::addr::{Order, PAGE_SIZE, PageRange, Vpn};
use crate::machine::Machine;
use crate::space::Vm;
use crate::table::format::Format;

/// Pages that stay free below a growing mapping, so that it does not grow into another mapping
/// unnoticed: 1 MiB, as Linux's `stack_guard_gap`.
pub(crate) const STACK_GUARD_GAP_PAGES: u64 = 256;

/// Pages between the highest placement and the end of the user part: room for
/// the first stack, its guard gap and randomisation. Linux's default for an
/// 8 MiB stack limit is 128 MiB plus the gap.
const STACK_ROOM_PAGES: u64 = (128 << 20 >> 12) + 256;

/// The range for `MAP_32BIT`: 1 GiB to 2 GiB.
const FIRST_OF_32BIT: Vpn = Vpn(1 << 30 >> 12);
const END_OF_32BIT: Vpn = Vpn(2 << 30 >> 12);

/// The kind of memory that is to be mapped in a hole.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backing {
    /// Private memory, which may get huge pages.
    Private,
    /// Pages of an object.
    Object,
}

impl<M: Machine> AddressSpace<'_, M> {
    /// The lowest page that placement uses.
    pub(crate) fn min_page(&self) -> Vpn {
        Vpn::of(self.vm.tunables.mmap_min_addr.next_multiple_of(4096))
    }

    /// Finds a hole of `nr_pages`: at the hint if that is free, else the highest.
    pub(crate) fn find_hole(&self, tree: &Snapshot<'_, M>, hint: u64, nr_pages: u64) -> Option<Vpn> {
        let user = M::Format::USER_PAGES;
        if let Some(start) = (hint >= PAGE_SIZE).then(|| Vpn::of(hint).max(self.min_page()))
            && start.0.checked_add(nr_pages).is_some_and(|end| end <= user)
            && fits_at(tree, PageRange::new(start, Vpn(start.0 + nr_pages)))
        {
            return Some(start);
        }
        self.find_anywhere(tree, nr_pages, 1)
    }

    /// Finds a hole without a hint: mappings of whole huge pages are aligned for them if there is
    /// room, as on Linux since 6.7.
    pub(crate) fn find_hole_for(
        &self,
        tree: &Snapshot<'_, M>,
        hint: u64,
        nr_pages: u64,
        backing: Backing,
    ) -> Option<Vpn> {
        let huge = Vm::<M>::NR_SUB_FRAMES;
        if backing == Backing::Private && hint == 0 && nr_pages.is_multiple_of(huge) && !self.vm.huge_off() {
            return self.find_anywhere(tree, nr_pages, huge).or_else(|| self.find_hole(tree, 0, nr_pages));
        }
        self.find_hole(tree, hint, nr_pages)
    }

    /// Finds a hole for whole pages of a pool, at the hint rounded up if that is free.
    pub(crate) fn find_hole_of_huge_pages(
        &self,
        tree: &Snapshot<'_, M>,
        hint: u64,
        nr_pages: u64,
        order: Order,
    ) -> Option<Vpn> {
        let huge = order.nr_pages();
        let hint = hint.checked_next_multiple_of(huge * PAGE_SIZE).filter(|hint| *hint > 0);
        let at_hint = hint.and_then(|hint| self.find_hole(tree, hint, nr_pages));
        at_hint.filter(|vpn| vpn.0.is_multiple_of(huge)).or_else(|| self.find_anywhere(tree, nr_pages, huge))
    }

    /// Finds a hole for `MAP_32BIT` as Linux does: at the hint if that is below 2 GiB, else the
    /// lowest from 1 GiB on. Its start is a multiple of the size of a page, which may come from a pool.
    pub(crate) fn find_hole_below_2g(
        &self,
        tree: &Snapshot<'_, M>,
        hint: u64,
        nr_pages: u64,
        page: Order,
    ) -> Option<Vpn> {
        let align_pages = page.nr_pages();
        let window = PageRange::new(FIRST_OF_32BIT, Vpn(END_OF_32BIT.0.min(M::Format::USER_PAGES)));
        let start = Vpn(Vpn::of(hint).max(self.min_page()).0.next_multiple_of(align_pages));
        let end = start.0.saturating_add(nr_pages);
        if hint >= PAGE_SIZE && end <= window.end.0 && fits_at(tree, PageRange::new(start, Vpn(end))) {
            return Some(start);
        }
        find_gap(tree, GapRequest { align_pages, ..GapRequest::new(window, nr_pages, Direction::BottomUp) })
    }

    fn find_anywhere(&self, tree: &Snapshot<'_, M>, nr_pages: u64, align_pages: u64) -> Option<Vpn> {
        let user = M::Format::USER_PAGES;
        let wanted = |window, direction| GapRequest { align_pages, ..GapRequest::new(window, nr_pages, direction) };
        let top = Vpn(if user > 4 * STACK_ROOM_PAGES { user - STACK_ROOM_PAGES } else { user });
        let low = PageRange::new(self.min_page().min(top), top);
        // Above the usual range only if there is no room below.
        let all = PageRange::new(low.start, Vpn(user));
        find_gap(tree, wanted(low, Direction::TopDown)).or_else(|| find_gap(tree, wanted(all, Direction::BottomUp)))
    }
}

/// Finds the first hole in that direction that keeps the guard gap from mappings that grow down.
/// Such mappings are few, so each may cost one more search.
fn find_gap<M: Machine>(tree: &Snapshot<'_, M>, mut request: GapRequest) -> Option<Vpn> {
    loop {
        let window = request.window;
        let start = tree.find_gap(&request)?;
        let range = PageRange::new(start, Vpn(start.0 + request.nr_pages));
        if fits_at(tree, range) {
            return Some(start);
        }
        let next = tree.next(range.end)?.vma.range;
        request.window = match request.direction {
            Direction::TopDown => PageRange::new(window.start, Vpn(next.start.0.saturating_sub(STACK_GUARD_GAP_PAGES))),
            Direction::BottomUp => PageRange::new(next.end, window.end),
        };
    }
}

/// Whether the range is free and outside the guard gap of mappings that grow down.
fn fits_at<M: Machine>(tree: &Snapshot<'_, M>, range: PageRange) -> bool {
    let Some(next) = tree.next(range.start).map(|f| f.vma) else { return true };
    let gap = if next.flags.contains(VmaFlags::GROWSDOWN) { STACK_GUARD_GAP_PAGES } else { 0 };
    range.end.0 + gap <= next.range.start.0
}

/// Whether any VMA has a page of the range.
pub(crate) fn occupied<M: Machine>(tree: &Snapshot<'_, M>, range: PageRange) -> bool {
    tree.next(range.start).is_some_and(|f| f.vma.range.overlaps(&range))
}
