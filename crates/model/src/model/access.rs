//! Loads, stores, fetches, fork and exit.

use super::*;

/// The code of `ret`.
pub(crate) const RET: u64 = 0xc3;

impl Model {
    /// Brings the page in for an access that needs one of the rights; else the
    /// signal.
    pub(super) fn touch(&mut self, who: u64, number: u64, needs: u64) -> Result<(), Outcome> {
        if !self.space(who).pages.contains_key(&number) {
            self.grow(who, number)?;
        }
        let page = &self.space(who).pages[&number];
        let allowed = match needs {
            // A page that can be written or executed can be read.
            READ => page.attrs.prot != 0,
            _ => page.attrs.prot & needs != 0,
        };
        if !allowed {
            return Err(Outcome::ACCERR);
        }
        if page.guard {
            return Err(GUARDED);
        }
        if page.present == Present::Failed {
            return Err(Outcome::MCEERR);
        }
        if let Some(object) = page.shown() {
            return self.touch_object(who, number, object, needs);
        }
        self.may_bring_neighbours(who, number);
        let page = self.space_mut(who).pages.get_mut(&number).expect("looked up above");
        page.lazy &= needs != WRITE;
        page.present = match (page.present, needs) {
            (_, WRITE) | (Present::Data, _) => Present::Data,
            _ => Present::Zero,
        };
        Ok(())
    }

    /// The page shows one of the object, of which a private mapping gets a copy for a store.
    fn touch_object(&mut self, who: u64, number: u64, object: usize, needs: u64) -> Result<(), Outcome> {
        let Model { spaces, objects, .. } = self;
        let page =
            spaces.get_mut(&who).and_then(|space| space.pages.get_mut(&number)).expect("looked up by the caller");
        let object = &mut objects[object];
        if page.index >= object.nr_pages {
            return Err(Outcome::ADRERR);
        }
        if object.failed.contains(&page.index) {
            return Err(Outcome::MCEERR);
        }
        let content = object.pages.entry(page.index).or_default();
        if page.attrs.behind.is_some() && needs == WRITE {
            (page.present, page.content) = (Present::Data, content.clone());
        }
        Ok(())
    }

    /// Makes a mapping that grows reach down to page `number`.
    fn grow(&mut self, who: u64, number: u64) -> Result<(), Outcome> {
        let Ok(Some((end, head))) = self.space(who).grower(number) else { return Err(Outcome::MAPERR) };
        let empty = head.emptied();
        self.space_mut(who).pages.extend((number..end).map(|new| (new, empty.clone())));
        Ok(())
    }

    fn content(&mut self, who: u64, number: u64) -> &mut Content {
        let page = &self.space(who).pages[&number];
        match (page.shown(), page.index) {
            (Some(object), index) => self.objects[object].pages.entry(index).or_default(),
            (None, _) => &mut self.space_mut(who).pages.get_mut(&number).expect("indexed above").content,
        }
    }

    pub(super) fn load(&mut self, who: u64, addr: u64, bytes: u64) -> Answer {
        if !addr.is_multiple_of(bytes) {
            return Err(Unknown);
        }
        self.space(who).grower(addr / PAGE)?;
        if let Err(signal) = self.touch(who, addr / PAGE, READ) {
            return Ok(signal);
        }
        let word = self.content(who, addr / PAGE).get(&word_of(addr)).copied().unwrap_or(0);
        Ok(Outcome::Value(if bytes == 1 { word >> (addr % 8 * 8) & 0xff } else { word }))
    }

    pub(super) fn store(&mut self, who: u64, addr: u64, bytes: u64, value: u64) -> Answer {
        if !addr.is_multiple_of(bytes) {
            return Err(Unknown);
        }
        self.space(who).grower(addr / PAGE)?;
        if self.is_behind_the_size(who, addr) {
            return Err(Unknown);
        }
        if let Err(signal) = self.touch(who, addr / PAGE, WRITE) {
            return Ok(signal);
        }
        let word = self.content(who, addr / PAGE).entry(word_of(addr)).or_insert(0);
        let shift = addr % 8 * 8;
        *word = if bytes == 1 { *word & !(0xff << shift) | (value & 0xff) << shift } else { value };
        Ok(OK)
    }

