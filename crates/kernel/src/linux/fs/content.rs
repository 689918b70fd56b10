//! The bytes of a plain file. They stay where the loader put them (the archive)
//! until the file is written, truncated or mapped shared; from then on they are
//! in a shared object of the memory subsystem. Those of a file of hugetlbfs are there from the beginning: in
//! huge pages of a pool. write(2) does not take them, and their size is in whole pages.
//!
//! Readers take no lock for long: they work on what the file had when they
//! looked. Writers are one at a time ([`Content::writer`]).

use super::seals::Seals;
use crate::linux::errno::{self, Errno};
use crate::port::mm;
use crate::port::sched::sleeping::{RawSleeping, SleepingLock};
use crate::port::sync::SpinLock;
use alloc::sync::Arc;
use core::cmp::Ordering;
use lock_api::MutexGuard;
use softfault::{HugetlbError, ObjectId, Order};

/// Bytes that are moved at a time.
const PAGE_BYTES: u64 = 4096;
/// Largest file: what an offset can express. As Linux has it for tmpfs and hugetlbfs; objects of the memory subsystem are no larger.
pub const MAX_SIZE_BYTES: u64 = i64::MAX as u64;
const _: () = assert!(MAX_SIZE_BYTES == mm::Object::MAX_BYTES);

#[derive(Clone)]
enum Bytes {
    Archive(&'static [u8]),
    Object(Arc<mm::Object>),
}

/// A file's content.
pub struct Content {
    bytes: SpinLock<Bytes>,
    /// The size of its pages, if they come from a pool.
    huge: Option<Order>,
    /// Held by the one who changes it.
    writing: SleepingLock<Seals>,
}

/// The right to change a content: the lock of its seals.
pub struct Writer<'a> {
    content: &'a Content,
    seals: MutexGuard<'a, RawSleeping, Seals>,
}

impl Content {
    /// With the bytes of the archive, or none.
    pub fn new(bytes: &'static [u8]) -> Content {
        Content::sealed(bytes, Seals::SEAL)
    }
    /// The same with seals, which others may be added to.
    pub fn sealed(bytes: &'static [u8], seals: Seals) -> Content {
        Content { bytes: SpinLock::new(Bytes::Archive(bytes)), huge: None, writing: SleepingLock::new(seals) }
    }
    /// Empty, of huge pages of that order.
    pub fn huge(order: Order, seals: Seals) -> errno::Result<Content> {
        let object = mm::new_huge_object(0, order).map_err(|error| error.errno())?;
        Ok(Content::of_huge(object, order, seals))
    }
    /// The object, which has huge pages of that order.
    pub fn of_huge(object: mm::Object, order: Order, seals: Seals) -> Content {
        let bytes = SpinLock::new(Bytes::Object(Arc::new(object)));
        Content { bytes, huge: Some(order), writing: SleepingLock::new(seals) }
    }
    /// The size of its pages, if they come from a pool.
    pub fn huge_order(&self) -> Option<Order> {
        self.huge
    }
    /// The size of its pages.
    pub fn page_bytes(&self) -> u64 {
        self.huge.unwrap_or(Order::BASE).nr_pages() * PAGE_BYTES
    }
    fn bytes(&self) -> Bytes {
        self.bytes.lock().clone()
    }
    /// Its size.
    pub fn size_bytes(&self) -> u64 {
        match self.bytes() {
            Bytes::Archive(bytes) => bytes.len() as u64,
            Bytes::Object(object) => object.size_bytes(),
        }
    }
    /// Bytes of memory that it takes, apart from the archive.
    pub fn resident_bytes(&self) -> u64 {
        match self.bytes() {
            Bytes::Archive(bytes) => bytes.len() as u64,
            Bytes::Object(object) => object.nr_resident_pages() * PAGE_BYTES,
        }
    }
    /// The archive's bytes, while they are the content.
    pub fn archive_bytes(&self) -> Option<&'static [u8]> {
        match *self.bytes.lock() {
            Bytes::Archive(bytes) => Some(bytes),
            Bytes::Object(_) => None,
        }
    }
    /// Reads from `offset` on, up to the end.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> usize {
        match self.bytes() {
            Bytes::Archive(bytes) => {
                let start = offset.min(bytes.len() as u64) as usize;
                let part = &bytes[start..];
                let nr = part.len().min(into.len());
                into[..nr].copy_from_slice(&part[..nr]);
                nr
            }
            Bytes::Object(object) => object.read(offset, into),
        }
    }
    /// The first offset from `from` on that holds data, or the first that holds
    /// none; the end is a hole. Nothing behind the last data. All of the archive is data, and, as on Linux, all of a file
    /// of hugetlbfs.
    pub fn seek(&self, from: u64, data: bool) -> Option<u64> {
        let size = self.size_bytes();
        if from >= size {
            return None;
        }
        let object = match self.bytes() {
            Bytes::Object(object) if self.huge.is_none() => object,
            _ => return Some(if data { from } else { size }),
        };
        let pages = from / PAGE_BYTES..size.div_ceil(PAGE_BYTES);
        let page = match data {
            true => object.next_resident(pages)?,
            false => {
                let is_data = |page: &u64| object.next_resident(*page..*page + 1).is_some();
                return Some(pages.into_iter().find(|p| !is_data(p)).map_or(size, |p| (p * PAGE_BYTES).max(from)));
            }
        };
        Some((page * PAGE_BYTES).max(from))
    }
    /// The number of the shared object with the content, if there is one.
    pub fn object_id(&self) -> Option<ObjectId> {
        match &*self.bytes.lock() {
            Bytes::Archive(_) => None,
            Bytes::Object(object) => Some(object.id()),
        }
    }
    /// Acquires the right to change it. Sleeps while another thread has it.
    pub fn writer(&self) -> Writer<'_> {
        Writer { content: self, seals: self.writing.lock() }
    }
    /// The shared object with the content.
    pub fn object(&self) -> errno::Result<Arc<mm::Object>> {
        self.writer().object()
    }
    /// F_ADD_SEALS for a file whose mode `mode` gives, under the writer's lock as chmod(2).
    pub fn add_seals(&self, mode: impl FnOnce() -> u32, wanted: u32) -> errno::Result<()> {
        let mut wanted = Seals::from_bits(wanted).ok_or(Errno::EINVAL)?;
        let mut writer = self.writer();
        let seals = writer.seals();
        seals.check(Seals::SEAL)?;
        // New mappings need the lock; one that is moved or forked is in the count throughout.
        if (wanted - seals).contains(Seals::WRITE) && writer.object()?.nr_writable_pages() != 0 {
            return Err(Errno::EBUSY);
        }
        if wanted.contains(Seals::EXEC) && mode() & 0o111 != 0 {
            wanted |= Seals::WITH_EXEC;
        }
        writer.set_seals(seals | wanted);
        Ok(())
    }
}

