//! All knobs of huge pages as one value, and which values they may have.
//!
//! Names, defaults and limits are Linux's
//! (Documentation/admin-guide/mm/transhuge.rst). How a running [`Vm`](crate::Vm)
//! keeps them is in `base/huge.rs`.

use crate::addr::Order;
use crate::errno::op_error;
use crate::policy::huge::{CowHuge, Defrag, Enabled, FIRST_ORDER, NR_SIZES, SizeEnabled, Sizes};
use crate::setters::setters;

/// Entries of a leaf table: no `max_ptes_*` is above this less one.
const NR_PTES: u32 = 512;

/// The knobs of huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HugeKnobs {
    /// `enabled`: for the sizes set to `inherit`.
    pub enabled: Enabled,
    /// `hugepages-<n>kB/enabled`, 16 KiB first. See [`size`](HugeKnobs::size).
    pub sizes: Sizes,
    /// `defrag`: what a fault does when no huge page is free.
    pub defrag: Defrag,
    /// `use_zero_page`: a read may map the huge zero page.
    pub use_zero_page: bool,
    /// `shrink_underused`: huge pages that are mostly zeroes are split when memory
    /// is short.
    pub shrink_underused: bool,
    /// The part of a shared huge page that a write copies. Linux has no knob for it.
    pub cow: CowHuge,
    /// `khugepaged/`.
    pub khugepaged: KhugepagedKnobs,
}

/// The knobs of the daemon that collapses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct KhugepagedKnobs {
    /// Whether it may move frames out of the way for a huge page.
    pub defrag: bool,
    /// Pages it looks at between two sleeps; at least 1.
    pub pages_to_scan: u32,
    /// How long it sleeps then.
    pub scan_sleep_millisecs: u32,
    /// How long it sleeps when it found no huge page.
    pub alloc_sleep_millisecs: u32,
    /// Most empty entries in what it collapses; at most 511.
    pub max_ptes_none: u32,
    /// Most swapped pages; at most 511.
    pub max_ptes_swap: u32,
    /// Most pages that others map, too; at most 511.
    pub max_ptes_shared: u32,
}

setters!(HugeKnobs {
    with_enabled: enabled = Enabled,
    with_sizes: sizes = Sizes,
    with_defrag: defrag = Defrag,
    with_use_zero_page: use_zero_page = bool,
    with_shrink_underused: shrink_underused = bool,
    with_cow: cow = CowHuge,
    with_khugepaged: khugepaged = KhugepagedKnobs,
});

setters!(KhugepagedKnobs {
    with_defrag: defrag = bool,
    with_pages_to_scan: pages_to_scan = u32,
    with_scan_sleep_millisecs: scan_sleep_millisecs = u32,
    with_alloc_sleep_millisecs: alloc_sleep_millisecs = u32,
    with_max_ptes_none: max_ptes_none = u32,
    with_max_ptes_swap: max_ptes_swap = u32,
    with_max_ptes_shared: max_ptes_shared = u32,
});

impl HugeKnobs {
    /// Linux's defaults; `enabled` as in 2011.
    pub const DEFAULT: HugeKnobs = HugeKnobs {
        enabled: Enabled::Always,
        sizes: {
            let mut sizes = [SizeEnabled::Never; NR_SIZES];
            sizes[NR_SIZES - 1] = SizeEnabled::Inherit;
            sizes
        },
        defrag: Defrag::Madvise,
        use_zero_page: true,
        shrink_underused: true,
        cow: CowHuge::Split,
        khugepaged: KhugepagedKnobs {
            defrag: true,
            pages_to_scan: 8 * NR_PTES,
            scan_sleep_millisecs: 10_000,
            alloc_sleep_millisecs: 60_000,
            max_ptes_none: NR_PTES - 1,
            max_ptes_swap: NR_PTES / 8,
            max_ptes_shared: NR_PTES / 2,
        },
    };

    /// `enabled` of one size; `None` where `order` is no size with a knob.
    pub fn size(&self, order: Order) -> Option<SizeEnabled> {
        self.sizes.get(usize::from(order.0.checked_sub(FIRST_ORDER)?)).copied()
    }

    /// Sets `enabled` of one size.
    ///
    /// # Errors
    ///
    /// [`KnobError::NoSuchSize`]; nothing is changed then.
    pub fn set_size(&mut self, order: Order, to: SizeEnabled) -> Result<(), KnobError> {
        let i = order.0.checked_sub(FIRST_ORDER).ok_or(KnobError::NoSuchSize)?;
        *self.sizes.get_mut(usize::from(i)).ok_or(KnobError::NoSuchSize)? = to;
        Ok(())
    }

    /// Whether a huge page could come of these settings at all.
    fn allow_any(&self) -> bool {
        self.sizes.iter().any(|size| match size {
            SizeEnabled::Always | SizeEnabled::Madvise => true,
            SizeEnabled::Inherit => self.enabled != Enabled::Never,
            SizeEnabled::Never => false,
        })
    }

    /// Whether a [`Vm`](crate::Vm) can have them.
    pub(crate) fn validate(&self, mode: HugeMode) -> Result<(), KnobError> {
        let daemon = &self.khugepaged;
        if mode == HugeMode::Off && self.allow_any() {
            return Err(KnobError::Off);
        }
        if daemon.pages_to_scan == 0 {
            return Err(KnobError::PagesToScan);
        }
        let limits = [
            (daemon.max_ptes_none, KnobError::MaxPtesNone),
            (daemon.max_ptes_swap, KnobError::MaxPtesSwap),
            (daemon.max_ptes_shared, KnobError::MaxPtesShared),
        ];
        limits.into_iter().find(|(value, _)| *value >= NR_PTES).map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// Whether there may be huge pages as long as the [`Vm`](crate::Vm) lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HugeMode {
    /// The knobs say.
    Knobs,
    /// There are none.
    Off,
}

impl Default for KhugepagedKnobs {
    fn default() -> KhugepagedKnobs {
        HugeKnobs::DEFAULT.khugepaged
    }
}

impl Default for HugeKnobs {
    fn default() -> HugeKnobs {
        HugeKnobs::DEFAULT
    }
}

op_error! {
    /// Why the knobs of huge pages stay as they were.
    KnobError {
        NoSuchSize: EINVAL = "hugepages-NkB: N should be 16 to 2048, a power of two",
        PagesToScan: EINVAL = "khugepaged/pages_to_scan: should be at least 1",
        MaxPtesNone: EINVAL = "khugepaged/max_ptes_none: should be at most 511",
        MaxPtesSwap: EINVAL = "khugepaged/max_ptes_swap: should be at most 511",
        MaxPtesShared: EINVAL = "khugepaged/max_ptes_shared: should be at most 511",
        Off: EINVAL = "enabled: should stay never: huge pages were disabled at boot (transparent_hugepage=0)",
    }
}
