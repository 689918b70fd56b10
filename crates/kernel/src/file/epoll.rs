//! Sets of files that are watched together: epoll(7).

use super::{Open, Ready};
use crate::errno::{self, Errno};
use crate::sync::SpinLock;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

/// Report changes, not states.
const EDGE: u32 = 1 << 31;
/// Report once, until it is modified.
const ONCE: u32 = 1 << 30;
/// Reported whether asked for or not.
const ALWAYS: Ready = Ready::ERR.union(Ready::HUP);

struct Watch {
    open: Weak<Open>,
    events: u32,
    data: u64,
    /// The file's generation when it was last reported.
    reported: u64,
}

/// A set.
pub struct Epoll(SpinLock<BTreeMap<u32, Watch>>);

impl Epoll {
    /// An empty one.
    pub fn new() -> Epoll {
        Epoll(SpinLock::new(BTreeMap::new()))
    }
    /// Watches one more file.
    pub fn add(&self, number: u32, open: &Arc<Open>, events: u32, data: u64) -> errno::Result<()> {
        let mut watches = self.0.lock();
        if watches.get(&number).is_some_and(|w| w.open.strong_count() > 0) {
            return Err(Errno::EEXIST);
        }
        watches.insert(number, Watch { open: Arc::downgrade(open), events, data, reported: 0 });
        Ok(())
    }
    /// Changes what it is watched for.
    pub fn modify(&self, number: u32, events: u32, data: u64) -> errno::Result<()> {
        let mut watches = self.0.lock();
        let watch = watches.get_mut(&number).ok_or(Errno::ENOENT)?;
        (watch.events, watch.data, watch.reported) = (events, data, 0);
        Ok(())
    }
    /// Watches it no more.
    pub fn remove(&self, number: u32) -> errno::Result<()> {
        self.0.lock().remove(&number).map(|_| ()).ok_or(Errno::ENOENT)
    }
    /// Up to `max` of the files that have something to report: (events, data).
    pub fn collect(&self, max: usize) -> Vec<(u32, u64)> {
        let mut watches = self.0.lock();
        watches.retain(|_, watch| watch.open.strong_count() > 0);
        let mut found = Vec::new();
        for watch in watches.values_mut() {
            if found.len() == max {
                break;
            }
            if let Some(ready) = report(watch) {
                found.push((ready.bits(), watch.data));
                if watch.events & ONCE != 0 {
                    watch.events = 0;
                }
            }
        }
        found
    }
    /// Ready for reading when a file in it has something to report.
    pub fn ready(&self) -> Ready {
        let watches = self.0.lock();
        let any = watches.values().any(|w| w.open.upgrade().is_some_and(|open| wanted(w, &open) != Ready::empty()));
        if any { Ready::IN } else { Ready::empty() }
    }
}

/// What it is ready for, of what is asked for. A set in a set is not looked
/// into: `add` refuses it.
fn wanted(watch: &Watch, open: &Open) -> Ready {
    if watch.events == 0 {
        return Ready::empty();
    }
    open.ready() & (Ready::from_bits_truncate(watch.events) | ALWAYS)
}

fn report(watch: &mut Watch) -> Option<Ready> {
    let open = watch.open.upgrade()?;
    let generation = open.generation.load(Ordering::Relaxed);
    let ready = wanted(watch, &open);
    if ready.is_empty() || watch.events & EDGE != 0 && watch.reported == generation {
        return None;
    }
    watch.reported = generation;
    Some(ready)
}
