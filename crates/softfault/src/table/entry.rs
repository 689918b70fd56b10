//! One page-table entry and the changes that it may undergo. Each change is defined here once, so
//! the rules of the protocol are in one file; `run.rs` makes two of them for adjacent entries.

use super::format::{Entry, Format, Kept, Leaf, is_same_but_used, unused, used, with_uses_of};
use crate::addr::{Access, Pfn, Rights};
use crate::sync::{Ordering, Word};
use core::marker::PhantomData;

/// An entry in place.
pub(crate) struct Slot<'a, F: Format> {
    word: &'a Word,
    pub(crate) level: u8,
    format: PhantomData<F>,
}

impl<F: Format> Clone for Slot<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F: Format> Copy for Slot<'_, F> {}

/// An entry as it was read: what a compare-and-swap expects to find.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    raw: u64,
    pub(crate) entry: Entry,
}

/// An entry as it was read, not decoded yet. Passes over whole tables use it, so that an entry
/// costs them one word.
#[derive(Clone, Copy)]
pub(crate) struct Unread(u64);

/// The entry has changed since it was read.
pub(crate) struct Changed;

impl<'a, F: Format> Slot<'a, F> {
    #[inline(always)]
    pub(crate) fn new(word: &'a Word, level: u8) -> Self {
        Slot { word, level, format: PhantomData }
    }

    /// The same entry, known to be one of a leaf table: lets the compiler forget
    /// the levels.
    #[inline(always)]
    pub(crate) fn of_leaf_table(self) -> Self {
        debug_assert!(self.level == 0);
        Slot { level: 0, ..self }
    }

    /// Loads the entry, as [`observe`](Self::observe) does, without decoding it.
    #[inline(always)]
    pub(crate) fn load(&self) -> Unread {
        Unread(self.word.load(Ordering::Acquire))
    }

    /// Decodes what was loaded.
    #[inline(always)]
    pub(crate) fn seen(&self, loaded: Unread) -> Seen {
        Seen { raw: loaded.0, entry: F::decode(loaded.0, self.level) }
    }

    /// Whether what was loaded says `None`.
    #[inline(always)]
    pub(crate) fn is_none(&self, loaded: Unread) -> bool {
        loaded.0 == F::encode(Entry::None, self.level)
    }

    /// Like [`removed`](Self::removed), for what was loaded.
    #[inline(always)]
    pub(crate) fn was_removed(&self, loaded: Unread) -> Option<Kept> {
        F::kept(loaded.0, self.level)
    }

    /// Reads the entry. Acquires what its publisher released: descriptor and content.
    #[inline(always)]
    pub(crate) fn observe(&self) -> Seen {
        let raw = self.word.load(Ordering::Acquire);
        Seen { raw, entry: F::decode(raw, self.level) }
    }

    /// Whether the entry is unchanged, except for bits that the hardware sets.
    #[inline]
    pub(crate) fn is_still(&self, seen: Seen) -> bool {
        is_same_but_used::<F>(self.word.load(Ordering::Acquire), seen.raw)
    }

    /// The table that it names.
    #[inline(always)]
    pub(crate) fn table(&self) -> Option<Pfn> {
        F::table(self.word.load(Ordering::Acquire))
    }

    /// Turns `None` into a mapping, a table or a guard: the only change that a fault makes to an
    /// empty entry. Releases descriptor and content.
    #[inline(always)]
    pub(crate) fn fill(&self, entry: Entry) -> Result<(), Changed> {
        let none = F::encode(Entry::None, self.level);
        let new = F::encode(entry, self.level);
        match self.word.compare_exchange(none, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => Err(Changed),
        }
    }

    /// Changes the rights of a mapping. Keeps accessed and dirty bits that the hardware sets
    /// meanwhile (F11).
    pub(crate) fn set_rights(&self, seen: Seen, rights: Rights) -> Result<(), Changed> {
        self.change(seen, |now| Entry::Leaf(Leaf { rights, ..now })).map(|_| ())
    }

    /// Like `set_rights`, for an access that follows: also sets its A/D bits.
    pub(crate) fn set_rights_for(&self, seen: Seen, rights: Rights, access: Access) -> Result<(), Changed> {
        let dirty = access == Access::Write;
        let to = |now: Leaf| Entry::Leaf(Leaf { rights, accessed: true, dirty: now.dirty | dirty, ..now });
        self.change(seen, to).map(|_| ())
    }

    /// Sets the lock bit of a mapping: until [`unlock`](Self::unlock), nobody
    /// else changes the entry, though the hardware goes on using it.
    #[inline]
    pub(crate) fn lock(&self, seen: Seen) -> Result<Leaf, Changed> {
        let Entry::Leaf(leaf) = seen.entry else { return Err(Changed) };
        self.lock_leaf(seen, leaf)
    }

