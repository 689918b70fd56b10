//! The file of the model's machine: one, of which every byte is its version.
//!
//! A read takes what the file has when it begins, and writes that at its end, so that what comes late is old. So does a
//! write of what the frames have. Bytes that were written are kept apart from those that are read.

use super::{Modelled, Vm};
use softfault_modelled::machine::Machine;
use softfault_modelled::{FileFill, FileWrite, FillError, Filling, ObjectHole, Pfn, WriteError, Writing};
use std::cell::{Cell, RefCell};

/// How reads are answered from now on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    End,
    Fail,
    /// Of pages from this one on they stay under way, until somebody ends them.
    StayFrom(u64),
    /// The same, and those of other pages fail before anybody else runs.
    FailOrStayFrom(u64),
    /// The same, and those of other pages end before anybody else runs.
    AtOnceOrStayFrom(u64),
}

std::thread_local! {
    static READS: Cell<Reads> = const { Cell::new(Reads::End) };
    static VERSION: Cell<u8> = const { Cell::new(1) };
    static NR_READS: Cell<u64> = const { Cell::new(0) };
    static KEPT: RefCell<Vec<(FileFill, u8)>> = const { RefCell::new(Vec::new()) };
    static WRITES_STAY: Cell<bool> = const { Cell::new(false) };
    static WRITES_KEPT: RefCell<Vec<FileWrite>> = const { RefCell::new(Vec::new()) };
    static IN_CALL: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    static REMOVED: RefCell<[Option<u8>; NR_PAGES]> = const { RefCell::new([None; NR_PAGES]) };
    static WRITTEN: RefCell<[Option<u8>; NR_PAGES]> = const { RefCell::new([None; NR_PAGES]) };
}

/// Pages that may be written.
const NR_PAGES: usize = 16;

/// Before an execution.
pub fn reset() {
    set_reads(Reads::End);
    VERSION.set(1);
    NR_READS.set(0);
    KEPT.with(|kept| kept.borrow_mut().clear());
    WRITES_STAY.set(false);
    WRITES_KEPT.with(|kept| kept.borrow_mut().clear());
    IN_CALL.take();
    REMOVED.with(|removed| *removed.borrow_mut() = [None; NR_PAGES]);
    WRITTEN.with(|written| *written.borrow_mut() = [None; NR_PAGES]);
}

/// A removal of the page has returned, and nobody stores this byte to it any more.
pub fn note_removed(page: u64, byte: u8) {
    REMOVED.with(|removed| removed.borrow_mut()[page as usize] = Some(byte));
}

/// The machine is in a call that writes these bytes.
fn assert_none_removed(first: u64, bytes: &[u8]) {
    REMOVED.with(|removed| {
        for (byte, page) in bytes.iter().zip(first as usize..) {
            assert_ne!(removed.borrow()[page], Some(*byte), "I56: page {page} is written after its removal");
        }
    });
}

/// Whether writes stay under way from now on, until somebody ends them.
pub fn let_writes_stay(they_do: bool) {
    WRITES_STAY.set(they_do);
}

/// The first byte of a page that was written last.
pub fn written(page: u64) -> Option<u8> {
    WRITTEN.with(|written| written.borrow()[page as usize])
}

/// Waits until a write is under way.
pub fn wait_until_write_kept() {
    while WRITES_KEPT.with(|kept| kept.borrow().is_empty()) {
        loom::thread::yield_now();
    }
}

/// Calls `f` in the next call that writes, on the CPU that makes it.
pub fn in_next_call(f: impl FnOnce() + 'static) {
    IN_CALL.set(Some(Box::new(f)));
}

/// Ends the oldest write that is under way, if there is one.
pub fn end_kept_write(vm: &Vm<Modelled>) -> bool {
    end_kept_write_with(vm, Ok(()))
}

/// The same, and it has failed.
pub fn fail_kept_write(vm: &Vm<Modelled>) -> bool {
    end_kept_write_with(vm, Err(WriteError))
}

fn end_kept_write_with(vm: &Vm<Modelled>, result: Result<(), WriteError>) -> bool {
    let oldest = WRITES_KEPT.with(|kept| {
        let mut kept = kept.borrow_mut();
        (!kept.is_empty()).then(|| kept.remove(0))
    });
    oldest.map(|write| vm.written(write, result).unwrap()).is_some()
}

pub fn set_reads(reads: Reads) {
    READS.set(reads);
}

