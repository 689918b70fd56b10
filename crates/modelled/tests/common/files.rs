//! The file of the model's machine: one, of which every byte is its version.
//!
//! A read takes what the file has when it begins, and writes that at its end, so that what comes late is old.

use super::{Modelled, Vm};
use softfault_modelled::machine::Machine;
use softfault_modelled::{FileFill, FillError, Filling, Pfn};
use std::cell::{Cell, RefCell};

/// How reads are answered from now on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    End,
    Fail,
    /// Of pages from this one on they stay under way, until somebody ends them.
    StayFrom(u64),
    /// The same, and those of other pages fail.
    FailOrStayFrom(u64),
    /// The same, and those of other pages end before anybody else runs.
    AtOnceOrStayFrom(u64),
}

std::thread_local! {
    static READS: Cell<Reads> = const { Cell::new(Reads::End) };
    static VERSION: Cell<u8> = const { Cell::new(1) };
    static NR_READS: Cell<u64> = const { Cell::new(0) };
    static KEPT: RefCell<Vec<(FileFill, u8)>> = const { RefCell::new(Vec::new()) };
}

/// Before an execution.
pub fn reset() {
    set_reads(Reads::End);
    VERSION.set(1);
    NR_READS.set(0);
    KEPT.with(|kept| kept.borrow_mut().clear());
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
    loom::thread::yield_now();
    if matches!(reads, Reads::Fail | Reads::FailOrStayFrom(_)) {
        return Filling::Ended(fill, Err(FillError));
    }
    write(&fill, version);
    loom::thread::yield_now();
    Filling::Ended(fill, Ok(()))
}