    /// The same, of an entry that is known to be this mapping.
    #[inline(always)]
    pub(crate) fn lock_leaf(&self, seen: Seen, leaf: Leaf) -> Result<Leaf, Changed> {
        match self.word.compare_exchange(seen.raw, seen.raw | F::LOCK, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(leaf),
            Err(now) => self.lock_used(seen, now),
        }
    }

    /// The same where the hardware has perhaps set bits since.
    #[cold]
    #[inline(never)]
    fn lock_used(&self, seen: Seen, mut now: u64) -> Result<Leaf, Changed> {
        while is_same_but_used::<F>(now, seen.raw) {
            let Entry::Leaf(leaf) = F::decode(now, self.level) else { break };
            match self.word.compare_exchange(now, now | F::LOCK, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(leaf),
                Err(other) => now = other,
            }
        }
        Err(Changed)
    }

    /// Clears the lock bit and sets the mapping, keeping bits that the hardware set meanwhile. The
    /// caller owns the lock bit. Returns the new entry.
    #[inline]
    pub(crate) fn unlock(&self, leaf: Leaf) -> Unread {
        let base = F::encode(Entry::Leaf(leaf), self.level);
        let mut now = self.word.load(Ordering::Relaxed);
        loop {
            let new = with_uses_of::<F>(base, now);
            match self.word.compare_exchange(now, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Unread(new),
                Err(other) => now = other,
            }
        }
    }

    /// Clears the lock bit and leaves the mapping as it is (I34). The caller owns the lock bit. Returns the
    /// new entry.
    #[inline(always)]
    pub(crate) fn unlock_unchanged(&self) -> Unread {
        Unread(self.word.fetch_and(!F::LOCK, Ordering::AcqRel) & !F::LOCK)
    }

    /// Makes a mapping `Busy`: the caller owns the entry until [`resolve`](Self::resolve). Returns
    /// the mapping as it was at that moment, including accessed and dirty. For a change of frame:
    /// the entry keeps nothing, which distinguishes it from a removal's.
    pub(crate) fn take(&self, seen: Seen) -> Result<Leaf, Changed> {
        self.change(seen, |_| Entry::Busy)
    }

    /// Like `take`, for a removal: the frame number stays in the entry until the harvest. Only the
    /// writer of the space makes such entries, so it needs no other memory to find its own.
    pub(crate) fn take_for_removal(&self, seen: Seen) -> Result<(), Changed> {
        let mut expected = seen.raw;
        loop {
            match self.word.compare_exchange(
                expected,
                F::busy_of(expected, self.level),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Ok(()),
                Err(now) if is_same_but_used::<F>(now, seen.raw) => expected = now,
                Err(_) => return Err(Changed),
            }
        }
    }

    /// Makes a table entry `Busy` and keeps the table's number in it. Hardware bits do not matter,
    /// so one exchange is enough.
    pub(crate) fn take_table(&self) {
        let raw = self.word.load(Ordering::Acquire);
        self.word.swap(F::busy_of(raw, self.level), Ordering::AcqRel);
    }

    /// Makes a table entry `Busy`: the caller owns it. The number is not kept, which distinguishes
    /// it from a removal's.
    pub(crate) fn detach_table(&self, table: Pfn) -> Result<(), Changed> {
        let from = F::encode(Entry::Table(table), self.level);
        let busy = F::encode(Entry::Busy, self.level);
        let mut expected = from;
        loop {
            match self.word.compare_exchange(expected, busy, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                // Hardware sets the accessed bit of tables that it walks through.
                Err(now) if is_same_but_used::<F>(now, from) => expected = now,
                Err(_) => return Err(Changed),
            }
        }
    }

    /// Ends a `Busy` that the caller owns.
    #[inline(always)]
    pub(crate) fn resolve(&self, entry: Entry) {
        debug_assert!(matches!(self.observe().entry, Entry::Busy), "I9: only the owner ends a Busy");
        self.word.store(F::encode(entry, self.level), Ordering::Release);
    }

    /// Writes an entry that nobody else changes, by a plain store: in the tables of a child that is
    /// not published (F12). rmap may read it.
    #[inline(always)]
    pub(crate) fn set_private(&self, entry: Entry) {
        self.word.store(F::encode(entry, self.level), Ordering::Release);
    }

    /// The same for an entry that another table has already.
    #[inline(always)]
    pub(crate) fn copy_private(&self, from: Unread) {
        self.word.store(from.0, Ordering::Release);
    }

    /// The mapping that a removal's `Busy` keeps; `None` for any other entry.
    #[inline(always)]
    pub(crate) fn removed(&self) -> Option<Leaf> {
        match self.was_removed(self.load()) {
            Some(Kept::Leaf(leaf)) => Some(leaf),
            Some(Kept::Table(_)) | None => None,
        }
    }

