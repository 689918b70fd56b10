//! Zeroing and copying past the caches.
//!
//! Non-temporal stores of 16 bytes: a line is sent to memory whole, without
//! having been read and without evicting another. Stores of 8 bytes from a
//! general register took twice as long on the machine that this was measured on.
//! Where there are none (other architectures, kernels that keep the vector
//! registers to programs, and the facades of `sync`, whose machines know
//! ordinary stores only), plain ones do the same work.
//!
//! Such stores are ordered by nothing but a fence of their own: a CPU that streams
//! calls [`done`] before anybody else may learn of the frames.
#![allow(unsafe_code)]

use super::{SourceFailed, copy_by_machine};
use crate::addr::{PAGE_SIZE, Pfn};
use crate::machine::Machine;
use crate::sync;

/// Zeroes `nr_frames` adjacent frames, owned by the caller alone (I6).
pub fn zero_frames<M: Machine>(machine: &M, first: Pfn, nr_frames: u64) {
    let (first, len) = (machine.frame_ptr(first), (nr_frames * PAGE_SIZE) as usize);
    sync::about_to_touch(first, len);
    // SAFETY: I1 and I6: that many bytes, aligned to a page, and nobody else
    // reads or writes them now.
    unsafe { bytes::zero(first, len) };
    sync::streamed();
    sync::zeroed(first, len);
}

/// Copies `nr_frames` adjacent frames; `to` must be owned by the caller alone (I6), and `from` as
/// for [`super::copy_frames`].
///
/// # Errors
///
/// [`SourceFailed`]
pub fn copy_frames<M: Machine>(machine: &M, to: Pfn, from: Pfn, nr_frames: u64) -> Result<(), SourceFailed> {
    let nr_done = copy_by_machine(machine, to, from, nr_frames)?;
    if nr_done < nr_frames {
        let at = |first: Pfn| Pfn(first.0 + nr_done as u32);
        copy_streaming(machine, at(to), at(from), nr_frames - nr_done);
    }
    Ok(())
}

fn copy_streaming<M: Machine>(machine: &M, to: Pfn, from: Pfn, nr_frames: u64) {
    let len = (nr_frames * PAGE_SIZE) as usize;
    let (from, to) = (machine.frame_ptr(from), machine.frame_ptr(to));
    sync::about_to_touch(from, len);
    sync::about_to_touch(to, len);
    // SAFETY: I1 and I6: as above; distinct frames do not overlap.
    unsafe { bytes::copy(to, from, len) };
    sync::streamed();
}

/// Orders streamed stores before all that follows.
pub fn done() {
    bytes::fence();
    sync::stream_done();
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(softfault_sync), not(miri)))]
mod bytes {
    use core::arch::x86_64::{__m128i, _mm_load_si128, _mm_setzero_si128, _mm_sfence, _mm_stream_si128};

    /// # Safety
    ///
    /// I1, I6: `len` bytes, a multiple of 64, at `to`, aligned to 64, are the
    /// caller's.
    pub unsafe fn zero(to: *mut u8, len: usize) {
        for line in (0..len).step_by(64) {
            // SAFETY: I1: the line is inside, and its quarters are aligned to 16.
            unsafe {
                let at = to.add(line).cast::<__m128i>();
                (0..4).for_each(|i| _mm_stream_si128(at.add(i), _mm_setzero_si128()));
            }
        }
    }

    /// # Safety
    ///
    /// I1, I6: as for [`zero`]; `from` is as much again, elsewhere, aligned alike.
    pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
        for line in (0..len).step_by(64) {
            // SAFETY: I1: the line is inside, there and here, and its quarters are
            // aligned to 16.
            unsafe {
                let (at, source) = (to.add(line).cast::<__m128i>(), from.add(line).cast::<__m128i>());
                (0..4).for_each(|i| _mm_stream_si128(at.add(i), _mm_load_si128(source.add(i))));
            }
        }
    }

    pub fn fence() {
        // SAFETY: I5: a fence touches no memory; the CPU has it (`sse2` above).
        unsafe { _mm_sfence() }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2", not(softfault_sync), not(miri))))]
mod bytes {
    /// # Safety
    ///
    /// I1, I6: `len` bytes at `to` are the caller's.
    pub unsafe fn zero(to: *mut u8, len: usize) {
        // SAFETY: I1, I6: the caller's promise.
        unsafe { core::ptr::write_bytes(to, 0, len) }
    }

    /// # Safety
    ///
    /// I1, I6: as for [`zero`]; `from` is as much again, elsewhere.
    pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
        // SAFETY: I1, I6: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(from, to, len) }
    }

    pub fn fence() {}
}
