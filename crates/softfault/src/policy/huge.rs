//! Which sizes of page a fault or a collapse may use, and how hard it may try:
//! the knobs of `/sys/kernel/mm/transparent_hugepage`, in Linux's words.
//!
//! Values and pure functions; the settings are in `tunables/huge.rs`,
//! what a running [`Vm`](crate::Vm) keeps of them in `base/huge.rs`, faults in
//! `fault/huge.rs`, frames in `frame/huge.rs`, entries in `table/pmd.rs`, the split of a
//! mapping in `space/split.rs`, of a folio in `hooks/split.rs`, the collapse in
//! `space/ops/collapse.rs`, what daemons do in `khugepaged.rs` and `shrink.rs`.

use crate::addr::{Order, PageRange};
use crate::space::vma::VmaFlags;
use core::fmt;

macro_rules! knob_words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All of them, in the order in which Linux lists them.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The word on files and command lines.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $word),* }
            }
            /// The value that a word stands for; `None` for any other word.
            pub fn parse(word: &str) -> Option<$name> {
                Self::ALL.iter().copied().find(|value| value.name() == word)
            }
            /// All words, this one in brackets: what reading the knob's file shows.
            ///
            /// # Errors
            ///
            /// Those of `out`.
            pub fn write_choices(self, out: &mut dyn fmt::Write) -> fmt::Result {
                for (i, value) in Self::ALL.iter().enumerate() {
                    let gap = if i == 0 { "" } else { " " };
                    let (open, close) = if *value == self { ("[", "]") } else { ("", "") };
                    write!(out, "{gap}{open}{}{close}", value.name())?;
                }
                Ok(())
            }
        }
    };
}

knob_words! {
    /// `enabled`: for the sizes that are set to `inherit`.
    Enabled {
        /// Wherever a page fits.
        Always = "always",
        /// Where the program asked (`MADV_HUGEPAGE`).
        Madvise = "madvise",
        /// Nowhere.
        Never = "never",
    }
}

knob_words! {
    /// `hugepages-<n>kB/enabled`: for one size.
    SizeEnabled {
        /// Wherever a page of the size fits, whatever `enabled` says.
        Always = "always",
        /// As `enabled` says.
        Inherit = "inherit",
        /// Where the program asked, whatever `enabled` says.
        Madvise = "madvise",
        /// Nowhere.
        Never = "never",
    }
}

knob_words! {
    /// `defrag`: what a fault may do for a huge page when there is none.
    Defrag {
        /// Make one: move frames out of the way, within a budget.
        Always = "always",
        /// Have one made in the background.
        Defer = "defer",
        /// Make one where the program asked for huge pages; else in the background.
        DeferMadvise = "defer+madvise",
        /// Make one where the program asked for huge pages; else nothing.
        Madvise = "madvise",
        /// Nothing.
        Never = "never",
    }
}

knob_words! {
    /// The part that a write copies of a huge page that others map, too.
    CowHuge {
        /// The 4 KiB that are written; the mapping is split. As Linux since 5.8.
        Split = "split",
        /// All of it, if there is a free block; else as `split`.
        Copy = "copy",
    }
}

/// How far a fault goes when no huge page is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Effort {
    /// Moves frames out of the way itself (bounded), then falls back.
    Direct,
    /// Wakes who does it in the background, and falls back at once.
    Wake,
    /// Falls back at once.
    Nothing,
}

/// Whether `MADV_HUGEPAGE` was given for the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum HugeAdvice {
    /// It was.
    Given,
    /// It was not.
    None,
}

impl HugeAdvice {
    /// As the VMA's flags say.
    pub(crate) const fn of(flags: VmaFlags) -> HugeAdvice {
        if flags.contains(VmaFlags::HUGEPAGE) { HugeAdvice::Given } else { HugeAdvice::None }
    }
}

impl Defrag {
    /// The choices of a fault in memory with this advice.
    pub(crate) const fn effort(self, advice: HugeAdvice) -> Effort {
        use HugeAdvice::{Given, None};
        match (self, advice) {
            (Defrag::Always, _) | (Defrag::DeferMadvise | Defrag::Madvise, Given) => Effort::Direct,
            (Defrag::Defer, _) | (Defrag::DeferMadvise, None) => Effort::Wake,
            (Defrag::Madvise, None) | (Defrag::Never, _) => Effort::Nothing,
        }
    }
}

