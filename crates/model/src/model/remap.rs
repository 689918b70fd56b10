//! mremap(2): growing, shrinking, moving, duplicating.

use super::place::MIN_ADDR;
use super::*;
use crate::numbers::{MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE};
use crate::op::HUGE;
use core::ops::Range;

/// The arguments, lengths rounded to pages.
pub(super) struct Remap {
    pub(super) old: u64,
    pub(super) old_len: u64,
    pub(super) new_len: u64,
    may_move: bool,
    pub(super) fixed: bool,
    /// The old place stays mapped, empty.
    pub(super) keep: bool,
    /// With `fixed`, where to.
    pub(super) new: u64,
    /// Else, where the caller moves it afterwards; 0 is nowhere.
    landing: u64,
}

impl Remap {
    fn first(&self) -> u64 {
        self.old / PAGE
    }
    fn old_pages(&self) -> u64 {
        self.old_len / PAGE
    }
    fn new_pages(&self) -> u64 {
        self.new_len / PAGE
    }
    /// Whether the caller says where to, or asks for a move in any case.
    fn moves(&self) -> bool {
        self.fixed || self.keep
    }
    fn target(&self) -> Option<u64> {
        let to = if self.fixed { self.new } else { self.landing };
        (to != 0).then_some(to / PAGE)
    }

    /// Whether the arguments are wrong whatever is mapped.
    fn is_bad(&self, task_size: u64) -> bool {
        if self.new_len == 0 || self.new_len > task_size {
            return true;
        }
        // Sums wrap, as they do in Linux.
        let overlap = self.old < self.new.wrapping_add(self.new_len) && self.new < self.old.wrapping_add(self.old_len);
        self.moves() && !self.may_move
            || self.moves() && (self.new > task_size - self.new_len || !is_aligned(self.new) || overlap)
            || self.keep && self.old_len != self.new_len
    }

    /// Calls that the model does not predict: hints, the lowest pages, lengths beyond
    /// everything.
    fn is_unknown(&self, task_size: u64) -> bool {
        self.keep && !self.fixed && self.new != 0
            || self.fixed && self.new < MIN_ADDR
            || self.old_len > task_size && (self.moves() || self.new_len <= self.old_len)
    }
}

impl Model {
    pub(super) fn mremap(&mut self, who: u64, args: [u64; 6]) -> Answer {
        let [old, old_len, new_len, flags, new, landing] = args;
        if flags & !(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP) != 0 || !is_aligned(old) {
            return Ok(EINVAL);
        }
        let has = |flag| flags & flag != 0;
        // As in Linux, a length that wraps when it is rounded is 0.
        let (old_len, new_len) = (page_align(old_len).unwrap_or(0), page_align(new_len).unwrap_or(0));
        let (may_move, fixed, keep) = (has(MREMAP_MAYMOVE), has(MREMAP_FIXED), has(MREMAP_DONTUNMAP));
        let remap = Remap { old, old_len, new_len, may_move, fixed, keep, new, landing };
        if remap.is_bad(self.task_size) {
            return Ok(EINVAL);
        }
        if self.space(who).pool.contains_key(&(remap.old / HUGE)) {
            return if remap.is_unknown(self.task_size) { Err(Unknown) } else { self.remap_pool(who, &remap) };
        }
        let Some(head) = self.space(who).pages.get(&remap.first()) else {
            return if remap.is_unknown(self.task_size) && remap.old_len <= self.task_size {
                Err(Unknown)
            } else {
                Ok(EFAULT)
            };
        };
        let (target, len) = (remap.target().unwrap_or(0), remap.new_pages());
        if self.space(who).has_pool_in(remap.first(), remap.first().saturating_add(remap.old_pages().max(1)))
            || self.space(who).has_pool_in(target, target.saturating_add(len))
        {
            return Err(Unknown);
        }
        let private = head.attrs.object.is_none();
        if remap.old_len == 0 && private {
            return Ok(EINVAL);
        }
        if remap.is_unknown(self.task_size) || remap.old_len == 0 && remap.keep {
            return Err(Unknown);
        }
        self.remap_mapped(who, &remap)
    }

