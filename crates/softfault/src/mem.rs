//! Typed views of frames: where the core turns a frame number into a reference.
//!
//! One of the few modules with `unsafe`. Everything that the core keeps in
//! memory is made of [`Word`]s, which are valid with any bits in them and may be
//! shared freely, so a view of a frame is sound for as long as the machine
//! exists, even of a frame that has since found another use: a stale view reads
//! wrong *numbers*, never wrong memory. That the numbers are right is what the
//! section protocol is for.
#![allow(unsafe_code)]

use crate::addr::{PAGE_SIZE, Pfn};
use crate::machine::{FrameCopy, Machine, ask};
use crate::sync::{self, Word};
use core::marker::PhantomData;
use core::ptr::NonNull;

mod pieces;
pub mod stream;
pub mod ways;

pub use pieces::{Cursor, Near, Pieces};

/// A type that consists of [`Word`]s alone.
///
/// # Safety
///
/// I5: `repr(C)` or `repr(transparent)`, every field a [`Word`], an array of
/// them or another such type; no padding, size a multiple of 8, alignment 8 or,
/// for a padded line, 64.
pub unsafe trait Words: Sized {}

// SAFETY: I5: repr(transparent) over a u64 in each facade.
unsafe impl Words for Word {}
// SAFETY: I5: an array of such types has their alignment and no padding.
unsafe impl<T: Words, const N: usize> Words for [T; N] {}

/// `T` at byte `offset` of the frame.
///
/// # Panics
///
/// If it would not lie in the frame, aligned: offsets are the core's own, so
/// this is a bug of the core, never of its caller.
#[inline(always)]
pub fn view<M: Machine, T: Words>(machine: &M, pfn: Pfn, offset: usize) -> &T {
    assert!(offset + size_of::<T>() <= PAGE_SIZE as usize && offset.is_multiple_of(align_of::<T>()));
    // SAFETY: I1 (the frame is there and aligned to 4,096) and I5 (any bits are
    // a valid T); bounds and alignment were checked above.
    unsafe { &*machine.frame_ptr(pfn).add(offset).cast::<T>() }
}

/// Where the machine's frames lie, for code without a reference to the machine (I1).
pub struct LinearMap {
    /// Where frame 0 would lie, wrapping around: the pointer to a frame that exists, moved.
    origin: *const u8,
}

// SAFETY: I1, I5: a pointer that stays the same, to memory that is shared as Words.
unsafe impl Sync for LinearMap {}
// SAFETY: I1, I5: as above.
unsafe impl Send for LinearMap {}

impl LinearMap {
    /// Returns the map of a machine.
    pub fn of<M: Machine>(machine: &M) -> LinearMap {
        let some = machine.frames()[0].first;
        LinearMap { origin: machine.frame_ptr(some).wrapping_sub(some.0 as usize * PAGE_SIZE as usize) }
    }
    /// The frame that an address of the map lies in.
    pub fn frame_at(&self, addr: usize) -> Pfn {
        Pfn((addr.wrapping_sub(self.origin.addr()) / PAGE_SIZE as usize) as u32)
    }
    /// As [`view`], of a frame whose number the metadata of blocks has (I51).
    pub fn view<T: Words>(&self, pfn: Pfn, offset: usize) -> &T {
        assert!(offset + size_of::<T>() <= PAGE_SIZE as usize && offset.is_multiple_of(align_of::<T>()));
        let at = self.origin.wrapping_add(pfn.0 as usize * PAGE_SIZE as usize + offset);
        // SAFETY: I1, I51 (a frame of the machine) and I5; bounds and alignment were checked above.
        unsafe { &*at.cast::<T>() }
    }
}

/// An array of `T` over adjacent frames.
pub struct FrameArray<T> {
    base: NonNull<T>,
    len: usize,
    words: PhantomData<T>,
}

// SAFETY: I5: a T is made of Words, which are made to be shared.
unsafe impl<T: Words> Sync for FrameArray<T> {}
// SAFETY: I5: as above.
unsafe impl<T: Words> Send for FrameArray<T> {}

