//! Pages of a pool: who has them, who is promised one, and the counts that follow from that.
//!
//! ```text
//! used      private pages, counted once however many entries they have, and pages of objects
//! promised  reservations of objects; private mappings that reserve: an entry that has no page of its own
//! ```
//! A private page of n entries is one page, and nothing is promised for copies: a store needs a page that is not promised. The entry in
//! the mapping that reserves owns the page: if there is no other, it keeps this one, and the others lose it.
//!
//! Nothing is counted step by step: both numbers are sums over all programs, and what is neither used nor promised is
//! unreserved. So a claim that the core loses or counts twice is a difference after the same step.

use super::*;
use crate::numbers::{MADV_DODUMP, MADV_DOFORK, MADV_DONTDUMP, MADV_DONTFORK, MADV_HUGEPAGE, MADV_NOHUGEPAGE};
use crate::op::HUGE;

/// Base pages in a page of the pool.
pub(super) const HUGE_PAGES: u64 = HUGE / PAGE;

const OTHER_DONTDUMP: u64 = 1 << 40;
const OTHER_HUGE: u64 = 1 << 41;
const OTHER_NOHUGE: u64 = 1 << 42;
const OTHER_PATTERN: u64 = 3;

/// The words of a page of the pool that are not zero, by offset in bytes.
pub(super) type Words = BTreeMap<u64, u64>;

/// The source of the pages of a mapping of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shows {
    /// An object.
    Shared(usize),
    /// Memory of its own: the number of the mapping.
    Private(u64),
    /// The pages of an object where it has none of its own.
    Behind(usize),
}

/// Properties that are fixed when a page is mapped, or changed by a call for a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PoolAttrs {
    pub(super) prot: u64,
    pub(super) shows: Shows,
    pub(super) reserves: bool,
    pub(super) dont_fork: bool,
    /// Flags that split VMAs and do nothing else.
    pub(super) other: u64,
}

impl PoolAttrs {
    /// The attributes after advice about flags.
    pub(super) fn advised(self, advice: u64) -> PoolAttrs {
        let with = |set: u64, clear: u64| self.other & !clear | set;
        let other = match advice {
            MADV_DONTDUMP => with(OTHER_DONTDUMP, 0),
            MADV_DODUMP => with(0, OTHER_DONTDUMP),
            MADV_HUGEPAGE => with(OTHER_HUGE, OTHER_NOHUGE),
            MADV_NOHUGEPAGE => with(OTHER_NOHUGE, OTHER_HUGE),
            0..=2 => with(advice, OTHER_PATTERN),
            _ => self.other,
        };
        let is_kept =
            if matches!(advice, MADV_DONTFORK | MADV_DOFORK) { advice == MADV_DONTFORK } else { self.dont_fork };
        PoolAttrs { other, dont_fork: is_kept, ..self }
    }
}

/// The page that the entry of a private mapping names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Has {
    /// No page of its own.
    Nothing,
    Own(u64),
    /// Its page is the owner's alone since that stored to it.
    Lost,
}

/// A page of the pool that is mapped.
#[derive(Clone, Debug)]
pub(crate) struct PoolPage {
    pub(super) attrs: PoolAttrs,
    /// As [`Page::piece`].
    pub(super) piece: u64,
    /// In the object, in pages of the pool.
    pub(super) index: u64,
    pub(super) has: Has,
    /// A page of this mapping was lost. Linux then refuses first touches of its other pages, too.
    pub(super) is_beside_lost: bool,
}

impl PoolPage {
    pub(super) fn is_private(&self) -> bool {
        !matches!(self.attrs.shows, Shows::Shared(_))
    }
    /// The object whose page it shows, or whose size ends it.
    pub(super) fn object(&self) -> Option<usize> {
        match self.attrs.shows {
            Shows::Shared(object) | Shows::Behind(object) => Some(object),
            Shows::Private(_) => None,
        }
    }
    fn is_promised(&self) -> bool {
        self.is_private() && self.attrs.reserves && self.has == Has::Nothing
    }
}

/// An object whose pages come from the pool.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolObject {
    /// Its size, in pages of the pool.
    pub(super) nr_pages: u64,
    pub(super) pages: BTreeMap<u64, Words>,
    pub(super) reserved: BTreeSet<u64>,
    /// Lives without a mapping.
    pub(super) is_file: bool,
}

/// The pool, and what comes from it.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    /// The size that was set.
    persistent: u64,
    surplus: u64,
    overcommit: u64,
    pub(super) objects: Vec<PoolObject>,
    /// The content of private pages, by a number that each entry has.
    pub(super) private: BTreeMap<u64, Words>,
    last: u64,
}

impl Space {
    /// Whether a page of the pool is mapped in that range of base pages.
    pub(crate) fn has_pool_in(&self, first: u64, end: u64) -> bool {
        first < end && self.pool.range(first / HUGE_PAGES..end.div_ceil(HUGE_PAGES)).next().is_some()
    }

