//! Segments of System V shared memory: shmget(2) and its kin. Attachments
//! are not recorded: they are the mappings.
//!
//! The table has one spin lock, under which nothing is taken but the heap's;
//! segments that are dropped go after it.

use crate::linux::errno::{self, Errno};
use crate::linux::knobs::{SHM_NEXT_ID, SHMALL, SHMMAX, SHMMNI};
use crate::linux::process::identity::{Capability, Identity};
use crate::port::arch::time::wall_ns;
use crate::port::heap;
use crate::port::mm::{self, Object};
use crate::port::sync::SpinLock;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use softfault::Order;

/// A number is `sequence << INDEX_BITS | place in the table`, so that an old
/// number does not name a new segment.
const INDEX_BITS: u32 = 15;
const MAX_SEQUENCE: u32 = (1 << (31 - INDEX_BITS)) - 1;
/// Heap that a segment costs.
const HEAP_BYTES: usize = 256;
/// Bits that the mode shows beside the rights.
const SHM_DEST: u32 = 0o1000;
const SHM_LOCKED: u32 = 0o2000;
/// The key of segments that are found by number alone.
pub const PRIVATE: i32 = 0;

/// Properties of a segment that can change.
#[derive(Clone, Copy)]
pub struct Meta {
    /// The key by which it is found; [`PRIVATE`] once it is to go.
    pub key: i32,
    /// To go when nobody has it attached any more.
    pub is_doomed: bool,
    /// shmctl(SHM_LOCK) was called.
    pub is_locked: bool,
    /// Rights of owner, group and others.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// User and group of its creator.
    pub creator: [u32; 2],
    /// The process that attached or detached it last.
    pub last_pid: u32,
    /// When it was attached, detached, changed last; 0 is never.
    pub attached_s: i64,
    /// See above.
    pub detached_s: i64,
    /// See above.
    pub changed_s: i64,
}

impl Meta {
    /// Whether it may be read, written, executed: bits 4, 2 and 1 of `wanted`.
    pub fn allows(&self, who: &Identity, wanted: u32) -> bool {
        let rights = match () {
            () if self.is_owned(who) => self.mode >> 6,
            () if [self.gid, self.creator[1]].contains(&who.groups.effective) => self.mode >> 3,
            () => self.mode,
        };
        wanted & !rights & 7 == 0 || who.has(Capability::IpcOwner)
    }
    /// The mode as shmctl(2) and /proc show it.
    pub fn shown_mode(&self) -> u32 {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        self.mode | bit(self.is_doomed, SHM_DEST) | bit(self.is_locked, SHM_LOCKED)
    }
    /// Whether the user has it or has made it.
    pub fn is_owned(&self, who: &Identity) -> bool {
        [self.uid, self.creator[0]].contains(&who.users.effective)
    }
}

/// A segment.
pub struct Segment {
    /// Its number.
    pub id: u32,
    /// Its memory.
    pub object: Object,
    /// Its pages come from a pool. What it reserves it has reserved when it was made, and no mapping reserves more.
    pub is_huge: bool,
    /// Its size as it was asked for.
    pub size_bytes: u64,
    /// The process that made it.
    pub creator_pid: u32,
    meta: SpinLock<Meta>,
    _charge: heap::Charge,
}

/// The time in seconds.
pub fn now_s() -> i64 {
    (wall_ns() / 1_000_000_000) as i64
}

impl Segment {
    /// Pages of its memory.
    pub fn nr_pages(&self) -> u64 {
        self.object.size_bytes() / 4096
    }
    /// A copy of what can change.
    pub fn meta(&self) -> Meta {
        *self.meta.lock()
    }
    /// Changes it.
    pub fn change(&self, f: impl FnOnce(&mut Meta)) {
        f(&mut self.meta.lock());
    }
    /// Its place in the table.
    pub fn index(&self) -> u32 {
        self.id & ((1 << INDEX_BITS) - 1)
    }
    /// The number of times that its place was given away before.
    pub fn sequence(&self) -> u32 {
        self.id >> INDEX_BITS
    }
}

#[derive(Default)]
struct Slot {
    segment: Option<Arc<Segment>>,
    sequence: u32,
}

static TABLE: SpinLock<Vec<Slot>> = SpinLock::new(Vec::new());
/// Segments that are to go, so that a call that unmaps something knows whether to look.
static NR_DOOMED: AtomicU32 = AtomicU32::new(0);

/// All segments, in the order of their places.
pub fn all() -> Vec<Arc<Segment>> {
    TABLE.lock().iter().filter_map(|slot| slot.segment.clone()).collect()
}

/// The segment with this number.
pub fn find(id: u32) -> Option<Arc<Segment>> {
    at_index(id & ((1 << INDEX_BITS) - 1)).filter(|segment| segment.id == id)
}

/// The segment at this place of the table.
pub fn at_index(index: u32) -> Option<Arc<Segment>> {
    TABLE.lock().get(index as usize)?.segment.clone()
}

/// The segment with this key.
pub fn with_key(key: i32) -> Option<Arc<Segment>> {
    TABLE.lock().iter().filter_map(|slot| slot.segment.as_ref()).find(|s| s.meta.lock().key == key).cloned()
}

/// The segment that consists of this object.
pub fn of_object(id: softfault::ObjectId) -> Option<Arc<Segment>> {
    TABLE.lock().iter().filter_map(|slot| slot.segment.as_ref()).find(|s| s.object.id() == id).cloned()
}

/// Which pages a segment of huge pages has, whether they are reserved when it is made, and whether its maker may have them.
#[derive(Clone, Copy)]
pub struct Huge {
    /// Their size.
    pub order: Order,
    /// Not with SHM_NORESERVE.
    pub is_reserved: bool,
    /// It has `CAP_IPC_LOCK`, or is of the group that may.
    pub is_allowed: bool,
}

