//! A file whose reads the test decides: they end at once, fail, or stay under way until the test ends them.

use super::objects::Object;
use super::{Hosted, PAGE, World};
use softfault::policy::folio::FolioOrders;
use softfault::{FileFill, FillError, Filling, Vm};
use softfault_host::{HostFile, HostFill};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// How reads are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reads {
    End,
    Fail,
    Stay,
    /// The call lasts until reads are answered otherwise.
    Block,
    /// The read that has been under way longest ends, and this one stays.
    EndAnother,
    /// The same, and that one has failed.
    FailAnother,
}

/// Byte i of page p is `content` of both, plus the file's version.
pub struct TestFile {
    reads: AtomicU8,
    /// Reads from this page on fail.
    failing_from: AtomicU64,
    /// This read fails, counted from when it was said.
    failing: AtomicU64,
    version: AtomicU8,
    kept: Mutex<VecDeque<FileFill>>,
    /// First page and number of pages of each read.
    log: Mutex<Vec<(u64, u64)>>,
}

pub fn content(page: u64, version: u8) -> u8 {
    (page % 97) as u8 * 2 + 1 + version
}

impl Default for TestFile {
    fn default() -> TestFile {
        TestFile {
            reads: AtomicU8::new(Reads::End as u8),
            failing_from: AtomicU64::new(u64::MAX),
            failing: AtomicU64::new(u64::MAX),
            version: AtomicU8::new(0),
            kept: Mutex::default(),
            log: Mutex::default(),
        }
    }
}

impl HostFile for TestFile {
    fn fill(&self, mut fill: HostFill<'_>) -> Filling {
        let first = fill.offset_bytes() / PAGE;
        self.log.lock().unwrap().push((first, fill.nr_frames()));
        match self.reads.load(SeqCst) {
            at if at == Reads::Stay as u8 => {
                self.kept.lock().unwrap().push_back(fill.keep());
                Filling::UnderWay
            }
            at if at == Reads::EndAnother as u8 || at == Reads::FailAnother as u8 => {
                let result = if at == Reads::EndAnother as u8 { Ok(()) } else { Err(FillError) };
                let mut kept = self.kept.lock().unwrap();
                kept.push_back(fill.keep());
                Filling::Ended(kept.pop_front().unwrap(), result)
            }
            at if at == Reads::Fail as u8 || first >= self.failing_from.load(SeqCst) || self.is_failing() => {
                fill.end(Err(FillError))
            }
            _ => {
                while self.reads.load(SeqCst) == Reads::Block as u8 {
                    std::thread::yield_now();
                }
                let content = self.content_of(&fill);
                fill.bytes().copy_from_slice(&content);
                fill.end(Ok(()))
            }
        }
    }
}

impl TestFile {
    pub fn set(&self, reads: Reads) {
        self.reads.store(reads as u8, SeqCst);
    }

    /// From now on reads from this page on fail.
    pub fn set_failing_from(&self, page: u64) {
        self.failing_from.store(page, SeqCst);
    }

    /// The read after so many fails.
    pub fn set_failing(&self, after: Option<u64>) {
        self.failing.store(after.unwrap_or(u64::MAX), SeqCst);
    }

    fn is_failing(&self) -> bool {
        self.failing.fetch_sub(1, SeqCst) == 0
    }

    /// From now on the file has other bytes.
    pub fn change(&self) {
        self.version.fetch_add(1, SeqCst);
    }

    pub fn version(&self) -> u8 {
        self.version.load(SeqCst)
    }

    fn content_of(&self, fill: &FileFill) -> Vec<u8> {
        let at = |i: u64| content((fill.offset_bytes() + i) / PAGE, self.version());
        (0..fill.len_bytes()).map(at).collect()
    }

    /// The reads so far: first page, number of pages.
    pub fn log(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.log.lock().unwrap())
    }

    pub fn nr_reads(&self) -> usize {
        self.log.lock().unwrap().len()
    }

    pub fn nr_kept(&self) -> usize {
        self.kept.lock().unwrap().len()
    }

    pub fn take(&self) -> FileFill {
        self.kept.lock().unwrap().pop_front().unwrap()
    }

    /// Ends the read that has been under way longest; with the bytes that the file has now, or an error.
    pub fn end_one(&self, vm: &Vm<Hosted>, result: Result<(), FillError>) {
        let mut fill = self.take();
        if result.is_ok() {
            let bytes = self.content_of(&fill);
            vm.write_fill(&mut fill, 0, &bytes).unwrap();
        }
        vm.filled(fill, result).unwrap();
    }
}

/// A file of so many bytes, and the object that shows it.
pub fn file<'vm>(w: &World<'vm>, size_bytes: u64, orders: FolioOrders) -> (Arc<TestFile>, Object<'vm>) {
    let file = Arc::new(TestFile::default());
    let id = w.vm.machine().add_file(file.clone());
    (file, w.vm.new_file_object(size_bytes, orders, id).unwrap())
}
