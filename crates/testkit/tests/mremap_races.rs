//! mremap(2) against threads that touch what moves, on machines of several CPUs
//! (I15, I29). `mremap.rs` has the same with turns.
#![deny(unsafe_code)]

mod common;

use common::{FIXED, MAYMOVE, MREMAP_FIXED, PRIVATE, RW, Running, in_each_setup, wait_until};
use softfault::{FaultError, MremapError};
use std::sync::Barrier;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Span of a leaf table.
const SPAN: u64 = 2 << 20;
const NR_SPANS: u64 = 24;
const LEN: u64 = NR_SPANS * SPAN;
const FROM: u64 = 0x10_0000_0000;
const TO: u64 = FROM + (1 << 30) + 3 * 4096;
const NR_ROUNDS: u64 = 300;
const NR_ACTORS: u64 = 2;

/// Where the actors store: one page of each leaf table for each of them.
fn page(actor: u64, span: u64) -> u64 {
    span * SPAN + (actor + 1) * 4096
}

fn value(round: u64, actor: u64, span: u64) -> u64 {
    round << 32 | actor << 16 | (span + 1)
}

/// Each actor stores once to a page of each leaf table, while the mapping moves
/// and now and then finds no frame. Stored values are there afterwards, and a
/// thread that knows both places is never told that neither is mapped.
#[test]
fn threads_lose_no_store_to_a_mapping_that_moves() {
    in_each_setup(1 + NR_ACTORS as usize, 16 << 20, |w| {
        let (begin, end) = (Barrier::new(1 + NR_ACTORS as usize), Barrier::new(1 + NR_ACTORS as usize));
        let stored: Vec<AtomicU64> = (0..NR_ACTORS * NR_SPANS).map(|_| AtomicU64::new(0)).collect();
        // Pages that the first actor has been through in this round.
        let progress = AtomicU64::new(0);
        let act = |actor: u64, running: &Running<'_>| {
            for round in 1..=NR_ROUNDS {
                begin.wait();
                for span in 0..NR_SPANS {
                    let new = value(round, actor, span);
                    let result = match running.write_u64(FROM + page(actor, span), new) {
                        Err(error) if error.cause == FaultError::NotMapped => {
                            running.write_u64(TO + page(actor, span), new)
                        }
                        other => other,
                    };
                    match result {
                        Ok(()) => stored[(actor * NR_SPANS + span) as usize].store(new, SeqCst),
                        Err(error) => assert_eq!(error.cause, FaultError::OutOfFrames, "page {span}"),
                    }
                    progress.fetch_add(u64::from(actor == 0), SeqCst);
                }
                end.wait();
            }
        };
        let first = |running: &Running<'_>, _: &AtomicBool| act(0, running);
        let second = |running: &Running<'_>, _: &AtomicBool| act(1, running);
        let (mut nr_moved, mut nr_failed) = (0, 0);
        w.race(&[&first, &second], |running| {
            for round in 1..=NR_ROUNDS {
                assert_eq!(w.space.mmap(FROM, LEN, RW, PRIVATE | FIXED), Ok(FROM));
                stored.iter().for_each(|word| word.store(0, SeqCst));
                progress.store(0, SeqCst);
                // One round of three has frames enough, one runs out somewhere, and one
                // once half of the tables are there: then mremap has to fail.
                w.vm.fail_allocation(if round % 3 == 1 { Some(round * 7 % 90) } else { None });
                begin.wait();
                if round % 3 == 2 {
                    wait_until(|| progress.load(SeqCst) >= NR_SPANS / 2);
                    w.vm.fail_allocation(Some(round % (NR_SPANS / 4)));
                }
                let moved = w.space.mremap(FROM, LEN, LEN, MAYMOVE | MREMAP_FIXED, TO);
                end.wait();
                w.vm.fail_allocation(None);
                let at = match moved {
                    Ok(at) => at,
                    Err(error) => {
                        assert!(matches!(error, MremapError::OutOfFrames(_)), "{error}");
                        FROM
                    }
                };
                *(if moved.is_ok() { &mut nr_moved } else { &mut nr_failed }) += 1;
                for (i, word) in stored.iter().enumerate() {
                    let (actor, span) = (i as u64 / NR_SPANS, i as u64 % NR_SPANS);
                    let want = word.load(SeqCst);
                    let seen = running.read_u64(at + page(actor, span));
                    assert!(want == 0 || seen == Ok(want), "round {round}: stored {want:x}, read {seen:x?}");
                }
                w.space.munmap(at, LEN).unwrap();
            }
        });
        assert!(nr_moved >= NR_ROUNDS / 3 && nr_failed >= NR_ROUNDS / 3, "{nr_moved} moved, {nr_failed} failed");
    });
}
