//! madvise(2) and mincore(2).

use super::*;
use crate::numbers::{
    MADV_COLD, MADV_DODUMP, MADV_DOFORK, MADV_DONTDUMP, MADV_DONTFORK, MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE,
    MADV_GUARD_INSTALL, MADV_GUARD_REMOVE, MADV_HUGEPAGE, MADV_KEEPONFORK, MADV_NOHUGEPAGE, MADV_PAGEOUT,
    MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_REMOVE, MADV_WILLNEED, MADV_WIPEONFORK,
};

/// Bits of [`Attrs::other`] that madvise keeps there.
const OTHER_DONTDUMP: u64 = 1 << 40;
pub(super) const OTHER_HUGE: u64 = 1 << 41;
pub(super) const OTHER_NOHUGE: u64 = 1 << 42;

fn is_known(advice: u64) -> bool {
    matches!(advice, 0..=4 | 8..=11 | 14..=25 | 102 | 103)
}

impl Model {
    pub(super) fn madvise(&mut self, who: u64, addr: u64, len: u64, advice: u64) -> Answer {
        if !is_known(advice) || !is_aligned(addr) {
            return Ok(EINVAL);
        }
        if len > 0 && page_align(len).is_none() {
            return Ok(EINVAL);
        }
        let Some(end) = addr.checked_add(page_align(len).unwrap_or(0)) else { return Ok(EINVAL) };
        if end == addr {
            return Ok(OK);
        }
        if end > self.task_size {
            return Err(Unknown);
        }
        let (first, end) = (addr / PAGE, end / PAGE);
        if matches!(advice, MADV_POPULATE_READ | MADV_POPULATE_WRITE) {
            return Ok(self.populate(who, first, end, advice == MADV_POPULATE_WRITE));
        }
        // Pages that may go at any time go now, or not: the system's choice.
        let is_read = |object: usize| self.objects[object].is_read;
        let is_of_memory = |page: &Page| page.attrs.object.or(page.attrs.behind).is_some_and(|object| !is_read(object));
        let may_go = |page: &Page| page.lazy || is_of_memory(page);
        if matches!(advice, MADV_PAGEOUT | MADV_COLD)
            && self.space(who).pages.range(first..end).any(|(_, page)| may_go(page))
        {
            return Err(Unknown);
        }
        // Swapped pages go at once, others stay.
        let may_be_out = |(_, page): (&u64, &Page)| self.may_be_out(page);
        if advice == MADV_FREE && self.space(who).pages.range(first..end).any(may_be_out) {
            return Err(Unknown);
        }
        if advice == MADV_REMOVE {
            return self.remove(who, first, end);
        }
        let full = self.space(who).is_full(first, end);
        // VMA by VMA; the first that refuses ends it, holes are passed over.
        let mut stop = end;
        let refuses = |page: &Page| match advice {
            MADV_FREE => page.attrs.locked || page.attrs.has_object(),
            MADV_DONTNEED | MADV_COLD | MADV_PAGEOUT | MADV_GUARD_INSTALL => page.attrs.locked,
            MADV_WIPEONFORK => page.attrs.has_object(),
            _ => false,
        };
        let refused = self.space(who).pages.range(first..end).find(|(_, page)| refuses(page)).map(|(n, _)| *n);
        if let Some(refused) = refused {
            stop = refused;
        }
        self.advise(who, first, stop, advice);
        Ok(match (refused, full) {
            (Some(_), _) => EINVAL,
            (None, false) => ENOMEM,
            (None, true) => OK,
        })
    }

    /// Holes in objects, up to the first page that is of none or may not be stored to.
    fn remove(&mut self, who: u64, first: u64, end: u64) -> Answer {
        let full = self.space(who).is_full(first, end);
        let pages = &self.space(who).pages;
        let why_not = |page: &Page| match &page.attrs {
            attrs if attrs.locked => Some(EINVAL),
            attrs if attrs.object.is_some() => None,
            attrs if attrs.behind.is_some() => Some(Outcome::Errno(Errno::EACCES.0 as u64)),
            _ => Some(EINVAL),
        };
        let refused = pages.range(first..end).find_map(|(number, page)| why_not(page).map(|errno| (*number, errno)));
        let stop = refused.map_or(end, |(number, _)| number);
        // Before Linux 6.7 the mapping has to be writable now.
        if pages.range(first..stop).any(|(_, page)| page.attrs.prot & WRITE == 0) {
            return Err(Unknown);
        }
        let holes: Vec<_> = pages.range(first..stop).map(|(_, page)| (page.attrs.object, page.index)).collect();
        for (object, index) in holes.into_iter().filter_map(|(object, index)| Some((object?, index))) {
            self.objects[object].pages.remove(&index);
            self.objects[object].failed.remove(&index);
        }
        Ok(refused.map_or(if full { OK } else { ENOMEM }, |(_, errno)| errno))
    }

