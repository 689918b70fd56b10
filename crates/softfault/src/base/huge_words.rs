//! The knobs as a running [`Vm`](crate::Vm) keeps them: three words that every fault may read and
//! that are rarely written, on a line of their own.
//!
//! All that a fault asks is in the first word, its answers computed when the knobs
//! were set, so that one load sees one moment's settings. Writers take the spinlock
//! at the end of the line; readers of single answers take nothing.

use crate::policy::huge::{CowHuge, Defrag, Enabled, NO_HUGE, NR_SIZES, Orders, SizeEnabled, eligible};
use crate::space::vma::VmaFlags;
use crate::sync::Word;
use crate::tunables::huge::{HugeKnobs, HugeMode, KhugepagedKnobs, KnobError};

/// A line of its own.
#[repr(C, align(64))]
pub(crate) struct HugeWords {
    /// [`HugeNow`].
    pub(super) now: Word,
    /// `pages_to_scan`, `scan_sleep_millisecs`, 32 bits each.
    pub(super) scan: Word,
    /// `alloc_sleep_millisecs` in 32 bits, the `max_ptes_*` in 10 each.
    pub(super) limits: Word,
    pub(super) lock: Word,
    pad: [Word; 4],
}

impl HugeWords {
    pub(crate) fn new(knobs: &HugeKnobs, mode: HugeMode) -> Result<HugeWords, KnobError> {
        knobs.validate(mode)?;
        let words = HugeWords {
            now: Word::new(match mode {
                HugeMode::Knobs => 0,
                HugeMode::Off => OFF,
            }),
            scan: Word::new(0),
            limits: Word::new(0),
            lock: Word::new(0),
            pad: [const { 0 }; 4].map(Word::new),
        };
        words.store(knobs);
        Ok(words)
    }

    pub(super) fn store(&self, knobs: &HugeKnobs) {
        let daemon = &knobs.khugepaged;
        let off = self.now.get() & OFF;
        self.scan.set(u64::from(daemon.pages_to_scan) | u64::from(daemon.scan_sleep_millisecs) << 32);
        self.limits.set(
            u64::from(daemon.alloc_sleep_millisecs)
                | u64::from(daemon.max_ptes_none) << 32
                | u64::from(daemon.max_ptes_swap) << 42
                | u64::from(daemon.max_ptes_shared) << 52,
        );
        self.now.set(HugeNow::of(knobs).0 | off);
    }

    pub(super) fn knobs(&self) -> HugeKnobs {
        let (now, scan, limits) = (HugeNow(self.now.get()), self.scan.get(), self.limits.get());
        let most = |shift: u32| (limits >> shift) as u32 & 0x3ff;
        HugeKnobs {
            enabled: Enabled::ALL[now.bits(ENABLED, 2)],
            sizes: core::array::from_fn(|i| SizeEnabled::ALL[now.bits(SIZES + 2 * i as u32, 2)]),
            defrag: now.defrag(),
            use_zero_page: now.use_zero_page(),
            shrink_underused: now.splits_underused(),
            cow: now.cow(),
            khugepaged: KhugepagedKnobs {
                defrag: now.bits(KHUGEPAGED_DEFRAG, 1) != 0,
                pages_to_scan: scan as u32,
                scan_sleep_millisecs: (scan >> 32) as u32,
                alloc_sleep_millisecs: limits as u32,
                max_ptes_none: most(32),
                max_ptes_swap: most(42),
                max_ptes_shared: most(52),
            },
        }
    }
}

/// The knobs as faults use them, all of one moment:
///
/// ```text
/// bits 0..16    sizes allowed everywhere
///     16..32    sizes allowed after MADV_HUGEPAGE; these include the former
///     32..37    defrag 3, use_zero_page, shrink_underused
///     37..40    cow, enabled 2
///     40..56    enabled of each size, 2 each
///     56, 57    khugepaged/defrag; off for ever
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HugeNow(pub(super) u64);

const ADVISED: u32 = 16;
const DEFRAG: u32 = 32;
const ZERO_PAGE: u32 = 35;
const UNDERUSED: u32 = 36;
const COW: u32 = 37;
const ENABLED: u32 = 38;
const SIZES: u32 = 40;
const KHUGEPAGED_DEFRAG: u32 = 56;
const OFF: u64 = 1 << 57;
const _: () = assert!(SIZES as usize + 2 * NR_SIZES == KHUGEPAGED_DEFRAG as usize);

impl HugeNow {
    fn of(knobs: &HugeKnobs) -> HugeNow {
        let orders = |flags| u64::from(eligible(knobs.enabled, &knobs.sizes, flags).0);
        let sizes = knobs.sizes.iter().enumerate().fold(0, |bits, (i, size)| bits | (*size as u64) << (2 * i));
        HugeNow(
            orders(VmaFlags::empty())
                | orders(VmaFlags::HUGEPAGE) << ADVISED
                | (knobs.defrag as u64) << DEFRAG
                | u64::from(knobs.use_zero_page) << ZERO_PAGE
                | u64::from(knobs.shrink_underused) << UNDERUSED
                | (knobs.cow as u64) << COW
                | (knobs.enabled as u64) << ENABLED
                | sizes << SIZES
                | u64::from(knobs.khugepaged.defrag) << KHUGEPAGED_DEFRAG,
        )
    }

    #[inline(always)]
    fn bits(self, shift: u32, width: u32) -> usize {
        (self.0 >> shift) as usize & ((1 << width) - 1)
    }

    /// As [`eligible`], for the knobs of this moment.
    #[inline(always)]
    pub(crate) fn orders(self, flags: VmaFlags) -> Orders {
        let shift = if flags.contains(VmaFlags::HUGEPAGE) { ADVISED } else { 0 };
        if flags.intersects(NO_HUGE) { Orders::NONE } else { Orders((self.0 >> shift) as u16) }
    }

    /// The answer for memory with `MADV_HUGEPAGE`, which gets more than any other.
    #[inline(always)]
    pub(crate) fn advised_orders(self) -> Orders {
        Orders((self.0 >> ADVISED) as u16)
    }

    #[inline(always)]
    pub(crate) fn defrag(self) -> Defrag {
        Defrag::ALL[self.bits(DEFRAG, 3)]
    }

    #[inline(always)]
    pub(crate) fn use_zero_page(self) -> bool {
        self.bits(ZERO_PAGE, 1) != 0
    }

    pub(crate) fn splits_underused(self) -> bool {
        self.bits(UNDERUSED, 1) != 0
    }

    #[inline(always)]
    pub(crate) fn cow(self) -> CowHuge {
        CowHuge::ALL[self.bits(COW, 1)]
    }

    pub(crate) fn is_off(self) -> bool {
        self.0 & OFF != 0
    }
}
