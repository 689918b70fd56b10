//! The calls about pages of a pool: mappings, rights, advice, accesses. No call cuts a page.

use super::pool::*;
use super::*;
use crate::numbers::{
    MADV_COLD, MADV_DODUMP, MADV_DOFORK, MADV_DONTFORK, MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE,
    MADV_GUARD_INSTALL, MADV_GUARD_REMOVE, MADV_HUGEPAGE, MADV_KEEPONFORK, MADV_PAGEOUT, MADV_POPULATE_READ,
    MADV_POPULATE_WRITE, MADV_REMOVE, MADV_WILLNEED, MADV_WIPEONFORK, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN,
    MAP_LOCKED, MAP_NONBLOCK, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE, MAP_SHARED, MAP_TYPE, PROT_SEM,
};
use crate::op::{HUGE, MOST_POOL_PAGES, POOL_WINDOW, POOL_WINDOW_PAGES, is_for_pool};
use core::ops::Range;

/// `MAP_HUGE_2MB`, and where flags have the size.
const HUGE_2MB: u64 = 21 << 26;
const HUGE_SIZE: u64 = 0x3f << 26;
const EACCES: Outcome = Outcome::Errno(Errno::EACCES.0 as u64);

/// Pages of the pool that a range of bytes meets.
fn huge_range(first: u64, end: u64) -> Range<u64> {
    first / HUGE_PAGES..end.div_ceil(HUGE_PAGES)
}

impl Model {
    /// The calls that meet a page of the pool and are not the same for all memory.
    pub(super) fn in_pool(&mut self, op: &Op) -> Option<Answer> {
        let ([addr, b, c, ..], who) = (op.args, op.who);
        let first = addr / PAGE;
        let range = |len: u64| Some((first, addr.checked_add(page_align(len)?)?.div_ceil(PAGE)));
        let (first, end) = match op.call {
            Call::Mprotect | Call::Madvise | Call::Mincore => range(b).filter(|_| is_aligned(addr))?,
            Call::Load | Call::Store | Call::Exec => (first, first + 1),
            _ => return None,
        };
        if !self.space(who).has_pool_in(first, end) {
            return None;
        }
        if self.space(who).pages.range(first..end).next().is_some() {
            return Some(Err(Unknown));
        }
        Some(match op.call {
            Call::Mprotect => self.protect_pool(who, first..end, c),
            Call::Madvise => self.advise_pool(who, first..end, c),
            Call::Mincore => self.mincore_pool(who, first..end),
            Call::Load => self.load_pool(who, addr, b),
            Call::Store => self.store_pool(who, addr, b, c),
            // Programs run no code there.
            _ => Err(Unknown),
        })
    }

    pub(super) fn mmap_pool(&mut self, who: u64, [addr, len, prot, flags, landing]: [u64; 5]) -> Answer {
        self.the_pool()?;
        if len == 0 || !matches!(flags & HUGE_SIZE, 0 | HUGE_2MB) {
            return if len == 0 { Ok(EINVAL) } else { Err(Unknown) };
        }
        let fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
        if flags & MAP_TYPE == MAP_PRIVATE && flags & MAP_GROWSDOWN != 0 || fixed && !addr.is_multiple_of(HUGE) {
            return Ok(EINVAL);
        }
        let Some(len) = len.checked_next_multiple_of(HUGE) else { return Ok(EINVAL) };
        let shows = Shows::Private(self.new_piece());
        self.map_pool(who, [addr, len, prot, flags, landing], (shows, 0))
    }

