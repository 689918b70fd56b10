//! mremap(2), munmap(2) and MADV_DONTNEED of pages of a pool: whole pages, which do not grow.

use super::pool::*;
use super::remap::Remap;
use super::*;
use crate::op::HUGE;
use core::ops::Range;

impl Model {
    /// Unmaps the range of base pages. No page of the pool is cut.
    pub(super) fn unmap_pool(&mut self, who: u64, first: u64, end: u64) {
        if !self.space(who).has_pool_in(first, end) {
            return;
        }
        let (first, end) = (first.div_ceil(HUGE_PAGES), end / HUGE_PAGES);
        let pages = &mut self.space_mut(who).pool;
        let inside: Vec<u64> = pages.range(first..end).map(|(at, _)| *at).collect();
        let pieces = inside.iter().filter_map(|at| pages.remove(at)).map(|page| (page.piece, 0)).collect();
        self.split_pool_after(who, end, &pieces);
    }

    /// Private pages go; their places keep a claim, and those that are lost stay lost. If there is no page for the claim of a page
    /// that others have, too, it is that page, and they lose it.
    pub(super) fn drop_pool(&mut self, who: u64, pages: Range<u64>) -> Result<(), Unknown> {
        let numbers: Vec<u64> = if pages.is_empty() { Vec::new() } else { pages.collect() };
        for number in numbers {
            let Some(PoolPage { has: Has::Own(own), attrs, .. }) = self.space(who).pool.get(&number) else { continue };
            let (own, reserves) = (*own, attrs.reserves);
            if reserves && self.is_shared(own) && !self.may_promise(1) {
                self.take_from_others((who, number), own)?;
            }
            self.space_mut(who).pool.get_mut(&number).expect("looked up above").has = Has::Nothing;
            self.tidy_pool();
        }
        Ok(())
    }

    /// The call of a mapping of the pool, with arguments that are good for other memory.
    pub(super) fn remap_pool(&mut self, who: u64, remap: &Remap) -> Answer {
        let is_whole = |at: u64| at.is_multiple_of(HUGE);
        if remap.keep || !is_whole(remap.old) || remap.fixed && !is_whole(remap.new) || remap.old_len == 0 {
            return Ok(EINVAL);
        }
        if remap.old_len > self.task_size || remap.new_len > self.task_size {
            return Err(Unknown);
        }
        let (first, old_nr, new_nr) = (remap.old / HUGE, remap.old_len.div_ceil(HUGE), remap.new_len.div_ceil(HUGE));
        if remap.fixed && remap.new + new_nr * HUGE > self.task_size {
            return Ok(EINVAL);
        }
        if (first + old_nr.max(new_nr)) * HUGE > self.task_size {
            return Err(Unknown);
        }
        if !remap.fixed && new_nr <= old_nr {
            self.unmap(who, (first + new_nr) * HUGE_PAGES, (first + old_nr) * HUGE_PAGES);
            return Ok(Outcome::Value(remap.old));
        }
        let is_for_several = remap.fixed && remap.old_len == remap.new_len;
        if is_for_several
            && self.space(who).pages.range(first * HUGE_PAGES..(first + old_nr) * HUGE_PAGES).next().is_some()
        {
            return Err(Unknown);
        }
        let kept = if remap.fixed { old_nr.min(new_nr) } else { old_nr };
        if !is_for_several && !self.is_one_of_pool(who, first, kept)? {
            return Ok(EFAULT);
        }
        if new_nr > old_nr {
            return Ok(EINVAL);
        }
        self.move_pool(who, (first, old_nr), (remap.new / HUGE, new_nr), is_for_several);
        Ok(Outcome::Value(remap.new))
    }

    fn is_one_of_pool(&self, who: u64, first: u64, nr: u64) -> Result<bool, Unknown> {
        for page in first + 1..first + nr {
            if !self.space(who).pool.contains_key(&page) || !self.space(who).pool_joined(page)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn move_pool(&mut self, who: u64, (first, old_nr): (u64, u64), (to, new_nr): (u64, u64), is_for_several: bool) {
        if !is_for_several {
            self.unmap(who, to * HUGE_PAGES, (to + new_nr) * HUGE_PAGES);
            self.unmap(who, (first + new_nr) * HUGE_PAGES, (first + old_nr) * HUGE_PAGES);
        }
        let all = self.space(who).pool.range(first..first + new_nr);
        let moved: Vec<(u64, PoolPage)> = all.map(|(number, page)| (*number, page.clone())).collect();
        self.unmap(who, first * HUGE_PAGES, (first + new_nr) * HUGE_PAGES);
        let mut names = BTreeMap::new();
        for (number, mut page) in moved {
            let at = number - first + to;
            // Where the source has a hole the target stays.
            self.unmap(who, at * HUGE_PAGES, (at + 1) * HUGE_PAGES);
            page.piece = *names.entry(page.piece).or_insert_with(|| self.new_piece());
            self.space_mut(who).pool.insert(at, page);
        }
    }
}
