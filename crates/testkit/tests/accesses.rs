//! Accesses of others to a program's memory that end in the middle: the bytes before the page that cannot be accessed are copied,
//! and the error says how many.
#![deny(unsafe_code)]

mod common;

use common::{FIXED, NONE, PAGE, PRIVATE, READ, RWX, Space, huge};
use softfault::{AccessError, FaultError, HugeKnobs, Prot};

const AT: u64 = 0x10_0000_0000;
/// Three pages; nothing is mapped behind them.
const LEN: u64 = 3 * PAGE;

fn with_memory(prot: Prot, test: impl Fn(&Space<'_>)) {
    huge::with_space(HugeKnobs::DEFAULT, |_, space| {
        assert_eq!(space.mmap(AT, LEN, RWX, PRIVATE | FIXED), Ok(AT));
        space.write(AT, &vec![7; LEN as usize]).unwrap();
        space.mprotect(AT, LEN, prot).unwrap();
        test(space);
    });
}

/// The parts of an access: its first address, its length, and the bytes of it that lie in the memory.
const SPANS: [(u64, usize, usize); 6] = [
    (AT, LEN as usize + 1, LEN as usize),
    (AT + 5, LEN as usize, LEN as usize - 5),
    (AT + LEN - 1, 2, 1),
    (AT + LEN - PAGE - 1, 2 * PAGE as usize, PAGE as usize + 1),
    (AT + LEN, 1, 0),
    (AT + LEN - PAGE, 3 * PAGE as usize, PAGE as usize),
];

fn ended(refused: Result<(), AccessError>, (addr, _, copied): (u64, usize, usize), fault: FaultError) {
    let refused = refused.unwrap_err();
    assert_eq!((refused.at, refused.copied_bytes, refused.fault), (addr + copied as u64, copied, fault), "{addr:#x}");
}

#[test]
fn bytes_before_the_end_are_read() {
    with_memory(RWX, |space| {
        for span @ (addr, len, copied) in SPANS {
            let mut bytes = vec![0; len];
            ended(space.read(addr, &mut bytes), span, FaultError::NotMapped);
            assert_eq!(bytes.iter().filter(|byte| **byte == 7).count(), copied);
            ended(space.fetch(addr, &mut bytes), span, FaultError::NotMapped);
        }
    });
}

#[test]
fn bytes_before_the_end_are_written() {
    with_memory(RWX, |space| {
        for (value, span @ (addr, len, copied)) in (10..).zip(SPANS) {
            let bytes = vec![value; len];
            ended(space.write(addr, &bytes), span, FaultError::NotMapped);
            let mut all = vec![0; LEN as usize];
            space.read(AT, &mut all).unwrap();
            assert_eq!(all.iter().filter(|byte| **byte == value).count(), copied);
        }
    });
    for prot in [NONE, READ, RWX] {
        with_memory(prot, |space| {
            for span @ (addr, len, _) in SPANS {
                ended(space.write_forced(addr, &vec![9; len]), span, FaultError::NotMapped);
            }
        });
    }
}

/// The right that is missing in the second page.
#[test]
fn an_access_ends_where_its_right_does() {
    with_memory(RWX, |space| {
        space.mprotect(AT + PAGE, PAGE, READ).unwrap();
        let span = (AT + PAGE - 3, 10, 3);
        ended(space.write(span.0, &[1; 10]), span, FaultError::NoRights);
        ended(space.fetch(span.0, &mut [0; 10]), span, FaultError::NoRights);
        space.read(span.0, &mut [0; 10]).unwrap();
        space.mprotect(AT + PAGE, PAGE, NONE).unwrap();
        ended(space.read(span.0, &mut [0; 10]), span, FaultError::NoRights);
    });
}

/// An address at the end of all addresses, and a length that wraps.
#[test]
fn an_access_never_wraps() {
    with_memory(RWX, |space| {
        for addr in [u64::MAX, u64::MAX - 5, 1 << 63] {
            ended(space.read(addr, &mut [0; 10]), (addr, 10, 0), FaultError::NotMapped);
            ended(space.write(addr, &[0; 10]), (addr, 10, 0), FaultError::NotMapped);
            ended(space.write_forced(addr, &[0; 10]), (addr, 10, 0), FaultError::NotMapped);
        }
        let error = space.update_u32(AT + LEN, &mut |_| None).unwrap_err();
        assert_eq!((error.at, error.copied_bytes), (AT + LEN, 0));
    });
}
