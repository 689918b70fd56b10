//! The files of a sequence on the hosted machine: an object of memory, and one of a file whose storage is here.
//!
//! Reads of the storage take a while now and then, and fail. A step whose read has failed is made again: the model knows of
//! no errors. While something is mapped none fails, since nobody would be told. Pages of the storage have one word that is not zero, so that a page is either what was stored to it or what
//! the storage has.

use crate::op::{Call, FILE_END, FILE_PAGES, FILE_WORD_AT, NR_FILES, Op, Outcome, PAGE, file_word};
use crate::random::Random;
use softfault::policy::folio::FolioOrders;
use softfault::table::format::Format;
use softfault::{
    AddressSpace, Errno, FillError, Filling, HoleRefused, MapFlags, ObjectPart, ObjectWriteError, Order, Prot,
    SharedObject, Vm,
};
use softfault_host::{HostFile, HostFill, Hosted};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// Of 100 reads so many fail, and so many take a while.
const FAILING_PERCENT: u64 = 10;
const LATE_PERCENT: u64 = 20;
/// Longest while, in yields of the thread.
const LATE_MAX: u64 = 20;
/// Largest folio of the file that is read.
const MOST_ORDER: Order = Order(3);

struct Storage {
    /// The words that are not zero.
    words: [AtomicU64; FILE_PAGES as usize],
    nr_reads: AtomicU64,
    nr_failed: AtomicU64,
    may_fail: AtomicBool,
}

impl Storage {
    fn new() -> Storage {
        let words = core::array::from_fn(|page| AtomicU64::new(file_word(page as u64)));
        Storage { words, nr_reads: AtomicU64::new(0), nr_failed: AtomicU64::new(0), may_fail: AtomicBool::new(true) }
    }

    fn clear(&self, first: u64, end: u64) {
        let pages = self.words.iter().enumerate().filter(|(page, _)| (first..end).contains(&(*page as u64)));
        pages.for_each(|(_, word)| word.store(0, SeqCst));
    }

    /// Zeroes all bytes from that one on.
    fn cut(&self, bytes: u64) {
        let first = bytes.saturating_sub(FILE_WORD_AT).div_ceil(PAGE);
        self.clear(first, FILE_PAGES);
    }
}

impl HostFile for Storage {
    fn fill(&self, mut fill: HostFill<'_>) -> Filling {
        let mut random = Random::new(self.nr_reads.fetch_add(1, SeqCst));
        let first = fill.offset_bytes() / PAGE;
        if random.chance(LATE_PERCENT) {
            (0..random.below(LATE_MAX)).for_each(|_| std::thread::yield_now());
        }
        if random.chance(FAILING_PERCENT) && self.may_fail.load(SeqCst) {
            self.nr_failed.fetch_add(1, SeqCst);
            return fill.end(Err(FillError));
        }
        for (i, page) in fill.bytes().chunks_mut(PAGE as usize).enumerate() {
            let word = self.words.get(first as usize + i).map_or(0, |word| word.load(SeqCst)).to_ne_bytes();
            page.fill(0);
            let room = page.get_mut(FILE_WORD_AT as usize..).unwrap_or_default();
            let nr = room.len().min(8);
            room[..nr].copy_from_slice(&word[..nr]);
        }
        if random.chance(LATE_PERCENT) {
            (0..random.below(LATE_MAX)).for_each(|_| std::thread::yield_now());
        }
        fill.end(Ok(()))
    }

    /// Nothing is written to the storage, so that nobody has to be held off.
    fn begin_hole(&self, bytes: Range<u64>) -> Result<(), HoleRefused> {
        self.clear(bytes.start / PAGE, bytes.end / PAGE);
        Ok(())
    }
}

/// The files of a sequence.
pub struct Files<'vm, F: Format> {
    objects: [SharedObject<'vm, Hosted<F>>; NR_FILES],
    storage: Arc<Storage>,
}

impl<'vm, F: Format> Files<'vm, F> {
    /// As [`Call::MakeFiles`] has them; `None` without room.
    pub fn new(vm: &'vm Vm<Hosted<F>>) -> Option<Files<'vm, F>> {
        let storage = Arc::new(Storage::new());
        let memory = vm.new_shared_object(FILE_PAGES * PAGE).ok()?;
        let orders = FolioOrders::new(Order::BASE, MOST_ORDER).ok()?;
        let read = vm.new_file_object(FILE_PAGES * PAGE, orders, vm.machine().add_file(storage.clone())).ok()?;
        Some(Files { objects: [memory, read], storage })
    }

    /// Makes a step, again if it may have failed because of a read that has failed meanwhile.
    pub(super) fn until_read(&self, op: &Op, mut once: impl FnMut() -> Outcome) -> Outcome {
        let is_quiet = matches!(op.call, Call::Mmap | Call::MmapFile | Call::Mremap);
        self.storage.may_fail.store(!is_quiet, SeqCst);
        loop {
            let before = self.storage.nr_failed.load(SeqCst);
            let outcome = once();
            let errno = |errno: Errno| outcome == Outcome::Errno(errno.0 as u64);
            let is_refused = outcome == Outcome::ADRERR || errno(Errno::EFAULT) || errno(Errno::EIO);
            if !is_refused || self.storage.nr_failed.load(SeqCst) == before {
                return outcome;
            }
        }
    }

    pub(super) fn map(&self, space: &AddressSpace<'vm, Hosted<F>>, op: &Op) -> Result<u64, Errno> {
        let [at, len, prot, flags, _, of] = op.args;
        let part = ObjectPart::new(&self.objects[(of >> 32) as usize]).with_offset_bytes((of & 0xffff_ffff) * PAGE);
        space.mmap_object(at, len, Prot::from_linux(prot), MapFlags::from_linux(flags), part).map_err(|e| e.errno())
    }

    /// A step about one of them.
    pub(super) fn step(&self, op: &Op) -> Outcome {
        let [file, b, c, ..] = op.args;
        let object = &self.objects[file as usize];
        let is_read = file == 1;
        match op.call {
            Call::FileSize => {
                object.set_size_bytes(b);
                if is_read {
                    self.storage.cut(b);
                }
                Outcome::Value(0)
            }
            Call::FilePunch => {
                if is_read {
                    self.storage.clear(b, b + c);
                }
                object.discard(b..b + c);
                Outcome::Value(0)
            }
            Call::FileRead => {
                let mut byte = [0];
                match object.read(b, &mut byte) {
                    1 => Outcome::Value(u64::from(byte[0])),
                    _ if b >= object.size_bytes() => Outcome::Value(FILE_END),
                    _ => Outcome::Errno(Errno::EIO.0 as u64),
                }
            }
            Call::FileWrite => {
                let written = object.write(b, &[c as u8]);
                written.map_or_else(
                    |error: ObjectWriteError| Outcome::Errno(error.errno().0 as u64),
                    |()| Outcome::Value(0),
                )
            }
            _ => Outcome::Broken(31),
        }
    }
}
