//! Programs of either write density and of both, interrupts, words of any content.

use super::{Learned, MOST_TIME, WriteDensity};

const NOTHING: u64 = 0;

/// Times with dense and sparse plans, as the program has them.
type Program = fn(u64) -> [u64; 2];

/// Runs `nr` batches; gives what was learned, and how many were zeroed for sparse programs.
fn run(mut learned: Learned, nr: u64, program: Program) -> (Learned, u64) {
    let mut nr_sparse = 0;
    for i in 0..nr {
        let density = learned.next();
        nr_sparse += density as u64;
        learned = Learned::from_word(learned.after(density, program(i)[density as usize]).to_word());
    }
    (learned, nr_sparse)
}

// Zen 5: eighths of a nanosecond per 4 KiB, faults included.
const LINES: Program = |_| [8 * 98, 8 * 66];
const PAGES: Program = |_| [8 * 158, 8 * 232];
/// One batch in 50 is interrupted for a millisecond.
const LINES_INTERRUPTED: Program = |i| LINES(i).map(|time| if i % 50 == 7 { time + 8 * 1_000_000 / 64 } else { time });
const PAGES_INTERRUPTED: Program = |i| PAGES(i).map(|time| if i % 50 == 7 { time + 8 * 1_000_000 / 64 } else { time });

#[test]
fn a_program_that_writes_lines_is_found_at_once_and_believed() {
    for program in [LINES, LINES_INTERRUPTED] {
        let (_, nr_sparse) = run(Learned::from_word(NOTHING), 4096, program);
        assert!(nr_sparse >= 4096 - 4096 / 20, "{nr_sparse}");
    }
}

#[test]
fn a_program_that_writes_pages_pays_for_few_trials() {
    for program in [PAGES, PAGES_INTERRUPTED] {
        let (_, nr_sparse) = run(Learned::from_word(NOTHING), 4096, program);
        assert!((16..=4096 / 20).contains(&nr_sparse), "{nr_sparse}");
    }
}

#[test]
fn a_program_that_changes_is_followed_within_64_batches() {
    let (mut learned, _) = run(Learned::from_word(NOTHING), 4096, LINES);
    for _ in 0..3 {
        let (dense, nr_sparse) = run(learned, 256, PAGES);
        assert!(nr_sparse <= 64, "{nr_sparse}");
        let (sparse, nr_sparse) = run(dense, 256, LINES);
        assert!(nr_sparse >= 256 - 64, "{nr_sparse}");
        learned = sparse;
    }
}

#[test]
fn plans_that_cost_the_same_change_nothing() {
    let (learned, nr_sparse) = run(Learned::from_word(NOTHING), 4096, |i| [1000 + i % 7 * 10, 1010 - i % 5 * 10]);
    assert!(nr_sparse <= 4096 / 20, "{nr_sparse}");
    assert_eq!(learned.density, WriteDensity::Dense);
}

#[test]
fn one_interrupt_changes_no_mind() {
    for (program, density) in [(LINES, WriteDensity::Sparse), (PAGES, WriteDensity::Dense)] {
        let (learned, _) = run(Learned::from_word(NOTHING), 500, program);
        for during in [WriteDensity::Dense, WriteDensity::Sparse] {
            assert_eq!(learned.after(during, u64::MAX).density, density, "{density:?} {during:?}");
        }
    }
}

#[test]
fn any_word_and_any_time_is_good_for_some_density() {
    let words = (0..64).map(|i| 1u64 << i).chain([0, u64::MAX, 0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);
    for word in words {
        for time in [0, 1, MOST_TIME, MOST_TIME + 1, u64::MAX] {
            let mut learned = Learned::from_word(word);
            for _ in 0..200 {
                learned = learned.after(learned.next(), time);
                assert_eq!(Learned::from_word(learned.to_word()), learned, "{word:#x} {time}");
            }
        }
    }
}
