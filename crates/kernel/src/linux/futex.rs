//! futex(2): threads that wait at an address until another wakes them.
//!
//! A waiter first joins its queue and only then looks at the word, so that
//! a wake between the two cannot be missed; no lock is held while it looks,
//! since looking may be a page fault.

use crate::linux::errno::{self, Errno, Restart};
use crate::linux::process::thread::{self, Thread};
use crate::port::mm::{self, Space, USER_END};
use crate::port::sched;
use crate::port::sync::SpinLock;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, Ordering};
use softfault::{ObjectId, VmaFlags, Vpn};

const NR_BUCKETS: usize = 64;

/// Identity of a futex: in shared memory the object and the place in it, so
/// that all who map it mean the same one; else the address space and the address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    home: Home,
    at: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    Space(u64),
    Object(u64),
}

impl Key {
    /// The futex at `addr`. `private` says that nobody else is meant, whatever the
    /// memory; then it is not looked at. Else there has to be a page, which in private
    /// memory may be written.
    pub fn of(space: &Space, addr: u64, private: bool) -> errno::Result<Key> {
        if !addr.is_multiple_of(4) {
            return Err(Errno::EINVAL);
        }
        if addr >= USER_END {
            return Err(Errno::EFAULT);
        }
        let own = Key { home: Home::Space(space.tag().id), at: addr };
        if private {
            return Ok(own);
        }
        let vma = space.vma(addr).ok_or(Errno::EFAULT)?;
        mm::get::<u32>(space, addr)?;
        if vma.object != ObjectId::NONE {
            let at = vma.pgoff_of(Vpn::of(addr)) << 12 | addr & 0xfff;
            return Ok(Key { home: Home::Object(vma.object.0), at });
        }
        if vma.flags.contains(VmaFlags::WRITE) { Ok(own) } else { Err(Errno::EFAULT) }
    }
    fn bucket(self) -> usize {
        let home = match self.home {
            Home::Space(id) | Home::Object(id) => id,
        };
        let hash = (self.at >> 2 ^ home).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 58) as usize
    }
}

const WAITING: u8 = 0;
const WOKEN: u8 = 1;
const GONE: u8 = 2;

/// One compare-and-swap decides between its waker and itself.
struct Waiter {
    thread: Arc<Thread>,
    state: AtomicU8,
}