    /// Of whole pages. A shared mapping of new memory is given as a private one.
    pub(super) fn map_pool(
        &mut self,
        who: u64,
        [addr, len, prot, flags, landing]: [u64; 5],
        of: (Shows, u64),
    ) -> Answer {
        let fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
        if len > self.task_size || fixed && addr > self.task_size - len {
            return Ok(ENOMEM);
        }
        if flags & MAP_LOCKED != 0 {
            return Err(Unknown);
        }
        let hint = addr.checked_next_multiple_of(HUGE).filter(|hint| is_for_pool(*hint));
        let takes = |at: &u64| {
            let ends_inside = at + len <= POOL_WINDOW + POOL_WINDOW_PAGES * HUGE;
            ends_inside && self.space(who).is_hole(at / PAGE, (at + len) / PAGE)
        };
        let placed = if fixed { Some(addr) } else { hint.filter(takes) };
        if fixed && !is_for_pool(addr) || !fixed && addr != 0 && !is_for_pool(addr) || len > MOST_POOL_PAGES * HUGE {
            return Err(Unknown);
        }
        if flags & MAP_FIXED_NOREPLACE != 0 && !self.space(who).is_hole(addr / PAGE, (addr + len) / PAGE) {
            return Ok(EEXIST);
        }
        match flags & MAP_TYPE {
            MAP_SHARED if flags & MAP_GROWSDOWN != 0 => return Ok(EINVAL),
            MAP_SHARED | MAP_PRIVATE => {}
            _ => return Ok(EINVAL),
        }
        if placed.is_none() && landing == 0 && matches!(of.0, Shows::Shared(_) | Shows::Behind(_)) {
            // Pages that the file got would stay.
            return Err(Unknown);
        }
        let (at, nr) = (placed.unwrap_or(landing), len / HUGE);
        let reserves = flags & MAP_NORESERVE == 0;
        if reserves && !self.can_reserve(who, placed, nr, of) {
            return Ok(ENOMEM);
        }
        if at == 0 {
            return Ok(Outcome::Elsewhere);
        }
        self.unmap(who, at / PAGE, (at + len) / PAGE);
        self.put_pool(who, (at / HUGE, nr), (prot & 7, reserves, flags & MAP_TYPE == MAP_SHARED), of)?;
        if flags & (MAP_POPULATE | MAP_NONBLOCK) == MAP_POPULATE {
            self.populate_pool_quietly(who, at / HUGE..at / HUGE + nr)?;
        }
        Ok(placed.map_or(Outcome::Elsewhere, Outcome::Value))
    }

    /// Whether the pages can be promised: with those of private mappings that are replaced, which go in that case.
    fn can_reserve(&mut self, who: u64, placed: Option<u64>, nr: u64, (shows, first): (Shows, u64)) -> bool {
        let wanted = match (shows, &self.pool) {
            (Shows::Shared(object), Some(pool)) => {
                let of = &pool.objects[object];
                let has = |index: &u64| of.pages.contains_key(index) || of.reserved.contains(index);
                (first..first + nr).filter(|index| !has(index)).count() as u64
            }
            _ => nr,
        };
        if self.may_promise(wanted) {
            return true;
        }
        let Some(at) = placed.map(|at| at / HUGE) else { return false };
        if !self.space(who).pool.range(at..at + nr).any(|(_, page)| page.is_private()) {
            return false;
        }
        self.unmap(who, at * HUGE_PAGES, (at + nr) * HUGE_PAGES);
        self.tidy_pool();
        self.may_promise(wanted)
    }

    fn put_pool(
        &mut self,
        who: u64,
        (at, nr): (u64, u64),
        (prot, reserves, is_shared): (u64, bool, bool),
        (shows, first): (Shows, u64),
    ) -> Result<(), Unknown> {
        let piece = self.new_piece();
        let pool = self.the_pool()?;
        let shows = match shows {
            Shows::Private(_) if is_shared => {
                pool.objects.push(PoolObject { nr_pages: nr, ..PoolObject::default() });
                Shows::Shared(pool.objects.len() - 1)
            }
            shows => shows,
        };
        if let (Shows::Shared(object), true) = (shows, reserves) {
            let of = &mut pool.objects[object];
            let missing = (first..first + nr).filter(|index| !of.pages.contains_key(index));
            of.reserved.extend(missing);
        }
        let attrs = PoolAttrs { prot, shows, reserves, dont_fork: false, other: 0 };
        let pages = (at..at + nr).zip(first..);
        let pages = pages.map(|(number, index)| {
            (number, PoolPage { attrs, piece, index, has: Has::Nothing, is_beside_lost: false })
        });
        self.space_mut(who).pool.extend(pages);
        Ok(())
    }

