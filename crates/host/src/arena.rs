//! Physical memory: one anonymous mapping of the process, frame 0 first.
//!
//! Only this module has the mapping's address. It accesses programs' bytes and table
//! entries with atomic operations. The core gets its frames from [`Arena::frame_ptr`].
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use softfault::addr::Pfn;
use softfault::sync::Word;
use softfault::{FileFill, FrameRange};

const FRAME_BYTES: usize = 4096;
const ALIGN_BYTES: usize = 2 << 20;

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
        let padded = len.checked_add(ALIGN_BYTES).ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: E1: a new mapping at an address of the host's choice.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), padded, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        let head = start.addr().next_multiple_of(ALIGN_BYTES) - start.addr();
        let tail = padded - head - len;
        // SAFETY: E1: `head` is below the alignment, so all stays in the mapping.
        let base = unsafe { start.byte_add(head) };
        // SAFETY: E1: the two ends that alignment leaves over, which nobody knows
        // of yet; they are whole pages.
        unsafe {
            trim(start, head);
            trim(base.byte_add(len), tail);
            // Advice that a host without huge pages refuses changes nothing.
            let _ = madvise(base, len, if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage });
        }
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
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

    /// The pointer to `len` bytes at `offset` of the frame.
    ///
    /// # Panics
    ///
    /// If there is no such memory, as [`frame_ptr`](Self::frame_ptr).
    #[inline(always)]
    fn bytes(&self, pfn: Pfn, offset: usize, len: usize) -> *mut u8 {
        let inside = offset <= FRAME_BYTES && len <= FRAME_BYTES - offset;
        assert!(inside, "machine check: {len} bytes at {offset:#x} of {pfn:?} leave the frame");
        self.frame_ptr(pfn).wrapping_add(offset)
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
        // SAFETY: E1, E2: in the mapping and aligned, checked above and in
        // `bytes`; any bits are valid.
        unsafe { AtomicU64::from_ptr(self.bytes(pfn, offset, 8).cast()) }
    }

    /// All words of the frame.
    #[inline(always)]
    pub(crate) fn words(&self, pfn: Pfn) -> &[AtomicU64; FRAME_BYTES / 8] {
        // SAFETY: E1, E2: a whole frame of the mapping; any bits are valid.
        unsafe { &*self.frame_ptr(pfn).cast() }
    }

    /// Copies from the frame, as loads of a program: each aligned word at once.
    pub(crate) fn load(&self, pfn: Pfn, offset: usize, into: &mut [u8]) {
        let from = self.bytes(pfn, offset, into.len());
        let (head, body) = into.split_at_mut(bytes_to_word(offset).min(into.len()));
        let words = body.len() / 8;
        let (body, tail) = body.split_at_mut(words * 8);
        // SAFETY: E1, E2: the three parts follow one another in the checked
        // bytes; the words begin at a multiple of 8.
        unsafe {
            let mid = from.add(head.len());
            load_bytes(from, head);
            for (i, to) in body.chunks_exact_mut(8).enumerate() {
                to.copy_from_slice(&AtomicU64::from_ptr(mid.add(i * 8).cast()).load(Relaxed).to_ne_bytes());
            }
            load_bytes(mid.add(words * 8), tail);
        }
    }

    /// Copies into the frame, as stores of a program: each aligned word at once.
    pub(crate) fn store(&self, pfn: Pfn, offset: usize, from: &[u8]) {
        let to = self.bytes(pfn, offset, from.len());
        let (head, body) = from.split_at(bytes_to_word(offset).min(from.len()));
        let words = body.len() / 8;
        let (body, tail) = body.split_at(words * 8);
        // SAFETY: E1, E2: as in `load`.
        unsafe {
            let mid = to.add(head.len());
            store_bytes(to, head);
            for (i, word) in body.as_chunks::<8>().0.iter().enumerate() {
                AtomicU64::from_ptr(mid.add(i * 8).cast()).store(u64::from_ne_bytes(*word), Relaxed);
            }
            store_bytes(mid.add(words * 8), tail);
        }
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

fn bytes_to_word(offset: usize) -> usize {
    offset.next_multiple_of(8) - offset
}

/// # Safety
///
/// E2: `into.len()` bytes at `from` are in the arena.
unsafe fn load_bytes(from: *mut u8, into: &mut [u8]) {
    for (i, to) in into.iter_mut().enumerate() {
        // SAFETY: E2: the caller's promise.
        *to = unsafe { AtomicU8::from_ptr(from.add(i)) }.load(Relaxed);
    }
}

/// # Safety
///
/// E2: `from.len()` bytes at `to` are in the arena.
unsafe fn store_bytes(to: *mut u8, from: &[u8]) {
    for (i, byte) in from.iter().enumerate() {
        // SAFETY: E2: the caller's promise.
        unsafe { AtomicU8::from_ptr(to.add(i)) }.store(*byte, Relaxed);
    }
}

/// # Safety
///
/// E1: nobody uses these pages.
unsafe fn trim(start: *mut c_void, len: usize) {
    if len > 0 {
        // SAFETY: E1: the caller's promise. A refusal would leave pages mapped
        // that nobody uses, which harms nobody.
        let _ = unsafe { munmap(start, len) };
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: E1: the whole of the mapping; `&mut self` says that nobody
        // borrows from it.
        unsafe { trim(self.base.as_ptr().cast(), self.nr_frames() as usize * FRAME_BYTES) }
    }
}

#[cfg(test)]
mod tests;
