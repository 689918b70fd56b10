//! Addresses, frame numbers, ranges, rights: the words every module speaks.
//!
//! All are plain newtypes over integers. Arithmetic that could wrap is checked here, once.

use core::fmt;
use core::ops::Range;

/// Bytes in a base page. The formats supported so far all have 4 KiB.
pub const PAGE_SIZE: u64 = 4096;
/// log2 of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;

/// Number of a physical frame: physical address / [`PAGE_SIZE`].
///
/// 32 bits reach 16 TiB, and two fit in one word of a frame descriptor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pfn(pub u32);

impl fmt::Debug for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pfn:{:#x}", self.0)
    }
}

/// A page's place in the swap area, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SwapSlot(pub u32);

/// log2 of [`BLOCK_FRAMES`].
const BLOCK_SHIFT: u32 = 9;
/// Frames in a block.
pub(crate) const BLOCK_FRAMES: u64 = 1 << BLOCK_SHIFT;

/// Number of a block: frame number / [`BLOCK_FRAMES`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct BlockId(pub(crate) u32);

impl BlockId {
    /// The block that the frame lies in.
    pub(crate) const fn of(pfn: Pfn) -> BlockId {
        BlockId(pfn.0 >> BLOCK_SHIFT)
    }
    /// Its first frame.
    pub(crate) const fn first_frame(self) -> Pfn {
        Pfn(self.0 << BLOCK_SHIFT)
    }
}

/// A number or none in one word: the number + 1, or 0. So zeroed memory names nothing.
const fn pack(number: u32) -> u64 {
    number as u64 + 1
}

fn unpack(word: u64) -> Option<u32> {
    word.checked_sub(1).map(|number| number as u32)
}

/// A frame or none, as a word keeps it: links through descriptors, twins, deposits, nodes and
/// pages of objects, members of families.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OptPfn(u64);

impl OptPfn {
    pub(crate) const NONE: OptPfn = OptPfn(0);

    #[inline(always)]
    pub(crate) const fn some(pfn: Pfn) -> OptPfn {
        OptPfn(pack(pfn.0))
    }
    #[inline(always)]
    pub(crate) const fn from_word(word: u64) -> OptPfn {
        OptPfn(word)
    }
    #[inline(always)]
    pub(crate) const fn to_word(self) -> u64 {
        self.0
    }
    #[inline(always)]
    pub(crate) fn get(self) -> Option<Pfn> {
        unpack(self.0).map(Pfn)
    }
}

/// A block or none, as a word keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OptBlock(u64);

impl OptBlock {
    pub(crate) const fn some(b: BlockId) -> OptBlock {
        OptBlock(pack(b.0))
    }
    pub(crate) const fn from_word(word: u64) -> OptBlock {
        OptBlock(word)
    }
    pub(crate) const fn to_word(self) -> u64 {
        self.0
    }
    pub(crate) fn get(self) -> Option<BlockId> {
        unpack(self.0).map(BlockId)
    }
}

/// Blocks `start..end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockRange {
    pub(crate) start: BlockId,
    pub(crate) end: BlockId,
}

impl BlockRange {
    pub(crate) const fn contains(&self, b: BlockId) -> bool {
        self.start.0 <= b.0 && b.0 < self.end.0
    }
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = BlockId> + Clone + use<> {
        (self.start.0..self.end.0).map(BlockId)
    }
    pub(crate) const fn is_empty(&self) -> bool {
        self.start.0 >= self.end.0
    }
    pub(crate) const fn extent(&self) -> u64 {
        self.end.0.saturating_sub(self.start.0) as u64
    }
    /// The blocks that are in both.
    pub(crate) fn common(&self, other: &BlockRange) -> BlockRange {
        BlockRange { start: self.start.max(other.start), end: self.end.min(other.end) }
    }
    /// Both ends in one word, so that a reader gets two that belong together.
    pub(crate) const fn to_word(self) -> u64 {
        self.start.0 as u64 | (self.end.0 as u64) << 32
    }
    pub(crate) const fn from_word(word: u64) -> BlockRange {
        BlockRange { start: BlockId(word as u32), end: BlockId((word >> 32) as u32) }
    }
}

/// Number of a virtual page: virtual address / [`PAGE_SIZE`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vpn(pub u64);

impl Vpn {
    /// The page that holds the byte at `addr`.
    pub const fn of(addr: u64) -> Vpn {
        Vpn(addr >> PAGE_SHIFT)
    }
    /// Address of the page's first byte.
    pub const fn addr(self) -> u64 {
        self.0 << PAGE_SHIFT
    }
}

impl fmt::Debug for Vpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vpn:{:#x}", self.0)
    }
}

/// Pages `start..end`. One that is inverted has no pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageRange {
    /// First page.
    pub start: Vpn,
    /// One past the last page.
    pub end: Vpn,
}