impl Waiter {
    fn decide(&self, state: u8) -> bool {
        self.state.compare_exchange(WAITING, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
    fn is_woken(&self) -> bool {
        self.state.load(Ordering::Acquire) == WOKEN
    }
    fn is_gone(&self) -> bool {
        self.state.load(Ordering::Acquire) == GONE
    }
}

/// A place in a queue.
struct Place {
    key: Key,
    bits: u32,
    waiter: Arc<Waiter>,
}

type Bucket = SpinLock<VecDeque<Place>>;
static BUCKETS: [Bucket; NR_BUCKETS] = [const { SpinLock::new(VecDeque::new()) }; NR_BUCKETS];

/// Ends the waiting; false if a wake has chosen this waiter: then that is how it
/// ended. A requeue may have moved the place, or be moving it: the place that it
/// puts back then names a waiter that is gone, and the next wake passes over it.
fn leave(waiter: &Arc<Waiter>, key: Key) -> bool {
    if !waiter.decide(GONE) {
        return false;
    }
    let take = |bucket: &Bucket| {
        let mut queue = bucket.lock();
        let at = queue.iter().position(|p| Arc::ptr_eq(&p.waiter, waiter))?;
        queue.remove(at)
    };
    if take(&BUCKETS[key.bucket()]).is_none() {
        let _ = BUCKETS.iter().find_map(take);
    }
    true
}

/// Waits at `addr` while the word there is `expected`, for a wake that has one
/// of `bits`, or until `deadline_ns`.
pub fn wait(space: &Space, key: Key, addr: u64, expected: u32, bits: u32, deadline_ns: Option<u64>) -> errno::Result {
    if !addr.is_multiple_of(4) || bits == 0 {
        return Err(Errno::EINVAL);
    }
    let thread = thread::current();
    let waiter = Arc::new(Waiter { thread: thread.clone(), state: AtomicU8::new(WAITING) });
    BUCKETS[key.bucket()].lock().push_back(Place { key, bits, waiter: waiter.clone() });
    let seen = mm::get::<u32>(space, addr);
    if seen != Ok(expected) {
        // A wake that chose this thread meanwhile counts: its sender relies on it.
        return match (leave(&waiter, key), seen) {
            (false, _) => Ok(0),
            (true, Ok(_)) => Err(Errno::EAGAIN),
            (true, Err(errno)) => Err(errno),
        };
    }
    let result = loop {
        if waiter.is_woken() {
            return Ok(0);
        }
        if deadline_ns.is_some_and(|d| crate::port::arch::time::now_ns() >= d) {
            break Errno::ETIMEDOUT;
        }
        if thread.is_interrupted() {
            break if deadline_ns.is_some() { Restart::Unhandled.errno() } else { Restart::AsAsked.errno() };
        }
        sched::block_until(deadline_ns);
    };
    if leave(&waiter, key) { Err(result) } else { Ok(0) }
}

/// Takes up to `nr` places at `key` of which `is_meant` says so. All under one lock: a thread that is woken and waits again at
/// once has a new place, and the call that woke it must not count it twice. Besides those it takes places whose waiters have
/// gone, which a requeue has put back: the caller drops them without the lock, since that may end a thread.
fn take(queue: &mut VecDeque<Place>, key: Key, nr: u32, mut is_meant: impl FnMut(&Place) -> bool) -> Vec<Place> {
    let mut taken = Vec::new();
    let (mut i, mut nr_left) = (0, nr);
    while i < queue.len() && nr_left > 0 {
        let is_next = queue[i].key == key && is_meant(&queue[i]);
        if is_next || queue[i].waiter.is_gone() {
            nr_left -= u32::from(is_next);
            taken.extend(queue.remove(i));
        } else {
            i += 1;
        }
    }
    taken
}

/// Takes those to be woken; for each, this call has decided how its waiting ends.
fn take_woken(queue: &mut VecDeque<Place>, key: Key, nr: u32, bits: u32) -> Vec<Place> {
    take(queue, key, nr, |place| place.bits & bits != 0 && place.waiter.decide(WOKEN))
}

fn wake_all(taken: &[Place]) -> u64 {
    let woken = taken.iter().filter(|place| place.waiter.is_woken());
    woken.inspect(|place| sched::wake(&place.waiter.thread)).count() as u64
}

/// Wakes up to `nr` of those who wait at `key` for one of `bits`; how many.
pub fn wake(key: Key, nr: u32, bits: u32) -> u64 {
    let woken = take_woken(&mut BUCKETS[key.bucket()].lock(), key, nr, bits);
    wake_all(&woken)
}

/// Wakes up to `nr_wake` who wait at `from` and moves up to `nr_move` of the
/// others to `to`; how many were woken and moved.
pub fn requeue(from: Key, to: Key, nr_wake: u32, nr_move: u32) -> u64 {
    let is_there = |place: &Place| !place.waiter.is_gone();
    let (woken, mut moved) = {
        let mut queue = BUCKETS[from.bucket()].lock();
        let woken = take_woken(&mut queue, from, nr_wake, u32::MAX);
        (woken, if from == to { Vec::new() } else { take(&mut queue, from, nr_move, is_there) })
    };
    moved.retain(is_there);
    let nr_moved = moved.len() as u64;
    // One bucket at a time: between the two the waiters stand nowhere; see `leave`.
    BUCKETS[to.bucket()].lock().extend(moved.into_iter().map(|place| Place { key: to, ..place }));
    wake_all(&woken) + nr_moved
}
