//! Decides whether 512 small pages are collapsed into a huge one.
//!
//! The mechanism counts the entries of a leaf table. It asks before it changes anything, and again when
//! nobody else can change the entries.

/// Counts of the entries of one leaf table, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CollapseQuestion {
    /// Entries without a page of their own: none, or the zero frame.
    pub nr_none: u64,
    /// Private pages that other spaces map, too.
    pub nr_shared: u64,
    /// Pages that are pinned.
    pub nr_pinned: u64,
    /// Guards.
    pub nr_guards: u64,
    /// Pages whose memory failed.
    pub nr_poisoned: u64,
    /// Pages that were swapped out.
    pub nr_swapped: u64,
    /// Entries that an operation owns for a moment.
    pub nr_busy: u64,
    /// Pages that were used lately.
    pub nr_referenced: u64,
}

/// Limits of a collapse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CollapseLimits {
    /// Most entries without a page (`max_ptes_none`).
    pub max_ptes_none: u64,
    /// Most pages that others map (`max_ptes_shared`).
    pub max_ptes_shared: u64,
    /// Whether idle memory is not collapsed.
    pub wants_referenced: bool,
    /// Whether frames may be moved out of the way for a huge one
    /// (`khugepaged/defrag`).
    pub may_compact: bool,
}

impl CollapseLimits {
    /// No limits, for `MADV_COLLAPSE`.
    pub(crate) const NONE: CollapseLimits = CollapseLimits {
        max_ptes_none: u64::MAX,
        max_ptes_shared: u64::MAX,
        wants_referenced: false,
        may_compact: true,
    };
}

/// Why nothing was collapsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CollapseRefusal {
    /// Knobs, advice or the process itself allow no huge page there.
    NotAllowed,
    /// The 2 MiB do not lie in one private mapping.
    OutsideVma,
    /// It is a huge page already.
    AlreadyHuge,
    /// There is no leaf table: nothing was ever touched.
    Empty,
    /// More entries without a page than `max_ptes_none`.
    ExceedNone,
    /// More shared pages than `max_ptes_shared`.
    ExceedShared,
    /// A page is pinned.
    Pinned,
    /// An entry is a guard.
    Guard,
    /// The memory of a page failed: a fault on it has to say so.
    Poisoned,
    /// A page was swapped out.
    Swapped,
    /// An operation owns an entry for a moment.
    Busy,
    /// An operation changed the mapping meanwhile.
    Changed,
    /// Nothing was used lately.
    NotReferenced,
    /// No block is free.
    NoHugeFrame,
    /// No frame for a table.
    NoFrame,
    /// The memory of a page failed while it was copied: it is where it was.
    SourceFailed,
}

impl CollapseRefusal {
    /// The word in the output.
    pub const fn name(self) -> &'static str {
        match self {
            CollapseRefusal::NotAllowed => "not_allowed",
            CollapseRefusal::OutsideVma => "outside_vma",
            CollapseRefusal::AlreadyHuge => "already_huge",
            CollapseRefusal::Empty => "empty",
            CollapseRefusal::ExceedNone => "exceed_none",
            CollapseRefusal::ExceedShared => "exceed_shared",
            CollapseRefusal::Pinned => "pinned",
            CollapseRefusal::Guard => "guard",
            CollapseRefusal::Poisoned => "poisoned",
            CollapseRefusal::Swapped => "swapped",
            CollapseRefusal::Busy => "busy",
            CollapseRefusal::Changed => "changed",
            CollapseRefusal::NotReferenced => "not_referenced",
            CollapseRefusal::NoHugeFrame => "no_huge_frame",
            CollapseRefusal::NoFrame => "no_frame",
            CollapseRefusal::SourceFailed => "source_failed",
        }
    }
}

/// Decides as Linux, except for pins: Linux refuses pages with any extra reference.
///
/// # Errors
///
/// Why not.
pub(crate) fn linux(question: &CollapseQuestion, limits: &CollapseLimits) -> Result<(), CollapseRefusal> {
    if question.nr_guards > 0 {
        Err(CollapseRefusal::Guard)
    } else if question.nr_poisoned > 0 {
        Err(CollapseRefusal::Poisoned)
    } else if question.nr_swapped > 0 {
        Err(CollapseRefusal::Swapped)
    } else if question.nr_busy > 0 {
        Err(CollapseRefusal::Busy)
    } else if question.nr_none > limits.max_ptes_none {
        Err(CollapseRefusal::ExceedNone)
    } else if question.nr_shared > limits.max_ptes_shared {
        Err(CollapseRefusal::ExceedShared)
    } else if question.nr_pinned > 0 {
        Err(CollapseRefusal::Pinned)
    } else if limits.wants_referenced && question.nr_referenced == 0 {
        Err(CollapseRefusal::NotReferenced)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_reason() {
        let limits =
            CollapseLimits { max_ptes_none: 10, max_ptes_shared: 5, wants_referenced: true, may_compact: true };
        let good = CollapseQuestion { nr_none: 10, nr_shared: 5, nr_referenced: 1, ..CollapseQuestion::default() };
        assert_eq!(linux(&good, &limits), Ok(()));
        let refused = |question: CollapseQuestion| linux(&question, &limits).unwrap_err();
        assert_eq!(refused(CollapseQuestion { nr_none: 11, ..good }), CollapseRefusal::ExceedNone);
        assert_eq!(refused(CollapseQuestion { nr_shared: 6, ..good }), CollapseRefusal::ExceedShared);
        assert_eq!(refused(CollapseQuestion { nr_pinned: 1, ..good }), CollapseRefusal::Pinned);
        assert_eq!(refused(CollapseQuestion { nr_guards: 1, ..good }), CollapseRefusal::Guard);
        assert_eq!(refused(CollapseQuestion { nr_poisoned: 1, ..good }), CollapseRefusal::Poisoned);
        assert_eq!(refused(CollapseQuestion { nr_swapped: 1, ..good }), CollapseRefusal::Swapped);
        assert_eq!(refused(CollapseQuestion { nr_busy: 1, ..good }), CollapseRefusal::Busy);
        assert_eq!(refused(CollapseQuestion { nr_referenced: 0, ..good }), CollapseRefusal::NotReferenced);
        let untouched = CollapseQuestion { nr_none: 512, ..CollapseQuestion::default() };
        assert_eq!(linux(&untouched, &CollapseLimits::NONE), Ok(()));
    }
}
