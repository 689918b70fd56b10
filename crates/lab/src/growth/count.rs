//! Counts the words of the core that a call reads or writes, with the recorder.

use softfault_recorded::sync::record;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

/// Structures and fields that are named where a row grows.
const NR_PLACES: usize = 3;

/// One structure, one field, and the steps there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// As `Vm::describe` names it.
    pub name: String,
    /// Words touched.
    pub steps: u64,
}

/// Touches of one call whose places are kept: memory is bounded, counts are not.
const MOST_KEPT: usize = 1 << 20;

/// The words that one call touched.
#[derive(Default)]
struct Touched {
    nr: u64,
    /// The first of them.
    addrs: Vec<usize>,
}

/// The calls of one row so far.
pub struct Counter {
    now: Rc<RefCell<Touched>>,
    worst: Touched,
    ns: Vec<u64>,
    /// Words touched by all calls.
    pub total: u64,
}

impl Counter {
    /// No call yet.
    pub fn new() -> Counter {
        Counter { now: Rc::default(), worst: Touched::default(), ns: Vec::new(), total: 0 }
    }

    /// Runs a call and counts what it touches.
    pub fn count<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let now = Rc::clone(&self.now);
        record(Some(Box::new(move |addr, _| {
            let mut now = now.borrow_mut();
            now.nr += 1;
            if now.addrs.len() < MOST_KEPT {
                now.addrs.push(addr);
            }
        })));
        let done = call();
        record(None);
        let mut now = self.now.borrow_mut();
        self.total += now.nr;
        if now.nr > self.worst.nr {
            std::mem::swap(&mut self.worst, &mut now);
        }
        now.nr = 0;
        now.addrs.clear();
        done
    }

    /// Runs a call, unrecorded, and times it.
    pub fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = call();
        self.ns.push(start.elapsed().as_nanos() as u64);
        done
    }

    /// Words touched by the worst call.
    pub fn steps(&self) -> u64 {
        self.worst.nr
    }

    /// The median of the calls that were timed.
    pub fn ns(&self) -> f64 {
        crate::bench::median(self.ns.iter().map(|ns| *ns as f64))
    }

    /// Where the worst call was most, the most first.
    pub fn places(&self, name: impl Fn(usize) -> String) -> Vec<Place> {
        let mut sums: HashMap<String, u64> = HashMap::new();
        for addr in &self.worst.addrs {
            *sums.entry(name(*addr)).or_default() += 1;
        }
        let mut places: Vec<Place> = sums.into_iter().map(|(name, steps)| Place { name, steps }).collect();
        places.sort_by(|a, b| (b.steps, &a.name).cmp(&(a.steps, &b.name)));
        places.truncate(NR_PLACES);
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softfault_recorded::sync::{Ordering, Word};

    #[test]
    fn the_worst_call_counts_and_unrecorded_ones_do_not() {
        let words = [const { Word::new(0) }; 4];
        let mut counter = Counter::new();
        for nr in [2, 4, 3] {
            counter.count(|| words.iter().take(nr).for_each(|w| _ = w.fetch_add(1, Ordering::Relaxed)));
        }
        counter.time(|| words.iter().for_each(|w| w.set(7)));
        words[0].set(0);
        assert_eq!((counter.steps(), counter.total), (4, 9));
        let place = |addr: usize| if addr == std::ptr::from_ref(&words[3]).addr() { "last" } else { "others" }.into();
        let others = [("others", 3), ("last", 1)].map(|(name, steps)| Place { name: name.into(), steps });
        assert_eq!(counter.places(place), others);
        assert!(counter.ns() > 0.0);
    }
}