    fn advise(&mut self, who: u64, first: u64, end: u64, advice: u64) {
        let set = |other: &mut u64, bit: u64| *other |= bit;
        match advice {
            MADV_WILLNEED | MADV_COLD | MADV_PAGEOUT => {}
            MADV_FREE => self.each(who, first, end, |page| {
                page.lazy = true;
                if page.present == Present::Failed {
                    page.present = Present::No;
                }
            }),
            MADV_DONTNEED | MADV_DONTNEED_LOCKED => self.each(who, first, end, |page| {
                page.lazy = false;
                page.present = Present::No;
                page.content.clear();
            }),
            MADV_GUARD_INSTALL => self.each(who, first, end, |page| {
                page.present = Present::No;
                page.content.clear();
                page.lazy = false;
                page.guard = true;
            }),
            MADV_GUARD_REMOVE => self.each(who, first, end, |page| page.guard = false),
            MADV_DONTFORK | MADV_DOFORK => {
                self.change_range(who, first, end, &mut |a| a.dont_fork = advice == MADV_DONTFORK)
            }
            MADV_WIPEONFORK | MADV_KEEPONFORK => {
                self.change_range(who, first, end, &mut |a| a.wipe_on_fork = advice == MADV_WIPEONFORK);
            }
            MADV_DONTDUMP => self.change_range(who, first, end, &mut |a| set(&mut a.other, OTHER_DONTDUMP)),
            MADV_DODUMP => self.change_range(who, first, end, &mut |a| a.other &= !OTHER_DONTDUMP),
            MADV_HUGEPAGE => {
                self.change_range(who, first, end, &mut |a| a.other = a.other & !OTHER_NOHUGE | OTHER_HUGE)
            }
            MADV_NOHUGEPAGE => {
                self.change_range(who, first, end, &mut |a| a.other = a.other & !OTHER_HUGE | OTHER_NOHUGE)
            }
            _ => self.change_range(who, first, end, &mut |a| a.pattern = advice),
        }
    }

    fn each(&mut self, who: u64, first: u64, end: u64, mut how: impl FnMut(&mut Page)) {
        self.space_mut(who).pages.range_mut(first..end).for_each(|(_, page)| how(page));
    }

    /// Page by page until one refuses.
    fn populate(&mut self, who: u64, first: u64, end: u64, write: bool) -> Outcome {
        for number in first..end {
            let Some(page) = self.space(who).pages.get(&number) else { return ENOMEM };
            let needs = if write { WRITE } else { READ };
            if page.attrs.prot & needs == 0 {
                // Readable is what may be read, written or executed, except here.
                return EINVAL;
            }
            match self.touch(who, number, needs) {
                Ok(()) => {}
                Err(Outcome::MCEERR) => return EHWPOISON,
                Err(_) => return EFAULT,
            }
        }
        OK
    }

    /// As `MAP_POPULATE` does: what cannot be touched stays as it is.
    pub(super) fn populate_quietly(&mut self, who: u64, first: u64, end: u64) {
        for number in first..end {
            let Some(page) = self.space(who).pages.get(&number) else { return };
            let shared = page.attrs.object.is_some();
            let needs = match page.attrs.prot {
                0 => return,
                prot if prot & WRITE != 0 && !shared => WRITE,
                _ => READ,
            };
            if self.touch(who, number, needs).is_err() {
                return;
            }
        }
    }

    pub(super) fn mincore(&self, who: u64, addr: u64, len: u64) -> Result<Expected, Unknown> {
        let certain = |outcome| Ok(Expected::certain(outcome));
        if !is_aligned(addr) {
            return certain(EINVAL);
        }
        if addr > self.task_size || len > self.task_size - addr {
            return certain(ENOMEM);
        }
        let (first, end) = page_range(addr, len);
        if !self.space(who).is_full(first, end) {
            return certain(ENOMEM);
        }
        if end - first > 64 {
            return certain(OK);
        }
        let (mut bits, mut sure) = (0, u64::MAX);
        for (i, number) in (first..end).enumerate() {
            let page = &self.space(who).pages[&number];
            let here = match page.shown() {
                // The object's pages count, guarded or not.
                Some(object) => self.objects[object].has(page.index),
                None if page.attrs.behind.is_some() => true,
                None => !page.guard && matches!(page.present, Present::Zero | Present::Data | Present::Failed),
            };
            bits |= u64::from(here) << i;
            let object = page.attrs.object.or(page.attrs.behind).map(|object| &self.objects[object]);
            let may_be = object.is_some_and(|object| object.is_read || object.may_be_full && !here);
            if page.present == Present::Maybe || may_be || self.may_be_out(page) {
                sure &= !(1 << i);
            }
        }
        Ok(Expected { certain: sure, ..Expected::certain(Outcome::Value(bits)) })
    }
}
