//! Which clean folios of files are dropped: a clock with two hands.
//!
//! ```text
//! blocks   . . . . back . . . . . . . . . . . . . . front . . . .  ─▶      half of all blocks between the hands
//! front    used? its use is forgotten, and its entries go
//! back     used since? it stays. Else it is dropped
//! last     nothing was found, before a refusal: used or not
//! ```
//! So a page has as long as the hands take for half of memory to be used again, and one that is read once is dropped when the back
//! hand comes. With one hand, a call that finds little would forget all uses, and the next one find nothing used. A use of a
//! mapped page after the front hand has passed costs a fault without a read.
//!
//! Both hands skip a folio that more spaces map than may be visited.
//!
//! Source: the two-handed clock of 4.3BSD; the inactive pages of Mach, which are not mapped.

/// Pages that one call looks at, for each frame that it is to free, where a look takes entries. A guess: a quarter of memory may
/// be in constant use.
const LOOKS_PER_FRAME: u64 = 4;
/// Visits of mappings in one pass of a call. A guess: some hundred microseconds.
const NR_VISITS: u64 = 2048;
/// Mappings of an object that are visited for its pages, unless nothing else was found.
const NR_MAPPINGS: u64 = 64;
/// The age from which on a page is not asked for its last use: nobody has seen it used in a whole generation.
const IDLE_AGE: u32 = 2;

/// A clean folio of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CleanFolio {
    pub(crate) nr_pages: u64,
    /// An entry may map a page of it.
    pub(crate) is_mapped: bool,
    /// Used since the last look, as far as is known without a look at entries.
    pub(crate) is_used: bool,
    /// Its age, in generations.
    pub(crate) age: u32,
    /// Mappings of its object.
    pub(crate) nr_mappings: u64,
}

/// A hand of the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hand {
    Front,
    Back,
}

/// Treatment of a folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Chance {
    /// Nothing.
    Leave,
    /// It stays. Its use is forgotten, and its entries are removed.
    Look,
    /// Its entries are removed. If one was accessed it stays as after a look.
    DropUnlessUsed,
    Drop,
}

/// The remaining budget of one pass over blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    nr_looks: u64,
    /// Remaining visits of mappings.
    pub(crate) nr_visits: u64,
    is_last: bool,
}

impl Pass {
    /// The pass that gives second chances.
    pub(crate) fn first(nr_frames: u64) -> Pass {
        Pass { nr_looks: nr_frames.saturating_mul(LOOKS_PER_FRAME), nr_visits: NR_VISITS, is_last: false }
    }

    /// The pass after one that has found little: before a refusal.
    pub(crate) fn last() -> Pass {
        Pass { nr_looks: 0, nr_visits: NR_VISITS, is_last: true }
    }

    /// A batch of folios that a program does not need any more.
    pub(crate) fn advised() -> Pass {
        Pass { nr_looks: 0, nr_visits: NR_VISITS, is_last: false }
    }

    /// Decides about a folio that a hand meets.
    pub(crate) fn chance(&mut self, hand: Hand, folio: &CleanFolio) -> Chance {
        let may_visit = !folio.is_mapped || may_be_visited(folio.nr_mappings);
        match hand {
            Hand::Back if self.is_last => Chance::Drop,
            Hand::Back if may_visit && (!folio.is_used || folio.age >= IDLE_AGE) => Chance::DropUnlessUsed,
            Hand::Front if may_visit && !self.is_last => self.look(folio),
            _ => Chance::Leave,
        }
    }

    fn look(&mut self, folio: &CleanFolio) -> Chance {
        match self.nr_looks.checked_sub(folio.nr_pages) {
            // Costs a bit.
            _ if !folio.is_mapped && folio.is_used => Chance::Look,
            Some(nr_left) if folio.is_mapped => {
                self.nr_looks = nr_left;
                Chance::Look
            }
            _ => Chance::Leave,
        }
    }
}

/// Whether the mappings of an object are few enough to be visited for one of its pages.
pub(crate) fn may_be_visited(nr_mappings: u64) -> bool {
    nr_mappings <= NR_MAPPINGS
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLIO: CleanFolio = CleanFolio { nr_pages: 1, is_mapped: true, is_used: true, age: 0, nr_mappings: 1 };
    const UNUSED: CleanFolio = CleanFolio { is_used: false, ..FOLIO };

    #[test]
    fn what_is_used_has_a_second_chance() {
        let mut pass = Pass::first(1);
        assert_eq!(pass.chance(Hand::Back, &UNUSED), Chance::DropUnlessUsed);
        assert_eq!(pass.chance(Hand::Back, &FOLIO), Chance::Leave);
        assert_eq!(pass.chance(Hand::Back, &CleanFolio { age: IDLE_AGE, ..FOLIO }), Chance::DropUnlessUsed);
        assert_eq!(pass.chance(Hand::Front, &FOLIO), Chance::Look);
        assert_eq!(pass.chance(Hand::Front, &UNUSED), Chance::Look, "an entry may be accessed");
        assert_eq!(pass.chance(Hand::Front, &CleanFolio { is_mapped: false, ..UNUSED }), Chance::Leave);
        assert_eq!(Pass::last().chance(Hand::Back, &FOLIO), Chance::Drop);
        assert_eq!(Pass::last().chance(Hand::Front, &FOLIO), Chance::Leave);
    }

    #[test]
    fn looks_at_entries_are_bounded() {
        let mut pass = Pass::first(2);
        for _ in 0..4 {
            assert_eq!(pass.chance(Hand::Front, &CleanFolio { nr_pages: 2, ..FOLIO }), Chance::Look);
        }
        assert_eq!(pass.chance(Hand::Front, &FOLIO), Chance::Leave);
        assert_eq!(pass.chance(Hand::Front, &CleanFolio { is_mapped: false, ..FOLIO }), Chance::Look, "costs a bit");
    }

    #[test]
    fn what_many_map_is_dropped_last() {
        let many = CleanFolio { nr_mappings: NR_MAPPINGS + 1, ..UNUSED };
        for hand in [Hand::Front, Hand::Back] {
            assert_eq!(Pass::first(1).chance(hand, &many), Chance::Leave);
        }
        let unmapped = CleanFolio { is_mapped: false, ..many };
        assert_eq!(Pass::first(1).chance(Hand::Back, &unmapped), Chance::DropUnlessUsed);
        assert_eq!(Pass::last().chance(Hand::Back, &many), Chance::Drop);
    }
}
