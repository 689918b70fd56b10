//! Accesses of others to a program's memory. Where one ends in the middle, the bytes before the page that cannot be accessed are
//! copied, and the error says how many. Forced reads, and the state of single pages.
#![deny(unsafe_code)]

mod common;

use common::{DONTNEED, FIXED, GUARD_INSTALL, NONE, PAGE, PRIVATE, READ, RW, RWX, SHARED, Space, huge};
use softfault::policy::huge::Enabled;
use softfault::{AccessError, FaultError, HugeKnobs, PagemapPage, Prot};

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

/// As FOLL_FORCE: a debugger reads what the program may not.
#[test]
fn a_forced_read_asks_for_no_right() {
    for flags in [PRIVATE, SHARED] {
        for knobs in [Enabled::Never, Enabled::Always] {
            huge::with_space(HugeKnobs::DEFAULT.with_enabled(knobs), |_, space| {
                assert_eq!(space.mmap(AT, huge::HUGE, RW, flags | FIXED), Ok(AT));
                space.write(AT + PAGE - 2, b"text").unwrap();
                space.mprotect(AT, huge::HUGE, NONE).unwrap();
                let mut text = [1; 6];
                space.read_forced(AT + PAGE - 2, &mut text).unwrap();
                assert_eq!(&text, b"text\0\0");
                // Pages that nobody has touched.
                let mut zeroes = vec![1; 2 * PAGE as usize];
                space.read_forced(AT + 7 * PAGE, &mut zeroes).unwrap();
                assert!(zeroes.iter().all(|byte| *byte == 0));
                assert_eq!(space.read(AT, &mut [0]).unwrap_err().fault, FaultError::NoRights);
                assert_eq!(space.read(AT + 7 * PAGE, &mut [0]).unwrap_err().fault, FaultError::NoRights);
                space.mprotect(AT, huge::HUGE, RW).unwrap();
                space.write(AT + 8 * PAGE, &[5]).unwrap();
                space.mprotect(AT, huge::HUGE, NONE).unwrap();
                space.read_forced(AT + 8 * PAGE, &mut text[..1]).unwrap();
                assert_eq!(text[0], 5, "the page that a forced read has mapped is copied");
                space.munmap(AT + PAGE, PAGE).unwrap();
                let span = (AT + PAGE - 5, 10, 5);
                ended(space.read_forced(span.0, &mut [0; 10]), span, FaultError::NotMapped);
            });
        }
    }
    with_memory(RWX, |space| {
        space.madvise(AT + PAGE, PAGE, GUARD_INSTALL).unwrap();
        let span = (AT, 2 * PAGE as usize, PAGE as usize);
        ended(space.read_forced(span.0, &mut vec![0; span.1]), span, FaultError::Guard);
    });
}

/// A letter for each page: `P`rivate and `O`bject's, small where others have it, too.
fn states(space: &Space<'_>, nr_pages: usize) -> String {
    let mut letters = vec!['.'; nr_pages];
    space.pagemap(AT, nr_pages as u64 * PAGE, &mut |entry| {
        letters[((entry.addr - AT) / PAGE) as usize] = match entry.page {
            PagemapPage::Private { is_exclusive: true, .. } => 'P',
            PagemapPage::Private { .. } => 'p',
            PagemapPage::Object { is_exclusive: true, .. } => 'O',
            PagemapPage::Object { .. } => 'o',
            PagemapPage::Zero => '0',
            PagemapPage::Guard => 'g',
            _ => '?',
        };
    });
    letters.into_iter().collect()
}

#[test]
fn the_state_of_each_page_is_told() {
    huge::with_space(HugeKnobs::DEFAULT.with_enabled(Enabled::Never), |_, space| {
        assert_eq!(space.mmap(AT, 5 * PAGE, RW, PRIVATE | FIXED), Ok(AT));
        assert_eq!(space.mmap(AT + 6 * PAGE, PAGE, RW, SHARED | FIXED), Ok(AT + 6 * PAGE));
        for page in [0, 2, 3, 6] {
            space.write(AT + page * PAGE, &[1]).unwrap();
        }
        space.read(AT + 4 * PAGE, &mut [0]).unwrap();
        assert_eq!(states(space, 8), "P.PP0.O.");
        {
            let child = space.fork().unwrap();
            assert_eq!(states(space, 8), "p.pp0.o.");
            child.write(AT + 2 * PAGE, &[2]).unwrap();
            assert_eq!(
                (states(space, 8).as_str(), states(&child, 8).as_str()),
                ("p.Pp0.o.", "p.Pp0..."),
                "fork copies no entry of an object"
            );
        }
        assert_eq!(states(space, 8), "P.PP0.O.");
        space.mprotect(AT, 5 * PAGE, NONE).unwrap();
        assert_eq!(states(space, 8), "P.PP0.O.", "rights do not matter");
        space.madvise(AT + 2 * PAGE, PAGE, DONTNEED).unwrap();
        space.madvise(AT + 3 * PAGE, PAGE, GUARD_INSTALL).unwrap();
        assert_eq!(states(space, 8), "P..g0.O.");
        let mut nr = 0;
        for (addr, len) in [(AT + 1, PAGE), (AT, u64::MAX), (!0xfff, PAGE), (1 << 63, PAGE), (AT, 0)] {
            space.pagemap(addr, len, &mut |_| nr += 1);
        }
        assert_eq!(nr, 0);
    });
}

#[test]
fn each_page_of_a_huge_mapping_is_told() {
    huge::with_space(HugeKnobs::DEFAULT.with_enabled(Enabled::Always), |_, space| {
        assert_eq!(space.mmap(AT, huge::HUGE, RW, PRIVATE | FIXED), Ok(AT));
        space.write(AT, &[1]).unwrap();
        assert_eq!(huge::huge_pages(space), 1);
        assert_eq!(states(space, 512), "P".repeat(512));
        let (mut frames, at) = (Vec::new(), AT + 100 * PAGE);
        space.pagemap(at, 3 * PAGE, &mut |entry| {
            if let PagemapPage::Private { pfn, .. } = entry.page {
                frames.push((entry.addr, pfn));
            }
        });
        let wanted: Vec<_> = (0..3).map(|n| at + n * PAGE).map(|at| (at, common::frame_of(space, at))).collect();
        assert_eq!(frames, wanted);
        let child = space.fork().unwrap();
        assert_eq!(states(space, 512), "p".repeat(512));
        drop(child);
    });
}
