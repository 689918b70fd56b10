//! A file in memory whose writes the test decides: they end at once, fail, stay under way until the test
//! ends them, or block.

use super::objects::Object;
use super::{Hosted, PAGE, World};
use softfault::policy::folio::FolioOrders;
use softfault::{FileWrite, FillError, Filling, HoleRefused, StorageId, StoreRefused, Vm, WriteError, Writing};
use softfault_host::{HostFile, HostFill};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};

/// How writes are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Writes {
    End,
    Fail,
    Stay,
    /// The call lasts until writes are answered otherwise.
    Block,
}

/// A write that stays under way, and the holes that were made meanwhile.
struct Kept {
    write: FileWrite,
    holes: Vec<Range<u64>>,
}

pub struct Storage {
    bytes: Mutex<Vec<u8>>,
    writes: AtomicU8,
    /// This write fails, counted from when it was said.
    failing: AtomicU64,
    /// Pages from this one on have no room.
    full_from: AtomicU64,
    /// Called once after the storage has been asked for room, and before it answers.
    pub before_room: Mutex<Option<Box<dyn Fn() + Send>>>,
    kept: Mutex<VecDeque<Kept>>,
    /// How holes are answered.
    pub hole: Mutex<Result<(), HoleRefused>>,
    /// Called after the storage has been asked for a hole, and before it has one.
    pub before_hole: Mutex<Option<Box<dyn Fn() + Send>>>,
    /// Holes that are being made.
    open: Mutex<Vec<Range<u64>>>,
    /// The device that has it, if others have the same.
    pub device: OnceLock<StorageId>,
    /// Calls that block now.
    nr_blocked: AtomicU64,
    /// First page and number of bytes of each write.
    log: Mutex<Vec<(u64, u64)>>,
}

/// Ends the read with the bytes that stand there in the storage; with an error, if these are too few.
pub fn fill_from(storage: &Mutex<Vec<u8>>, mut fill: HostFill<'_>) -> Filling {
    let (bytes, start) = (storage.lock().unwrap(), fill.offset_bytes() as usize);
    let there = bytes.get(start..start + fill.len_bytes() as usize);
    let result = there.map(|there| fill.bytes().copy_from_slice(there)).ok_or(FillError);
    fill.end(result)
}

impl HostFile for Storage {
    fn fill(&self, fill: HostFill<'_>) -> Filling {
        let pages = fill.offset_bytes()..fill.offset_bytes() + fill.len_bytes();
        while self.open.lock().unwrap().iter().any(|hole| hole.start < pages.end && pages.start < hole.end) {
            std::thread::yield_now();
        }
        fill_from(&self.bytes, fill)
    }

    fn write_back(&self, write: FileWrite, bytes: &[u8]) -> Writing {
        assert_eq!(bytes.len() as u64, write.len_bytes());
        self.log.lock().unwrap().push((write.offset_bytes() / PAGE, write.len_bytes()));
        match self.writes.load(SeqCst) {
            at if at == Writes::Fail as u8 || self.failing.fetch_sub(1, SeqCst) == 0 => {
                Writing::Ended(write, Err(WriteError))
            }
            at if at == Writes::Stay as u8 => {
                self.kept.lock().unwrap().push_back(Kept { write, holes: Vec::new() });
                Writing::UnderWay
            }
            _ => {
                self.nr_blocked.fetch_add(1, SeqCst);
                while self.writes.load(SeqCst) == Writes::Block as u8 {
                    std::thread::yield_now();
                }
                self.nr_blocked.fetch_sub(1, SeqCst);
                self.store(write.offset_bytes(), bytes, &[]);
                Writing::Ended(write, Ok(()))
            }
        }
    }

    fn storage(&self) -> Option<StorageId> {
        self.device.get().copied()
    }

    fn may_store(&self, pages: Range<u64>) -> Result<(), StoreRefused> {
        let happens = self.before_room.lock().unwrap().take();
        if let Some(happens) = happens {
            happens();
        }
        if pages.end <= self.full_from.load(SeqCst) { Ok(()) } else { Err(StoreRefused) }
    }