    fn populate_pool_quietly(&mut self, who: u64, pages: Range<u64>) -> Result<(), Unknown> {
        for number in pages {
            let page = &self.space(who).pool[&number];
            let needs = match page.attrs.prot {
                0 => return Ok(()),
                prot if prot & WRITE != 0 && page.is_private() => WRITE,
                _ => READ,
            };
            if self.touch_pool(who, number, needs)?.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn protect_pool(&mut self, who: u64, range: Range<u64>, prot: u64) -> Answer {
        if range.is_empty() || prot >> 24 != 0 {
            return Err(Unknown);
        }
        let is_cut = self.space(who).cuts_changed_pool(range.start, range.end, &|attrs| attrs.prot != prot & 7);
        if prot & !(READ | WRITE | EXEC | PROT_SEM) != 0 || is_cut {
            return Ok(EINVAL);
        }
        let all = huge_range(range.start, range.end);
        let is_mapped = |number: &u64| self.space(who).pool.contains_key(number);
        // An end that cuts no page that changes lies in a hole, or in a mapping that stays what it is.
        let begins_in_hole = !is_mapped(&all.start);
        let stop = all.clone().find(|number| !is_mapped(number));
        if !begins_in_hole {
            self.change_pool(who, all.start..stop.unwrap_or(all.end), &mut |attrs| attrs.prot = prot & 7);
        }
        Ok(if stop.is_some() { ENOMEM } else { OK })
    }

    /// As [`change_range`](Self::change_range).
    fn change_pool(&mut self, who: u64, pages: Range<u64>, how: &mut dyn FnMut(&mut PoolAttrs)) {
        let changed: Vec<u64> = self.space(who).pool.range(pages).map(|(number, _)| *number).collect();
        let mut names = BTreeMap::new();
        for number in &changed {
            let page = &self.space(who).pool[number];
            let (mut attrs, piece) = (page.attrs, page.piece);
            how(&mut attrs);
            if attrs == page.attrs {
                continue;
            }
            let piece = *names.entry(piece).or_insert_with(|| self.new_piece());
            let page = self.space_mut(who).pool.get_mut(number).expect("listed above");
            (page.attrs, page.piece) = (attrs, piece);
        }
        let Some(last) = changed.last() else { return };
        self.split_pool_after(who, last + 1, &names);
    }

    /// As [`split_after`](Self::split_after).
    pub(super) fn split_pool_after(&mut self, who: u64, end: u64, changed: &BTreeMap<u64, u64>) {
        let piece = self.new_piece();
        let pages = &mut self.space_mut(who).pool;
        let Some(tail) = pages.get(&end).map(|page| page.piece).filter(|tail| changed.contains_key(tail)) else {
            return;
        };
        pages.range_mut(end..).filter(|(_, page)| page.piece == tail).for_each(|(_, page)| page.piece = piece);
    }

    fn advise_pool(&mut self, who: u64, range: Range<u64>, advice: u64) -> Answer {
        if range.is_empty() || range.end * PAGE > self.task_size {
            return Err(Unknown);
        }
        match advice {
            MADV_POPULATE_READ | MADV_POPULATE_WRITE => {
                let needs = if advice == MADV_POPULATE_WRITE { WRITE } else { READ };
                return self.populate_pool(who, range, needs);
            }
            MADV_REMOVE => return self.remove_pool(who, range),
            MADV_WIPEONFORK | MADV_COLD | MADV_PAGEOUT | MADV_GUARD_INSTALL | MADV_GUARD_REMOVE | MADV_FREE
            | MADV_COLLAPSE => return Ok(EINVAL),
            0..=2
            | MADV_WILLNEED
            | MADV_DONTNEED
            | MADV_DONTNEED_LOCKED
            | MADV_DONTFORK..=MADV_DOFORK
            | MADV_HUGEPAGE..=MADV_DODUMP
            | MADV_KEEPONFORK => {}
            _ => return Ok(EINVAL),
        }
        let all = huge_range(range.start, range.end);
        let is_full = all.clone().all(|number| self.space(who).pool.contains_key(&number));
        let is_drop = matches!(advice, MADV_DONTNEED | MADV_DONTNEED_LOCKED);
        let changes = |attrs: &PoolAttrs| is_drop || attrs.advised(advice) != *attrs;
        let cuts = |at: u64| self.space(who).cuts_changed_pool(at, at, &changes);
        let (cuts_start, cuts_end) = (cuts(range.start), cuts(range.end));
        let done = if is_full { OK } else { ENOMEM };
        match advice {
            MADV_WILLNEED => Ok(done),
            _ if cuts_start => Ok(EINVAL),
            MADV_DONTNEED | MADV_DONTNEED_LOCKED => {
                self.drop_pool(who, range.start.div_ceil(HUGE_PAGES)..range.end / HUGE_PAGES)?;
                Ok(done)
            }
            // The mappings before the one that is cut have it.
            _ if cuts_end => {
                let mut first = range.end / HUGE_PAGES;
                while first > all.start
                    && self.space(who).pool.contains_key(&(first - 1))
                    && self.space(who).pool_joined(first)?
                {
                    first -= 1;
                }
                self.set_advice_of_pool(who, all.start..first, advice);
                Ok(EINVAL)
            }
            _ => {
                self.set_advice_of_pool(who, all, advice);
                Ok(done)
            }
        }
    }

    fn set_advice_of_pool(&mut self, who: u64, pages: Range<u64>, advice: u64) {
        self.change_pool(who, pages, &mut |attrs| *attrs = attrs.advised(advice));
    }

    fn populate_pool(&mut self, who: u64, range: Range<u64>, needs: u64) -> Answer {
        for number in huge_range(range.start, range.end) {
            let Some(page) = self.space(who).pool.get(&number) else { return Ok(ENOMEM) };
            if page.attrs.prot & needs == 0 {
                return Ok(EINVAL);
            }
            if self.touch_pool(who, number, needs)?.is_none() {
                return Ok(EFAULT);
            }
        }
        Ok(OK)
    }

    /// Holes in objects, up to the first page that is of none. Of pages that are met in part that part becomes zero.
    fn remove_pool(&mut self, who: u64, range: Range<u64>) -> Answer {
        let mut at = range.start;
        let mut is_full = true;
        while at < range.end {
            let Some((number, page)) =
                self.space(who).pool.range(at / HUGE_PAGES..range.end.div_ceil(HUGE_PAGES)).next()
            else {
                return Ok(ENOMEM);
            };
            let (first, page) = (at.max(number * HUGE_PAGES), page.clone());
            let end = range.end.min((number + 1) * HUGE_PAGES);
            is_full &= first == at;
            let Shows::Shared(object) = page.attrs.shows else { return Ok(EACCES) };
            if page.attrs.prot & WRITE == 0 {
                return Err(Unknown);
            }
            let from = page.index * HUGE_PAGES;
            self.cut_hole(object, from + first % HUGE_PAGES..from + (end - number * HUGE_PAGES))?;
            at = end;
        }
        Ok(if is_full { OK } else { ENOMEM })
    }

    fn mincore_pool(&self, who: u64, range: Range<u64>) -> Answer {
        let pages = &self.space(who).pool;
        if range.is_empty() || !huge_range(range.start, range.end).all(|number| pages.contains_key(&number)) {
            return if range.is_empty() { Err(Unknown) } else { Ok(ENOMEM) };
        }
        if range.end - range.start > 64 {
            return Ok(OK);
        }
        let mut bits = 0;
        for (i, page) in range.enumerate() {
            match &pages[&(page / HUGE_PAGES)] {
                PoolPage { has: Has::Own(_), .. } => bits |= 1 << i,
                PoolPage { has: Has::Lost, .. } => {}
                PoolPage { has: Has::Nothing, attrs: PoolAttrs { shows: Shows::Private(_), .. }, .. } => {}
                // Entries of an object's pages are copied by a fork, or not.
                _ => return Err(Unknown),
            }
        }
        Ok(Outcome::Value(bits))
    }

    /// The signal, if the access is refused.
    fn access_pool(&mut self, who: u64, addr: u64, needs: u64) -> Result<Option<Outcome>, Unknown> {
        let number = addr / HUGE;
        let prot = self.space(who).pool[&number].attrs.prot;
        if if needs == READ { prot == 0 } else { prot & needs == 0 } {
            return Ok(Some(Outcome::ACCERR));
        }
        Ok(self.touch_pool(who, number, needs)?.is_none().then_some(Outcome::ADRERR))
    }

    fn load_pool(&mut self, who: u64, addr: u64, bytes: u64) -> Answer {
        if !addr.is_multiple_of(bytes) {
            return Err(Unknown);
        }
        if let Some(signal) = self.access_pool(who, addr, READ)? {
            return Ok(signal);
        }
        let word = self.words(who, addr / HUGE)?.get(&(word_at(addr))).copied().unwrap_or(0);
        Ok(Outcome::Value(if bytes == 1 { word >> (addr % 8 * 8) & 0xff } else { word }))
    }

    fn store_pool(&mut self, who: u64, addr: u64, bytes: u64, value: u64) -> Answer {
        if !addr.is_multiple_of(bytes) {
            return Err(Unknown);
        }
        if let Some(signal) = self.access_pool(who, addr, WRITE)? {
            return Ok(signal);
        }
        let word = self.words(who, addr / HUGE)?.entry(word_at(addr)).or_insert(0);
        *word = if bytes == 1 { with_byte(*word, addr, value) } else { value };
        Ok(OK)
    }
}
