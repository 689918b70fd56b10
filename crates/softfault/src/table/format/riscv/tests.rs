//! The formats against "Virtual Address Translation Process" of the privileged
//! architecture.

use super::super::conformance::{Step, check};
use super::super::unused;
use super::*;
use crate::addr::Access;

/// Bits that are reserved without Svnapot, Svpbmt and Svrsw60t59b.
const RESERVED: u64 = !0 << 54;

/// Steps 3 to 9, in user mode. `svade`: without hardware updates of A and D.
fn walk(word: u64, level: u8, access: Access, svade: bool) -> Step {
    let frame = word >> 10 & 0xfff_ffff_ffff;
    let pfn = Pfn(frame as u32);
    if word & V == 0 || word & (R | W) == W || word & RESERVED != 0 {
        return Step::Fault;
    }
    if word & (R | X) == 0 {
        // A pointer to the next level; A, D and U are reserved in it.
        let is_pointer = level > 0 && word & (A | D | U) == 0;
        return if is_pointer { Step::Table { table: pfn, word } } else { Step::Fault };
    }
    let needs = match access {
        Access::Read => R,
        Access::Write => W,
        Access::Exec => X,
    };
    let is_aligned = frame.is_multiple_of(1 << (9 * u32::from(level)));
    if word & U == 0 || word & needs == 0 || !is_aligned {
        return Step::Fault;
    }
    let marked = word | A | if access == Access::Write { D } else { 0 };
    if marked != word && svade { Step::Fault } else { Step::Page { pfn, word: marked } }
}

#[test]
fn formats_keep_their_contract() {
    for svade in [false, true] {
        let walk = |word, level, access| walk(word, level, access, svade);
        assert_eq!(check::<Sv39>(walk), Ok(()));
        assert_eq!(check::<Sv48>(walk), Ok(()));
        assert_eq!(check::<Sv57>(walk), Ok(()));
    }
}

/// As Linux has them: half of what the levels translate.
#[test]
fn users_have_the_lower_half() {
    let half = |levels: u32| 1 << (9 * levels - 1);
    assert_eq!([Sv39::USER_PAGES, Sv48::USER_PAGES, Sv57::USER_PAGES], [half(3), half(4), half(5)]);
}

/// A word that only marks tell from another is taken for the same; no other is.
#[test]
fn marks_are_no_difference() {
    let leaf = Leaf { pfn: Pfn(5), rights: Rights::READ | Rights::WRITE, accessed: false, dirty: false };
    let word = encode(Entry::Leaf(leaf));
    assert_eq!(unused::<Sv39>(word | A | D), word);
    for other in [word | LOCK, word & !W, word | 1 << 11, busy_of(word)] {
        assert_ne!(unused::<Sv39>(other), word, "{other:#x}");
    }
}
