//! The format against a stage 1 walk as the Arm ARM describes it, D8.2 to D8.5.

use super::*;
use softfault::Access;
use softfault::table::format::conformance::{Step, check};

/// One descriptor, for an access from EL0. `hafdbs`: AF and the dirty state are updated by
/// the hardware, else an access that needs an update faults.
fn walk(word: u64, level: u8, access: Access, hafdbs: bool) -> Step {
    let bit = |n: u32| word >> n & 1 == 1;
    let pfn = Pfn((word >> 12 & 0xf_ffff_ffff) as u32);
    match (bit(0), bit(1), level) {
        (false, ..) | (true, false, 0) => return Step::Fault,
        (true, true, 1..) => return Step::Table { table: pfn, word },
        _ => {}
    }
    if level > 0 && !pfn.0.is_multiple_of(1 << (9 * u32::from(level))) {
        return Step::Fault;
    }
    let (af, user, read_only, dbm, uxn) = (bit(10), bit(6), bit(7), bit(51), bit(54));
    let refused = match access {
        Access::Read => false,
        Access::Write => read_only && !dbm,
        Access::Exec => uxn,
    };
    if !user || refused {
        return Step::Fault;
    }
    let cleans = access == Access::Write && read_only;
    if (!af || cleans) && !hafdbs {
        return Step::Fault;
    }
    let word = word | 1 << 10;
    Step::Page { pfn, word: if cleans { word & !(1 << 7) } else { word } }
}

#[test]
fn the_format_keeps_its_contract() {
    for hafdbs in [false, true] {
        assert_eq!(check::<Vmsa48>(|word, level, access| walk(word, level, access, hafdbs)), Ok(()));
    }
}

/// The property for which this format is here.
#[test]
fn to_get_dirty_is_to_lose_a_bit() {
    let rights = Rights::READ | Rights::WRITE;
    let clean = Vmsa48::encode(Entry::Leaf(Leaf { pfn: Pfn(5), rights, accessed: true, dirty: false }), 0);
    let dirty = Vmsa48::set_dirty(clean);
    assert_eq!((clean & !dirty, dirty & !clean), (AP_READ_ONLY, 0));
    assert_eq!(Vmsa48::clear_dirty(dirty), clean);
}
