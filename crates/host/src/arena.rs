//! Physical memory: one anonymous mapping of the process, frame 0 first.
//!
//! Only this module has the mapping's address. It accesses programs' bytes and table
//! entries with atomic operations. The core gets its frames from [`Arena::frame_ptr`].
#![allow(unsafe_code)]

use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicU64;
use rustix::io::Errno;
use softfault::addr::Pfn;
use softfault::bytes;
use softfault::sync::Word;
use softfault::{FileFill, FrameRange};

mod mapping;

const FRAME_BYTES: usize = 4096;

/// The memory of one machine.
pub(crate) struct Arena {
    base: NonNull<u8>,
    /// Of the beginning.
    frames: [FrameRange; 1],
    /// With those that may be added.
    nr_frames: u64,
}

// SAFETY: E1, E2: the mapping belongs to the arena as long as it lives, and is
// shared only as atomics or through `frame_ptr`, whose users answer for it (I1).
unsafe impl Send for Arena {}
// SAFETY: E1, E2: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// `bytes` of zeroes, aligned to 2 MiB so that the host can use huge pages, and behind them
    /// `spare_bytes` that may be added later.
    pub(crate) fn new(bytes: u64, spare_bytes: u64, huge: bool) -> Result<Arena, Errno> {
        let all = bytes.checked_add(spare_bytes).ok_or(Errno::NOMEM)?;
        let len = usize::try_from(all).map_err(|_| Errno::NOMEM)?;
        let base = mapping::map(len, huge)?;
        let frames = [FrameRange { first: Pfn(0), nr_frames: bytes / FRAME_BYTES as u64 }];
        Ok(Arena { base, frames, nr_frames: all / FRAME_BYTES as u64 })
    }

    #[inline(always)]
    pub(crate) fn nr_frames(&self) -> u64 {
        self.nr_frames
    }

    /// The frames of the beginning, as one range.
    pub(crate) fn frames(&self) -> &[FrameRange; 1] {
        &self.frames
    }

    /// Returns the address of frame `pfn`.
    ///
    /// # Panics
    ///
    /// If the arena has no such frame: a table or a caller names a frame that does
    /// not exist. Hardware would raise a machine check.
    #[inline(always)]
    pub(crate) fn frame_ptr(&self, pfn: Pfn) -> *mut u8 {
        if u64::from(pfn.0) >= self.nr_frames() {
            machine_check(pfn);
        }
        self.base.as_ptr().wrapping_add(pfn.0 as usize * FRAME_BYTES)
    }

    /// Zeroes all frames.
    pub(crate) fn zero(&mut self) {
        // SAFETY: E1: the whole mapping; `&mut self` says that nobody uses it.
        unsafe { self.base.as_ptr().write_bytes(0, self.nr_frames() as usize * FRAME_BYTES) }
    }

    /// Frame and offset of a word, if it lies in the arena.
    pub(crate) fn place_of(&self, word: &Word) -> Option<(Pfn, usize)> {
        let at = ptr::from_ref(word).addr().checked_sub(self.base.addr().get())?;
        let frame = (at / FRAME_BYTES) as u64;
        (frame < self.nr_frames()).then_some((Pfn(frame as u32), at % FRAME_BYTES))
    }

    /// The 64-bit word at `offset`, a multiple of 8.
    #[inline(always)]
    pub(crate) fn word(&self, pfn: Pfn, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8));
        check(pfn, offset, 8);
        &self.words(pfn)[offset / 8]
    }

    /// All words of the frame.
    #[inline(always)]
    pub(crate) fn words(&self, pfn: Pfn) -> &[AtomicU64; FRAME_BYTES / 8] {
        // SAFETY: E1, E2: a whole frame of the mapping; any bits are valid.
        unsafe { &*self.frame_ptr(pfn).cast() }
    }

    /// Copies from the frame, as loads of a program: each aligned word at once.
    pub(crate) fn load(&self, pfn: Pfn, offset: usize, into: &mut [u8]) {
        check(pfn, offset, into.len());
        bytes::load(self.words(pfn), offset, into);
    }

    /// Copies into the frame, as stores of a program: each aligned word at once.
    pub(crate) fn store(&self, pfn: Pfn, offset: usize, from: &[u8]) {
        check(pfn, offset, from.len());
        bytes::store(self.words(pfn), offset, from);
    }
}

impl Arena {
    /// The bytes of a fill: no other code reads or writes its frames until it comes back.
    ///
    /// # Panics
    ///
    /// If they are not in the arena.
    pub(crate) fn bytes_to_fill<'a>(&'a self, fill: &'a mut FileFill) -> &'a mut [u8] {
        let (first, nr) = (u64::from(fill.first_frame().0), fill.nr_frames());
        assert!(first + nr <= self.nr_frames() && fill.len_bytes() <= nr * FRAME_BYTES as u64);
        // SAFETY: E1, E9, I63: in the mapping, and the fill's alone as long as it is borrowed: the `Vm` that has the
        // machine has made it.
        unsafe { core::slice::from_raw_parts_mut(self.frame_ptr(fill.first_frame()), fill.len_bytes() as usize) }
    }

    /// Copies from adjacent frames, as [`load`](Self::load).
    pub(crate) fn load_over(&self, first: Pfn, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        for (i, into) in bytes.chunks_mut(FRAME_BYTES).enumerate() {
            self.load(Pfn(first.0 + i as u32), 0, into);
        }
        bytes
    }

    /// Copies into adjacent frames, as [`store`](Self::store).
    pub(crate) fn store_over(&self, first: Pfn, offset: u64, from: &[u8]) {
        let (mut at, mut rest) = (offset, from);
        while !rest.is_empty() {
            let start = (at % FRAME_BYTES as u64) as usize;
            let (part, others) = rest.split_at(rest.len().min(FRAME_BYTES - start));
            self.store(Pfn(first.0 + (at / FRAME_BYTES as u64) as u32), start, part);
            (at, rest) = (at + part.len() as u64, others);
        }
    }
}

#[cold]
#[inline(never)]
fn machine_check(pfn: Pfn) -> ! {
    panic!("machine check: {pfn:?} is not in the arena")
}

/// # Panics
///
/// If the bytes leave the frame, as hardware would raise a machine check.
#[inline(always)]
fn check(pfn: Pfn, offset: usize, len: usize) {
    let inside = offset <= FRAME_BYTES && len <= FRAME_BYTES - offset;
    assert!(inside, "machine check: {len} bytes at {offset:#x} of {pfn:?} leave the frame");
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: E1: the whole of the mapping; `&mut self` says that nobody
        // borrows from it.
        unsafe { mapping::unmap(self.base, self.nr_frames() as usize * FRAME_BYTES) }
    }
}

#[cfg(test)]
mod tests;
