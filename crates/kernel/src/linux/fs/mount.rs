//! A mounted file system. There is one kind: hugetlbfs, whose files have the pages of a pool. `mounts` has all of them.
//!
//! No lock: what changes is in words.

use super::content::Content;
use super::options::Options;
use super::seals::Seals;
use crate::linux::errno::{self, Errno};
use crate::port::heap;
use crate::port::mm;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use softfault::Order;

/// Heap that a mount costs, besides its source.
const HEAP_BYTES: usize = 512;
/// Number of the first file system that is mounted.
const FIRST_DEVICE: u64 = 0x20;

static NEXT_DEVICE: AtomicU64 = AtomicU64::new(FIRST_DEVICE);

/// A mounted file system: a hugetlbfs.
pub struct Mount {
    /// Number of its file system.
    pub device: u64,
    root_number: u64,
    /// The options it was mounted with.
    pub options: Options,
    subpool: Option<mm::Subpool>,
    nr_inodes: AtomicU64,
    /// Files of it that are open.
    nr_open: AtomicU64,
    /// The source that mount(2) named.
    pub source: Arc<[u8]>,
    _charge: heap::Charge,
}

impl Mount {
    /// A new one, whose root will have that number.
    pub fn new(root_number: u64, options: Options, source: &[u8]) -> errno::Result<Arc<Mount>> {
        let subpool = options.sizes.map(|sizes| mm::new_subpool(options.order, sizes)).transpose();
        let subpool = subpool.map_err(|error| error.errno())?;
        Ok(Arc::new(Mount {
            device: NEXT_DEVICE.fetch_add(1, Ordering::Relaxed),
            root_number,
            options,
            subpool,
            nr_inodes: AtomicU64::new(0),
            nr_open: AtomicU64::new(0),
            source: source.into(),
            _charge: heap::charge(HEAP_BYTES + source.len())?,
        }))
    }
    /// The size of its files' pages.
    pub fn order(&self) -> Order {
        self.options.order
    }
    /// The content of a new file, which is empty.
    pub fn new_content(&self) -> errno::Result<Content> {
        let Some(subpool) = &self.subpool else { return Content::huge(self.order(), Seals::SEAL) };
        let object = subpool.new_object(0).map_err(|error| error.errno())?;
        Ok(Content::of_huge(object, self.order(), Seals::SEAL))
    }
    /// How many pages there may be, and how many more; nothing without a limit.
    pub fn page_limit(&self) -> Option<[u64; 2]> {
        let subpool = self.subpool.as_ref()?;
        let most = subpool.limits().most?;
        Some([most, most.saturating_sub(subpool.nr_used())])
    }
    /// How many inodes there may be, and how many more; nothing without a limit.
    pub fn inode_limit(&self) -> Option<[u64; 2]> {
        let most = self.options.nr_inodes?;
        Some([most, most.saturating_sub(self.nr_inodes.load(Ordering::Relaxed))])
    }
    /// Whether one of its files is open.
    pub fn is_in_use(&self) -> bool {
        self.nr_open.load(Ordering::Relaxed) > 0
    }
    /// Whether its root has that number.
    pub fn is_root(&self, number: u64) -> bool {
        self.root_number == number
    }
}

/// The place of an inode in a mount, which is counted.
pub struct Place(Arc<Mount>);

impl Place {
    /// ENOSPC if there may be no more inodes.
    pub fn in_mount(mount: &Arc<Mount>) -> errno::Result<Place> {
        let place = Place(mount.clone());
        let before = mount.nr_inodes.fetch_add(1, Ordering::Relaxed);
        let is_full = mount.options.nr_inodes.is_some_and(|most| before >= most);
        if is_full { Err(Errno::ENOSPC) } else { Ok(place) }
    }
    /// The mount.
    pub fn mount(&self) -> &Arc<Mount> {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.nr_inodes.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps the mount of a file that is open.
pub struct InUse(Arc<Mount>);

impl InUse {
    /// One more file of it is open.
    pub fn of(mount: &Arc<Mount>) -> InUse {
        mount.nr_open.fetch_add(1, Ordering::Relaxed);
        InUse(mount.clone())
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.nr_open.fetch_sub(1, Ordering::Relaxed);
    }
}
