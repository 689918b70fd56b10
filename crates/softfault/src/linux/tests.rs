//! Conversions from and to Linux's numbers.

use super::*;
use crate::errno::Errno;

/// Every flag of Linux's headers (asm-generic/mman-common.h, asm-generic/mman.h,
/// asm/mman.h of x86), by the name that it has here.
#[test]
fn numbers_are_those_of_linux() {
    let prot = [(1, "READ"), (2, "WRITE"), (4, "EXEC"), (8, "SEM"), (1 << 24, "GROWSDOWN"), (1 << 25, "GROWSUP")];
    for (number, name) in prot {
        assert_eq!(Prot::from_name(name), Some(Prot::from_linux(number)), "{name}");
    }
    let map = [
        (0x01, "SHARED"),
        (0x02, "PRIVATE"),
        (0x03, "SHARED_VALIDATE"),
        (0x10, "FIXED"),
        (0x20, "ANONYMOUS"),
        (0x40, "BITS_32"),
        (0x80, "ABOVE4G"),
        (0x100, "GROWSDOWN"),
        (0x800, "DENYWRITE"),
        (0x1000, "EXECUTABLE"),
        (0x2000, "LOCKED"),
        (0x4000, "NORESERVE"),
        (0x8000, "POPULATE"),
        (0x10000, "NONBLOCK"),
        (0x20000, "STACK"),
        (0x40000, "HUGETLB"),
        (0x80000, "SYNC"),
        (0x10_0000, "FIXED_NOREPLACE"),
        (0x400_0000, "UNINITIALIZED"),
        (0x5400_0000, "HUGE_2MB"),
        (0x7800_0000, "HUGE_1GB"),
    ];
    for (number, name) in map {
        assert_eq!(MapFlags::from_name(name), Some(MapFlags::from_linux(number)), "{name}");
    }
    for (number, name) in [(1, "MAYMOVE"), (2, "FIXED"), (4, "DONTUNMAP")] {
        assert_eq!(MremapFlags::from_name(name), Some(MremapFlags::from_linux(number)), "{name}");
    }
    assert_eq!(MlockFlags::from_linux(1), MlockFlags::ONFAULT);
    for (number, name) in [(1, "CURRENT"), (2, "FUTURE"), (4, "ONFAULT")] {
        assert_eq!(MlockallFlags::from_name(name), Some(MlockallFlags::from_linux(number)), "{name}");
    }
}

/// No conversion loses a bit, named or not; where the call takes an int, the high
/// half is not an argument.
#[test]
fn every_bit_round_trips() {
    let single = (0..64).map(|bit| 1 << bit);
    for number in single.chain([0, u64::MAX, 0x5555_5555_5555_5555, 0xaaaa_aaaa_aaaa_aaaa]) {
        assert_eq!(Prot::from_linux(number).to_linux(), number);
        assert_eq!(MapFlags::from_linux(number).to_linux(), number);
        assert_eq!(MremapFlags::from_linux(number).to_linux(), number);
        let low = number & 0xffff_ffff;
        assert_eq!(MlockFlags::from_linux(number).to_linux(), low);
        assert_eq!(MlockallFlags::from_linux(number).to_linux(), low);
        assert_eq!(MsyncFlags::from_linux(number).to_linux(), low);
        // A complement keeps what has no name, too.
        assert_eq!((!Prot::from_linux(number)).to_linux(), !number);
        assert_eq!((!MapFlags::from_linux(number)).to_linux(), !number);
        assert_eq!((!MremapFlags::from_linux(number)).to_linux(), !number);
    }
}

#[test]
fn the_type_of_a_mapping_is_a_number() {
    for number in 0..16 {
        let expected = match number {
            1 => MapType::Shared,
            2 => MapType::Private,
            3 => MapType::SharedValidate,
            _ => MapType::Unknown,
        };
        assert_eq!(MapFlags::from_linux(number).map_type(), expected, "{number}");
        assert_eq!(MapFlags::from_linux(number | !0xf).map_type(), expected, "{number} and all other flags");
    }
}

#[test]
fn rights_are_three_bits_of_the_protection() {
    for number in 0..8 {
        let prot = Prot::from_linux(number | !7);
        assert_eq!(u64::from(prot.rights().bits()), number);
        assert_eq!(Prot::from(prot.rights()), Prot::from_linux(number));
    }
}

/// (number, name) of madvise(2); what is not here is refused.
const ADVICES: [(u64, &str); 23] = [
    (0, "MADV_NORMAL"),
    (1, "MADV_RANDOM"),
    (2, "MADV_SEQUENTIAL"),
    (3, "MADV_WILLNEED"),
    (4, "MADV_DONTNEED"),
    (8, "MADV_FREE"),
    (9, "MADV_REMOVE"),
    (10, "MADV_DONTFORK"),
    (11, "MADV_DOFORK"),
    (14, "MADV_HUGEPAGE"),
    (15, "MADV_NOHUGEPAGE"),
    (16, "MADV_DONTDUMP"),
    (17, "MADV_DODUMP"),
    (18, "MADV_WIPEONFORK"),
    (19, "MADV_KEEPONFORK"),
    (20, "MADV_COLD"),
    (21, "MADV_PAGEOUT"),
    (22, "MADV_POPULATE_READ"),
    (23, "MADV_POPULATE_WRITE"),
    (24, "MADV_DONTNEED_LOCKED"),
    (25, "MADV_COLLAPSE"),
    (102, "MADV_GUARD_INSTALL"),
    (103, "MADV_GUARD_REMOVE"),
];

#[test]
fn advice_is_known_or_refused() {
    assert_eq!(ADVICES.len(), Advice::ALL.len());
    let mut known = ADVICES.iter().zip(Advice::ALL).peekable();
    let bits = (0..32).map(|bit| 1 << bit);
    for number in (0..1024).chain(bits.filter(|number| *number >= 1024)) {
        match known.next_if(|((n, _), _)| *n == number) {
            Some(((_, name), advice)) => {
                assert_eq!(Advice::from_linux(number), Ok(*advice));
                // An int: the high half of the register does not count.
                assert_eq!(Advice::from_linux(number | 7 << 32), Ok(*advice));
                assert_eq!((advice.to_linux(), advice.name()), (number, *name));
            }
            None => assert_eq!(Advice::from_linux(number), Err(AdviceError::Unknown), "{number}"),
        }
    }
    assert!(known.next().is_none());
    assert_eq!(Advice::from_linux(u64::MAX).map_err(AdviceError::errno), Err(Errno::EINVAL));
}