impl Writer<'_> {
    /// Operations that are not allowed on the file.
    pub fn seals(&self) -> Seals {
        *self.seals
    }
    /// Sets that.
    pub fn set_seals(&mut self, seals: Seals) {
        *self.seals = seals;
    }
    /// The content as a shared object, made now if there is none yet.
    pub fn object(&self) -> errno::Result<Arc<mm::Object>> {
        let bytes = match self.content.bytes() {
            Bytes::Object(object) => return Ok(object),
            Bytes::Archive(bytes) => bytes,
        };
        let object = mm::new_object(bytes.len() as u64)?;
        for (at, part) in (0..).step_by(PAGE_BYTES as usize).zip(bytes.chunks(PAGE_BYTES as usize)) {
            object.write(at, part).map_err(|e| e.errno())?;
        }
        let object = Arc::new(object);
        *self.content.bytes.lock() = Bytes::Object(object.clone());
        Ok(object)
    }
    /// Writes at `offset`, growing the file as needed.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> errno::Result<()> {
        if self.content.huge.is_some() {
            return Err(Errno::EINVAL);
        }
        let end = offset.checked_add(from.len() as u64).filter(|end| *end <= MAX_SIZE_BYTES).ok_or(Errno::EFBIG)?;
        self.seals.check(Seals::NO_WRITES)?;
        let object = self.object()?;
        let before = object.size_bytes();
        if end > before {
            self.seals.check(Seals::GROW)?;
            object.set_size_bytes(end);
        }
        object.write(offset, from).map_err(|e| {
            if end > before {
                object.set_size_bytes(before);
            }
            e.errno()
        })
    }
    /// Cuts or extends it.
    pub fn set_size_bytes(&self, size: u64) -> errno::Result<()> {
        if size > MAX_SIZE_BYTES {
            return Err(Errno::EFBIG);
        }
        if self.content.huge.is_some() && !size.is_multiple_of(self.content.page_bytes()) {
            return Err(Errno::EINVAL);
        }
        match size.cmp(&self.content.size_bytes()) {
            Ordering::Less => self.seals.check(Seals::SHRINK)?,
            Ordering::Equal => {}
            Ordering::Greater => self.seals.check(Seals::GROW)?,
        }
        if size == 0
            && let Bytes::Archive(bytes) = &mut *self.content.bytes.lock()
        {
            *bytes = &[];
            return Ok(());
        }
        if size != self.content.size_bytes() {
            self.object()?.set_size_bytes(size);
        }
        Ok(())
    }
    /// Provides the huge pages that are missing there, and makes the file as large as they reach: all, or none. If its size is
    /// to stay, only those below it; pages that came before one is refused stay then.
    pub fn allocate(&self, start: u64, end: u64, keep_size: bool) -> errno::Result<()> {
        let (object, page) = (self.object()?, self.content.page_bytes());
        // Less than a page is left at the end of all offsets: no file has it.
        let end = end.checked_next_multiple_of(page).filter(|end| *end <= MAX_SIZE_BYTES).ok_or(Errno::EFBIG)?;
        let pages = start / PAGE_BYTES..end / PAGE_BYTES;
        if end > object.size_bytes() && !keep_size {
            return object.extend(pages).map_err(|refused| match refused {
                // As Linux: no page is no space.
                HugetlbError::NoHugePages | HugetlbError::SubpoolFull => Errno::ENOSPC,
                other => other.errno(),
            });
        }
        object.allocate(pages).map_err(|e| e.errno())
    }
    /// Makes the bytes read as zero; whole pages are given back.
    pub fn clear(&self, start: u64, end: u64) -> errno::Result<()> {
        self.seals.check(Seals::NO_WRITES)?;
        self.object()?.zero(start..end).map_err(|e| e.errno())
    }
}
