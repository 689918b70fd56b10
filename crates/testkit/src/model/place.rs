//! mmap, munmap, mprotect, mremap, brk.

use super::*;
use crate::op::{HEAP_BYTES, WINDOW};

const MAP_TYPE: u64 = 0xf;
const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_FIXED: u64 = 0x10;
const MAP_POPULATE: u64 = 0x8000;
const MAP_NONBLOCK: u64 = 0x1_0000;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const MREMAP_MAYMOVE: u64 = 1;
const MREMAP_FIXED: u64 = 2;
const MREMAP_DONTUNMAP: u64 = 4;
/// Everything below is the system's to refuse (`vm.mmap_min_addr`).
const MIN_ADDR: u64 = 65_536;

impl Model {
    pub(super) fn mmap(&mut self, who: u64, addr: u64, len: u64, prot: u64, flags: u64, landing: u64) -> Answer {
        let fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
        if len == 0 {
            return Ok(EINVAL);
        }
        let Some(len) = page_align(len).filter(|len| *len <= TASK_SIZE) else { return Ok(ENOMEM) };
        if fixed && addr > TASK_SIZE - len {
            // Linux takes an address in the last page for an error number and
            // gives it back.
            return if addr > u64::MAX - 4095 { Err(Unknown) } else { Ok(ENOMEM) };
        }
        if fixed && !is_aligned(addr) {
            return Ok(EINVAL);
        }
        if fixed && addr < MIN_ADDR {
            return Ok(EPERM);
        }
        let hint = addr & !(PAGE - 1);
        let taken = |space: &Space, at: u64| !space.is_hole(at / PAGE, (at + len) / PAGE);
        if flags & MAP_FIXED_NOREPLACE != 0 && taken(self.space(who), addr) {
            return Ok(EEXIST);
        }
        let shared = match flags & MAP_TYPE {
            MAP_SHARED => true,
            MAP_PRIVATE => false,
            _ => return Ok(EINVAL),
        };
        let placed = fixed || (hint >= WINDOW && !taken(self.space(who), hint));
        let at = match (placed, landing) {
            (true, _) if fixed => addr,
            (true, _) => hint,
            (false, 0) => return Ok(Outcome::Elsewhere),
            (false, landing) => landing,
        };
        let object = shared.then(|| {
            self.objects.push(Object { nr_pages: len / PAGE, ..Object::default() });
            self.objects.len() - 1
        });
        let attrs =
            Attrs { prot: prot & 7, object, dont_fork: false, wipe_on_fork: false, pattern: 0, other: flags & 0x4100 };
        self.put_new(who, at, len, attrs);
        if flags & (MAP_POPULATE | MAP_NONBLOCK) == MAP_POPULATE {
            self.populate_quietly(who, at / PAGE, (at + len) / PAGE);
        }
        Ok(if placed { Outcome::Value(at) } else { Outcome::Elsewhere })
    }

    fn put_new(&mut self, who: u64, at: u64, len: u64, attrs: Attrs) {
        let piece = self.new_piece();
        let space = self.space_mut(who);
        for (index, number) in (at / PAGE..(at + len) / PAGE).enumerate() {
            let page = Page {
                attrs: attrs.clone(),
                piece,
                index: index as u64,
                present: Present::No,
                content: Content::new(),
                guard: false,
                lazy: false,
            };
            space.pages.insert(number, page);
        }
    }

    pub(super) fn munmap(&mut self, who: u64, addr: u64, len: u64) -> Answer {
        if !is_aligned(addr) || addr > TASK_SIZE || len > TASK_SIZE - addr || len == 0 {
            return Ok(EINVAL);
        }
        let (first, end) = page_range(addr, len);
        self.space_mut(who).remove(first, end);
        Ok(OK)
    }