impl Huge {
    fn object(self, nr_pages: u64) -> errno::Result<Object> {
        if !self.is_allowed {
            return Err(Errno::EPERM);
        }
        let object = mm::new_huge_object(nr_pages * 4096, self.order).map_err(|error| error.errno())?;
        if self.is_reserved {
            object.reserve(0..nr_pages).map_err(|error| error.errno())?;
        }
        Ok(object)
    }
}

/// The creator of a segment.
pub struct Maker {
    /// The process.
    pub pid: u32,
    /// Its user and group.
    pub owner: [u32; 2],
}

/// Makes a segment; EEXIST if the key has got one meanwhile.
/// With `huge` its pages come from a pool, all of them reserved now if it says so, and none later: shmat(2) reserves nothing.
pub fn create(key: i32, size_bytes: u64, mode: u32, maker: &Maker, huge: Option<Huge>) -> errno::Result<Arc<Segment>> {
    if size_bytes == 0 || size_bytes > SHMMAX.get() {
        return Err(Errno::EINVAL);
    }
    let page_pages = huge.map_or(1, |huge| huge.order.nr_pages());
    let nr_pages = size_bytes.div_ceil(4096).checked_next_multiple_of(page_pages).ok_or(Errno::EINVAL)?;
    if all().iter().fold(nr_pages, |nr, other| nr.saturating_add(other.nr_pages())) > SHMALL.get() {
        return Err(Errno::ENOSPC);
    }
    let charge = heap::charge(HEAP_BYTES)?;
    let object = match huge {
        None => mm::new_object(nr_pages * 4096)?,
        Some(huge) => huge.object(nr_pages)?,
    };
    let meta = Meta {
        key,
        is_doomed: false,
        is_locked: false,
        mode,
        uid: maker.owner[0],
        gid: maker.owner[1],
        creator: maker.owner,
        last_pid: 0,
        attached_s: 0,
        detached_s: 0,
        changed_s: now_s(),
    };
    let segment = Segment {
        id: 0,
        object,
        is_huge: huge.is_some(),
        size_bytes,
        creator_pid: maker.pid,
        meta: SpinLock::new(meta),
        _charge: charge,
    };
    insert(key, segment)
}

/// The place at which to look for a free one first, and the sequence of the number: of the number in
/// /proc/sys/kernel/shm_next_id, which counts once. As on Linux that is so for a segment, too, that finds no place
/// from there on; one that is refused before leaves the number.
fn next_place() -> (usize, Option<u32>) {
    match SHM_NEXT_ID.swap_int(-1) {
        id @ 0.. => (id as usize & ((1 << INDEX_BITS) - 1), Some(id as u32 >> INDEX_BITS)),
        _ => (0, None),
    }
}

/// Gives a segment a place. A refused segment is dropped after the lock.
fn insert(key: i32, mut segment: Segment) -> errno::Result<Arc<Segment>> {
    let mut table = TABLE.lock();
    let refusal = match free_place(&mut table, key) {
        Err(refusal) => refusal,
        Ok(index) => {
            segment.id = table[index].sequence << INDEX_BITS | index as u32;
            let segment = Arc::new(segment);
            table[index].segment = Some(segment.clone());
            return Ok(segment);
        }
    };
    drop(table);
    drop(segment);
    Err(refusal)
}

/// Finds a place in the table for a segment with that key, or makes one.
fn free_place(table: &mut Vec<Slot>, key: i32) -> errno::Result<usize> {
    let used = || table.iter().filter_map(|slot| slot.segment.as_ref());
    if key != PRIVATE && used().any(|s| s.meta.lock().key == key) {
        return Err(Errno::EEXIST);
    }
    if used().count() as u64 >= SHMMNI.get() {
        return Err(Errno::ENOSPC);
    }
    let (first, sequence) = next_place();
    let is_free = |index: &usize| table.get(*index).is_none_or(|slot| slot.segment.is_none());
    let index = (first..1 << INDEX_BITS).find(is_free).ok_or(Errno::ENOSPC)?;
    if index >= table.len() {
        table.try_reserve(index + 1 - table.len()).map_err(|_| Errno::ENOMEM)?;
        table.resize_with(index + 1, Slot::default);
    }
    table[index].sequence = sequence.unwrap_or(table[index].sequence);
    Ok(index)
}

/// shmctl(IPC_RMID): nobody finds it by key any more, and it goes with its last
/// attachment.
pub fn doom(segment: &Segment) {
    let mut meta = segment.meta.lock();
    let is_first = !core::mem::replace(&mut meta.is_doomed, true);
    (meta.key, meta.changed_s) = (PRIVATE, now_s());
    drop(meta);
    if is_first {
        NR_DOOMED.fetch_add(1, Ordering::Relaxed);
    }
    sweep();
}

/// Something was unmapped: segments that were to go when they are not attached go.
pub fn sweep() {
    if NR_DOOMED.load(Ordering::Relaxed) == 0 {
        return;
    }
    for segment in all() {
        if segment.meta().is_doomed && !segment.object.is_mapped() {
            remove(&segment);
        }
    }
}

fn remove(segment: &Arc<Segment>) {
    let mut table = TABLE.lock();
    let slot = table.get_mut(segment.index() as usize);
    let Some(slot) = slot.filter(|slot| slot.segment.as_ref().is_some_and(|s| Arc::ptr_eq(s, segment))) else { return };
    let gone = slot.segment.take();
    slot.sequence = if slot.sequence == MAX_SEQUENCE { 0 } else { slot.sequence + 1 };
    drop(table);
    NR_DOOMED.fetch_sub(1, Ordering::Relaxed);
    drop(gone);
}