impl<T: Words> FrameArray<T> {
    /// Frames that an array of `len` takes.
    pub const fn frames_for(len: usize) -> u64 {
        ((len * size_of::<T>()) as u64).div_ceil(PAGE_SIZE)
    }
    /// The array that begins `offset` bytes after the beginning of frame `first` and goes on
    /// through the frames after it, as far as `len` reaches.
    pub fn over<M: Machine>(machine: &M, first: Pfn, offset: usize, len: usize) -> FrameArray<T> {
        let (first, offset) = (Pfn(first.0 + (offset / PAGE_SIZE as usize) as u32), offset % PAGE_SIZE as usize);
        assert!(offset.is_multiple_of(align_of::<T>()));
        let base = machine.frame_ptr(first).wrapping_add(offset);
        let base = NonNull::new(base.cast()).expect("I1: a frame has an address");
        FrameArray { base, len, words: PhantomData }
    }
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Element `i`.
    ///
    /// # Panics
    ///
    /// If there is none: indices are checked where they come from outside.
    #[inline(always)]
    pub fn at(&self, i: usize) -> &T {
        assert!(i < self.len);
        // SAFETY: I1 (frames of one region are adjacent in the direct map) and
        // I5; i is inside the array that `over` was given the frames for.
        unsafe { &*self.base.as_ptr().add(i) }
    }
    /// Element `i`, if there is one.
    #[inline(always)]
    pub(crate) fn get(&self, i: usize) -> Option<&T> {
        // SAFETY: I1, I5: as in `at`.
        (i < self.len).then(|| unsafe { &*self.base.as_ptr().add(i) })
    }
    /// Elements `from..from + len`.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    pub fn part(&self, from: usize, len: usize) -> FrameArray<T> {
        assert!(from + len <= self.len && len > 0);
        // Not the address of a reference: that may be used for one element alone.
        // SAFETY: I1: the array goes on at least to `from`.
        FrameArray { base: unsafe { self.base.add(from) }, len, words: PhantomData }
    }
    /// All elements.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len).map(|i| self.at(i))
    }
}

/// Fills `nr_frames` adjacent frames with zeroes.
///
/// The frames must be owned by the caller alone: in no table, on no list (I6).
#[inline]
pub fn zero_frames<M: Machine>(machine: &M, first: Pfn, nr_frames: u64) {
    let (first, bytes) = (machine.frame_ptr(first), (nr_frames * PAGE_SIZE) as usize);
    sync::about_to_touch(first, bytes);
    // SAFETY: I1 and I6: nobody else reads or writes these bytes now.
    unsafe { core::ptr::write_bytes(first, 0, bytes) };
    sync::zeroed(first, bytes);
}

/// The memory of this frame failed while it was copied. The target has any bytes (I62).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct SourceFailed(pub Pfn);

/// Lets the machine copy adjacent frames. Returns the number of those that it has copied: the core copies the others.
///
/// # Errors
///
/// [`SourceFailed`]
#[inline(always)]
pub fn copy_by_machine<M: Machine>(machine: &M, to: Pfn, from: Pfn, nr_frames: u64) -> Result<u64, SourceFailed> {
    for i in 0..nr_frames {
        let source = Pfn(from.0 + i as u32);
        match ask::copy_frame(machine, Pfn(to.0 + i as u32), source) {
            FrameCopy::ByCore => return Ok(i),
            FrameCopy::Done => {}
            FrameCopy::SourceFailed => return Err(SourceFailed(source)),
        }
    }
    Ok(nr_frames)
}

/// Copies one frame, as [`copy_frames`] does.
pub fn copy_frame<M: Machine>(machine: &M, to: Pfn, from: Pfn) -> Result<(), SourceFailed> {
    copy_frames(machine, to, from, 1)
}

/// Copies adjacent frames; `to` must be owned by the caller alone (I6), `from` may be read by
/// others meanwhile, and is written by nobody: no translation, section or pin can reach it.
///
/// # Errors
///
/// [`SourceFailed`]
#[inline]
pub fn copy_frames<M: Machine>(machine: &M, to: Pfn, from: Pfn, nr_frames: u64) -> Result<(), SourceFailed> {
    let nr_done = copy_by_machine(machine, to, from, nr_frames)?;
    if nr_done < nr_frames {
        let at = |first: Pfn| Pfn(first.0 + nr_done as u32);
        copy_plain(machine, at(to), at(from), nr_frames - nr_done);
    }
    Ok(())
}

#[inline]
fn copy_plain<M: Machine>(machine: &M, to: Pfn, from: Pfn, nr_frames: u64) {
    let bytes = (nr_frames * PAGE_SIZE) as usize;
    let (from, to) = (machine.frame_ptr(from), machine.frame_ptr(to));
    sync::about_to_touch(from, bytes);
    sync::about_to_touch(to, bytes);
    // SAFETY: I1 and I6; distinct frames do not overlap.
    unsafe { core::ptr::copy_nonoverlapping(from, to, bytes) }
}

/// Asks for the line at `word` to be brought near for writing; only a hint.
#[inline(always)]
pub fn prefetch<T>(word: &T) {
    prefetch_addr(core::ptr::from_ref(word).addr());
}

#[inline(always)]
fn prefetch_addr(addr: usize) {
    #[cfg(all(target_arch = "x86_64", not(softfault_sync)))]
    // SAFETY: I5: a prefetch has no effect that a program could see, whatever the
    // address.
    unsafe {
        let line = core::ptr::without_provenance(addr);
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_ET0 }>(line);
    }
    let _ = addr;
}
