//! The words of the knobs, sets of sizes, and which sizes are eligible.

use super::*;
use crate::addr::Vpn;
use Enabled as E;
use SizeEnabled as S;
use std::string::String;
use std::vec::Vec;

/// Written by hand from transhuge.rst: for a size's setting and the top level's,
/// whether a fault may use the size (without advice, after `MADV_HUGEPAGE`).
/// After `MADV_NOHUGEPAGE` it may not, in any row.
const TABLE: [(S, E, bool, bool); 12] = [
    (S::Always, E::Always, true, true),
    (S::Always, E::Madvise, true, true),
    (S::Always, E::Never, true, true),
    (S::Inherit, E::Always, true, true),
    (S::Inherit, E::Madvise, false, true),
    (S::Inherit, E::Never, false, false),
    (S::Madvise, E::Always, false, true),
    (S::Madvise, E::Madvise, false, true),
    (S::Madvise, E::Never, false, true),
    (S::Never, E::Always, false, false),
    (S::Never, E::Madvise, false, false),
    (S::Never, E::Never, false, false),
];

#[test]
fn eligible_sizes_are_those_that_linux_documents() {
    let base = VmaFlags::READ | VmaFlags::WRITE;
    for (size, top, plain, advised) in TABLE {
        for order in Orders::ALL.iter() {
            let mut sizes = [S::Never; NR_SIZES];
            sizes[usize::from(order.0 - FIRST_ORDER)] = size;
            let only = |yes| if yes { Orders(1 << order.0) } else { Orders::NONE };
            let case = (size, top, order);
            assert_eq!(eligible(top, &sizes, base), only(plain), "{case:?}");
            assert_eq!(eligible(top, &sizes, base | VmaFlags::HUGEPAGE), only(advised), "{case:?} advised");
            assert_eq!(eligible(top, &sizes, base | VmaFlags::NOHUGEPAGE), Orders::NONE, "{case:?} refused");
            assert_eq!(eligible(top, &sizes, base | VmaFlags::SHARED), Orders::NONE, "{case:?} shared");
        }
    }
}

#[test]
fn each_size_is_decided_by_its_own_knob() {
    let sizes = [S::Always, S::Never, S::Madvise, S::Inherit, S::Always, S::Never, S::Madvise, S::Inherit];
    assert_eq!(eligible(E::Never, &sizes, VmaFlags::READ), Orders(0b00_0100_0100));
    assert_eq!(eligible(E::Always, &sizes, VmaFlags::READ), Orders(0b10_0110_0100));
    assert_eq!(eligible(E::Never, &sizes, VmaFlags::HUGEPAGE), Orders(0b01_0101_0100));
    assert_eq!(eligible(E::Madvise, &sizes, VmaFlags::HUGEPAGE), Orders(0b11_0111_0100));
}

#[test]
fn collapse_by_advice_asks_only_the_program() {
    assert_eq!(collapsible(VmaFlags::READ), Orders::PMD);
    assert_eq!(collapsible(VmaFlags::NOHUGEPAGE), Orders::NONE);
    assert_eq!(collapsible(VmaFlags::SHARED), Orders::NONE);
}

/// From transhuge.rst, section on `defrag`.
#[test]
fn effort_is_what_linux_documents() {
    let efforts = |defrag: Defrag| (defrag.effort(HugeAdvice::None), defrag.effort(HugeAdvice::Given));
    assert_eq!(efforts(Defrag::Always), (Effort::Direct, Effort::Direct));
    assert_eq!(efforts(Defrag::Defer), (Effort::Wake, Effort::Wake));
    assert_eq!(efforts(Defrag::DeferMadvise), (Effort::Wake, Effort::Direct));
    assert_eq!(efforts(Defrag::Madvise), (Effort::Nothing, Effort::Direct));
    assert_eq!(efforts(Defrag::Never), (Effort::Nothing, Effort::Nothing));
}

#[test]
fn words_are_linuxs_and_nothing_else_is_one() {
    assert_eq!(E::parse("madvise"), Some(E::Madvise));
    assert_eq!(S::parse("inherit"), Some(S::Inherit));
    assert_eq!(Defrag::parse("defer+madvise"), Some(Defrag::DeferMadvise));
    assert_eq!(CowHuge::parse("copy"), Some(CowHuge::Copy));
    for word in ["", "Always", "always ", "inherit", "alway", "[always]", "1"] {
        assert_eq!(E::parse(word), None, "{word}");
    }
    for value in Defrag::ALL {
        assert_eq!(Defrag::parse(value.name()), Some(*value));
    }
}

#[test]
fn the_current_word_is_in_brackets() {
    let shown = |write: &dyn Fn(&mut String) -> fmt::Result| {
        let mut out = String::new();
        write(&mut out).unwrap();
        out
    };
    assert_eq!(shown(&|out| E::Madvise.write_choices(out)), "always [madvise] never");
    assert_eq!(shown(&|out| S::Inherit.write_choices(out)), "always [inherit] madvise never");
    assert_eq!(shown(&|out| Defrag::Never.write_choices(out)), "always defer defer+madvise madvise [never]");
}

#[test]
fn sets_of_orders() {
    assert_eq!(Orders::ALL.iter().map(|o| o.0).collect::<Vec<_>>(), [9, 8, 7, 6, 5, 4, 3, 2]);
    assert_eq!(Orders::MID.highest(), Some(Order(8)));
    assert_eq!(Orders::PMD.highest(), Some(Order::PMD));
    assert_eq!(Orders::NONE.highest(), None);
    assert_eq!(Orders::NONE.iter().count(), 0);
    let some = Orders(1 << 9 | 1 << 4 | 1 << 2);
    assert_eq!(some.below(Order(9)), Orders(1 << 4 | 1 << 2));
    assert_eq!(some.below(Order(2)), Orders::NONE);
    assert_eq!(some.below(Order(18)), some);
    assert!(some.contains(Order(4)) && !some.contains(Order(5)) && !some.contains(Order(18)));
}

#[test]
fn a_size_fits_where_an_aligned_page_of_it_does() {
    let fitting = |start, end| Orders::ALL.fitting(PageRange::new(Vpn(start), Vpn(end)));
    assert_eq!(fitting(512, 1024), Orders::ALL);
    assert_eq!(fitting(511, 1535), Orders::ALL);
    assert_eq!(fitting(513, 1535), Orders::MID);
    assert_eq!(fitting(4, 8), Orders(1 << 2));
    assert_eq!(fitting(5, 11), Orders::NONE);
    assert_eq!(fitting(5, 12), Orders(1 << 2));
    assert_eq!(fitting(7, 7), Orders::NONE);
    assert_eq!(fitting(u64::MAX - 2, u64::MAX), Orders::NONE);
    assert_eq!(Orders::PMD.fitting(PageRange::new(Vpn(0), Vpn(511))), Orders::NONE);
}
