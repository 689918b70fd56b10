//! The choices that huge pages leave to the system: which pages come with one that is
//! touched, and whether a collapse succeeds.
//!
//! A page that nobody touched may be resident as a neighbour of one that was, if
//! the sizes allowed and the mapping had room for both in one huge page; on Linux also
//! in shared memory that was collapsed. No other difference is allowed: content, errors
//! and signals are those of small pages.

use super::advise::{OTHER_HUGE, OTHER_NOHUGE};
use super::*;

/// Pages of the largest size.
const HUGE_PAGES: u64 = 512;
/// The largest order, and the smallest above a base page.
const PMD_ORDER: u32 = 9;
const FIRST_ORDER: u32 = 2;

/// The known part of the knobs.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct HugeKnown {
    /// Values that the last step set; none before the first such step.
    now: Option<KnobBits>,
    /// A Linux does the steps, too, by knobs of its own.
    beside_linux: bool,
    /// Also those about a pool.
    pub(super) beside_linux_pool: bool,
}

impl Model {
    /// The same, where a Linux does the steps, too.
    pub fn beside_linux(mut self) -> Model {
        self.huge.beside_linux = true;
        self
    }

    /// The same, also in sequences with a pool.
    pub fn beside_linux_pool(mut self) -> Model {
        self.huge.beside_linux_pool = true;
        self.beside_linux()
    }

    pub(super) fn knobs(&mut self, bits: KnobBits) -> Answer {
        self.huge.now = Some(bits);
        Ok(OK)
    }

    pub(super) fn set_thp_disable(&mut self, who: u64, disable: u64) -> Answer {
        if disable > 1 {
            return Err(Unknown);
        }
        self.space_mut(who).thp_disable = disable != 0;
        Ok(OK)
    }

    /// Smallest and largest order that a fault may use in such a mapping.
    fn orders(&self, who: u64, attrs: &Attrs) -> Option<(u32, u32)> {
        if self.space(who).thp_disable || attrs.has_object() || attrs.other & OTHER_NOHUGE != 0 {
            return None;
        }
        match self.huge.now {
            _ if self.huge.beside_linux => Some((FIRST_ORDER, PMD_ORDER)),
            None => Some((FIRST_ORDER, PMD_ORDER)),
            Some(bits) if bits.all_sizes() => Some((FIRST_ORDER, PMD_ORDER)),
            Some(bits) if bits.enabled() == 0 => Some((PMD_ORDER, PMD_ORDER)),
            Some(bits) if bits.enabled() == 1 && attrs.other & OTHER_HUGE != 0 => Some((PMD_ORDER, PMD_ORDER)),
            Some(_) => None,
        }
    }

    /// Before the private page is touched: what may come with it.
    pub(super) fn may_bring_neighbours(&mut self, who: u64, number: u64) {
        let page = &self.space(who).pages[&number];
        if page.present == Present::Data {
            return;
        }
        let Some((smallest, largest)) = self.orders(who, &page.attrs) else { return };
        let largest = (smallest..=largest).rev().find(|order| {
            let first = number >> order << order;
            self.space(who).is_alike(first, first + (1 << order))
        });
        if let Some(order) = largest {
            let first = number >> order << order;
            self.may_become_resident(who, first, first + (1 << order));
        }
    }

    fn may_become_resident(&mut self, who: u64, first: u64, end: u64) {
        for (_, page) in self.space_mut(who).pages.range_mut(first..end) {
            if page.present == Present::No && !page.attrs.has_object() && !page.guard {
                page.present = Present::Maybe;
            }
        }
    }

    /// `MADV_COLLAPSE`. A range that its mapping does not allow to collapse is refused for
    /// sure; else the system may find a reason not to.
    pub(super) fn collapse(&mut self, who: u64, addr: u64, len: u64) -> Result<Expected, Unknown> {
        let certain = |outcome| Ok(Expected::certain(outcome));
        let Some((first, end)) = checked_range(addr, len, self.task_size)? else { return certain(EINVAL) };
        if first == end {
            return certain(OK);
        }
        if self.has_files(who, first, end) {
            return Err(Unknown);
        }
        let space = self.space(who);
        let full = space.is_full(first, end);
        let (mut may_refuse, mut outcome) = (false, if full { OK } else { ENOMEM });
        let mut at = first;
        while let Some((number, page)) = space.pages.range(at..end).next() {
            let (run_first, run_end) = space.alike_around(*number);
            let has_room = run_first.next_multiple_of(HUGE_PAGES) + HUGE_PAGES <= run_end;
            let refused = page.attrs.other & OTHER_NOHUGE != 0 || page.attrs.object.is_none() && !has_room;
            if refused || space.thp_disable {
                outcome = EINVAL;
                break;
            }
            may_refuse = true;
            at = run_end.min(end);
        }
        let (first, end) = (first.next_multiple_of(HUGE_PAGES), end / HUGE_PAGES * HUGE_PAGES);
        for at in (first..end).step_by(HUGE_PAGES as usize).filter(|_| may_refuse) {
            if self.space(who).is_alike(at, at + HUGE_PAGES) {
                self.may_become_resident(who, at, at + HUGE_PAGES);
            }
        }
        if may_refuse && self.huge.beside_linux {
            self.may_fill_objects(who, first, end);
        }
        Ok(Expected { may_refuse, ..Expected::certain(outcome) })
    }

    /// A Linux collapses shared memory, too: its holes become resident zeroes.
    fn may_fill_objects(&mut self, who: u64, first: u64, end: u64) {
        let Model { spaces, objects, .. } = self;
        let Some(space) = spaces.get(&who) else { return };
        for object in space.pages.range(first..end.max(first)).filter_map(|(_, page)| page.attrs.object) {
            objects[object].may_be_full = true;
        }
    }
}

/// First page and end of a range for madvise(2); `None` where it is EINVAL.
fn checked_range(addr: u64, len: u64, task_size: u64) -> Result<Option<(u64, u64)>, Unknown> {
    if !is_aligned(addr) || len > 0 && page_align(len).is_none() {
        return Ok(None);
    }
    match addr.checked_add(page_align(len).unwrap_or(0)) {
        None => Ok(None),
        Some(end) if end > addr && end > task_size => Err(Unknown),
        Some(end) => Ok(Some((addr / PAGE, end / PAGE))),
    }
}

impl Space {
    /// Whether the pages `first..end` are mapped, private, and alike: they may be
    /// one VMA.
    fn is_alike(&self, first: u64, end: u64) -> bool {
        let Some(head) = self.pages.get(&first).filter(|head| !head.attrs.has_object()) else { return false };
        let alike = self.pages.range(first..end).take_while(|(_, page)| page.attrs == head.attrs);
        alike.count() as u64 == end - first
    }

    /// The pages alike around `number`, which is mapped.
    fn alike_around(&self, number: u64) -> (u64, u64) {
        let attrs = &self.pages[&number].attrs;
        let alike = |(expected, (seen, page)): &(u64, (&u64, &Page))| expected == *seen && page.attrs == *attrs;
        let before = (0..=number).rev().zip(self.pages.range(..=number).rev()).take_while(alike).count() as u64;
        let behind = (number..).zip(self.pages.range(number..)).take_while(alike).count() as u64;
        (number + 1 - before, number + behind)
    }
}
