//! Addresses, frame numbers, ranges, rights: the words every station speaks.
//!
//! All are plain newtypes over integers; arithmetic that could wrap is checked
//! here once so that no station has to think of it again.

use core::fmt;

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

/// Pages `start..end`; never inverted.
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
        self.end.0 - self.start.0
    }
    /// Whether there is no page in it.
    pub const fn is_empty(&self) -> bool {
        self.start.0 == self.end.0
    }
    /// Whether `vpn` lies inside.
    pub const fn contains(&self, vpn: Vpn) -> bool {
        self.start.0 <= vpn.0 && vpn.0 < self.end.0
    }
    /// The pages that both have.
    pub fn intersect(&self, other: &PageRange) -> PageRange {
        PageRange::new(self.start.max(other.start), self.end.min(other.end))
    }
    /// Whether both have a page in common.
    pub fn overlaps(&self, other: &PageRange) -> bool {
        !self.intersect(other).is_empty()
    }
}

impl fmt::Debug for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start.0 << PAGE_SHIFT, self.end.0 << PAGE_SHIFT)
    }
}

/// log2 of a number of base pages: 0 is 4 KiB, 9 is 2 MiB, 18 is 1 GiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Order(pub u8);

impl Order {
    /// A base page.
    pub const BASE: Order = Order(0);
    /// What one leaf table maps: 2 MiB.
    pub const PMD: Order = Order(9);
    /// The largest block the frame allocator gives: 1 GiB.
    pub const MAX: Order = Order(18);
    /// Number of base pages; the largest number where it does not fit.
    pub const fn nr_pages(self) -> u64 {
        match 1u64.checked_shl(self.0 as u32) {
            Some(nr_pages) => nr_pages,
            None => u64::MAX,
        }
    }
}

bitflags::bitflags! {
    /// What may be done with a page; values as `PROT_*` in mmap(2).
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

/// What a CPU was doing when it faulted.
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
}