/// The smallest size above a base page that has a knob: 16 KiB.
pub const FIRST_ORDER: u8 = 2;
/// Sizes with a knob: 16 KiB to 2 MiB.
pub const NR_SIZES: usize = (Order::PMD.0 - FIRST_ORDER) as usize + 1;
/// `enabled` of each size, smallest first.
pub type Sizes = [SizeEnabled; NR_SIZES];

/// A set of sizes: bit n is order n.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct Orders(pub u16);

impl Orders {
    /// No size: base pages only.
    pub const NONE: Orders = Orders(0);
    /// All that have a knob.
    pub const ALL: Orders = Orders(((1 << NR_SIZES) - 1) << FIRST_ORDER);
    /// Those between a base page and 2 MiB.
    pub const MID: Orders = Orders(Orders::ALL.0 & !(1 << Order::PMD.0));
    /// 2 MiB alone.
    pub const PMD: Orders = Orders(1 << Order::PMD.0);

    /// Whether it is empty.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// Whether `order` is in it.
    #[inline(always)]
    pub const fn contains(self, order: Order) -> bool {
        order.0 < 16 && self.0 & 1 << order.0 != 0
    }
    /// The largest, if there is one.
    #[inline(always)]
    pub const fn highest(self) -> Option<Order> {
        if self.0 == 0 { None } else { Some(Order(15 - self.0.leading_zeros() as u8)) }
    }
    /// Those smaller than `order`.
    #[inline(always)]
    pub const fn below(self, order: Order) -> Orders {
        if order.0 >= 16 { self } else { Orders(self.0 & ((1 << order.0) - 1)) }
    }
    /// Those in both.
    #[inline(always)]
    pub const fn and(self, other: Orders) -> Orders {
        Orders(self.0 & other.0)
    }
    /// Those of which `range` has room for one, aligned.
    pub fn fitting(self, range: PageRange) -> Orders {
        let fits = |order: Order| {
            let start = range.start.0.checked_next_multiple_of(order.nr_pages());
            start.and_then(|start| start.checked_add(order.nr_pages())).is_some_and(|end| end <= range.end.0)
        };
        Orders(self.iter().filter(|order| fits(*order)).fold(0, |bits, order| bits | 1 << order.0))
    }
    /// Those of which `keeps` is true, which is asked for the largest first.
    pub(crate) fn filter(self, keeps: impl Fn(Order) -> bool) -> Orders {
        Orders(self.iter().filter(|order| keeps(*order)).fold(0, |bits, order| bits | 1 << order.0))
    }
    /// Largest first: the order in which they are tried.
    pub fn iter(self) -> impl Iterator<Item = Order> {
        core::iter::successors(self.highest(), move |order| self.below(*order).highest())
    }
}

/// Flags of a VMA in which there are base pages only, whatever the knobs say: the
/// program refused huge ones, or its pages are an object's.
pub(crate) const NO_HUGE: VmaFlags = VmaFlags::NOHUGEPAGE.union(VmaFlags::SHARED);

/// The sizes that a fault (and khugepaged) may use in a VMA with these flags.
///
/// Source: Linux, Documentation/admin-guide/mm/transhuge.rst; madvise(2).
pub(crate) fn eligible(enabled: Enabled, sizes: &Sizes, flags: VmaFlags) -> Orders {
    if flags.intersects(NO_HUGE) {
        return Orders::NONE;
    }
    let advised = flags.contains(VmaFlags::HUGEPAGE);
    let inherited = match enabled {
        Enabled::Always => true,
        Enabled::Madvise => advised,
        Enabled::Never => false,
    };
    let allowed = |size: &SizeEnabled| match size {
        SizeEnabled::Always => true,
        SizeEnabled::Inherit => inherited,
        SizeEnabled::Madvise => advised,
        SizeEnabled::Never => false,
    };
    let bits = sizes.iter().enumerate().filter(|(_, size)| allowed(size)).fold(0, |bits, (i, _)| bits | 1 << i);
    Orders(bits << FIRST_ORDER)
}

/// The sizes that `MADV_COLLAPSE` may make in a VMA with these flags: it asks no
/// knob, but the program's own refusal counts.
///
/// Source: madvise(2).
pub(crate) fn collapsible(flags: VmaFlags) -> Orders {
    if flags.intersects(NO_HUGE) { Orders::NONE } else { Orders::PMD }
}

#[cfg(test)]
#[path = "huge_tests.rs"]
mod tests;
