//! A set-associative TLB that goes stale as a real one does.
//!
//! The owner looks up and fills; any CPU may invalidate (the hardware's broadcast). An
//! entry has a key, a space and a value. The key is 0 while the entry is invalid. A fill
//! writes the key last; an invalidation clears it first.
//!
//! ```text
//! key    63:7 first page | 6:1 order | 0 valid
//! value  35 dirty | 34:32 rights | 31:0 frame
//! ```
//! The race of a fill with an invalidation from elsewhere (E6):
//! ```text
//! owner                          elsewhere
//! before = count                 the table entry changes
//! walk: read the table entry     count += 1
//! key = new; full fence          take away every key that matches
//! if count != before: key = 0
//! ```
//! Either the other side finds the key, or the owner sees the new count.

use core::sync::atomic::{AtomicU64, Ordering::*, fence};
use softfault::addr::{PageRange, Pfn, Rights, Vpn};
use softfault::machine::Flush;

const NR_WAYS: usize = 4;
const VALID: u64 = 1;
const ORDER_SHIFT: u32 = 1;
const PAGE_SHIFT: u32 = 7;
const RIGHTS_SHIFT: u32 = 32;
const DIRTY: u64 = 1 << 35;
/// Ranges up to this many pages are looked up page by page.
const NR_PROBED: u64 = 32;

/// The result of a walk: pages from `page`, aligned to their number, at `pfn`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Translation {
    pub(crate) page: Vpn,
    pub(crate) order: u8,
    pub(crate) pfn: Pfn,
    pub(crate) rights: Rights,
    /// Whether the table entry was dirty.
    pub(crate) dirty: bool,
}

impl Translation {
    pub(crate) fn pages(&self) -> PageRange {
        PageRange::new(self.page, Vpn(self.page.0 + (1 << self.order)))
    }
    /// The frame of `page`, which has to be one of its pages.
    #[inline(always)]
    pub(crate) fn frame_of(&self, page: Vpn) -> Pfn {
        Pfn(self.pfn.0.wrapping_add(page.0.wrapping_sub(self.page.0) as u32))
    }
}

#[derive(Default)]
#[repr(align(32))]
struct Entry {
    key: AtomicU64,
    space: AtomicU64,
    value: AtomicU64,
    /// Odd while the owner is filling it, for readers elsewhere who need all
    /// three words of one moment.
    version: AtomicU64,
}

/// The cache of one CPU.
pub(crate) struct Tlb {
    entries: Box<[[Entry; NR_WAYS]]>,
    /// Bit n: a translation of order n has been filled since all was flushed.
    orders: AtomicU64,
    /// Where the next victim is looked for.
    turn: AtomicU64,
    /// Invalidations from other CPUs that have begun (E6).
    invalidations: AtomicU64,
}

fn key_of(page: Vpn, order: u8) -> u64 {
    page.0 << PAGE_SHIFT | u64::from(order) << ORDER_SHIFT | VALID
}

fn order_of(key: u64) -> u8 {
    (key >> ORDER_SHIFT & 0x3f) as u8
}

fn translation(key: u64, value: u64) -> Translation {
    Translation {
        page: Vpn(key >> PAGE_SHIFT),
        order: order_of(key),
        pfn: Pfn(value as u32),
        rights: Rights::from_bits_truncate((value >> RIGHTS_SHIFT) as u8 & 7),
        dirty: value & DIRTY != 0,
    }
}

