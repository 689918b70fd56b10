//! mmap, munmap, mprotect, brk.

use super::access::GUARD_GAP_PAGES;
use super::*;
use crate::numbers::{
    MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_LOCKED, MAP_NONBLOCK, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE,
    MAP_SHARED, MAP_TYPE, PROT_GROWSDOWN, PROT_GROWSUP, PROT_SEM,
};
use crate::op::{HEAP_BYTES, WINDOW, WINDOW_PAGES, is_for_pool};

/// Everything below is the system's to refuse (`vm.mmap_min_addr`).
pub(super) const MIN_ADDR: u64 = 65_536;

impl Model {
    /// Of new memory, or of a file from a page on.
    pub(super) fn mmap(&mut self, who: u64, args: [u64; 5], of: Option<(usize, u64)>) -> Answer {
        let [addr, len, prot, flags, landing] = args;
        let fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
        if len == 0 {
            return Ok(EINVAL);
        }
        let Some(len) = page_align(len).filter(|len| *len <= self.task_size) else { return Ok(ENOMEM) };
        if fixed && addr > self.task_size - len {
            // Linux takes an address in the last page for an error number and
            // gives it back.
            return if addr > u64::MAX - 4095 { Err(Unknown) } else { Ok(ENOMEM) };
        }
        if fixed && !is_aligned(addr) {
            return Ok(EINVAL);
        }
        if fixed && addr < MIN_ADDR {
            return Err(Unknown);
        }
        let hint = addr & !(PAGE - 1);
        if !fixed && is_for_pool(hint) {
            return Err(Unknown);
        }
        let taken = |space: &Space, at: u64| !space.is_hole(at / PAGE, (at + len) / PAGE);
        if flags & MAP_FIXED_NOREPLACE != 0 && taken(self.space(who), addr) {
            return Ok(EEXIST);
        }
        let shared = match flags & MAP_TYPE {
            MAP_SHARED if flags & MAP_GROWSDOWN != 0 => return Ok(EINVAL),
            MAP_SHARED => true,
            MAP_PRIVATE => false,
            _ => return Ok(EINVAL),
        };
        let locked = flags & MAP_LOCKED != 0;
        if locked {
            self.space(who).can_lock(len / PAGE)?;
        }
        let in_window = (WINDOW..WINDOW + WINDOW_PAGES * PAGE).contains(&hint);
        let placed = fixed || (in_window && self.space(who).takes_hint(hint / PAGE, (hint + len) / PAGE));
        let at = match (placed, landing) {
            (true, _) if fixed => addr,
            (true, _) => hint,
            // The file's pages would stay.
            (false, 0) if of.is_some() && flags & MAP_POPULATE != 0 => return Err(Unknown),
            (false, 0) => return Ok(Outcome::Elsewhere),
            (false, landing) => landing,
        };
        if fixed && self.space(who).cuts_pool(at / PAGE, (at + len) / PAGE) {
            return Ok(EINVAL);
        }
        let (file, index) = of.map_or((None, 0), |(file, index)| (Some(file), index));
        let object = shared.then(|| file.unwrap_or_else(|| self.new_object(len / PAGE)));
        let behind = file.filter(|_| !shared);
        let grows = flags & MAP_GROWSDOWN != 0;
        let other = flags & MAP_NORESERVE;
        let attrs = Attrs { prot: prot & 7, object, behind, grows, locked, other, ..Attrs::default() };
        self.put_new(who, at, len, (attrs, index));
        if locked || flags & (MAP_POPULATE | MAP_NONBLOCK) == MAP_POPULATE {
            self.populate_quietly(who, at / PAGE, (at + len) / PAGE);
        }
        Ok(if placed { Outcome::Value(at) } else { Outcome::Elsewhere })
    }

    fn new_object(&mut self, nr_pages: u64) -> usize {
        self.objects.push(Object { nr_pages, ..Object::default() });
        self.objects.len() - 1
    }

    fn put_new(&mut self, who: u64, at: u64, len: u64, (attrs, first): (Attrs, u64)) {
        self.unmap(who, at / PAGE, (at + len) / PAGE);
        let piece = self.new_piece();
        let space = self.space_mut(who);
        for (index, number) in (first..).zip(at / PAGE..(at + len) / PAGE) {
            let page = Page { attrs: attrs.clone(), piece, index, ..Page::default() };
            space.pages.insert(number, page);
        }
    }

    pub(super) fn munmap(&mut self, who: u64, addr: u64, len: u64) -> Answer {
        if !is_aligned(addr) || addr > self.task_size || len > self.task_size - addr || len == 0 {
            return Ok(EINVAL);
        }
        let (first, end) = page_range(addr, len);
        if self.space(who).cuts_pool(first, end) {
            return Ok(EINVAL);
        }
        self.unmap(who, first, end);
        Ok(OK)
    }

    pub(super) fn mprotect(&mut self, who: u64, addr: u64, len: u64, prot: u64) -> Answer {
        let prot_alone = prot & !(PROT_GROWSDOWN | PROT_GROWSUP);
        if prot & PROT_GROWSDOWN != 0 && prot & PROT_GROWSUP != 0 || !is_aligned(addr) {
            return Ok(EINVAL);
        }
        if len == 0 {
            return Ok(OK);
        }
        let Some(end) = page_align(len).and_then(|len| addr.checked_add(len)).filter(|end| *end > addr) else {
            return Ok(ENOMEM);
        };
        if prot_alone & !(READ | WRITE | EXEC | PROT_SEM) != 0 {
            return Ok(EINVAL);
        }
        let (mut first, end) = (addr / PAGE, end / PAGE);
        if prot != prot_alone {
            match self.space(who).grown(first, end, prot & PROT_GROWSDOWN != 0)? {
                Ok(start) => first = start,
                Err(refusal) => return Ok(refusal),
            }
        }
        let filled = self.filled_by_mprotect(who, first, end, prot);
        if !filled.is_empty() && !self.features.has(Feature::LockedWrites) {
            return Err(Unknown);
        }
        self.change(who, first, end, &mut |attrs| attrs.prot = prot_alone & 7);
        for number in filled {
            _ = self.touch(who, number, WRITE);
        }
        Ok(if self.has_hole(who, first, end) { ENOMEM } else { OK })
    }