    fn remap_mapped(&mut self, who: u64, remap: &Remap) -> Answer {
        if !remap.moves() && remap.new_len <= remap.old_len {
            return Ok(self.shrink(who, remap));
        }
        if !self.may_be_taken(who, remap)? {
            return Ok(EFAULT);
        }
        let mut old = self.space(who).pages.range(remap.first()..=remap.first() + remap.old_pages().saturating_sub(1));
        let locked = old.any(|(_, page)| page.attrs.locked);
        if locked && remap.keep {
            // Linux counts these pages as locked twice, and never less again.
            return Err(Unknown);
        }
        if locked && remap.new_len > remap.old_len {
            self.space(who).can_lock(remap.new_pages())?;
        }
        let more = remap.first() + remap.old_pages()..remap.first() + remap.new_pages();
        if !remap.moves() && remap.old_len > 0 && self.space(who).is_hole(more.start, more.end) {
            if more.end > self.task_size / PAGE {
                return Err(Unknown);
            }
            self.extend(who, more.clone());
            if locked {
                self.populate_quietly(who, more.start, more.end);
            }
            return Ok(Outcome::Value(remap.old));
        }
        if !remap.may_move {
            return Ok(ENOMEM);
        }
        if remap.fixed && remap.old_len == 0 && (remap.new..remap.new + remap.new_len).contains(&remap.old) {
            // A duplicate over its own original: the target goes first.
            self.unmap(who, remap.new / PAGE, (remap.new + remap.new_len) / PAGE);
            return Ok(EFAULT);
        }
        self.relocate(who, remap)
    }

    /// Whether what is moved or grows lies in one VMA, where it has to.
    fn may_be_taken(&self, who: u64, remap: &Remap) -> Result<bool, Unknown> {
        let is_one = |nr_pages| self.is_one_vma(who, remap.first(), nr_pages);
        if !remap.fixed {
            return is_one(remap.old_pages());
        }
        if !self.features.has(Feature::Several) {
            // Others are refused, before or after the target is gone.
            return if is_one(remap.old_pages())? { Ok(true) } else { Err(Unknown) };
        }
        // The part that is cut off may be anything.
        Ok(remap.old_len == remap.new_len || is_one(remap.old_pages().min(remap.new_pages()))?)
    }

    fn is_one_vma(&self, who: u64, first: u64, nr_pages: u64) -> Result<bool, Unknown> {
        for page in first + 1..first + nr_pages {
            if !self.space(who).pages.contains_key(&page) || !self.space(who).joined(page)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn shrink(&mut self, who: u64, remap: &Remap) -> Outcome {
        let first = remap.first();
        self.unmap(who, first + remap.new_pages(), first + remap.old_pages());
        Outcome::Value(remap.old)
    }

    fn extend(&mut self, who: u64, more: Range<u64>) {
        let space = self.space_mut(who);
        let last = space.pages[&(more.start - 1)].emptied();
        let page = |number: u64| Page { index: last.index + 1 + (number - more.start), ..last.emptied() };
        space.pages.extend(more.clone().map(|number| (number, page(number))));
    }

    /// Moves or copies to the target, and grows there.
    fn relocate(&mut self, who: u64, remap: &Remap) -> Answer {
        let (first, old_pages, new_pages) = (remap.first(), remap.old_pages(), remap.new_pages());
        if let Some(to) = remap.target() {
            // Landing on what has just moved away is fine, on what stays is not;
            // a target never meets its source.
            let meets = to < first + old_pages && first < to + new_pages;
            if meets && !remap.fixed && !remap.keep {
                return Err(Unknown);
            }
        }
        let head = self.space(who).pages[&first].emptied();
        let mut moved = self.copies(who, first..first + old_pages);
        if remap.keep {
            self.put(who, moved.iter().map(|(number, page)| (*number, page.emptied())).collect());
        } else {
            self.unmap(who, first, first + old_pages);
        }
        moved.extend((old_pages..new_pages).map(|i| (first + i, Page { index: head.index + i, ..head.emptied() })));
        moved.truncate(new_pages as usize);
        if let Some(to) = remap.target() {
            self.put(who, moved.into_iter().map(|(number, page)| (number - first + to, page)).collect());
            if head.attrs.locked {
                self.populate_quietly(who, to + old_pages, to + new_pages);
            }
        }
        Ok(if remap.fixed { Outcome::Value(remap.new) } else { Outcome::Elsewhere })
    }

    fn copies(&self, who: u64, range: Range<u64>) -> Vec<(u64, Page)> {
        self.space(who).pages.range(range).map(|(number, page)| (*number, page.clone())).collect()
    }

    /// Maps these pages in place of what is there; where they leave a gap, that
    /// stays. Their pieces are new ones.
    fn put(&mut self, who: u64, mut pages: Vec<(u64, Page)>) {
        let mut names = BTreeMap::new();
        for (_, page) in &mut pages {
            page.piece = *names.entry(page.piece).or_insert_with(|| self.new_piece());
        }
        for run in pages.chunk_by(|(a, _), (b, _)| a + 1 == *b) {
            let (first, last) = (run[0].0, run[run.len() - 1].0);
            self.unmap(who, first, last + 1);
        }
        self.space_mut(who).pages.extend(pages);
    }
}
