//! One mapping: a range of pages with one set of rights and one source.

use crate::addr::{PageRange, Rights, Vpn};

bitflags::bitflags! {
    /// Flags of a VMA. The low three bits are its rights.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
    pub struct VmaFlags: u64 {
        /// May be read.
        const READ = 1 << 0;
        /// May be written.
        const WRITE = 1 << 1;
        /// May be executed.
        const EXEC = 1 << 2;
        /// Writes are seen by all who map the object (`MAP_SHARED`).
        const SHARED = 1 << 3;
        /// Grows towards lower addresses (`MAP_GROWSDOWN`).
        const GROWSDOWN = 1 << 4;
        /// Takes part in no commitment (`MAP_NORESERVE`).
        const NORESERVE = 1 << 5;
        /// Not in the child (`MADV_DONTFORK`).
        const DONTFORK = 1 << 6;
        /// Zeroes in the child (`MADV_WIPEONFORK`).
        const WIPEONFORK = 1 << 7;
        /// Pages are populated at once and never reclaimed (mlock(2)).
        const LOCKED = 1 << 8;
        /// With `LOCKED`: populated only when touched (`MLOCK_ONFAULT`).
        const ONFAULT = 1 << 9;
        /// Huge pages wanted (`MADV_HUGEPAGE`).
        const HUGEPAGE = 1 << 10;
        /// Huge pages refused (`MADV_NOHUGEPAGE`).
        const NOHUGEPAGE = 1 << 11;
        /// Left out of core dumps (`MADV_DONTDUMP`).
        const DONTDUMP = 1 << 12;
        /// Belongs to the heap of brk(2).
        const HEAP = 1 << 13;
        /// The first stack, for reports only.
        const STACK = 1 << 14;
        /// Accesses expected in order (`MADV_SEQUENTIAL`).
        const SEQUENTIAL = 1 << 15;
        /// Accesses expected anywhere (`MADV_RANDOM`).
        const RANDOM = 1 << 16;
        /// Pages of it may carry guards (`MADV_GUARD_INSTALL`).
        const MAYGUARD = 1 << 17;
        /// Never to be made writable: its object was opened for reading.
        const NEVERWRITE = 1 << 18;
        /// A private mapping of a file: of an object, or of a file that reads as zeroes, which has none.
        const FILE = 1 << 19;
        /// A shared mapping of an object whose pages come from a file: its first store to a clean page faults.
        const TRACKED = 1 << 20;
    }
}

impl VmaFlags {
    /// mremap(2) is moving the VMA: it counts and takes what the VMA maps, and faults wait (I29).
    /// No operation ends with such a VMA in the tree, so no report shows it.
    pub(crate) const MOVING: VmaFlags = VmaFlags::from_bits_retain(1 << 31);

    /// The flags of the VMA while it is moving: without rights, so that a fault learns of the move
    /// where it would be refused, and other faults need no check.
    pub(crate) fn moving(self) -> VmaFlags {
        self.with_rights(Rights::empty()) | VmaFlags::MOVING
    }

    /// Whether pages of such a VMA count towards `RLIMIT_DATA`: private, writable, and no
    /// stack.
    pub fn is_data(self) -> bool {
        self & (VmaFlags::WRITE | VmaFlags::SHARED | VmaFlags::GROWSDOWN) == VmaFlags::WRITE
    }

    /// The rights.
    pub fn rights(self) -> Rights {
        Rights::from_bits_truncate(self.bits() as u8 & 7)
    }
    /// Flags that do not keep VMAs apart: two VMAs that differ in these only are merged, with the
    /// flags of both.
    pub(crate) const STICKY: VmaFlags = VmaFlags::MAYGUARD.union(VmaFlags::HEAP).union(VmaFlags::STACK);

    /// The same flags with other rights.
    pub(crate) fn with_rights(self, rights: Rights) -> VmaFlags {
        VmaFlags::from_bits_retain((self.bits() & !7) | u64::from(rights.bits()))
    }
}

/// Names a shared object: 0 is none (private anonymous memory), anything else
/// is the number of the frame that the object lives in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct ObjectId(pub u64);

impl ObjectId {
    /// Private anonymous memory.
    pub const NONE: ObjectId = ObjectId(0);
}

/// A mapping, by value. VMAs in a tree never change; a change makes a new tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Vma {
    /// Pages; never empty.
    pub range: PageRange,
    /// Rights and flags.
    pub flags: VmaFlags,
    /// Where the pages come from.
    pub object: ObjectId,
    /// The page of the file or object at `range.start`; 0 if there is neither.
    pub pgoff: u64,
    /// The index of the private page at `range.start`: the page number that it was first mapped at.
    /// mremap(2) keeps it, so that rmap finds private pages by one index through moves. A private
    /// mapping of an object has both. A shared one has no private pages, and its index is unused.
    pub index: u64,
}

