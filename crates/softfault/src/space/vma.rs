//! One mapping: a range of pages with one set of rights and one source.

use crate::addr::{PageRange, Rights, Vpn};

bitflags::bitflags! {
    /// Everything about a VMA that is yes or no. The low three bits are its
    /// rights.
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
        /// A private copy of a file, which the embedder filled: not anonymous.
        const FILE = 1 << 19;
    }
}

impl VmaFlags {
    /// The VMA is on its way to another place: mremap(2) counts and takes what it
    /// holds, and faults wait (I29). In no tree that an operation leaves behind,
    /// so that no report shows it.
    pub(crate) const MOVING: VmaFlags = VmaFlags::from_bits_retain(1 << 31);

    /// What a moving VMA shows of these flags: no right, so that a fault learns of
    /// the move where it would be refused, and no other fault has to ask.
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
    /// Flags that say what may be in a VMA or what it is called: two VMAs that
    /// differ in nothing else are one, with all of them.
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

/// A mapping, by value. What is in a tree never changes; a change is a new tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Vma {
    /// Pages; never empty.
    pub range: PageRange,
    /// Rights and flags.
    pub flags: VmaFlags,
    /// Where shared pages come from.
    pub object: ObjectId,
    /// Page index of `range.start`: in the object, or, for private anonymous
    /// memory, the page number it was first mapped at (mremap(2) keeps it, so
    /// that rmap finds pages by one index through moves).
    pub pgoff: u64,
}

impl Vma {
    /// Index of `vpn`, which has to lie in the VMA.
    pub fn index_of(&self, vpn: Vpn) -> u64 {
        self.pgoff.wrapping_add(vpn.0 - self.range.start.0)
    }
    /// The page of that index, if the VMA has it.
    pub(crate) fn page_at(&self, index: u64) -> Option<Vpn> {
        let offset = index.wrapping_sub(self.pgoff);
        (offset < self.range.nr_pages()).then(|| Vpn(self.range.start.0 + offset))
    }
    /// `vma_split`, the part of it in `range`, which has to be inside.
    pub(crate) fn part(&self, range: PageRange) -> Vma {
        Vma { range, pgoff: self.index_of(range.start), ..*self }
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
            && self.pgoff.wrapping_add(self.range.nr_pages()) == next.pgoff
    }
}
