//! The formats of this crate keep their contract, and one that breaks a clause is
//! found.

use super::super::{Toy, X86_64, X86_64La57};
use super::*;

const P: u64 = 1 << 0;
const W: u64 = 1 << 1;
const U: u64 = 1 << 2;
const A: u64 = 1 << 5;
const D: u64 = 1 << 6;
const PS: u64 = 1 << 7;
const NX: u64 = 1 << 63;

/// As the SDM has it, volume 3A, 4.5 to 4.8, for accesses in user mode.
fn x86_walk(word: u64, level: u8, access: Access) -> Step {
    let frame = |word: u64| Pfn((word >> 12 & 0xff_ffff_ffff) as u32);
    let refuses =
        word & (P | U) != P | U || access == Access::Write && word & W == 0 || access == Access::Exec && word & NX != 0;
    if refuses {
        return Step::Fault;
    }
    if level > 0 && word & PS == 0 {
        return Step::Table { table: frame(word), word: word | A };
    }
    let dirty = if access == Access::Write { D } else { 0 };
    Step::Page { pfn: frame(word), word: word | A | dirty }
}

#[test]
fn formats_keep_their_contract() {
    assert_eq!(check::<X86_64>(x86_walk), Ok(()));
    assert_eq!(check::<X86_64La57>(x86_walk), Ok(()));
    assert_eq!(check::<Toy>(x86_walk), Ok(()));
}

/// x86-64, with the `N`th mistake.
struct Mistaken<const N: u32>;

fn leaf_of(entry: Entry) -> Option<Leaf> {
    if let Entry::Leaf(leaf) = entry { Some(leaf) } else { None }
}

// SAFETY: I32 to I38: broken on purpose; no table has these words.
#[allow(unsafe_code)]
unsafe impl<const N: u32> Format for Mistaken<N> {
    const LEVELS: u8 = if N == 1 { 1 } else { 4 };
    const TOP_LEAF: u8 = match N {
        38 => 0,
        39 => 4,
        _ => X86_64::TOP_LEAF,
    };
    const INDEX_BITS: u32 = if N == 2 { 10 } else { 9 };
    const USER_PAGES: u64 = if N == 3 { (1 << 36) + 1 } else { X86_64::USER_PAGES };
    // The second is a bit that says something else; the third changes what hardware does.
    const LOCK: u64 = match N {
        4 => 0,
        5 => D,
        6 => P,
        _ => X86_64::LOCK,
    };
    const NEXT_FRAME: u64 = if N == 41 { 1 << 11 } else { X86_64::NEXT_FRAME };
    fn decode(word: u64, level: u8) -> Entry {
        match (N, X86_64::decode(word, level)) {
            (7, Entry::None) => Entry::Guard,
            (8, Entry::LockedNone) => Entry::None,
            (9, Entry::Leaf(leaf)) if leaf.rights.is_empty() => Entry::None,
            (10, Entry::Leaf(leaf)) => Entry::Leaf(Leaf { pfn: Pfn(leaf.pfn.0 & 0x7fff_ffff), ..leaf }),
            (11, Entry::LockedLeaf(leaf)) => Entry::Leaf(leaf),
            (12, Entry::Busy) => Entry::Guard,
            (_, entry) => entry,
        }
    }
    fn encode(entry: Entry, level: u8) -> u64 {
        let word = X86_64::encode(entry, level);
        match (N, entry) {
            // A bit that nobody reads: of some frames, or of some runs of four.
            (42 | 43, Entry::Leaf(leaf) | Entry::LockedLeaf(leaf)) if level == 0 && !leaf.rights.is_empty() => {
                let has_bit = if N == 42 { leaf.pfn.0 & 2 != 0 } else { leaf.pfn.0 & 14 == 6 };
                word | u64::from(has_bit) << 52
            }
            // A leaf of 1 GiB that looks like a table.
            (40, Entry::Leaf(leaf)) if level == 2 && !leaf.rights.is_empty() => word & !PS,
            (13, Entry::None) => 1 << 11,
            (14, Entry::Busy | Entry::Guard | Entry::LockedNone) => word | P | U,
            // Kept through PROT_NONE, and the hardware goes on reading.
            (15, Entry::Leaf(leaf)) if leaf.rights.is_empty() => word | P | U,
            (16, Entry::Leaf(leaf)) if !leaf.rights.is_empty() => word | W,
            (17, Entry::Leaf(leaf) | Entry::LockedLeaf(leaf)) if !leaf.rights.is_empty() => word & !U,
            (18, Entry::Leaf(_) | Entry::LockedLeaf(_)) => word & !(1 << 43),
            (19, Entry::Table(_)) => word & !P,
            (20, Entry::Leaf(leaf)) if leaf.rights.contains(Rights::EXEC) => word | NX,
            _ => word,
        }
    }
    fn table(word: u64) -> Option<Pfn> {
        match N {
            21 => X86_64::table(word & !PS),
            22 => X86_64::table(word | P),
            23 => X86_64::table(word).filter(|_| word & A == 0),
            _ => X86_64::table(word),
        }
    }
    fn busy_of(word: u64, level: u8) -> u64 {
        let busy = X86_64::busy_of(word, level);
        match N {
            24 => X86_64::encode(Entry::Busy, level),
            25 => busy & !D,
            26 => busy & !A,
            27 => busy & !PS,
            28 => busy | word & P,
            29 => busy & !(1 << 43),
            _ => busy,
        }
    }
    fn kept(word: u64, level: u8) -> Option<Kept> {
        match (N, X86_64::kept(word, level)) {
            (30, None) => leaf_of(X86_64::decode(word, level)).map(Kept::Leaf),
            (31, Some(Kept::Table(pfn))) => {
                Some(Kept::Leaf(Leaf { pfn, rights: Rights::empty(), accessed: false, dirty: false }))
            }
            (_, kept) => kept,
        }
    }
    fn set_accessed(word: u64) -> u64 {
        if N == 32 { word } else { X86_64::set_accessed(word) }
    }
    fn set_dirty(word: u64) -> u64 {
        match N {
            33 => X86_64::set_accessed(word),
            // Grants a right.
            34 => X86_64::set_dirty(word) | if word & P != 0 { W } else { 0 },
            _ => X86_64::set_dirty(word),
        }
    }
    fn clear_accessed(word: u64) -> u64 {
        match N {
            35 => X86_64::clear_accessed(X86_64::clear_dirty(word)),
            36 => X86_64::clear_accessed(word) & !X86_64::LOCK,
            _ => X86_64::clear_accessed(word),
        }
    }
    fn clear_dirty(word: u64) -> u64 {
        if N == 37 { word } else { X86_64::clear_dirty(word) }
    }
}