/// Its bytes from now on.
pub fn set_version(version: u8) {
    VERSION.set(version);
}

/// Reads that were begun.
pub fn nr_reads() -> u64 {
    NR_READS.get()
}

/// Waits until a read is under way.
pub fn wait_until_kept() {
    while KEPT.with(|kept| kept.borrow().is_empty()) {
        loom::thread::yield_now();
    }
}

/// The first frames of reads that are under way, the oldest first.
pub fn frames_kept() -> Vec<Pfn> {
    KEPT.with(|kept| kept.borrow().iter().map(|(fill, _)| fill.first_frame()).collect())
}

/// Ends the oldest read that is under way, if there is one.
pub fn end_kept(vm: &Vm<Modelled>, result: Result<(), FillError>) -> bool {
    let oldest = KEPT.with(|kept| {
        let mut kept = kept.borrow_mut();
        (!kept.is_empty()).then(|| kept.remove(0))
    });
    let Some((fill, version)) = oldest else { return false };
    if result.is_ok() {
        write(&fill, version);
    }
    vm.filled(fill, result).unwrap();
    true
}

/// The first byte of each page of a fill that the embedder has.
pub fn bytes_of<const N: usize>(fill: &FileFill) -> [u8; N] {
    // SAFETY: I1, I6: as for `write`.
    core::array::from_fn(|i| unsafe { Modelled.frame_ptr(Pfn(fill.first_frame().0 + i as u32)).read() })
}

/// Fills all of its bytes.
pub fn write(fill: &FileFill, version: u8) {
    let frames = Modelled.frame_ptr(fill.first_frame());
    // SAFETY: I1, I6: the frames are nobody else's until the fill comes back.
    unsafe { core::ptr::write_bytes(frames, version, fill.len_bytes() as usize) };
}

/// Others run before the bytes are there, and after.
pub(super) fn answer(fill: FileFill) -> Filling {
    NR_READS.set(NR_READS.get() + 1);
    let (version, reads, page) = (VERSION.get(), READS.get(), fill.offset_bytes() / 4096);
    if let Reads::StayFrom(first) | Reads::FailOrStayFrom(first) | Reads::AtOnceOrStayFrom(first) = reads
        && page >= first
    {
        KEPT.with(|kept| kept.borrow_mut().push((fill, version)));
        return Filling::UnderWay;
    }
    if matches!(reads, Reads::AtOnceOrStayFrom(_)) {
        write(&fill, version);
        return Filling::Ended(fill, Ok(()));
    }
    if matches!(reads, Reads::FailOrStayFrom(_)) {
        return Filling::Ended(fill, Err(FillError));
    }
    loom::thread::yield_now();
    if reads == Reads::Fail {
        return Filling::Ended(fill, Err(FillError));
    }
    write(&fill, version);
    loom::thread::yield_now();
    Filling::Ended(fill, Ok(()))
}

/// Others run before the bytes are taken, and before the file has them. No byte of what was removed before may be among them.
pub(super) fn answer_write(write: FileWrite) -> Writing {
    if WRITES_STAY.get() {
        WRITES_KEPT.with(|kept| kept.borrow_mut().push(write));
        loom::thread::yield_now();
        return Writing::UnderWay;
    }
    if let Some(f) = IN_CALL.take() {
        f();
    }
    let (first, nr) = (write.offset_bytes() / 4096, write.len_bytes().div_ceil(4096));
    // SAFETY: I1, I6: the frames stay until the write comes back; loom runs one thread at a time.
    let byte = |i: u64| unsafe { Modelled.frame_ptr(Pfn(write.first_frame().0 + i as u32)).read() };
    let bytes = || (0..nr).map(byte).collect::<Vec<u8>>();
    assert_none_removed(first, &bytes());
    loom::thread::yield_now();
    let bytes = bytes();
    loom::thread::yield_now();
    assert_none_removed(first, &bytes);
    WRITTEN.with(|written| {
        let mut written = written.borrow_mut();
        bytes.iter().zip(first as usize..).for_each(|(byte, page)| written[page] = Some(*byte));
    });
    Writing::Ended(write, Ok(()))
}

/// The storage has other bytes first, then the pages go; others run before, between and after.
pub(super) fn answer_hole(hole: ObjectHole<'_>) {
    loom::thread::yield_now();
    VERSION.set(VERSION.get() + u8::from(hole.file().is_some()));
    loom::thread::yield_now();
    hole.discard();
}
