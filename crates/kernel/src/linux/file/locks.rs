//! Advisory locks on files: fcntl(2)'s on parts of a file, held by a process or an
//! open file, and flock(2)'s on the whole. Deadlocks are not detected: EDEADLK is
//! never returned.
//!
//! One spin lock, under which nothing is taken but the heap's.

use super::bell::Bell;
use crate::linux::errno::{self, Errno};
use crate::port::heap;
use crate::port::sync::SpinLock;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use spin::Once;

/// Heap that a lock costs.
const HEAP_PER_LOCK: usize = 256;

/// The owner of a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A process, by its number: until it closes the file, anyhow.
    Process(u32),
    /// An open file, by its address: until it is closed by all.
    Open(usize),
}

/// Locks of different families do not see each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// fcntl(2)'s.
    Part,
    /// flock(2)'s.
    Whole,
}

/// A lock that is asked for, or given up.
#[derive(Clone)]
pub struct Request {
    /// The family of locks that it sees.
    pub family: Family,
    /// Its owner.
    pub owner: Owner,
    /// Bytes.
    pub range: Range<u64>,
    /// Nobody else may have one, or nobody else an exclusive one.
    pub exclusive: bool,
}

struct Held {
    lock: Request,
    _charge: heap::Charge,
}

static LOCKS: SpinLock<BTreeMap<u64, Vec<Held>>> = SpinLock::new(BTreeMap::new());
/// Number of files with locks, for readers that only check.
static NR_FILES: AtomicU64 = AtomicU64::new(0);
static RELEASED: Once<Arc<Bell>> = Once::new();

/// Before the first process.
pub fn init() {
    RELEASED.call_once(|| Arc::new(Bell::new()));
}

/// The bell that rings when a lock is released.
pub fn bell() -> &'static Arc<Bell> {
    RELEASED.get().expect("made before the first process")
}

impl Request {
    fn is_own(&self, other: &Request) -> bool {
        self.family == other.family && self.owner == other.owner
    }
    fn overlaps(&self, other: &Request) -> bool {
        self.range.start < other.range.end && other.range.start < self.range.end
    }
    fn conflicts(&self, other: &Request) -> bool {
        let both = self.family == other.family && self.overlaps(other);
        both && self.owner != other.owner && (self.exclusive || other.exclusive)
    }
}

/// A conflicting lock.
pub fn conflict(inode_number: u64, wanted: &Request) -> Option<Request> {
    let locks = LOCKS.lock();
    let held = locks.get(&inode_number)?;
    held.iter().find(|held| held.lock.conflicts(wanted)).map(|held| held.lock.clone())
}

/// Takes the lock, or, if `takes` is not set, gives up what the owner has of the
/// range. EAGAIN if another is in the way.
pub fn set(inode_number: u64, wanted: &Request, takes: bool) -> errno::Result<()> {
    let charge = || heap::charge(HEAP_PER_LOCK).map_err(|_| Errno::ENOLCK);
    // For the new one, and for one that is cut in two.
    let mut spare = [Some(charge()?), Some(charge()?)];
    {
        let mut locks = LOCKS.lock();
        let held = locks.entry(inode_number).or_default();
        if takes && held.iter().any(|held| held.lock.conflicts(wanted)) {
            return Err(Errno::EAGAIN);
        }
        let mut kept = Vec::new();
        if kept.try_reserve(held.len() + 2).is_err() {
            return Err(Errno::ENOLCK);
        }
        for Held { lock, _charge } in held.drain(..) {
            if !lock.is_own(wanted) || !lock.overlaps(wanted) {
                kept.push(Held { lock, _charge });
                continue;
            }
            let mut charges = [Some(_charge), None];
            if lock.range.start < wanted.range.start && lock.range.end > wanted.range.end {
                charges[1] = spare[1].take();
            }
            for range in [lock.range.start..wanted.range.start, wanted.range.end..lock.range.end] {
                let charge = if range.is_empty() { None } else { charges.iter_mut().find_map(Option::take) };
                if let Some(_charge) = charge {
                    kept.push(Held { lock: Request { range, ..lock }, _charge });
                }
            }
        }
        if takes && let Some(_charge) = spare[0].take() {
            kept.push(Held { lock: wanted.clone(), _charge });
        }
        *held = kept;
        forget_unlocked(&mut locks);
    }
    // An exclusive lock may have become shared.
    bell().ring();
    Ok(())
}

fn forget_unlocked(locks: &mut BTreeMap<u64, Vec<Held>>) {
    locks.retain(|_, held| !held.is_empty());
    NR_FILES.store(locks.len() as u64, Ordering::Relaxed);
}

/// Gives up what `owner` has: of one file, or of all.
pub fn release(owner: Owner, inode_number: Option<u64>) {
    if NR_FILES.load(Ordering::Relaxed) == 0 {
        return;
    }
    {
        let mut locks = LOCKS.lock();
        let meant = locks.iter_mut().filter(|(number, _)| inode_number.is_none_or(|n| n == **number));
        meant.for_each(|(_, held)| held.retain(|held| held.lock.owner != owner));
        forget_unlocked(&mut locks);
    }
    bell().ring();
}