    /// Whether an end of the range lies within a page of the pool.
    pub(super) fn cuts_pool(&self, first: u64, end: u64) -> bool {
        self.cuts_changed_pool(first, end, &|_| true)
    }

    /// The same, of a page whose mapping `changes`.
    pub(super) fn cuts_changed_pool(&self, first: u64, end: u64, changes: &dyn Fn(&PoolAttrs) -> bool) -> bool {
        let page = |at: u64| self.pool.get(&(at / HUGE_PAGES)).filter(|_| !at.is_multiple_of(HUGE_PAGES));
        let cuts = |at: u64| page(at).is_some_and(|page| changes(&page.attrs));
        cuts(first) || cuts(end)
    }

    /// As [`joined`](Self::joined), of pages of the pool.
    pub(super) fn pool_joined(&self, page: u64) -> Result<bool, Unknown> {
        let (a, b) = (&self.pool[&(page - 1)], &self.pool[&page]);
        match (a.piece == b.piece, a.attrs == b.attrs) {
            (true, true) => Ok(true),
            (_, false) => Ok(false),
            (false, true) => Err(Unknown),
        }
    }
}

impl Model {
    pub(super) fn the_pool(&mut self) -> Result<&mut Pool, Unknown> {
        self.pool.as_mut().ok_or(Unknown)
    }

    /// The counts of the pool, if it has been set.
    pub fn pool_counts(&self) -> Option<PoolCounts> {
        let pool = self.pool.as_ref()?;
        let nr = pool.persistent + pool.surplus;
        let (used, promised) = self.used_and_promised(pool);
        Some(PoolCounts { nr, free: nr - used, reserved: promised, surplus: pool.surplus })
    }

    fn used_and_promised(&self, pool: &Pool) -> (u64, u64) {
        let of_objects = |nr: &dyn Fn(&PoolObject) -> usize| pool.objects.iter().map(nr).sum::<usize>() as u64;
        let entries = || self.spaces.values().flat_map(|space| space.pool.values());
        let nr_promised = entries().filter(|page| page.is_promised()).count() as u64;
        let used = pool.private.len() as u64 + of_objects(&|object| object.pages.len());
        (used, nr_promised + of_objects(&|object| object.reserved.len()))
    }

    fn nr_unreserved(&self) -> u64 {
        self.pool_counts().map_or(0, |counts| counts.free - counts.reserved)
    }

    /// Whether so many more pages can be promised, by surplus pages if these are allowed, which come then.
    pub(super) fn may_promise(&mut self, nr: u64) -> bool {
        let more = nr.saturating_sub(self.nr_unreserved());
        let Some(pool) = &mut self.pool else { return false };
        let is_possible = more <= pool.overcommit.saturating_sub(pool.surplus);
        pool.surplus += if is_possible { more } else { 0 };
        is_possible
    }

    /// Frees what nobody has any more; surplus pages that are not promised go.
    pub(super) fn tidy_pool(&mut self) {
        let Some(pool) = &mut self.pool else { return };
        let entries = || self.spaces.values().flat_map(|space| space.pool.values());
        pool.private.retain(|own, _| entries().any(|page| page.has == Has::Own(*own)));
        for (number, object) in pool.objects.iter_mut().enumerate().filter(|(_, object)| !object.is_file) {
            if !entries().any(|page| page.object() == Some(number)) {
                *object = PoolObject::default();
            }
        }
        let nr_unreserved = self.nr_unreserved();
        let pool = self.pool.as_mut().expect("looked up above");
        pool.surplus -= pool.surplus.min(nr_unreserved);
    }

    /// Sets the size. Pages that are used or promised beyond the new size become surplus, and the reverse.
    pub(super) fn set_pool(&mut self, nr: u64, overcommit: u64) -> Answer {
        let pool = self.pool.get_or_insert_default();
        pool.overcommit = overcommit;
        let all = pool.persistent + pool.surplus;
        let kept = all - self.nr_unreserved();
        let pool = self.pool.as_mut().expect("inserted above");
        pool.persistent = nr;
        pool.surplus = kept.saturating_sub(nr);
        Ok(Outcome::Value(nr))
    }

    /// A private page with these words.
    fn new_private(&mut self, words: Words) -> Result<u64, Unknown> {
        let pool = self.the_pool()?;
        pool.last += 1;
        let number = pool.last;
        pool.private.insert(number, words);
        Ok(number)
    }