    pub(super) fn mprotect(&mut self, who: u64, addr: u64, len: u64, prot: u64) -> Answer {
        const SEM: u64 = 8;
        const GROWSDOWN: u64 = 0x0100_0000;
        const GROWSUP: u64 = 0x0200_0000;
        let prot_alone = prot & !(GROWSDOWN | GROWSUP);
        if prot & GROWSDOWN != 0 && prot & GROWSUP != 0 || !is_aligned(addr) {
            return Ok(EINVAL);
        }
        if len == 0 {
            return Ok(OK);
        }
        let Some(end) = page_align(len).and_then(|len| addr.checked_add(len)).filter(|end| *end > addr) else {
            return Ok(ENOMEM);
        };
        if prot_alone & !(READ | WRITE | EXEC | SEM) != 0 {
            return Ok(EINVAL);
        }
        let (first, end) = (addr / PAGE, end / PAGE);
        if prot != prot_alone {
            return Err(Unknown);
        }
        self.change(who, first, end, &mut |attrs| attrs.prot = prot_alone & 7);
        Ok(if self.has_hole(who, first, end) { ENOMEM } else { OK })
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

    /// What follows `end` and had the same piece as what was changed before it.
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

    pub(super) fn mremap(&mut self, who: u64, args: [u64; 6]) -> Answer {
        let [old, old_len, new_len, flags, new, landing] = args;
        if flags & !(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP) != 0 || !is_aligned(old) {
            return Ok(EINVAL);
        }
        let (old_len, new_len) = (page_align(old_len).unwrap_or(0), page_align(new_len).unwrap_or(0));
        if new_len == 0 || new_len > TASK_SIZE {
            return Ok(EINVAL);
        }
        let fixed = flags & MREMAP_FIXED != 0;
        let keep = flags & MREMAP_DONTUNMAP != 0;
        if fixed || keep {
            // Sums wrap, as they do in Linux.
            let overlap = old < new.wrapping_add(new_len) && new < old.wrapping_add(old_len);
            if fixed && (new > TASK_SIZE - new_len || !is_aligned(new))
                || keep && old_len != new_len
                || flags & MREMAP_MAYMOVE == 0
                || fixed && overlap
            {
                return Ok(EINVAL);
            }
        }
        if !fixed && keep && (new != 0) {
            return Err(Unknown);
        }
        if fixed && new < MIN_ADDR {
            return Err(Unknown);
        }
        let first = old / PAGE;
        let Some(head) = self.space(who).pages.get(&first).cloned() else {
            return Ok(if old_len == 0 || old < TASK_SIZE { EFAULT } else { return Err(Unknown) });
        };
        if old_len == 0 && head.attrs.object.is_none() {
            return Ok(EINVAL);
        }
        if old_len > TASK_SIZE {
            return if fixed || keep || new_len <= old_len { Err(Unknown) } else { Ok(EFAULT) };
        }
        if !fixed && !keep && new_len <= old_len && old_len > 0 {
            return self.shrink(who, first, old_len / PAGE, new_len / PAGE);
        }
        for page in first + 1..first + old_len / PAGE {
            match self.space(who).pages.contains_key(&page) {
                false => return if fixed { Err(Unknown) } else { Ok(EFAULT) },
                // Linux 6.17 moves several VMAs at once, older ones refuse.
                true if !self.space(who).joined(page)? => return if fixed { Err(Unknown) } else { Ok(EFAULT) },
                true => {}
            }
        }
        if keep && head.attrs.object.is_some() && old_len == 0 {
            return Err(Unknown);
        }
        let grow_to = first + new_len / PAGE;
        let grow_from = first + old_len / PAGE;
        if !fixed && !keep && old_len > 0 && self.space(who).is_hole(grow_from, grow_to) {
            if old + new_len > TASK_SIZE {
                return Err(Unknown);
            }
            self.extend(who, grow_from, grow_to);
            return Ok(Outcome::Value(old));
        }
        if flags & MREMAP_MAYMOVE == 0 {
            return Ok(ENOMEM);
        }
        let to = match (fixed, landing) {
            (true, _) => new / PAGE,
            (false, 0) => u64::MAX,
            (false, landing) => landing / PAGE,
        };
        if !fixed && to != u64::MAX && to < grow_from && first < to + new_len / PAGE && !keep {
            // Landing on what has just moved away is fine, on what stays is not.
            return Err(Unknown);
        }
        self.relocate(who, first, old_len / PAGE, new_len / PAGE, to, keep);
        Ok(if fixed { Outcome::Value(new) } else { Outcome::Elsewhere })
    }

    fn shrink(&mut self, who: u64, first: u64, old_pages: u64, new_pages: u64) -> Answer {
        if old_pages > new_pages {
            let tail = first + new_pages..first + old_pages;
            // Several VMAs, or a hole: Linux's versions differ.
            for page in first + 1..tail.end {
                if !self.space(who).pages.contains_key(&page) || !self.space(who).joined(page)? {
                    return Err(Unknown);
                }
            }
            self.space_mut(who).remove(tail.start, tail.end);
        } else {
            for page in first + 1..first + old_pages {
                if !self.space(who).pages.contains_key(&page) || !self.space(who).joined(page)? {
                    return Err(Unknown);
                }
            }
        }
        Ok(Outcome::Value(first * PAGE))
    }

    fn extend(&mut self, who: u64, from: u64, to: u64) {
        let space = self.space_mut(who);
        let last = space.pages[&(from - 1)].clone();
        for (i, number) in (from..to).enumerate() {
            let index = last.index + 1 + i as u64;
            let page = Page {
                index,
                present: Present::No,
                content: Content::new(),
                guard: false,
                lazy: false,
                ..last.clone()
            };
            space.pages.insert(number, page);
        }
    }

    /// Moves, grows or copies to page `to`; `u64::MAX` is away for good.
    fn relocate(&mut self, who: u64, first: u64, old_pages: u64, new_pages: u64, to: u64, keep: bool) {
        let (piece, left) = (self.new_piece(), self.new_piece());
        let space = self.space_mut(who);
        let head = space.pages[&first].clone();
        let mut moved = Vec::new();
        for i in 0..old_pages {
            let page = &space.pages[&(first + i)];
            moved.push(Page { piece, ..page.clone() });
            if keep {
                let empty = Page {
                    piece: left,
                    present: Present::No,
                    content: Content::new(),
                    guard: false,
                    lazy: false,
                    ..page.clone()
                };
                space.pages.insert(first + i, empty);
            } else {
                space.pages.remove(&(first + i));
            }
        }
        if keep {
            // The rest of the mapping before and behind is no longer the same VMA
            // for sure.
            let tail = self.last_piece + 1;
            self.last_piece += 1;
            let space = self.space_mut(who);
            for (_, page) in space.pages.range_mut(first + old_pages..) {
                if page.piece == head.piece {
                    page.piece = tail;
                }
            }
        }
        for i in old_pages..new_pages {
            moved.push(Page {
                piece,
                index: head.index + i,
                present: Present::No,
                content: Content::new(),
                guard: false,
                lazy: false,
                ..head.clone()
            });
        }
        if to != u64::MAX {
            let space = self.space_mut(who);
            for (number, page) in (to..to + new_pages).zip(moved) {
                space.pages.insert(number, page);
            }
        }
    }

    pub(super) fn brk(&mut self, who: u64, addr: u64) -> Answer {
        let space = self.space(who);
        let now = space.brk;
        if addr < HEAP || addr >= HEAP + HEAP_BYTES / 2 {
            return if addr < HEAP { Ok(Outcome::Value(now)) } else { Err(Unknown) };
        }
        let (old_end, new_end) = (now.div_ceil(PAGE), addr.div_ceil(PAGE));
        if new_end < old_end {
            if space.is_hole(new_end, old_end) {
                return Ok(Outcome::Value(now));
            }
            self.space_mut(who).remove(new_end, old_end);
        } else if new_end > old_end {
            // One page has to stay free behind the heap.
            if !space.is_hole(old_end, new_end + 1) {
                return Ok(Outcome::Value(now));
            }
            let joins = space.pages.get(&(old_end - 1)).map(|page| page.piece);
            let attrs =
                Attrs { prot: READ | WRITE, object: None, dont_fork: false, wipe_on_fork: false, pattern: 0, other: 0 };
            let _ = joins;
            self.put_new(who, old_end * PAGE, (new_end - old_end) * PAGE, attrs);
        }
        self.space_mut(who).brk = addr;
        Ok(Outcome::Value(addr))
    }
}

impl Space {
    pub(super) fn remove(&mut self, first: u64, end: u64) {
        let gone: Vec<u64> = self.pages.range(first..end).map(|(number, _)| *number).collect();
        for number in gone {
            self.pages.remove(&number);
        }
    }
}