impl Vma {
    /// Whether it has, or may get, private pages.
    pub(crate) fn is_private(&self) -> bool {
        !self.flags.contains(VmaFlags::SHARED)
    }
    /// Index of the private page at `vpn`, which has to lie in the VMA.
    pub(crate) fn index_of(&self, vpn: Vpn) -> u64 {
        self.index.wrapping_add(vpn.0 - self.range.start.0)
    }
    /// Whether it is private anonymous memory, whatever it is called: without an object.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.object == ObjectId::NONE && self.is_private()
    }
    /// The page of the file or object that `vpn` shows, which has to lie in the VMA; 0 where there is
    /// neither.
    pub fn pgoff_of(&self, vpn: Vpn) -> u64 {
        match self.object {
            ObjectId::NONE if !self.flags.contains(VmaFlags::FILE) => 0,
            _ => self.pgoff.wrapping_add(vpn.0 - self.range.start.0),
        }
    }
    /// The place of the private page of that index, if the VMA has it.
    pub(crate) fn page_at(&self, index: u64) -> Option<Vpn> {
        let offset = index.wrapping_sub(self.index);
        (self.is_private() && offset < self.range.nr_pages()).then(|| Vpn(self.range.start.0 + offset))
    }
    /// The part of it in `range`, which has to be inside.
    pub(crate) fn part(&self, range: PageRange) -> Vma {
        self.shown_at(range, range.start)
    }
    /// A VMA with the same flags at another place: `range` begins with the page at `first`.
    pub(crate) fn shown_at(&self, range: PageRange, first: Vpn) -> Vma {
        Vma { range, pgoff: self.pgoff_of(first), index: self.index_of(first), ..*self }
    }
    /// Whether mremap(2) is moving it.
    pub(crate) fn is_moving(&self) -> bool {
        self.flags.contains(VmaFlags::MOVING)
    }
    /// Whether `next` continues this one so that both can be one VMA.
    pub(crate) fn merges_with(&self, next: &Vma) -> bool {
        self.range.end == next.range.start
            && self.flags - VmaFlags::STICKY == next.flags - VmaFlags::STICKY
            && self.object == next.object
            && self.pgoff_of(next.range.start) == next.pgoff
            && (!self.is_private() || self.index_of(next.range.start) == next.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vma(start: u64, end: u64, flags: VmaFlags, object: u64, pgoff: u64, index: u64) -> Vma {
        let range = PageRange::new(Vpn(start), Vpn(end));
        Vma { range, flags, object: ObjectId(object), pgoff, index }
    }

    /// A private mapping of an object continues its neighbour only if both its pages of the object
    /// and its private indices continue.
    #[test]
    fn neighbours_are_one_if_what_they_have_goes_on() {
        const PRIVATE: VmaFlags = VmaFlags::WRITE;
        let merges = |flags, object, pgoff, index| {
            let first = vma(10, 14, flags, object, if object == 0 { 0 } else { 100 }, 30);
            first.merges_with(&vma(14, 15, flags, object, pgoff, index))
        };
        assert!(merges(PRIVATE, 0, 0, 34), "anonymous memory has no offset that would have to go on");
        assert!(!merges(PRIVATE, 0, 0, 14), "of two that were moved rmap finds one by each index");
        assert!(merges(VmaFlags::SHARED, 7, 104, 14), "shared memory has no private pages");
        assert!(!merges(VmaFlags::SHARED, 7, 105, 34));
        assert!(merges(PRIVATE, 7, 104, 34));
        assert!(!merges(PRIVATE, 7, 104, 14) && !merges(PRIVATE, 7, 105, 34));
    }

    /// A file that reads as zeroes has offsets, and no object.
    #[test]
    fn zeroes_of_a_file_are_one_mapping_if_their_offsets_go_on() {
        const ZEROES: VmaFlags = VmaFlags::WRITE.union(VmaFlags::FILE);
        let first = vma(10, 14, ZEROES, 0, 100, 30);
        assert!(first.merges_with(&vma(14, 15, ZEROES, 0, 104, 34)));
        assert!(!first.merges_with(&vma(14, 15, ZEROES, 0, 100, 34)));
        assert!(!first.merges_with(&vma(14, 15, VmaFlags::WRITE, 0, 0, 34)), "anonymous memory beside it");
        assert_eq!(first.part(PageRange::new(Vpn(12), Vpn(13))).pgoff, 102);
    }

    #[test]
    fn a_part_shows_what_the_whole_shows() {
        let whole = vma(10, 20, VmaFlags::WRITE, 7, 100, 30);
        let part = whole.part(PageRange::new(Vpn(13), Vpn(15)));
        assert_eq!(part, vma(13, 15, VmaFlags::WRITE, 7, 103, 33));
        let moved = whole.shown_at(PageRange::new(Vpn(50), Vpn(52)), Vpn(18));
        assert_eq!((moved.pgoff_of(Vpn(51)), moved.index_of(Vpn(51))), (109, 39));
        assert_eq!(moved.page_at(39), Some(Vpn(51)));
        let shared = vma(10, 20, VmaFlags::SHARED, 7, 100, 30);
        assert_eq!(shared.page_at(30), None, "no private page is found in shared memory");
        assert_eq!(vma(10, 20, VmaFlags::WRITE, 0, 0, 10).part(whole.range).pgoff_of(Vpn(12)), 0);
    }
}
