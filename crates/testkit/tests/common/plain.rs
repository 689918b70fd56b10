//! A file in memory whose storage knows nothing of removals: it stores what it is given. One call takes as long as the test says.

use super::objects::{Object, map};
use super::storage::fill_from;
use super::{BASE, Hosted, PAGE, Space, World, wait_until};
use softfault::policy::folio::FolioOrders;
use softfault::{Advice, FileWrite, Filling, HoleRefused, StoreRefused, Vm, Writing};
use softfault_host::{HostFile, HostFill};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// The page that is removed. Page 0 is written before it.
pub const REMOVED: u64 = 1;
pub const OLD: u8 = 7;
pub const NEW: u8 = 9;

/// A call of `write_back`.
#[derive(Debug)]
pub struct Call {
    pub page: u64,
    pub byte: u8,
    /// A removal of the page had returned when the call came.
    pub is_late: bool,
}

/// One call takes as long as the test says.
#[derive(Default)]
pub struct Plain {
    bytes: Mutex<Vec<u8>>,
    /// Calls for this page wait.
    pub slow_page: AtomicU64,
    pub is_in_call: AtomicBool,
    pub may_go_on: AtomicBool,
    /// Slow calls are kept, and somebody else ends the write.
    pub keeps: AtomicBool,
    pub kept: Mutex<Option<FileWrite>>,
    /// Holes do not end.
    pub holds_holes: AtomicBool,
    /// It punches holes once more at their end, so that nobody stores to what has left before.
    pub punches_again: AtomicBool,
    /// The bytes of the last hole that have left.
    pub gone: Mutex<Option<Range<u64>>>,
    pub has_removed: AtomicBool,
    pub calls: Mutex<Vec<Call>>,
}

impl HostFile for Plain {
    fn fill(&self, fill: HostFill<'_>) -> Filling {
        fill_from(&self.bytes, fill)
    }

    fn write_back(&self, write: FileWrite, bytes: &[u8]) -> Writing {
        let page = write.offset_bytes() / PAGE;
        self.calls.lock().unwrap().push(Call { page, byte: bytes[0], is_late: self.has_removed.load(SeqCst) });
        let is_slow = page == self.slow_page.load(SeqCst) && !self.may_go_on.load(SeqCst);
        let keeps = is_slow && self.keeps.load(SeqCst);
        let mut write = Some(write);
        if keeps {
            *self.kept.lock().unwrap() = write.take();
        }
        if is_slow {
            self.is_in_call.store(true, SeqCst);
            wait_until(|| self.may_go_on.load(SeqCst));
        }
        let Some(write) = write else { return Writing::UnderWay };
        let mut storage = self.bytes.lock().unwrap();
        let there = storage.get_mut(write.offset_bytes() as usize..).unwrap_or_default();
        there.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Writing::Ended(write, Ok(()))
    }

    fn may_store(&self, _pages: Range<u64>) -> Result<(), StoreRefused> {
        Ok(())
    }

    fn begin_hole(&self, bytes: Range<u64>) -> Result<(), HoleRefused> {
        self.zero(bytes);
        Ok(())
    }

    /// Once more: a call may have stored old bytes meanwhile.
    fn end_hole(&self, _: Range<u64>, gone: Range<u64>) {
        wait_until(|| !self.holds_holes.load(SeqCst));
        if self.punches_again.load(SeqCst) {
            self.zero(gone.clone());
        }
        *self.gone.lock().unwrap() = Some(gone);
    }
}

impl Plain {
    pub fn zero(&self, bytes: Range<u64>) {
        self.bytes.lock().unwrap()[bytes.start as usize..bytes.end as usize].fill(0);
    }

    fn cut(&self) {
        let mut storage = self.bytes.lock().unwrap();
        let len = storage.len();
        storage.truncate((REMOVED * PAGE) as usize);
        storage.resize(len, 0);
    }

    pub fn byte(&self, page: u64) -> u8 {
        self.byte_at(page * PAGE)
    }

    pub fn byte_at(&self, offset_bytes: u64) -> u8 {
        self.bytes.lock().unwrap()[offset_bytes as usize]
    }
}

/// In the end no call waits, also if the test fails.
pub struct GoesOn<'a>(pub &'a Plain);

impl Drop for GoesOn<'_> {
    fn drop(&mut self) {
        self.0.may_go_on.store(true, SeqCst);
        self.0.holds_holes.store(false, SeqCst);
    }
}

/// A file of four pages, all of whose bytes are 1, mapped. The first two have stores.
pub fn plain<'vm>(w: &World<'vm>, slow_page: u64) -> (Arc<Plain>, Object<'vm>) {
    plain_of(w, slow_page, FolioOrders::BASE)
}

/// The same, in folios of these sizes.
pub fn plain_of<'vm>(w: &World<'vm>, slow_page: u64, orders: FolioOrders) -> (Arc<Plain>, Object<'vm>) {
    let storage = Arc::new(Plain { bytes: Mutex::new(vec![1; 4 * PAGE as usize]), ..Plain::default() });
    storage.slow_page.store(slow_page, SeqCst);
    let id = w.vm.machine().add_file(storage.clone());
    let object = w.vm.new_file_object(4 * PAGE, orders, id).unwrap();
    map(w.space, BASE, 4, &object, 0);
    [0, REMOVED].iter().for_each(|page| w.space.write(BASE + page * PAGE, &[OLD]).unwrap());
    (storage, object)
}

pub type Remove = fn(&Space<'_>, &Plain, &Object<'_>);

pub const REMOVED_BYTES: Range<u64> = REMOVED * PAGE..(REMOVED + 1) * PAGE;

pub const REMOVALS: [Remove; 4] = [
    |_, storage, object| {
        object.set_size_bytes(REMOVED * PAGE);
        storage.cut();
        object.set_size_bytes(4 * PAGE);
    },
    |_, storage, object| {
        storage.zero(REMOVED_BYTES);
        object.discard(REMOVED..REMOVED + 1);
    },
    |_, storage, object| {
        storage.zero(REMOVED_BYTES);
        object.zero(REMOVED_BYTES).unwrap();
    },
    |space, _, _| space.madvise(BASE + REMOVED * PAGE, PAGE, Advice::Remove).unwrap(),
];

/// In the end no write is under way, also if the test fails.
pub struct EndsKept<'a>(pub &'a Vm<Hosted>, pub &'a Plain);

impl Drop for EndsKept<'_> {
    fn drop(&mut self) {
        let kept = self.1.kept.lock().unwrap().take();
        kept.map(|write| self.0.written(write, Ok(())).unwrap()).unwrap();
    }
}