    /// Brings the page in for an access; `None` if it is refused by a bus error.
    pub(super) fn touch_pool(&mut self, who: u64, number: u64, needs: u64) -> Result<Option<()>, Unknown> {
        let page = self.space(who).pool[&number].clone();
        let refuses = page.has == Has::Nothing && self.refuses_on_linux(&page);
        let pool = self.the_pool()?;
        let is_there = |object: usize| pool.objects[object].pages.get(&page.index).cloned();
        if page.object().is_some_and(|object| page.index >= pool.objects[object].nr_pages) {
            return Ok(None);
        }
        if refuses {
            return Err(Unknown);
        }
        let words = match (page.attrs.shows, page.has) {
            (_, Has::Lost) => return Ok(None),
            (Shows::Shared(object), _) => return Ok(self.touch_object_of_pool(object, page.index)),
            (Shows::Behind(object), Has::Nothing) if needs != WRITE && is_there(object).is_some() => {
                return Ok(Some(()));
            }
            (Shows::Behind(object), Has::Nothing) => is_there(object).unwrap_or_default(),
            (Shows::Private(_), Has::Nothing) => Words::new(),
            (_, Has::Own(own)) if needs == WRITE && self.is_shared(own) => self.the_pool()?.private[&own].clone(),
            (_, Has::Own(_)) => return Ok(Some(())),
        };
        let owns = match page.has {
            Has::Own(own) if page.attrs.reserves => Some(own),
            _ => None,
        };
        // Of an empty place the claim is its own.
        let has_claim = page.attrs.reserves && page.has == Has::Nothing;
        if !has_claim && !self.may_promise(1) {
            let Some(own) = owns else { return Ok(None) };
            self.take_from_others((who, number), own)?;
            return Ok(Some(()));
        }
        let own = self.new_private(words)?;
        self.space_mut(who).pool.get_mut(&number).expect("looked up above").has = Has::Own(own);
        Ok(Some(()))
    }

    /// All entries of the page but that one lose it.
    pub(super) fn take_from_others(&mut self, owner: (u64, u64), own: u64) -> Result<(), Unknown> {
        let entries = || self.spaces.iter().flat_map(|(who, space)| space.pool.iter().map(|page| (*who, page)));
        let others =
            || entries().filter(|(who, (number, page))| page.has == Has::Own(own) && (*who, **number) != owner);
        if others().any(|(_, (number, _))| self.never_ends_on_linux(owner.1, *number))
            || self.is_lost_on_linux(owner, own)
        {
            return Err(Unknown);
        }
        let pieces: Vec<(u64, u64)> = others().map(|(who, (_, page))| (who, page.piece)).collect();
        for (who, piece) in pieces {
            for page in self.space_mut(who).pool.values_mut().filter(|page| page.piece == piece) {
                page.is_beside_lost = true;
                page.has = if page.has == Has::Own(own) { Has::Lost } else { page.has };
            }
        }
        Ok(())
    }

    fn is_beyond_the_size(&self, page: &PoolPage) -> bool {
        let objects = self.pool.as_ref().map(|pool| &pool.objects);
        page.object().zip(objects).is_some_and(|(object, all)| page.index >= all[object].nr_pages)
    }

    pub(super) fn is_shared(&self, own: u64) -> bool {
        let entries = self.spaces.values().flat_map(|space| space.pool.values());
        entries.filter(|page| page.has == Has::Own(own)).count() > 1
    }

    /// The object gets the page, with its reservation if it has one.
    pub(super) fn touch_object_of_pool(&mut self, object: usize, index: u64) -> Option<()> {
        let of = &mut self.pool.as_mut()?.objects[object];
        if of.pages.contains_key(&index) {
            return Some(());
        }
        let is_reserved = of.reserved.remove(&index);
        if !is_reserved && !self.may_promise(1) {
            return None;
        }
        self.pool.as_mut()?.objects[object].pages.insert(index, Words::new());
        Some(())
    }

    /// The words that an entry shows, which has been touched.
    pub(super) fn words(&mut self, who: u64, number: u64) -> Result<&mut Words, Unknown> {
        let page = self.space(who).pool[&number].clone();
        let pool = self.the_pool()?;
        let words = match (page.has, page.object()) {
            (Has::Own(own), _) => pool.private.get_mut(&own),
            (_, Some(object)) => pool.objects[object].pages.get_mut(&page.index),
            (_, None) => None,
        };
        words.ok_or(Unknown)
    }

    /// The child's pages: without reservations of its own.
    pub(super) fn fork_pool(&mut self, who: u64) -> BTreeMap<u64, PoolPage> {
        let kept = self.space(who).pool.iter().filter(|(_, page)| !page.attrs.dont_fork);
        let mut pages: BTreeMap<u64, PoolPage> = kept.map(|(number, page)| (*number, page.clone())).collect();
        for page in pages.values_mut().filter(|page| page.is_private()) {
            (page.attrs.reserves, page.is_beside_lost) = (false, false);
            if self.is_beyond_the_size(page) {
                // Whatever was there is gone, and nothing is lost.
                page.has = Has::Nothing;
            }
        }
        pages
    }
}

/// Where in its page of the pool the word of that address is.
pub(super) fn word_at(at: u64) -> u64 {
    at % HUGE / 8 * 8
}

/// The word with one byte replaced, that of address `at`.
pub(super) fn with_byte(word: u64, at: u64, byte: u64) -> u64 {
    let shift = at % 8 * 8;
    word & !(0xff << shift) | (byte & 0xff) << shift
}
