//! Tests the store buffers: a CPU sees the stale values that x86 allows, and no others.
//! Without these tests a model that finds nothing would prove nothing.

use common::{run, shuffled};
use softfault_shuffled::sync::{self, Ordering, Word};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

type Pair = Arc<[Word; 2]>;

/// Runs two CPUs on two words that begin as 0, and counts the schedules whose results
/// `is_seen` accepts.
fn count(first: fn(&Pair) -> u64, second: fn(&Pair) -> u64, is_seen: fn(u64, u64) -> bool) -> usize {
    let nr_seen = Arc::new(AtomicUsize::new(0));
    let counter = nr_seen.clone();
    shuffled(2000, move || {
        let words: Pair = Arc::new([Word::new(0), Word::new(0)]);
        let results: Arc<[AtomicUsize; 2]> = Arc::default();
        let actor = |i: usize, f: fn(&Pair) -> u64| -> Box<dyn FnOnce() + Send> {
            let (words, results) = (words.clone(), results.clone());
            Box::new(move || results[i].store(f(&words) as usize, SeqCst))
        };
        run(2, vec![actor(0, first), actor(1, second)]);
        let [a, b] = [0, 1].map(|i| results[i].load(SeqCst) as u64);
        counter.fetch_add(usize::from(is_seen(a, b)), SeqCst);
    });
    nr_seen.load(SeqCst)
}

fn both_missed(a: u64, b: u64) -> bool {
    (a, b) == (0, 0)
}

/// The one reordering of x86: a load before an older store to another word.
#[test]
fn a_store_waits_behind_a_load() {
    let first = |w: &Pair| {
        w[0].store(1, Ordering::Release);
        w[1].load(Ordering::Acquire)
    };
    let second = |w: &Pair| {
        w[1].store(1, Ordering::Release);
        w[0].load(Ordering::Acquire)
    };
    assert!(count(first, second, both_missed) > 0, "the buffers buffer nothing");
}

#[test]
fn fences_order_both() {
    let first = |w: &Pair| {
        w[0].store(1, Ordering::Relaxed);
        sync::fence();
        w[1].load(Ordering::Relaxed)
    };
    let second = |w: &Pair| {
        w[1].store(1, Ordering::Relaxed);
        sync::fence();
        w[0].load(Ordering::Relaxed)
    };
    assert_eq!(count(first, second, both_missed), 0);
}

/// The section's accesses, which a grace period has to see.
fn section(w: &Pair) -> u64 {
    sync::enter(&w[0], 1);
    w[1].load(Ordering::Acquire)
}

/// The other side, with the heavy barrier or without it.
fn removal(w: &Pair, is_heavy: bool) -> u64 {
    w[1].store(1, Ordering::Release);
    sync::fence();
    if is_heavy {
        sync::drain_of(0);
    }
    sync::probe(&w[0])
}

#[test]
fn light_and_heavy_order_both() {
    assert_eq!(count(section, |w| removal(w, true), both_missed), 0);
}

#[test]
fn light_alone_orders_nothing() {
    assert!(count(section, |w| removal(w, false), both_missed) > 0, "enter is no plain store");
}

/// Stores of one CPU arrive in their order.
#[test]
fn stores_do_not_overtake_each_other() {
    let writer = |w: &Pair| {
        w[0].set(1);
        w[1].set(1);
        0
    };
    let reader = |w: &Pair| w[1].get() << 1 | w[0].get();
    assert_eq!(count(writer, reader, |_, seen| seen == 0b10), 0);
}

/// A CPU sees its own stores, whether they have arrived or not; a read-modify-write
/// sees those of all.
#[test]
fn own_stores_are_forwarded() {
    let add = |w: &Pair| {
        w[0].set(5);
        assert_eq!(w[0].get(), 5);
        w[1].fetch_add(1, Ordering::Relaxed);
        w[0].get()
    };
    let other = |w: &Pair| w[1].fetch_add(1, Ordering::Relaxed);
    assert_eq!(count(add, other, |own, _| own != 5), 0);
    let total = count(add, other, |own, before| own == 5 && before < 2);
    assert_eq!(total, count(add, other, |_, _| true));
}