fn clause<const N: u32>() -> Option<&'static str> {
    check::<Mistaken<N>>(x86_walk).err().map(|broken| broken.clause)
}

#[test]
fn each_mistake_is_found() {
    assert_eq!(clause::<0>(), None, "no mistake");
    assert_eq!([clause::<1>(), clause::<2>(), clause::<3>(), clause::<38>(), clause::<39>()], [Some("I38"); 5]);
    assert_eq!([clause::<40>(), clause::<41>(), clause::<42>(), clause::<43>()], [Some("I32"); 4]);
    assert_eq!([clause::<4>(), clause::<5>(), clause::<6>()], [Some("I34"); 3]);
    let coding = [clause::<7>(), clause::<8>(), clause::<9>(), clause::<10>(), clause::<11>(), clause::<12>()];
    assert_eq!(coding, [Some("I32"); 6]);
    assert_eq!([clause::<13>(), clause::<14>(), clause::<15>(), clause::<16>()], [Some("I32"); 4]);
    assert_eq!(
        [clause::<17>(), clause::<18>(), clause::<19>(), clause::<20>()],
        [Some("I33"), Some("I32"), Some("I32"), Some("I32")]
    );
    assert_eq!([clause::<21>(), clause::<22>(), clause::<23>()], [Some("I33"); 3]);
    let busy = [clause::<24>(), clause::<25>(), clause::<26>(), clause::<27>(), clause::<28>(), clause::<29>()];
    assert_eq!(busy, [Some("I35"); 6]);
    assert_eq!([clause::<30>(), clause::<31>()], [Some("I35"); 2]);
    let marks = [clause::<32>(), clause::<33>(), clause::<34>(), clause::<35>(), clause::<36>(), clause::<37>()];
    assert_eq!(marks, [Some("I36"); 6]);
}

/// The mistakes that only the hardware shows: the format agrees with itself.
#[test]
fn hardware_that_disagrees_is_found() {
    let clause = |walk: &dyn Fn(u64, u8, Access) -> Step| check::<X86_64>(walk).err().map(|broken| broken.clause);
    assert_eq!(clause(&x86_walk), None);
    // It walks as if the word were another one.
    let taking = |as_if: fn(u64) -> u64| {
        move |word, level, access| match x86_walk(as_if(word), level, access) {
            Step::Page { pfn, word: after } => Step::Page { pfn, word: word | after & (A | D) },
            other => other,
        }
    };
    assert_eq!(clause(&taking(|word| word | P | U)), Some("I33"), "what is not present");
    assert_eq!(clause(&taking(|word| word & !NX)), Some("I33"), "executes");
    assert_eq!(clause(&taking(|word| word | W)), Some("I33"), "writes");
    assert_eq!(clause(&taking(|word| word & !U)), Some("I33"), "maps nothing");
    let other_frame = |word, level, access| match x86_walk(word, level, access) {
        Step::Page { pfn, word } => Step::Page { pfn: Pfn(pfn.0 ^ 1), word },
        other => other,
    };
    assert_eq!(clause(&other_frame), Some("I33"));
    // It leaves no trace, or another one.
    let leaving = |mark: u64| {
        move |word, level, access| match x86_walk(word, level, access) {
            Step::Page { pfn, .. } => Step::Page { pfn, word: word | mark },
            other => other,
        }
    };
    assert_eq!(clause(&leaving(0)), Some("I37"));
    assert_eq!(clause(&leaving(A)), Some("I37"), "a store leaves the page clean");
    assert_eq!(clause(&leaving(A | D)), Some("I37"), "a load makes it dirty");
    let marks_tables = |word, level, access| match x86_walk(word, level, access) {
        Step::Table { table, word } => Step::Table { table, word: word | PS },
        other => other,
    };
    assert_eq!(clause(&marks_tables), Some("I37"));
}

/// Hardware that faults where x86 sets a bit (Svade of RISC-V) is as good.
#[test]
fn hardware_may_fault_where_there_is_no_trace_to_leave() {
    let faults = |word, level, access| match x86_walk(word, level, access) {
        Step::Page { word: after, .. } if after != word => Step::Fault,
        other => other,
    };
    assert_eq!(check::<X86_64>(faults), Ok(()));
}