impl PageRange {
    /// The pages `start..end`; an inverted pair gives the empty range at `start`.
    pub const fn new(start: Vpn, end: Vpn) -> PageRange {
        if end.0 < start.0 { PageRange { start, end: start } } else { PageRange { start, end } }
    }
    /// `nr_pages` pages from `start`; `None` where the end would wrap.
    pub const fn sized(start: Vpn, nr_pages: u64) -> Option<PageRange> {
        match start.0.checked_add(nr_pages) {
            Some(end) => Some(PageRange { start, end: Vpn(end) }),
            None => None,
        }
    }
    /// Number of pages.
    pub const fn nr_pages(&self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }
    /// Whether there is no page in it.
    pub const fn is_empty(&self) -> bool {
        self.start.0 >= self.end.0
    }
    /// Whether `vpn` lies inside.
    pub const fn contains(&self, vpn: Vpn) -> bool {
        self.start.0 <= vpn.0 && vpn.0 < self.end.0
    }
    /// The intersection.
    pub fn intersect(&self, other: &PageRange) -> PageRange {
        PageRange::new(self.start.max(other.start), self.end.min(other.end))
    }
    /// Whether the two overlap.
    pub fn overlaps(&self, other: &PageRange) -> bool {
        !self.intersect(other).is_empty()
    }
}

impl fmt::Debug for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start.0 << PAGE_SHIFT, self.end.0 << PAGE_SHIFT)
    }
}

/// Pages of an object, by their index in it; not pages of a space. Never inverted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ObjectPages {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl ObjectPages {
    /// All that there can be.
    pub const ALL: ObjectPages = ObjectPages { start: 0, end: u64::MAX };

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// Those that an object of `nr_pages` has.
    pub(crate) fn below(&self, nr_pages: u64) -> ObjectPages {
        ObjectPages::from(self.start..self.end.min(nr_pages))
    }
}

impl From<Range<u64>> for ObjectPages {
    /// An inverted range gives the empty one at its start.
    fn from(pages: Range<u64>) -> ObjectPages {
        ObjectPages { start: pages.start, end: pages.end.max(pages.start) }
    }
}

/// log2 of a number of base pages: 0 is 4 KiB, 9 is 2 MiB, 18 is 1 GiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Order(pub u8);

impl Order {
    /// A base page.
    pub const BASE: Order = Order(0);
    /// Size of a leaf table's range: 2 MiB.
    pub const PMD: Order = Order(9);
    /// Size of the range of one table of leaf tables: 1 GiB.
    pub const PUD: Order = Order(18);
    /// The largest page that formats know: 1 GiB.
    pub const MAX: Order = Order::PUD;
    /// Number of base pages; the largest number where it does not fit.
    pub const fn nr_pages(self) -> u64 {
        match 1u64.checked_shl(self.0 as u32) {
            Some(nr_pages) => nr_pages,
            None => u64::MAX,
        }
    }
}

bitflags::bitflags! {
    /// Rights to a page; values as `PROT_*` in mmap(2).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
    pub struct Rights: u8 {
        /// Loads.
        const READ = 1;
        /// Stores.
        const WRITE = 2;
        /// Instruction fetches.
        const EXEC = 4;
    }
}

/// The kind of access that faulted. Exhaustive: a port makes one for each fault,
/// and hardware reports no other kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Exec,
}

impl Access {
    /// The right that the access needs.
    pub const fn needs(self) -> Rights {
        match self {
            Access::Read => Rights::READ,
            Access::Write => Rights::WRITE,
            Access::Exec => Rights::EXEC,
        }
    }

    /// The rights of a mapping of which each grants the access: any right implies that of loads.
    #[inline(always)]
    pub(crate) const fn granted_by(self) -> Rights {
        match self {
            Access::Read => Rights::READ.union(Rights::WRITE).union(Rights::EXEC),
            Access::Write | Access::Exec => self.needs(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_lies_in_its_block() {
        for (pfn, b) in [(0, 0), (511, 0), (512, 1), (u32::MAX, u32::MAX >> 9)] {
            assert_eq!(BlockId::of(Pfn(pfn)), BlockId(b));
        }
        assert_eq!(BlockId(3).first_frame(), Pfn(1536));
        assert_eq!(BlockId::of(BlockId(u32::MAX >> 9).first_frame()), BlockId(u32::MAX >> 9));
    }

    #[test]
    fn pages_of_an_object_are_never_inverted() {
        let pages = |range: Range<u64>| ObjectPages::from(range);
        #[allow(clippy::reversed_empty_ranges)] // that is what is tested
        let inverted = pages(9..4);
        assert_eq!(inverted, pages(9..9));
        assert_eq!((pages(2..8).below(5), pages(6..8).below(5)), (pages(2..5), pages(6..6)));
        assert_eq!(ObjectPages::ALL.below(7), pages(0..7));
    }

    #[test]
    fn zero_is_no_frame() {
        assert_eq!((OptPfn::from_word(0), OptPfn::NONE.get()), (OptPfn::NONE, None));
        for pfn in [Pfn(0), Pfn(7), Pfn(u32::MAX)] {
            let kept = OptPfn::some(pfn);
            assert_eq!(OptPfn::from_word(kept.to_word()).get(), Some(pfn), "frame 0 is a frame");
            assert_ne!(kept, OptPfn::NONE);
        }
    }

    #[test]
    fn zero_is_no_block() {
        assert_eq!(OptBlock::from_word(0).get(), None);
        for b in [BlockId(0), BlockId(u32::MAX)] {
            assert_eq!(OptBlock::from_word(OptBlock::some(b).to_word()).get(), Some(b));
        }
    }
}
