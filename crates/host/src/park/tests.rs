//! Sleeping and waking, and that no wake-up is lost.

use super::Parking;
use crate::watchdog::{Watchdog, let_others_run};
use core::sync::atomic::AtomicBool;
use softfault::sync::{Ordering, Word};
use std::thread;

#[test]
fn a_word_that_differs_already_does_not_sleep() {
    let (parking, word) = (Parking::default(), Word::new(2));
    parking.park(&word, 1);
}

/// Two threads hand a token to and fro; after one lost wake-up both sleep for ever.
#[test]
fn no_wakeup_is_lost() {
    let _watchdog = Watchdog::new("no_wakeup_is_lost: both threads sleep");
    const NR_TURNS: u64 = 20_000;
    let (parking, word) = (Parking::default(), Word::new(0));
    let player = |side: u64| {
        for turn in (side..NR_TURNS).step_by(2) {
            loop {
                let now = word.load(Ordering::Acquire);
                if now == turn {
                    break;
                }
                parking.park(&word, now);
            }
            word.store(turn + 1, Ordering::Release);
            parking.unpark(&word);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| player(0));
        scope.spawn(|| player(1));
    });
    assert_eq!(word.load(Ordering::Acquire), NR_TURNS);
}

#[test]
fn unpark_wakes_all_who_sleep_there() {
    let _watchdog = Watchdog::new("unpark_wakes_all_who_sleep_there: some sleep still");
    let (parking, words) = (Parking::default(), [const { Word::new(0) }; 200]);
    thread::scope(|scope| {
        for i in 0..8 {
            let (parking, words) = (&parking, &words);
            scope.spawn(move || {
                for word in words.iter().skip(i / 4) {
                    while word.load(Ordering::Acquire) == 0 {
                        parking.park(word, 0);
                    }
                }
            });
        }
        // More words than buckets, so that strangers share one.
        for word in &words {
            thread::yield_now();
            word.store(1, Ordering::Release);
            parking.unpark(word);
        }
    });
}

/// Between its look at the word and its sleep a thread holds the lock; a thread that
/// wakes must not slip through there.
#[test]
fn unpark_waits_for_one_who_is_about_to_sleep() {
    let _watchdog = Watchdog::new("unpark_waits_for_one_who_is_about_to_sleep: it never ends");
    let (parking, word) = (Parking::default(), Word::new(0));
    let (begun, woken) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let about_to_sleep = parking.bucket(&word).lock.lock().unwrap();
        scope.spawn(|| {
            begun.store(true, Ordering::Release);
            parking.unpark(&word);
            woken.store(true, Ordering::Release);
        });
        while !begun.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let_others_run();
        assert!(!woken.load(Ordering::Acquire));
        drop(about_to_sleep);
    });
    assert!(woken.load(Ordering::Acquire));
}
