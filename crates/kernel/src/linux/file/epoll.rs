//! Sets of files that are watched together: epoll(7).

use super::Open;
use super::bell::{Bell, Places};
use super::ready::Ready;
use crate::linux::errno::{self, Errno};
use crate::port::heap;
use crate::port::sync::SpinLock;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

/// Heap that a set costs: the map is large from its first entry on.
const HEAP_BYTES: usize = 1024;
/// Heap that a watched file costs.
const HEAP_PER_WATCH: usize = 128;
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
    /// How often the file's bells had rung when it was last reported.
    reported: Option<u64>,
    _charge: heap::Charge,
}

/// A file that has something to report.
pub struct Found {
    /// The events.
    pub ready: u32,
    /// The program's name for it.
    pub data: u64,
    number: u32,
    /// As the watch was before.
    events: u32,
    reported: Option<u64>,
}

/// A set.
pub struct Epoll {
    watches: SpinLock<BTreeMap<u32, Watch>>,
    /// Rings when the set changes.
    bell: Arc<Bell>,
    _charge: heap::Charge,
}

impl Epoll {
    /// An empty one.
    pub fn new() -> errno::Result<Epoll> {
        let _charge = heap::charge(HEAP_BYTES)?;
        Ok(Epoll { watches: SpinLock::new(BTreeMap::new()), bell: Arc::new(Bell::new()), _charge })
    }
    /// Watches one more file.
    pub fn add(&self, number: u32, open: &Arc<Open>, events: u32, data: u64) -> errno::Result<()> {
        let _charge = heap::charge(HEAP_PER_WATCH)?;
        let mut watches = self.watches.lock();
        if watches.get(&number).is_some_and(|w| w.open.strong_count() > 0) {
            return Err(Errno::EEXIST);
        }
        let watch = Watch { open: Arc::downgrade(open), events, data, reported: None, _charge };
        let before = watches.insert(number, watch);
        drop(watches);
        drop(before);
        self.bell.ring();
        Ok(())
    }
    /// Changes the events it is watched for.
    pub fn modify(&self, number: u32, events: u32, data: u64) -> errno::Result<()> {
        {
            let mut watches = self.watches.lock();
            let watch = watches.get_mut(&number).ok_or(Errno::ENOENT)?;
            (watch.events, watch.data, watch.reported) = (events, data, None);
        }
        self.bell.ring();
        Ok(())
    }
    /// Watches it no more.
    pub fn remove(&self, number: u32) -> errno::Result<()> {
        self.watches.lock().remove(&number).map(|_| ()).ok_or(Errno::ENOENT)
    }
    /// The bell that rings when the set itself changes.
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }
    fn opens(&self) -> errno::Result<Vec<Arc<Open>>> {
        let watches = self.watches.lock();
        let mut opens = Vec::new();
        opens.try_reserve_exact(watches.len()).map_err(|_| Errno::ENOMEM)?;
        opens.extend(watches.values().filter_map(|watch| watch.open.upgrade()));
        Ok(opens)
    }
    /// Has a thread wait for all that is in it now.
    pub fn enter(&self, places: &mut Places) -> errno::Result<()> {
        self.opens()?.iter().try_for_each(|open| open.enter(places))
    }
    /// Up to `max` of the files that have something to report. Each counts as reported.
    pub fn collect(&self, max: usize) -> Vec<Found> {
        // Dropped after the lock: it may be the last of a file.
        let mut kept = Vec::new();
        let mut found = Vec::new();
        let mut watches = self.watches.lock();
        watches.retain(|_, watch| watch.open.strong_count() > 0);
        for (number, watch) in watches.iter_mut() {
            if found.len() == max {
                break;
            }
            let Some(open) = watch.open.upgrade() else { continue };
            let (events, reported) = (watch.events, watch.reported);
            let ready = report(watch, &open);
            kept.push(open);
            if let Some(ready) = ready {
                found.push(Found { ready: ready.bits(), data: watch.data, number: *number, events, reported });
                if watch.events & ONCE != 0 {
                    watch.events = 0;
                }
            }
        }
        found
    }
    /// Takes back that these were reported: the program had no memory for them. Those that were changed meanwhile stay as
    /// they are.
    pub fn put_back(&self, found: &[Found]) {
        let mut watches = self.watches.lock();
        for found in found {
            let Some(watch) = watches.get_mut(&found.number) else { continue };
            let events_now = if found.events & ONCE != 0 { 0 } else { found.events };
            if (watch.events, watch.data) == (events_now, found.data) {
                (watch.events, watch.reported) = (found.events, found.reported);
            }
        }
        drop(watches);
        self.bell.ring();
    }
    /// Ready for reading when a file in it has something to report.
    pub fn ready(&self) -> Ready {
        let mut kept = Vec::new();
        let watches = self.watches.lock();
        let any = watches.values().any(|watch| {
            let Some(open) = watch.open.upgrade() else { return false };
            let ready = wanted(watch, &open);
            kept.push(open);
            !ready.is_empty()
        });
        if any { Ready::IN } else { Ready::empty() }
    }
}

/// Returns the events that the file is ready for, among those asked for. A set in a set is not looked
/// into: `add` refuses it.
fn wanted(watch: &Watch, open: &Open) -> Ready {
    if watch.events == 0 {
        return Ready::empty();
    }
    open.ready() & (Ready::from_bits_truncate(watch.events) | ALWAYS)
}

fn report(watch: &mut Watch, open: &Open) -> Option<Ready> {
    // Counted before it is looked at: a ring in between is reported once more,
    // not lost.
    let nr_rings = Some(open.nr_rings(Ready::from_bits_truncate(watch.events)));
    let ready = wanted(watch, open);
    if ready.is_empty() || watch.events & EDGE != 0 && watch.reported == nr_rings {
        return None;
    }
    watch.reported = nr_rings;
    Some(ready)
}