impl Tlb {
    /// At least `nr_entries` entries, all empty.
    pub(crate) fn new(nr_entries: usize) -> Tlb {
        Tlb {
            entries: (0..nr_entries.div_ceil(NR_WAYS)).map(|_| Default::default()).collect(),
            orders: AtomicU64::new(0),
            turn: AtomicU64::new(0),
            invalidations: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn set_of(&self, space_id: u64, page: Vpn, order: u8) -> &[Entry; NR_WAYS] {
        // Fibonacci hashing; the high half is scaled to the number of sets.
        let hash = (page.0 >> order).wrapping_add(space_id << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.entries[((hash * self.entries.len() as u64) >> 32) as usize]
    }

    fn find(&self, space_id: u64, page: Vpn, order: u8) -> Option<(&Entry, u64)> {
        let first = Vpn(page.0 >> order << order);
        let key = key_of(first, order);
        let hit = |e: &&Entry| e.key.load(Acquire) == key && e.space.load(Relaxed) == space_id;
        self.set_of(space_id, first, order).iter().find(hit).map(|entry| (entry, key))
    }

    /// The translation of `page`, if it is cached. By the owner.
    #[inline]
    pub(crate) fn lookup(&self, space_id: u64, page: Vpn) -> Option<Translation> {
        let mut orders = self.orders.load(Relaxed);
        while orders != 0 {
            if let Some((entry, key)) = self.find(space_id, page, orders.trailing_zeros() as u8) {
                return Some(translation(key, entry.value.load(Relaxed)));
            }
            orders &= orders - 1;
        }
        None
    }

    /// To be read before the walk and given to [`fill`](Tlb::fill).
    pub(crate) fn invalidations(&self) -> u64 {
        self.invalidations.load(SeqCst)
    }

    /// Caches what a walk found that began when the count was `before`. By the
    /// owner.
    pub(crate) fn fill(&self, space_id: u64, found: Translation, before: u64) {
        let key = key_of(found.page, found.order);
        let entry = self.place_for(space_id, found, key);
        let version = entry.version.load(Relaxed);
        entry.version.store(version + 1, Relaxed);
        fence(Release);
        entry.key.store(0, Release);
        entry.space.store(space_id, Relaxed);
        let value = u64::from(found.pfn.0) | u64::from(found.rights.bits()) << RIGHTS_SHIFT;
        entry.value.store(value | if found.dirty { DIRTY } else { 0 }, Relaxed);
        self.orders.store(self.orders.load(Relaxed) | 1 << found.order, Relaxed);
        // E6: the exchange is the full fence between fill and count.
        entry.key.swap(key, SeqCst);
        fence(SeqCst);
        if self.invalidations.load(SeqCst) != before {
            entry.key.store(0, Release);
        }
        entry.version.store(version + 2, Release);
    }

    /// Its own old entry, an empty one, or the next victim.
    fn place_for(&self, space_id: u64, found: Translation, key: u64) -> &Entry {
        let set = self.set_of(space_id, found.page, found.order);
        let same = |e: &&Entry| e.key.load(Relaxed) == key && e.space.load(Relaxed) == space_id;
        let empty = |e: &&Entry| e.key.load(Relaxed) == 0;
        set.iter().find(same).or_else(|| set.iter().find(empty)).unwrap_or_else(|| {
            let turn = self.turn.load(Relaxed);
            self.turn.store(turn.wrapping_add(1), Relaxed);
            &set[turn as usize % NR_WAYS]
        })
    }

    /// Drops what is cached of the space in `what`. By anybody.
    pub(crate) fn invalidate(&self, space_id: u64, what: Flush) {
        self.invalidations.fetch_add(1, SeqCst);
        fence(SeqCst);
        match what {
            Flush::Pages(pages) if pages.nr_pages() <= NR_PROBED => self.invalidate_few(space_id, pages),
            Flush::Pages(pages) => {
                self.invalidate_if(|id, key| id == space_id && translation(key, 0).pages().overlaps(&pages))
            }
            // The space, or what is not known here.
            _ => self.invalidate_if(|id, _| id == space_id),
        }
    }

    fn invalidate_few(&self, space_id: u64, pages: PageRange) {
        let mut orders = self.orders.load(SeqCst);
        while orders != 0 {
            let order = orders.trailing_zeros() as u8;
            for page in pages.start.0..pages.end.0 {
                if let Some((entry, key)) = self.find(space_id, Vpn(page), order) {
                    // Lost only to the owner's refill or to another invalidation.
                    let _ = entry.key.compare_exchange(key, 0, SeqCst, Relaxed);
                }
            }
            orders &= orders - 1;
        }
    }

    /// Drops everything. By anybody.
    pub(crate) fn invalidate_all(&self) {
        self.invalidations.fetch_add(1, SeqCst);
        fence(SeqCst);
        self.invalidate_if(|_, _| true);
    }

    fn invalidate_if(&self, gone: impl Fn(u64, u64) -> bool) {
        for entry in self.entries.iter().flatten() {
            let key = entry.key.load(Acquire);
            if key & VALID != 0 && gone(entry.space.load(Relaxed), key) {
                let _ = entry.key.compare_exchange(key, 0, SeqCst, Relaxed);
            }
        }
    }

    /// The cached translations of the space, as another CPU sees them at some moment.
    pub(crate) fn live(&self, space_id: u64) -> impl Iterator<Item = Translation> + '_ {
        self.entries.iter().flatten().filter_map(move |entry| {
            let version = entry.version.load(Acquire);
            let (key, id) = (entry.key.load(Relaxed), entry.space.load(Relaxed));
            let value = entry.value.load(Relaxed);
            fence(Acquire);
            let whole = version.is_multiple_of(2) && entry.version.load(Relaxed) == version && key & VALID != 0;
            (whole && id == space_id).then(|| translation(key, value))
        })
    }
}

#[cfg(test)]
mod tests;