    /// Sets accessed (and dirty) as hardware would: for accesses that the core makes for a program,
    /// and on hardware that does not set them.
    pub(crate) fn mark(&self, seen: Seen, access: Access) -> Result<(), Changed> {
        let mut expected = seen.raw;
        loop {
            let new = used::<F>(expected, access);
            if new == expected {
                return Ok(());
            }
            match self.word.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(now) if is_same_but_used::<F>(now, seen.raw) => expected = now,
                Err(_) => return Err(Changed),
            }
        }
    }

    /// Clears accessed and dirty of a mapping that stays. They say something about the content only
    /// after a shootdown.
    pub(crate) fn clear_accessed_and_dirty(&self, seen: Seen) -> Result<(), Changed> {
        self.word
            .compare_exchange(seen.raw, unused::<F>(seen.raw), Ordering::AcqRel, Ordering::Relaxed)
            .map(|_| ())
            .map_err(|_| Changed)
    }

    /// Takes the write right and dirty from a mapping that stays; returns it as it was. Translations that allow stores are
    /// left until a shootdown.
    pub(crate) fn write_protect(&self, seen: Seen) -> Result<Leaf, Changed> {
        self.change(seen, |now| Entry::Leaf(Leaf { rights: now.rights - Rights::WRITE, dirty: false, ..now }))
    }

    /// Clears accessed alone of a mapping that stays. Also fails if the hardware made it dirty
    /// first.
    pub(crate) fn clear_accessed(&self, seen: Seen) -> Result<(), Changed> {
        self.word
            .compare_exchange(seen.raw, F::clear_accessed(seen.raw), Ordering::AcqRel, Ordering::Relaxed)
            .map(|_| ())
            .map_err(|_| Changed)
    }

    /// Replaces an entry that names no frame and that faults may change, too, if it is exactly what
    /// was seen.
    pub(crate) fn replace(&self, seen: Seen, entry: Entry) -> Result<(), Changed> {
        let new = F::encode(entry, self.level);
        match self.word.compare_exchange(seen.raw, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => Err(Changed),
        }
    }

    /// Takes the lock bit as the patch of 2004 did: sets it, whatever the entry is. Fails if it was
    /// set already or the entry is not none.
    pub(crate) fn test_and_lock(&self) -> Result<(), Changed> {
        let none = F::encode(Entry::None, self.level);
        let locked = F::encode(Entry::LockedNone, self.level);
        match self.word.compare_exchange(none, locked, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => Err(Changed),
        }
    }

    /// Publishes into an entry whose lock bit the caller owns, or clears the bit with `None`.
    #[inline(always)]
    pub(crate) fn publish_locked(&self, entry: Entry) {
        self.word.store(F::encode(entry, self.level), Ordering::Release);
    }

    fn change(&self, seen: Seen, to: impl Fn(Leaf) -> Entry) -> Result<Leaf, Changed> {
        let mut expected = seen.raw;
        loop {
            let Entry::Leaf(leaf) = F::decode(expected, self.level) else { return Err(Changed) };
            let new = F::encode(to(leaf), self.level);
            match self.word.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(leaf),
                Err(now) if is_same_but_used::<F>(now, seen.raw) => expected = now,
                Err(_) => return Err(Changed),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::X86_64;
    use super::*;

    const CLEAN: Leaf = Leaf { pfn: Pfn(5), rights: Rights::READ.union(Rights::WRITE), accessed: false, dirty: false };
    const STORED_TO: Leaf = Leaf { accessed: true, dirty: true, ..CLEAN };

    fn slot(word: &Word) -> Slot<'_, X86_64> {
        let slot = Slot::new(word, 0);
        assert!(slot.fill(Entry::Leaf(CLEAN)).is_ok());
        slot
    }

    /// As the hardware does for a store of a program.
    fn store_to(word: &Word) {
        word.store(used::<X86_64>(word.load(Ordering::Relaxed), Access::Write), Ordering::Relaxed);
    }

    /// F11: the hardware goes on using a locked entry.
    #[test]
    fn unlocking_keeps_what_the_hardware_set() {
        let word = Word::new(0);
        let slot = slot(&word);
        let Ok(locked) = slot.lock(slot.observe()) else { panic!("nobody else is here") };
        assert_eq!(slot.observe().entry, Entry::LockedLeaf(CLEAN));
        store_to(&word);
        slot.unlock(Leaf { rights: Rights::READ, ..locked });
        let now = Leaf { rights: Rights::READ, ..STORED_TO };
        assert_eq!(slot.observe().entry, Entry::Leaf(now), "neither bit is lost");
    }

    /// The hardware stores between the look at the entry and the change.
    #[test]
    fn who_takes_an_entry_sees_what_the_hardware_set_before() {
        let word = Word::new(0);
        let slot = slot(&word);
        let seen = slot.observe();
        store_to(&word);
        assert_eq!(slot.lock(seen).ok(), Some(STORED_TO));
        slot.unlock(CLEAN);
        assert!(slot.take_for_removal(seen).is_ok());
        let harvested = Leaf { rights: Rights::empty(), ..STORED_TO };
        assert_eq!(slot.removed(), Some(harvested), "with the store");
    }
}