    /// Pages up to the first hole that are locked and private and become writable:
    /// they get memory of their own at once.
    fn filled_by_mprotect(&self, who: u64, first: u64, end: u64, prot: u64) -> Vec<u64> {
        let pages = self.space(who).pages.range(first..end).zip(first..).take_while(|((number, _), i)| *number == i);
        let is_filled = |page: &Page| {
            page.attrs.locked && page.attrs.object.is_none() && page.attrs.prot & WRITE == 0 && prot & WRITE != 0
        };
        pages.filter(|((_, page), _)| is_filled(page)).map(|(_, number)| number).collect()
    }

    fn has_hole(&self, who: u64, first: u64, end: u64) -> bool {
        !self.space(who).is_full(first, end)
    }

    /// Changes the attributes from `first` to the first hole or `end`.
    fn change(&mut self, who: u64, first: u64, end: u64, how: &mut dyn FnMut(&mut Attrs)) {
        let mut stop = first;
        while stop < end && self.space(who).pages.contains_key(&stop) {
            stop += 1;
        }
        self.change_range(who, first, stop, how);
    }

    /// Changes the attributes of all mapped pages in the range. Each stretch that
    /// really changes is a piece of its own, and so is what follows it.
    pub(super) fn change_range(&mut self, who: u64, first: u64, end: u64, how: &mut dyn FnMut(&mut Attrs)) {
        let (mut inside, mut last) = (BTreeMap::new(), self.last_piece);
        let mut renamed = |piece: u64| {
            *inside.entry(piece).or_insert_with(|| {
                last += 1;
                last
            })
        };
        let space = self.spaces.get_mut(&who).expect("checked in apply");
        for (_, page) in space.pages.range_mut(first..end) {
            let before = page.attrs.clone();
            how(&mut page.attrs);
            if page.attrs != before {
                page.piece = renamed(page.piece);
            }
        }
        self.last_piece = last;
        self.split_after(who, end, &inside);
    }

    /// Pages after `end` that had the same piece as the pages that were changed before it.
    fn split_after(&mut self, who: u64, end: u64, changed: &BTreeMap<u64, u64>) {
        let piece = self.new_piece();
        let space = self.space_mut(who);
        let Some(tail) = space.pages.get(&end).map(|page| page.piece).filter(|tail| changed.contains_key(tail)) else {
            return;
        };
        for (_, page) in space.pages.range_mut(end..) {
            if page.piece == tail {
                page.piece = piece;
            }
        }
    }

    /// Nothing is mapped there any more. The next pages are a VMA of their own, also
    /// when something grows up to it again.
    pub(super) fn unmap(&mut self, who: u64, first: u64, end: u64) {
        self.unmap_pool(who, first, end);
        let space = self.space_mut(who);
        let inside: Vec<u64> = space.pages.range(first..end).map(|(at, _)| *at).collect();
        let pieces = inside.iter().filter_map(|at| space.pages.remove(at)).map(|page| (page.piece, 0)).collect();
        self.split_after(who, end, &pieces);
    }

    pub(super) fn brk(&mut self, who: u64, addr: u64) -> Answer {
        let space = self.space(who);
        let now = space.brk;
        if !(HEAP..HEAP + HEAP_BYTES / 2).contains(&addr) {
            return if addr < HEAP { Ok(Outcome::Value(now)) } else { Err(Unknown) };
        }
        let (old_end, new_end) = (now.div_ceil(PAGE), addr.div_ceil(PAGE));
        if new_end < old_end {
            if space.is_hole(new_end, old_end) {
                return Ok(Outcome::Value(now));
            }
            self.unmap(who, new_end, old_end);
        } else if new_end > old_end {
            // One page has to stay free behind the heap.
            if !space.is_hole(old_end, new_end + 1) {
                return Ok(Outcome::Value(now));
            }
            let attrs = Attrs { prot: READ | WRITE, ..Attrs::default() };
            self.put_new(who, old_end * PAGE, (new_end - old_end) * PAGE, (attrs, 0));
        }
        self.space_mut(who).brk = addr;
        Ok(Outcome::Value(addr))
    }
}

impl Space {
    /// Whether a mapping without `MAP_FIXED` goes where it asks to: not if
    /// something is there, nor close below a mapping that grows.
    fn takes_hint(&self, first: u64, end: u64) -> bool {
        match self.pages.range(first..).next() {
            None => true,
            Some((next, page)) if page.attrs.grows => end + GUARD_GAP_PAGES <= *next,
            Some((next, _)) => end <= *next,
        }
    }

    /// Where mprotect begins with `PROT_GROWSDOWN`: at the start of the first
    /// mapping in the range. Nothing here grows up.
    fn grown(&self, first: u64, end: u64, down: bool) -> Result<Result<u64, Outcome>, Unknown> {
        let Some((number, page)) = self.pages.range(first..end).next() else { return Ok(Err(ENOMEM)) };
        if !down {
            return Ok(Err(if *number > first { ENOMEM } else { EINVAL }));
        }
        if !page.attrs.grows {
            return Ok(Err(EINVAL));
        }
        let mut start = *number;
        while self.pages.contains_key(&(start - 1)) && self.joined(start)? {
            start -= 1;
        }
        Ok(Ok(start))
    }
}