    fn begin_hole(&self, bytes: Range<u64>) -> Result<(), HoleRefused> {
        if let Some(happens) = self.before_hole.lock().unwrap().take() {
            happens();
        }
        (*self.hole.lock().unwrap())?;
        self.open.lock().unwrap().push(bytes.clone());
        let mut storage = self.bytes.lock().unwrap();
        let end = storage.len().min(bytes.end as usize);
        storage.get_mut(bytes.start as usize..end).unwrap_or_default().fill(0);
        Ok(())
    }

    fn end_hole(&self, bytes: Range<u64>, gone: Range<u64>) {
        self.kept.lock().unwrap().iter_mut().for_each(|kept| kept.holes.push(gone.clone()));
        self.open.lock().unwrap().retain(|hole| *hole != bytes);
    }
}

impl Storage {
    fn store(&self, offset: u64, from: &[u8], holes: &[Range<u64>]) {
        let mut bytes = self.bytes.lock().unwrap();
        let there = bytes.get_mut(offset as usize..).unwrap_or_default();
        for (at, (to, from)) in (offset..).zip(there.iter_mut().zip(from)) {
            if !holes.iter().any(|hole| hole.contains(&at)) {
                *to = *from;
            }
        }
    }

    pub fn set(&self, writes: Writes) {
        self.writes.store(writes as u8, SeqCst);
    }

    /// The write after so many fails.
    pub fn set_failing(&self, after: Option<u64>) {
        self.failing.store(after.unwrap_or(u64::MAX), SeqCst);
    }

    pub fn set_full_from(&self, page: u64) {
        self.full_from.store(page, SeqCst);
    }

    pub fn byte(&self, at: u64) -> u8 {
        self.bytes.lock().unwrap()[at as usize]
    }

    pub fn truncate(&self, len: u64) {
        self.bytes.lock().unwrap().resize(len as usize, 0);
    }

    /// The writes since the last look: first page, number of bytes.
    pub fn log(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.log.lock().unwrap())
    }

    pub fn nr_blocked(&self) -> u64 {
        self.nr_blocked.load(SeqCst)
    }

    pub fn nr_kept(&self) -> usize {
        self.kept.lock().unwrap().len()
    }

    pub fn take(&self) -> FileWrite {
        self.kept.lock().unwrap().pop_front().unwrap().write
    }

    /// Ends the write that has been under way longest; with the bytes that the pages have now, or an error.
    pub fn end_one(&self, vm: &Vm<Hosted>, result: Result<(), WriteError>) {
        let Kept { write, holes } = self.kept.lock().unwrap().pop_front().unwrap();
        if result.is_ok() {
            let mut bytes = vec![0; write.len_bytes() as usize];
            vm.read_write(&write, 0, &mut bytes).unwrap();
            self.store(write.offset_bytes(), &bytes, &holes);
        }
        vm.written(write, result).unwrap();
    }
}

/// A file of so many bytes, all 1, and the object that shows it.
pub fn storage<'vm>(w: &World<'vm>, size_bytes: u64, orders: FolioOrders) -> (Arc<Storage>, Object<'vm>) {
    storage_of(w.vm, size_bytes, orders)
}

/// The same on any machine.
pub fn storage_of(vm: &Vm<Hosted>, size_bytes: u64, orders: FolioOrders) -> (Arc<Storage>, Object<'_>) {
    let storage = Arc::new(Storage {
        bytes: Mutex::new(vec![1; size_bytes as usize]),
        writes: AtomicU8::new(Writes::End as u8),
        failing: AtomicU64::new(u64::MAX),
        full_from: AtomicU64::new(u64::MAX),
        before_room: Mutex::default(),
        kept: Mutex::default(),
        hole: Mutex::new(Ok(())),
        before_hole: Mutex::default(),
        open: Mutex::default(),
        device: OnceLock::new(),
        nr_blocked: AtomicU64::new(0),
        log: Mutex::default(),
    });
    let id = vm.machine().add_file(storage.clone());
    (storage, vm.new_file_object(size_bytes, orders, id).unwrap())
}