    pub(super) fn exec(&mut self, who: u64, addr: u64) -> Answer {
        let number = addr / PAGE;
        if self.space(who).grower(number)?.is_some() {
            return Err(Unknown);
        }
        let page = self.space(who).pages.get(&number);
        // Only a `ret` is safe to run: where nothing forbids it, it has to be one.
        if page.is_some_and(|page| page.attrs.behind.is_some()) {
            return Err(Unknown);
        }
        let runs = page.filter(|page| page.attrs.prot & EXEC != 0 && !page.guard);
        if let Some(page) = runs {
            let content = match page.attrs.object.map(|object| &self.objects[object]) {
                Some(object) if page.index >= object.nr_pages || object.failed.contains(&page.index) => None,
                None if page.present == Present::Failed => None,
                Some(object) => Some(object.pages.get(&page.index)),
                None => Some(Some(&page.content)),
            };
            let word = content.map(|content| content.and_then(|c| c.get(&word_of(addr))).copied().unwrap_or(0));
            if word.is_some_and(|word| word >> (addr % 8 * 8) & 0xff != RET) {
                return Err(Unknown);
            }
        }
        // Without the right, Linux on x86 brings an empty page in by a read before
        // it refuses the fetch.
        let empty = page.is_some_and(|page| match page.attrs.object {
            _ if page.guard => true,
            Some(object) => !self.objects[object].has(page.index),
            None => !matches!(page.present, Present::Zero | Present::Data | Present::Failed),
        });
        if empty && page.is_some_and(|page| page.attrs.prot & EXEC == 0 && page.attrs.prot != 0) {
            return Err(Unknown);
        }
        match self.touch(who, number, EXEC) {
            Err(signal) => Ok(signal),
            Ok(()) => Ok(OK),
        }
    }

    pub(super) fn fork(&mut self, who: u64, child: u64) -> Answer {
        if self.spaces.contains_key(&child) {
            return Err(Unknown);
        }
        let mut copy = self.space(who).clone();
        copy.pages.retain(|_, page| !page.attrs.dont_fork);
        for page in copy.pages.values_mut() {
            page.attrs.locked = false;
            if page.attrs.wipe_on_fork {
                page.present = Present::No;
                page.content.clear();
                page.guard = false;
            } else if page.present == Present::Zero {
                page.present = Present::Maybe;
            }
        }
        copy.pool = self.fork_pool(who);
        self.spaces.insert(child, copy);
        Ok(OK)
    }

    pub(super) fn exit(&mut self, who: u64) -> Answer {
        if who == 0 {
            return Err(Unknown);
        }
        self.spaces.remove(&who);
        Ok(OK)
    }
}

impl Space {
    /// The mapping that a touch of the unmapped page `number` would make grow:
    /// its first page's number, and that page.
    fn grower(&self, number: u64) -> Result<Option<(u64, &Page)>, Unknown> {
        if self.pages.contains_key(&number) || number < MIN_PAGE {
            return Ok(None);
        }
        let Some((first, head)) = self.pages.range(number..).next().filter(|(_, page)| page.attrs.grows) else {
            return Ok(None);
        };
        if let Some((below, page)) = self.pages.range(..number).next_back() {
            let counts = !page.attrs.grows && page.attrs.prot != 0;
            if counts && number - (below + 1) < GUARD_GAP_PAGES {
                return Ok(None);
            }
        }
        // Its size decides; it may be unknown where it ends.
        let mut end = first + 1;
        while end - number <= STACK_LIMIT_PAGES && self.pages.contains_key(&end) && self.joined(end)? {
            end += 1;
        }
        Ok((end - number <= STACK_LIMIT_PAGES).then_some((*first, head)))
    }
}

/// Pages that stay free around a mapping that grows.
pub(super) const GUARD_GAP_PAGES: u64 = 256;
/// `RLIMIT_STACK`, the usual 8 MiB.
const STACK_LIMIT_PAGES: u64 = 2048;
const MIN_PAGE: u64 = 16;

/// Outcome of touching a guard page.
const GUARDED: Outcome = Outcome::MAPERR;

fn word_of(addr: u64) -> u16 {
    (addr % PAGE / 8 * 8) as u16
}
